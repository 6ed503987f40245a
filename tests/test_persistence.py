"""Files that hold a learner, and what is no such file."""

import io
import json
import os
import pickle
import stat
import zipfile

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
    """The file with its header or arrays changed."""
    with np.load(path) as parts:
        arrays = dict(parts)
    header = json.loads(str(arrays.pop("header")))
    change(header, arrays)
    np.savez(path, header=np.array(json.dumps(header)), **arrays)


def forged(path, change):
    """The file with its learner changed, by what `change` does to its attributes, and a digest that matches."""

    def forge(header, arrays):
        change(header["learner"]["state"], arrays)
        header["digest"] = persistence._digest(
            [header["learner"], header["extra"]], [arrays[f"a{k}"] for k in range(len(arrays))]
        )

    rewritten(path, forge)


def put(where, value):
    """A change: `where` is a path of names through objects; an array in that place is changed by `value`."""
    *folders, last = where.split(".")

    def change(state, arrays):
        for name in folders:
            state = state[int(name)] if isinstance(state, list) else state[name]
            state = state.get("state", state.get("tuple", state)) if type(state) is dict else state
        last_ = int(last) if isinstance(state, list) else last
        if callable(value):
            name = f"a{state[last_]['array']}"
            arrays[name] = value(arrays[name])
        else:
            state[last_] = value

    return change


def drop(name):
    return lambda state, arrays: state.pop(name)


def shorter(array):
    return array[..., :-1].copy()


def single(array):
    return array.astype(np.float32)


def swapped(array):
    return array.astype(array.dtype.newbyteorder())


def far(array):
    return array + 1000


def first_far(array):
    return np.concatenate([[1000], array[1:]]).astype(array.dtype)


def infinite(array):
    return array + np.inf


ONLINE = [
    put("_state.scalars", shorter),
    put("_state.scalars", single),
    put("_state.scalars", infinite),
    put("_state.lag", shorter),
    put("_state.v", single),
    put("_state.v", swapped),
    put("_state.before", lambda array: array[np.newaxis]),
    put("_state.seconds", "long"),
    put("n_features_in_", 5),
    put("n_features_in_", 6.0),
    put("n_features_in_", -6),
    put("coef_", shorter),
    put("coef_", lambda array: array[0]),
    put("intercept_", lambda array: array[0]),
    put("classes_", lambda array: array[:1]),
    put("eta0", -1.0),
    put("eta0", "fast"),
    put("average", "none"),
    put("n_passes", 2.5),
    put("_kind", 3),
    put("_tuned", {"dict": {}}),
    put("history_", {"dict": {"samples": ["a"]}}),
    put("predict", 1),
    put("__dict__", {"dict": {}}),
    put("__class__", "x"),
    put("_state.walk", 1),
    put("_state.__class__", 1),
    put("_state", None),
    put("coef_", {"array": -1}),
    put("coef_", {"array": 0}),  # an array that is another one's too
    put("coef_", {"array": 10_000}),
    put("coef_", {"array": []}),
    put("radius_", {"number": "abc"}),
    put("radius_", {"number": "1_0"}),
    put("radius_", {"what": 1}),
    put("radius_", True),
    *(drop(name) for name in ("classes_", "coef_", "_state", "eta0", "_tuned", "n_features_in_")),
]
NESTED = [
    put("measure", {"object": "BAKLD", "state": {"C": 2.0}}),
    put("measure", {"object": "BAKLD", "state": {}}),
    put("measure", {"object": "Valuation", "state": {"measure": "q", "level": 0.5}}),
    put("measure", "cqb"),
    put("_calibration", None),
    put("_calibration.scores", shorter),
    put("_calibration.positive", lambda array: array.astype(np.int64)),
    put("_calibration._curve", 1),
    put("_tuned.positive", shorter),
    put("_tuned.settings.eta0", "x"),
    put("_tuned.settings.reward", 0.5),
]
SCAN = [
    put("_state.sums", shorter),
    put("_state.weights", shorter),
    put("_state.left", -1),
    put("_state.left", 0.5),
    put("_state.learning", 1),
    put("_state.levels", ["a"]),
    put("_state", {"object": "State", "state": {}}),
]
WAITING = [
    put("_state.waiting.0", shorter),
    put("_state.waiting", None),
    put("_state.waiting", {"tuple": []}),
    put("_state.labels", shorter),
    put("_state.labels", lambda array: array.astype(float)),
    put("_state.batches", -1),
    put("_kind", {"tuple": [2, 3]}),
    put("loss", {"object": "_NamedLoss", "state": {"key": "abc"}}),
]
CSR = [
    *WAITING,
    put("_state.waiting.1", far),
    put("_state.waiting.1", lambda array: array - 1000),
    put("_state.waiting.1", lambda array: array.astype(float)),
    put("_state.waiting.2", far),
    put("_state.waiting.2", first_far),
    put("_state.waiting.2", lambda array: array[[0, -1, *range(2, len(array))]]),
]
RACE = [
    put("_state.best", 8),
    put("_state.best", -1),
    put("_state.marks", []),
    put("_state.marks.0", shorter),
    put("_state.scores", shorter),
    put("_state.tries", []),
    put("_state.tries.0", None),
    put("_state.tries.0.average", 1),
    put("_state.states.0.v", shorter),
    put("_state.states.7.scalars", lambda array: array[:3]),
    put("_state.states.7.scalars", far),
    put("_state.states", []),
    put("_state.states", [None] * 8),
    put("_state.t", 3),
    put("_state.states.0.learning", False),
]
PLANES = [
    put("_kept.normals", shorter),
    put("_kept.gram", shorter),
    put("_kept.alpha", shorter),
    put("_kept.losses", single),
    put("_kept.problem", 3),
    put("_kept", {"dict": {}}),
    put("gap_", "x"),
    put("n_iter_", 1.5),
    drop("_kept"),
]


