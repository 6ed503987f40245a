"""Input that no learner was written for: it works as its plain twin does, or is refused by name; and nothing breaks."""

import itertools
import json
import math
import re
import subprocess
import sys
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from quapy.data import LabelledCollection
from quapy.model_selection import GridSearchQ
from quapy.protocol import UPP
from sklearn.exceptions import NotFittedError

from quapy_nemsis import (
    SVMKLD,
    CANClassifier,
    NEMSISClassifier,
    OnePassMiniBatchClassifier,
    SCANClassifier,
    SPADEClassifier,
    SVMPerf,
    SVMPerfClassifier,
    make_measure,
)
from quapy_nemsis.streaming import read_csv
from tests.conftest import ROOT, make_points

ONLINE = {"eta0": 0.5, "radius": 2.0, "n_passes": 2, "random_state": 0}
MAKE = {
    "nemsis": partial(NEMSISClassifier, **ONLINE),
    "scan": partial(SCANClassifier, **ONLINE, first_epoch=20),
    "spade": partial(SPADEClassifier, **ONLINE),
    "can": partial(CANClassifier, radius=3.0),
    "svmperf": partial(SVMPerfClassifier, C=10.0),
    "1pmb": partial(OnePassMiniBatchClassifier, **ONLINE, buffer_size=25),
}
STREAMS = ("nemsis", "scan", "spade", "1pmb")
# Those that take two classes and no more.
BINARY = ("spade", "svmperf", "1pmb")
WAYS = [*((name, "fit") for name in MAKE), *((name, "partial_fit") for name in STREAMS)]
each_way = pytest.mark.parametrize(("name", "way"), WAYS)
quietly = pytest.mark.filterwarnings("ignore")
csr = sp.csr_matrix
# Small integers: the same numbers in any type.
X, y = make_points(n=120)
X = np.round(2.0 * X)
FLAGS, TEXT = X > 0, np.where(y, "yes", "no")
TO_DO = "(?i:leave|give|use|convert|make|drop|fill|encode)"


def learn(name, way, X, y, **parameters):
    return getattr(MAKE[name](**parameters), way)(X, y)


def fault(call, errors=(ValueError, TypeError), match="."):
    """What is wrong with a refusal, which is none of an accident further inside; nothing if it is as it should be."""
    try:
        call()
    except Exception as error:
        text = str(error)
        good = isinstance(error, errors) and re.search(match, text) and len(text) > 15
        accident = "not supported between" in text
        return None if good and not accident else f"{type(error).__name__}: {text}"[:150]
    return "accepted"


def faults(calls, errors=(ValueError, TypeError), match="."):
    """The faults of several refusals, by name."""
    found = {kind: fault(call, errors, match) for kind, call in calls.items()}
    return {kind: text for kind, text in found.items() if text}


def finite(call):
    """The numbers that a call returns, if they are finite; nothing if it is refused with the advice to scale."""
    try:
        found = call()
    except ValueError as error:
        assert "scale" in str(error), error  # noqa: PT017  not all are refused
        return None
    assert np.isfinite(found).all()
    return found


def same(first, second):
    np.testing.assert_array_equal(first.coef_, second.coef_)
    np.testing.assert_array_equal(first.intercept_, second.intercept_)
    assert np.isfinite(first.coef_).all()


def with_label(label):
    labels = np.array([int(entry) for entry in y], dtype=object)
    labels[5:6] = np.fromiter([label], dtype=object)
    return labels


def frame(**columns):
    return pd.DataFrame(X, columns=list("abcdef")).assign(**columns)


def run(code):
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


# ---------------------------------------------------------------------- matrices that lie about themselves


def forged(**parts):
    """A CSR matrix with other arrays, which scipy takes as they are."""
    matrix = csr(X)
    for part, change in parts.items():
        setattr(matrix, part, change(getattr(matrix, part).copy()))
    return matrix


def put(place, value):
    return lambda array: np.concatenate([array[:place], [value], array[place:][1:]]).astype("i4")


def swapped(array):
    return array.astype(array.dtype.newbyteorder())


