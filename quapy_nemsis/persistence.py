"""Learners on disk, without pickle: files that hold numbers and names, and cannot run code.

A file is a numpy ``.npz`` archive, not compressed, of arrays ``a0``, ``a1``, … and one string array ``header``, JSON
with

* ``format``: "quapy-nemsis"; ``version``: of the format, 1; ``written_by``: version of the package;
* ``learner``: the object as a tree of plain values, where ``{"array": k}`` stands for array k (each occurs once),
  ``{"number": "nan"}`` (or "inf", "-inf") for a number that JSON has not, ``{"tuple": […]}`` for a tuple,
  ``{"dict": {…}}`` for a dictionary, and ``{"object": NAME, "state": {…}}`` for an object of one of the classes listed
  in `quapy_nemsis._saved` (nothing else is built), with all of its attributes and no others;
* ``extra``: what a checkpoint knows beside the learner, a tree of the same kind;
* ``digest``: SHA-256 of the trees and of all arrays.

The digest tells what was damaged, not who wrote it. Compiled code does not look where it reads and writes, so a learner
is checked before it is handed out: names, types, the shapes of its arrays, and that its parts fit together.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from quapy_nemsis import calibration
from quapy_nemsis._saved import LEARNERS, build, check, classes

FORMAT, VERSION = "quapy-nemsis", 1


def save(learner: Any, path: str | os.PathLike) -> None:
    """Write a learner to a file, all or nothing.

    Text labels come back as numpy strings, also where they were Python objects.

    Parameters
    ----------
    learner : estimator
        Any classifier of this package, fitted or not. Measures of one's own are functions, and cannot be written:
        pickle holds these. Nor can a `random_state` that is a generator.
    path : str or path-like
        The file; replaced if it is there.

    Examples
    --------
    >>> import tempfile, os
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from quapy_nemsis import NEMSISClassifier, load, save
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> learner = NEMSISClassifier("q", random_state=0).fit(scale(X), y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(learner, os.path.join(folder, "learner.npz"))
    ...     again = load(os.path.join(folder, "learner.npz"))
    >>> bool((again.predict(scale(X)) == learner.predict(scale(X))).all())
    True
    """
    write(learner, path)


def write(learner: Any, path: str | os.PathLike, extra: Any = None) -> None:
    """The same, with plain values that belong to the learner."""
    if not isinstance(learner, LEARNERS):
        names = ", ".join(kind.__name__ for kind in LEARNERS)
        raise TypeError(
            f"save takes {names}; got {type(learner).__name__} (of a quantifier, save its classifier_)"
        )
    arrays: list[np.ndarray] = []
    tree = [_encode(learner, arrays, "the learner"), _encode(extra, arrays, "extra")]
    _restored(tree, arrays)  # what cannot be loaded is not written
    header = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": version("quapy-nemsis"),
        "learner": tree[0],
        "extra": tree[1],
        "digest": _digest(tree, arrays),
    }
    path = Path(path)
    # Always the same name: what a process that was killed leaves behind is gone with the next write.
    temporary = path.parent / f".{path.name}.part"
    try:
        temporary.unlink(missing_ok=True)
        with open(temporary, "xb") as file:
            named = {f"a{k}": array for k, array in enumerate(arrays)}
            np.savez(file, header=np.array(json.dumps(header)), **named)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Have the new name of a file on disk too, where folders can be opened (not on Windows)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def load(path: str | os.PathLike) -> Any:
    """Read a learner that `save` wrote.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    estimator
        The learner, as it was.

    Raises
    ------
    ValueError
        If the file is cut short, changed, not of this kind, or of a newer version; if what it holds is not a learner
        that can be used.
    OSError
        If it is not there, or cannot be opened.

    Examples
    --------
    >>> load("nowhere.npz")
    Traceback (most recent call last):
    ...
    FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.npz'
    """
    return read(path)[0]


def read(path: str | os.PathLike) -> tuple[Any, Any]:
    """The same, with the values that were written along."""
    broken = f"is broken, cut short or no file of {FORMAT}"
    with open(path, "rb") as file:
        with _refused(path, broken):
            archive = _archive(file)
            header = json.loads(_member(archive, "header").item())
            if header["format"] != FORMAT:
                raise ValueError("write learners with quapy_nemsis.save")
        _check_version(path, header)
        with _refused(path, broken):
            n_arrays = len(archive.infolist()) - 1
            arrays = [_member(archive, f"a{k}") for k in range(n_arrays)]
    with _refused(path, "was changed or damaged"):
        tree = [header["learner"], header["extra"]]
        if header["digest"] != _digest(tree, arrays):
            raise ValueError("its digest does not match its content")
    with _refused(path, "does not hold a learner of this package"):
        return _restored(tree, arrays)


@contextmanager
def _refused(path: str | os.PathLike, why: str) -> Iterator[None]:
    """Turn whatever goes wrong into a ValueError that names the file."""
    try:
        yield
    except (
        Exception
    ) as error:  # the parsers of zip, npy and JSON raise nearly anything on bytes that were made up
        raise ValueError(f"{path} {why}: {str(error) or type(error).__name__}") from error


def _check_version(path: str | os.PathLike, header: dict) -> None:
    found = header.get("version")
    if type(found) is int and found > VERSION:
        raise ValueError(
            f"{path} is of format version {found}, written by quapy-nemsis "
            f"{header.get('written_by')}; this one reads version {VERSION}: install a newer quapy-nemsis"
        )
    if type(found) is not int or found != VERSION:
        raise ValueError(f"{path} was changed or damaged: there is no format version {found!r}")


def _archive(file: BinaryIO) -> zipfile.ZipFile:
    """The archive, if reading it takes no more memory than the file has bytes."""
    archive = zipfile.ZipFile(file)
    members = archive.infolist()
    if any(
        member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members
    ):
        raise ValueError("it is compressed or encrypted")
    if sum(member.file_size for member in members) > os.fstat(file.fileno()).st_size:
        raise ValueError("its parts are larger than the file")
    return archive


def _member(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array, if it has the length that it says: numpy would ask for the memory first."""
    info = archive.getinfo(f"{name}.npy")
    with archive.open(info) as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError(f"{name} is no array of npy version 1.0")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        if math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
            raise ValueError(f"{name} is not as long as it says")
        member.seek(0)
        return np.lib.format.read_array(member, allow_pickle=False)


def _digest(tree: Any, arrays: list[np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True).encode())
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _encode(value: Any, arrays: list[np.ndarray], where: str) -> Any:
    """A value as a tree; its arrays are appended."""
    if isinstance(value, np.ndarray):
        if value.dtype == object and all(isinstance(entry, str) for entry in value.flat):
            value = value.astype(str)
        if value.dtype == object:
            raise TypeError(f"{where} is an array of objects, which cannot be saved; use pickle")
        arrays.append(np.asarray(value, order="C"))
        return {"array": len(arrays) - 1}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": repr(value)}
    if isinstance(value, list | tuple):
        entries = [_encode(entry, arrays, f"{where}[{k}]") for k, entry in enumerate(value)]
        return entries if isinstance(value, list) else {"tuple": entries}
    if isinstance(value, dict):
        return {"dict": {name: _encode(v, arrays, f"{where}.{name}") for name, v in value.items()}}
    kind = type(value).__name__
    if classes().get(kind) is not type(value):
        raise TypeError(
            f"{where} is a {kind}, which cannot be saved: only numbers, names and the measures of this package can. "
            "Use pickle, or a seed that is an integer"
        )
    state = {
        name: _encode(entry, arrays, f"{where}.{name}")
        for name, entry in vars(value).items()
        if not _is_derived(value, name)
    }
    return {"object": kind, "state": state}


def _is_derived(value: Any, name: str) -> bool:
    """Whether an attribute is a cached result."""
    return isinstance(value, calibration.Calibration) and name in ("_curve", "_sigmoid")


def _restored(tree: list, arrays: list[np.ndarray]) -> tuple[Any, Any]:
    """The learner and what goes with it, checked."""
    left = dict(enumerate(arrays))
    learner, extra = _decode(tree, left)
    if not isinstance(learner, LEARNERS):
        raise ValueError(f"it holds a {type(learner).__name__}")
    check(learner, getattr(learner, "n_features_in_", 0))
    if left:
        raise ValueError(f"arrays {sorted(left)} belong to nothing")
    return learner, extra


def _decode(tree: Any, arrays: dict[int, np.ndarray]) -> Any:
    """The inverse of `_encode`; arrays are taken out."""
    match tree:
        case list():
            return [_decode(entry, arrays) for entry in tree]
        case {"array": int(k)} if k in arrays:
            return arrays.pop(k)
        case {"number": "nan" | "inf" | "-inf" as number}:
            return float(number)
        case {"tuple": list(entries)}:
            return tuple(_decode(entry, arrays) for entry in entries)
        case {"dict": dict(entries)}:
            return {name: _decode(entry, arrays) for name, entry in entries.items()}
        case {"object": kind, "state": dict(state)}:
            parts = {name: _decode(entry, arrays) for name, entry in state.items()}
            return build(classes()[kind], parts)
        case dict():
            raise ValueError(f"there is nothing that {str(tree)[:80]} stands for")
    return tree
