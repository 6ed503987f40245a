"""The kernel for K classes against a slow reference, written from the formulas without looking at the kernel."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse

from quapy_nemsis import NEMSISClassifier, SCANClassifier
from tests.reference import multiclass as reference
from tests.reference import nemsis as two_class

NEMSISClassifier = partial(NEMSISClassifier, eta0=0.3, radius=np.inf)
SCANClassifier = partial(SCANClassifier, eta0=0.3, radius=np.inf)
NESTED = ["kld", "bakld:0.3", "q", "q:2", "nss", "ba", "gmean", "hmean", "qmean"]


def make_classes(n=150, d=5, k=3, seed=0):
    """Overlapping classes of unequal size, with entries of exactly 0."""
    rng = np.random.default_rng(seed)
    y = rng.choice(k, size=n, p=np.arange(1, k + 1) / (k * (k + 1) / 2))
    X = rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
    X[np.abs(X) < 0.4] = 0.0
    return X, y


def options(learner):
    key, _, parameter = learner.measure.partition(":")
    return {
        "measure": key,
        "parameter": float(parameter) if parameter else None,
        "reward": learner.reward,
        "counts": learner.estimates == "counts",
        "monotone": learner.monotone,
        "eta0": learner.eta0,
        "radius": learner.radius,
        "bound": learner.reward_bound,
        "average": learner.average,
        "fit_intercept": learner.fit_intercept,
    }


@pytest.mark.parametrize("k", [3, 7])
@pytest.mark.parametrize("measure", NESTED)
@pytest.mark.parametrize("reward", ["hinge", "logistic"])
@pytest.mark.parametrize("estimates", ["counts", "surrogate"])
@pytest.mark.parametrize("monotone", [True, False])
def test_every_step(k, measure, reward, estimates, monotone):
    X, y = make_classes(k=k, seed=k)
    learner = NEMSISClassifier(
        measure, reward=reward, estimates=estimates, monotone=monotone, average="last"
    )
    expected = reference.nemsis(X, y, k, **options(learner))
    sparse = NEMSISClassifier(**{**learner.get_params()})
    for t, (W, b) in enumerate(expected.weights):
        for each, row in ((learner, X[t : t + 1]), (sparse, scipy.sparse.csr_matrix(X[t : t + 1]))):
            each.partial_fit(row, y[t : t + 1], classes=np.arange(k))
            np.testing.assert_allclose(each.coef_, W, rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(each.intercept_, b, rtol=1e-10, atol=1e-10)
    rates = learner.state_.rates()
    np.testing.assert_allclose(rates.R, expected.R, atol=1e-10)
    np.testing.assert_allclose(rates.q, expected.counted, atol=1e-10)


@pytest.mark.parametrize("average", ["last", "all", "suffix"])
@pytest.mark.parametrize("radius", [np.inf, 0.4])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("reward", ["hinge", "logistic"])
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
def test_averages_projection_and_weights(average, radius, fit_intercept, reward, container):
    X, y = make_classes(n=300, k=4, seed=1)
    weights = np.random.default_rng(2).uniform(0.1, 3.0, size=len(y))
    for measure, n in [("q", 300), ("kld", 64), ("q", 65), ("kld", 3)]:
        learner = NEMSISClassifier(
            measure, average=average, radius=radius, fit_intercept=fit_intercept, reward=reward
        )
        expected = reference.nemsis(X[:n], y[:n], 4, sample_weight=weights[:n], **options(learner))
        learner.partial_fit(container(X[:n]), y[:n], classes=range(4), sample_weight=weights[:n])
        np.testing.assert_allclose(learner.coef_, expected.coef, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(learner.intercept_, expected.intercept, atol=1e-10)
        if average == "last":
            assert np.sqrt(2) * np.linalg.norm(learner.coef_) <= radius * (1 + 1e-12)


@pytest.mark.parametrize("measure", ["cq", "bk"])
@pytest.mark.parametrize("reward", ["hinge", "logistic"])
@pytest.mark.parametrize("estimates", ["counts", "surrogate"])
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
def test_scan(measure, reward, estimates, container):
    X, y = make_classes(n=600, k=3, seed=4)
    weights = np.random.default_rng(2).uniform(0.5, 2.0, size=len(y))
    epochs = {"first_epoch": 40, "growth": 1.5, "level_share": 0.5}
    learner = SCANClassifier(measure, reward=reward, estimates=estimates, **epochs)
    given = {name: value for name, value in options(learner).items() if name != "parameter"}
    expected = reference.scan(X, y, 3, **epochs, sample_weight=weights, **given)
    learner.partial_fit(container(X), y, sample_weight=weights)
    np.testing.assert_allclose(learner.levels_, expected.levels, atol=1e-10)
    np.testing.assert_allclose(learner.coef_, expected.coef, rtol=1e-10, atol=1e-10)
    assert max(expected.levels) > 0.3


def test_levels_rise_although_a_class_is_rare():
    """A class that does not occur in a level phase keeps its running recall."""
    rng = np.random.default_rng(0)
    y = rng.choice(4, 600, p=[0.6, 0.37, 0.02, 0.01])
    X = rng.normal(size=(4, 5))[y] + rng.normal(size=(600, 5))
    learner = SCANClassifier("cq", reward="hinge", first_epoch=40)
    given = {name: value for name, value in options(learner).items() if name != "parameter"}
    epochs = {"first_epoch": 40, "growth": 2.0, "level_share": 0.25}
    expected = reference.scan(X, y, 4, **epochs, **given)
    learner.partial_fit(X, y, classes=range(4))
    np.testing.assert_allclose(learner.levels_, expected.levels, atol=1e-10)
    assert learner.levels_.min() > 0.0


@pytest.mark.parametrize("measure", NESTED)
@pytest.mark.parametrize("reward", ["hinge", "logistic"])
@pytest.mark.parametrize("estimates", ["counts", "surrogate"])
@pytest.mark.parametrize("monotone", [True, False])
def test_of_two_classes_the_reference_is_the_binary_one(measure, reward, estimates, monotone):
    X, y = make_classes(k=2, seed=5)
    learner = NEMSISClassifier(measure, reward=reward, estimates=estimates, monotone=monotone)
    of_classes = reference.nemsis(X, y, 2, **options(learner))
    binary = two_class.nemsis(X, y == 1, **options(learner))
    np.testing.assert_allclose(of_classes.coef[1] - of_classes.coef[0], binary.coef, atol=1e-10)
    intercept = of_classes.intercept[1] - of_classes.intercept[0]
    assert intercept == pytest.approx(binary.intercept, abs=1e-10)
    learner.partial_fit(X, y)
    np.testing.assert_allclose(learner.coef_[0], binary.coef, atol=1e-10)
