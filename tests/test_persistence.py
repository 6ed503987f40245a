"""Files that hold a learner, and what is no such file."""

import json
import os
import pickle

import joblib
import numpy as np
import pytest
import scipy.sparse

from quapy_nemsis import (
    BAKLD,
    CANClassifier,
    NEMSISClassifier,
    OnePassMiniBatchClassifier,
    QMeasure,
    SCANClassifier,
    SVMPerfClassifier,
    load,
    make_measure,
    persistence,
    save,
)
from tests.conftest import make_points

LEARNERS = [
    NEMSISClassifier("kld", random_state=0, record_every=100),
    NEMSISClassifier(BAKLD(0.3), reward="logistic", eta0=0.5, radius=2.0, average="all"),
    NEMSISClassifier(QMeasure(2.0), random_state=3),
    SCANClassifier("bk", random_state=0),
    CANClassifier("cq", radius=3.0),
    SVMPerfClassifier("qgm", C=10.0),
    SVMPerfClassifier(BAKLD(0.5), C=10.0, warm_start=True),
    OnePassMiniBatchClassifier("kld", buffer_size=30, random_state=0),
]


def flat(value, path=""):
    """All numbers and arrays of a learner, by where they are."""
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from flat(entry, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for k, entry in enumerate(value):
            yield from flat(entry, f"{path}[{k}]")
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        parts = {k: v for k, v in vars(value).items() if k not in ("_curve", "_sigmoid")}
        yield from flat(parts, f"{path}<{type(value).__name__}>")
    else:
        yield path, value


def assert_same(first, second):
    first, second = dict(flat(first)), dict(flat(second))
    assert first.keys() == second.keys()
    for path, value in first.items():
        np.testing.assert_array_equal(value, second[path], err_msg=path)


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
@pytest.mark.parametrize("labels", [[False, True], ["no", "yes"], [-1, 1]], ids=str)
def test_a_learner_comes_back_as_it_was(learner, labels, tmp_path):
    X, y = make_points(n=400)
    y = np.array(labels)[y.astype(int)]
    save(learner, tmp_path / "before.npz")
    assert repr(load(tmp_path / "before.npz")) == repr(learner)
    learner = pickle.loads(pickle.dumps(learner)).fit(X, y)
    save(learner, tmp_path / "learner.npz")
    again = load(tmp_path / "learner.npz")
    assert type(again) is type(learner)
    assert_same(again, learner)
    np.testing.assert_array_equal(again.predict(X), learner.predict(X))
    if hasattr(learner, "predict_proba"):
        np.testing.assert_array_equal(again.predict_proba(X), learner.predict_proba(X))
        save(learner, tmp_path / "after.npz")  # with a calibration that was used
        assert_same(load(tmp_path / "after.npz"), again)
    assert {path.suffix for path in tmp_path.iterdir()} == {".npz"}


@pytest.mark.parametrize("kind", [NEMSISClassifier, SCANClassifier, OnePassMiniBatchClassifier])
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
def test_a_stream_goes_on_after_it_was_saved(kind, container, tmp_path):
    """In the middle of a race, of an epoch, of a buffer."""
    X, y = make_points(n=3000)
    rows = container(X)
    whole, learner = kind(), kind()
    for start in range(0, 3000, 300):
        chunk = slice(start, start + 300)
        whole.partial_fit(rows[chunk], y[chunk], classes=[False, True])
        learner.partial_fit(rows[chunk], y[chunk], classes=[False, True])
        save(learner, tmp_path / "learner.npz")
        learner = load(tmp_path / "learner.npz")
    np.testing.assert_array_equal(learner.coef_, whole.coef_)
    assert learner.t_ == whole.t_ == 3000
    assert learner.tuning_ == whole.tuning_


def test_pickle_and_joblib_work_too(tmp_path):
    X, y = make_points(n=300)
    learner = SCANClassifier(random_state=0).fit(X, y)
    joblib.dump(learner, tmp_path / "learner.joblib")
    for again in (pickle.loads(pickle.dumps(learner)), joblib.load(tmp_path / "learner.joblib")):
        np.testing.assert_array_equal(again.predict_proba(X), learner.predict_proba(X))


def test_skops_works_too():
    sio = pytest.importorskip("skops.io", reason="skops is not installed")
    X, y = make_points(n=300)
    for learner in (NEMSISClassifier("q", random_state=0), SCANClassifier(random_state=0)):
        content = sio.dumps(learner.fit(X, y))
        types = sio.get_untrusted_types(data=content)
        assert all(name.startswith("quapy_nemsis.") for name in types)
        again = sio.loads(content, trusted=types)
        np.testing.assert_array_equal(again.predict_proba(X), learner.predict_proba(X))
        for one in (again, learner):
            one.partial_fit(X, y)
        np.testing.assert_array_equal(again.coef_, learner.coef_)


def _first(P, N, p, theta):
    return P


def test_what_cannot_be_saved(tmp_path):
    path = tmp_path / "learner.npz"
    with pytest.raises(TypeError, match="save takes NEMSISClassifier"):
        save({"a": 1}, path)
    with pytest.raises(TypeError, match="measure is a NestedConcave, which cannot be saved"):
        save(NEMSISClassifier(make_measure(_first)), path)
    with pytest.raises(TypeError, match="random_state is a RandomState"):
        save(NEMSISClassifier(random_state=np.random.RandomState(0)), path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        load(path)


def rewritten(path, change):
    """The file with its header changed."""
    with np.load(path) as parts:
        arrays = dict(parts)
    header = json.loads(str(arrays.pop("header")))
    change(header, arrays)
    np.savez(path, header=np.array(json.dumps(header)), **arrays)


def test_files_that_are_refused(tmp_path):
    X, y = make_points(n=200)
    path = tmp_path / "learner.npz"
    learner = NEMSISClassifier(random_state=0).fit(X, y)
    save(learner, path)
    whole = path.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="broken, cut short"):
            load(path)
    np.savez(path, X=X)
    with pytest.raises(ValueError, match="no file of quapy-nemsis"):
        load(path)
    np.savez(path, header=np.array([len], dtype=object))
    with pytest.raises(ValueError, match="broken, cut short"):
        load(path)

    def newer(header, arrays):
        header["version"] = 2

    def touched(header, arrays):
        arrays["a0"] = arrays["a0"] + 1

    def foreign(header, arrays):
        header["learner"]["object"] = "Popen"
        header["digest"] = persistence._digest([header["learner"], None], list(arrays.values()))

    def nobody(header, arrays):
        header["learner"] = 3
        header["digest"] = persistence._digest([3, None], list(arrays.values()))

    for change, message in (
        (newer, r"format version 2, written by quapy-nemsis \S+; this one reads version 1"),
        (touched, "was changed or damaged"),
        (foreign, "does not hold a learner"),
        (nobody, "does not hold a learner"),
    ):
        path.write_bytes(whole)
        rewritten(path, change)
        with pytest.raises(ValueError, match=message):
            load(path)
    path.write_bytes(whole)
    np.testing.assert_array_equal(load(path).coef_, learner.coef_)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    X, y = make_points(n=200)
    path = tmp_path / "learner.npz"
    learner = NEMSISClassifier(random_state=0).fit(X, y)
    save(learner, path)
    before = path.read_bytes()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(learner.partial_fit(X, y), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["learner.npz"]
