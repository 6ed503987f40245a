"""The likelihood of class prevalences p, given the likelihoods of rows in each class: Σᵢ ln Σⱼ pⱼ·Lᵢⱼ."""

from __future__ import annotations

import math

import numpy as np

from quapy_nemsis._jit import Routine, real, reals, tables, types


def _maximise(likelihoods, p, pseudo, tolerance, most):
    """Move p to the maximum of Σᵢ ln Σⱼ pⱼ·Lᵢⱼ + pseudo·Σⱼ ln pⱼ, by expectation-maximisation.

    Each step replaces p by the mean posterior of the rows at the prevalences p, with ``pseudo`` more rows of each
    class. Stops when no entry changes by more than ``tolerance``, or after so many steps; returns their number.
    """
    n_rows, n_classes = likelihoods.shape
    sums = np.empty(n_classes)
    over = 1.0 / (n_rows + n_classes * pseudo)
    for step in range(most):
        sums[:] = pseudo
        for i in range(n_rows):
            total = 0.0
            for j in range(n_classes):
                total += p[j] * likelihoods[i, j]
            factor = 1.0 / total
            for j in range(n_classes):
                sums[j] += p[j] * likelihoods[i, j] * factor
        change = 0.0
        for j in range(n_classes):
            new = sums[j] * over
            change = max(change, abs(new - p[j]))
            p[j] = new
        if change <= tolerance:
            return step + 1
    return most


def _maximise_weighted(likelihoods, weights, p, pseudo, tolerance, most):
    """Move p to the maximum of Σᵢ wᵢ·ln Σⱼ pⱼ·Lᵢⱼ + pseudo·Σⱼ ln pⱼ, like `_maximise`, which it is if all wᵢ = 1."""
    n_rows, n_classes = likelihoods.shape
    sums = np.empty(n_classes)
    over = 1.0 / (weights.sum() + n_classes * pseudo)
    for step in range(most):
        sums[:] = pseudo
        for i in range(n_rows):
            total = 0.0
            for j in range(n_classes):
                total += p[j] * likelihoods[i, j]
            factor = weights[i] / total
            for j in range(n_classes):
                sums[j] += p[j] * likelihoods[i, j] * factor
        change = 0.0
        for j in range(n_classes):
            new = sums[j] * over
            change = max(change, abs(new - p[j]))
            p[j] = new
        if change <= tolerance:
            return step + 1
    return most


def _moments(likelihoods, p, first, second):
    """Add the posteriors of the rows at the prevalences p to ``first``, and their products to ``second``.

    Returns the log-likelihood of p.
    """
    n_rows, n_classes = likelihoods.shape
    r = np.empty(n_classes)
    value = 0.0
    for i in range(n_rows):
        total = 0.0
        for j in range(n_classes):
            r[j] = p[j] * likelihoods[i, j]
            total += r[j]
        value += math.log(total)
        factor = 1.0 / total
        for j in range(n_classes):
            r[j] *= factor
            first[j] += r[j]
        for j in range(n_classes):
            for k in range(n_classes):
                second[j, k] += r[j] * r[k]
    return value


maximise = Routine(_maximise, types.int64(tables, reals, real, real, types.int64))
maximise_weighted = Routine(
    _maximise_weighted, types.int64(tables, reals, reals, real, real, types.int64)
)
moments = Routine(_moments, real(tables, reals, reals, tables))
