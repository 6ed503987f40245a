"""Streams: sources, live evaluation, checkpoints, kills."""

import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file, make_circles
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from quapy_nemsis import (
    CANClassifier,
    FourierFeatures,
    NEMSISClassifier,
    NystromFeatures,
    OnePassMiniBatchClassifier,
    SCANClassifier,
    get_measure,
    load,
    make_measure,
    save,
)
from quapy_nemsis.streaming import (
    CheckpointError,
    Source,
    StreamError,
    chunks_of,
    fit_stream,
    from_dicts,
    from_iterable,
    plot_progress,
    read_csv,
    read_libsvm,
    read_npz,
    read_parquet,
    shuffled,
)
from quapy_nemsis.streaming.sources import SourceError
from tests.conftest import make_classes, make_points

ROOT = Path(__file__).parents[1]


def gathered(source):
    chunks = list(source)
    rows = [X.toarray() if scipy.sparse.issparse(X) else X for X, _ in chunks]
    return np.vstack(rows), np.concatenate([y for _, y in chunks]), [len(y) for _, y in chunks]


def frame_of(X, y):
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    frame["label"] = np.where(y, "yes", "no")
    return frame


# ----------------------------------------------------------------------- sources


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "csv.zst", "parquet"])
def test_tables(suffix, tmp_path):
    if suffix in ("csv.zst", "parquet"):
        pyarrow = pytest.importorskip("pyarrow", reason=f"{suffix} files need pyarrow")
    X, y = make_points(n=1000)
    path = tmp_path / f"rows.{suffix}"
    frame = frame_of(X, y)
    reader = read_csv
    if suffix == "parquet":
        frame.to_parquet(path, row_group_size=400)
        reader = read_parquet
    elif suffix == "csv.zst":
        with pyarrow.output_stream(path, compression="zstd") as file:
            file.write(frame.to_csv(index=False).encode())
    else:
        frame.to_csv(path, index=False)
    source = reader(path, "label", rows=300)
    for _ in range(2):  # a source can be read again
        found, labels, sizes = gathered(source)
        np.testing.assert_allclose(found, X, rtol=1e-12)
        np.testing.assert_array_equal(labels == "yes", y)
        assert max(sizes) <= 300
    some, _, _ = gathered(reader(path, "label", columns=["x3", "x1"], rows=300))
    np.testing.assert_allclose(some, X[:, [3, 1]], rtol=1e-12)


@pytest.mark.parametrize("ahead", [False, True])
def test_the_next_chunk_is_read_while_one_is_used(ahead):
    read = [threading.Event() for _ in range(4)]
    closed = threading.Event()

    def chunks():
        try:
            for k, event in enumerate(read):
                event.set()
                if k == 2:
                    raise OSError("the disk is gone")
                yield np.full((5, 2), float(k)), np.arange(5)
        finally:
            closed.set()

    source = Source("rows", chunks, ahead)
    iterator = iter(source)
    first, _ = next(iterator)
    assert read[1].wait(5.0 if ahead else 0.2) == ahead
    assert not read[2].is_set()  # one chunk, no more
    second, _ = next(iterator)
    assert first.max() == 0.0
    assert second.max() == 1.0
    with pytest.raises(SourceError, match=r"rows: cannot be read after row 10 .*the disk is gone"):
        next(iterator)
    closed.clear()
    iterator = iter(source)
    next(iterator)
    iterator.close()  # by one who needs no more
    assert closed.is_set()
    assert not [thread for thread in threading.enumerate() if "read-ahead" in thread.name]


@pytest.mark.parametrize("suffix", ["libsvm", "libsvm.gz"])
def test_libsvm_text(suffix, tmp_path):
    X, y = make_points(n=500)
    X[np.abs(X) < 0.7] = 0.0
    path = tmp_path / f"rows.{suffix}"
    opened = gzip.open if suffix.endswith("gz") else open
    with opened(path, "wb") as file:
        dump_svmlight_file(X, np.where(y, 1, -1), file, zero_based=False)
    found, labels, sizes = gathered(read_libsvm(path, 6, rows=200))
    np.testing.assert_allclose(found, X, rtol=1e-12)
    np.testing.assert_array_equal(labels == 1, y)
    assert sizes == [200, 200, 100]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("kind", ["dense", "float32", "csr"])
def test_npz(kind, save, tmp_path):
    X, y = make_points(n=500)
    X[np.abs(X) < 0.7] = 0.0
    X[200:215] = 0.0
    X = X.astype(np.float32) if kind == "float32" else X
    M = scipy.sparse.csr_matrix(X)
    sparse = {"data": M.data, "indices": M.indices, "indptr": M.indptr, "shape": M.shape}
    path = tmp_path / "rows.npz"
    save(path, y=np.where(y, "yes", "no"), **(sparse if kind == "csr" else {"X": X}))
    source = read_npz(path, rows=210)
    for _ in range(2):
        found, labels, sizes = gathered(source)
        np.testing.assert_array_equal(found, X)
        np.testing.assert_array_equal(labels == "yes", y)
        assert sizes == [210, 210, 80]
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"rows\.npz: cannot be read after row 0 \(BadZipFile"):
        list(source)


