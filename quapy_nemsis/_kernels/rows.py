"""Access to the rows of a matrix from compiled code: one interface for dense and CSR data.

*Rows* are a tuple of arrays: ``(X,)`` with X two-dimensional and C-ordered, or the CSR parts
``(data, indices, indptr)``. The functions below pick the implementation from the tuple's type while the
kernel compiles, so a kernel is written once and no matrix is ever copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

#: How many rows ahead of the current one memory is asked for.
AHEAD = 8
# In steps of how many entries (a cache line of float64), and up to how many: the hardware sees to the rest of a row.
_STEP = 8
_MOST = 128


def as_rows(X: Any) -> tuple:
    """Arrays of a C-ordered dense or canonical CSR matrix, not copied."""
    if scipy.sparse.issparse(X):
        return (X.data, X.indices, X.indptr)
    return (X,)


def take_rows(rows: tuple, order: np.ndarray) -> tuple:
    """Copies of some rows, as rows."""
    if len(rows) == 1:
        return (rows[0][order],)
    lengths = np.diff(rows[2])[order]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(rows[2].dtype)
    # Where each entry comes from: the beginning of its row, and how far into it.
    entries = np.arange(indptr[-1]) + np.repeat(rows[2][order] - indptr[:-1], lengths)
    return rows[0][entries], rows[1][entries], indptr


def join_rows(first: tuple, second: tuple) -> tuple:
    """Rows followed by further rows."""
    if len(first) == 1:
        return (np.concatenate([first[0], second[0]]),)
    indptr = np.concatenate([first[2], second[2][1:] + first[2][-1]])
    return (*(np.concatenate(parts) for parts in zip(first[:2], second[:2], strict=True)), indptr)


@intrinsic
def _prefetch(typingctx, array, index):
    """Ask the memory for the cache line of ``array.ravel()[index]`` (LLVM's prefetch, read, keep)."""

    def codegen(context, builder, signature, args):
        array_type = signature.args[0]
        data = context.make_array(array_type)(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        flag = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch",
            (ir.IntType(8).as_pointer(),),
            ir.FunctionType(ir.VoidType(), [address.type, flag, flag, flag]),
        )
        builder.call(function, [address, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


def prefetch(rows, i):
    """Ask the memory for (the beginning of) row i."""


def dot(rows, i, v, k):
    """(v[k]·x, x·x) for row x = X[i]."""


def axpy(rows, i, c, v, k):
    """Add c·x to v[k], for row x = X[i]."""


def axpy2(rows, i, c, v, d, u, k):
    """Add c·x to v[k] and d·x to u[k], for row x = X[i], in one walk."""


def _implement(interface, n_arrays, fastmath):
    """Register the decorated function for compiled calls of ``interface`` with rows of so many arrays."""

    def register(implementation):
        def choose(rows, *rest):
            return implementation if len(rows) == n_arrays else None

        options = {"error_model": "numpy", "fastmath": fastmath}
        overload(interface, jit_options=options, strict=False)(choose)
        return implementation

    return register


def _dense(interface):
    # Sums over a dense row may be reordered, which lets the compiler vectorise them.
    return _implement(interface, 1, {"reassoc", "contract", "nsz"})


def _csr(interface):
    # Over a CSR row they may not: vectorised they would need gathers, which are slower. Indices are taken as unsigned
    # below, which spares a test for negative ones at every access.
    return _implement(interface, 3, {"contract"})


@_dense(prefetch)
def _prefetch_dense(rows, i):
    X = rows[0]
    width = X.shape[1]
    for j in range(0, min(width, _MOST), _STEP):
        _prefetch(X, i * width + j)
    _prefetch(X, i * width + width - 1)


@_csr(prefetch)
def _prefetch_csr(rows, i):
    data, indices, indptr = rows
    start = np.int64(indptr[i])
    for j in range(start, min(np.int64(indptr[i + 1]), start + _MOST), _STEP):
        _prefetch(data, j)
        _prefetch(indices, j)


@_dense(dot)
def _dot_dense(rows, i, v, k):
    X = rows[0]
    product = 0.0
    square = 0.0
    for j in range(X.shape[1]):
        xj = np.float64(X[i, j])
        product += v[k, j] * xj
        square += xj * xj
    return product, square


@_csr(dot)
def _dot_csr(rows, i, v, k):
    data, indices, indptr = rows
    product = 0.0
    square = 0.0
    for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        xj = np.float64(data[j])
        product += v[k, np.uint64(indices[j])] * xj
        square += xj * xj
    return product, square


@_dense(axpy)
def _axpy_dense(rows, i, c, v, k):
    X = rows[0]
    for j in range(X.shape[1]):
        v[k, j] += c * np.float64(X[i, j])


@_csr(axpy)
def _axpy_csr(rows, i, c, v, k):
    data, indices, indptr = rows
    for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        v[k, np.uint64(indices[j])] += c * np.float64(data[j])


@_dense(axpy2)
def _axpy2_dense(rows, i, c, v, d, u, k):
    X = rows[0]
    for j in range(X.shape[1]):
        xj = np.float64(X[i, j])
        v[k, j] += c * xj
        u[k, j] += d * xj


@_csr(axpy2)
def _axpy2_csr(rows, i, c, v, d, u, k):
    data, indices, indptr = rows
    for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        column = np.uint64(indices[j])
        xj = np.float64(data[j])
        v[k, column] += c * xj
        u[k, column] += d * xj
