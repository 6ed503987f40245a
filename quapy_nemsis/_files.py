"""Files that are written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


@contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file that gets its name once it is complete and on disk; until then an older file stays in place."""
    path = Path(path)
    # The name is always the same, so the next write removes what a killed process left behind.
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
    with suppress(OSError):  # sync the new name, too; Windows cannot open folders
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
