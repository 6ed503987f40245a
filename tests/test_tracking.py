"""Trackers against references, and streams without labels: windows, alarms, late labels, checkpoints."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from quapy_nemsis import NEMSISClassifier, Quantifier
from quapy_nemsis.prevalence import Training
from quapy_nemsis.streaming import chunks_of, fit_stream, read_csv, read_parquet, shuffled
from quapy_nemsis.tracking import (
    TRACKERS,
    LateLabels,
    Rows,
    TrackError,
    checkpoints,
    follow,
    plot_track,
    read_rows,
    track,
    windows,
)
from quapy_nemsis.tracking.trackers import Labelled, get_tracker, project
from tests.conftest import make_classes, make_points
from tests.reference import tracking as reference

K_CLASSES = pytest.mark.parametrize("n_classes", [2, 3])


def make_labelled(n_classes, n=40, seed=0):
    """Few labelled rows, whose posteriors at the prevalences of training are given."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1.0, n_classes + 1.0)
    shares /= shares.sum()
    labels = np.arange(n) % n_classes
    logits = rng.normal(size=(n, n_classes)) + 2.0 * np.eye(n_classes)[labels] + np.log(shares)
    posteriors = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return Labelled(posteriors, labels, Training(shares, 100.0, 50.0))


def make_chunks(n_classes, sizes, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.ones(n_classes), size) for size in sizes]


def parts_of(n_classes):
    labelled = make_labelled(n_classes)
    C = reference.confusion(labelled.posteriors, labelled.labels, n_classes)
    return labelled, C, make_chunks(n_classes, [5, 1, 8, 3, 12, 4, 6, 2, 9, 7, 3, 1, 5])


@K_CLASSES
def test_fth_is_the_reference(n_classes):
    labelled, C, chunks = parts_of(n_classes)
    tracker = get_tracker("fth", labelled)
    found = [tracker.update(chunk) for chunk in chunks]
    np.testing.assert_allclose(found, reference.follow_the_history(C, chunks), atol=1e-9)


@K_CLASSES
def test_rogd_is_the_reference(n_classes):
    labelled, C, chunks = parts_of(n_classes)
    tracker = get_tracker("rogd", labelled, {"step": 0.3})
    found = [tracker.update(chunk) for chunk in chunks]
    rows = labelled.posteriors, labelled.labels, labelled.shares
    expected = reference.reweighting_descent(C, chunks, *rows, 0.3, 0.01)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    # The step of theorem 2, with the largest slope at the corners of the simplex and elsewhere.
    steps = [get_tracker("rogd", labelled, {"horizon": horizon}).step for horizon in (50, 200)]
    assert steps[0] == pytest.approx(2.0 * steps[1])
    corner = reference.projected(np.eye(n_classes)[0], 0.01)
    slopes = [
        np.linalg.norm(
            reference.slope(lambda at, q=q: reference.expected_error(at, q, *rows), corner)
        )
        for q in np.linalg.inv(C).T
    ]
    assert steps[0] <= np.sqrt(2.0 / 50) / max(slopes) * (1 + 1e-6)


