"""Learners of different parts, made one."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from quapy_nemsis import (
    CANClassifier,
    NEMSISClassifier,
    SCANClassifier,
    get_measure,
    merge,
)
from quapy_nemsis.learners.scan import ScanState
from tests.conftest import make_classes, make_points

LEARNERS = [
    NEMSISClassifier("q", eta0=0.3, radius=1.5),
    NEMSISClassifier("kld", eta0=0.3, radius=np.inf, average="all"),
    NEMSISClassifier("bakld", eta0=0.3, radius=np.inf, average="last", estimates="surrogate"),
    SCANClassifier("cq", eta0=0.3, radius=np.inf),
]


def stream(learner, X, y):
    return type(learner)(**learner.get_params()).partial_fit(X, y, classes=[False, True])


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
def test_counts_add_and_weights_average(learner):
    X, y = make_points(n=900)
    sizes = (100, 300, 500)
    edges = np.cumsum((0, *sizes))
    parts = [stream(learner, X[a:b], y[a:b]) for a, b in itertools.pairwise(edges)]
    before = [part.coef_.copy() for part in parts]
    whole = merge(parts)
    steps = np.array([part.state_.steps for part in parts])
    for name in ("coef_", "intercept_"):
        means = np.average([getattr(part, name) for part in parts], axis=0, weights=steps)
        np.testing.assert_allclose(getattr(whole, name), means, rtol=1e-12)
    assert (whole.t_, whole.state_.steps) == (900, steps.sum())
    P, _, p = np.array([part.state_.rates()[:3] for part in parts]).T
    assert whole.state_.rates().p == pytest.approx(np.average(p, weights=steps))
    assert pytest.approx(np.average(P, weights=p * steps)) == whole.state_.rates().P
    np.testing.assert_array_equal([part.coef_ for part in parts], before)
    # It goes on: the averaged model moves on from where it was, not back to the beginning.
    further = merge(parts).partial_fit(X[:1], y[:1])
    assert further.t_ == 901
    assert np.linalg.norm(further.coef_ - whole.coef_) < 0.2 * np.linalg.norm(whole.coef_)
    further.partial_fit(X, y)
    measure = get_measure(learner.measure)
    alone = stream(learner, np.vstack([X, X]), np.concatenate([y, y]))
    score = measure.score(y, further.predict(X))
    assert score > measure.score(y, alone.predict(X)) - 0.05
    np.testing.assert_allclose(whole.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
def test_what_all_started_from_counts_once(learner):
    X, y = make_points(n=600)
    base = stream(learner, X[:200], y[:200])
    parts = []
    for a, b in ((200, 300), (300, 600)):
        part = stream(learner, X[:200], y[:200])
        parts.append(part.partial_fit(X[a:b], y[a:b]))
    whole = merge(parts, base)
    assert whole.t_ == 600
    positives = whole.state_.rates().p * whole.state_.steps
    expected = sum(part.state_.tally()[0, 1] for part in parts) - base.state_.tally()[0, 1]
    assert positives == pytest.approx(expected)
    # A part without points of its own has no say.
    idle = stream(learner, X[:200], y[:200])
    np.testing.assert_array_equal(merge([parts[0], idle], base).coef_, parts[0].coef_)


@pytest.mark.parametrize("average", ["suffix", "all", "last"])
def test_an_averaged_model_goes_on_as_a_mean(average):
    """All iterates are in the ball of radius 1, so every mean of them is; the average begins anew at powers of 2."""
    X, y = make_points(n=3000)
    learner = NEMSISClassifier("q", eta0=0.3, radius=1.0, average=average)
    merged = merge([stream(learner, X[a : a + 700], y[a : a + 700]) for a in (0, 700)])
    for at in range(1400, 3000, 50):
        merged.partial_fit(X[at : at + 50], y[at : at + 50])
        assert np.linalg.norm(merged.coef_) <= 1.0 + 1e-9
    # By hand, with iterates that stand still after the merge.
    parts = [stream(learner, X[:700], y[:700]) for _ in range(2)]
    whole = merge(parts)
    weights = whole.coef_.copy()
    whole.set_params(eta0=1e-300).partial_fit(X[:648], y[:648])  # up to point 2,048
    iterate = whole.state_.numbers["scale"] * whole.state_.v
    if average == "suffix":
        # Of the points 1,024 to 2,048, 377 count as the mean of the models, and 648 came after it.
        expected = (377 * weights[0] + 648 * iterate) / 1025
        np.testing.assert_allclose(whole.coef_[0], expected, rtol=1e-9)


def test_points_that_scan_judges_add_up():
    X, y = make_points(n=2000)
    learner = SCANClassifier("cq", eta0=0.3, radius=np.inf, first_epoch=80)
    base = stream(learner, X[:90], y[:90])
    assert not base.state_.learning  # in a level phase
    parts = []
    for a, b in ((90, 95), (95, 98)):
        part = stream(learner, X[:90], y[:90])
        parts.append(part.partial_fit(X[a:b], y[a:b]))
    whole = merge(parts, base)
    assert whole.t_ == 98
    alone = stream(learner, X[:98], y[:98])
    np.testing.assert_allclose(whole.state_.sums.item(), alone.state_.sums.item())
    np.testing.assert_array_equal(whole.coef_, alone.coef_)
    # Rounds of unequal parts, through many phases.
    rng, at, whole = np.random.default_rng(0), 90, base
    while at < 1900:
        sizes = rng.integers(1, 40, size=3)
        parts, start = [], whole
        for size in sizes:
            part = merge([start])
            parts.append(part.partial_fit(X[at : at + size], y[at : at + size]))
            at += size
        whole = merge(parts, start)
        assert whole.t_ == at
    assert get_measure("cq").score(y, whole.predict(X)) > 0.7


def test_points_to_calibrate_on_count_once():
    X, y = make_points(n=9000)
    learner = NEMSISClassifier("q", eta0=0.3, radius=np.inf)
    base = stream(learner, X[:1000], y[:1000])
    parts = [merge([base]).partial_fit(X[a:b], y[a:b]) for a, b in ((1000, 1300), (1300, 2000))]
    points = merge(parts, base).calibration_
    expected = [base, *parts]
    cuts = [slice(None), slice(1000, None), slice(1000, None)]
    for name in ("scores", "labels", "weights"):
        each = [
            getattr(one.calibration_, name)[cut] for one, cut in zip(expected, cuts, strict=True)
        ]
        np.testing.assert_array_equal(getattr(points, name), np.concatenate(each))
    # One learner stays what it is, one without points of its own adds none, and those without a base have all.
    for several in (parts[:1], [parts[0], base]):
        found = merge(several, base).calibration_
        np.testing.assert_array_equal(found.scores, parts[0].calibration_.scores)
    assert len(merge(parts).calibration_.scores) == 1300 + 1700
    # A learner that has taken more points than a stream keeps has let go of the base's.
    parts[1].partial_fit(X[2000:], y[2000:])
    assert len(merge(parts, base).calibration_.scores) == 300 + 4096


def test_streams_that_have_chosen_a_step_size():
    X, y = make_points(n=17_000, d=3)
    base = NEMSISClassifier("q").partial_fit(X[:16_500], y[:16_500])
    parts = [merge([base]).partial_fit(X[a : a + 250], y[a : a + 250]) for a in (16_500, 16_750)]
    whole = merge(parts, base)
    assert whole.t_ == 17_000
    steps = [part.state_.steps - base.state_.steps for part in parts]
    np.testing.assert_allclose(
        whole.coef_, np.average([part.coef_ for part in parts], axis=0, weights=steps), rtol=1e-9
    )
    assert (whole.eta0_, whole.tuning_) == (base.eta0_, base.tuning_)
    assert whole.partial_fit(X[:100], y[:100]).tuning_ == base.tuning_
    assert parts[0].t_ == 16_750


def test_what_cannot_be_merged():
    X, y = make_points(n=200)
    one = NEMSISClassifier("q", eta0=0.1, radius=1.0).partial_fit(X, y)
    with pytest.raises(ValueError, match="nothing to merge"):
        merge([])
    with pytest.raises(TypeError, match="got CANClassifier"):
        merge([CANClassifier()])
    with pytest.raises(TypeError, match=r"give a list of learners, as in merge\(\[a, b\]\)"):
        merge(one, one)
    with pytest.raises(TypeError, match="got list"):
        merge([one], [one])
    ahead = merge([one]).partial_fit(X, y)
    with pytest.raises(ValueError, match="seen 200 points and the base 400"):
        merge([ahead, one], ahead)
    with pytest.raises(ValueError, match="not fitted"):
        merge([one, NEMSISClassifier("q", eta0=0.1, radius=1.0)])
    with pytest.raises(ValueError, match="still choosing its step size"):
        merge([NEMSISClassifier("q").partial_fit(X, y)])
    for other in (
        NEMSISClassifier("q", eta0=0.2, radius=1.0).partial_fit(X, y),
        NEMSISClassifier("q", eta0=0.1, radius=1.0).partial_fit(X[:, :3], y),
        NEMSISClassifier("q", eta0=0.1, radius=1.0).partial_fit(X, np.where(y, "a", "b")),
        SCANClassifier("cq", eta0=0.1, radius=1.0).partial_fit(X, y),
    ):
        with pytest.raises(ValueError, match="only equal ones can be merged"):
            merge([one, other])


# ----------------------------------------------------------------------- more than two classes

CLASS_LEARNERS = [
    NEMSISClassifier("q", eta0=0.3, radius=1.5),
    NEMSISClassifier("kld", reward="hinge", eta0=0.3, average="all"),
    NEMSISClassifier("bakld", eta0=0.3, average="last", estimates="surrogate"),
    SCANClassifier("cq", eta0=0.3, first_epoch=40),
]


def class_stream(learner, X, y, **options):
    return clone(learner).partial_fit(X, y, classes=range(3), **options)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("learner", CLASS_LEARNERS, ids=str)
def test_streams_of_several_classes_merge(learner, weighted):
    X, y = make_classes(n=900, d=4)
    weights = np.random.default_rng(0).choice([0.5, 1.0, 2.0], 900) if weighted else np.ones(900)
    cuts = [slice(0, 100), slice(100, 400), slice(400, 900)]
    parts = [class_stream(learner, X[cut], y[cut], sample_weight=weights[cut]) for cut in cuts]
    before = [part.coef_.copy() for part in parts]
    whole = merge(parts)
    # Sums of halves and whole numbers are exact; those of rewards are where they are counts.
    tallies = np.array([part.state_.tally() for part in parts])
    np.testing.assert_array_equal(whole.state_.tally()[0], tallies[:, 0].sum(axis=0))
    np.testing.assert_allclose(whole.state_.tally(), tallies.sum(axis=0), rtol=1e-12)
    if learner.estimates == "counts":
        np.testing.assert_array_equal(whole.state_.tally(), tallies.sum(axis=0))
    assert whole.t_ == 900
    steps = [part.state_.steps for part in parts]
    for name in ("coef_", "intercept_"):
        mean = np.average([getattr(part, name) for part in parts], axis=0, weights=steps)
        np.testing.assert_allclose(getattr(whole, name), mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal([part.coef_ for part in parts], before)
    assert len(whole.calibration_.labels) == 900
    np.testing.assert_allclose(whole.predict_proba(X).sum(axis=1), 1.0)
    # In any order, and it goes on.
    for order in itertools.permutations(range(3)):
        other = merge([parts[k] for k in order])
        np.testing.assert_allclose(other.coef_, whole.coef_, rtol=1e-12, atol=1e-15)
        if learner.estimates == "counts":
            np.testing.assert_array_equal(other.state_.tally(), whole.state_.tally())
    further = merge(parts).partial_fit(X[:1], y[:1])
    assert further.t_ == 901
    assert np.linalg.norm(further.coef_ - whole.coef_) < 0.3 * np.linalg.norm(whole.coef_)
    measure = get_measure(learner.measure)
    alone = class_stream(learner, X, y, sample_weight=weights)
    score = measure.score(y, whole.partial_fit(X, y).predict(X))
    assert score > measure.score(y, alone.predict(X)) - 0.05


@pytest.mark.parametrize("learner", CLASS_LEARNERS, ids=str)
def test_what_streams_of_several_classes_started_from_counts_once(learner):
    X, y = make_classes(n=600, d=4)
    rows = scipy.sparse.csr_matrix(X)
    base = class_stream(learner, X[:200], y[:200])
    parts = [
        merge([base]).partial_fit(X[200:300], y[200:300]),
        merge([base]).partial_fit(rows[300:600], y[300:600]),  # of another kind
    ]
    whole = merge(parts, base)
    assert whole.t_ == 600
    if learner.state_type is not ScanState:  # whose level phases are at different places
        np.testing.assert_allclose(whole.state_.tally()[0], np.bincount(y))
    expected = sum(part.state_.tally() for part in parts) - base.state_.tally()
    np.testing.assert_allclose(whole.state_.tally(), expected, atol=1e-9)
    np.testing.assert_array_equal(merge([parts[0], base], base).coef_, parts[0].coef_)


def test_points_of_several_classes_that_scan_judges_add_up():
    X, y = make_classes(n=400, d=4)
    learner = SCANClassifier("cq", eta0=0.3, first_epoch=80)
    base = class_stream(learner, X[:90], y[:90])
    assert not base.state_.learning  # in a level phase
    parts = [merge([base]).partial_fit(X[a:b], y[a:b]) for a, b in ((90, 95), (95, 98))]
    whole, alone = merge(parts, base), class_stream(learner, X[:98], y[:98])
    np.testing.assert_array_equal(whole.state_.level_tally(), alone.state_.level_tally())
    np.testing.assert_array_equal(whole.coef_, alone.coef_)
    for one in (whole, alone):
        one.partial_fit(X[98:101], y[98:101])  # the end of the phase
    np.testing.assert_allclose(whole.levels_, alone.levels_)


def test_streams_of_other_classes_cannot_be_merged():
    X, y = make_classes(n=200, d=4)
    three = NEMSISClassifier("q", eta0=0.1).partial_fit(X, y)
    four = NEMSISClassifier("q", eta0=0.1).partial_fit(X, y, classes=range(4))
    two = NEMSISClassifier("q", eta0=0.1).partial_fit(X, y == 1)
    renamed = NEMSISClassifier("q", eta0=0.1).partial_fit(X, y + 1)
    for other in (four, two, renamed):
        with pytest.raises(ValueError, match="only equal ones can be merged"):
            merge([three, other])
    with pytest.raises(ValueError, match="still choosing its step size"):
        merge([NEMSISClassifier("q").partial_fit(X, y)])
