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

#: How many rows ahead of the current one memory is asked for, and how much of such a row.
AHEAD = 8
_LINE = 64
_MOST_LINES = 16


def as_rows(X: Any) -> tuple:
    """Arrays of a C-ordered dense or canonical CSR matrix, not copied."""
    if scipy.sparse.issparse(X):
        return (X.data, X.indices, X.indptr)
    return (X,)


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


def _is_dense(rows: types.Type) -> bool:
    return len(rows) == 1


def prefetch(rows, i):
    """Ask the memory for (the beginning of) row i."""


def dot(rows, i, v):
    """(v·x, x·x) for row x = X[i]."""


def axpy(rows, i, c, v):
    """v ← v + c·x for row x = X[i]."""


def axpy2(rows, i, c, v, d, u):
    """v ← v + c·x and u ← u + d·x for row x = X[i], in one walk."""


@overload(prefetch)
def _prefetch_row(rows, i):
    if _is_dense(rows):
        step = _LINE // np.dtype(str(rows[0].dtype)).itemsize

        def dense(rows, i):
            width = rows[0].shape[1]
            start = i * width
            for j in range(0, min(width, _MOST_LINES * step), step):
                _prefetch(rows[0], start + j)
            _prefetch(rows[0], start + width - 1)

        return dense

    def csr(rows, i):
        data, indices, indptr = rows
        start = np.int64(indptr[i])
        size = np.int64(indptr[i + 1]) - start
        for j in range(0, min(size, 128), 8):
            _prefetch(data, start + j)
            _prefetch(indices, start + j)

    return csr


@overload(dot)
def _dot(rows, i, v):
    if _is_dense(rows):

        def dense(rows, i, v):
            x = rows[0][i]
            product = 0.0
            square = 0.0
            for j in range(x.shape[0]):
                xj = np.float64(x[j])
                product += v[j] * xj
                square += xj * xj
            return product, square

        return dense

    def csr(rows, i, v):
        data, indices, indptr = rows
        product = 0.0
        square = 0.0
        for j in range(indptr[i], indptr[i + 1]):
            xj = np.float64(data[j])
            product += v[indices[j]] * xj
            square += xj * xj
        return product, square

    return csr


@overload(axpy)
def _axpy(rows, i, c, v):
    if _is_dense(rows):

        def dense(rows, i, c, v):
            x = rows[0][i]
            for j in range(x.shape[0]):
                v[j] += c * np.float64(x[j])

        return dense

    def csr(rows, i, c, v):
        data, indices, indptr = rows
        for j in range(indptr[i], indptr[i + 1]):
            v[indices[j]] += c * np.float64(data[j])

    return csr


@overload(axpy2)
def _axpy2(rows, i, c, v, d, u):
    if _is_dense(rows):

        def dense(rows, i, c, v, d, u):
            x = rows[0][i]
            for j in range(x.shape[0]):
                xj = np.float64(x[j])
                v[j] += c * xj
                u[j] += d * xj

        return dense

    def csr(rows, i, c, v, d, u):
        data, indices, indptr = rows
        for j in range(indptr[i], indptr[i + 1]):
            k = indices[j]
            xj = np.float64(data[j])
            v[k] += c * xj
            u[k] += d * xj

    return csr
