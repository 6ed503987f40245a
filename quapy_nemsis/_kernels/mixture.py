"""The likelihood of class prevalences p, given the likelihoods of rows in each class: Σᵢ ln Σⱼ pⱼ·Lᵢⱼ."""

from __future__ import annotations

import math

import numpy as np

from quapy_nemsis._jit import REORDERED, Routine, integers, jitable, real, reals, tables, types
from quapy_nemsis._kernels.simplex import add_ridge, descend


@jitable
def _maximise(likelihoods, weights, p, pseudo, tolerance, most):
    """Move p to the maximum of Σᵢ wᵢ·ln Σⱼ pⱼ·Lᵢⱼ + pseudo·Σⱼ ln pⱼ, by expectation-maximisation.

    Each step replaces p by the mean posterior of the rows at the prevalences p, with ``pseudo`` more rows of each
    class. Stops when no entry changes by more than ``tolerance``, or after so many steps; returns their number.
    """
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


@jitable
def _value(likelihoods, p):
    """Mean log-likelihood of p."""
    n_rows, n_classes = likelihoods.shape
    value = 0.0
    for i in range(n_rows):
        total = 0.0
        for j in range(n_classes):
            total += p[j] * likelihoods[i, j]
        value += math.log(total)
    return value / n_rows


@jitable
def _derivatives(likelihoods, p, first, second):
    """Write the first derivatives of the mean log-likelihood of p, and minus the second ones; return the value."""
    n_rows, n_classes = likelihoods.shape
    first[:] = 0.0
    second[:] = 0.0
    r = np.empty(n_classes)
    value = 0.0
    for i in range(n_rows):
        total = 0.0
        for j in range(n_classes):
            total += p[j] * likelihoods[i, j]
        value += math.log(total)
        factor = 1.0 / total
        for j in range(n_classes):
            r[j] = likelihoods[i, j] * factor
            first[j] += r[j]
        for j in range(n_classes):
            for k in range(j + 1):
                second[j, k] += r[j] * r[k]
    for j in range(n_classes):
        first[j] /= n_rows
        for k in range(j + 1):
            second[j, k] /= n_rows
            second[k, j] = second[j, k]
    return value / n_rows


@jitable
def _maximise_exactly(likelihoods, p, gap, most):
    """Move p to the maximum of the mean log-likelihood over the simplex, by Newton's method.

    A few steps of expectation-maximisation come first. Each step of Newton's method is a quadratic programme over the
    simplex, and is halved until the likelihood rises. The mean log-likelihood is concave and its slope along p is 1, so
    that no p has one that is greater by more than the largest first derivative minus 1. Stops when that is at most
    ``gap``, or after so many steps; returns it.
    """
    n_classes = p.shape[0]
    first, second = np.empty(n_classes), np.empty((n_classes, n_classes))
    downhill, target, moved = np.empty(n_classes), np.empty(n_classes), np.empty(n_classes)
    _maximise(likelihoods, np.ones(likelihoods.shape[0]), p, 0.0, 0.0, 5)
    excess = np.inf
    for _ in range(most):
        value = _derivatives(likelihoods, p, first, second)
        excess = first.max() - 1.0
        if not excess > gap:
            break
        add_ridge(second)
        for j in range(n_classes):
            target[j], downhill[j] = p[j], -first[j]
        descend(second, downhill, target)
        slope = 0.0
        for j in range(n_classes):
            slope += first[j] * (target[j] - p[j])
        length = 1.0
        for _ in range(50):
            for j in range(n_classes):
                moved[j] = max(p[j] + length * (target[j] - p[j]), 0.0)
            if _value(likelihoods, moved) >= value + 1e-4 * length * slope - 1e-15 * abs(value):
                break
            length *= 0.5
        p[:] = moved
    return excess


def _maximise_samples(likelihoods, rows, starts, prevalences, gap, most):
    """Write for each sample the prevalences of greatest likelihood, starting from those that stand there.

    Sample s consists of the rows ``rows[starts[s]:starts[s + 1]]``. Returns the largest gap (see `_maximise_exactly`).
    """
    n_classes = likelihoods.shape[1]
    largest = 0.0
    for s in range(prevalences.shape[0]):
        first, last = starts[s], starts[s + 1]
        part = np.empty((last - first, n_classes))
        for i in range(first, last):
            part[i - first] = likelihoods[rows[i]]
        largest = max(largest, _maximise_exactly(part, prevalences[s], gap, most))
    return largest


maximise = Routine(_maximise, types.int64(tables, reals, reals, real, real, types.int64))
moments = Routine(_moments, real(tables, reals, reals, tables))
maximise_samples = Routine(
    _maximise_samples,
    real(tables, integers, integers, tables, real, types.int64),
    fastmath=REORDERED,
)
