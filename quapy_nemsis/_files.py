"""Files that are written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

try:
    import fcntl
except ImportError:  # not POSIX: what a killed process leaves behind stays
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file that gets its name once it is complete and on disk; until then an older file stays in place.

    Several processes may write the same file at once; the last one to finish wins. What a killed process left behind is
    removed by the next write.
    """
    path = Path(path)
    _remove_abandoned(path)
    temporary, file = _created(path, mode)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:
                os.replace(temporary, path)  # while it is locked
        if fcntl is None:
            os.replace(temporary, path)  # Windows does not rename open files
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # sync the new name, too; Windows cannot open folders
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _created(path: Path, mode: str) -> tuple[Path, IO[Any]]:
    """Create a file of its own beside the path, locked as long as it is open."""
    binary = "b" in mode
    options: dict[str, Any] = {} if binary else {"encoding": "utf-8", "newline": ""}
    while True:
        temporary = path.parent / f".{path.name}.{uuid4().hex[:12]}.part"
        file = open(temporary, mode.replace("w", "x"), **options)  # noqa: SIM115  the caller closes it
        if fcntl is None:
            return temporary, file
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if temporary.exists():  # else another process took it for abandoned before it was locked
            return temporary, file
        file.close()


def _remove_abandoned(path: Path) -> None:
    """Remove files that were begun for this path and that no process has open."""
    if fcntl is None:
        return
    for other in path.parent.glob(f".{escape(path.name)}.*.part"):
        with suppress(OSError), open(other, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            other.unlink()
