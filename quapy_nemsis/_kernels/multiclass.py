"""The NEMSIS step and SCAN's level phase for K classes.

There is one weight vector for each class, f_j = w_j·x + b_j. A point (x, i) is pulled from class j to its own class i
with the force

    a_ij = α_i/p_i + λ_i − λ_j,

where α and λ are the derivatives of the measure by recalls and by counted prevalences: moving mass from j to i raises
the recall of i, raises the count of i and lowers the count of j. With the hinge reward (Crammer and Singer) j is the
highest-scoring other class; with the logistic reward (softmax) every other class j has the share s_j = softmax(f)_j of
the step. For measures of the recalls alone that is the gradient of the mean reward; where counts matter, it is close to
it but not equal, because it moves each pair (i, j) in proportion to s_j. Each weight vector takes half of a step, so
the difference of two takes a whole one. With K = 2 this is the binary learner of `quapy_nemsis._kernels.nemsis`, w = w₁
− w₀, and the radius bounds √2·‖W‖, which is ‖w‖ there.

Scale, average and windows are kept as in that module. The kernel takes the numbers of a learner (see `NUMBERS`) as a
row of single numbers, and as a table with one row for each number that there is for each class.
"""

from __future__ import annotations

import math

import numpy as np

from quapy_nemsis._jit import (
    REORDERED,
    Kernel,
    Optional,
    Record,
    Wide,
    call,
    codes,
    cubes,
    integers,
    jitable,
    octets,
    real,
    reals,
    records,
    tables,
    types,
)
from quapy_nemsis._kernels.nemsis import (
    LAST,
    OPTIONS,
    RENORM_MASK,
    SMALLEST_SCALE,
    SUFFIX,
)
from quapy_nemsis._kernels.rows import (
    AHEAD,
    class_axpy,
    class_axpy2,
    class_count,
    class_dots,
    class_prefetch,
    pair_axpy,
    pair_axpy2,
    prefetch,
)
from quapy_nemsis.measures import compiled
from quapy_nemsis.measures.compiled import (
    BY_X,
    BY_Y,
    EPS,
    ZETA1,
    ZETA2,
    X,
    Y,
)
from quapy_nemsis.surrogates import surrogate_code

#: Counts, estimates and position of a learner (see `quapy_nemsis._kernels.nemsis.NUMBERS`).
NUMBERS = Record(
    sums=("steps", "weight", "q1", "q2", "sizes", "members", "rewards", "counted"),
    means=("intercept",),
    derived=("scale", "norm2", "scale_sum", "intercept_sum", "intercept_previous"),
    per_class=(
        "members",  # weight of the points of each class
        "rewards",  # sum of their rewards
        "counted",  # mass predicted as each class
        "intercept",
        "intercept_sum",
        "intercept_previous",
    ),
)
#: Weight of the points, sums of rewards and predicted mass of each class, in a level phase.
SUMS = Record(sums=("members", "rewards", "counted"), per_class=("members", "rewards", "counted"))

(STEPS, WEIGHT, Q1, Q2, SIZES, SCALE, NORM2, SCALE_SUM) = range(8)
(MEMBERS, REWARDS, COUNTED, INTERCEPT, INTERCEPT_SUM, INTERCEPT_PREVIOUS) = range(6)
# Rows of the table that a measure and the kernel share, after the first.
SHARES, RECALLS, COUNTS = 1 + compiled.SHARES, 1 + compiled.RECALLS, 1 + compiled.COUNTS
ZETA1_BY_RECALL, ZETA1_BY_COUNT = 1 + compiled.ZETA1_BY_RECALL, 1 + compiled.ZETA1_BY_COUNT
ZETA2_BY_RECALL, ZETA2_BY_COUNT = 1 + compiled.ZETA2_BY_RECALL, 1 + compiled.ZETA2_BY_COUNT
_LOGISTIC = surrogate_code("logistic")
_LN2 = math.log(2.0)
# Classes with a smaller share of a softmax step than this take no part in it.
_NEGLIGIBLE = 1e-13


# Scores are known to be finite here. Only then can the search for the highest be vectorised.
@jitable(fastmath=REORDERED | {"nnan"})
def _highest(f):
    """The highest score."""
    high = f[0]
    for j in range(1, f.shape[0]):
        high = max(high, f[j])
    return high


@jitable
def _rival(f, own):
    """The highest-scoring class other than the own one; of equals, the first."""
    kept = f[own]
    f[own] = -math.inf
    high = _highest(f)
    f[own] = kept
    # Not in one loop with the search for the highest score: the processor could not predict its branches.
    for j in range(f.shape[0]):
        if f[j] == high and j != own:
            return j
    return own