@K_CLASSES
def test_uogd_and_atlas_are_the_reference(n_classes):
    labelled, C, chunks = parts_of(n_classes)
    shares, horizon = labelled.shares, 20
    logs = np.log(labelled.posteriors / shares)
    unit = np.sqrt(np.mean((logs - logs.mean(axis=1, keepdims=True)) ** 2))
    inputs = reference.layer_inputs(labelled.posteriors, shares, unit)
    start = np.column_stack([unit * np.eye(n_classes), np.log(shares)])
    radius = 2.0 * np.linalg.norm(start)
    norms = np.linalg.norm(inputs, axis=1)
    G = np.sqrt(2.0) * max(norms[labelled.labels == k].mean() for k in range(n_classes))
    tracker = get_tracker("uogd", labelled, {"horizon": horizon})
    # Before any chunk, the adapted classifier is the calibrated one.
    np.testing.assert_allclose(tracker.adapted(chunks[0]), chunks[0], atol=1e-9)
    step = 2.0 * radius / (G * np.sqrt(horizon))
    thetas, _ = reference.unbiased_descent(C, chunks, inputs, labelled.labels, start, step, radius)
    for chunk, theta in zip(chunks, thetas, strict=True):
        found = tracker.update(chunk)
        np.testing.assert_allclose(tracker.theta, theta, atol=1e-5)
        expected = reference.answers(theta, reference.layer_inputs(chunk, shares, unit))
        np.testing.assert_allclose(tracker.adapted(chunk), expected, atol=1e-5)
        np.testing.assert_allclose(found, expected.mean(axis=0), atol=1e-5)
    # ATLAS: 1 + ceil(log2(41)/2) = 4 step sizes.
    sigma = np.linalg.svd(C)[1].min()
    least = 2.0 * radius * sigma / (2.0 * G * np.sqrt(n_classes * horizon))
    steps, rate = least * np.array([1.0, 2.0, 4.0, 8.0]), 2.0 * np.sqrt(np.log(4) / horizon)
    expected = reference.ensemble(C, chunks, inputs, labelled.labels, start, steps, rate, radius)
    tracker = get_tracker("atlas", labelled, {"horizon": horizon})
    for chunk, theta in zip(chunks, expected, strict=True):
        tracker.update(chunk)
        answers = reference.answers(theta, reference.layer_inputs(chunk, shares, unit))
        np.testing.assert_allclose(tracker.adapted(chunk), answers, atol=1e-5)


@K_CLASSES
@pytest.mark.parametrize("prune", [False, True])
def test_flh_ftl_is_the_reference(n_classes, prune):
    labelled, C, _ = parts_of(n_classes)
    chunks = make_chunks(n_classes, [3] * 40)
    for rate in (1.0 / n_classes, 3.0):
        tracker = get_tracker("flh-ftl", labelled, {"prune": prune, "rate": rate})
        found = [tracker.update(chunk) for chunk in chunks]
        expected = reference.leading_history(C, chunks, rate, prune)
        np.testing.assert_allclose(found, expected, atol=1e-9)
    # By default, the rate is that of the noise of an estimate from 3 rows.
    rng = np.random.default_rng(0)
    drawn = [
        labelled.posteriors[rng.choice(np.flatnonzero(labelled.labels == k))]
        for k in rng.choice(n_classes, 20_000)
    ]
    variance = np.var(np.linalg.solve(C, np.transpose(drawn)), axis=1).mean() / 3
    expected = reference.leading_history(C, chunks, 0.5 / variance, prune)
    tracker = get_tracker("flh-ftl", labelled, {"prune": prune})
    np.testing.assert_allclose([tracker.update(chunk) for chunk in chunks], expected, atol=0.01)
    assert len(tracker.experts) == 40 if not prune else len(tracker.experts) < 20


def test_experts_of_flh_ftl_grow_as_a_logarithm():
    tracker = get_tracker("flh-ftl", make_labelled(2))
    for chunk in make_chunks(2, [1] * 600):
        tracker.update(chunk)
    assert len(tracker.experts) < 40


@K_CLASSES
def test_forgetting_em_is_the_reference(n_classes):
    labelled, _, chunks = parts_of(n_classes)
    tracker = get_tracker("forgetting-em", labelled, {"forget": 0.8, "pseudo_rows": 0.7})
    for t, chunk in enumerate(chunks, 1):
        found = tracker.update(chunk)
        expected = reference.forgetting_maximum(chunks[:t], labelled.shares, 0.8, 0.7, 50.0)
        np.testing.assert_allclose(found, expected, atol=2e-4)
    # Chunks of less than 1 % are forgotten.
    tracker = get_tracker("forgetting-em", labelled, {"forget": 0.1})
    for chunk in chunks:
        tracker.update(chunk)
    assert len(tracker.latest) == sum(map(len, chunks[-3:]))


