"""A solver for small quadratic programmes: the dual problem of a cutting-plane learner."""

from __future__ import annotations

import numpy as np

from quapy_nemsis._jit import Routine, real, reals, tables, types


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


minimise = Routine(_minimise, types.int64(tables, reals, reals, real, types.int64))
