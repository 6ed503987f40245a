"""The level phase of SCAN (lines 14-18 of Algorithm 3): rewards of a fixed model, summed per class."""

from __future__ import annotations

import math

import numpy as np

from quapy_nemsis._jit import (
    Kernel,
    Optional,
    Record,
    Wide,
    flags,
    integers,
    real,
    reals,
    records,
    tables,
    types,
)
from quapy_nemsis._kernels.rows import AHEAD, dot, prefetch
from quapy_nemsis.surrogates import reward

#: Sum of the rewards and weight of the points, for each class.
SUMS = Record(sums=("reward_pos", "positives", "reward_neg", "negatives"))


def _level(rows, order, positive, weights, reward_kind, counts, bound, w, b, sums, taken):
    """Add up the rewards of ``rows`` in ``order``, with one model per row of ``w``.

    ``taken`` must be zeros at the start. It counts the points of each model, and stops where a score is not finite.
    """
    weighted = weights.shape[0] > 0
    n_learners = np.uint64(taken.shape[0])
    total = order.shape[0]
    for at in range(total):
        if at + AHEAD < total:
            prefetch(rows, order[at + AHEAD])
        i = order[at]
        is_pos = positive[i]
        weight = weights[i] if weighted else 1.0
        for k in range(n_learners):
            if taken[k] < at:
                continue
            product, _ = dot(rows, i, w, k)
            score = product + b[k]
            if not math.isfinite(score):
                continue
            taken[k] = at + 1
            margin = score if is_pos else -score
            if counts:
                r = 1.0 if margin > 0.0 else 0.0
            else:
                r = max(reward(reward_kind, margin), -bound)
            if is_pos:
                sums[k].reward_pos += weight * r
                sums[k].positives += weight
            else:
                sums[k].reward_neg += weight * r
                sums[k].negatives += weight


level = Kernel(
    _level,
    types.void,
    flags,
    Optional(reals),
    types.int64,
    types.boolean,
    real,
    Wide(tables),
    reals,
    records(SUMS.dtype),
    integers,
)
