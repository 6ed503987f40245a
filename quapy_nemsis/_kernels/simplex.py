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
def _on_face(gram, linear, places, n, factor, x, ones):
    """Minimise ½·xᵀGx − l·x over all x with sum 1, of the n coordinates at some places; write x, return the multiplier.

    With G = LLᵀ, Ga = l and Gb = 1, the minimum is x = a − ν·b, where ν makes the sum 1.
    """
    for i in range(n):
        for k in range(i + 1):
            total = gram[places[i], places[k]]
            for t in range(k):
                total -= factor[i, t] * factor[k, t]
            factor[i, k] = math.sqrt(max(total, 1e-300)) if i == k else total / factor[k, k]
    for i in range(n):
        a, b = linear[places[i]], 1.0
        for t in range(i):
            a -= factor[i, t] * x[t]
            b -= factor[i, t] * ones[t]
        x[i], ones[i] = a / factor[i, i], b / factor[i, i]
    sum_a, sum_b = 0.0, 0.0
    for i in range(n - 1, -1, -1):
        a, b = x[i], ones[i]
        for t in range(i + 1, n):
            a -= factor[t, i] * x[t]
            b -= factor[t, i] * ones[t]
        x[i], ones[i] = a / factor[i, i], b / factor[i, i]
        sum_a += x[i]
        sum_b += ones[i]
    multiplier = (sum_a - 1.0) / sum_b
    for i in range(n):
        x[i] -= multiplier * ones[i]
    return multiplier


@jitable
def descend(gram, linear, p):
    """Move p to the minimum of ½·pᵀGp − l·p over all p ≥ 0 with sum 1; G is positive definite.

    This is the primal active-set method: the minimum over the positive coordinates is exact. If it lies outside of the
    simplex, p moves towards it until a coordinate is 0, which then stays there. If it lies inside, the coordinate at 0
    that lowers the value most is set free, until there is none. Each step lowers the value, so that no set of positive
    coordinates comes twice. The number of steps is limited because rounding could make one come again.
    """
    m = p.shape[0]
    free = p > 0.0
    places, factor = np.empty(m, np.int64), np.empty((m, m))
    x, ones = np.empty(m), np.empty(m)
    scale = 0.0
    for j in range(m):
        scale = max(scale, gram[j, j])
    for _ in range(20 * m):
        n = 0
        for j in range(m):
            if free[j]:
                places[n] = j
                n += 1
        multiplier = _on_face(gram, linear, places, n, factor, x, ones)
        length, hit = 1.0, -1
        for i in range(n):
            if x[i] < 0.0:
                before = p[places[i]]
                if before < length * (before - x[i]):
                    length, hit = before / (before - x[i]), places[i]
        for i in range(n):
            p[places[i]] += length * (x[i] - p[places[i]])
        if hit >= 0:
            p[hit] = 0.0
            free[hit] = False
            continue
        entering, lowest = -1, -multiplier - 1e-13 * scale
        for j in range(m):
            if not free[j]:
                slope = -linear[j]
                for i in range(n):
                    slope += gram[j, places[i]] * p[places[i]]
                if slope < lowest:
                    entering, lowest = j, slope
        if entering < 0:
            return
        free[entering] = True


@jitable
def add_ridge(gram):
    """Make G positive definite: add 10⁻¹⁰ of the mean of its diagonal to the diagonal. Returns what is added.

    A minimum with the ridge around a point is closer to the minimum without than that point is. Taking it again and
    again around the last one leads there, and among several minima to one near the starting point.
    """
    m = gram.shape[0]
    ridge = 0.0
    for j in range(m):
        ridge += gram[j, j]
    ridge = max(1e-10 * ridge / m, 1e-300)
    for j in range(m):
        gram[j, j] += ridge
    return ridge


def _adjust(rates, shares, prevalences):
    """Write for each sample the prevalences p that minimise ‖Ap − q‖ over the simplex.

    A are ``rates``, with the classes in columns, and q is the sample's row of ``shares``. If the minimum is not unique,
    p is one near equal prevalences.
    """
    m = rates.shape[1]
    gram = np.zeros((m, m))
    for i in range(rates.shape[0]):
        for j in range(m):
            for k in range(m):
                gram[j, k] += rates[i, j] * rates[i, k]
    ridge = add_ridge(gram)
    linear, before = np.empty(m), np.empty(m)
    for s in range(shares.shape[0]):
        p = prevalences[s]
        p[:] = 1.0 / m
        for _ in range(30):
            for j in range(m):
                before[j] = p[j]
                linear[j] = ridge * p[j]
                for i in range(rates.shape[0]):
                    linear[j] += rates[i, j] * shares[s, i]
            descend(gram, linear, p)
            change = 0.0
            for j in range(m):
                change = max(change, abs(p[j] - before[j]))
            if change <= 1e-10:
                break


minimise = Routine(_minimise, types.int64(tables, reals, reals, real, types.int64))
adjust = Routine(_adjust, types.void(tables, tables, tables))
