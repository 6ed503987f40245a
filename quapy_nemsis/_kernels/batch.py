"""Scores of rows and weighted sums of rows: the two operations of a mini-batch step on the data."""

from __future__ import annotations

import numpy as np

from quapy_nemsis._jit import Kernel, Wide, real, reals, tables, types
from quapy_nemsis._kernels.rows import AHEAD, axpy, dot, prefetch


def _score(rows, order, w, b, out):
    """Write w·x + b for the rows in ``order``; w is a table of one row."""
    total = order.shape[0]
    for at in range(total):
        if at + AHEAD < total:
            prefetch(rows, order[at + AHEAD])
        product, _ = dot(rows, order[at], w, np.uint64(0))
        out[at] = product + b


def _add(rows, order, factors, w):
    """Add the rows in ``order`` to w, each multiplied by its factor."""
    for at in range(order.shape[0]):
        if factors[at] != 0.0:
            axpy(rows, order[at], factors[at], w, np.uint64(0))


score = Kernel(_score, types.void, Wide(tables), real, reals)
add = Kernel(_add, types.void, reals, Wide(tables))
