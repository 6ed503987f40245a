"""Growing and reading quantification trees (Milli et al. 2013) over binned features.

A tree is a table of nodes. The children of a split stand side by side behind it, ``left[node]`` and ``left[node] + 1``;
a leaf has ``left[node] = −1 − leaf``, where ``leaf`` counts the leaves. So every path ends.
"""

from __future__ import annotations

import numpy as np

from quapy_nemsis._jit import Routine, call, integers, jitable, reals, tables, types
from quapy_nemsis.measures.compiled import COUNTS, EPS, RECALLS, SHARES, ZETA1
from quapy_nemsis.measures.formulas import smoothing

#: Code of a missing value. Other codes are below it.
MISSING = 255
#: What a split lowers: ‖E‖² with E_j = FP_j² − FN_j², the same with E_j = FP_j − FN_j, the Gini impurity, or the
#: negative value of a measure.
CQB, EB, GINI, MEASURE = range(4)
# Scores and purities that differ by a smaller share are equal: sums of weights are rounded.
_EQUAL = 1e-12

_codes = types.Array(types.uint8, 2, "C")
_bytes = types.Array(types.uint8, 1, "C")
_flags = types.Array(types.boolean, 1, "C")
_indices = types.Array(types.int32, 1, "C")
_index_table = types.Array(types.int32, 2, "C")


def _assign(column, edges, out):
    """Write the code of each value to ``out``: how many edges are below it, or `MISSING` for NaN."""
    for i in range(column.shape[0]):
        value = column[i]
        if np.isnan(value):
            out[i] = MISSING
            continue
        low, high = 0, edges.shape[0]
        while low < high:
            middle = (low + high) // 2
            if edges[middle] < value:
                low = middle + 1
            else:
                high = middle
        out[i] = low


