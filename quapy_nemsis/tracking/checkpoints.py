"""Checkpoints of tracked streams: files of numbers and names that cannot run code, as those of learners."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from quapy_nemsis._files import replacing

FORMAT, VERSION = "quapy-nemsis track", 1


def write(path: str | Path, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write plain values and arrays to a file; an older file stays in place until the new one is complete."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "content": content,
        "digest": digest(content, arrays),
    }
    with replacing(path) as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the values and arrays of a file; a file that is not whole, or of another kind, raises a ValueError."""
    with open(path, "rb"):
        pass  # a missing file is an OSError
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").item())
        found = header["format"], header["version"]
        content = header["content"]
        whole = header["digest"] == digest(content, arrays)
    except Exception as error:  # on invalid bytes, the parsers raise nearly any exception
        raise ValueError(f"{path} is broken, or not a checkpoint of track: {error}") from error
    if found != (FORMAT, VERSION):
        raise ValueError(
            f"{path} is of the format {found}, and this version reads {(FORMAT, VERSION)}"
        )
    if not whole:
        raise ValueError(f"{path} was changed or damaged: its digest does not match its content")
    return content, arrays


def digest(content: Any, arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 of plain values and arrays."""
    found = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name}{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def plain(content: Any) -> Any:
    """Values as they are read from a file: tuples are lists, for example."""
    return json.loads(json.dumps(content))
