"""What holds for all rows, cuttings, parameters and seeds: chunks, containers, symmetries, merging, files, streams."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone

from quapy_nemsis import (
    NEMSISClassifier,
    OnePassMiniBatchClassifier,
    SCANClassifier,
    load,
    merge,
    save,
)
from quapy_nemsis.streaming import StreamError, fit_stream, from_iterable, shuffled
from tests.strategies import (
    CLASSES,
    FOUR,
    Points,
    auto,
    can,
    containers,
    cuttings,
    few,
    four_labels,
    labels,
    minibatch,
    nemsis,
    points,
    radii,
    scan,
    seeds,
    several,
    smooth_points,
    steps,
    svm,
    ways,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

NESTED = {"nemsis": (nemsis, CLASSES), "scan": (scan, CLASSES)}
# With more than two classes the choice of a step size in `fit` takes long, and is made less often.
SELDOM = {"eta0": st.one_of(steps, steps, steps, auto), "radius": radii}
FOUR_NESTED = {
    "nemsis four": (partial(nemsis, **SELDOM), FOUR),
    "scan four": (partial(scan, **SELDOM), FOUR),
}
ONLINE = {**NESTED, **FOUR_NESTED, "1pmb": (minibatch, CLASSES)}
EVERY = {**ONLINE, "can": (can, CLASSES), "can four": (can, FOUR), "svm": (svm, CLASSES)}


def each(cases):
    """Learners, and the classes that they learn: two, or four where they take more than two."""
    return pytest.mark.parametrize(("learners", "classes"), cases.values(), ids=cases)


two_classes, four_classes = each(NESTED), each(FOUR_NESTED)
every_nested, every_online, every_learner = each(NESTED | FOUR_NESTED), each(ONLINE), each(EVERY)

LEARNED = ["classes_", "coef_", "intercept_", "t_", "levels_", "eta0_", "radius_", "n_iter_"]


def learned(learner, without=()):
    """What can be seen of a learner, but the time it took."""
    found = {name: getattr(learner, name) for name in LEARNED if hasattr(learner, name)}
    for table in ("history_", "tuning_"):
        columns = getattr(learner, table, {})
        found |= {f"{table}[{name}]": columns[name] for name in columns if name != "seconds"}
    return {name: value for name, value in found.items() if name.split("[")[0] not in without}


def assert_close(found, expected, tolerance, name=""):
    """Equal up to a share of the greatest entry."""
    finite = np.abs(expected)[np.isfinite(expected)]
    size = np.max(finite, initial=0.0)
    np.testing.assert_allclose(found, expected, tolerance, tolerance * size, err_msg=name)


def assert_same(first, second, tolerance=0.0, without=()):
    """Bit by bit, unless there is a tolerance."""
    first, second = learned(first, without), learned(second, without)
    assert first.keys() == second.keys()
    for name, value in first.items():
        if tolerance:
            assert_close(second[name], np.asarray(value), tolerance, name)
        else:
            np.testing.assert_array_equal(second[name], value, err_msg=name)


def assert_same_posteriors(first, second, X, tolerance=0.0, second_X=None):
    if hasattr(first, "predict_proba"):
        # Those of more than two classes are the result of a search, which rounding errors end a little elsewhere.
        tolerance *= 1.0 if len(first.classes_) == 2 else 100.0
        found = second.predict_proba(X if second_X is None else second_X)
        np.testing.assert_allclose(found, first.predict_proba(X), rtol=0.0, atol=tolerance)


def take(learner, X, y, way="partial_fit", **options):
    """Learn, and return the learner."""
    options |= {"classes": CLASSES if y.dtype == bool else FOUR} if way == "partial_fit" else {}
    return getattr(learner, way)(X, y, **options)


# ------------------------------------------------------------------- chunks and containers


def check_chunks(data, learner, X, y, after_fit=False):
    whole, cut, start = clone(learner), clone(learner), 0
    if after_fit:
        start, classes = len(y) // 3, CLASSES if y.dtype == bool else FOUR
        y[: len(classes)] = classes
        whole, cut = (take(one, X[:start], y[:start], "fit") for one in (whole, cut))
    X, y = X[start:], y[start:]
    take(whole, X, y)
    for chunk in data.draw(cuttings(len(y))):
        take(cut, X[chunk], y[chunk])
    assert_same(whole, cut)


@every_online
@given(st.data())
def test_cutting_rows_into_chunks_changes_nothing(learners, classes, data):
    """Any way of cutting the same rows into chunks gives the same learner, bit by bit."""
    learner, (X, y) = data.draw(learners()), data.draw(points()).rows(classes)
    check_chunks(data, learner, data.draw(containers)(X), y, data.draw(st.booleans(), "after fit"))


@every_online
@few
@given(st.data())
def test_cutting_a_long_stream_changes_nothing(learners, classes, data):
    """Chunks make no difference where a stream drops step sizes either (from 4,096 points on)."""
    X, y = data.draw(points(st.integers(4090, 8200))).rows(classes)
    buffers = {"buffer_size": st.integers(30, 600)} if learners is minibatch else {}
    check_chunks(data, data.draw(learners(eta0=auto, **buffers)), X, y)


def rounding(classes):
    """How far rounding may take learners apart: sums of several classes are also reordered."""
    return 1e-10 if len(classes) == 2 else 1e-7


@every_online
@given(st.data())
def test_dense_and_csr_rows_teach_the_same(learners, classes, data):
    """A matrix and its CSR form give the same learner, up to rounding."""
    learner, (X, y) = data.draw(learners()), data.draw(smooth_points).rows(classes)
    way, sparse = data.draw(ways), csr_array(X)
    first, second = take(clone(learner), X, y, way), take(clone(learner), sparse, y, way)
    assert_same(first, second, rounding(classes))
    assert_same_posteriors(first, second, X, 1e-6, sparse)


@every_nested
@given(st.data())
def test_chunks_may_be_dense_or_csr(learners, classes, data):
    """A learner takes dense and CSR chunks in turn as if all were dense, up to rounding."""
    learner, (X, y) = data.draw(learners()), data.draw(smooth_points).rows(classes)
    whole, mixed = take(clone(learner), X, y), clone(learner)
    for chunk in data.draw(cuttings(len(y))):
        take(mixed, data.draw(containers)(X[chunk]), y[chunk])
    assert_same(whole, mixed, rounding(classes))


@every_online
@given(st.data())
def test_float32_rows_teach_what_they_do_in_float64(learners, classes, data):
    """Rows in float32 give the learner and the predictions of their float64 copies, bit by bit."""
    learner, (X, y) = data.draw(learners()), data.draw(points()).rows(classes)
    way, short = data.draw(ways), data.draw(containers)(X.astype(np.float32))
    first, second = (take(clone(learner), rows, y, way) for rows in (short, short.astype(float)))
    assert_same(first, second)
    assert first.coef_.dtype == np.float64
    np.testing.assert_array_equal(first.predict(short), second.predict(short.astype(float)))


# ------------------------------------------------------------------- symmetries


@every_online
@given(st.data())
def test_features_have_no_order(learners, classes, data):
    """Columns in another order give the weights in that order and the same posteriors, up to rounding."""
    learner, (X, y) = data.draw(learners()), data.draw(smooth_points).rows(classes)
    way, order = data.draw(ways), data.draw(st.permutations(range(X.shape[1])))
    first, second = take(clone(learner), X, y, way), take(clone(learner), X[:, order], y, way)
    assert_same_posteriors(first, second, X, 1e-6, X[:, order])
    second.coef_ = second.coef_[:, np.argsort(order)]
    assert_same(first, second, 1e-9)


@two_classes
@given(st.data())
def test_swapped_classes_mirror_the_learner(learners, classes, data):
    """With the classes swapped scores change their sign and posteriors their places, up to rounding."""
    learner = data.draw(learners(eta0=steps, radius=radii))
    (X, y), way = data.draw(smooth_points).rows(classes), data.draw(ways)
    first, second = take(clone(learner), X, y, way), take(clone(learner), X, ~y, way)
    for name in ("coef_", "intercept_"):
        assert_close(-getattr(second, name), getattr(first, name), 1e-9, name)
    posteriors = second.predict_proba(X)[:, ::-1]
    np.testing.assert_allclose(posteriors, first.predict_proba(X), atol=1e-6)


@four_classes
@given(st.data())
def test_permuted_classes_permute_the_learner(learners, classes, data):
    """With the classes in another order scores and posteriors change places, up to rounding.

    Softmax has no ties, and its rewards count for all classes; hinges and 0-1 counts take the first of equal rivals.
    """
    learner = data.draw(learners(eta0=steps, radius=radii))
    learner.set_params(reward="logistic", estimates="surrogate")
    (X, y), way = data.draw(smooth_points).rows(classes), data.draw(ways)
    order = np.array(data.draw(st.permutations(FOUR)))
    first, second = take(clone(learner), X, y, way), take(clone(learner), X, order[y], way)
    for name in ("coef_", "intercept_"):
        assert_close(getattr(second, name)[order], getattr(first, name), 1e-8, name)
    posteriors = second.predict_proba(X)[:, order]
    np.testing.assert_allclose(posteriors, first.predict_proba(X), atol=1e-3)


# ------------------------------------------------------------------- weights


@every_nested
@given(st.data())
def test_rows_of_weight_0_are_not_there(learners, classes, data):
    """Rows of weight 0 may be left out, in `fit` and in any cutting of a stream, bit by bit."""
    learner, (X, y) = data.draw(learners()), data.draw(points()).rows(classes)
    rng = np.random.default_rng(data.draw(seeds, "weights"))
    weights = rng.choice([0.0, 0.5, 1.0, 2.5], len(y))
    weights[np.unique(y, return_index=True)[1]] = 1.0
    kept, X = weights > 0, data.draw(containers)(X)
    way = data.draw(ways)
    first = take(clone(learner), X, y, way, sample_weight=weights)
    if way == "fit":
        second = take(clone(learner), X[kept], y[kept], way, sample_weight=weights[kept])
        assert_same_posteriors(first, second, X)
    else:
        second = clone(learner)
        for chunk in data.draw(cuttings(len(y))):
            if kept[chunk].any():
                take(second, X[chunk], y[chunk], sample_weight=weights[chunk])
    assert_same(first, second)


# ------------------------------------------------------------------- merging


@every_nested
@given(st.data())
def test_merged_learners_have_no_order(learners, classes, data):
    """Merging adds up points, and gives the same in any order of the learners, up to rounding."""
    learner, (X, y) = data.draw(learners(eta0=steps)), data.draw(smooth_points).rows(classes)
    *chunks, last = data.draw(cuttings(len(y), least=4, most=6))
    base, parts = None, []
    if data.draw(st.booleans(), "with base"):
        base = take(clone(learner), X[chunks[0]], y[chunks[0]])
    for chunk in chunks[base is not None :]:
        part = clone(learner) if base is None else merge([base])
        parts.append(take(part, X[chunk], y[chunk]))
    first = merge(parts, base)
    second = merge(data.draw(st.permutations(parts)), base)
    assert first.t_ == last.start
    apart = ("history_", "levels_")  # these are one learner's
    assert_same(first, second, 1e-12, without=apart)
    assert_same_posteriors(first, second, X, 1e-6)
    take(first, X[last], y[last])
    assert_same(first, take(second, X[last], y[last]), 1e-9, without=apart)


@every_nested
@given(st.data())
def test_one_learner_merged_is_that_learner(learners, classes, data):
    """A learner merged alone, with or without what it started from, stays what it is and learns on the same."""
    learner, (X, y) = data.draw(learners(eta0=steps)), data.draw(points()).rows(classes)
    first, second, last = data.draw(cuttings(len(y), least=3, most=3))
    only = take(clone(learner), X[first], y[first])
    base = merge([only]) if data.draw(st.booleans(), "with base") else None
    take(only, X[second], y[second])
    merged = merge([only], base)
    assert_same(merged, only)
    assert_same_posteriors(merged, only, X)
    assert_same(take(merged, X[last], y[last]), take(only, X[last], y[last]))


# ------------------------------------------------------------------- files


@every_learner
@given(st.data())
def test_a_saved_learner_is_the_learner(learners, classes, data):
    """A learner comes back from its file as it was, predicts the same and learns on the same, bit by bit."""
    learner, (X, y) = data.draw(learners()), data.draw(points()).rows(classes)
    names = np.array(data.draw(labels if classes is CLASSES else four_labels))
    X = data.draw(containers)(X)
    y = names[y.astype(int)]
    on = "partial_fit" if hasattr(learner, "partial_fit") else "fit"
    getattr(learner, data.draw(st.sampled_from(["fit", on])))(X, y)
    with tempfile.TemporaryDirectory() as folder:
        save(learner, Path(folder) / "learner.npz")
        again = load(Path(folder) / "learner.npz")
    assert type(again) is type(learner)
    assert again.get_params() == learner.get_params()
    assert again.classes_.dtype == learner.classes_.dtype
    assert_same(learner, again)
    np.testing.assert_array_equal(again.decision_function(X), learner.decision_function(X))
    np.testing.assert_array_equal(again.predict(X), learner.predict(X))
    assert_same_posteriors(learner, again, X)
    for one in (learner, again):
        getattr(one, on)(X[::-1], y[::-1])
    assert_same(learner, again)
    assert_same_posteriors(learner, again, X)


# ------------------------------------------------------------------- streams


class Killed(BaseException):
    """Nothing catches it: what was not written to a checkpoint is lost."""


def stop_at(row, how, pieces, **options):
    """Resume a stream, and make it end at a row that a chunk ends with; how far it came."""

    def chunks():
        seen = 0
        for X, y in pieces:
            if seen == row and how == "source":
                raise OSError("the disk is gone")
            yield X, y
            seen += len(y)

    def callback(progress):
        if progress.rows == row and how == "kill":
            raise Killed
        return progress.rows == row and how == "callback"

    try:
        progress = fit_stream(source=from_iterable(chunks), callback=callback, **options)
    except StreamError as error:
        assert how == "source"
        progress = error.progress
    except Killed:
        assert how == "kill"
        return
    else:
        assert how == "callback"
        assert progress.stopped
    assert progress.rows == row


@every_online
@given(st.data())
def test_a_stream_may_stop_anywhere(learners, classes, data):
    """A stream that is stopped, breaks or is killed at any chunks ends, resumed, as one that ran through."""
    learner, (X, y) = data.draw(learners()), data.draw(points()).rows(classes)
    cut, rows = data.draw(cuttings(len(y), least=2, most=12)), data.draw(containers)(X)
    pieces = [(rows[chunk], y[chunk]) for chunk in cut]
    options = {"learner": learner, "classes": classes, "window": data.draw(st.integers(1, 100))}
    whole = fit_stream(source=from_iterable(pieces), **options)
    places = st.sampled_from([chunk.stop for chunk in cut[:-1]])
    with tempfile.TemporaryDirectory() as folder:
        options |= {"checkpoint": Path(folder) / "checkpoint.npz", "resume": True}
        options["every_rows"] = data.draw(st.integers(1, len(y)), "every_rows")
        for row in sorted(data.draw(st.sets(places, min_size=1, max_size=3), "stops")):
            stop_at(
                row, data.draw(st.sampled_from(["callback", "source", "kill"])), pieces, **options
            )
        resumed = fit_stream(source=from_iterable(pieces), **options)
    assert resumed.rows == whole.rows == len(y)
    assert_same(whole.learner, resumed.learner)
    assert_same_posteriors(whole.learner, resumed.learner, X)
    for name in whole.curve.keys() - {"seconds"}:
        np.testing.assert_array_equal(resumed.curve[name], whole.curve[name], err_msg=name)


@several
@given(st.data())
def test_a_shuffle_buffer_gives_every_row_once(data):
    """A buffer gives the rows and labels it got, each once, none a buffer early, each time in the same order."""
    (X, y), names = data.draw(points()).rows(), np.array(data.draw(labels))
    X[:, 0], y = np.arange(len(y)), names[y.astype(int)]
    rows, cut = data.draw(containers)(X), data.draw(cuttings(len(y)))
    cut.insert(data.draw(st.integers(0, len(cut))), slice(0, 0))  # an empty chunk
    buffer, seed = data.draw(st.integers(1, 250), "buffer"), data.draw(seeds, "seed")
    source = shuffled(from_iterable([(rows[chunk], y[chunk]) for chunk in cut]), buffer, seed)
    orders = []
    for _ in range(2):
        parts = [(csr_array(part).toarray(), names) for part, names in source]
        found, found_labels = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = found[:, 0].astype(int)
        np.testing.assert_array_equal(np.sort(order), np.arange(len(y)))
        np.testing.assert_array_equal(found, X[order])
        np.testing.assert_array_equal(found_labels, y[order])
        assert (order - np.arange(len(y)) < buffer).all()
        orders.append(order)
    np.testing.assert_array_equal(*orders)


# ------------------------------------------------------------------- found by the properties above

POINTS = Points(200, 3, 0.5, 1.0, 1.0, False, 0)


@pytest.mark.parametrize("loss", ["f1", "qf1", "gmean", "bakld:0.3", "cq"])
def test_a_stream_may_begin_with_one_class(loss):
    """Whatever is optimised, a stream may begin with points of one class."""
    X, y = POINTS.rows()
    source = from_iterable([(X[y], y[y]), (X[~y], y[~y])])
    learner = OnePassMiniBatchClassifier(loss, eta0=1.0, buffer_size=10)
    assert fit_stream(learner, source, classes=CLASSES, window=10).rows == 200


def test_merged_levels_have_no_order():
    """The levels of merged learners do not depend on which of them comes first."""
    X, y = POINTS.rows()
    learner = SCANClassifier(eta0=0.3, first_epoch=20)
    parts = [take(clone(learner), X[half], y[half]) for half in (slice(100), slice(100, 200))]
    np.testing.assert_array_equal(merge(parts).levels_, merge(parts[::-1]).levels_)


@pytest.mark.filterwarnings("error")
def test_rows_that_are_all_the_same_have_posteriors():
    """Posteriors can be asked for without a warning where all scores are the same."""
    _, y = POINTS.rows()
    learner = NEMSISClassifier("kld", eta0=1.0, radius=1.0, random_state=0).fit(
        np.ones((200, 2)), y
    )
    np.testing.assert_allclose(learner.predict_proba(np.ones((1, 2)))[0, 1], y.mean(), atol=0.02)