def test_bad_npz(tmp_path):
    X, y = make_points(n=50)
    path = tmp_path / "rows.npz"
    source = read_npz(path)
    for arrays, message in (
        ({"y": y, "Z": X}, r"the array 'data' is missing; the file has \['Z', 'y'\]"),
        ({"y": y[:40], "X": X}, r"X has shape \(50, 6\) and y \(40,\)"),
        ({"y": y, "X": np.asfortranarray(X)}, "'X' is in Fortran order"),
        ({"y": y.astype(object), "X": X}, "'y' contains Python objects, which are not loaded"),
        (
            {"y": y, "data": X[0], "indices": [0, 1], "indptr": [0] * 50 + [6], "shape": [50, 6]},
            "'indices' ends too early",
        ),
    ):
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=message):
            list(source)


def test_an_unknown_option_of_a_reader(tmp_path):
    with pytest.raises(TypeError, match="has an option 'seperator'"):
        read_csv(tmp_path / "rows.csv", "label", seperator=";")


def test_iterables_and_dictionaries():
    X, y = make_points(n=100)
    pairs = [(X[a : a + 30], y[a : a + 30]) for a in range(0, 100, 30)]
    found, labels, _ = gathered(from_iterable(lambda: iter(pairs)))
    np.testing.assert_array_equal(found, X)
    np.testing.assert_array_equal(labels, y)
    points = [
        ({"a": row[0], f"word={i % 3}": 1.0}, label)
        for i, (row, label) in enumerate(zip(X, y, strict=True))
    ]
    source = from_dicts(lambda: points, n_features=64, rows=40)
    found, labels, sizes = gathered(source)
    assert found.shape == (100, 64)
    assert sizes == [40, 40, 20]
    np.testing.assert_array_equal(labels, y)
    learner = fit_stream(NEMSISClassifier("q", eta0=0.3), source, classes=[False, True]).learner
    assert learner.t_ == 100


def test_a_shuffle_buffer_leaves_its_source_alone():
    X, y = make_points(n=600)
    before = X.copy()
    gathered(shuffled(chunks_of(X, y, rows=100), 200))
    np.testing.assert_array_equal(X, before)
    # Labels may be longer later on.
    words = np.where(np.arange(600) < 300, "no", "certainly")
    chunks = [(X[a : a + 100], words[a : a + 100].astype(str)) for a in range(0, 600, 100)]
    chunks = [(rows, np.array(labels.tolist())) for rows, labels in chunks]
    found, labels, _ = gathered(shuffled(from_iterable(lambda: iter(chunks)), 200))
    assert sorted(zip(map(tuple, found), labels, strict=True)) == sorted(
        zip(map(tuple, X), words, strict=True)
    )
    with pytest.raises(ValueError, match="buffer must be at least 1; got 0"):
        shuffled(chunks_of(X, y), 0)


def test_what_a_shuffle_buffer_is_for():
    """Rows sorted by class: without a buffer the last class is all that is remembered."""
    X, y = make_points(n=8000)
    order = np.argsort(y, kind="stable")
    source = chunks_of(X[order], y[order], rows=500)
    learner = NEMSISClassifier("q", eta0=1.0)
    values = []
    for stream in (source, shuffled(source, 8000)):
        found = fit_stream(learner, stream, classes=[False, True]).learner
        values.append(get_measure("q").score(y, found.predict(X)))
    assert values[1] > 0.85
    assert values[0] < values[1] - 0.05


# --------------------------------------------------------------- live evaluation


@pytest.mark.parametrize("kind", [NEMSISClassifier, SCANClassifier, OnePassMiniBatchClassifier])
def test_a_stream_is_partial_fit_and_a_curve(kind):
    X, y = make_points(n=5000)
    learner = kind()
    progress = fit_stream(learner, chunks_of(X, y, rows=250), classes=[False, True], window=1000)
    np.testing.assert_array_equal(progress.learner.coef_, kind().partial_fit(X, y).coef_)
    assert not hasattr(learner, "coef_")
    assert progress.rows == 5000
    assert not progress.stopped
    curve = progress.curve
    assert curve["rows"] == [1000, 2000, 3000, 4000, 5000]
    assert (np.diff(curve["seconds"]) > 0).all()
    for k, start in enumerate(range(0, 5000, 1000)):
        assert curve["prevalence"][k] == pytest.approx(y[start : start + 1000].mean())
        if k:
            assert curve["drift"][k] == pytest.approx(
                abs(y[start : start + 1000].mean() - y[:start].mean())
            )
    # Each chunk is judged by the learner before it.
    judged = kind()
    hits = []
    for start in range(0, 5000, 250):
        chunk = slice(start, start + 250)
        if start >= 4000:
            hits.append(judged.predict(X[chunk]))
        judged.partial_fit(X[chunk], y[chunk], classes=[False, True])
    labels = np.concatenate(hits)
    assert curve["estimate"][-1] == pytest.approx(labels.mean())
    assert curve["ba"][-1] == pytest.approx(get_measure("ba").score(y[4000:], labels))
    assert curve["kld"][-1] == pytest.approx(-get_measure("kld").score(y[4000:], labels))


