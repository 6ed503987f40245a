"""Best fits of calibrations, next to those of a generic optimiser."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quapy_nemsis._kernels import calibration as kernel
from quapy_nemsis.learners.calibration import Calibration
from tests.reference import calibration as reference


def two_classes(seed, n, share, distance, scale=1.0):
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < share
    scores = scale * (rng.normal(size=n) + distance * (positive - 0.5))
    return scores, positive, rng.integers(1, 4, size=n).astype(float)


def classes(seed, n, k, strength):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, size=n).astype(np.int32)
    scores = rng.normal(size=(n, k))
    scores[np.arange(n), labels] += strength
    return scores, labels, rng.integers(1, 4, size=n).astype(float)


def assert_best_curve(scores, positive, weights):
    """The optimum is unique: its gradient is zero, or points out of bounds, and no search finds a lower loss."""
    found = Calibration.of(scores, positive, weights)
    best, curvature, loss = found._fitted
    features = reference.curve_features(scores, *found._knots)
    balanced = found.effective_size * weights / found.shares[positive.astype(int)]
    balanced /= np.sum(weights / found.shares[positive.astype(int)])
    value, slope = reference.curve_cost(best, features, positive, balanced)
    assert loss * found.effective_size == pytest.approx(value, rel=1e-10)
    assert best[1:].min() >= 0
    # The gradient in units of the size that it has where all points are wrong.
    size = balanced @ abs(features) + 1.0
    assert (abs(slope) / size)[np.append(True, best[1:] > 0)].max() < 1e-10
    assert (slope / size)[1:].min() > -1e-10
    expected = reference.fitted_curve(features, positive, balanced)
    assert value <= reference.curve_cost(expected, features, positive, balanced)[0] * (1 + 1e-12)
    # Where the loss is nearly flat, the search may stop anywhere.
    away = best - expected
    assert away @ curvature @ away <= 1e-6 * (1.0 + value)
    np.testing.assert_allclose(curvature, curvature.T)
    return found


@pytest.mark.parametrize(
    ("n", "share", "distance"),
    [(6, 0.5, 2), (60, 0.2, 2), (2000, 0.3, 2), (20_000, 0.02, 3), (500, 0.5, 20), (500, 0.5, -2)],
)
def test_a_curve_is_the_best(n, share, distance):
    """Also of separable classes and of scores that are worse than chance."""
    assert_best_curve(*two_classes(n, n, share, distance))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(3, 300),
    distance=st.floats(-3, 6),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    digits=st.integers(0, 6),
)
def test_any_curve_is_the_best(seed, n, distance, scale, digits):
    scores, positive, weights = two_classes(seed, n, 0.4, distance)
    positive[:2] = [True, False]
    scores = np.round(scores, digits)
    scores[0] += np.ptp(scores) == 0
    assert_best_curve(scale * scores, positive, weights)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_a_curve_of_tiny_or_huge_scores_is_that_of_others(scale):
    scores, positive, weights = two_classes(0, 500, 0.3, 2.0)
    expected = Calibration.of(scores, positive, weights)._fitted
    found = Calibration.of(scale * scores, positive, weights)._fitted
    np.testing.assert_allclose(found.parameters, expected.parameters, rtol=1e-6)
    assert found.loss == pytest.approx(expected.loss, rel=1e-12)


@pytest.mark.parametrize("label", [True, False])
@pytest.mark.parametrize("away", [1e6, 1e30, 1e200])
def test_one_huge_score_does_not_stop_the_search(away, label):
    scores, positive, weights = two_classes(1, 1000, 0.3, 2.0)
    found = Calibration.of(
        np.append(scores, away), np.append(positive, label), np.append(weights, 1.0)
    )
    expected = Calibration.of(scores, positive, weights)
    assert found.loss() == pytest.approx(expected.loss(), abs=0.02)
    at = np.linspace(-1, 1, 9)
    np.testing.assert_allclose(found.probabilities(at), expected.probabilities(at), atol=0.05)
    assert np.isfinite(found.draw(3, np.random.default_rng(0))).all()


@pytest.mark.parametrize(
    ("n", "k", "strength"),
    [(30, 4, 1), (300, 3, 1), (2000, 7, 2), (500, 26, 2), (500, 3, 50), (500, 3, -1), (500, 3, 0)],
)
def test_a_temperature_and_offsets_are_the_best(n, k, strength):
    """Also of separable classes, and of scores that are worse than chance."""
    scores, labels, weights = classes(n, n, k, strength)
    rest, at, curvature = 1 / (n + k), np.eye(1, 1 + k)[0], np.empty((1 + k, 1 + k))
    loss = kernel.fit_offsets(scores, labels, weights, rest, 0.25, at, curvature)
    points = (scores, labels, weights, rest)
    value, slope = reference.class_cost(at, *points)
    assert loss == pytest.approx(value, rel=1e-10)
    slope = slope / weights.sum()
    assert at[0] >= 0
    assert abs(slope[1 - (at[0] > 0) :]).max(initial=0) < 1e-9
    assert slope[0] > -1e-9
    expected = reference.fitted_classes(*points)
    assert value <= reference.class_cost(expected, *points)[0] * (1 + 1e-12)
    np.testing.assert_allclose(at, expected, atol=1e-4, rtol=1e-4)
    for place, step in enumerate(1e-5 * np.eye(1 + k)):
        change = reference.class_cost(at + step, *points)[1]
        change -= reference.class_cost(at - step, *points)[1]
        np.testing.assert_allclose(curvature[place], change / 2e-5, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("n", "k"), [(400, 3), (1000, 5)])
def test_the_covariance_of_a_temperature_and_offsets_is_that_of_noisy_gradients(n, k):
    """Half of the noise of the numbers of points of each class, which are given, is no part of it."""
    scores, labels, weights = classes(n, n, k, 2)
    weights = np.ones_like(weights)
    found = Calibration.of(scores, labels, weights)
    best, curvature, _ = found._fitted
    members = np.bincount(labels, minlength=k)
    class_weights = found.effective_size / (k * members)
    standard = scores / np.std(scores)
    noise = reference.class_noise(best, standard, class_weights)
    inverse = np.linalg.inv(curvature)
    unpenalised = curvature - reference.OFFSET_PRECISION * np.diag([0.0] + [1.0] * k)
    per_weight = inverse @ unpenalised[:, 1:]
    expected = inverse @ noise @ inverse - 0.5 * per_weight / members @ per_weight.T
    np.testing.assert_allclose(found._covariance(), expected, rtol=1e-6, atol=1e-9)


def test_offsets_follow_the_logarithm_of_the_weight_of_a_class():
    """What the covariance takes away: the change of the fit if the points of a class count for more."""
    n, k = 20_000, 3
    scores, labels, _ = classes(5, n, k, 2)
    found = Calibration.of(scores, labels)
    standard = scores / np.std(scores)
    standard -= standard.max(axis=1, keepdims=True)
    balanced = found.effective_size / (k * np.bincount(labels))
    curvature = found._fitted.curvature
    unpenalised = curvature - reference.OFFSET_PRECISION * np.diag([0.0] + [1.0] * k)
    per_weight = np.linalg.solve(curvature, unpenalised[:, 1:])
    for j in range(k):
        both = []
        for step in (-0.01, 0.01):
            moved = balanced * np.exp(step * (np.arange(k) == j))
            both.append(reference.fitted_classes(standard, labels, moved[labels], 1 / (n + k)))
        np.testing.assert_allclose((both[1] - both[0]) / 0.02, per_weight[:, j], atol=0.05)


def test_fits_do_not_depend_on_the_order_of_points():
    rng = np.random.default_rng(3)
    for points in (two_classes(2, 3000, 0.3, 2.0), classes(2, 3000, 4, 1.0)):
        order = rng.permutation(3000)
        first = Calibration.of(*points)._fitted
        second = Calibration.of(*(part[order] for part in points))._fitted
        np.testing.assert_allclose(first.parameters, second.parameters, rtol=1e-8, atol=1e-10)
