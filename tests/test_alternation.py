"""SCAN and CAN against slow references written without looking at them, and against the paper's theorems."""

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale

from quapy_nemsis import (
    BKReward,
    CANClassifier,
    CQReward,
    NEMSISClassifier,
    SCANClassifier,
    get_measure,
)
from tests.conftest import make_points
from tests.reference import alternation as reference
from tests.test_convergence import SIZES, THEORY, gaps_to, population

# The references take a reward, a step size and a radius: nothing is left to be chosen.
NEMSISClassifier = partial(NEMSISClassifier, reward="hinge", eta0=0.1, radius=np.inf)
SCANClassifier = partial(SCANClassifier, reward="hinge", eta0=0.1, radius=np.inf)


def slow_scan(X, y, learner):
    return reference.scan(
        X,
        y,
        measure=learner.measure,
        reward=learner.reward,
        counts=learner.estimates == "counts",
        monotone=learner.monotone,
        eta0=learner.eta0,
        radius=learner.radius,
        bound=learner.reward_bound,
        average=learner.average,
        fit_intercept=learner.fit_intercept,
        first_epoch=learner.first_epoch,
        growth=learner.growth,
        level_share=learner.level_share,
    )


@pytest.mark.parametrize("measure", ["cq", "bk"])
@pytest.mark.parametrize("reward", ["hinge", "logistic"])
@pytest.mark.parametrize("estimates", ["counts", "surrogate"])
@pytest.mark.parametrize("monotone", [True, False])
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
def test_scan_epoch_by_epoch(measure, reward, estimates, monotone, container):
    """Levels, and the weights at the end of every phase and in between."""
    X, y = make_points(n=700, d=5, share=0.25, seed=3)
    learner = SCANClassifier(
        measure,
        reward=reward,
        estimates=estimates,
        monotone=monotone,
        eta0=0.3,
        first_epoch=30,
        growth=1.7,
    )
    for stop in (1, 29, 30, 31, 38, 39, 150, 400, 700):
        expected = slow_scan(X[:stop], y[:stop], learner)
        fresh = SCANClassifier(**learner.get_params())
        fresh.partial_fit(container(X[:stop]), y[:stop], classes=[False, True])
        np.testing.assert_allclose(fresh.coef_[0], expected.coef, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(fresh.intercept_[0], expected.intercept, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(fresh.levels_, expected.levels, rtol=1e-9)
        assert fresh.t_ == expected.t == stop
    assert len(fresh.levels_) >= 4


@pytest.mark.parametrize("average", ["last", "all", "suffix"])
@pytest.mark.parametrize("level_share", [0.01, 1.0])
def test_scan_options(average, level_share):
    X, y = make_points(n=600, seed=2)
    learner = SCANClassifier(
        average=average, level_share=level_share, radius=0.7, fit_intercept=False, first_epoch=20
    )
    expected = slow_scan(X, y, learner)
    learner.partial_fit(X, y)
    np.testing.assert_allclose(learner.coef_[0], expected.coef, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(learner.levels_, expected.levels, rtol=1e-9)


def test_a_level_phase_without_one_class_keeps_the_level():
    X, y = make_points(n=120, seed=0)
    y[:] = np.arange(120) % 2 == 0
    y[40:50] = False  # the first level phase, after 40 points
    learner = SCANClassifier(first_epoch=40).partial_fit(X, y)
    assert learner.levels_[0] == 0.0
    np.testing.assert_allclose(learner.levels_, slow_scan(X, y, learner).levels)


def test_history_counts_all_points():
    X, y = make_points(n=1000)
    learner = SCANClassifier(record_every=250, n_passes=1, random_state=0).fit(X, y)
    assert learner.history_["samples"] == [250, 500, 750, 1000]
    P, N = learner.history_["P"][-1], learner.history_["N"][-1]
    assert learner.history_["value"][-1] == pytest.approx(
        CQReward().value(P, N, learner.state_.rates().p), abs=1e-12
    )


@pytest.mark.parametrize("measure", ["cq", "bk", "q", "bakld:0.5", "ba", "qmean"])
@pytest.mark.parametrize("radius", [np.inf, 0.5])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_can_finds_the_same_optimum(measure, radius, fit_intercept):
    X, y = make_points(n=200, d=4, share=0.3, seed=4, noise=1.5)
    expected = reference.can(
        X, y, measure=measure.split(":")[0], radius=radius, fit_intercept=fit_intercept
    )
    learner = CANClassifier(measure, radius=radius, fit_intercept=fit_intercept, tol=1e-8).fit(X, y)
    assert learner.levels_[-1] == pytest.approx(expected.levels[-1], abs=1e-7)
    np.testing.assert_allclose(learner.coef_[0], expected.coef, atol=2e-3)
    assert np.linalg.norm(learner.coef_) <= radius * (1 + 1e-12)
    if radius == 0.5:
        assert np.linalg.norm(learner.coef_) == pytest.approx(0.5, abs=1e-6)
    sparse = CANClassifier(measure, radius=radius, fit_intercept=fit_intercept, tol=1e-8)
    sparse.fit(scipy.sparse.csr_matrix(X), y)
    np.testing.assert_allclose(sparse.coef_, learner.coef_, atol=1e-4)


@pytest.mark.parametrize("name", ["bakld", "bakld:0.1", "q", "bk", "cq"])
def test_can_reaches_a_ball_that_binds(name):
    """Also for measures that are not concave in w: never worse than the model of BA, which is in the ball too."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = scale(X), y == 1

    def value(learner):
        margins = np.where(y, 1.0, -1.0) * learner.decision_function(X)
        rewards = 1.0 - np.logaddexp(0.0, -margins)
        return get_measure(name).value(
            rewards[y].mean(), rewards[~y].mean(), y.mean(), 0.5 / len(y)
        )

    learner = CANClassifier(name, radius=5.0).fit(X, y)
    assert np.linalg.norm(learner.coef_) == pytest.approx(5.0, abs=1e-6)
    assert learner.levels_[-1] == pytest.approx(value(learner), abs=1e-9)
    assert value(learner) >= value(CANClassifier("ba", radius=5.0).fit(X, y)) - 1e-6
    assert (np.diff(learner.levels_) >= 0.0).all()


def test_can_of_kld_counts_exactly():
    """KLD has many optima, all with p̂ = p: the value is compared, not the weights."""
    X, y = make_points(n=200, d=4, noise=1.5)
    learner = CANClassifier("kld").fit(X, y)
    assert learner.levels_[-1] == pytest.approx(0.0, abs=1e-6)
    assert learner.n_iter_ == 1


@pytest.mark.parametrize("seed", range(5))
def test_theorem_2(seed):
    """The gap of CAN to the best level shrinks at least as fast as (1 − m/M)ᵗ."""
    X, y = make_points(n=300, d=4, share=0.1 + 0.15 * seed, seed=seed, noise=2.0)
    measure = CQReward()
    learner = CANClassifier(measure, tol=1e-9).fit(X, y)
    best = learner.levels_[-1]
    zero = 1.0 - np.log(2.0)  # the logistic reward of every point at w = 0
    gap = best - measure.value(zero, zero, y.mean())
    m, M = measure.bounds
    assert gap > 0.0
    for t, level in enumerate(learner.levels_, start=1):
        assert best - level <= gap * (1.0 - m / M) ** t + 1e-9
    assert (np.diff(learner.levels_) >= -1e-9).all()


def test_theorem_4():
    """SCAN approaches the optimum that CAN finds as the stream grows."""
    X, y = population()
    measure = CQReward()
    optimum = CANClassifier(measure, tol=1e-9).fit(X, y).levels_[-1]
    learner = SCANClassifier(measure, **THEORY)
    gaps, last = gaps_to(optimum, learner, measure, X, y, SIZES)
    assert (gaps > -1e-9).all()
    assert np.polyfit(np.log(SIZES), np.log(gaps), 1)[0] <= -0.35
    assert last.levels_[-1] == pytest.approx(optimum, abs=0.01)


def test_can_warns_when_it_stops_early():
    X, y = make_points(n=200, d=4, noise=1.5)
    with pytest.warns(ConvergenceWarning, match="max_levels=1"):
        CANClassifier("bk", max_levels=1).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        CANClassifier("cq", max_iter=2).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CANClassifier("cq").fit(X, y).n_iter_ == len(CANClassifier("cq").fit(X, y).levels_)


def test_can_verbose(capsys):
    X, y = make_points(n=200, d=4, noise=1.5)
    learner = CANClassifier("cq", verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == learner.n_iter_
    assert lines[0].startswith("CANClassifier: level 1, cq 0.")


X, Y = make_points(n=60, d=3)


@pytest.mark.parametrize(
    ("learner", "error", "message"),
    [
        (NEMSISClassifier("cq"), ValueError, r"CQReward\(\) is pseudo-concave: use SCANClassifier"),
        (NEMSISClassifier(BKReward()), ValueError, "or CANClassifier"),
        (SCANClassifier("kld"), ValueError, r"NegKLD\(\) is nested concave: use NEMSISClassifier"),
        (SCANClassifier("cqb"), ValueError, "is for evaluation only"),
        (CANClassifier("cqb"), ValueError, "is for evaluation only"),
        (SCANClassifier(growth=0.5), ValueError, "growth must be at least 1; got 0.5"),
        (SCANClassifier(growth=np.inf), ValueError, "growth must be finite; got inf"),
        (SCANClassifier(level_share=0), ValueError, "level_share must be positive; got 0"),
        (SCANClassifier(first_epoch=0), ValueError, "first_epoch must be at least 1; got 0"),
        (SCANClassifier(first_epoch=1.5), TypeError, "first_epoch must be an integer; got 1.5"),
        (SCANClassifier(eta0=-1), ValueError, "eta0 must be positive; got -1"),
        (CANClassifier(tol=0), ValueError, "tol must be positive; got 0"),
        (CANClassifier(radius=-1), ValueError, "radius must be positive; got -1"),
        (CANClassifier(max_levels=0), ValueError, "max_levels must be at least 1; got 0"),
        (CANClassifier(max_iter="many"), TypeError, "max_iter must be an integer; got 'many'"),
        (CANClassifier(fit_intercept=1), TypeError, "fit_intercept must be True or False; got 1"),
    ],
    ids=str,
)
def test_refusals(learner, error, message):
    with pytest.raises(error, match=message):
        learner.fit(X, Y)


def test_online_learners_are_near_the_batch_optimum():
    """With the logistic reward and surrogate estimates they optimise what CAN optimises."""
    X, y = make_points(n=5000, noise=1.5)
    for name in ("q", "bakld:0.5"):
        best = CANClassifier(name).fit(X, y).levels_[-1]
        learner = NEMSISClassifier(
            name, reward="logistic", estimates="surrogate", random_state=0, n_passes=10, eta0=1.0
        ).fit(X, y)
        margins = np.where(y, 1, -1) * learner.decision_function(X)
        rewards = 1.0 - np.logaddexp(0.0, -margins)
        value = get_measure(name).value(rewards[y].mean(), rewards[~y].mean(), y.mean(), 1e-4)
        assert value == pytest.approx(best, abs=0.01)
        assert value <= best + 1e-6
