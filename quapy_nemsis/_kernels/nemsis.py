"""The NEMSIS step (Algorithm 1 of the paper), one point at a time, over rows in any given order.

Any number of learners that differ in step size, radius or parameters of the measure walk together: a row comes from
memory once, what depends on the point alone is computed once, and the processor overlaps the learners' steps.

The state of a learner between two points is four arrays, so that a stream can be cut anywhere:

* ``v``: the weights without their scale, w = scale·v. A projection changes the scale only.
* ``lag``, ``before``: sums for the averaged model, see below.
* ``scalars``: the numbers named below, all float64 (counts are exact up to 2**53).

Averaging without a dense addition per step: with S the sum of the scales of the iterates since the average began,
and c_j·x_j the change of v at step j, the sum of these iterates is

    Σ w = S·v − lag,    lag = Σ_j S_j·c_j·x_j,

where S_j is S just before step j. So only rows that change the weights touch ``lag``. The suffix average begins anew at
every power of two and keeps the finished window in ``before``: together the two windows hold at least the last half of
all iterates, wherever the stream stops.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from quapy_nemsis._jit import (
    ASK_EPS,
    ASK_N,
    ASK_P,
    ASK_Q1,
    ASK_Q2,
    ASK_SHARE,
    WEIGHT_NEG,
    WEIGHT_POS,
    ZETA1,
    ZETA1_N,
    ZETA1_P,
    ZETA2,
    ZETA2_N,
    ZETA2_P,
    Kernel,
    call,
    real,
    reals,
    tables,
)
from quapy_nemsis._kernels.rows import AHEAD, axpy, axpy2, dot, prefetch
from quapy_nemsis.rewards import reward, slope

# What `scalars` holds.
(
    STEPS,  # points seen
    POSITIVES,  # positives among them
    REWARD_POS,  # sum of the (0-1 or surrogate) rewards of the positives
    REWARD_NEG,
    Q1,  # sums of the linearised ζ₁ and ζ₂ (line 13)
    Q2,
    INTERCEPT,
    SCALE,
    NORM2,  # v·v
    SCALE_SUM,  # S
    INTERCEPT_SUM,  # of the iterates since the average began
    INTERCEPT_BEFORE,  # the same, of the finished window
    SIZES,  # sum of min(x·x, 1)
    N_SCALARS,
) = range(14)

LAST, ALL, SUFFIX = 0, 1, 2

# Before the scale falls below this, v is multiplied out and S·v moves to lag, so that S begins anew: S·v − lag cancels
# as many digits as the scale has shrunk by since S began.
_SMALLEST_SCALE = 1e-4
# Every so many points v·v is summed afresh, so that rounding errors of its updates do not pile up.
_RENORM_MASK = (1 << 16) - 1


def _nemsis(
    rows,
    positive,
    order,
    callback,
    duals,
    affine,
    reward_kind,
    counts,
    monotone,
    eta0,
    radius,
    bound,
    fit_intercept,
    average,
    v,
    lag,
    before,
    scalars,
    taken,
):
    """Walk ``rows`` in ``order`` with one learner per row of the state's arrays; all have seen the same points.

    ``taken``, zeros before, counts the points of each; a learner whose score is not finite stops there for good.
    """
    n_learners = np.uint64(taken.shape[0])
    width = v.shape[1]
    t = np.int64(scalars[0, STEPS])
    n_pos = np.int64(scalars[0, POSITIVES])
    over_t = 1.0 / max(t, 1)
    over_pos = 1.0 / max(n_pos, 1)
    over_neg = 1.0 / max(t - n_pos, 1)
    total = order.shape[0]
    for at in range(total):
        if at + AHEAD < total:
            prefetch(rows, order[at + AHEAD])
        i = order[at]
        past, past_pos, past_neg = over_t, over_pos, over_neg
        is_pos = positive[i]
        t += 1
        n_pos += is_pos
        over_t = 1.0 / t
        over_pos = 1.0 / max(n_pos, 1)
        over_neg = 1.0 / max(t - n_pos, 1)
        share = n_pos * over_t
        y = 1.0 if is_pos else -1.0
        over_class = over_pos if is_pos else over_neg
        class_weight = WEIGHT_POS if is_pos else WEIGHT_NEG
        class_reward = REWARD_POS if is_pos else REWARD_NEG
        # η_t/p_y = (η₀/√t)·(t/n_y)
        rate = math.sqrt(t) * over_class
        window = average == SUFFIX and (t & (t - 1)) == 0

        for k in range(n_learners):
            if taken[k] < at:
                continue
            if window:
                scale_sum = scalars[k, SCALE_SUM]
                for j in range(width):
                    before[k, j] = scale_sum * v[k, j] - lag[k, j]
                    lag[k, j] = 0.0
                scalars[k, INTERCEPT_BEFORE] = scalars[k, INTERCEPT_SUM]
                scalars[k, SCALE_SUM] = 0.0
                scalars[k, INTERCEPT_SUM] = 0.0

            # Estimates from the points before this one; a class not seen yet counts as reward 0 (line 1).
            P = scalars[k, REWARD_POS] * past_pos
            N = scalars[k, REWARD_NEG] * past_neg
            # Lines 15-17: the duals are gradients (the paper's appendix A).
            duals[k, ASK_P] = P
            duals[k, ASK_N] = N
            duals[k, ASK_Q1] = scalars[k, Q1] * past
            duals[k, ASK_Q2] = scalars[k, Q2] * past
            duals[k, ASK_SHARE] = share
            duals[k, ASK_EPS] = 0.5 * over_t
            call(callback, duals, k)
            product, square = dot(rows, i, v, k)
            scale, b = scalars[k, SCALE], scalars[k, INTERCEPT]
            score = scale * product + b
            if not math.isfinite(score):
                continue
            taken[k] = at + 1
            scalars[k, SIZES] += min(square, 1.0)
            margin = y * score

            # Lines 5-11: primal ascent. Line 1 sets the duals to 0, so the first point only starts the estimates.
            weight = duals[k, class_weight]
            if monotone:
                weight = max(weight, 0.0)
            step = eta0[k] * rate * weight * slope(reward_kind, margin) * y
            if step != 0.0 and t > 1:
                norm2, scale_sum = scalars[k, NORM2], scalars[k, SCALE_SUM]
                radius2 = radius[k] * radius[k]
                c = step / scale
                grown = norm2 + c * (2.0 * product + c * square)
                if radius2 < _SMALLEST_SCALE * _SMALLEST_SCALE * grown:
                    for j in range(width):
                        lag[k, j] -= scale_sum * v[k, j]
                        v[k, j] *= scale
                    scale_sum = 0.0
                    scalars[k, SCALE_SUM] = 0.0
                    c = step
                    grown = scale * (scale * norm2 + c * 2.0 * product) + c * c * square
                    scale = 1.0
                if average == LAST:
                    axpy(rows, i, c, v, k)
                else:
                    axpy2(rows, i, c, v, scale_sum * c, lag, k)
                norm2 = max(grown, 0.0)
                if fit_intercept:
                    # As for a feature of value 1, or of the rows' size where that is less: it would drown them.
                    b += step * scalars[k, SIZES] * over_t
                    scalars[k, INTERCEPT] = b
                if scale * scale * norm2 > radius2:
                    scale = radius[k] / math.sqrt(norm2)
                scalars[k, NORM2] = norm2
                scalars[k, SCALE] = scale
            if (t & _RENORM_MASK) == 0:
                norm2 = 0.0
                for j in range(width):
                    norm2 += v[k, j] * v[k, j]
                scalars[k, NORM2] = norm2
            scalars[k, SCALE_SUM] += scale
            scalars[k, INTERCEPT_SUM] += b

            # Lines 7, 10, 12, 13: the estimates.
            if counts:
                r = 1.0 if margin > 0.0 else 0.0
            else:
                r = max(reward(reward_kind, margin), -bound)
            if not affine:
                s = r * t * over_class
                s_pos = s if is_pos else 0.0
                s_neg = 0.0 if is_pos else s
                scalars[k, Q1] += (
                    duals[k, ZETA1]
                    + duals[k, ZETA1_P] * (s_pos - P)
                    + duals[k, ZETA1_N] * (s_neg - N)
                )
                scalars[k, Q2] += (
                    duals[k, ZETA2]
                    + duals[k, ZETA2_P] * (s_pos - P)
                    + duals[k, ZETA2_N] * (s_neg - N)
                )
            scalars[k, class_reward] += r

    for k in range(n_learners):
        if taken[k] == total:
            scalars[k, STEPS] = t
            scalars[k, POSITIVES] = n_pos


nemsis = Kernel(
    _nemsis,
    types.void,
    types.Array(types.boolean, 1, "C"),
    types.Array(types.int64, 1, "C"),
    types.uintp,
    tables,
    types.boolean,
    types.int64,
    types.boolean,
    types.boolean,
    reals,
    reals,
    real,
    types.boolean,
    types.int64,
    tables,
    tables,
    tables,
    tables,
    types.Array(types.int64, 1, "C"),
)
