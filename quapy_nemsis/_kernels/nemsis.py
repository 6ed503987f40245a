"""The NEMSIS step (Algorithm 1 of the paper), one point at a time, over rows in any given order.

Any number of learners can learn together if they differ only in step size, radius or parameters of the measure. Each
row is then read from memory once, quantities that depend only on the point are computed once, and the processor
overlaps the learners' steps.

The state of a learner between two points is three arrays and a record. A stream can therefore be cut anywhere.

* ``v``: the weights without their scale, w = scale·v. A projection changes only the scale.
* ``correction``, ``previous``: the average correction and the previous window sum for the averaged model, see below.
* ``numbers``: a record of `NUMBERS`, all float64 (counts are exact up to 2**53).

Averaging needs no dense addition per step. Let S be the sum of the scales of the iterates since the average began, and
c_j·x_j the change of v at step j. The sum of these iterates is

    Σ w = S·v − correction,    correction = Σ_j S_j·c_j·x_j,

where S_j is S just before step j. So only rows that change the weights touch ``correction``. The suffix average starts
again at every power of two and keeps the sum of the finished window in ``previous``. Wherever the stream stops, the two
windows together hold at least the last half of all iterates.
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
    cubes,
    flags,
    integers,
    jitable,
    octets,
    reals,
    records,
    tables,
    types,
)
from quapy_nemsis._kernels.rows import (
    AHEAD,
    close_sums,
    dot_alone,
    dot_fours,
    move_alone,
    move_fours,
    multiply_out,
    prefetch,
    square_norm,
)
from quapy_nemsis.measures.compiled import (
    CLASS_GRADIENT_NEG,
    CLASS_GRADIENT_POS,
    EPS,
    RECALL_NEG,
    RECALL_POS,
    SHARE_POS,
    ZETA1,
    ZETA1_NEG,
    ZETA1_POS,
    ZETA2,
    ZETA2_NEG,
    ZETA2_POS,
    X,
    Y,
)
from quapy_nemsis.surrogates import reward, slope

#: Counts, estimates and position of a learner. When learners are merged, sums add up and means are averaged. The
#: derived numbers are computed from the weights.
NUMBERS = Record(
    sums=(
        "steps",  # points seen
        "weight",  # their weight, equal to their number if they have no weights
        "positives",  # weight of the positives
        "reward_pos",  # sum of the (0-1 or surrogate) rewards of the positives
        "reward_neg",
        "q1",  # sums of the linearised ζ₁ and ζ₂ (line 13)
        "q2",
        "sizes",  # sum of min(x·x, 1)
    ),
    means=("intercept",),
    derived=(
        "scale",
        "norm2",  # v·v
        "scale_sum",  # S
        "intercept_sum",  # sum of the intercepts since the average began
        "intercept_previous",  # sum of the intercepts of the finished window
    ),
)
#: Parameters of a learner for the kernel. Learners that learn together may differ only in the first two.
OPTIONS = np.dtype(
    [
        ("eta0", np.float64),
        ("radius", np.float64),
        ("reward_bound", np.float64),
        ("reward", np.int64),
        ("average", np.int64),
        ("counts", np.int64),
        ("monotone", np.int64),
        ("fit_intercept", np.int64),
        ("affine", np.int64),
    ]
)
LAST, ALL, SUFFIX = 0, 1, 2
#: What learners that have seen the same points share: counts of points, and numbers that follow from them. The first
#: three of these are inverses of counts before the current point.
SHARED = 12
(
    PAST,
    PAST_POS,
    PAST_NEG,
    OVER,
    OVER_POS,
    OVER_NEG,
    STEPS,
    ALL_POINTS,
    POSITIVES,
    SHARE,
    OVER_CLASS,
    RATE,
) = range(SHARED)

# Before the scale falls below this, v is multiplied by the scale, S·v moves to the correction, and S starts again at 0.
# Otherwise S·v − correction would cancel as many digits as the scale has lost since S started.
SMALLEST_SCALE = 1e-4
# v·v is recomputed every 2**16 points, so that the rounding errors of its updates do not accumulate.
RENORM_MASK = (1 << 16) - 1


@jitable(forceinline=True)
def over(weight):
    """1/weight, or 1 for a class that has no points yet, whose rewards are 0."""
    return 1.0 / weight if weight > 0.0 else 1.0


@jitable
def close_window(v, correction, previous, own, k):
    """Move the sums of the finished window of the suffix average to ``previous``, and start a new window."""
    close_sums(v, correction, previous, own.scale_sum, k)
    own.intercept_previous = own.intercept_sum
    own.scale_sum = 0.0
    own.intercept_sum = 0.0


@jitable(forceinline=True)
def ascend(
    rows,
    i,
    step,
    product,
    square,
    radius,
    average,
    fit_intercept,
    over_all,
    v,
    correction,
    own,
    k,
    lanes,
):
    """Add step·x to the weights and project them onto the ball; ``product`` is v·x, ``square`` is x·x.

    ``over_all`` is 1 over the weight of the points so far. Weights that lie in fours are moved later, see ``lanes`` of
    `quapy_nemsis._kernels.rows.move_fours`.
    """
    norm2, scale_sum, scale = own.norm2, own.scale_sum, own.scale
    radius2 = radius * radius
    c = step / scale
    grown = norm2 + c * (2.0 * product + c * square)
    if radius2 < SMALLEST_SCALE * SMALLEST_SCALE * grown:
        multiply_out(v, correction, scale_sum, scale, k)
        scale_sum = 0.0
        own.scale_sum = 0.0
        c = step
        grown = scale * (scale * norm2 + c * 2.0 * product) + c * c * square
        scale = 1.0
    move_alone(rows, i, v, c, scale_sum * c, average != LAST, correction, k, lanes)
    norm2 = max(grown, 0.0)
    if fit_intercept:
        # The intercept acts like a feature of value 1, or smaller if the rows are: else it would dominate.
        own.intercept += step * own.sizes * over_all
    if scale * scale * norm2 > radius2:
        scale = radius / math.sqrt(norm2)
    own.norm2 = norm2
    own.scale = scale


@jitable(forceinline=True)
def count_iterate(own):
    """Add the weights after a point to the sums for the averaged model."""
    own.scale_sum += own.scale
    own.intercept_sum += own.intercept


@jitable(forceinline=True)
def count_point(shared, g, is_pos, weight):
    """Count a point for the learners that have seen the same points, and prepare what is the same for all of them.

    The entries of ``shared`` are named by `SHARED`.
    """
    shared[g, PAST], shared[g, PAST_POS], shared[g, PAST_NEG] = (
        shared[g, OVER],
        shared[g, OVER_POS],
        shared[g, OVER_NEG],
    )
    shared[g, STEPS] += 1.0
    n_all = shared[g, ALL_POINTS] + weight
    n_pos = shared[g, POSITIVES] + (weight if is_pos else 0.0)
    shared[g, ALL_POINTS], shared[g, POSITIVES] = n_all, n_pos
    shared[g, OVER], shared[g, OVER_POS], shared[g, OVER_NEG] = (
        over(n_all),
        over(n_pos),
        over(n_all - n_pos),
    )
    shared[g, SHARE] = n_pos * shared[g, OVER]
    shared[g, OVER_CLASS] = shared[g, OVER_POS] if is_pos else shared[g, OVER_NEG]
    # η_t/p_y = (η₀/√t)·(t/n_y), for each of the rows that this one counts for
    shared[g, RATE] = math.sqrt(n_all) * shared[g, OVER_CLASS] * weight


def _nemsis(
    rows,
    order,
    positive,
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
    shared,
    products,
    lanes,
    taken,
):
    """Learn ``rows`` in ``order``, with one learner per row of the state arrays; all must have seen the same points.

    Weights ``v`` and ``correction`` are tables with a row for each learner, or both are the same array of learners
    that lie in fours (see `quapy_nemsis._kernels.rows`), which is faster for CSR rows. ``lanes`` then has eight zeros
    for each four, else no rows.

    ``weights`` has one entry per row, or none if every row has weight 1. A row of weight c counts as c rows in the
    estimates and in the step size; the average has one iterate per row.

    ``parts`` has one entry per row, or none. If it has, learner k does not learn rows of the part ``left_out[k]``, and
    learners need not have seen the same points.

    ``shared`` has a row for all learners, or one for each if there are parts, and ``products`` a row for each.

    ``taken`` must be zeros at the start. It counts the points that each learner has learned or left out; a learner
    stops for good at the first score that is not finite.
    """
    reward_kind, average = options[0].reward, options[0].average
    counts, monotone = options[0].counts != 0, options[0].monotone != 0
    fit_intercept, affine = options[0].fit_intercept != 0, options[0].affine != 0
    bound = options[0].reward_bound
    n_learners = np.uint64(taken.shape[0])
    n_groups = np.uint64(shared.shape[0])
    weighted, divided = weights.shape[0] > 0, parts.shape[0] > 0
    first = np.uint64(0)
    for g in range(n_groups):
        n_all, n_pos = numbers[g].weight, numbers[g].positives
        shared[g, STEPS], shared[g, ALL_POINTS], shared[g, POSITIVES] = (
            numbers[g].steps,
            n_all,
            n_pos,
        )
        shared[g, OVER], shared[g, OVER_POS] = over(n_all), over(n_pos)
        shared[g, OVER_NEG] = over(n_all - n_pos)
    total = order.shape[0]
    for at in range(total):
        if at + AHEAD < total:
            prefetch(rows, order[at + AHEAD])
        i = order[at]
        part = np.int64(parts[i]) if divided else np.int64(-1)
        is_pos = positive[i]
        weight = weights[i] if weighted else 1.0
        y = 1.0 if is_pos else -1.0
        class_gradient = CLASS_GRADIENT_POS if is_pos else CLASS_GRADIENT_NEG
        for g in range(n_groups):
            if not divided or left_out[g] != part:
                count_point(shared, g, is_pos, weight)

        # The products of all learners first: they do not wait for each other.
        dot_fours(rows, i, v, lanes, products)
        for k in range(n_learners):
            if taken[k] < at or (divided and left_out[k] == part):
                continue
            own = numbers[k]
            g = k if divided else first
            t = np.int64(shared[g, STEPS])
            if average == SUFFIX and (t & (t - 1)) == 0:
                close_window(v, correction, previous, own, k)
            # Estimates from the points before this one; a class not seen yet has reward 0 (line 1).
            asks[k, RECALL_POS] = own.reward_pos * shared[g, PAST_POS]
            asks[k, RECALL_NEG] = own.reward_neg * shared[g, PAST_NEG]
            # Lines 15-17: the duals are gradients (the paper's appendix A).
            asks[k, X] = own.q1 * shared[g, PAST]
            asks[k, Y] = own.q2 * shared[g, PAST]
            asks[k, SHARE_POS] = shared[g, SHARE]
            asks[k, EPS] = 0.5 * shared[g, OVER]
            call(callback, asks, k)
            dot_alone(rows, i, v, k, products)

        due = False
        for k in range(n_learners):
            if taken[k] < at:
                continue
            if divided and left_out[k] == part:
                taken[k] = at + 1
                continue
            own = numbers[k]
            g = k if divided else first
            t = np.int64(shared[g, STEPS])
            product, square = products[k, 0], products[k, 1]
            score = own.scale * product + own.intercept
            if not math.isfinite(score):
                continue
            taken[k] = at + 1
            own.sizes += weight * min(square, 1.0)
            margin = y * score

            # Lines 5-11: primal ascent. Line 1 sets the duals to 0, so the first point only starts the estimates.
            gradient = asks[k, class_gradient]
            if monotone:
                gradient = max(gradient, 0.0)
            step = options[k].eta0 * shared[g, RATE] * gradient * slope(reward_kind, margin) * y
            if step != 0.0 and t > 1:
                ascend(
                    rows,
                    i,
                    step,
                    product,
                    square,
                    options[k].radius,
                    average,
                    fit_intercept,
                    shared[g, OVER],
                    v,
                    correction,
                    own,
                    k,
                    lanes,
                )
            count_iterate(own)
            due |= (t & RENORM_MASK) == 0

            # Lines 7, 10, 12, 13: the estimates.
            if counts:
                r = 1.0 if margin > 0.0 else 0.0
            else:
                r = max(reward(reward_kind, margin), -bound)
            if not affine:
                P, N = asks[k, RECALL_POS], asks[k, RECALL_NEG]
                s = r * shared[g, ALL_POINTS] * shared[g, OVER_CLASS]
                s_pos = s if is_pos else 0.0
                s_neg = 0.0 if is_pos else s
                own.q1 += weight * (
                    asks[k, ZETA1]
                    + asks[k, ZETA1_POS] * (s_pos - P)
                    + asks[k, ZETA1_NEG] * (s_neg - N)
                )
                own.q2 += weight * (
                    asks[k, ZETA2]
                    + asks[k, ZETA2_POS] * (s_pos - P)
                    + asks[k, ZETA2_NEG] * (s_neg - N)
                )
            if is_pos:
                own.reward_pos += weight * r
            else:
                own.reward_neg += weight * r

        move_fours(rows, i, v, lanes, products[0, 1])
        if due:
            for k in range(n_learners):
                t = np.int64(shared[k if divided else first, STEPS])
                left = divided and left_out[k] == part
                if taken[k] == at + 1 and not left and (t & RENORM_MASK) == 0:
                    numbers[k].norm2 = square_norm(v, k)

    for k in range(n_learners):
        if taken[k] == total:
            g = k if divided else first
            numbers[k].steps = shared[g, STEPS]
            numbers[k].weight = shared[g, ALL_POINTS]
            numbers[k].positives = shared[g, POSITIVES]


def _kernel(weights):
    return Kernel(
        _nemsis,
        types.void,
        flags,
        Optional(reals),
        Optional(octets, "part"),
        integers,
        types.uintp,
        tables,
        records(OPTIONS),
        Wide(weights),
        Wide(weights),
        Wide(tables),
        records(NUMBERS.dtype),
        tables,
        tables,
        tables,
        integers,
    )


nemsis, nemsis_in_fours = _kernel(tables), _kernel(cubes)
