"""Files that hold a learner, and what is no such file."""

import contextlib
import io
import json
import os
import pickle
import re
import stat
import subprocess
import sys
import zipfile

import joblib
import numpy as np
import pytest

from quapy_nemsis import (
    CANClassifier,
    NEMSISClassifier,
    SCANClassifier,
    load,
    make_measure,
    save,
)
from tests.conftest import ROOT, make_points
from tests.forging import EVERY, WRONG, forged, made, named, opened, points_for, put


def assert_same(first, second):
    """All that was learned, but for times."""
    assert repr(first) == repr(second)
    assert vars(first).keys() == vars(second).keys()
    first, second = first.to_arrays(), second.to_arrays()
    assert first.keys() == second.keys()
    for name in (name for name in first if "seconds" not in name):
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("condition", EVERY)
def test_a_learner_comes_back_as_it_was_and_goes_on(condition, text, tmp_path):
    path = tmp_path / "learner.npz"
    save(EVERY[condition][0], path)  # not fitted
    assert repr(load(path)) == repr(EVERY[condition][0])
    learner = made(condition, text)
    save(learner, path)
    again = load(path)
    assert_same(again, learner)
    X, y = points_for(condition, 250, seed=1)
    y = named(condition, y) if text else y
    for _ in range(2):
        np.testing.assert_array_equal(again.predict(X), learner.predict(X))
        if hasattr(learner, "predict_proba"):
            np.testing.assert_array_equal(again.predict_proba(X), learner.predict_proba(X))
        save(again, path)  # with a calibration that was used
        assert_same(load(path), learner)
        for one in (learner, again):
            getattr(one, "partial_fit", one.fit)(X, y)
        assert_same(again, learner)
    assert list(tmp_path.iterdir()) == [path]


def test_other_ways_to_keep_a_learner_work_too(tmp_path):
    X, y = make_points(n=300)
    learner = SCANClassifier(random_state=0).fit(X, y)
    joblib.dump(learner, tmp_path / "learner.joblib")
    copies = [pickle.loads(pickle.dumps(learner)), joblib.load(tmp_path / "learner.joblib")]
    with contextlib.suppress(ImportError):
        from skops import io as sio

        types = sio.get_untrusted_types(data=sio.dumps(learner))
        assert all(name.startswith("quapy_nemsis.") for name in types)
        copies.append(sio.loads(sio.dumps(learner), trusted=types))
    learner.partial_fit(X, y)
    for again in copies:
        assert_same(again.partial_fit(X, y), learner)
        np.testing.assert_array_equal(again.predict_proba(X), learner.predict_proba(X))


