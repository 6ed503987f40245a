"""Files that hold a learner, and what is no such file."""

import contextlib
import io
import itertools
import json
import os
import pickle
import re
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import joblib
import numpy as np
import pytest
import scipy.sparse

from quapy_nemsis import (
    BAKLD,
    NEMSIS,
    CANClassifier,
    NEMSISClassifier,
    OnePassMiniBatchClassifier,
    QMeasure,
    SCANClassifier,
    SVMPerfClassifier,
    get_loss,
    load,
    make_measure,
    persistence,
    save,
)
from tests.conftest import ROOT, make_points

BATCH, csr = OnePassMiniBatchClassifier, scipy.sparse.csr_matrix
#: Learners, and what brings them into every condition that a file can hold: rows, how they come, and how they are learned.
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
    "batch dense": (BATCH(buffer_size=30, n_passes=2, random_state=0), 215, np.float32, "fit"),
    "batch csr": (BATCH(get_loss("qgm"), buffer_size=30, eta0=1.0), 215, csr, "partial_fit"),
    "batch choosing": (BATCH("01", buffer_size=9), 215, np.array, "partial_fit"),
    "svmperf": (SVMPerfClassifier("qgm", C=10.0), 215, np.array, "fit"),
    "svmperf planes": (SVMPerfClassifier(BAKLD(0.5), C=10.0, warm_start=True), 99, csr, "fit"),
    "can": (CANClassifier("cq", radius=3.0, tol=1e-3), 99, np.array, "fit"),
}


def made(condition, labels=(False, True)):
    learner, n, container, method = CONDITIONS[condition]
    X, y = make_points(n=n)
    learner = pickle.loads(pickle.dumps(learner))
    return getattr(learner, method)(container(X), np.array(labels)[y.astype(int)])


def assert_same(first, second):
    """All that was learned, but for times."""
    assert repr(first) == repr(second)
    assert vars(first).keys() == vars(second).keys()
    first, second = first.to_arrays(), second.to_arrays()
    assert first.keys() == second.keys()
    for name in (name for name in first if "seconds" not in name):
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("labels", [(False, True), ("no", "yes"), (-1, 1)], ids=str)
def test_a_learner_comes_back_as_it_was_and_goes_on(condition, labels, tmp_path):
    path = tmp_path / "learner.npz"
    save(CONDITIONS[condition][0], path)  # not fitted
    assert repr(load(path)) == repr(CONDITIONS[condition][0])
    learner = made(condition, labels)
    save(learner, path)
    again = load(path)
    assert_same(again, learner)
    X, y = make_points(n=250, seed=1)
    y = np.array(labels)[y.astype(int)]
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


@pytest.mark.parametrize("kind", [NEMSISClassifier, SCANClassifier, BATCH])
@pytest.mark.parametrize("container", [np.asarray, csr])
def test_a_stream_goes_on_after_it_was_saved(kind, container, tmp_path):
    """Wherever it was: among candidates, in an epoch, in a buffer."""
    X, y = make_points(n=9000)
    rows, whole, learner = container(X), kind(), kind()
    for start in range(0, 9000, 700):
        chunk = slice(start, start + 700)
        whole.partial_fit(rows[chunk], y[chunk], classes=[False, True])
        learner.partial_fit(rows[chunk], y[chunk], classes=[False, True])
        save(learner, tmp_path / "learner.npz")
        learner = load(tmp_path / "learner.npz")
    assert_same(learner, whole)
    assert learner.t_ == 9000


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
        (NEMSIS(), TypeError, "of a quantifier, save its classifier_"),
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
    try:
        save(NEMSISClassifier(), tmp_path / "learner.npz")
    finally:
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
def test_a_file_cut_short_or_with_a_changed_bit_is_refused_or_the_learner_the_same(
    condition, tmp_path
):
    path, learner, rng = tmp_path / "learner.npz", made(condition), np.random.default_rng(0)
    save(learner, path)
    whole = path.read_bytes()
    for cut in (*range(0, len(whole), 61), len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"learner\.npz is broken, cut short"):
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


def archive(path, compression=zipfile.ZIP_STORED, **members):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


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


PLAIN = {"format": "quapy-nemsis", "version": 2, "written_by": "9.9", "digest": "0"}
CLASS = {"class": "NEMSISClassifier", "parameters": {}, "extra": None}


def head(**changes):
    return npy(np.array(json.dumps({**PLAIN, **CLASS, **changes})))


@pytest.mark.parametrize(
    ("message", "members"),
    [
        *(
            ("is broken.*a0 is not as long as it says", {"header": head(), "a0": promising(shape)})
            for shape in ((2**40,), (2**62, 2**62), (10**30,), (-1,), (2,), (0,))
        ),
        ("is broken", {"header": promising((), "|O")}),
        ("is broken", {"header": npy(np.array([Trap()], dtype=object))}),
        ("is broken", {"header": head(), "a0": npy(np.array([Trap()], dtype=object))}),
        ("is broken", {"header": npy(np.array("{"))}),
        ("is broken", {"header": npy(np.array("[3]"))}),
        ("is broken", {"header": b"\x93NUMPY\x02\x00" + bytes(90)}),
        ("is broken.* no file of quapy-nemsis", {"X": npy(np.zeros(3))}),
        ("is broken.* no file of quapy-nemsis", {"header": head(format="other")}),
        ("is broken.*compressed", {"compression": zipfile.ZIP_DEFLATED, "header": head()}),
        (
            "is of format version 3, written by quapy-nemsis 9.9; this one reads versions up to 2: "
            "install a newer quapy-nemsis",
            {"header": head(version=3)},
        ),
        *(
            ("was changed or damaged: there is no format version", {"header": head(version=found)})
            for found in (0, -1, "2", 1.0, True, None)
        ),
        ("was changed or damaged: its digest does not match", {"header": head()}),
        ("was changed or damaged", {"header": head(version=1)}),
        *(
            (r"^\S+ (is|was|does)", {"header": npy(np.array(tree.replace("DEEP", deep)))})
            for tree in (json.dumps({**PLAIN, **CLASS}).replace("{}", "DEEP"), "DEEP")
            for deep in ("[" * 900 + "]" * 900, '{"a":' * 100_000 + "1" + "}" * 100_000)
        ),
    ],
)
def test_archives_that_are_refused(message, members, tmp_path):
    path = tmp_path / "learner.npz"
    archive(path, **members)
    with pytest.raises(ValueError, match=message):
        load(path)


