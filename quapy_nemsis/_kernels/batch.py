"""Scores of rows, by one model or several, and weighted sums of rows."""

from __future__ import annotations

import numpy as np

from quapy_nemsis._jit import REORDERED, Kernel, Wide, cubes, real, reals, tables, types
from quapy_nemsis._kernels.rows import (
    AHEAD,
    axpy,
    class_count,
    class_dots,
    dot,
    dot_alone,
    dot_fours,
    prefetch,
)


def _score(rows, order, w, b, out):
    """Write w·x + b for the rows in ``order``; w is a table of one row."""
    total = order.shape[0]
    for at in range(total):
        if at + AHEAD < total:
            prefetch(rows, order[at + AHEAD])
        product, _ = dot(rows, order[at], w, np.uint64(0))
        out[at] = product + b


def _score_all(rows, order, w, b, lanes, products, out):
    """Write w·x + b for the rows in ``order``, with one model per row of ``w`` and per column of ``out``.

    Models can lie in fours, and ``lanes`` and ``products`` are as in `quapy_nemsis._kernels.nemsis`.
    """
    total = order.shape[0]
    for at in range(total):
        if at + AHEAD < total:
            prefetch(rows, order[at + AHEAD])
        dot_fours(rows, order[at], w, lanes, products)
        for k in range(np.uint64(products.shape[0])):
            dot_alone(rows, order[at], w, k, products)
            out[at, k] = products[k, 0] + b[k]


def _class_score(rows, order, w, b, out):
    """Write the scores of all classes for the rows in ``order``; ``w`` has one entry, laid out as `class_dots` says."""
    total, n_classes = order.shape[0], class_count(rows, w)
    for at in range(total):
        if at + AHEAD < total:
            prefetch(rows, order[at + AHEAD])
        class_dots(rows, order[at], w, np.uint64(0), out[at])
        for c in range(n_classes):
            out[at, c] += b[c]


def _squares(rows, order, squares, nonzero):
    """Add up the squares of each feature and count its nonzero entries, over the CSR rows in ``order``."""
    data, indices, indptr = rows
    for i in order:
        for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            column = np.uint64(indices[j])
            xj = np.float64(data[j])
            squares[column] += xj * xj
            nonzero[column] += xj != 0.0


def _add(rows, order, factors, w):
    """Add the rows in ``order`` to w, each multiplied by its factor."""
    for at in range(order.shape[0]):
        if factors[at] != 0.0:
            axpy(rows, order[at], factors[at], w, np.uint64(0))


score = Kernel(_score, types.void, Wide(tables), real, reals)
score_all, score_all_in_fours = (
    Kernel(_score_all, types.void, Wide(weights), reals, tables, tables, tables)
    for weights in (tables, cubes)
)
class_score = Kernel(_class_score, types.void, Wide(cubes), reals, tables, fastmath=REORDERED)
squares = Kernel(_squares, types.void, Wide(reals), Wide(reals))
add = Kernel(_add, types.void, reals, Wide(tables))
