"""The compiled kernel against the slow reference, which was written from the paper without looking at the kernel."""

import itertools
from functools import partial

import numpy as np
import pytest
import scipy.sparse

from quapy_nemsis import NEMSISClassifier, get_measure
from tests.conftest import make_points
from tests.reference import nemsis as reference

# The references take a reward, a step size and a radius: nothing is left to be chosen.
NEMSISClassifier = partial(NEMSISClassifier, reward="hinge", eta0=0.1, radius=np.inf)


MEASURES = ["kld", "bakld:0.3", "q", "q:2", "nss", "ba", "gmean", "hmean", "qmean"]
REWARDS = ["hinge", "logistic"]
ESTIMATES = ["counts", "surrogate"]


def slow(X, y, learner):
    """Reference run with the parameters of a learner."""
    key, _, parameter = learner.measure.partition(":")
    return reference.nemsis(
        X,
        y,
        measure=key,
        parameter=float(parameter) if parameter else None,
        reward=learner.reward,
        counts=learner.estimates == "counts",
        monotone=learner.monotone,
        eta0=learner.eta0,
        radius=learner.radius,
        bound=learner.reward_bound,
        average=learner.average,
        fit_intercept=learner.fit_intercept,
    )


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("reward", REWARDS)
@pytest.mark.parametrize("estimates", ESTIMATES)
@pytest.mark.parametrize("monotone", [True, False])
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
def test_every_step(measure, reward, estimates, monotone, container):
    X, y = make_points(n=150, d=5, share=0.25, seed=3)
    X[np.abs(X) < 0.4] = 0.0
    learner = NEMSISClassifier(
        measure, reward=reward, estimates=estimates, monotone=monotone, average="last", eta0=0.3
    )
    expected = slow(X, y, learner)
    rows = container(X)
    for t, (w, b) in enumerate(expected.weights):
        learner.partial_fit(rows[t : t + 1], y[t : t + 1], classes=[False, True])
        np.testing.assert_allclose(learner.coef_[0], w, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(learner.intercept_[0], b, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(learner.state_.rates()[:2], (expected.P, expected.N), atol=1e-10)


@pytest.mark.parametrize("average", ["last", "all", "suffix"])
@pytest.mark.parametrize("radius", [np.inf, 0.4])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
def test_averages_and_projection(average, radius, fit_intercept, container):
    X, y = make_points(n=700, seed=1)
    for measure, n in itertools.product(["q", "kld"], [1, 2, 3, 4, 63, 64, 65, 700]):
        learner = NEMSISClassifier(
            measure, average=average, radius=radius, fit_intercept=fit_intercept, eta0=0.5
        )
        expected = slow(X[:n], y[:n], learner)
        learner.partial_fit(container(X[:n]), y[:n], classes=[False, True])
        np.testing.assert_allclose(learner.coef_[0], expected.coef, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(learner.intercept_[0], expected.intercept, atol=1e-10)
        if average == "last":
            assert np.linalg.norm(learner.coef_) <= radius * (1 + 1e-12)
        assert learner.t_ == n


def test_a_tiny_ball_and_huge_steps():
    """The lazily kept scale falls below its floor, where the weights are multiplied out."""
    X, y = make_points(n=300, seed=5)
    learner = NEMSISClassifier("ba", radius=1e-3, eta0=1e60, average="all")
    expected = slow(X, y, learner)
    learner.partial_fit(X, y)
    np.testing.assert_allclose(learner.coef_[0], expected.coef, rtol=1e-8)
    assert np.linalg.norm(learner.coef_) <= 1e-3 * (1 + 1e-12)


@pytest.mark.parametrize("bound", [0.2, 1.0, 5.0])
def test_reward_bound(bound):
    X, y = make_points(n=300, seed=2)
    learner = NEMSISClassifier("q", estimates="surrogate", reward_bound=bound, eta0=2.0)
    expected = slow(X, y, learner)
    learner.partial_fit(X, y)
    np.testing.assert_allclose(learner.coef_[0], expected.coef, rtol=1e-10, atol=1e-10)
    assert min(learner.state_.rates()[:2]) >= -bound


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_passes_shuffles_and_index_types(index):
    """`fit` is the reference run over its passes' orders, drawn as the documentation says."""
    X, y = make_points(n=200, seed=6)
    learner = NEMSISClassifier("bakld:0.5", n_passes=3, random_state=11)
    rng = np.random.default_rng(np.random.RandomState(11).randint(2**31 - 1))
    order = np.concatenate([rng.permutation(200) for _ in range(3)])
    expected = slow(X[order], y[order], learner)
    rows = scipy.sparse.csr_matrix(X)
    rows.indices, rows.indptr = rows.indices.astype(index), rows.indptr.astype(index)
    learner.fit(rows, y)
    np.testing.assert_allclose(learner.coef_[0], expected.coef, rtol=1e-10, atol=1e-10)
    assert learner.t_ == 600
    unshuffled = NEMSISClassifier("bakld:0.5", n_passes=2, shuffle=False).fit(X, y)
    twice = np.tile(np.arange(200), 2)
    expected = slow(X[twice], y[twice], unshuffled)
    np.testing.assert_allclose(unshuffled.coef_[0], expected.coef, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("measure", MEASURES)
def test_reference_measures_agree(measure):
    """The reference's own formulas, at random points: values and duals."""
    key, _, parameter = measure.partition(":")
    parameter = float(parameter) if parameter else None
    rng = np.random.default_rng(0)
    ours = get_measure(measure)
    for P, N, p in rng.uniform(-0.5, 1.0, size=(50, 3)):
        p = abs(p)
        values, gradients = reference.zeta(key, P, N, p, 0.01)
        for i, (value, gradient) in enumerate(
            [ours.zeta1(P, N, p, 0.01), ours.zeta2(P, N, p, 0.01)]
        ):
            assert value == pytest.approx(values[i], abs=1e-12)
            assert gradient == pytest.approx(gradients[i], abs=1e-10)
        value, gradient = reference.psi(key, parameter, P, N, p, 0.01)
        assert ours.psi(P, N, p, 0.01)[0] == pytest.approx(value, abs=1e-12)
        assert ours.psi(P, N, p, 0.01)[1] == pytest.approx(gradient, abs=1e-10)
