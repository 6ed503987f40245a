"""What identifies a state of the sources: whatever is kept on disk and depends on them is kept under their digest."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=32)
def source_digest(*paths: Path) -> str:
    """SHA-256 over names and contents of Python sources, in hexadecimal; read once a process.

    Parameters
    ----------
    *paths : Path
        Folders, of which all ``*.py`` files at any depth count, or single files; this package if none are given.

    Returns
    -------
    str
        64 digits. Names count from the given folder on, so a copy elsewhere has the same.

    Examples
    --------
    >>> source_digest() == source_digest(Path(__file__).parent)
    True
    """
    digest = hashlib.sha256()
    for path in paths or (Path(__file__).parent,):
        # An editor's locks are links to nowhere that are named like sources.
        files = filter(Path.is_file, path.rglob("*.py")) if path.is_dir() else [path]
        named = {file.relative_to(path.parent).as_posix(): file for file in files}
        for name in sorted(named):
            content = named[name].read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
