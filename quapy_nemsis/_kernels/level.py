"""The level phase of SCAN (lines 14-18 of Algorithm 3): rewards of a fixed model, summed per class."""

from __future__ import annotations

import math

from numba import types

from quapy_nemsis._jit import Kernel, real, reals
from quapy_nemsis._kernels.rows import AHEAD, dot, prefetch
from quapy_nemsis.rewards import reward

# What `sums` holds.
SUM_POS, COUNT_POS, SUM_NEG, COUNT_NEG = range(4)


def _level(rows, positive, order, reward_kind, counts, bound, w, b, sums):
    """Add the rewards of ``rows`` in ``order``; return how many were taken before a score was not finite."""
    total = order.shape[0]
    for k in range(total):
        if k + AHEAD < total:
            prefetch(rows, order[k + AHEAD])
        i = order[k]
        product, _ = dot(rows, i, w)
        score = product + b
        if not math.isfinite(score):
            return k
        margin = score if positive[i] else -score
        if counts:
            r = 1.0 if margin > 0.0 else 0.0
        else:
            r = max(reward(reward_kind, margin), -bound)
        if positive[i]:
            sums[SUM_POS] += r
            sums[COUNT_POS] += 1.0
        else:
            sums[SUM_NEG] += r
            sums[COUNT_NEG] += 1.0
    return total


level = Kernel(
    _level,
    types.int64,
    types.Array(types.boolean, 1, "C"),
    types.Array(types.int64, 1, "C"),
    types.int64,
    types.boolean,
    real,
    reals,
    real,
    reals,
)