def test_windows_that_lack_a_class(tmp_path):
    X, y = make_points(n=3000)
    y[1000:2000] = False
    source = chunks_of(X, y, rows=500)
    options = {"classes": [False, True], "window": 1000}
    path = tmp_path / "learner.npz"
    progress = fit_stream(NEMSISClassifier("q", eta0=0.3), source, checkpoint=path, **options)
    curve = progress.curve
    for name in ("value", "ba"):
        np.testing.assert_array_equal(np.isnan(curve[name]), [False, True, False])
    # KLD needs no rates: smoothed shares (p + ε)/(1 + 2ε), as in QuaPy.
    shares = np.array([[0.0, 1.0], [curve["estimate"][1], 1.0 - curve["estimate"][1]]])
    p, q = (shares + 0.5 / 1000) / (1.0 + 1.0 / 1000)
    assert curve["kld"][1] == pytest.approx(p @ np.log(p / q))
    kept = fit_stream(
        NEMSISClassifier("q", eta0=0.3), source, checkpoint=path, resume=True, **options
    )
    np.testing.assert_equal(kept.curve, curve)
    counting = fit_stream(NEMSISClassifier("kld", eta0=0.3), source, **options)
    np.testing.assert_allclose(counting.curve["value"], -np.array(counting.curve["kld"]))
    # Windows that say nothing are no reason to lose patience.
    y[1000:] = False
    assert not fit_stream(NEMSISClassifier("q"), source, patience=1, **options).stopped


def test_a_plot_of_the_curve(tmp_path):
    X, y = make_points(n=5000)
    y[2500:] = y[2500:] | (np.arange(2500) % 3 == 0)  # drift
    source = chunks_of(X, y, rows=250)
    progress = fit_stream(NEMSISClassifier("q"), source, classes=[False, True], window=500)
    figure = plot_progress(progress)
    lines = [line for ax in figure.axes for line in ax.get_lines()]
    names = ("value", "ba", "kld", "prevalence", "estimate")
    for line, name in zip(lines, names, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), progress.curve["rows"])
        np.testing.assert_allclose(line.get_ydata(), np.maximum(progress.curve[name], 1e-9))
    figure.savefig(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 10_000
    short = fit_stream(NEMSISClassifier("q"), source, classes=[False, True], window=9000)
    with pytest.raises(ValueError, match="5,000 rows were read; give fit_stream a smaller window"):
        plot_progress(short)


def test_stopping(capsys):
    X, y = make_points(n=5000)
    source = chunks_of(X, y, rows=250)
    learner = NEMSISClassifier("q", eta0=0.3)
    short = fit_stream(learner, source, classes=[False, True], max_rows=1100, verbose=1, window=500)
    assert (short.rows, short.learner.t_, short.stopped) == (1100, 1100, True)
    assert capsys.readouterr().out.count("rows, value") == 2
    seen = []
    called = fit_stream(
        learner,
        source,
        classes=[False, True],
        callback=lambda p: seen.append(p.rows) or p.rows >= 750,
    )
    assert (called.rows, called.stopped, seen) == (750, True, [250, 500, 750])
    noise = chunks_of(
        np.random.default_rng(0).normal(size=(20_000, 3)), np.tile([False, True], 10_000), rows=250
    )
    early = fit_stream(learner, noise, classes=[False, True], window=500, patience=4)
    assert early.stopped
    assert early.rows < 20_000


# ------------------------------------------------------------------- bad streams


def broken_in_the_middle(X, y):
    yield X[:300], y[:300]
    yield X[300:600], y[300:600]
    raise EOFError("cut short")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("nan", r"the iterable: row 705 contains NaN"),
        ("width", r"the iterable: row 601 has 3 features, but earlier rows have 6"),
        ("label", r"row 606 has the label 7, which is not among the classes \[0, 1\]"),
        ("end", r"the iterable: cannot be read after row 600 \(EOFError: cut short\)"),
    ],
)
def test_a_bad_chunk_costs_nothing_learned(change, message, tmp_path):
    X, y = make_points(n=900)
    y = y.astype(int)
    chunks = [[X[a : a + 300].copy(), y[a : a + 300].copy()] for a in (0, 300, 600)]
    if change == "nan":
        chunks[2][0][104, 2] = np.nan
    if change == "width":
        chunks[2][0] = chunks[2][0][:, :3]
    if change == "label":
        chunks[2][1][5] = 7
    source = from_iterable(lambda: broken_in_the_middle(X, y) if change == "end" else iter(chunks))
    path = tmp_path / "checkpoint.npz"
    learner = NEMSISClassifier("q", eta0=0.3)
    with pytest.raises(StreamError, match=message) as caught:
        fit_stream(learner, source, classes=[0, 1], checkpoint=path)
    before = NEMSISClassifier("q", eta0=0.3).partial_fit(X[:600], y[:600])
    np.testing.assert_array_equal(caught.value.progress.learner.coef_, before.coef_)
    np.testing.assert_array_equal(load(path).coef_, before.coef_)
    assert caught.value.progress.rows == 600


def test_broken_files(tmp_path):
    X, y = make_points(n=20_000)
    path = tmp_path / "rows.csv.gz"
    frame_of(X, y).to_csv(path, index=False)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    learner = NEMSISClassifier("q", eta0=0.3)
    with pytest.raises(
        StreamError, match=r"rows\.csv\.gz: cannot be read after row [\d,]+"
    ) as caught:
        fit_stream(learner, read_csv(path, "label", rows=1000), classes=["no", "yes"])
    assert caught.value.progress.rows > 0
    text = tmp_path / "text.csv"
    frame_of(X[:50], y[:50]).assign(x2="word").to_csv(text, index=False)
    for source, message in (
        (read_csv(text, "label"), "column 'x2' is not numeric"),
        (read_csv(text, "lable"), "no column 'lable'; the columns are x0, x1"),
        (read_csv(tmp_path / "nowhere.csv", "label"), r"nowhere\.csv: cannot be read after row 0"),
    ):
        with pytest.raises(StreamError, match=message):
            fit_stream(learner, source, classes=["no", "yes"])


