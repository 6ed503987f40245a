"""The level phase of SCAN (lines 14-18 of Algorithm 3): rewards of a fixed model, summed per class."""

from __future__ import annotations

import math

from numba import types
from numba.extending import register_jitable

from quapy_nemsis._jit import Kernel, real, reals, tables
from quapy_nemsis._kernels.rows import AHEAD, BLOCK, dot, prefetch
from quapy_nemsis.rewards import reward

# What `sums` holds.
SUM_POS, COUNT_POS, SUM_NEG, COUNT_NEG = range(4)


@register_jitable
def _rewards(rows, positive, order, begin, end, fresh, reward_kind, counts, bound, w, b, sums):
    """Add the rewards of ``rows`` in ``order[begin:end]``; return where a score was not finite, or the end."""
    total = order.shape[0] if fresh else 0
    for k in range(begin, end):
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
    return end


def _level(rows, positive, order, reward_kind, counts, bound, w, b, sums, taken):
    """Add the rewards of ``rows`` in ``order``, for one model per row of ``w`` (see `quapy_nemsis._kernels.nemsis`)."""
    total = order.shape[0]
    for begin in range(0, total, BLOCK):
        end = min(begin + BLOCK, total)
        fresh = True
        for k in range(taken.shape[0]):
            if taken[k] < begin:
                continue
            taken[k] = _rewards(
                rows,
                positive,
                order,
                begin,
                end,
                fresh,
                reward_kind,
                counts,
                bound,
                w[k],
                b[k],
                sums[k],
            )
            fresh = False


level = Kernel(
    _level,
    types.void,
    types.Array(types.boolean, 1, "C"),
    types.Array(types.int64, 1, "C"),
    types.int64,
    types.boolean,
    real,
    tables,
    reals,
    tables,
    types.Array(types.int64, 1, "C"),
)
