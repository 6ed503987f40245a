"""Learners on disk, without pickle: files that hold numbers and names, and cannot run code.

A file is a numpy ``.npz`` archive of arrays ``a0``, ``a1``, … and one string array ``header``, JSON with

* ``format``: "quapy-nemsis"; ``version``: of the format, 1; ``written_by``: version of the package;
* ``learner``: the object as a tree of plain values, where ``{"array": k}`` stands for array k, ``{"number": "nan"}``
  for a number that JSON has not, ``{"tuple": […]}`` for a tuple, ``{"dict": {…}}`` for a dictionary, and
  ``{"object": NAME, "state": {…}}`` for an object of one of the classes listed in `_classes` (nothing else is built);
* ``extra``: what a checkpoint knows beside the learner, a tree of the same kind;
* ``digest``: SHA-256 of the trees and of all arrays.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from quapy_nemsis import _state, calibration, classifiers, losses, measures, minibatch, tuning
from quapy_nemsis.batch import CANClassifier
from quapy_nemsis.structural import SVMPerfClassifier, _Planes

FORMAT, VERSION = "quapy-nemsis", 1

_LEARNERS = (
    classifiers.NEMSISClassifier,
    classifiers.SCANClassifier,
    CANClassifier,
    SVMPerfClassifier,
    minibatch.OnePassMiniBatchClassifier,
)


def _classes() -> dict[str, type]:
    """Classes that a file may hold objects of, by name."""
    known = [
        *_LEARNERS,
        _state.State,
        _state.ScanState,
        _state.NemsisSettings,
        _state.ScanSettings,
        minibatch.MiniBatchState,
        minibatch.MiniBatchSettings,
        tuning.Race,
        tuning.Tuned,
        calibration.Calibration,
        measures.Valuation,
        losses._NamedLoss,
        losses._MeasureLoss,
        _Planes,
        *measures.MEASURES.values(),
    ]
    return {kind.__name__: kind for kind in known}


def save(learner: Any, path: str | os.PathLike) -> None:
    """Write a learner to a file, all or nothing.

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
    if not isinstance(learner, _LEARNERS):
        names = ", ".join(kind.__name__ for kind in _LEARNERS)
        raise TypeError(
            f"save takes {names}; got {type(learner).__name__} (of a quantifier, save its classifier_)"
        )
    arrays: list[np.ndarray] = []
    tree = [_encode(learner, arrays, "the learner"), _encode(extra, arrays, "extra")]
    header = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": version("quapy-nemsis"),
        "learner": tree[0],
        "extra": tree[1],
        "digest": _digest(tree, arrays),
    }
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            named = {f"a{k}": array for k, array in enumerate(arrays)}
            np.savez(file, header=np.array(json.dumps(header)), **named)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


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
        If the file is cut short, changed, not of this kind, or of a newer version.

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
    try:
        if Path(path).is_file() and not zipfile.is_zipfile(path):
            raise zipfile.BadZipFile("it is not a whole npz file")
        with np.load(path, allow_pickle=False) as parts:
            header = json.loads(str(parts["header"])) if "header" in parts else {}
            arrays = [parts[f"a{k}"] for k in range(len(parts.files) - 1)]
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is broken, cut short or no file of {FORMAT}: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{path} is no file of {FORMAT}: write learners with quapy_nemsis.save")
    if header.get("version") != VERSION:
        raise ValueError(
            f"{path} is of format version {header.get('version')}, written by quapy-nemsis "
            f"{header.get('written_by')}; this one reads version {VERSION}: install a newer quapy-nemsis"
        )
    tree = [header.get("learner"), header.get("extra")]
    if header.get("digest") != _digest(tree, arrays):
        raise ValueError(f"{path} was changed or damaged: its digest does not match its content")
    try:
        learner, extra = _decode(tree, arrays)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{path} does not hold a learner of this package: {error}") from error
    if not isinstance(learner, _LEARNERS):
        raise ValueError(f"{path} does not hold a learner of this package")
    return learner, extra


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
        arrays.append(value)
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
    if _classes().get(kind) is not type(value):
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


def _decode(tree: Any, arrays: list[np.ndarray]) -> Any:
    """The inverse of `_encode`."""
    if isinstance(tree, list):
        return [_decode(entry, arrays) for entry in tree]
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[tree["array"]]
    if "number" in tree:
        return float(tree["number"])
    if "tuple" in tree:
        return tuple(_decode(entry, arrays) for entry in tree["tuple"])
    if "dict" in tree:
        return {name: _decode(entry, arrays) for name, entry in tree["dict"].items()}
    built = object.__new__(_classes()[tree["object"]])
    for name, entry in tree["state"].items():
        object.__setattr__(built, name, _decode(entry, arrays))
    return built