def test_a_disk_that_takes_no_more(tmp_path):
    """The system itself refuses to write more than so many bytes."""
    resource = pytest.importorskip("resource", reason="needs a Unix system")
    X, y = make_points(n=1000)
    path = tmp_path / "checkpoint.npz"
    options = {"classes": [False, True], "checkpoint": path, "every_rows": 100, "resume": True}
    learner = NEMSISClassifier("q", eta0=0.3)
    fit_stream(learner, chunks_of(X[:500], y[:500], rows=100), **options)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="after row 600 could not be written") as caught:
            fit_stream(learner, chunks_of(X, y, rows=100), **options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(path)
    assert caught.value.progress.learner.t_ == 600
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint.npz"]
    whole = fit_stream(learner, chunks_of(X, y, rows=100), classes=[False, True])
    resumed = fit_stream(learner, chunks_of(X, y, rows=100), **options)
    np.testing.assert_array_equal(resumed.learner.coef_, whole.learner.coef_)


def test_more_mistakes(tmp_path):
    X, y = make_points(n=300)
    source, shorter = (chunks_of(X[:n], y[:n], rows=100) for n in (300, 200))
    path, q = tmp_path / "checkpoint.npz", NEMSISClassifier("q")
    there, resumed = {"checkpoint": path}, {"checkpoint": path, "resume": True}
    fit_stream(q, source, classes=[False, True], **there)
    before = path.read_bytes()
    for learner, rows, options, error, message in (
        (
            CANClassifier(),
            source,
            {},
            TypeError,
            "CANClassifier is not an online learner: give NEMSIS",
        ),
        (q, source, {"resume": True}, ValueError, "resume needs a checkpoint"),
        (q, source, there, FileExistsError, "already exists: continue from it with resume=True"),
        (NEMSISClassifier("kld"), source, resumed, ValueError, "name another file"),
        (q, shorter, resumed, ValueError, "is at row 300, but the source ends at row 200"),
    ):
        with pytest.raises(error, match=message):
            fit_stream(learner, rows, classes=[False, True], **options)
        assert path.read_bytes() == before


# ------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("kind", [NEMSISClassifier, SCANClassifier, OnePassMiniBatchClassifier])
def test_resuming_anywhere_changes_nothing(kind, tmp_path):
    X, y = make_points(n=6000)
    source = chunks_of(X, y, rows=330)
    options = {"classes": [False, True], "window": 1000}
    whole = fit_stream(kind(), source, **options)
    path = tmp_path / "checkpoint.npz"
    for stop in (100, 1500, 4097, None):
        part = fit_stream(kind(), source, checkpoint=path, resume=True, max_rows=stop, **options)
    np.testing.assert_array_equal(part.learner.coef_, whole.learner.coef_)
    assert part.rows == whole.rows == 6000
    assert part.learner.tuning_ == whole.learner.tuning_


STREAM = """
import sys, time
import numpy as np
from quapy_nemsis import NEMSISClassifier
from quapy_nemsis.streaming import chunks_of, fit_stream
rng = np.random.default_rng(0)
X = rng.normal(size=(20_000, 8))
y = X[:, 0] + rng.normal(size=20_000) > 1
def breathe(progress):
    time.sleep(0.01)
progress = fit_stream(
    NEMSISClassifier("q"), chunks_of(X, y, rows=200), classes=[False, True], window=2000,
    checkpoint=sys.argv[1], every_rows=400, resume=True, callback=breathe,
)
np.save(sys.argv[2], np.append(progress.learner.coef_, progress.curve["value"]))
"""


def run_stream(folder, name, kills, seed):
    """The result of a stream that is killed so many times, at random."""
    checkpoint, result = folder / f"{name}.npz", folder / f"{name}.npy"
    rng = np.random.default_rng(seed)
    line = [sys.executable, "-c", STREAM, str(checkpoint), str(result)]
    done = 0
    while True:
        process = subprocess.Popen(line, cwd=ROOT)
        if done < kills:
            while not checkpoint.exists() and process.poll() is None:
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 1.0) if done else 0.3)
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                done += 1
        process.wait()
        if result.exists():
            return np.load(result), done


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_stream_ends_the_same(times, tmp_path):
    whole, _ = run_stream(tmp_path, "whole", kills=0, seed=0)
    for k in range(times):
        killed, kills = run_stream(tmp_path, f"killed{k}", kills=1 + k % 3, seed=k)
        assert kills >= 1
        np.testing.assert_array_equal(killed, whole)


def test_a_stream_that_stopped_stops_again(tmp_path):
    """After a kill that came just behind the checkpoint at which the stream would have stopped, too."""
    X, y = make_points(n=6000)
    source = chunks_of(X, y, rows=250)
    options = {"classes": [False, True], "window": 500, "patience": 2, "every_rows": 1}
    learner = NEMSISClassifier("q", eta0=0.3)
    whole = fit_stream(learner, source, **options)
    assert whole.stopped
    assert whole.rows < 6000

    def kill(progress):
        if progress.rows == whole.rows:
            raise KeyboardInterrupt

    path = tmp_path / "checkpoint.npz"
    with pytest.raises(KeyboardInterrupt):
        fit_stream(learner, source, checkpoint=path, callback=kill, **options)
    for _ in range(2):
        again = fit_stream(learner, source, checkpoint=path, resume=True, **options)
        assert again.stopped
        assert again.rows == whole.rows
        np.testing.assert_array_equal(again.learner.coef_, whole.learner.coef_)
    options.pop("patience")
    same = fit_stream(learner, source, checkpoint=path, resume=True, max_rows=1000, **options)
    assert (same.rows, same.stopped) == (whole.rows, True)


