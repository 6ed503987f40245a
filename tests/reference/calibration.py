"""Slow calibrations: the same functions as those of the package, minimised by L-BFGS of scipy.

For two classes, the log-odds are piecewise linear in the score, with given knots. For more, they are a temperature
times the scores, and offsets.
"""

from itertools import pairwise

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

EXACT = {"maxiter": 5000, "maxfun": 50_000, "ftol": 1e-15, "gtol": 1e-10}
ROUGHNESS, STEEPNESS, OFFSET_PRECISION = 0.1, 0.001, 0.25


def curve_features(scores, knots, unit):
    """A column of ones, and for each piece how much of it lies below a score, in units."""
    columns = [np.ones_like(scores), np.minimum(scores - knots[0], 0) / unit]
    columns += [(np.clip(scores, low, high) - low) / unit for low, high in pairwise(knots)]
    columns.append(np.maximum(scores - knots[-1], 0) / unit)
    return np.stack(columns, axis=1)


def curve_cost(x, features, positive, weights):
    """Penalised loss of a curve with parameters x, and its gradient."""
    z, bends, pull = features @ x, np.diff(x[1:]), STEEPNESS * np.append(0.0, x[1:])
    pull[1:-1] -= ROUGHNESS * bends
    pull[2:] += ROUGHNESS * bends
    value = weights @ (np.logaddexp(0, z) - positive * z) + 0.5 * x @ pull
    return value, features.T @ (weights * (expit(z) - positive)) + pull


def fitted_curve(features, positive, weights):
    """Best parameters, of which slopes are at least 0."""
    size = features.shape[1]
    at = np.append(0.0, np.ones(size - 1))
    for _ in range(20):  # a search may end early, in rounding errors
        found = minimize(
            curve_cost,
            at,
            args=(features, positive, weights),
            jac=True,
            method="L-BFGS-B",
            bounds=[(None, None)] + [(0, None)] * (size - 1),
            options=EXACT,
        )
        moved, at = np.abs(found.x - at).max(), found.x
        if moved < 1e-9:
            break
    return at


def class_cost(x, scores, labels, weights, rest):
    """Penalised loss of a temperature and offsets x, and its gradient."""
    n, n_classes = scores.shape
    targets = np.full(scores.shape, rest / (n_classes - 1))
    targets[np.arange(n), labels] = 1 - rest
    logs = log_softmax(x[0] * scores + x[1:], axis=1)
    wrong = (np.exp(logs) - targets) * weights[:, np.newaxis]
    value = -np.sum(weights[:, np.newaxis] * targets * logs)
    slope = np.append(np.sum(wrong * scores), wrong.sum(axis=0) + OFFSET_PRECISION * x[1:])
    return value + 0.5 * OFFSET_PRECISION * x[1:] @ x[1:], slope


def fitted_classes(scores, labels, weights, rest):
    """Best temperature, at least 0, and best offsets."""
    n_classes = scores.shape[1]
    found = minimize(
        class_cost,
        np.append(1.0, np.zeros(n_classes)),
        args=(scores, labels, weights, rest),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] + [(None, None)] * n_classes,
        options=EXACT,
    )
    return found.x


def class_noise(x, scores, class_weights):
    """Expected outer products of the gradients of points whose labels are drawn from their posteriors.

    At equal prevalences, the posteriors are those of the temperature and offsets x. A class whose points have twice the
    weight is half as frequent.
    """
    size = len(x)
    noise = np.zeros((size, size))
    for row in scores:
        share = np.exp(log_softmax(x[0] * row + x[1:]))
        frequency = share / class_weights
        frequency /= frequency.sum()
        for label, probability in enumerate(frequency):
            wrong = class_weights[label] * (share - np.eye(size - 1)[label])
            slope = np.append(wrong @ row, wrong)
            noise += probability * np.outer(slope, slope)
    return noise