@jitable
def _softmax(f, s):
    """Write softmax(f) to s; return ln Σ exp(f)."""
    high = _highest(f)
    total = 0.0
    for j in range(f.shape[0]):
        s[j] = math.exp(f[j] - high)
        total += s[j]
    over = 1.0 / total
    for j in range(f.shape[0]):
        s[j] *= over
    return high + math.log(total)


@jitable
def _counted_reward(logistic, counts, bound, f, s, own, rival, log_total):
    """The reward of a point that enters the estimates: 1 or 0, or the surrogate, which is at least −bound."""
    margin = f[own] - f[rival]
    if counts:
        return 1.0 if margin > 0.0 else 0.0
    if logistic:
        # In units in which equal scores have the reward 1 − ln 2 for any K. Without them it would be 1 − ln K.
        return max(1.0 - (log_total - f[own]) * _LN2 / math.log(f.shape[0]), -bound)
    return max(min(1.0, margin), -bound)


@jitable
def _without(s, own):
    """Sum of s over the other classes, which is positive."""
    others = 0.0
    for j in range(s.shape[0]):
        if j != own:
            others += s[j]
    return max(others, 1e-300)


@jitable
def _add_mass(spread, reward, weight, s, own, rival, tallies, k):
    """Count a point: its reward for its own class, the rest for the rival, or for all others in proportion to s."""
    tallies[k, COUNTED, own] += weight * reward
    if not spread:
        tallies[k, COUNTED, rival] += weight * (1.0 - reward)
        return
    factor = weight * (1.0 - reward) / _without(s, own)
    for j in range(s.shape[0]):
        if j != own:
            tallies[k, COUNTED, j] += factor * s[j]