def made(kind, container=np.asarray, stream=False, **parameters):
    X, y = make_points(n=215)
    learner = kind(**parameters)
    learn = learner.partial_fit if stream else learner.fit
    return learn(container(X), y)


FORGERIES = {
    "nemsis": (lambda: made(NEMSISClassifier, random_state=0), ONLINE + NESTED),
    "scan": (lambda: made(SCANClassifier, random_state=0), ONLINE + NESTED + SCAN),
    "dense": (
        lambda: made(OnePassMiniBatchClassifier, buffer_size=30, n_passes=1, random_state=0),
        ONLINE + WAITING,
    ),
    "csr": (
        lambda: made(
            OnePassMiniBatchClassifier, scipy.sparse.csr_matrix, True, buffer_size=30, eta0=1.0
        ),
        CSR,
    ),
    "race": (lambda: made(SCANClassifier, stream=True), RACE),
    "planes": (lambda: made(SVMPerfClassifier, C=10.0, warm_start=True), PLANES),
    "can": (
        lambda: made(CANClassifier, radius=3.0),
        [put("levels_", lambda array: array[0]), put("n_iter_", "x"), put("_state", None)],
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_learner_that_would_read_or_write_beside_its_arrays_is_refused(name, tmp_path):
    """Files that were changed and given a new digest: the kernels do not look where they write."""
    make, changes = FORGERIES[name]
    path = tmp_path / "learner.npz"
    save(make(), path)
    whole = path.read_bytes()
    forged(path, lambda state, arrays: None)
    load(path)
    for k, change in enumerate(changes):
        path.write_bytes(whole)
        forged(path, change)
        with pytest.raises(ValueError, match=r"learner\.npz does not hold a learner"):
            pytest.fail(f"change {k} was accepted: {load(path)}")


def test_what_is_not_loaded_is_not_written(tmp_path):
    learner = made(NEMSISClassifier, random_state=0).set_params(eta0=-1.0)
    with pytest.raises(ValueError, match="eta0 must be positive"):
        save(learner, tmp_path / "learner.npz")
    assert not list(tmp_path.iterdir())


def test_a_learner_whose_first_fit_failed_can_be_saved(tmp_path):
    learner = NEMSISClassifier()
    with pytest.raises(ValueError, match="two classes"):
        learner.partial_fit(np.eye(3), [1, 1, 1])
    save(learner, tmp_path / "learner.npz")
    assert load(tmp_path / "learner.npz").n_features_in_ == 3


def test_text_labels_and_names_of_features_come_back_as_numpy_strings(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = make_points(n=200)
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    learner = NEMSISClassifier(random_state=0).fit(frame, np.where(y, "yes", "no").astype(object))
    assert learner.classes_.dtype == object
    save(learner, tmp_path / "learner.npz")
    again = load(tmp_path / "learner.npz")
    assert again.classes_.dtype == "<U3"
    np.testing.assert_array_equal(again.predict(frame), learner.predict(frame))
    again.partial_fit(frame, np.where(y, "yes", "no").astype(object))


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

    def version(number):
        return lambda header, arrays: header.update(version=number)

    def touched(header, arrays):
        arrays["a0"] = arrays["a0"] + 1

    def foreign(header, arrays):
        header["learner"]["object"] = "Popen"
        header["digest"] = persistence._digest([header["learner"], None], list(arrays.values()))

    def nobody(header, arrays):
        header["learner"] = 3
        header["digest"] = persistence._digest([3, None], list(arrays.values()))

    for change, message in (
        (version(2), r"version 2, written by quapy-nemsis \S+; this one .* install a newer"),
        *(
            (version(v), r"npz was changed or damaged: there is no")
            for v in (0, -1, "2", 1.0, True)
        ),
        (lambda header, arrays: header.pop("version"), "was changed or damaged: there is no"),
        (lambda header, arrays: header.pop("digest"), "was changed or damaged"),
        (lambda header, arrays: header.update(format="other"), "no file of quapy-nemsis"),
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


def archive(path, compression=zipfile.ZIP_STORED, **members):
    """A zip file of these npy members."""
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


@pytest.mark.parametrize("depth", [900, 100_000])
@pytest.mark.parametrize("brackets", ["[]", ('{"a":', "}")])
def test_deep_json_is_refused(depth, brackets, tmp_path):
    path, tree = tmp_path / "learner.npz", brackets[0] * depth + "1" + brackets[1] * depth
    header = (
        f'{{"format": "quapy-nemsis", "version": 1, "digest": "", "extra": 0, "learner": {tree}}}'
    )
    archive(path, header=npy(np.array(header)))
    with pytest.raises(ValueError, match=r"learner\.npz "):
        load(path)


def test_files_that_promise_too_much_are_refused(tmp_path):
    path = tmp_path / "learner.npz"
    header = npy(np.array(json.dumps({"format": "quapy-nemsis", "version": 1})))
    for shape in ((2**40,), (2**62, 2**62), (10**30,), (-1,), (2,), (0,)):
        archive(path, header=header, a0=promising(shape))
        with pytest.raises(ValueError, match=r"learner\.npz is broken.*not as long as it says"):
            load(path)
    archive(path, header=promising((), "|O"))
    with pytest.raises(ValueError, match=r"learner\.npz is broken"):
        load(path)
    archive(path, zipfile.ZIP_DEFLATED, header=header, a0=npy(np.zeros(10**6)))
    with pytest.raises(ValueError, match=r"learner\.npz is broken.*compressed"):
        load(path)
    archive(path, header=header)
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"learner\.npz is broken.*encrypted"):
        load(path)


def test_whatever_byte_is_changed_the_file_is_refused_or_the_learner_the_same(tmp_path):
    X, y = make_points(n=100)
    path = tmp_path / "learner.npz"
    learner = NEMSISClassifier(random_state=0, eta0=0.5, radius=1.0).partial_fit(X, y)
    save(learner, path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.choice(len(whole), 1500, replace=False):
        content = bytearray(whole)
        content[place] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        try:
            again = load(path)
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017  not all of them are refused
        else:
            assert_same(again, learner)


def test_a_file_that_cannot_be_opened_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "learner.npz")
    with pytest.raises(OSError, match=str(tmp_path)):
        load(tmp_path)


def test_what_a_killed_process_left_behind_goes_with_the_next_write(tmp_path):
    path = tmp_path / "learner.npz"
    (tmp_path / ".learner.npz.part").write_bytes(b"half a fi")
    for _ in range(2):
        save(NEMSISClassifier(), path)
        assert list(tmp_path.iterdir()) == [path]
    load(path)


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
