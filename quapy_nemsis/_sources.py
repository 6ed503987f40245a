"""A digest of source files. Anything kept on disk that depends on the sources is kept under this digest."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=32)
def source_digest(*paths: Path) -> str:
    """Return the SHA-256 digest of names and contents of Python sources; they are read once per process.

    Parameters
    ----------
    *paths : Path
        Single files, or folders, which stand for all ``*.py`` files below them. The default is this package.

    Returns
    -------
    str
        64 hexadecimal digits. Names begin with that of the given folder, so a copy elsewhere has the same digest.

    Examples
    --------
    >>> source_digest() == source_digest(Path(__file__).parent)
    True
    """
    digest = hashlib.sha256()
    for path in paths or (Path(__file__).parent,):
        # Lock files of some editors are named like sources, but are links that point nowhere.
        files = filter(Path.is_file, path.rglob("*.py")) if path.is_dir() else [path]
        named = {file.relative_to(path.parent).as_posix(): file for file in files}
        for name in sorted(named):
            content = named[name].read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