def _nemsis(
    rows,
    order,
    labels,
    weights,
    parts,
    left_out,
    callback,
    asks,
    options,
    v,
    correction,
    previous,
    numbers,
    tallies,
    scratch,
    taken,
):
    """Learn ``rows`` in ``order``, with one learner per row of the state arrays.

    ``asks`` must have zeros where measures answer. ``scratch`` has three rows of K numbers. ``parts``, ``left_out`` and
    ``taken`` are as in `quapy_nemsis._kernels.nemsis`.
    """
    n = class_count(rows, v)
    logistic = options[0].reward == _LOGISTIC
    average = options[0].average
    counts, monotone = options[0].counts != 0, options[0].monotone != 0
    fit_intercept, affine = options[0].fit_intercept != 0, options[0].affine != 0
    bound = options[0].reward_bound
    weighted, divided = weights.shape[0] > 0, parts.shape[0] > 0
    spread = logistic and not counts
    f, s, factors = scratch[0], scratch[1], scratch[2]
    over_others = 1.0 / (n - 1)
    n_learners = np.uint64(taken.shape[0])
    one = np.uint64(1)
    total = order.shape[0]
    for k in range(n_learners):
        for j in range(n):
            size = tallies[k, MEMBERS, j]
            asks[k, RECALLS, j] = tallies[k, REWARDS, j] / size if size > 0.0 else 0.0
    for at in range(total):
        if at + AHEAD < total:
            prefetch(rows, order[at + AHEAD])
        i = order[at]
        own = np.int64(labels[i])
        if own < 0 or own >= n:
            return
        weight = weights[i] if weighted else 1.0
        part = np.int64(parts[i]) if divided else np.int64(-1)

        for k in range(n_learners):
            if taken[k] < at:
                continue
            if divided and left_out[k] == part:
                taken[k] = at + 1
                continue
            # The next learner's weights are often not in the caches next to the core.
            class_prefetch(rows, i, v, k + one)
            class_prefetch(rows, i, correction, k + one)
            t = np.int64(numbers[k, STEPS]) + 1
            if average == SUFFIX and (t & (t - 1)) == 0:
                _close_window(v, correction, previous, numbers[k, SCALE_SUM], k)
                numbers[k, SCALE_SUM] = 0.0
                for j in range(n):
                    tallies[k, INTERCEPT_PREVIOUS, j] = tallies[k, INTERCEPT_SUM, j]
                    tallies[k, INTERCEPT_SUM, j] = 0.0

            # Estimates from the points before this one; a class not seen yet has reward 0 (line 1). This point counts
            # as its class did so far, its misses spread evenly over the other classes.
            past = numbers[k, WEIGHT]
            now = past + weight
            over = 1.0 / now
            numbers[k, WEIGHT] = now
            tallies[k, MEMBERS, own] += weight
            recall = asks[k, RECALLS, own]
            missed = weight * (1.0 - recall) * over_others
            for j in range(n):
                asks[k, SHARES, j] = tallies[k, MEMBERS, j] * over
                asks[k, COUNTS, j] = (tallies[k, COUNTED, j] + missed) * over
            asks[k, COUNTS, own] += (weight * recall - missed) * over
            over_past = 1.0 / past if past > 0.0 else 0.0
            asks[k, 0, X] = numbers[k, Q1] * over_past
            asks[k, 0, Y] = numbers[k, Q2] * over_past
            asks[k, 0, EPS] = 0.5 * over
            call(callback, asks, k)

            square = class_dots(rows, i, v, k, f)
            scale = numbers[k, SCALE]
            finite = 0.0
            for j in range(n):
                f[j] = scale * f[j] + tallies[k, INTERCEPT, j]
                finite += f[j]
            if not abs(finite) < math.inf:  # math.isfinite is no test where sums may be reordered
                continue
            taken[k] = at + 1
            numbers[k, STEPS] = t
            numbers[k, SIZES] += weight * min(square, 1.0)
            rival = _rival(f, own)
            log_total = _softmax(f, s) if logistic else 0.0

            # Lines 5-11: primal ascent. Line 1 sets the duals to 0, so the first point only starts the estimates.
            half = 0.5 * options[k].eta0 * weight / math.sqrt(now)
            by_x, by_y = asks[k, 0, BY_X], asks[k, 0, BY_Y]
            recall_gain = (
                by_x * asks[k, ZETA1_BY_RECALL, own] + by_y * asks[k, ZETA2_BY_RECALL, own]
            )
            count_gain = by_x * asks[k, ZETA1_BY_COUNT, own] + by_y * asks[k, ZETA2_BY_COUNT, own]
            force = recall_gain / asks[k, SHARES, own] + count_gain
            change, growth = 0.0, 0.0  # of the product V·(factors xᵀ), and of the factors' square
            pull = 0.0
            if t > 1 and logistic:
                for j in range(n):
                    lost = by_x * asks[k, ZETA1_BY_COUNT, j] + by_y * asks[k, ZETA2_BY_COUNT, j]
                    a = force - lost
                    a = max(a, 0.0) if monotone else a
                    step = half * a * s[j] if j != own and s[j] > _NEGLIGIBLE else 0.0
                    factors[j] = -step
                    pull += step
                    growth += step * step
                    change -= step * (f[j] - tallies[k, INTERCEPT, j])
                factors[own] = pull
                growth += pull * pull
                change += pull * (f[own] - tallies[k, INTERCEPT, own])
            elif t > 1 and f[own] - f[rival] < 1.0:
                lost = by_x * asks[k, ZETA1_BY_COUNT, rival] + by_y * asks[k, ZETA2_BY_COUNT, rival]
                pull = force - lost
                pull = half * (max(pull, 0.0) if monotone else pull)
                growth = 2.0 * pull * pull
                change = pull * (
                    f[own] - tallies[k, INTERCEPT, own] - f[rival] + tallies[k, INTERCEPT, rival]
                )
            if growth != 0.0:
                norm2, scale_sum = numbers[k, NORM2], numbers[k, SCALE_SUM]
                radius2 = 0.5 * options[k].radius * options[k].radius
                over_scale = 1.0 / scale
                grown = norm2 + over_scale * over_scale * (2.0 * change + growth * square)
                if radius2 < SMALLEST_SCALE * SMALLEST_SCALE * grown:
                    _multiply_out(v, correction, scale_sum, scale, k)
                    scale_sum = 0.0
                    numbers[k, SCALE_SUM] = 0.0
                    grown = scale * scale * norm2 + 2.0 * change + growth * square
                    scale = 1.0
                    over_scale = 1.0
                if logistic:
                    mean_size = numbers[k, SIZES] * over
                    for j in range(n):
                        if fit_intercept:
                            tallies[k, INTERCEPT, j] += factors[j] * mean_size
                        factors[j] *= over_scale
                    if average == LAST:
                        class_axpy(rows, i, factors, v, k)
                    else:
                        class_axpy2(rows, i, factors, v, scale_sum, correction, k)
                else:
                    c = pull * over_scale
                    if average == LAST:
                        pair_axpy(rows, i, c, own, rival, v, k)
                    else:
                        pair_axpy2(rows, i, c, own, rival, v, scale_sum * c, correction, k)
                    if fit_intercept:
                        step = pull * numbers[k, SIZES] * over
                        tallies[k, INTERCEPT, own] += step
                        tallies[k, INTERCEPT, rival] -= step
                norm2 = max(grown, 0.0)
                if scale * scale * norm2 > radius2:
                    scale = math.sqrt(radius2 / norm2)
                numbers[k, NORM2] = norm2
                numbers[k, SCALE] = scale
            if (t & RENORM_MASK) == 0:
                numbers[k, NORM2] = _square_norm(v, k)
            numbers[k, SCALE_SUM] += scale
            for j in range(n):
                tallies[k, INTERCEPT_SUM, j] += tallies[k, INTERCEPT, j]

            # Lines 7, 10, 12, 13: the estimates.
            reward = _counted_reward(logistic, counts, bound, f, s, own, rival, log_total)
            if not affine:
                # The linearisation ζ + ∇ζ·(sample − estimate), of which the measure has answered what is known before
                # this point. The sample of the recalls is reward/p for the own class. The sample of the counts is the
                # mass plus (1 for the own class − p)/(K − 1). That has the mean 0, and for K = 2 it makes the sample
                # that of the binary learner.
                first, second = asks[k, 0, ZETA1], asks[k, 0, ZETA2]
                sample = reward / asks[k, SHARES, own]
                first += asks[k, ZETA1_BY_RECALL, own] * sample
                second += asks[k, ZETA2_BY_RECALL, own] * sample
                first += asks[k, ZETA1_BY_COUNT, own] * (reward + over_others)
                second += asks[k, ZETA2_BY_COUNT, own] * (reward + over_others)
                if spread:
                    factor = (1.0 - reward) / _without(s, own)
                    for j in range(n):
                        mass = factor * s[j] if j != own else 0.0
                        first += asks[k, ZETA1_BY_COUNT, j] * mass
                        second += asks[k, ZETA2_BY_COUNT, j] * mass
                else:
                    first += asks[k, ZETA1_BY_COUNT, rival] * (1.0 - reward)
                    second += asks[k, ZETA2_BY_COUNT, rival] * (1.0 - reward)
                numbers[k, Q1] += weight * first
                numbers[k, Q2] += weight * second
            _add_mass(spread, reward, weight, s, own, rival, tallies, k)
            tallies[k, REWARDS, own] += weight * reward
            asks[k, RECALLS, own] = tallies[k, REWARDS, own] / tallies[k, MEMBERS, own]