def test_patience_with_a_loss():
    X, y = make_points(n=6000)
    learner = OnePassMiniBatchClassifier("kld", eta0=0.1, buffer_size=50)
    options = {"classes": [False, True], "window": 500}
    source = chunks_of(X, y, rows=250)
    losses = np.array(fit_stream(learner, source, **options).curve["value"])
    progress = fit_stream(learner, source, patience=2, **options)
    best = np.minimum.accumulate(losses)
    stale = next((k for k in range(2, len(losses)) if best[k] == best[k - 2]), len(losses) - 1)
    assert len(progress.curve["value"]) == stale + 1


def test_what_would_fail_at_the_first_checkpoint_fails_before(tmp_path):
    X, y = make_points(n=300)
    read = []

    def chunks():
        read.append(True)
        yield X, y

    own = make_measure(lambda P, N, p, theta: theta[0] * P + (1 - theta[0]) * N, [0.8])
    options = {"classes": [False, True], "checkpoint": tmp_path / "checkpoint.npz"}
    with pytest.raises(TypeError, match="cannot be saved"):
        fit_stream(NEMSISClassifier(own, eta0=0.1), from_iterable(chunks), **options)
    options["checkpoint"] = tmp_path / "nowhere" / "checkpoint.npz"
    with pytest.raises(FileNotFoundError, match="nowhere"):
        fit_stream(NEMSISClassifier(eta0=0.1), from_iterable(chunks), **options)
    with pytest.raises(ValueError, match="eta0 must be"):
        fit_stream(NEMSISClassifier(eta0=-1.0), from_iterable(chunks), classes=[False, True])
    with pytest.raises(ValueError, match="classes"):
        fit_stream(OnePassMiniBatchClassifier(), from_iterable(chunks), classes=[1, 2, 3])
    with pytest.raises(ValueError, match="needs two classes or more"):
        fit_stream(NEMSISClassifier(eta0=1.0), from_iterable(chunks), classes=[1])
    for name in ("window", "patience", "max_rows", "every_rows"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1; got 0"):
            fit_stream(NEMSISClassifier(), chunks_of(X, y), classes=[False, True], **{name: 0})
    with pytest.raises(ValueError, match="rows must be at least 1"):
        chunks_of(X, y, rows=0)
    assert not read
    assert not list(tmp_path.iterdir())


def test_a_stream_that_never_began_leaves_no_checkpoint(tmp_path):
    X, y = make_points(n=300)
    options = {"classes": [False, True], "checkpoint": tmp_path / "checkpoint.npz"}
    learner = NEMSISClassifier(eta0=np.float64(0.3))
    with pytest.raises(StreamError, match="cannot be read after row 0"):
        fit_stream(learner, read_csv(tmp_path / "rows.csv", "y"), **options)
    with pytest.raises(StreamError, match="the source: there are no rows"):
        fit_stream(learner, iter([]), **options)
    assert not list(tmp_path.iterdir())
    fit_stream(learner, chunks_of(X, y), **options)
    # A checkpoint of the same learner and stream, and of nothing else.
    assert fit_stream(learner, chunks_of(X, y), resume=True, **options).rows == 300
    with pytest.raises(StreamError, match="first row differs from that of the checkpoint"):
        fit_stream(learner, chunks_of(-X, y), resume=True, **options)
    save(learner, tmp_path / "learner.npz")
    options["checkpoint"] = tmp_path / "learner.npz"
    with pytest.raises(ValueError, match="not a checkpoint of fit_stream"):
        fit_stream(learner, chunks_of(X, y), resume=True, **options)


def test_chunks_of_any_kind():
    """Frames, lists, and matrices in any format give what arrays give."""
    X, y = make_points(n=1200)
    labels = np.where(y, "yes", "no")
    learner = NEMSISClassifier("q", eta0=0.3)
    options = {"classes": ["no", "yes"], "window": 300}
    whole = fit_stream(learner, chunks_of(X, labels, rows=300), **options)
    kinds = {
        "frames": lambda a, b: (
            pd.DataFrame(X[a:b]),
            pd.Series(labels[a:b], index=range(a, b), dtype=object),
        ),
        "lists": lambda a, b: (X[a:b].tolist(), labels[a:b].tolist()),
        "csc": lambda a, b: (scipy.sparse.csc_matrix(X[a:b]), labels[a:b]),
        "coo": lambda a, b: (scipy.sparse.coo_matrix(X[a:b]), labels[a:b]),
    }
    for name, kind in kinds.items():
        progress = fit_stream(learner, [kind(a, a + 300) for a in range(0, 1200, 300)], **options)
        np.testing.assert_allclose(progress.learner.coef_, whole.learner.coef_, err_msg=name)
        np.testing.assert_allclose(progress.curve["value"], whole.curve["value"], err_msg=name)
    for X_any in (X.tolist(), pd.DataFrame(X), scipy.sparse.coo_matrix(X)):
        progress = fit_stream(learner, chunks_of(X_any, labels, rows=300), **options)
        np.testing.assert_allclose(progress.learner.coef_, whole.learner.coef_)
    with pytest.raises(ValueError, match="one label per row"):
        chunks_of(X, labels[:, np.newaxis])
    with pytest.raises(StreamError, match=r"after row 300 .*one label per row"):
        fit_stream(learner, [(X[:300], labels[:300]), (X[:300], labels[:300, None])], **options)
    bad = X.copy()
    bad[700, 1] = np.nan
    with pytest.raises(StreamError, match="row 701 contains NaN"):
        fit_stream(learner, [(scipy.sparse.csc_matrix(bad), labels)], **options)


def test_rows_without_a_label(tmp_path):
    pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    X, y = make_points(n=3000)
    frame = frame_of(X, y)
    frame.loc[1500, "label"] = None
    for path, reader in ((tmp_path / "r.parquet", read_parquet), (tmp_path / "r.csv", read_csv)):
        frame.to_parquet(path) if reader is read_parquet else frame.to_csv(path, index=False)
        checkpoint = tmp_path / f"{path.suffix}.npz"
        with pytest.raises(StreamError, match=r"r\..*: row 1,501 has no label") as caught:
            fit_stream(
                NEMSISClassifier("q", eta0=0.3),
                reader(path, "label", rows=1000),
                classes=["no", "yes"],
                checkpoint=checkpoint,
            )
        assert caught.value.progress.learner.t_ == 1000
        assert load(checkpoint).t_ == 1000


def test_columns_of_a_parquet_file(tmp_path):
    pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    X, y = make_points(n=200)
    path = tmp_path / "rows.parquet"
    frame = frame_of(X, y).sort_values("label")  # whose index pandas stores as a column
    frame.to_parquet(path)
    np.testing.assert_array_equal(
        gathered(read_parquet(path, "label"))[0], frame.to_numpy()[:, :-1]
    )
    frame.assign(x1="7").to_parquet(path)
    with pytest.raises(ValueError, match="column 'x1' is not numeric"):
        next(iter(read_parquet(path, "label")))
    with pytest.raises(ValueError, match="no column 'lable'; the columns are x0, x1"):
        next(iter(read_parquet(path, "lable")))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"rows\.parquet: cannot be read after row 0"):
        next(iter(read_parquet(path, "label")))


