"""Solvers for small quadratic programmes over the simplex.

`minimise` is for the dual problem of a cutting-plane learner, whose matrix may be singular and large. `descend` is
exact, because it solves systems of equations. It is for as many coordinates as there are classes.
"""

from __future__ import annotations

import math

import numpy as np

from quapy_nemsis._jit import Routine, jitable, real, reals, tables, types


def _minimise(gram, linear, alpha, tolerance, max_iter):
    """Minimise ½·αᵀGα − l·α over all α ≥ 0 with the sum of the given ``alpha``, which is the starting point.

    Each step changes two coordinates (SMO): the one with the lowest slope grows, and the one that gives the greatest
    gain shrinks. Stops when no slope of a positive coordinate is more than ``tolerance`` above the lowest slope. The
    value is then within ``tolerance`` times the sum of α of the minimum. Returns the number of steps.
    """
    m = alpha.shape[0]
    slope = np.empty(m)
    for i in range(m):
        total = -linear[i]
        for j in range(m):
            total += gram[i, j] * alpha[j]
        slope[i] = total
    for step in range(max_iter):
        grows = np.argmin(slope)
        least = slope[grows]
        shrinks, gain, moved, highest = -1, 0.0, 0.0, least
        for j in range(m):
            if alpha[j] <= 0.0 or slope[j] <= least:
                continue
            highest = max(highest, slope[j])
            difference = slope[j] - least
            curvature = max(gram[grows, grows] + gram[j, j] - 2.0 * gram[grows, j], 1e-300)
            length = min(difference / curvature, alpha[j])
            gained = length * (difference - 0.5 * curvature * length)
            if gained > gain:
                shrinks, gain, moved = j, gained, length
        if highest - least <= tolerance or shrinks < 0:
            return step
        alpha[grows] += moved
        alpha[shrinks] -= moved
        for j in range(m):
            slope[j] += moved * (gram[j, grows] - gram[j, shrinks])
    return max_iter


@jitable
def _on_face(gram, slope, places, n, factor, step, ones):
    """Minimise ½·dᵀGd + s·d over all d with sum 0, of the n coordinates at some places; write d to ``step``.

    With G = LLᵀ, Ga = −s and Gb = 1, the minimum is d = a − ν·b, where ν makes the sum 0. The mean of s, which makes no
    difference, is subtracted first, so that d has all its digits where it is small.
    """
    mean = 0.0
    for i in range(n):
        mean += slope[places[i]] / n
        for k in range(i + 1):
            total = gram[places[i], places[k]]
            for t in range(k):
                total -= factor[i, t] * factor[k, t]
            factor[i, k] = math.sqrt(max(total, 1e-300)) if i == k else total / factor[k, k]
    for i in range(n):
        a, b = mean - slope[places[i]], 1.0
        for t in range(i):
            a -= factor[i, t] * step[t]
            b -= factor[i, t] * ones[t]
        step[i], ones[i] = a / factor[i, i], b / factor[i, i]
    sum_a, sum_b = 0.0, 0.0
    for i in range(n - 1, -1, -1):
        a, b = step[i], ones[i]
        for t in range(i + 1, n):
            a -= factor[t, i] * step[t]
            b -= factor[t, i] * ones[t]
        step[i], ones[i] = a / factor[i, i], b / factor[i, i]
        sum_a += step[i]
        sum_b += ones[i]
    for i in range(n):
        step[i] -= sum_a / sum_b * ones[i]


@jitable
def descend(gram, slope, p):
    """Move p, which is in the simplex, by the d that minimises ½·dᵀGd + s·d such that p + d is in the simplex.

    G is positive definite, and ``slope``, the gradient s at p, is overwritten. This is the primal active-set method:
    the minimum over the positive coordinates is exact. If it lies outside of the simplex, p moves towards it until a
    coordinate is 0, which then stays there. If it lies inside, the coordinate at 0 that lowers the value most is set
    free, until there is none. Each step lowers the value, so that no set of positive coordinates comes twice. The
    number of steps is limited because rounding could make one come again.
    """
    m = p.shape[0]
    free = p > 0.0
    places, factor = np.empty(m, np.int64), np.empty((m, m))
    step, ones = np.empty(m), np.empty(m)
    scale = 0.0
    for j in range(m):
        scale = max(scale, gram[j, j])
    for _ in range(20 * m):
        n = 0
        for j in range(m):
            if free[j]:
                places[n] = j
                n += 1
        _on_face(gram, slope, places, n, factor, step, ones)
        length, hit = 1.0, -1
        for i in range(n):
            before = p[places[i]]
            if before + length * step[i] < 0.0:
                length, hit = -before / step[i], places[i]
        for i in range(n):
            p[places[i]] += length * step[i]
        level = 0.0
        for j in range(m):
            for i in range(n):
                slope[j] += length * gram[j, places[i]] * step[i]
            if free[j]:
                level += slope[j] / n
        if hit >= 0:
            p[hit] = 0.0
            free[hit] = False
            continue
        entering, lowest = -1, level - 1e-13 * scale
        for j in range(m):
            if not free[j] and slope[j] < lowest:
                entering, lowest = j, slope[j]
        if entering < 0:
            break
        free[entering] = True
    total = 0.0
    for j in range(m):
        total += p[j]
    for j in range(m):
        p[j] /= total


@jitable
def add_ridge(gram):
    """Make G positive definite: add 10⁻⁹ of the mean of its diagonal to the diagonal.

    Steps of `descend` with the ridge are shorter than without, in directions in which G is flat. Taking them again and
    again leads to the same minimum, and among several minima to one near the starting point.
    """
    m = gram.shape[0]
    ridge = 0.0
    for j in range(m):
        ridge += gram[j, j]
    for j in range(m):
        gram[j, j] += max(1e-9 * ridge / m, 1e-300)


def _adjust(rates, shares, prevalences):
    """Write for each sample the prevalences p that minimise ‖Ap − q‖ over the simplex.

    A are ``rates``, with the classes in columns, and q is the sample's row of ``shares``. If the minimum is not unique,
    p is one near equal prevalences.
    """
    n, m = rates.shape
    gram = np.zeros((m, m))
    for i in range(n):
        for j in range(m):
            for k in range(m):
                gram[j, k] += rates[i, j] * rates[i, k]
    add_ridge(gram)
    slope, before = np.empty(m), np.empty(m)
    for s in range(shares.shape[0]):
        p = prevalences[s]
        p[:] = 1.0 / m
        for _ in range(100):
            before[:] = p
            slope[:] = 0.0
            for i in range(n):
                residual = -shares[s, i]
                for j in range(m):
                    residual += rates[i, j] * p[j]
                for j in range(m):
                    slope[j] += rates[i, j] * residual
            descend(gram, slope, p)
            change = 0.0
            for j in range(m):
                change = max(change, abs(p[j] - before[j]))
            if change <= 1e-9:
                break


minimise = Routine(_minimise, types.int64(tables, reals, reals, real, types.int64))
adjust = Routine(_adjust, types.void(tables, tables, tables))