@K_CLASSES
def test_windowed_em_is_the_estimate_for_the_latest_chunks(n_classes):
    labelled, _, chunks = parts_of(n_classes)
    several, one = get_tracker("em", labelled, {"chunks": 3}), get_tracker("em", labelled)
    for t, chunk in enumerate(chunks, 1):
        found = several.update(chunk)
        joined = get_tracker("em", labelled).update(np.concatenate(chunks[max(t - 3, 0) : t]))
        np.testing.assert_allclose(found, joined)
        fresh = get_tracker("em", labelled).update(chunk)
        np.testing.assert_allclose(one.update(chunk), fresh)


@pytest.mark.parametrize("method", TRACKERS)
@K_CLASSES
def test_trackers_go_on_from_arrays(method, n_classes):
    labelled, _, chunks = parts_of(n_classes)
    tracker, other = get_tracker(method, labelled), get_tracker(method, labelled)
    for chunk in chunks[:7]:
        tracker.update(chunk)
    other.from_arrays({name: array.copy() for name, array in tracker.to_arrays().items()})
    for chunk in chunks[7:]:
        found = tracker.update(chunk)
        np.testing.assert_array_equal(found, other.update(chunk))
        assert found.sum() == pytest.approx(1.0)
        assert found.min() >= 0.0
        adapted = tracker.adapted(chunk)
        np.testing.assert_array_equal(adapted, other.adapted(chunk))
        np.testing.assert_allclose(adapted.sum(axis=1), 1.0)
        if method not in ("uogd", "atlas"):
            moved = chunk * found / labelled.shares
            np.testing.assert_allclose(adapted, moved / moved.sum(axis=1, keepdims=True))
    with pytest.raises(ValueError, match="has the arrays"):
        other.from_arrays({"prevalence": found})
    with pytest.raises(ValueError, match="columns"):
        tracker.update(np.ones((3, 7)))
    with pytest.raises(ValueError, match="no rows in the chunk"):
        tracker.update(np.ones((0, n_classes)))


@pytest.mark.parametrize("method", sorted(set(TRACKERS) - {"em", "forgetting-em"}))
def test_local_estimates_by_em(method):
    labelled, _, chunks = parts_of(3)
    bbse, em = (get_tracker(method, labelled, {"local": local}) for local in ("bbse", "em"))
    assert not np.allclose(bbse.update(chunks[0]), em.update(chunks[0]), atol=1e-6)
    with pytest.raises(ValueError, match="local must be one of"):
        get_tracker(method, labelled, {"local": "rlls"})


@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=6).map(np.array),
    st.sampled_from([0.0, 0.01, 0.1]),
)
@settings(max_examples=60, deadline=None)
def test_projections(v, least):
    np.testing.assert_allclose(project(v, least), reference.projected(v, least), atol=1e-9)


# --------------------------------------------------------------------- streams


def learner():
    return NEMSISClassifier("ba", eta0=0.1, radius=5.0, n_passes=5, random_state=0)


@pytest.fixture(scope="module")
def two():
    """A quantifier, and a stream whose prevalence changes from 0.3 to 0.6 at row 1,200."""
    X, y = make_points(n=1000, d=3)
    quantifier = Quantifier(learner(), features=None, n_draws=20, random_state=0).fit(X, y)
    parts = [
        make_points(n=1200, d=3, share=share, seed=seed) for seed, share in ((1, 0.3), (2, 0.6))
    ]
    return quantifier, *(np.concatenate(part) for part in zip(*parts, strict=True))


@pytest.fixture(scope="module")
def three():
    X, y = make_classes(n=900, d=4)
    quantifier = Quantifier(LogisticRegression(), n_draws=20, random_state=0)
    names = np.array(["ant", "bee", "cat"])
    return quantifier.fit(X[:600], names[y[:600]]), X[600:], names[y[600:]]


def assert_same(one, other):
    assert list(one.windows) == list(other.windows)
    assert list(one.alarms) == list(other.alarms)
    np.testing.assert_array_equal(one.tracker.prevalence, other.tracker.prevalence)