def test_memory_of_a_parquet_file_does_not_grow_with_its_row_groups(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    x = np.random.default_rng(0).normal(size=3_000_000)
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"x": x, "label": x > 0}).to_parquet(path, row_group_size=len(x))
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in read_parquet(path, "label", rows=1000)]
    assert len(held) == 3000
    assert max(held) < x.nbytes / 3


def test_a_zst_file_cut_short(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="zst files need pyarrow")
    X, y = make_points(n=20_000)
    path = tmp_path / "rows.csv.zst"
    with pyarrow.output_stream(path, compression="zstd") as file:
        file.write(frame_of(X, y).to_csv(index=False).encode())
    content = path.read_bytes()
    for share in np.linspace(0.3, 0.99, 7):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(
            ValueError, match=r"rows\.csv\.zst: cannot be read after row .*Truncated"
        ):
            gathered(read_csv(path, "label", rows=1000))


def test_a_matrix_by_columns_is_not_read_by_rows(tmp_path):
    X = scipy.sparse.csc_matrix(np.arange(9.0).reshape(3, 3))
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    np.savez(tmp_path / "rows.npz", format=b"csc", y=[0, 1, 0], **parts)
    with pytest.raises(ValueError, match="in the format b'csc': save it as CSR"):
        next(iter(read_npz(tmp_path / "rows.npz")))


def test_mistakes_in_a_shuffled_source():
    X, y = make_points(n=2000)
    labels = y.astype(int)
    labels[100] = 7
    learner = NEMSISClassifier("q", eta0=0.3)
    with pytest.raises(StreamError, match=r"the matrix, shuffled: row [\d,]+ has the label 7"):
        fit_stream(learner, shuffled(chunks_of(X, labels, rows=500), 1000), classes=[0, 1])
    chunks = [(X[:500], y[:500]), (X[:500, :3], y[:500])]
    with pytest.raises(StreamError, match="has 3 features, but earlier chunks have 6"):
        fit_stream(learner, shuffled(from_iterable(chunks), 1000), classes=[False, True])
    with pytest.raises(TypeError, match=r"such as from_iterable\(…\)"):
        shuffled(chunks, 1000)


# ----------------------------------------------------------------------- more than two classes

NAMES = np.array(["ant", "bee", "cat"])


@pytest.mark.parametrize("learner", [NEMSISClassifier(), SCANClassifier("bk", eta0=0.5)], ids=str)
def test_a_curve_of_several_classes(learner, capsys):
    X, y = make_classes(n=4000, d=4)
    y = NAMES[y]
    options = {"classes": NAMES[::-1], "window": 1000, "verbose": 1}
    progress = fit_stream(learner, chunks_of(X, y, rows=250), **options)
    streamed = clone(learner).partial_fit(X, y)
    np.testing.assert_array_equal(progress.learner.coef_, streamed.coef_)
    curve = progress.curve
    assert curve["rows"] == [1000, 2000, 3000, 4000]
    for k, start in enumerate(range(0, 4000, 1000)):
        here = [np.mean(y[start : start + 1000] == name) for name in NAMES]
        np.testing.assert_allclose(curve["prevalence"][k], here)
        if k:
            before = [np.mean(y[:start] == name) for name in NAMES]
            assert curve["drift"][k] == pytest.approx(np.abs(np.subtract(here, before)).sum() / 2)
    # Each chunk is judged by the learner before it.
    judged, found = clone(learner), []
    for start in range(0, 4000, 250):
        chunk = slice(start, start + 250)
        if start >= 3000:
            found.append(judged.predict(X[chunk]))
        judged.partial_fit(X[chunk], y[chunk], classes=NAMES)
    labels = np.concatenate(found)
    np.testing.assert_allclose(curve["estimate"][-1], [np.mean(labels == name) for name in NAMES])
    for name, measure in (("ba", "ba"), ("value", learner.measure)):
        expected = get_measure(measure).score(y[3000:], labels)
        assert curve[name][-1] == pytest.approx(expected)
    assert curve["kld"][-1] == pytest.approx(-get_measure("kld").score(y[3000:], labels))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert "4,000 rows, value 0." in lines[-1]
    assert "mean error of the prevalences 0.0" in lines[-1]