def test_text_labels_and_names_of_features_come_back_as_numpy_strings(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = make_points(n=200)
    frame, y = pandas.DataFrame(X, columns=list("abcdef")), np.where(y, "yes", "no").astype(object)
    learner = NEMSISClassifier(random_state=0).fit(frame, y)
    assert learner.classes_.dtype == object
    save(learner, tmp_path / "learner.npz")
    again = load(tmp_path / "learner.npz")
    assert again.classes_.dtype == "<U3"
    assert again.feature_names_in_.tolist() == list("abcdef")
    np.testing.assert_array_equal(again.predict(frame), learner.predict(frame))
    assert_same(again.partial_fit(frame, y), learner.partial_fit(frame, y))


@pytest.mark.parametrize(
    ("learner", "error", "message"),
    [
        ({"a": 1}, TypeError, "save takes NEMSISClassifier"),
        (
            *(NEMSISClassifier(make_measure(lambda P, N, p, theta: P)), TypeError),
            "learner's measure is a NestedConcave, which cannot be saved: .* Use pickle",
        ),
        (NEMSISClassifier(random_state=np.random.RandomState(0)), TypeError, "is a RandomState"),
        (made("nemsis steps").set_params(eta0=-1.0), ValueError, "eta0 must be positive"),
    ],
)
def test_what_cannot_be_saved(learner, error, message, tmp_path):
    with pytest.raises(error, match=message):
        save(learner, tmp_path / "learner.npz")
    assert not list(tmp_path.iterdir())


def test_what_is_unusual_can_be_saved(tmp_path):
    path = tmp_path / "learner.npz"
    learner = NEMSISClassifier()
    with pytest.raises(ValueError, match="two classes"):
        learner.partial_fit(np.eye(3), [1, 1, 1])
    save(learner, path)
    assert not hasattr(load(path), "classes_")
    X, y = make_points(n=400)
    for growth, share in ((1e20, 0.25), (1.0, 1e300), (1e300, 0.25)):  # phases that never end
        learner = SCANClassifier(eta0=0.3, growth=growth, level_share=share).partial_fit(X, y)
        save(learner, path)
        assert_same(load(path).partial_fit(X, y), learner.partial_fit(X, y))


# ------------------------------------------------------- how files are written


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file(error, tmp_path, monkeypatch):
    path = tmp_path / "learner.npz"
    save(NEMSISClassifier(), path)
    before = path.read_bytes()

    def fail(*arguments):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        save(made("nemsis steps"), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_process_that_is_killed_leaves_the_old_file_and_no_trace_after_the_next_write(tmp_path):
    path = tmp_path / "learner.npz"
    save(NEMSISClassifier(), path)
    before = path.read_bytes()
    code = (
        "import os, sys, quapy_nemsis as q; os.fsync = lambda file: os._exit(9); "
        "q.save(q.CANClassifier(), sys.argv[1])"
    )
    assert subprocess.run([sys.executable, "-c", code, path], cwd=ROOT).returncode == 9
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2
    save(CANClassifier(), path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_files_have_the_permissions_of_any_new_file(mask, tmp_path):
    before = os.umask(mask)
    save(NEMSISClassifier(), tmp_path / "learner.npz")
    os.umask(before)
    assert stat.S_IMODE((tmp_path / "learner.npz").stat().st_mode) == 0o666 & ~mask


def test_the_folder_is_written_through_too_where_possible(tmp_path, monkeypatch):
    synced, real = [], os.fsync

    def sync(handle):
        synced.append(stat.S_ISDIR(os.fstat(handle).st_mode))
        if synced[-1]:
            raise OSError(22, "Invalid argument")  # as some file systems answer
        real(handle)

    monkeypatch.setattr(os, "fsync", sync)
    save(NEMSISClassifier(), tmp_path / "learner.npz")
    assert synced == [False, True] or os.name != "posix"
    load(tmp_path / "learner.npz")


# ------------------------------------------------------- files that are broken


def test_a_file_that_cannot_be_opened_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "learner.npz")
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        load(tmp_path)


@pytest.mark.parametrize("condition", ["nemsis steps", "batch csr"])
def test_a_file_that_is_damaged_is_refused_or_the_learner_the_same(condition, tmp_path):
    path, learner, rng = tmp_path / "learner.npz", made(condition), np.random.default_rng(0)
    save(learner, path)
    whole = path.read_bytes()
    for cut in (*range(0, len(whole), 61), len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"learner\.npz is broken, truncated"):
            load(path)
    content = bytearray(whole)
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"learner\.npz is broken.*encrypted"):
        load(path)
    for place in rng.choice(len(whole), 900, replace=False):
        content = bytearray(whole)
        content[place] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        try:
            again = load(path)
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017  not all of them are refused
        else:
            assert_same(again, learner)


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def promising(shape, descr="<f8"):
    """An npy file that says it holds an array of that shape, and holds eight bytes."""
    file = io.BytesIO()
    entries = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, entries)
    return file.getvalue() + bytes(8)


class Trap:
    """What pickle must not get to see."""

    def __reduce__(self):
        return os.abort, ()


HEADER = {"format": "quapy-nemsis", "version": 3, "written_by": "9.9", "digest": "0"}
HEADER |= {"class": "NEMSISClassifier", "parameters": {}, "extra": None}