def test_em_is_what_the_quantifier_predicts(two):
    quantifier, X, _ = two
    found = track(quantifier, X, window=400)
    assert [(window.begin, window.end) for window in found.windows] == [
        (begin, begin + 400) for begin in range(0, 2400, 400)
    ]
    for window in found.windows:
        expected = quantifier.predict(X[window.begin : window.end])
        np.testing.assert_allclose(window.prevalence, expected)
        assert np.all(np.array(window.low) <= window.high)
        assert window.truth is None
    assert found.rows == 2400
    assert [(alarm.kind, alarm.end) for alarm in found.alarms] == [("prevalence", 1600)]
    assert [window.alarms for window in found.windows] == 3 * [[]] + 3 * [["prevalence"]]
    # The adapted classifier has the prevalences of the last window.
    moved = quantifier.classify(X) * window.prevalence / quantifier.calibration_.shares
    np.testing.assert_allclose(found.predict_proba(X), moved / moved.sum(axis=1, keepdims=True))
    assert set(found.predict(X)) == {False, True}


def test_bands_contain_the_truth(two):
    _, X, y = two
    wide = Quantifier(learner(), features=None, n_draws=100, random_state=0)
    wide.fit(*make_points(n=1000, d=3))
    found = track(wide, chunks_of(X, y, rows=300), window=100)
    inside = [w.low[1] <= w.truth[1] <= w.high[1] for w in found.windows]
    assert np.mean(inside) > 0.8
    assert all(window.truth[1] == y[window.begin : window.end].mean() for window in found.windows)


@pytest.mark.parametrize("method", TRACKERS)
def test_windows_do_not_depend_on_chunks(method, two):
    quantifier, X, _ = two
    X = X[1100:1400]
    whole = track(quantifier, X, window=60, method=method)
    assert len(whole.windows) == 5
    sources = [
        (X[i : i + 7] for i in range(0, 300, 7)),
        list(X),
        pd.DataFrame(X).to_numpy(),
        lambda: iter([X[:250], X[250:]]),
    ]
    for source in sources:
        other = track(quantifier, source, window=60, method=method)
        np.testing.assert_allclose(other.prevalences, whole.prevalences, atol=1e-9)
        assert [w.end for w in other.windows] == [w.end for w in whole.windows]
        for one, two_ in zip(other.windows, whole.windows, strict=True):
            np.testing.assert_allclose(one.low, two_.low, atol=1e-9)
            assert one.p_values == pytest.approx(two_.p_values)


def test_following_an_endless_stream(two, tmp_path):
    quantifier, X, _ = two

    def endless():
        while True:
            yield scipy.sparse.csr_matrix(X[:50])

    stream = follow(quantifier, endless(), window=30, false_alarms=None)
    ends = [next(stream).end for _ in range(5)]
    assert ends == [30, 60, 90, 120, 150]
    kept = track(quantifier, endless(), window=30, keep=3, max_rows=200)
    assert [window.end for window in kept.windows] == [120, 150, 180]
    assert kept.rows == 200
    assert kept.stopped
    # Who stops in the middle of a chunk can go on.
    path = tmp_path / "track.npz"
    stream = follow(quantifier, endless(), window=30, checkpoint=path)
    assert [next(stream).end for _ in range(3)] == [30, 60, 90]
    stream.close()
    again = follow(quantifier, endless(), window=30, checkpoint=path, resume=True)
    assert next(again).end == 120
    with pytest.raises(TypeError, match="no parameter 'callback'"):
        follow(quantifier, X, callback=print)