FORGED = {
    "swapped indices": {"indices": swapped},
    "swapped indptr": {"indptr": swapped},
    "swapped": {"indices": swapped, "indptr": swapped, "data": swapped},
    "just beyond": {"indices": put(7, 6)},
    "far beyond": {"indices": put(7, 2**31 - 1)},
    "negative": {"indices": put(7, -1)},
    "fractions": {"indices": lambda array: array + 0.5},
    "first pointer": {"indptr": put(0, 3)},
    "falling pointers": {"indptr": put(3, 2**30)},
    "negative pointer": {"indptr": put(3, -(2**30))},
    "last pointer": {"indptr": lambda array: put(len(array) - 1, 2**30)(array)},
    "few pointers": {"indptr": lambda array: array[:-5]},
    "many pointers": {"indptr": lambda array: np.append(array, array[-1])},
    "few indices": {"indices": lambda array: array[:-5]},
    "few numbers": {"data": lambda array: array[:-5]},
}


QUESTIONS = ("fit", "partial_fit", "predict", "decision_function", "predict_proba")
ASKED = [
    (name, way) for name, way in itertools.product(MAKE, QUESTIONS) if hasattr(MAKE[name](), way)
]


def answers():
    """What learners do with forged matrices, two lines of JSON each; in a process of its own, which may not survive."""
    for (name, way), kind in itertools.product(ASKED, FORGED):

        def call(name=name, way=way, matrix=forged(**FORGED[kind])):  # noqa: B008  each its own
            if "fit" in way:
                same(learn(name, way, matrix, y), learn(name, way, csr(X), y))
            else:
                answer = getattr(learn(name, "fit", csr(X), y), way)
                np.testing.assert_array_equal(answer(matrix), answer(csr(X)))

        print(json.dumps([name, way, kind, "died"]), flush=True)
        answer = fault(call, ValueError, match="ind(ices|ptr|ex)|column|data")
        allowed = ["accepted"] * kind.startswith("swapped")
        print(json.dumps([name, way, kind, None if answer in allowed else answer]), flush=True)


def test_forged_csr_matrices():
    done = run("from tests.test_bad_input import answers; answers()")
    found = {tuple(case): answer for *case, answer in map(json.loads, done.stdout.splitlines())}
    assert not {case: answer for case, answer in found.items() if answer}
    assert len(found) == len(ASKED) * len(FORGED), done.stderr[-300:]


@each_way
def test_numbers_in_the_other_byte_order(name, way):
    for kind in (np.float64, np.float32):
        sparse = csr(X.astype(kind))
        sparse.data = swapped(sparse.data)
        twins = [(swapped(X.astype(kind)), X.astype(kind)), (sparse, csr(X.astype(kind)))]
        for other, native in twins:
            learner = learn(name, way, native, y)
            same(learn(name, way, other, y), learner)
            np.testing.assert_array_equal(learner.predict(other), learner.predict(native))
    same(learn(name, way, X, swapped(y.astype(int))), learn(name, way, X, y.astype(int)))


# ---------------------------------------------------------------------- refusals change nothing

NAN = np.full((120, 4), np.nan)
REFUSED = {
    "nan": (NAN, y),
    "nan frame": (pd.DataFrame(NAN, columns=list("wxyz")), y),
    "inf": (np.where(FLAGS, X, np.inf), y),
    "short y": (X[:, :4], y[:-1]),
    "fractions": (X[:, :4], X[:, 0] + 0.25),
    "three classes": (X[:, :4], np.arange(120) % 3),
    "one class": (X[:, :4], y | True),
    "text": (np.full((120, 3), "x", dtype=object), y),
    "label": (X[:, :4], with_label(None)),
}


def snapshot(learner):
    return joblib.hash(vars(learner)), sorted(vars(learner))


