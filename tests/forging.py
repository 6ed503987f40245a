"""Forged files of learners, all of them with a digest that matches: what is loaded must work.

A program of its own, ``python -m tests.forging FOLDER``: compiled code does not look where it reads and writes, which
may end the process. The last line that it prints says where.
"""

import contextlib
import itertools
import json
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import scipy.sparse

from quapy_nemsis import (
    BAKLD,
    CANClassifier,
    NEMSISClassifier,
    QMeasure,
    QuantificationForestClassifier,
    QuantificationTreeClassifier,
    SCANClassifier,
    SVMPerfClassifier,
    get_loss,
    load,
    persistence,
    save,
)
from quapy_nemsis import OnePassMiniBatchClassifier as MiniBatch
from quapy_nemsis.tables.formats import Fault
from tests.conftest import ROOT, make_classes, make_points

csr = scipy.sparse.csr_matrix
#: Every condition that a file can hold: a learner, and how many rows it learns, of which form, by which method.
CONDITIONS = {
    "nemsis": (NEMSISClassifier("kld", random_state=0, record_every=50), 215, np.array, "fit"),
    "nemsis steps": (
        *(NEMSISClassifier(BAKLD(0.3), reward="logistic", eta0=0.5, radius=2.0, average="all"), 99),
        *(np.float32, "partial_fit"),
    ),
    "nemsis chosen": (NEMSISClassifier(QMeasure(2.0)), 9000, np.array, "partial_fit"),
    "scan": (SCANClassifier("bk", estimates="surrogate", random_state=0), 215, np.array, "fit"),
    "scan level": (SCANClassifier(eta0=0.3), 110, np.array, "partial_fit"),
    "scan choosing": (SCANClassifier(), 215, np.array, "partial_fit"),
    "batch dense": (MiniBatch(buffer_size=30, n_passes=2, random_state=0), 215, np.float32, "fit"),
    "batch csr": (MiniBatch(get_loss("qgm"), buffer_size=30, eta0=1.0), 215, csr, "partial_fit"),
    "batch choosing": (MiniBatch("01", buffer_size=9), 215, np.array, "partial_fit"),
    "svmperf": (SVMPerfClassifier("qgm", C=10.0), 215, np.array, "fit"),
    "svmperf planes": (SVMPerfClassifier(BAKLD(0.5), C=10.0, warm_start=True), 99, csr, "fit"),
    "can": (CANClassifier("cq", radius=3.0, tol=1e-3), 99, np.array, "fit"),
    "tree": (QuantificationTreeClassifier(max_depth=3, random_state=0), 99, np.array, "fit"),
}
#: The same for three classes.
CLASS_CONDITIONS = {
    "nemsis classes": (
        *(NEMSISClassifier("q", n_passes=1, record_every=50, class_weight={2: 3.0}), 215),
        *(np.array, "fit"),
    ),
    "nemsis classes steps": (
        *(NEMSISClassifier("bakld", reward="hinge", estimates="surrogate", eta0=0.5), 99),
        *(np.float32, "partial_fit"),
    ),
    "nemsis classes choosing": (NEMSISClassifier("kld"), 215, csr, "partial_fit"),
    "scan classes level": (SCANClassifier(eta0=0.3), 110, csr, "partial_fit"),
    "scan classes choosing": (SCANClassifier("bk"), 215, np.array, "partial_fit"),
    "can classes": (CANClassifier("cq", radius=3.0, tol=1e-3), 99, np.array, "fit"),
    "forest classes": (
        *(QuantificationForestClassifier("q", n_estimators=3, max_depth=2, random_state=0), 99),
        *(csr, "fit"),
    ),
}
EVERY = CONDITIONS | CLASS_CONDITIONS
#: Files of older versions.
OLD_FILES = [(1, "nemsis-columns"), (1, "scan-level"), (1, "minibatch-csr"), (1, "svmperf-q")]
OLD_FILES += [(2, "nemsis-columns"), (2, "scan-choosing")]
#: Conditions whose arrays are like those of another.
ALIKE = ("nemsis steps", "nemsis chosen", "scan", "svmperf")
ALIKE += ("nemsis classes steps", "scan classes choosing")