def head(**changes):
    return npy(np.array(json.dumps({**HEADER, **changes})))


@pytest.mark.parametrize(
    ("message", "members"),
    [
        *(
            (
                "is broken.*length of a0 does not match its header",
                {"header": head(), "a0": promising(shape)},
            )
            for shape in ((2**40,), (2**62, 2**62), (10**30,), (-1,), (2,), (0,))
        ),
        ("is broken", {"header": promising((), "|O")}),
        ("is broken", {"header": npy(np.array([Trap()], dtype=object))}),
        ("is broken", {"header": head(), "a0": npy(np.array([Trap()], dtype=object))}),
        ("is broken", {"header": npy(np.array("{"))}),
        ("is broken", {"header": npy(np.array("[3]"))}),
        ("is broken", {"header": b"\x93NUMPY\x02\x00" + bytes(90)}),
        ("is broken.* not a file of quapy-nemsis", {"X": npy(np.zeros(3))}),
        ("is broken.* not a file of quapy-nemsis", {"header": head(format="other")}),
        ("is broken.*compressed", {"compression": zipfile.ZIP_DEFLATED, "header": head()}),
        (
            "version 6, written by quapy-nemsis 9.9, .* up to 5: install",
            {"header": head(version=6)},
        ),
        *(
            ("was changed or damaged: there is no format version", {"header": head(version=found)})
            for found in (0, -1, "3", 1.0, True, None)
        ),
        ("was changed or damaged: its digest does not match", {"header": head()}),
        ("was changed or damaged", {"header": head(version=1)}),
        ("was changed or damaged", {"header": head(version=2)}),
        ("was changed or damaged", {"header": head(version=5)}),
        *(
            (r"^\S+ (is|was|does)", {"header": npy(np.array(tree.replace("DEEP", deep)))})
            for tree in (json.dumps(HEADER).replace("{}", "DEEP"), "DEEP")
            for deep in ("[" * 900 + "]" * 900, '{"a":' * 100_000 + "1" + "}" * 100_000)
        ),
    ],
)
def test_archives_that_are_refused(message, members, tmp_path):
    path = tmp_path / "learner.npz"
    compression = members.pop("compression", zipfile.ZIP_STORED)
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    with pytest.raises(ValueError, match=message):
        load(path)


# ------------------------------------------------------- files that are forged