def test_an_encrypted_archive_is_refused(tmp_path):
    path = tmp_path / "learner.npz"
    save(NEMSISClassifier(), path)
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"learner\.npz is broken.*encrypted"):
        load(path)


# ------------------------- files that were changed and given a digest that matches


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
        if re.match(r"state\.[1-6]\.", name):
            continue  # candidates like state.0 and state.7
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
    """Every entry of the header of version 2 changed."""
    for key, odd in itertools.product(CLASS, [*ODD, "Popen", "SVMPerfClassifier"]):
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
    for _ in range(2):
        assert np.isfinite(learner.decision_function(X)).all()
        assert np.isin(learner.predict(X), learner.classes_).all()
        if hasattr(learner, "predict_proba"):
            posteriors = learner.predict_proba(X)
            assert ((posteriors >= 0) & (posteriors <= 1)).all()
        with contextlib.suppress(ValueError):
            getattr(learner, "partial_fit", learner.fit)(X, learner.classes_[y.astype(int)])


def restored(path, header, arrays):
    """What `load` does once the digest is found to match."""
    content = persistence.CONTENT[header["version"]](header)
    with persistence._refused(path, "does not hold a learner of this package"):
        if header["version"] == 1:
            content, arrays = persistence.from_version1(content, arrays)
        return persistence._restored(content, arrays)[0]


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
    for name in CONDITIONS:
        save(made(name), path)
        files[name] = opened(path)
    for one, other in itertools.permutations(CONDITIONS, 2):
        yield f"{one} with the arrays of {other}", files[one][0], files[other][1]
    for name in ("nemsis-columns", "scan-level", "minibatch-csr", "svmperf-q"):
        files[name] = opened(ROOT / "tests" / "golden" / "version1" / f"{name}.npz")
    for name, (header, arrays) in files.items():
        if name not in ("nemsis steps", "nemsis chosen", "scan", "svmperf"):
            for how, found in array_forgeries(arrays):
                yield f"{name}: {how}", header, found
        if name in ("nemsis", "scan level", "batch dense", "svmperf planes", "can"):
            for how, found in header_forgeries(header):
                yield f"{name}: {how}", found, arrays


def try_all(folder):
    """Every forgery is refused, or gives a learner that works; some go through a file."""
    path, accepted = Path(folder) / "forged.npz", 0
    for number, (name, header, arrays) in enumerate(cases(path)):
        print(name, flush=True)
        get = restored if number % 10 else forged
        try:
            learner = get(path, header, {key: array.copy() for key, array in arrays.items()})
        except ValueError as error:
            assert "does not hold a learner of this package: " in str(error)
            continue
        use(learner)
        accepted += 1
    assert 0 < accepted < number / 2


def test_whatever_is_forged_it_is_refused_or_a_learner_that_works(tmp_path):
    """In a process of its own: compiled code does not look where it reads and writes."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.test_persistence", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-200:]}{done.stderr[-2000:]}"


@pytest.mark.parametrize(
    ("condition", "name", "wrong", "message"),
    [
        ("nemsis", "classes", put(0), "its classes are"),
        ("nemsis", "coef", lambda a: a[0], "'coef' has shape .6,. and type float64"),
        ("nemsis", "state.v", lambda a: None, "there is no array 'v'"),
        ("nemsis", "state.numbers", put(np.nan), "its weights or estimates are not finite"),
        ("nemsis", "state.numbers", put(2.5, 0), "it has counted .* points of a class"),
        ("nemsis", "state.numbers", put(1e9, 2), "points of a class have rewards of 1000000000.0"),
        ("nemsis", "calibration.positive", WRONG["bytes"], "neither True nor False"),
        ("nemsis", "calibration.weights", put(0), "it is calibrated on count for nothing"),
        ("scan level", "state.left", put(-1), "'left' is -1"),
        ("scan level", "state.levels", lambda a: np.ones(99), "fewer points than its levels need"),
        ("scan choosing", "state.best", put(8), "its best candidate is not there"),
        ("scan choosing", "state.marks", put(500), "its windows begin after the points"),
        ("scan choosing", "state.0.left", put(7), "its candidates have not come equally far"),
        ("batch csr", "state.numbers", put(-1, 4), "it has taken -1.0 steps on 210 points"),
        ("batch csr", "state.indices", put(6), "indices of a sparse matrix must be from 0 to 5"),
        ("svmperf planes", "planes.alpha", put(0), "dual variables .* are negative or all 0"),
        ("svmperf planes", "planes.gram", put(0.5), "the products of its cutting planes"),
        ("can", "stranger", lambda a: np.zeros(3), "nothing has an array 'stranger'"),
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


if __name__ == "__main__":
    try_all(sys.argv[1])
