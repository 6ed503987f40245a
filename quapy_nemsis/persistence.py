"""Saving and loading of learners without pickle, in files that contain only numbers and names and cannot run code.

A file is an uncompressed numpy ``.npz`` archive of named arrays and one string array ``header``, which is JSON with

* ``format``: "quapy-nemsis"; ``version``: version of the format, 4; ``written_by``: version of the package;
* ``class`` and ``parameters`` of the learner, where ``{"number": "nan"}`` (or "inf", "-inf") stands for a number that
  JSON does not have, ``{"pairs": [[KEY, VALUE], …]}`` for a dict whose keys are not all texts, and
  ``{"measure": NAME}``, ``{"loss": NAME}`` and ``{"loss of measure": NAME}`` for objects;
* ``extra``: plain values that a checkpoint stores in addition to the learner;
* ``digest``: SHA-256 of class, parameters, extra and all arrays.

The arrays are those returned by the learner's `to_arrays`, under the same names. The digest detects damage; it does not
prove who wrote the file. Compiled code does not check its array bounds, so a learner is checked before it is returned:
the names, types and shapes of its arrays, and the consistency of its parts. `quapy_nemsis._version1` converts files of
version 1 to version 2, `quapy_nemsis._version2` those of version 2 to version 3, and `quapy_nemsis._version3` those of
version 3 to version 4.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, BinaryIO

import numpy as np

from quapy_nemsis import learners
from quapy_nemsis._files import replacing
from quapy_nemsis._version1 import from_version1
from quapy_nemsis._version2 import from_version2
from quapy_nemsis._version3 import from_version3
from quapy_nemsis.learners.base import LinearClassifier
from quapy_nemsis.learners.state import Arrays
from quapy_nemsis.measures import Measure, get_loss, get_measure

FORMAT, VERSION = "quapy-nemsis", 4
LEARNERS: dict[str, type[LinearClassifier]] = {
    kind.__name__: kind
    for kind in (
        learners.NEMSISClassifier,
        learners.SCANClassifier,
        learners.CANClassifier,
        learners.SVMPerfClassifier,
        learners.OnePassMiniBatchClassifier,
        learners.AMPClassifier,
        learners.STAMPClassifier,
        learners.SPADEClassifier,
    )
}
#: Parameters that a class has got since it was first saved with this version of the format, and what they were before.
ADDED: dict[str, dict[str, Any]] = {
    name: {"posteriors": None}
    for name in ("CANClassifier", "SVMPerfClassifier", "OnePassMiniBatchClassifier")
}


def save(learner: LinearClassifier, path: str | os.PathLike[str]) -> None:
    """Write a learner to a file. If writing fails, no partial file is left and an existing file is kept.

    Text labels are loaded as numpy strings, even if they were Python objects.

    Parameters
    ----------
    learner : estimator
        Any classifier of this package, fitted or not. Learners with a custom measure, or with a `random_state` that is
        a generator, cannot be saved; use pickle for these.
    path : str or path-like
        The file; an existing file is replaced.

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


def write(learner: LinearClassifier, path: str | os.PathLike[str], extra: Any = None) -> None:
    """Write a learner, together with extra plain values, to a file."""
    name = type(learner).__name__
    if LEARNERS.get(name) is not type(learner):
        raise TypeError(
            f"save takes {', '.join(LEARNERS)}; got {name} (for a quantifier, save its classifier_)"
        )
    content = {
        "class": name,
        "parameters": {
            key: _encode(value, f"the learner's {key}")
            for key, value in learner.get_params(deep=False).items()
        },
        "extra": _encode(extra, "extra"),
    }
    fitted = hasattr(learner, "classes_")
    arrays = (
        {key: _plain(array, key) for key, array in learner.to_arrays().items()} if fitted else {}
    )
    _restored(content, arrays)  # raises an error if it could not be loaded
    header = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": version("quapy-nemsis"),
        **content,
        "digest": _digest(content, arrays),
    }
    with replacing(path) as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]


def load(path: str | os.PathLike[str]) -> LinearClassifier:
    """Read a learner from a file written by `save`.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    estimator
        The learner, in the state in which it was saved.

    Raises
    ------
    ValueError
        If the file is truncated, was changed, is of another kind or of a newer version, or does not contain a usable
        learner.
    OSError
        If the file does not exist or cannot be opened.

    Examples
    --------
    >>> load("nowhere.npz")
    Traceback (most recent call last):
    ...
    FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.npz'
    """
    return read(path)[0]


def read(path: str | os.PathLike[str]) -> tuple[LinearClassifier, Any]:
    """Read a learner and the extra values from a file."""
    broken = f"is broken, truncated or not a file of {FORMAT}"
    with open(path, "rb") as file:
        with _refused(path, broken):
            archive = _archive(file)
            header = json.loads(_member(archive, "header").item())
            if header["format"] != FORMAT:
                raise ValueError("only files written by quapy_nemsis.save can be loaded")
        _check_version(path, header)
        with _refused(path, broken):
            names = sorted(name.removesuffix(".npy") for name in archive.namelist())
            arrays = {name: _member(archive, name) for name in names if name != "header"}
    with _refused(path, "was changed or damaged"):
        content = CONTENT[header["version"]](header)
        if header["digest"] != _digest(content, arrays):
            raise ValueError("its digest does not match its content")
    with _refused(path, "does not hold a learner of this package"):
        if header["version"] < 2:
            content, arrays = from_version1(content, arrays)
        if header["version"] < 3:
            content, arrays = from_version2(content, arrays)
        if header["version"] < 4:
            content, arrays = from_version3(content, arrays)
        return _restored(content, arrays)