def test_whatever_is_forged_it_is_refused_or_a_learner_that_works(tmp_path):
    """In a process of its own: compiled code does not look where it reads and writes."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.forging", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-200:]}{done.stderr[-2000:]}"


@pytest.mark.parametrize(
    ("condition", "name", "wrong", "message"),
    [
        ("nemsis", "coef", lambda a: a[0], "'coef' has the wrong shape .6,. or type float64"),
        ("nemsis", "state.v", lambda a: None, "the array 'v' is missing"),
        ("nemsis", "state.numbers", put(2.5, 0), "its number of points is 2.5, and their weight"),
        ("nemsis", "state.numbers", put(0.0, 0), "its number of points is 0.0, and their weight"),
        ("nemsis", "state.numbers", put(1e7, 2), "its number of points of a class is -"),
        ("nemsis", "state.numbers", put(1e9, 3), "of a class cannot have rewards of 1000000000.0"),
        ("nemsis", "calibration.labels", WRONG["bytes"], "neither True nor False"),
        ("nemsis", "calibration.weights", put(0), "calibration points are not positive"),
        ("scan level", "state.left", put(-1), "'left' is -1"),
        ("scan level", "state.levels", lambda a: np.ones(99), "fewer points than its levels need"),
        ("scan choosing", "state.marks", put(500), "its windows start after the points"),
        ("scan choosing", "state.0.left", put(7), "its candidates are at different positions"),
        ("batch csr", "state.numbers", put(-1, 4), "it has taken -1.0 steps on 210 points"),
        ("batch csr", "state.indices", put(6), "indices of a sparse matrix must be from 0 to 5"),
        ("svmperf planes", "planes.gram", put(0.5), "the products of its cutting planes"),
        ("can", "stranger", lambda a: np.zeros(3), "there is an unexpected array 'stranger'"),
        ("nemsis classes", "coef", lambda a: a[:2], "'coef' has the wrong shape .2, 6."),
        ("nemsis classes", "classes", lambda a: a[[0, 2, 1]], "not sorted labels"),
        ("nemsis classes", "classes", lambda a: a[[0, 1, 1]], "not sorted labels"),
        ("nemsis classes", "classes", lambda a: a[:2], "'coef' has the wrong shape .3, 6."),
        ("nemsis classes", "intercept", lambda a: a[:1], "'intercept' has the wrong shape"),
        ("nemsis classes", "state.v", lambda a: a.T, "'v' has the wrong shape .6, 3."),
        ("nemsis classes", "state.numbers", lambda a: a[:-1], "'numbers' has the wrong shape"),
        ("nemsis classes", "state.numbers", put(1e6, 1), "classes do not add up to 1000000.0"),
        ("nemsis classes", "state.numbers", put(-1.0, 8), "number of points of a class is -1.0"),
        ("nemsis classes", "state.numbers", put(1e6, 11), "cannot have rewards of 1000000.0"),
        ("nemsis classes", "state.numbers", put(1e6, 14), "predicted points do not add up to"),
        ("nemsis classes", "calibration.labels", put(3, 0), "labels that are not among its"),
        ("nemsis classes", "calibration.labels", put(-1, 0), "labels that are not among its"),
        ("nemsis classes", "calibration.labels", lambda a: a > 0, "'labels' has the wrong shape"),
        (
            "nemsis classes",
            "calibration.scores",
            lambda a: a[:, :2],
            "'scores' has the wrong shape",
        ),
        ("nemsis classes", "calibration.scores", lambda a: a[:, 0], "'scores' has the wrong shape"),
        ("nemsis classes", "history.R", lambda a: a[:, :2], "'R' has the wrong shape .4, 2."),
        ("nemsis classes", "history.q", lambda a: a[..., None], "'q' has the wrong shape"),
        ("nemsis classes", "history.value", lambda a: a[:-1], "differ in length"),
        ("nemsis classes choosing", "state.marks", put(500), "its windows start after the points"),
        ("nemsis classes choosing", "state.marks", lambda a: a[..., :2], "'marks' has the wrong"),
        ("nemsis classes choosing", "state.marks", put(5.0, (1, 0, 2, 1)), "do not add up to"),
        ("nemsis classes choosing", "state.0.v", lambda a: a[:2], "'v' has the wrong shape"),
        (
            "nemsis classes choosing",
            "state.0.numbers",
            put(1e3, 8),
            "predicted points do not add up",
        ),
        (
            "scan classes level",
            "state.weights",
            lambda a: a[:2],
            "evaluates has a different number",
        ),
        ("scan classes level", "state.weights", lambda a: a[0], "evaluates has a different number"),
        ("scan classes level", "state.intercept", lambda a: a[:2], "'intercept' has the wrong"),
        ("scan classes level", "state.sums", lambda a: a[:-3], "'sums' has the wrong shape"),
        ("scan classes level", "state.sums", put(-1.0, 0), "number of points of a class is -1.0"),
        ("scan classes level", "state.sums", put(7e5, 8), "predicted points do not add up to"),
        ("can classes", "coef", lambda a: a[:1], "'coef' has the wrong shape"),
    ],
)
def test_what_is_refused_is_named(condition, name, wrong, message, tmp_path):
    save(made(condition), tmp_path / "learner.npz")
    header, arrays = opened(tmp_path / "learner.npz")
    arrays[name] = wrong(arrays.get(name))
    if arrays[name] is None:
        del arrays[name]
    with pytest.raises(ValueError, match=rf"learner\.npz does not hold a learner .*{message}"):
        forged(tmp_path / "learner.npz", header, arrays)