@each_way
@pytest.mark.parametrize("bad", [*REFUSED, "parameter"])
@quietly
def test_a_refusal_leaves_the_learner_as_it_was(name, way, bad):
    wrong = {"can": {"tol": -1.0}, "svmperf": {"C": -1.0}}.get(name, {"eta0": -1.0})
    data = REFUSED.get(bad, (X[:, :4], y))
    several = bad == "three classes" and name not in BINARY
    for rows in (None, X, frame()):
        if several and (way == "fit" or rows is None):
            continue  # a new learner takes them
        learner = MAKE[name]() if rows is None else learn(name, way, rows, y)
        learner.set_params(**wrong if bad == "parameter" else {})
        before = snapshot(learner)
        assert fault(lambda learner=learner: getattr(learner, way)(*data)) != "accepted"
        assert snapshot(learner) == before
        if rows is None:
            with pytest.raises(NotFittedError):
                learner.predict(X)
        else:
            learner.predict(rows)


@each_way
@pytest.mark.parametrize("tuned", [True, False])
@quietly
def test_numbers_near_the_largest(name, way, tuned):
    """Finite results, or advice to scale the features and the learner as before: one such row, or all."""
    auto = {"eta0": "auto", "radius": "auto"} if tuned and name in STREAMS else {}
    for scale in (1e160, 1e308):
        one = np.vstack([X[:3], np.full(6, scale), X[4:]])
        for rows, plain in ((one, X), (np.sign(X) * scale, X), (csr(one), csr(X))):
            learner = learn(name, "fit", plain, y, **auto)
            before = snapshot(learner)
            again = partial(getattr(learner, way), rows, y)
            if finite(lambda again=again: again().coef_) is None:
                assert snapshot(learner) == before
            finite(partial(learner.decision_function, rows))
            finite(partial(learner.decision_function, 1.7e308 * np.sign(learner.coef_)))
            finite(partial(getattr(learner, "predict_proba", learner.decision_function), rows))


# ---------------------------------------------------------------------- streams, frames, labels


@pytest.mark.parametrize("loss", ["kld", "q", "cq", "f1"])
@pytest.mark.parametrize("eta0", [0.5, "auto"])
def test_chunks_of_different_kinds(loss, eta0):
    single = partial(np.asarray, dtype=np.float32)
    for kinds in (
        [np.asarray],
        [np.asarray, csr],
        [csr, np.asarray],
        [single, np.asarray],
        [np.asarray, single, partial(csr, dtype=np.float32), csr, sp.coo_matrix],
    ):
        for name in STREAMS:
            parameters = {"loss": loss} if name == "1pmb" else {}
            plain, mixed = (MAKE[name](eta0=eta0, record_every=10, **parameters) for _ in "ab")
            for k in range(6):
                rows = slice(20 * k, 20 * k + 20)
                for learner, kind in ((plain, np.asarray), (mixed, kinds[k % len(kinds)])):
                    learner.partial_fit(kind(X[rows]), y[rows], classes=[False, True])
            np.testing.assert_allclose(mixed.coef_, plain.coef_, rtol=1e-9, atol=1e-12)


@each_way
def test_dates_and_columns_of_one_name_are_refused_by_name(name, way):
    learner, calls = learn(name, way, frame(), y), {}
    times = {
        "datetime": pd.date_range("2020-01-01", periods=120),
        "zone": pd.date_range("2020-01-01", periods=120, tz="Europe/Rome"),
        "timedelta": pd.to_timedelta(np.arange(120), unit="D"),
        "period": pd.period_range("2020-01-01", periods=120),
    }
    tables = {kind: frame(c=column) for kind, column in times.items()}
    tables |= {f"only {kind}": table[["c"]] for kind, table in tables.items()}
    tables["twice"] = frame().set_axis(list("abccef"), axis=1)
    for kind, table in tables.items():
        calls[kind] = partial(learn, name, way, table, y)
        calls[f"predict {kind}"] = partial(learner.predict, table)
    arrays = {
        kind: partial(learn, name, way, X.astype(kind), y)
        for kind in ("datetime64[s]", "timedelta64[s]")
    }
    assert not faults(calls, match=r"\bc\b|feature names") | faults(arrays, match="date|time")


LABELS = [(pd.NaT, "NaT"), ((1, 2), r"\(1, 2\)"), (None, "None"), (pd.NA, "NA|NaN"), ("a", "'a'")]
LABELS += [(math.nan, "nan|NaN"), ([1], r"\[1\]"), ({1: 2}, r"\{1: 2\}"), (1j, "1j")]