def test_windows_of_time(two, tmp_path):
    quantifier, X, _ = two
    times = np.datetime64("2024-03-01T22:00") + np.arange(300) * np.timedelta64(10, "m")
    whole = track(quantifier, X[:300], window="1d", times=times)
    # 2 hours of the first day, a day, and the third is not over.
    assert [(w.begin, w.end) for w in whole.windows] == [(0, 12), (12, 156)]
    assert [row["start"] for row in whole.table()] == ["2024-03-01T00:00:00", "2024-03-02T00:00:00"]
    assert np.isnan(whole.windows[0].p_values["mixture"])  # too few rows to test
    seconds = times.astype("datetime64[s]").astype(float)
    parts = (Rows(X[i : i + 1], times=seconds[i : i + 1]) for i in range(300))
    np.testing.assert_allclose(track(quantifier, parts, window="1d").prevalences, whole.prevalences)
    np.testing.assert_allclose(
        whole.windows[1].prevalence, quantifier.predict(X[12:156]), atol=1e-12
    )
    frame = pd.DataFrame(X[:300], columns=["a", "b", "c"])
    frame.assign(when=times).to_csv(tmp_path / "rows.csv", index=False)
    source = read_rows(tmp_path / "rows.csv", "when", rows=70)
    np.testing.assert_allclose(
        track(quantifier, source, window="1d").prevalences, whole.prevalences
    )
    with pytest.raises(TrackError, match=r"no column 'day'; the columns are a, b, c, when"):
        track(quantifier, read_rows(tmp_path / "rows.csv", "day"), window="1d")
    zoned = [f"{at}+02:00" for at in times]
    frame.assign(when=zoned, y=two[2][:300]).to_csv(tmp_path / "rows.csv", index=False)
    [chunk] = read_rows(tmp_path / "rows.csv", "when", target="y")
    np.testing.assert_array_equal(chunk.times, times - np.timedelta64(2, "h"))
    np.testing.assert_array_equal(chunk.labels, two[2][:300])
    late = list(times)
    late[200] = times[0]
    with pytest.raises(TrackError, match="row 201 is earlier than the window of the row before"):
        track(quantifier, X[:300], window="1d", times=late)
    with pytest.raises(TrackError, match="row 1 has no time"):
        track(quantifier, X, window="6h")
    with pytest.raises(ValueError, match="'30min', '6h', '1d' or '1w'; got 'daily'"):
        track(quantifier, X, window="daily")
    with pytest.raises(TrackError, match="row 3 has no time; drop"):
        track(quantifier, X[:4], window="1s", times=[1.0, 2.0, np.nan, 3.0])


def test_labels_that_arrive_late(three):
    quantifier, X, names = three

    def stream():
        yield X[:120]
        yield LateLabels([3, 0, 99], names[[3, 0, 99]])
        yield X[120:200]
        yield LateLabels(np.arange(100, 150), names[100:150])
        yield LateLabels([0], names[:1])

    found = track(quantifier, stream(), window=100)
    first, second = found.windows
    expected = np.array([(names[[0, 3, 99, 0]] == name).sum() for name in quantifier.classes_])
    assert first.labelled == expected.tolist()
    assert second.labelled == [(names[100:150] == name).sum() for name in quantifier.classes_]
    np.testing.assert_allclose(first.truth, expected / 4)
    assert found.table()[0]["true ant"] == first.truth[0]
    # Labels that are all that are known replace others; some of them may be known with the rows.
    early = np.array([*names[:2], *[None] * 98], dtype=object)

    def known_with_rows():
        yield Rows(X[:100], labels=early)
        yield LateLabels([5, 6], names[[5, 6]])
        yield LateLabels([0, 1, 2], names[:3], complete=True)

    found = track(quantifier, known_with_rows(), window=50)
    expected = [(names[:3] == name).sum() for name in quantifier.classes_]
    assert [window.labelled for window in found.windows] == [expected, [0, 0, 0]]
    assert found.relabelled == [found.windows[0]]
    with pytest.raises(TrackError, match="from 0 to 99; got"):
        track(quantifier, iter([X[:100], LateLabels([100], ["ant"])]), window=50)
    with pytest.raises(TrackError, match=r"'dog' is not among the classes"):
        track(quantifier, iter([X[:100], LateLabels([1], ["dog"])]), window=50)


