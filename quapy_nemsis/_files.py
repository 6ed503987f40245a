"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


@contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """A file that takes its name when it is complete and on disk; until then the old one is there."""
    path = Path(path)
    # Always the same name: what a process that was killed leaves behind is gone with the next write.
    temporary = path.parent / f".{path.name}.part"
    binary = "b" in mode
    try:
        temporary.unlink(missing_ok=True)
        with open(
            temporary,
            mode.replace("w", "x"),
            encoding=None if binary else "utf-8",
            newline=None if binary else "",
        ) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # the new name, too; folders cannot be opened on Windows
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