def points_for(condition, n, seed=0):
    """Rows and labels, False and True or 0 to 2, such as a condition learns."""
    return (make_classes if condition in CLASS_CONDITIONS else make_points)(n=n, seed=seed)


def named(condition, y):
    """Labels as texts."""
    return np.array(["high", "low", "middle"] if condition in CLASS_CONDITIONS else ["no", "yes"])[
        y.astype(int)
    ]


def made(condition, text=False):
    learner, n, container, method = EVERY[condition]
    X, y = points_for(condition, n)
    learner = pickle.loads(pickle.dumps(learner))
    if text and getattr(learner, "class_weight", None):
        learner.class_weight = {"middle": 3.0}
    return getattr(learner, method)(container(X), named(condition, y) if text else y)


def put(entry, place=...):
    def change(array):
        array = array.copy()
        array[place] = entry
        return array

    return change


#: What can be wrong with an array; what cannot be done to one raises an error.
WRONG = {
    "missing": lambda a: None,
    "shorter": lambda a: a[..., :-1],
    "longer": lambda a: np.append(a, a[..., -1:], axis=-1),
    "empty": lambda a: a[..., :0],
    "deeper": lambda a: a[np.newaxis],
    "flat": lambda a: a.reshape(-1),
    "single": lambda a: a.reshape(-1)[0],
    "reversed": lambda a: a[..., ::-1],
    "swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "bytes": lambda a: put(7)(a.view(np.uint8)).view({1: bool}[a.itemsize]),
    "fields": lambda a: np.zeros(a.shape, dtype=[("x", float)]),
    **{f"as {k}": lambda a, k=k: a.astype(k) for k in ("f4", "i8", "i4", "?", "c16", "U9", "S9")},
    **{
        f"{entry} at {place}": put(entry, place)
        for entry in (np.nan, -np.inf, np.inf, -1, 1.5, 1e300, 2**62)
        for place in (0, ...)
    },
    "zeros": put(0),
    "text": put("x"),
}
ODD = [None, "x", -1, 1.5, True, [], {}, {"dict": {}}, {"dict": 3}, {"number": "nan"}]
ODD += [{"measure": "cqb"}, {"loss": "x"}, {"measure": 3}, {"array": 0}, 10**400, [[[]]]]


def array_forgeries(arrays):
    """Every array changed in every way; groups of arrays left out; one that nobody knows."""
    for name, how in itertools.product(arrays, WRONG):
        if re.match(r"state\.[1-7]\.", name):
            continue  # candidates like state.0
        try:
            found = WRONG[how](arrays[name])
        except (IndexError, KeyError, ValueError, TypeError, OverflowError):
            continue
        kept = {other: array for other, array in arrays.items() if other != name}
        yield f"{name} {how}", kept if found is None else {**kept, name: found}
    for prefix in {name.split(".")[0] for name in arrays}:
        kept = {name: array for name, array in arrays.items() if name.split(".")[0] != prefix}
        yield f"no {prefix}", kept
    yield "stranger", {**arrays, "stranger": np.zeros(3)}


def header_forgeries(header):
    """Every entry of the header changed."""
    for key, odd in itertools.product(
        ("class", "parameters", "extra"), [*ODD, "Popen", "SVMPerfClassifier"]
    ):
        yield f"{key} {odd}"[:60], {**header, key: odd}
    parameters = header["parameters"]
    yield "one more", {**header, "parameters": {**parameters, "predict": 1}}
    for name in parameters:
        kept = {other: value for other, value in parameters.items() if other != name}
        yield f"no {name}", {**header, "parameters": kept}
        for odd in ODD:
            yield f"{name} {odd}"[:60], {**header, "parameters": {**parameters, name: odd}}