@each_way
@pytest.mark.parametrize(("label", "shown"), LABELS, ids=[str(label) for label, _ in LABELS])
def test_what_is_no_label(name, way, label, shown):
    """The message names the label, and says what to do."""
    labels, numbers = with_label(label), y.astype(int)
    calls = {
        "array": partial(learn, name, way, X, labels),
        "series": partial(learn, name, way, X, pd.Series(labels)),
    }
    if pd.api.types.is_scalar(label) and pd.isna(label):
        calls["list"] = partial(learn, name, way, X, labels.tolist())
    if label is math.nan:
        calls["floats"] = partial(learn, name, way, X, labels.astype(float))
    if label is pd.NA:
        calls["nullable"] = partial(learn, name, way, X, pd.Series(labels, dtype="Int64"))
    if way == "partial_fit":
        calls["later"] = partial(learn(name, way, X, numbers).partial_fit, X, labels)
        calls["classes"] = partial(MAKE[name]().partial_fit, X, numbers, classes=labels[4:6])
    assert not faults(calls, ValueError, match=f"(?s)(?=.*({shown})).*{TO_DO}")


# ---------------------------------------------------------------------- parameters


@each_way
@quietly
def test_parameters_of_odd_types(name, way):
    cases = [("verbose", "x"), ("verbose", -1), ("verbose", 0.5), ("verbose", None)]
    if name in STREAMS:
        cases += [("random_state", "abc"), ("random_state", -1), ("random_state", 1.5)]
    found = {}
    for parameter, value in cases:
        call = partial(learn, name, way, X, y, **{parameter: value})
        match = f"(?s)(?=.*{parameter}).*{re.escape(repr(value))}"
        found |= faults({f"{parameter}={value!r}": call}, match=match)
    assert not found


@each_way
@quietly
def test_parameters_of_numpy_types(name, way):
    rows, labels = make_points(n=1000)
    counts = {"record_every": 2, "n_passes": 2, "buffer_size": 20, "first_epoch": 20}
    counts |= {"max_iter": 120, "max_levels": 120}
    flags = dict.fromkeys(("fit_intercept", "shuffle", "monotone", "warm_start"), False)
    for parameter, value in (counts | flags | {"verbose": 1, "random_state": 3}).items():
        if parameter not in MAKE[name]().get_params():
            continue
        plain = learn(name, way, rows, labels, **{parameter: value})
        kinds = (np.bool_,) if value is False else (np.uint8, np.int8, np.int64, np.uint64)
        for kind in kinds:
            same(plain, learn(name, way, rows, labels, **{parameter: kind(value)}))
    assert learn(name, way, X, y, verbose=True) is not None


def _logs(P, N, p, theta):
    return math.log(P + 0.01) + math.log(N + 0.01)


def _logs_gradient(P, N, p, theta):
    return 1.0 / (P + 0.01), 1.0 / (N + 0.01)


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
@pytest.mark.parametrize("gradient", [None, _logs_gradient])
def test_a_measure_with_logarithms_is_recorded_where_rewards_are_negative(way, gradient):
    measure = make_measure(_logs, gradient=gradient)
    parameters = {"measure": measure, "estimates": "surrogate", "eta0": 10.0, "record_every": 10}
    labels = np.random.default_rng(0).permutation(y)
    learner = learn("nemsis", way, X, labels, **parameters)
    assert min(learner.history_["P"] + learner.history_["N"]) < -0.01
    assert np.isfinite(learner.coef_).all()
    assert len(learner.history_["value"]) == len(learner.history_["P"])