def test_files_without_labels(two, tmp_path):
    quantifier, X, _ = two
    frame = pd.DataFrame(X[:500], columns=["a", "b", "c"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    whole = track(quantifier, X[:500], window=100)
    source = read_csv(tmp_path / "rows.csv", None, rows=70)
    np.testing.assert_allclose(
        track(quantifier, source, window=100).prevalences, whole.prevalences, atol=1e-9
    )
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    frame.to_parquet(tmp_path / "rows.parquet")
    source = read_parquet(tmp_path / "rows.parquet", None)
    np.testing.assert_allclose(
        track(quantifier, source, window=100).prevalences, whole.prevalences, atol=1e-9
    )
    with pytest.raises(ValueError, match="has no labels to learn: name their column"):
        fit_stream(learner(), source, classes=[False, True])
    with pytest.raises(ValueError, match="has no labels, and is not shuffled"):
        shuffled(source)


@pytest.mark.parametrize("method", TRACKERS)
def test_a_killed_stream_goes_on_with_the_same_numbers(method, three, tmp_path):
    quantifier, X, names = three
    path = tmp_path / "track.npz"

    def stream(until):
        for i in range(0, 300, 20):
            if i >= until:
                raise KeyboardInterrupt
            yield X[i : i + 20]
            yield LateLabels(np.arange(i, i + 5), names[i : i + 5])

    options = {"window": 50, "method": method}
    whole = track(quantifier, stream(300), **options)
    with pytest.raises(KeyboardInterrupt):
        track(quantifier, stream(130), checkpoint=path, every_rows=60, **options)
    again = track(quantifier, stream(300), checkpoint=path, resume=True, **options)
    assert again.rows == 300
    assert_same(again, whole)
    # Once more: all is done already, and longer streams go on.
    assert_same(track(quantifier, stream(300), checkpoint=path, resume=True, **options), whole)
    assert len(whole.windows) == 6


def test_checkpoints_that_do_not_fit(two, tmp_path):
    quantifier, X, _ = two
    path = tmp_path / "track.npz"
    track(quantifier, X[:500], window=100, checkpoint=path)
    resumed = {"checkpoint": path, "resume": True}
    with pytest.raises(FileExistsError, match="continue from it with resume=True"):
        track(quantifier, X, window=100, checkpoint=path)
    with pytest.raises(ValueError, match="another window: 100, not 50"):
        track(quantifier, X, window=50, **resumed)
    with pytest.raises(ValueError, match="another method"):
        track(quantifier, X, window=100, method="fth", **resumed)
    with pytest.raises(TrackError, match="the first row differs"):
        track(quantifier, X[1:], window=100, **resumed)
    with pytest.raises(TrackError, match="at row 500, but the source ends at row 300"):
        track(quantifier, X[:300], window=100, **resumed)
    other = Quantifier(learner(), features=None).fit(X[:400], two[2][:400])
    with pytest.raises(ValueError, match="another calibration"):
        track(other, X, window=100, **resumed)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"track.npz (is broken|was changed)"):
        track(quantifier, X, window=100, **resumed)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="is broken, or not a checkpoint of track"):
        track(quantifier, X, window=100, **resumed)
    with pytest.raises(ValueError, match="resume needs a checkpoint"):
        track(quantifier, X, resume=True)


def test_checkpoints_with_the_old_name_of_an_option(two, tmp_path):
    quantifier, X, _ = two
    path, options = tmp_path / "track.npz", {"window": 100, "method": "forgetting-em"}
    track(quantifier, X[:300], checkpoint=path, options={"pseudo_rows": 0.7}, **options)
    content, arrays = checkpoints.read(path)
    content["identity"]["options"] = {"prior": 0.7}
    checkpoints.write(path, content, arrays)
    resumed = {"checkpoint": path, "resume": True, **options}
    again = track(quantifier, X[:500], options={"pseudo_rows": 0.7}, **resumed)
    assert_same(again, track(quantifier, X[:500], options={"pseudo_rows": 0.7}, **options))
    with pytest.raises(TypeError, match="'forgetting-em' cannot take"):
        track(quantifier, X, options={"prior": 0.7}, **options)


