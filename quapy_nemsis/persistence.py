"""Saving and loading without pickle, in files that contain only numbers and names and cannot run code.

Learners, quantifiers, random features, pipelines of random features and a learner, the preparation of tables and
`TableQuantifier` can be saved. A file is an
uncompressed numpy ``.npz`` archive of named arrays and one string array ``header``, which is JSON with

* ``format``: "quapy-nemsis"; ``version``: version of the format, 5; ``written_by``: version of the package;
* ``class`` and ``parameters`` of the object, where ``{"number": "nan"}`` (or "inf", "-inf") stands for a number that
  JSON does not have, ``{"pairs": [[KEY, VALUE], …]}`` for a dict whose keys are not all texts, and
  ``{"measure": NAME}``, ``{"loss": NAME}`` and ``{"loss of measure": NAME}`` for objects;
* ``parts``: class, parameters and parts of the objects that it consists of, by name;
* ``extra``: plain values that a checkpoint stores in addition to the learner;
* ``digest``: SHA-256 of class, parameters, parts, extra and all arrays.

The arrays are those of the learner's `to_arrays` (or of another object's `to_saved`), under the same names; those of a
part begin with its name and a dot. The digest detects damage; it does not prove who wrote the file. Compiled code does
not check its array bounds, so an object is checked before it is returned: the names, types and shapes of its arrays,
and the consistency of its parts. Files of older versions are converted, one version at a time: `quapy_nemsis._version1`
converts those of version 1 to version 2, and so on.
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
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
from sklearn.pipeline import Pipeline

from quapy_nemsis import learners
from quapy_nemsis._files import replacing
from quapy_nemsis._version1 import from_version1
from quapy_nemsis._version2 import from_version2
from quapy_nemsis._version3 import from_version3
from quapy_nemsis._version4 import from_version4
from quapy_nemsis.features import FourierFeatures, NystromFeatures, RandomFeatures
from quapy_nemsis.learners.base import Learner
from quapy_nemsis.learners.state import Arrays, Saved, check_parameters, prefixed
from quapy_nemsis.measures import Measure, get_loss, get_measure

FORMAT, VERSION = "quapy-nemsis", 5
LEARNERS: dict[str, type[Learner]] = {
    kind.__name__: kind
    for kind in (
        learners.NEMSISClassifier,
        learners.SCANClassifier,
        learners.CANClassifier,
        learners.SVMPerfClassifier,
        learners.OnePassMiniBatchClassifier,
        learners.QuantificationTreeClassifier,
        learners.QuantificationForestClassifier,
        learners.AMPClassifier,
        learners.STAMPClassifier,
        learners.SPADEClassifier,
    )
}
#: Other objects that a file can hold. Their modules are imported when they are needed.
QUANTIFIERS = (
    *("AMP", "CAN", "NEMSIS", "OnePassMiniBatch", "QForest", "QTree", "Quantifier", "SCAN"),
    *("SPADE", "STAMP", "SVMAE", "SVMKLD", "SVMNKLD", "SVMPerf", "SVMQ", "SVMRAE"),
)
FEATURES: dict[str, type[RandomFeatures]] = {
    kind.__name__: kind for kind in (FourierFeatures, NystromFeatures)
}
PREPARATIONS = ("DenseScaling", "SparseScaling", "TablePreparation", "TermWeights")
# How deep objects consist of others: a quantifier of tables, its quantifier, its learner.
_DEEPEST = 3


def save(learner: Any, path: str | os.PathLike[str]) -> None:
    """Write a learner or quantifier to a file. If writing fails, no partial file is left and an existing file is kept.

    Text labels are loaded as numpy strings, even if they were Python objects.

    Parameters
    ----------
    learner : estimator
        Any classifier or quantifier of this package, fitted or not, `FourierFeatures`, `NystromFeatures`, a pipeline
        of these that ends with a classifier of this package, or a fitted `TableQuantifier`.
        A custom measure, or a `random_state` that is a generator, cannot be saved; use pickle for these. Nor can a
        `Quantifier` around a classifier of another package; use skops for it.
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


def write(learner: Any, path: str | os.PathLike[str], extra: Any = None) -> None:
    """Write an object, together with extra plain values, to a file."""
    content, arrays = _described(learner)
    content["extra"] = _encode(extra, "extra")
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