@quietly
def test_the_quantifier_of_the_structural_svm_has_all_parameters():
    for quantifier in (SVMPerf("q", C=10.0, warm_start=True), SVMKLD(C=10.0, warm_start=True)):
        assert quantifier.get_params()["warm_start"] is True
        assert quantifier.fit(X, y).classifier_.warm_start is True
        assert quantifier.set_params(warm_start=False).fit(X, y).classifier_.warm_start is False
    data = LabelledCollection(X, y.astype(int))
    protocol = UPP(data, sample_size=50, repeats=5, random_state=0)
    grid = {"warm_start": [True, False], "C": [1.0, 10.0]}
    search = GridSearchQ(SVMPerf(), grid, protocol, error="mae", refit=False).fit(*data.Xy)
    assert len(search.param_scores_) == 4


# ---------------------------------------------------------------------- files and imports


def test_columns_to_read_are_named_in_one_way(tmp_path):
    frame(y=y.astype(int)).to_csv(tmp_path / "rows.csv", index=False)
    shapes = []

    def call():
        source = read_csv(tmp_path / "rows.csv", "y", usecols=["a", "b", "y"])
        shapes.extend(X.shape for X, _ in source)

    assert fault(call, match="(?s)(?=.*usecols).*columns=") in (None, "accepted")
    assert shapes in ([], [(120, 2)])


def test_importing_a_quantifier_leaves_matplotlib_alone():
    pytest.importorskip("matplotlib")
    done = run(
        "from matplotlib import rcParams; rcParams['font.size'] = 17.0; before = repr(rcParams)\n"
        "from quapy_nemsis import NEMSIS; assert repr(rcParams) == before, rcParams['font.size']"
    )
    assert done.returncode == 0, done.stderr[-300:]


# ---------------------------------------------------------------------- whatever else there is


def read_only(folder):
    np.save(folder / "rows.npy", X)
    return np.load(folder / "rows.npy", mmap_mode="r")


def doubled():
    """A CSR matrix with each entry in two halves, unsorted, with zeros that are stored and wide indices."""
    halves, columns = np.repeat(X / 2.0, 2, axis=0), np.tile([range(6), range(5, -1, -1)], (120, 1))
    halves[1::2] = halves[1::2, ::-1]
    indptr = np.arange(0, 1441, 12)
    return csr((halves.ravel(), columns.ravel().astype("i8"), indptr), shape=X.shape)


MIXED = frame(a=X[:, 0].astype(int), b=FLAGS[:, 1], d=pd.array(X[:, 3].astype(int), dtype="Int64"))
# Rows, and the plain ones that they are.
ROWS = {
    "lists": (X.tolist(), X),
    "objects": (X.astype(object), X),
    "integers": (X.astype(np.int8), X),
    "half": (X.astype(np.float16), X),
    "long double": (X.astype(np.longdouble), X),
    "flags": (FLAGS, FLAGS * 1.0),
    "fortran": (np.asfortranarray(X), X),
    "view": (np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3], X),
    "broadcast": (np.broadcast_to(X[:, :1], (120, 6)), np.repeat(X[:, :1], 6, axis=1)),
    "masked nowhere": (np.ma.array(X), X),
    "one column": (X[:, :1], X[:, :1].copy()),
    "nullable": (frame().astype("Int64"), X),
    "nullable flags": (pd.DataFrame(FLAGS).astype("boolean"), FLAGS * 1.0),
    "mixed frame": (MIXED, np.column_stack([X[:, 0], FLAGS[:, 1], X[:, 2:]])),
    "categories of numbers": (frame().astype({"a": "category"}), X),
    "coo": (sp.coo_matrix(X), csr(X)),
    "csc": (sp.csc_matrix(X), csr(X)),
    "bsr": (sp.bsr_matrix(X, blocksize=(2, 3)), csr(X)),
    "dok": (sp.dok_matrix(X), csr(X)),
    "csr_array": (sp.csr_array(X), csr(X)),
    "csr of integers": (csr(X.astype(np.int32)), csr(X)),
    "csr of flags": (csr(FLAGS), csr(FLAGS * 1.0)),
    "doubled": (doubled(), doubled().tocoo().tocsr()),
    "all zero": (np.zeros((120, 6)), np.zeros((120, 6))),
    "no entries": (csr((120, 6)), csr((120, 6))),
}
NO_ROWS = {
    "np.matrix": np.asmatrix(X),
    "masked": np.ma.array(X, mask=X > 3.0),
    "missing": frame().astype("Int64").mask(X > 3.0),
    "text": np.full((120, 6), "a"),
    "bytes": np.full((120, 6), b"a"),
    "text objects": np.where(FLAGS, "a", "b").astype(object),
    "a column of text": frame(c=["a"] * 120),
    "categories of text": frame(c=pd.Categorical(["a", "b"] * 60)),
    "nothing in cells": np.full((120, 6), None),
    "lists in cells": frame(c=[[1]] * 120),
    "complex": X + 1j,
    "complex csr": csr(X + 1j),
    "inf": np.where(FLAGS, X, np.inf),
    "nan csr": csr(np.where(FLAGS, X, np.nan)),
    "no rows": X[:0],
    "no rows csr": csr((0, 6)),
    "no columns": X[:, :0],
    "flat": X[:, 0],
    "3-d": X[:, :, np.newaxis],
    "0-d": np.array(3.0),
    "a number": 3.0,
    "nothing": None,
    "a string": "rows.csv",
    "a dictionary": {"a": [1, 2]},
    "ragged": [[1.0, 2.0], [3.0]] * 60,
    "structured": np.zeros(120, dtype=[("a", float), ("b", float)]),
}