@pytest.mark.parametrize("learner", [NEMSISClassifier(), SCANClassifier(eta0=0.5)], ids=str)
def test_a_stream_of_several_classes_is_resumed(learner, tmp_path):
    X, y = make_classes(n=3000, d=4)
    y = NAMES[y]
    source = chunks_of(scipy.sparse.csr_matrix(X), y, rows=170)
    options = {"classes": NAMES, "window": 400}
    whole = fit_stream(learner, source, **options)
    path = tmp_path / "checkpoint.npz"
    for rows in (130, 1000, 1800):
        part = fit_stream(
            *(learner, source), checkpoint=path, resume=True, max_rows=rows, **options
        )
        assert part.stopped
        assert part.rows == rows
    resumed = fit_stream(learner, source, checkpoint=path, resume=True, **options)
    np.testing.assert_array_equal(resumed.learner.coef_, whole.learner.coef_)
    # `max_rows` cuts chunks, after which windows end elsewhere; a stop between chunks does not.
    path.unlink()
    for stop in (340, 1700):
        fit_stream(
            *(learner, source),
            checkpoint=path,
            resume=True,
            callback=lambda progress, stop=stop: progress.rows == stop,
            **options,
        )
    resumed = fit_stream(learner, source, checkpoint=path, resume=True, **options)
    np.testing.assert_array_equal(resumed.learner.coef_, whole.learner.coef_)
    for name in whole.curve.keys() - {"seconds"}:
        np.testing.assert_array_equal(resumed.curve[name], whole.curve[name], err_msg=name)
    posteriors = [one.learner.predict_proba(X) for one in (resumed, whole)]
    np.testing.assert_array_equal(*posteriors)
    more = chunks_of(np.vstack([X, X]), np.concatenate([y, y]), rows=170)
    options |= {"classes": [*NAMES, "dog"], "checkpoint": path, "resume": True}
    with pytest.raises(StreamError, match="differ from those of the first call"):
        fit_stream(learner, more, **options)


def test_windows_that_lack_one_of_several_classes():
    X, y = make_classes(n=3000, d=4)
    y[1000:2000] %= 2
    source = chunks_of(X, y, rows=500)
    curve = fit_stream(NEMSISClassifier("q", eta0=0.3), source, classes=range(4), window=1000).curve
    for name in ("value", "ba"):
        assert np.isnan(curve[name]).all()  # the fourth class never occurs
    assert np.isfinite(curve["kld"]).all()
    curve = fit_stream(NEMSISClassifier("q", eta0=0.3), source, classes=range(3), window=1000).curve
    np.testing.assert_array_equal(np.isnan(curve["ba"]), [False, True, False])
    # KLD needs no recalls: smoothed shares (p + ε)/(1 + 3ε), as in QuaPy.
    p, q = ((np.array(curve[name][1]) + 5e-4) / 1.0015 for name in ("prevalence", "estimate"))
    assert curve["kld"][1] == pytest.approx(p @ np.log(p / q))