@jitable
def _close_window(v, correction, previous, scale_sum, k):
    """Move the sum of the finished window of the average to ``previous``."""
    for a in range(v.shape[1]):
        for b in range(v.shape[2]):
            previous[k, a, b] = scale_sum * v[k, a, b] - correction[k, a, b]
            correction[k, a, b] = 0.0


@jitable
def _multiply_out(v, correction, scale_sum, scale, k):
    """Multiply the weights by their scale, and move S·v to the correction."""
    for a in range(v.shape[1]):
        for b in range(v.shape[2]):
            correction[k, a, b] -= scale_sum * v[k, a, b]
            v[k, a, b] *= scale


@jitable
def _square_norm(v, k):
    norm2 = 0.0
    for a in range(v.shape[1]):
        for b in range(v.shape[2]):
            norm2 += v[k, a, b] * v[k, a, b]
    return norm2


def _level(rows, order, labels, weights, reward_kind, counts, bound, w, b, sums, scratch, taken):
    """Add up the rewards and the predicted mass of ``rows`` in ``order``, with one model per entry of ``w``."""
    n = class_count(rows, w)
    logistic = reward_kind == _LOGISTIC
    weighted = weights.shape[0] > 0
    f, s = scratch[0], scratch[1]
    n_learners = np.uint64(taken.shape[0])
    total = order.shape[0]
    for at in range(total):
        if at + AHEAD < total:
            prefetch(rows, order[at + AHEAD])
        i = order[at]
        own = np.int64(labels[i])
        if own < 0 or own >= n:
            return
        weight = weights[i] if weighted else 1.0
        for k in range(n_learners):
            if taken[k] < at:
                continue
            class_dots(rows, i, w, k, f)
            finite = 0.0
            for j in range(n):
                f[j] += b[k, j]
                finite += f[j]
            if not abs(finite) < math.inf:  # math.isfinite is no test where sums may be reordered
                continue
            taken[k] = at + 1
            rival = _rival(f, own)
            log_total = _softmax(f, s) if logistic else 0.0
            reward = _counted_reward(logistic, counts, bound, f, s, own, rival, log_total)
            spread = logistic and not counts
            _add_mass(spread, reward, weight, s, own, rival, sums, k)
            sums[k, MEMBERS, own] += weight
            sums[k, REWARDS, own] += weight * reward


nemsis = Kernel(
    _nemsis,
    types.void,
    codes,
    Optional(reals),
    Optional(octets, "part"),
    integers,
    types.uintp,
    cubes,
    records(OPTIONS),
    Wide(cubes),
    Wide(cubes),
    Wide(cubes),
    tables,
    cubes,
    tables,
    integers,
    fastmath=REORDERED,
)
level = Kernel(
    _level,
    types.void,
    codes,
    Optional(reals),
    types.int64,
    types.boolean,
    real,
    Wide(cubes),
    tables,
    cubes,
    tables,
    integers,
    fastmath=REORDERED,
)