@jitable
def _draw(state, n):
    """A random integer from 0 to n − 1 (SplitMix64)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(z % np.uint64(n))


@jitable
def _argmax(counts):
    """Position of the first of the largest entries."""
    best = 0
    for j in range(1, counts.shape[0]):
        if counts[j] > counts[best]:
            best = j
    return best


@jitable
def _purity(counts, total):
    """Σ c_j²/n, which is n less the Gini impurity times n."""
    squares = 0.0
    for c in counts:
        squares += c * c
    return squares / total


@jitable
def _score(kind, address, sign, ask, members, hits, counted, first, second, a, b, n_a, n_b):
    """What is minimised, for the rows outside of a node and two leaves ``first`` and ``second`` that replace it.

    The leaves are labelled a and b, and hold rows of weight n_a and n_b. ``hits`` and ``counted`` are those of the rows
    outside of the node.
    """
    total, squares = 0.0, 0.0
    for j in range(members.shape[0]):
        hit, predicted = hits[j], counted[j]
        if j == a:
            hit += first[j]
            predicted += n_a
        if j == b:
            hit += second[j]
            predicted += n_b
        if kind == MEASURE:
            total += members[j]
            ask[0, 1 + SHARES, j] = members[j]
            ask[0, 1 + RECALLS, j] = hit / members[j] if members[j] > 0.0 else 0.0
            ask[0, 1 + COUNTS, j] = predicted
        else:
            misses, alarms = members[j] - hit, predicted - hit
            error = misses - alarms
            if kind == CQB:
                error *= misses + alarms
            squares += error * error
    if kind == GINI:
        return -_purity(first, n_a) - (_purity(second, n_b) if n_b > 0.0 else 0.0)
    if kind != MEASURE:
        return squares
    for j in range(members.shape[0]):
        ask[0, 1 + SHARES, j] /= total
        ask[0, 1 + COUNTS, j] /= total
    ask[0, 0, EPS] = smoothing(total)
    call(address, ask, np.uint64(0))
    value = sign * ask[0, 0, ZETA1]
    return value if value == value else np.inf


@jitable
def _two_class_score(kind, members, hits, counted, first, second):
    """The same as `_score` for two classes and an error E, where E_0² = E_1²."""
    misses, alarms = members[1] - hits[1], counted[1] - hits[1]
    if first[1] > first[0]:
        misses -= first[1]
        alarms += first[0]
    if second[1] > second[0]:
        misses -= second[1]
        alarms += second[0]
    error = misses - alarms
    if kind == CQB:
        error *= misses + alarms
    return 2.0 * error * error


def _grow(
    codes,
    rows,
    labels,
    weights,
    kind,
    address,
    sign,
    ask,
    whole_tree,
    by_purity,
    max_depth,
    least,
    n_tried,
    seed,
    feature,
    cut,
    left,
    missing_left,
    counts,
    importances,
):
    """Grow a tree on the given rows, whose labels and weights stand in the same order; all three are rearranged.

    A split at a cut sends codes up to it to the left. Of all splits of a node, that with the lowest score is taken, and
    among equal ones the purest. It must lower the score or, if ``by_purity``, make the leaves purer at an equal score.
    The score is that of the node's rows or of the whole tree. Writes the nodes to ``feature``, ``cut``, ``left`` and
    ``missing_left``, the class counts of the leaves to ``counts``, and adds the gains of purity to ``importances``.
    Returns the number of nodes and of leaves.
    """
    n_features, n_classes = codes.shape[0], counts.shape[1]
    n_rows = rows.shape[0]
    is_short = n_classes == 2 and kind in (CQB, EB)
    random = np.array([seed], dtype=np.uint64)
    order = np.arange(n_features)
    hist = np.zeros((256, n_classes))
    seen = np.zeros(256, dtype=np.uint8)
    present = np.empty(256, dtype=np.int64)
    here, first, second = np.zeros(n_classes), np.zeros(n_classes), np.zeros(n_classes)
    below, nothing = np.zeros(n_classes), np.zeros(n_classes)
    members, hits, counted = np.zeros(n_classes), np.zeros(n_classes), np.zeros(n_classes)
    best_first, best_second = np.zeros(n_classes), np.zeros(n_classes)
    other_rows, other_labels = np.empty_like(rows), np.empty_like(labels)
    other_weights = np.empty_like(weights)

    # Of the whole tree: its leaves are the nodes that are not split (yet).
    for i in range(n_rows):
        members[labels[i]] += weights[i]
    root = _argmax(members)
    hits[root] = members[root]
    counted[root] = members.sum()

    stack = np.empty((n_rows + 1, 4), dtype=np.int64)
    stack[0] = (0, 0, n_rows, 0)
    size, n_nodes, n_leaves = 1, 1, 0
    while size > 0:
        size -= 1
        node, start, end, depth = stack[size]
        here[:] = 0.0
        for i in range(start, end):
            here[labels[i]] += weights[i]
        total = here.sum()
        label = _argmax(here)
        n_present = 0
        for c in here:
            if c > 0.0:
                n_present += 1

        found = -1
        found_cut, found_missing = 0, False
        is_tried = n_present > 1 and depth < max_depth and total >= 2.0 * least
        if is_tried:
            # From here on, hits and counted are those of the rows outside of the node.
            if whole_tree:
                hits[label] -= here[label]
                counted[label] -= total
            else:
                members[:] = here
                hits[:] = 0.0
                counted[:] = 0.0
            start_score = _score(
                *(kind, address, sign, ask, members, hits, counted),
                *(here, nothing, label, -1, total, 0.0),
            )
            start_purity = _purity(here, total)
            best, best_purity = start_score, start_purity if by_purity else np.inf
            tolerance = _EQUAL * abs(start_score)
            tried = 0
            for k in range(n_features):
                if tried == n_tried:
                    break
                if n_tried < n_features:
                    other = k + _draw(random, n_features - k)
                    order[k], order[other] = order[other], order[k]
                f = order[k]
                column = codes[f]
                for i in range(start, end):
                    code = column[np.uint64(rows[i])]
                    seen[code] = 1
                    hist[code, np.uint32(labels[i])] += weights[i]
                n_bins = 0
                for code in range(MISSING):
                    if seen[code]:
                        present[n_bins] = code
                        n_bins += 1
                        seen[code] = 0
                has_missing = seen[MISSING] == 1
                seen[MISSING] = 0
                if n_bins + has_missing > 1:
                    tried += 1
                    below[:] = 0.0
                    # The last cut tells only rows with a value from those without one.
                    for place in range(n_bins if has_missing else n_bins - 1):
                        code = present[place]
                        for j in range(n_classes):
                            below[j] += hist[code, j]
                        for side in range(2 if has_missing and place < n_bins - 1 else 1):
                            n_first, n_second = 0.0, 0.0
                            for j in range(n_classes):
                                first[j] = below[j]
                                if side == 1:
                                    first[j] += hist[MISSING, j]
                                second[j] = max(here[j] - first[j], 0.0)
                                n_first += first[j]
                                n_second += second[j]
                            if n_first < least or n_second < least or n_second <= 0.0:
                                continue
                            if is_short:
                                score = _two_class_score(
                                    kind, members, hits, counted, first, second
                                )
                            else:
                                score = _score(
                                    *(kind, address, sign, ask, members, hits, counted),
                                    *(first, second, _argmax(first), _argmax(second)),
                                    *(n_first, n_second),
                                )
                            if not score <= best + tolerance:
                                continue
                            purity = _purity(first, n_first) + _purity(second, n_second)
                            if score < best - tolerance or purity > best_purity * (1.0 + _EQUAL):
                                best, best_purity = score, purity
                                # In the middle of the bins between which the node has no rows.
                                found, found_cut = f, MISSING - 1
                                if place < n_bins - 1:
                                    found_cut = (code + present[place + 1] - 1) // 2
                                if has_missing:
                                    found_missing = side == 1
                                else:
                                    found_missing = n_first >= n_second
                                best_first[:] = first
                                best_second[:] = second
                for place in range(n_bins):
                    hist[present[place]] = 0.0
                if has_missing:
                    hist[MISSING] = 0.0

        if found < 0:
            if is_tried and whole_tree:
                hits[label] += here[label]
                counted[label] += total
            feature[node] = -1
            left[node] = -1 - n_leaves
            counts[n_leaves] = here
            n_leaves += 1
            continue
        if whole_tree:
            a, b = _argmax(best_first), _argmax(best_second)
            hits[a] += best_first[a]
            counted[a] += best_first.sum()
            hits[b] += best_second[b]
            counted[b] += best_second.sum()
        importances[found] += best_purity - start_purity
        feature[node], cut[node], left[node] = found, found_cut, n_nodes
        missing_left[node] = found_missing
        # The rows of a child keep their order, so that memory is read forwards.
        middle, n_other = start, 0
        for i in range(start, end):
            code = codes[found, rows[i]]
            if found_missing if code == MISSING else code <= found_cut:
                rows[middle], labels[middle], weights[middle] = rows[i], labels[i], weights[i]
                middle += 1
            else:
                other_rows[n_other], other_labels[n_other] = rows[i], labels[i]
                other_weights[n_other] = weights[i]
                n_other += 1
        rows[middle:end] = other_rows[:n_other]
        labels[middle:end] = other_labels[:n_other]
        weights[middle:end] = other_weights[:n_other]
        stack[size] = (n_nodes + 1, middle, end, depth + 1)
        stack[size + 1] = (n_nodes, start, middle, depth + 1)
        size += 2
        n_nodes += 2
    return n_nodes, n_leaves


def _route(codes, rows, feature, cut, left, missing_left, leaves):
    """Write the leaf of each of the rows to ``leaves``."""
    for i in range(rows.shape[0]):
        node = 0
        while left[node] >= 0:
            code = codes[feature[node], rows[i]]
            goes_left = missing_left[node] if code == MISSING else code <= cut[node]
            node = left[node] + (0 if goes_left else 1)
        leaves[i] = -1 - left[node]


def _apply(X, roots, feature, threshold, left, missing_left, leaves):
    """Write the leaf of each row in each tree to ``leaves``, with a column for each tree."""
    for t in range(roots.shape[0]):
        for i in range(X.shape[0]):
            node = roots[t]
            while left[node] >= 0:
                value = X[i, feature[node]]
                goes_left = missing_left[node] if np.isnan(value) else value <= threshold[node]
                node = left[node] + (0 if goes_left else 1)
            leaves[i, t] = -1 - left[node]


def _add(values, leaves, out):
    """Add the values of the leaves of each row, over all trees, to ``out``."""
    for i in range(leaves.shape[0]):
        for t in range(leaves.shape[1]):
            leaf = leaves[i, t]
            for j in range(values.shape[1]):
                out[i, j] += values[leaf, j]


def _kept(kind):
    """The same type, for arrays that may be read-only: trees that were loaded may be memory maps."""
    return types.Array(kind.dtype, kind.ndim, "C", readonly=True)


assign = Routine(_assign, types.void(reals, reals, _bytes))
grow = Routine(
    _grow,
    types.UniTuple(types.int64, 2)(
        *(_codes, integers, _indices, reals),
        *(types.int64, types.uintp, types.float64, types.Array(types.float64, 3, "C")),
        *(types.boolean, types.boolean, types.int64, types.float64, types.int64, types.uint64),
        *(_indices, _bytes, _indices, _flags, tables, reals),
    ),
)
route = Routine(_route, types.void(_codes, integers, _indices, _bytes, _indices, _flags, _indices))
apply = Routine(
    _apply,
    types.void(
        *(tables, _kept(integers), _kept(_indices), _kept(reals), _kept(_indices)),
        *(_kept(_flags), _index_table),
    ),
)
add = Routine(_add, types.void(tables, _index_table, tables))
