"""The SPADE step (Narasimhan, Kar, Jain 2015, Algorithm 1), one point at a time, over rows in any given order.

Weights, scale and sums for the averaged model are those of `quapy_nemsis._kernels.nemsis`. The dual variables take the
place of the gradients of the measure.
"""

from __future__ import annotations

import math

import numpy as np

from quapy_nemsis._jit import (
    Kernel,
    Optional,
    Record,
    Wide,
    call,
    flags,
    integers,
    reals,
    records,
    tables,
    types,
)
from quapy_nemsis._kernels import nemsis as base
from quapy_nemsis._kernels.nemsis import (
    RENORM_MASK,
    SUFFIX,
    ascend,
    close_window,
    count_iterate,
    over,
)
from quapy_nemsis._kernels.rows import AHEAD, dot, prefetch, square_norm
from quapy_nemsis.measures.compiled import (
    DUAL_EPS,
    DUAL_NEG,
    DUAL_POS,
    DUAL_RATE_NEG,
    DUAL_RATE_POS,
    DUAL_SHARE_POS,
    DUAL_STEP,
)
from quapy_nemsis.surrogates import reward, slope

#: Counts, estimates and position of a learner, as in `quapy_nemsis._kernels.nemsis`; and its dual variables.
NUMBERS = Record(
    sums=tuple(name for name in base.NUMBERS.sums if name not in ("q1", "q2")),
    means=(*base.NUMBERS.means, "dual_pos", "dual_neg"),
    derived=base.NUMBERS.derived,
)
#: Parameters of a learner for the kernel. Learners that learn together may differ only in the first three.
OPTIONS = np.dtype(
    [
        ("eta0", np.float64),
        ("radius", np.float64),
        ("dual_step", np.float64),
        ("reward_bound", np.float64),
        ("reward", np.int64),
        ("average", np.int64),
        ("counts", np.int64),
        ("monotone", np.int64),
        ("fit_intercept", np.int64),
    ]
)


def _spade(
    rows, order, positive, weights, callback, asks, options, v, correction, previous, numbers, taken
):
    """Learn ``rows`` in ``order``, with one learner per row of the state arrays; all must have seen the same points.

    The arguments are those of `quapy_nemsis._kernels.nemsis`, but ``callback`` takes a step in the dual variables.
    """
    reward_kind, average = options[0].reward, options[0].average
    counts, monotone = options[0].counts != 0, options[0].monotone != 0
    fit_intercept, bound = options[0].fit_intercept != 0, options[0].reward_bound
    n_learners = np.uint64(taken.shape[0])
    weighted = weights.shape[0] > 0
    t = np.int64(numbers[0].steps)
    n_all, n_pos = numbers[0].weight, numbers[0].positives
    total = order.shape[0]
    for at in range(total):
        if at + AHEAD < total:
            prefetch(rows, order[at + AHEAD])
        i = order[at]
        is_pos = positive[i]
        weight = weights[i] if weighted else 1.0
        t += 1
        n_all += weight
        n_pos += weight if is_pos else 0.0
        over_all = over(n_all)
        over_class = over(n_pos) if is_pos else over(n_all - n_pos)
        y = 1.0 if is_pos else -1.0
        # η_t/p_y = (η₀/√t)·(t/n_y), for each of the rows that this one counts for
        rate = math.sqrt(n_all) * over_class * weight
        window = average == SUFFIX and (t & (t - 1)) == 0

        for k in range(n_learners):
            if taken[k] < at:
                continue
            own = numbers[k]
            if window:
                close_window(v, correction, previous, own, k)
            product, square = dot(rows, i, v, k)
            score = own.scale * product + own.intercept
            if not math.isfinite(score):
                continue
            taken[k] = at + 1
            own.sizes += weight * min(square, 1.0)
            margin = y * score

            # Primal ascent, with the dual variable of the class as its weight.
            gradient = own.dual_pos if is_pos else own.dual_neg
            if monotone:
                gradient = max(gradient, 0.0)
            step = options[k].eta0 * rate * gradient * slope(reward_kind, margin) * y
            if step != 0.0:
                ascend(
                    rows,
                    i,
                    step,
                    product,
                    square,
                    options[k].radius,
                    average,
                    fit_intercept,
                    over_all,
                    v,
                    correction,
                    own,
                    k,
                    asks,
                )
            if (t & RENORM_MASK) == 0:
                own.norm2 = square_norm(v, k)
            count_iterate(own)

            # Dual descent, with the reward of this point before it was learned as the estimate of the rates.
            if counts:
                r = 1.0 if margin > 0.0 else 0.0
            else:
                r = max(reward(reward_kind, margin), -bound)
            sample = r * n_all * over_class
            asks[k, DUAL_POS] = own.dual_pos
            asks[k, DUAL_NEG] = own.dual_neg
            asks[k, DUAL_RATE_POS] = sample if is_pos else 0.0
            asks[k, DUAL_RATE_NEG] = 0.0 if is_pos else sample
            asks[k, DUAL_STEP] = options[k].dual_step * weight / math.sqrt(n_all)
            asks[k, DUAL_SHARE_POS] = n_pos * over_all
            asks[k, DUAL_EPS] = 0.5 * over_all
            call(callback, asks, k)
            own.dual_pos = asks[k, DUAL_POS]
            own.dual_neg = asks[k, DUAL_NEG]
            if is_pos:
                own.reward_pos += weight * r
            else:
                own.reward_neg += weight * r

    for k in range(n_learners):
        if taken[k] == total:
            numbers[k].steps = t
            numbers[k].weight = n_all
            numbers[k].positives = n_pos


spade = Kernel(
    _spade,
    types.void,
    flags,
    Optional(reals),
    types.uintp,
    tables,
    records(OPTIONS),
    Wide(tables),
    Wide(tables),
    Wide(tables),
    records(NUMBERS.dtype),
    integers,
)
