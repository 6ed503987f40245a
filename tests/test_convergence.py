"""Theorem 3: the suboptimality of the averaged model shrinks like 1/√T."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone

from quapy_nemsis import NEMSISClassifier, get_measure
from tests.reference.nemsis import reward_and_slope


def population(seed=0, n=40, d=4):
    """A distribution with finitely many points, so that its P(w), N(w) and best model are known exactly."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) < 12
    X = rng.normal(size=(n, d)) + np.where(y, 0.7, -0.7)[:, None]
    return X, y


def objective(measure, X, y, w, b):
    """The measure at the exact mean rewards of a model."""
    margins = np.where(y, 1.0, -1.0) * (X @ w + b)
    rewards = np.array([reward_and_slope("logistic", m)[0] for m in margins])
    return measure.value(rewards[y].mean(), rewards[~y].mean(), y.mean())


def gaps_to(optimum, learner, measure, X, y, sizes, seeds=10):
    """Mean suboptimality of the averaged model after streams of so many points, over seeds."""
    gaps = np.zeros(len(sizes))
    for seed in range(seeds):
        stream = np.random.default_rng(seed).integers(len(y), size=sizes[-1])
        fresh = clone(learner)
        start = 0
        for i, stop in enumerate(sizes):
            fresh.partial_fit(X[stream[start:stop]], y[stream[start:stop]])
            start = stop
            value = objective(measure, X, y, fresh.coef_[0], fresh.intercept_[0])
            gaps[i] += (optimum - value) / seeds
    return gaps, fresh


# What the theorems speak of: surrogate rewards that are not clipped, exact gradients, the average of all iterates.
THEORY = {
    "reward": "logistic",
    "estimates": "surrogate",
    "reward_bound": 100.0,
    "average": "all",
    "eta0": 1.0,
    "monotone": False,
}
SIZES = [250, 1000, 4000, 16000, 64000]


@pytest.mark.parametrize("name", ["ba", "qmean", "hmean", "bakld:0.9"])
def test_suboptimality_shrinks_like_the_root_of_the_stream(name):
    """Monotone measures of concave rewards are concave in w; BA with a little KLD is monotone near its optimum."""
    measure = get_measure(name)
    X, y = population()
    best = minimize(
        lambda v: -objective(measure, X, y, v[:-1], v[-1]), np.full(X.shape[1] + 1, 0.1), tol=1e-12
    )
    gaps, _ = gaps_to(-best.fun, NEMSISClassifier(measure, **THEORY), measure, X, y, SIZES)
    assert (gaps > 0).all()
    assert np.polyfit(np.log(SIZES), np.log(gaps), 1)[0] <= -0.35
    assert gaps[-1] < 0.01