@contextmanager
def _refused(path: str | os.PathLike[str], why: str) -> Iterator[None]:
    """Turn any exception into a ValueError that names the file."""
    try:
        yield
    except (
        Exception
    ) as error:  # on invalid bytes, the parsers of zip, npy and JSON raise nearly any exception
        raise ValueError(f"{path} {why}: {str(error) or type(error).__name__}") from error


def _check_version(path: str | os.PathLike[str], header: dict) -> None:
    found = header.get("version")
    if type(found) is int and found > VERSION:
        raise ValueError(
            f"{path} is of format version {found}, written by quapy-nemsis "
            f"{header.get('written_by')}, but this package reads versions up to {VERSION}: install a newer quapy-nemsis"
        )
    if type(found) is not int or found < 1:
        raise ValueError(f"{path} was changed or damaged: there is no format version {found!r}")


def _archive(file: BinaryIO) -> zipfile.ZipFile:
    """Open the archive, if reading it takes no more memory than the size of the file."""
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
    """Read an array, after checking its length, because numpy would allocate the memory that the header asks for."""
    info = archive.getinfo(f"{name}.npy")
    with archive.open(info) as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError(f"{name} is not an array of npy version 1.0")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        if math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
            raise ValueError(f"the length of {name} does not match its header")
        member.seek(0)
        return np.lib.format.read_array(member, allow_pickle=False)


#: The part of the header that the digest covers, for each version.
CONTENT: dict[int, Callable[[dict[str, Any]], Any]] = {
    1: lambda header: [header["learner"], header["extra"]],
    2: lambda header: {name: header[name] for name in ("class", "parameters", "extra")},
    3: lambda header: {name: header[name] for name in ("class", "parameters", "extra")},
    4: lambda header: {name: header[name] for name in ("class", "parameters", "extra")},
}


def _digest(content: Any, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    version1 = isinstance(content, list)  # its arrays are numbered a0, a1, … and not named
    for name in sorted(arrays, key=lambda name: (len(name), name) if version1 else (0, name)):
        array = arrays[name]
        digest.update(f"{'' if version1 else name}{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _plain(array: np.ndarray, where: str) -> np.ndarray:
    """Convert an array to the form in files; text stored as Python objects becomes numpy strings."""
    if array.dtype == object and all(isinstance(entry, str) for entry in array.flat):
        array = array.astype(str)
    if array.dtype == object:
        raise TypeError(f"{where} is an array of objects, which cannot be saved; use pickle")
    return np.asarray(array, order="C")


def _encode(value: Any, where: str) -> Any:
    """Convert a value to JSON."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": repr(value)}
    if isinstance(value, list | tuple):
        return [_encode(entry, f"{where}[{k}]") for k, entry in enumerate(value)]
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            # JSON has only texts as names; pairs keep numbers apart from texts.
            pairs = [
                [_encode(key, where), _encode(v, f"{where}[{key!r}]")] for key, v in value.items()
            ]
            return {"pairs": pairs}
        return {"dict": {name: _encode(v, f"{where}.{name}") for name, v in value.items()}}
    for kind in ("measure", "loss", "loss of measure"):
        if isinstance(value, Measure) and _same(kind, value):
            return {kind: value.name}
    raise TypeError(
        f"{where} is a {type(value).__name__}, which cannot be saved: only numbers, names and the measures of this "
        "package can. Use pickle, or an integer as random_state"
    )


def _same(kind: str, value: Measure) -> bool:
    """Whether a measure can be restored from its name; a custom measure cannot."""
    try:
        return bool(_decode({kind: value.name}) == value)
    except ValueError:
        return False


def _decode(tree: Any) -> Any:
    """Inverse of `_encode`."""
    match tree:
        case list():
            return [_decode(entry) for entry in tree]
        case {"number": "nan" | "inf" | "-inf" as number}:
            return float(number)
        case {"dict": dict(entries)}:
            return {name: _decode(entry) for name, entry in entries.items()}
        case {"pairs": list(pairs)}:
            return {_decode(key): _decode(entry) for key, entry in pairs}
        case {"measure": str(name)}:
            return get_measure(name)
        case {"loss": str(name)}:
            return get_loss(name)
        case {"loss of measure": str(name)}:
            return get_loss(get_measure(name))
        case dict():
            raise ValueError(f"the value {str(tree)[:80]} is unknown")
    return tree


def _restored(
    content: dict[str, Any], arrays: dict[str, np.ndarray]
) -> tuple[LinearClassifier, Any]:
    """Restore and check a learner, and decode the extra values."""
    kind = LEARNERS.get(content["class"])
    if kind is None:
        raise ValueError(f"it contains a {content['class']}")
    parameters = {name: _decode(value) for name, value in content["parameters"].items()}
    parameters = {**ADDED.get(kind.__name__, {}), **parameters}
    if parameters.keys() != kind().get_params(deep=False).keys():
        raise ValueError(f"the parameters of {kind.__name__} are not {', '.join(parameters)}")
    learner = kind(**parameters)
    if arrays:
        coef, classes = (arrays.get(name, np.zeros(0)) for name in ("coef", "classes"))
        n_classes = len(classes) if classes.ndim else 0
        reader = Arrays(arrays, coef.shape[-1] if coef.ndim else 0, n_classes)
        learner.from_arrays(reader)
        reader.finish()
    return learner, _decode(content["extra"])