def test_a_plot_of_several_classes(tmp_path):
    X, y = make_classes(n=4000, d=9, shares=np.full(9, 1 / 9))
    progress = fit_stream(
        NEMSISClassifier("q", eta0=0.5), chunks_of(X, y, rows=250), classes=range(9), window=500
    )
    figure = plot_progress(progress)
    bottom = figure.axes[2]
    lines = bottom.get_lines()
    assert len(lines) == 14  # of the seven most frequent classes
    true, estimated = (np.array(progress.curve[name]) for name in ("prevalence", "estimate"))
    shown = [int(text.get_text()) for text in bottom.get_legend().get_texts()]
    assert shown == sorted(np.argsort(-true.mean(axis=0), kind="stable")[:7])
    for k, (solid, dashed) in zip(shown, zip(lines[::2], lines[1::2], strict=True), strict=True):
        np.testing.assert_array_equal(solid.get_ydata(), true[:, k])
        np.testing.assert_array_equal(dashed.get_ydata(), estimated[:, k])
        assert solid.get_color() == dashed.get_color()
    figure.savefig(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 10_000


@pytest.mark.parametrize("label", ["dog", 7])
def test_a_label_that_is_none_of_several_classes(label):
    X, y = make_classes(n=900, d=4)
    labels = NAMES.astype(object)[y]
    labels[650] = label
    with pytest.raises(StreamError, match=rf"row 651 has the label {label!r}") as caught:
        fit_stream(NEMSISClassifier(eta0=0.3), chunks_of(X, labels, rows=300), classes=NAMES)
    expected = NEMSISClassifier(eta0=0.3).partial_fit(X[:600], NAMES[y[:600]])
    np.testing.assert_array_equal(caught.value.progress.learner.coef_, expected.coef_)


# ------------------------------------------------------------------ features inside the stream


class Watched(FourierFeatures):
    """Random features that note how many rows they see and transform."""

    def partial_fit(self, X, y=None):
        self.seen_ = getattr(self, "seen_", 0) + len(X)
        return super().partial_fit(X)

    def transform(self, X):
        self.most_ = max(getattr(self, "most_", 0), len(X))
        return super().transform(X)


def circles(n=12_000):
    X, y = make_circles(n, noise=0.1, factor=0.5, random_state=0)
    return X, y == 1


def test_a_stream_computes_features_in_small_blocks_and_learns_what_is_not_linear():
    X, y = circles()
    source = chunks_of(X, y, rows=12_000)
    linear = fit_stream(NEMSISClassifier("ba"), source, classes=[False, True], window=4000)
    found = {}
    for features in (Watched(50, random_state=0), NystromFeatures(20, random_state=0)):
        learner = make_pipeline(features, NEMSISClassifier("ba"))
        found[type(features)] = fit_stream(learner, source, classes=[False, True], window=4000)
        assert not hasattr(features, "bandwidth_")
    watched = found[Watched].learner[0]
    assert (watched.seen_, watched.most_) == (10_000, 4096)
    # The step size is chosen inside of the stream, for the features.
    for progress in found.values():
        assert progress.curve["value"][-1] > 0.95 > 0.6 > linear.curve["value"][0]
        assert progress.learner.score(X, y) > 0.97
        assert len(plot_progress(progress).axes)


def test_the_transformers_see_the_first_rows_and_then_stay_as_they_are():
    X, y = circles(3000)
    features, learner = NystromFeatures(20, random_state=0), NEMSISClassifier("q", eta0=0.3)
    pipeline, results = make_pipeline(features, learner), []
    for rows in (7, 400, 3000):
        source = chunks_of(X, y, rows=rows)
        results.append(fit_stream(pipeline, source, classes=[False, True], warm_up=1000).learner)
    features.partial_fit(X[:1000])
    learner.partial_fit(features.transform(X), y)
    for result in results:
        np.testing.assert_allclose(result[-1].coef_, learner.coef_, rtol=1e-8, atol=1e-10)
        np.testing.assert_array_equal(result[0].landmarks_, features.landmarks_)


@pytest.mark.parametrize("kind", [FourierFeatures, NystromFeatures])
def test_a_pipeline_resumes_from_its_checkpoint(kind, tmp_path):
    X, y = circles(2000)
    pipeline = make_pipeline(kind(20, random_state=0), NEMSISClassifier("q"))
    options = {"classes": [False, True], "window": 500, "warm_up": 600}
    source, path = chunks_of(X, y, rows=250), tmp_path / "stream.npz"
    whole = fit_stream(pipeline, source, **options)
    fit_stream(pipeline, source, **options, checkpoint=path, max_rows=900)
    assert load(path)[0].n_features_in_ == 2
    resumed = fit_stream(pipeline, source, **options, checkpoint=path, resume=True)
    np.testing.assert_array_equal(resumed.learner[-1].coef_, whole.learner[-1].coef_)
    assert resumed.curve["value"] == whole.curve["value"]
    other = make_pipeline(kind(22, random_state=0), NEMSISClassifier("q"))
    with pytest.raises(ValueError, match="name another file"):
        fit_stream(other, source, **options, checkpoint=path, resume=True)


def test_a_bad_row_within_the_first_rows_of_a_pipeline_loses_nothing():
    X, y = circles(1000)
    X[450] = np.nan
    pipeline = make_pipeline(FourierFeatures(20, random_state=0), NEMSISClassifier("q"))
    with pytest.raises(StreamError, match="row 451 contains NaN") as caught:
        fit_stream(pipeline, chunks_of(X, y, rows=100), classes=[False, True])
    assert caught.value.progress.rows == caught.value.progress.learner[-1].t_ == 400
    X[50] = np.nan
    with pytest.raises(StreamError, match="row 51 contains NaN") as caught:
        fit_stream(pipeline, chunks_of(X, y, rows=100), classes=[False, True])
    assert caught.value.progress.rows == 0

    def broken():
        yield circles(1000)[0][:300], y[:300]
        raise OSError("the disk is gone")

    with pytest.raises(StreamError, match="the disk is gone") as caught:
        fit_stream(pipeline, broken(), classes=[False, True])
    assert caught.value.progress.rows == 300


def test_pipelines_that_cannot_learn_a_stream_are_refused(tmp_path):
    X, y = circles(100)
    learner, source = NEMSISClassifier("q"), chunks_of(X, y, rows=50)
    for wrong, message in (
        (make_pipeline(PolynomialFeatures(), learner), "PolynomialFeatures.* has no partial_fit"),
        (make_pipeline(FourierFeatures(), LogisticRegression()), "LogisticRegression is not an"),
    ):
        with pytest.raises(TypeError, match=message):
            fit_stream(wrong, source, classes=[False, True])
    scaled = make_pipeline(StandardScaler(), FourierFeatures(4), learner)
    assert fit_stream(scaled, source, classes=[False, True]).learner.predict(X).shape == (100,)
    with pytest.raises(TypeError, match="got StandardScaler"):
        fit_stream(scaled, source, classes=[False, True], checkpoint=tmp_path / "stream.npz")
    with pytest.raises(ValueError, match="warm_up"):
        fit_stream(scaled, source, classes=[False, True], warm_up=0)
