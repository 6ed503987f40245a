"""A digest of source files, so that what is computed by one version of the code is not taken for another's."""

from __future__ import annotations

import hashlib
from pathlib import Path


def source_digest(*folders: Path) -> str:
    """The sha256, in hexadecimal, of the relative names and bytes of Python files.

    Parameters
    ----------
    *folders : Path
        Folders, of which all ``*.py`` files count, or single files. The default is this package.
    """
    digest = hashlib.sha256()
    for root in folders or (Path(__file__).parent,):
        single = Path(root).is_file()
        for path in [Path(root)] if single else sorted(Path(root).rglob("*.py")):
            name = path.name if single else path.relative_to(root).as_posix()
            content = path.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()