@each_way
@quietly
def test_rows_of_any_kind(name, way, tmp_path):
    for rows, twin in (ROWS | {"read only": (read_only(tmp_path), X)}).values():
        learner, plain = learn(name, way, rows, y), learn(name, way, twin, y)
        same(learner, plain)
        np.testing.assert_array_equal(learner.predict(rows), plain.predict(twin))
    calls, learner = {}, learn(name, way, X, y)
    for kind, rows in NO_ROWS.items():
        calls[kind] = partial(learn, name, way, rows, y[:0] if "no rows" in kind else y)
        calls[f"predict {kind}"] = partial(learner.predict, rows)
    calls["one row"] = partial(learn, name, way, X[:1], y[:1])
    assert ROWS["doubled"][0].nnz == 1440  # rows that are given stay as they were
    assert not faults(calls)


LABELLINGS = {
    "list": y.tolist(),
    "integers": y.astype(np.int8),
    "floats": y.astype(np.float32),
    "text": TEXT,
    "text objects": TEXT.astype(object),
    "series": pd.Series(y, index=np.arange(120)[::-1]),
    "categories": pd.Series(pd.Categorical(TEXT)),
    "text series": pd.Series(TEXT, dtype="string"),
    "nullable": pd.Series(y.astype(int), dtype="Int64"),
    "nullable flags": pd.Series(y, dtype="boolean"),
    "column": y[:, np.newaxis],
    "huge": np.where(y, 2**62, -(2**62)),
}
NO_LABELLINGS = {
    "two columns": np.column_stack([y, y]),
    "short": y[:-1],
    "long": np.append(y, y),
    "none": None,
    "a number": 1,
    "a string": "y",
    "fractions": X[:, 0] + 0.5,
    "infinite": np.where(y, np.inf, 0.0),
    "complex": y + 1j,
    "bytes": TEXT.astype("S"),
    "sparse": csr(y),
    "many": np.arange(120),
    "empty": y[:0],
    "masked": np.ma.array(y.astype(int), mask=X[:, 0] > 2.0),
}


@each_way
@quietly
def test_labels_of_any_kind(name, way):
    plain = learn(name, way, X, y)
    for labels in LABELLINGS.values():
        learner = learn(name, way, X, labels)
        same(learner, plain)
        names = np.unique(np.asarray(labels))
        np.testing.assert_array_equal(learner.classes_, names)
        np.testing.assert_array_equal(learner.predict(X), names[plain.predict(X).astype(int)])
        if hasattr(learner, "predict_proba"):
            np.testing.assert_array_equal(learner.predict_proba(X), plain.predict_proba(X))
    calls = {kind: partial(learn, name, way, X, bad) for kind, bad in NO_LABELLINGS.items()}
    if name not in BINARY:
        assert len(calls.pop("many")().classes_) == 120
    assert not faults(calls)
