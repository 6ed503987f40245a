"""The NEMSIS step (Algorithm 1 of the paper), one point at a time, over rows in any given order.

Any number of learners that differ in step size, radius or parameters of the measure walk together: each takes a block
of rows in turn, so that a row comes from memory once and from the cache for all but the first.

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
from numba.extending import register_jitable

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
from quapy_nemsis._kernels.rows import AHEAD, BLOCK, axpy, axpy2, dot, prefetch
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
    N_SCALARS,
) = range(13)

LAST, ALL, SUFFIX = 0, 1, 2

# Before the scale falls below this, v is multiplied out and S·v moves to lag, so that S begins anew: S·v − lag cancels
# as many digits as the scale has shrunk by since S began.
_SMALLEST_SCALE = 1e-4
# Every so many points v·v is summed afresh, so that rounding errors of its updates do not pile up.
_RENORM_MASK = (1 << 16) - 1


@register_jitable
def _steps(
    rows,
    positive,
    order,
    begin,
    end,
    fresh,
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
):
    """Walk ``rows`` in ``order[begin:end]``; return where it stopped, before the end if a score was not finite."""
    t = np.int64(scalars[STEPS])
    n_pos = np.int64(scalars[POSITIVES])
    r_pos, r_neg = scalars[REWARD_POS], scalars[REWARD_NEG]
    q1, q2 = scalars[Q1], scalars[Q2]
    b, scale, norm2 = scalars[INTERCEPT], scalars[SCALE], scalars[NORM2]
    scale_sum, b_sum, b_before = (
        scalars[SCALE_SUM],
        scalars[INTERCEPT_SUM],
        scalars[INTERCEPT_BEFORE],
    )
    over_t = 1.0 / max(t, 1)
    over_pos = 1.0 / max(n_pos, 1)
    over_neg = 1.0 / max(t - n_pos, 1)
    total = order.shape[0] if fresh else 0
    done = end
    for k in range(begin, end):
        if k + AHEAD < total:
            prefetch(rows, order[k + AHEAD])
        i = order[k]
        # Estimates from the points before this one; a class not seen yet counts as reward 0 (line 1).
        P = r_pos * over_pos
        N = r_neg * over_neg
        over_past = over_t
        is_pos = positive[i]
        t += 1
        n_pos += is_pos
        over_t = 1.0 / t
        over_pos = 1.0 / max(n_pos, 1)
        over_neg = 1.0 / max(t - n_pos, 1)
        share = n_pos * over_t
        y = 1.0 if is_pos else -1.0
        over_class = over_pos if is_pos else over_neg

        if average == SUFFIX and (t & (t - 1)) == 0:
            for j in range(v.shape[0]):
                before[j] = scale_sum * v[j] - lag[j]
                lag[j] = 0.0
            b_before = b_sum
            scale_sum = 0.0
            b_sum = 0.0

        # Lines 15-17: the duals are gradients (the paper's appendix A).
        duals[ASK_P] = P
        duals[ASK_N] = N
        duals[ASK_Q1] = q1 * over_past
        duals[ASK_Q2] = q2 * over_past
        duals[ASK_SHARE] = share
        duals[ASK_EPS] = 0.5 * over_t
        call(callback, duals)
        product, square = dot(rows, i, v)
        score = scale * product + b
        if not math.isfinite(score):
            done = k
            break
        margin = y * score

        # Lines 5-11: primal ascent. Line 1 sets the duals to 0, so the first point only starts the estimates.
        weight = duals[WEIGHT_POS] if is_pos else duals[WEIGHT_NEG]
        if monotone:
            weight = max(weight, 0.0)
        # η_t/p_y = (η₀/√t)·(t/n_y)
        rate = eta0 * math.sqrt(t) * over_class
        step = rate * weight * slope(reward_kind, margin) * y
        if step != 0.0 and t > 1:
            c = step / scale
            grown = norm2 + c * (2.0 * product + c * square)
            if radius * radius < _SMALLEST_SCALE * _SMALLEST_SCALE * grown:
                for j in range(v.shape[0]):
                    lag[j] -= scale_sum * v[j]
                    v[j] *= scale
                scale_sum = 0.0
                c = step
                grown = scale * (scale * norm2 + c * 2.0 * product) + c * c * square
                scale = 1.0
            if average == LAST:
                axpy(rows, i, c, v)
            else:
                axpy2(rows, i, c, v, scale_sum * c, lag)
            norm2 = max(grown, 0.0)
            if fit_intercept:
                b += step
            if scale * scale * norm2 > radius * radius:
                scale = radius / math.sqrt(norm2)
        if (t & _RENORM_MASK) == 0:
            norm2 = 0.0
            for j in range(v.shape[0]):
                norm2 += v[j] * v[j]
        scale_sum += scale
        b_sum += b

        # Lines 7, 10, 12, 13: the estimates.
        if counts:
            r = 1.0 if margin > 0.0 else 0.0
        else:
            r = max(reward(reward_kind, margin), -bound)
        if not affine:
            s = r * t * over_class
            s_pos = s if is_pos else 0.0
            s_neg = 0.0 if is_pos else s
            q1 += duals[ZETA1] + duals[ZETA1_P] * (s_pos - P) + duals[ZETA1_N] * (s_neg - N)
            q2 += duals[ZETA2] + duals[ZETA2_P] * (s_pos - P) + duals[ZETA2_N] * (s_neg - N)
        r_pos += r if is_pos else 0.0
        r_neg += 0.0 if is_pos else r

    scalars[STEPS] = t
    scalars[POSITIVES] = n_pos
    scalars[REWARD_POS], scalars[REWARD_NEG] = r_pos, r_neg
    scalars[Q1], scalars[Q2] = q1, q2
    scalars[INTERCEPT], scalars[SCALE], scalars[NORM2] = b, scale, norm2
    scalars[SCALE_SUM], scalars[INTERCEPT_SUM] = scale_sum, b_sum
    scalars[INTERCEPT_BEFORE] = b_before
    return done


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
    """Walk ``rows`` in ``order`` with one learner per row of the state's arrays.

    ``taken``, zeros before, counts the points of each; a learner whose score is not finite stops there for good.
    """
    total = order.shape[0]
    for begin in range(0, total, BLOCK):
        end = min(begin + BLOCK, total)
        fresh = True
        for k in range(taken.shape[0]):
            if taken[k] < begin:
                continue
            taken[k] = _steps(
                rows,
                positive,
                order,
                begin,
                end,
                fresh,
                callback,
                duals[k],
                affine,
                reward_kind,
                counts,
                monotone,
                eta0[k],
                radius[k],
                bound,
                fit_intercept,
                average,
                v[k],
                lag[k],
                before[k],
                scalars[k],
            )
            fresh = False


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
