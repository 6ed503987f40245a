"""The separation oracle: a search for the constraint that a structural learner violates most.

With scores f(x_i) and labels y_i = ±1, a labelling ȳ with FN misses and FP false alarms violates its constraint by

    H(ȳ) = Δ(FN, FP) − (1/|S|) Σ (y_i − ȳ_i) f(x_i).

For given FN and FP, H is greatest if the misses are the positives with the lowest scores and the false alarms are the
negatives with the highest scores. So H = Δ(FN, FP) + A(FN) + B(FP), where A and B are partial sums of sorted scores and
both are concave.
"""

from __future__ import annotations

import numpy as np

from quapy_nemsis._jit import Routine, call, integers, jitable, reals, tables, types
from quapy_nemsis.measures.compiled import (
    LOSS,
    LOSS_D,
    LOSS_EPS,
    LOSS_RECALL_NEG,
    LOSS_RECALL_POS,
    LOSS_SHARE_POS,
)
from quapy_nemsis.measures.formulas import smoothing

# Blocks of the (FN, FP) grid with at most this many cells are searched cell by cell.
_LEAF = 16


@jitable
def _loss(callback, ask, misses, alarms, shift, n_pos, n_neg):
    """Δ at the rates of the given misses and false alarms, for a predicted count that is ``shift`` points too low."""
    total = n_pos + n_neg
    ask[0, LOSS_RECALL_POS] = 1.0 - misses / n_pos
    ask[0, LOSS_RECALL_NEG] = 1.0 - alarms / n_neg
    ask[0, LOSS_D] = shift / total
    ask[0, LOSS_SHARE_POS] = n_pos / total
    ask[0, LOSS_EPS] = smoothing(total)
    call(callback, ask, np.uint64(0))
    return ask[0, LOSS]


def _tabulate(callback, ask, n_pos, n_neg, table):
    """Write Δ of a prevalence-only loss for 0, 1, … n₊ + n₋ predicted positives to ``table``."""
    for k in range(table.shape[0]):
        misses, alarms = max(n_pos - k, 0), max(k - n_pos, 0)
        table[k] = _loss(callback, ask, misses, alarms, misses - alarms, n_pos, n_neg)


@jitable
def _bound(callback, ask, gain_pos, gain_neg, peaks, bounded, a0, a1, b0, b1):
    """Return an upper bound of H for all FN in [a0, a1] and FP in [b0, b1]."""
    if not bounded:
        return np.inf
    n_pos, n_neg = gain_pos.shape[0] - 1, gain_neg.shape[0] - 1
    # Combine the worst rates and the worst counts of the block; take A and B at their peaks or the nearest edge.
    over = _loss(callback, ask, a1, b1, a0 - b1, n_pos, n_neg)
    under = _loss(callback, ask, a1, b1, a1 - b0, n_pos, n_neg)
    a, b = min(max(peaks[0], a0), a1), min(max(peaks[1], b0), b1)
    return max(over, under) + gain_pos[a] + gain_neg[b]


def _search(callback, ask, gain_pos, gain_neg, bounded, found):
    """Return the maximum of Δ(FN, FP) + A(FN) + B(FP) over the grid, and write its FN and FP to ``found``.

    This is a branch-and-bound search. Blocks of the grid are halved until they are small or cannot hold the maximum.
    With bounds, this usually takes about n₊ + n₋ steps (n₊·n₋ in the worst case); without bounds, it takes n₊·n₋.
    """
    n_pos, n_neg = gain_pos.shape[0] - 1, gain_neg.shape[0] - 1
    peaks = (np.argmax(gain_pos), np.argmax(gain_neg))
    best = -np.inf
    # Starting points: the previous result, the highest gains, and three corners with all of a class wrong.
    for a, b in ((found[0], found[1]), peaks, (0, n_neg), (n_pos, 0), (n_pos, n_neg)):
        value = _loss(callback, ask, a, b, a - b, n_pos, n_neg) + gain_pos[a] + gain_neg[b]
        if value > best:
            best = value
            found[0], found[1] = a, b

    # Stack of blocks (a0, a1, b0, b1) still to be searched, with their bounds. Each halving adds at most one block.
    blocks = np.empty((130, 4), dtype=np.int64)
    bounds = np.empty(130)
    blocks[0] = (0, n_pos, 0, n_neg)
    bounds[0] = np.inf
    size = 1
    while size > 0:
        size -= 1
        if bounds[size] <= best:
            continue
        a0, a1, b0, b1 = blocks[size]
        if (a1 - a0 + 1) * (b1 - b0 + 1) <= _LEAF:
            for a in range(a0, a1 + 1):
                for b in range(b0, b1 + 1):
                    value = _loss(callback, ask, a, b, a - b, n_pos, n_neg)
                    value += gain_pos[a] + gain_neg[b]
                    if value > best:
                        best = value
                        found[0], found[1] = a, b
            continue
        if a1 - a0 >= b1 - b0:
            middle = (a0 + a1) // 2
            first, second = (a0, middle, b0, b1), (middle + 1, a1, b0, b1)
        else:
            middle = (b0 + b1) // 2
            first, second = (a0, a1, b0, middle), (a0, a1, middle + 1, b1)
        low = _bound(callback, ask, gain_pos, gain_neg, peaks, bounded, *first)
        high = _bound(callback, ask, gain_pos, gain_neg, peaks, bounded, *second)
        # The half with the higher bound is searched first.
        if low > high:
            first, second, low, high = second, first, high, low
        for block, bound in ((first, low), (second, high)):
            if bound > best:
                blocks[size] = block
                bounds[size] = bound
                size += 1
    return best


tabulate = Routine(_tabulate, types.void(types.uintp, tables, types.int64, types.int64, reals))
search = Routine(
    _search,
    types.float64(
        types.uintp,
        tables,
        reals,
        reals,
        types.boolean,
        integers,
    ),
)