def use(learner):
    """Do with a learner what can be done with it; learning on may be refused."""
    if not hasattr(learner, "classes_"):
        return
    X, y = make_points(n=70, d=learner.n_features_in_, seed=1)
    # Other learners start anew, with nothing that was in the file.
    goes_on = hasattr(learner, "partial_fit") or getattr(learner, "warm_start", False)
    for _ in range(1 + goes_on):
        assert np.isfinite(learner.decision_function(X)).all()
        assert np.isin(learner.predict(X), learner.classes_).all()
        if hasattr(learner, "predict_proba"):
            posteriors = learner.predict_proba(X)
            assert posteriors.shape == (70, len(learner.classes_))
            assert ((posteriors >= 0) & (posteriors <= 1)).all()
        if not goes_on:
            continue
        with contextlib.suppress(ValueError):
            codes = (
                y.astype(int)
                if len(learner.classes_) == 2
                else np.arange(70) % len(learner.classes_)
            )
            getattr(learner, "partial_fit", learner.fit)(X, learner.classes_[codes])


def restored(path, header, arrays):
    """What `load` does once the digest is found to match."""
    content = persistence.CONTENT[header["version"]](header)
    with persistence._refused(path, "does not hold a learner of this package"):
        return persistence._restored(*persistence._converted(header["version"], content, arrays))[0]


def forged(path, header, arrays):
    """The learner of a file with this content, and a digest that matches."""
    digest = persistence._digest(persistence.CONTENT[header["version"]](header), arrays)
    np.savez(path, header=np.array(json.dumps({**header, "digest": digest})), **arrays)
    return load(path)


def opened(path):
    with np.load(path) as parts:
        arrays = dict(parts)
    return json.loads(str(arrays.pop("header"))), arrays


def cases(path):
    """Names, headers and arrays of all forgeries."""
    files = {}
    for name in EVERY:
        save(made(name), path)
        files[name] = opened(path)
    for one, other in itertools.permutations(EVERY, 2):
        yield f"{one} with the arrays of {other}", files[one][0], files[other][1]
    for version, name in OLD_FILES:
        found = opened(ROOT / "tests" / "golden" / f"version{version}" / f"{name}.npz")
        files[f"version {version} {name}"] = found
    for name, (header, arrays) in files.items():
        if name not in ALIKE:
            # Not all, for time. Arrays of old files are checked by the same code, once they are converted.
            step = 3 if name.startswith("version") else 2
            for how, found in itertools.islice(array_forgeries(arrays), 0, None, step):
                yield f"{name}: {how}", header, found
        if name in (
            "nemsis",
            "scan level",
            "batch dense",
            "svmperf planes",
            "can",
            "nemsis classes",
            "forest classes",
        ):
            for how, found in header_forgeries(header):
                yield f"{name}: {how}", found, arrays


def try_all(folder):
    """Every forgery is refused, or gives a learner that works; some go through a file."""
    path, accepted = Path(folder) / "forged.npz", 0
    for number, (name, header, arrays) in enumerate(cases(path)):
        print(name, flush=True)
        try:
            learner = (restored if number % 40 else forged)(
                path, header, {key: array.copy() for key, array in arrays.items()}
            )
        except ValueError as error:
            if "does not hold a learner of this package: " not in str(error):
                raise
            continue
        use(learner)
        accepted += 1
    assert 0 < accepted < number / 2


def try_tables(folder, whole):
    """The same for a file with a quantifier of tables, whose learner is like others."""
    from tests.patients import patients

    path, accepted, number = Path(folder) / "forged.npz", 0, 0
    header, arrays = opened(whole)
    frame = patients(30, 0.5, 1, texts=True)
    inner = {k: v for k, v in arrays.items() if not k.startswith("quantifier.classifier.")}
    kept = {k: v for k, v in arrays.items() if k not in inner}
    for number, (name, found) in enumerate(itertools.islice(array_forgeries(inner), 0, None, 7)):
        print(name, flush=True)
        try:
            copied = {key: array.copy() for key, array in {**kept, **found}.items()}
            model = (restored if number % 40 else forged)(path, header, copied)
        except ValueError as error:
            if "does not hold a learner of this package: " not in str(error):
                raise
            continue
        accepted += 1
        with contextlib.suppress(Fault):  # columns may have other names now
            assert np.isfinite(model.estimate(frame).prevalences).all()
    assert 0 < accepted < number / 2


if __name__ == "__main__":
    try_tables(*sys.argv[1:]) if len(sys.argv) > 2 else try_all(sys.argv[1])