def test_callbacks_and_alarms(two):
    quantifier, X, _ = two
    heard, seen = [], []

    def callback(window):
        seen.append(window.end)
        return window.end == 1600

    found = track(quantifier, X, window=200, callback=callback, on_alarm=heard.append)
    assert seen == list(range(200, 1601, 200))
    assert found.stopped
    assert heard == list(found.alarms)
    assert "have changed since training (p < 0.001): the prevalence of True" in heard[0].sentence
    moved = track(quantifier, 2.5 * X[:400], window=200)
    assert "mixture" in {alarm.kind for alarm in moved.alarms}
    silent = track(quantifier, X, window=200, false_alarms=None)
    assert not silent.alarms
    assert np.isnan(silent.windows[0].p_values["prevalence"])


def test_an_error_leaves_the_stream_before_it(two, tmp_path):
    quantifier, X, _ = two
    path = tmp_path / "track.npz"
    broken = [X[:300], np.full((2, 3), np.nan)]
    with pytest.raises(TrackError, match=r"the source: rows 301 to 302: .*NaN") as caught:
        track(quantifier, broken, window=100, checkpoint=path)
    assert len(caught.value.track.windows) == 3
    resumed = track(quantifier, X[:600], window=100, checkpoint=path, resume=True)
    assert_same(resumed, track(quantifier, X[:600], window=100))
    with pytest.raises(TrackError, match="rows 1 to 2"):
        track(quantifier, [X[:2, :2]], window=100)
    with pytest.raises(TrackError, match="no rows"):
        track(quantifier, [], window=100)
    with pytest.raises(TypeError, match="int is not a source"):
        track(quantifier, 5)
    with pytest.raises(ValueError, match="not fitted"):
        track(Quantifier(), X)
    with pytest.raises(ValueError, match="method must be one of"):
        track(quantifier, X, method="kalman")
    with pytest.raises(TypeError, match="'em' cannot take"):
        track(quantifier, X, options={"forget": 0.5})
    with pytest.raises(ValueError, match="window must be at least 1"):
        track(quantifier, X, window=0)
    with pytest.raises(ValueError, match="confidence_level must lie between"):
        track(quantifier, X, confidence_level=95)
    with pytest.raises(ValueError, match="times can be given for a matrix only"):
        track(quantifier, iter([X]), window="1d", times=np.arange(len(X)))


def test_memory_is_bounded(two, monkeypatch):
    quantifier, X, _ = two
    monkeypatch.setattr(windows, "MOST_ROWS", 100)
    found = track(quantifier, X[:1200], window=600)
    assert [window.end for window in found.windows] == [600, 1200]
    # 600 rows are thinned to every eighth, however they arrive.
    np.testing.assert_allclose(found.windows[0].prevalence, quantifier.predict(X[:600:8]))
    np.testing.assert_allclose(found.windows[1].prevalence, quantifier.predict(X[600:1200:8]))
    parts = [X[i : i + 37] for i in range(0, 1200, 37)]
    np.testing.assert_allclose(track(quantifier, parts, window=600).prevalences, found.prevalences)


def test_plots(two, three):
    found = track(two[0], chunks_of(two[1], two[2]), window=400)
    top, bottom = plot_track(found).axes
    assert [text.get_text() for text in top.get_legend().get_texts()] == ["True", "labels"]
    np.testing.assert_array_equal(top.lines[0].get_ydata(), found.prevalences[:, 1])
    marks = [line for line in bottom.lines if line.get_linestyle() == "None"]
    assert [len(line.get_xdata()) for line in marks] == [3, 0]
    found = track(three[0], three[1], window="1min", times=np.arange(300.0))
    top, bottom = plot_track(found).axes
    assert len(top.lines) == 3
    assert bottom.get_xlabel() == "time"
    with pytest.raises(ValueError, match="no full window to plot: 10 rows were read"):
        plot_track(track(two[0], two[1][:10]))