def _described(thing: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Class, parameters and parts of an object, and all arrays."""
    name = type(thing).__name__
    if _kind(name) is not type(thing):
        known = (*LEARNERS, *QUANTIFIERS, *FEATURES, "Pipeline", "TableQuantifier")
        raise TypeError(f"save takes {', '.join(known)}; got {name}")
    if isinstance(thing, Learner):
        arrays = thing.to_arrays() if hasattr(thing, "classes_") else {}
        saved = Saved(thing.get_params(deep=False), {}, arrays)
    elif isinstance(thing, Pipeline):
        parameters = thing.get_params(deep=False)
        names, steps = zip(*parameters.pop("steps"), strict=True)
        parts = {str(k): step for k, step in enumerate(steps)}
        saved = Saved({**parameters, "names": names}, parts, {})
    else:
        saved = thing.to_saved()
    encoded = {
        key: _encode(value, f"the {_word(thing)}'s {key}")
        for key, value in saved.parameters.items()
    }
    found = {key: _plain(array, key) for key, array in saved.arrays.items()}
    described = {}
    for key, part in saved.parts.items():
        described[key], inner = _described(part)
        found |= prefixed(key, inner)
    return {"class": name, "parameters": encoded, "parts": described}, found


def _word(thing: Any) -> str:
    """The word for an object in messages."""
    return "learner" if isinstance(thing, Learner) else type(thing).__name__


def _kind(name: Any) -> Any:
    """The class of that name, or None if a file cannot hold its objects."""
    if name in LEARNERS:
        return LEARNERS[name]
    if name in QUANTIFIERS:
        from quapy_nemsis import quantifiers

        return getattr(quantifiers, name)
    if name in PREPARATIONS:
        from quapy_nemsis.tables import preparing

        return getattr(preparing, name)
    if name == "TableQuantifier":
        from quapy_nemsis.tables import quantifying

        return quantifying.TableQuantifier
    return Pipeline if name == "Pipeline" else FEATURES.get(name)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a learner or quantifier from a file written by `save`.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    estimator
        The learner or quantifier, in the state in which it was saved.

    Raises
    ------
    ValueError
        If the file is truncated, was changed, is of another kind or of a newer version, or does not contain a usable
        object.
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


def read(path: str | os.PathLike[str]) -> tuple[Any, Any]:
    """Read an object and the extra values from a file."""
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
        return _restored(*_converted(header["version"], content, arrays))


def _converted(
    found: int, content: Any, arrays: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Convert what a file of an older version holds to the current version."""
    readers: list[Any] = [from_version1, from_version2, from_version3, from_version4]
    for reader in readers[found - 1 :]:
        content, arrays = reader(content, arrays)
    return content, arrays


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
    5: lambda header: {name: header[name] for name in ("class", "parameters", "parts", "extra")},
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


def _restored(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """Restore and check an object, and decode the extra values."""
    return _rebuilt(content, arrays), _decode(content["extra"])


def _rebuilt(content: dict[str, Any], arrays: dict[str, np.ndarray], depth: int = 1) -> Any:
    """Restore and check an object and its parts."""
    kind = _kind(content["class"])
    if kind is None:
        raise ValueError(f"it contains a {content['class']}")
    if depth > _DEEPEST:
        raise ValueError("its parts consist of too many others")
    parameters = {name: _decode(value) for name, value in content["parameters"].items()}
    if issubclass(kind, Learner):
        return _rebuilt_learner(kind, parameters, content["parts"], arrays)
    reader = Arrays(arrays, 0, 0)
    parts = {
        name: _rebuilt(part, reader.part(name).arrays, depth + 1)
        for name, part in content["parts"].items()
    }
    if kind is Pipeline:
        thing = _rebuilt_pipeline(parameters, parts)
    else:
        thing = kind.from_saved(parameters, parts, reader)
    reader.finish()
    return thing


def _rebuilt_pipeline(parameters: dict[str, Any], parts: dict[str, Any]) -> Pipeline:
    expected = {"names", *Pipeline([]).get_params(deep=False)} - {"steps"}
    check_parameters(parameters, expected, "Pipeline")
    names = parameters.pop("names")
    steps = [parts.get(str(k)) for k in range(len(parts))]
    *features, learner = steps or [None]
    if not isinstance(learner, Learner) or not all(isinstance(f, RandomFeatures) for f in features):
        raise ValueError("its steps are not random features and then a learner")
    if not all(isinstance(name, str) for name in names) or len({*names}) != len(steps):
        raise ValueError("the names of its steps are not valid")
    for before, after in pairwise(step for step in steps if hasattr(step, "n_features_in_")):
        if before._n_features_out != after.n_features_in_:  # type: ignore[union-attr]
            raise ValueError("its features do not fit its learner")
    return Pipeline(list(zip(names, steps, strict=True)), **parameters)


def _rebuilt_learner(
    kind: type[Learner],
    parameters: dict[str, Any],
    parts: dict[str, Any],
    arrays: dict[str, np.ndarray],
) -> Learner:
    if parts:
        raise ValueError(f"a {kind.__name__} consists of no other objects")
    check_parameters(parameters, kind().get_params(deep=False), kind.__name__)
    learner = kind(**parameters)
    if arrays:
        nothing = np.zeros(0)
        wide = arrays.get("coef", arrays.get("importances", nothing))  # an entry for each feature
        classes = arrays.get("classes", nothing)
        n_classes = len(classes) if classes.ndim else 0
        reader = Arrays(arrays, wide.shape[-1] if wide.ndim else 0, n_classes)
        learner.from_arrays(reader)
        reader.finish()
    return learner
