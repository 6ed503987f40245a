"""Access to the rows of a matrix from compiled code: one interface for dense and CSR data.

*Rows* are a tuple of arrays: ``(X,)`` with X two-dimensional and C-ordered, or the CSR parts
``(data, indices, indptr)``. The functions below pick the implementation from the tuple's type while the
kernel compiles, so a kernel is written once and no matrix is ever copied.
"""

from __future__ import annotations

from typing import Any

import numba
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


def prefetch(rows, *row):
    """Ask the memory for (the beginning of) row i."""


def dot(rows, *rest):
    """(v·x, x·x) for row x = X[i]."""


def axpy(rows, *rest):
    """V ← v + c·x for row x = X[i]."""


def axpy2(rows, *rest):
    """V ← v + c·x and u ← u + d·x for row x = X[i], in one walk."""


# Sums over a dense row may be reordered, which lets the compiler vectorise them. Over a CSR row they may not:
# vectorised they would need gathers, which are slower. Unsigned indices spare a test for negative ones.
_DENSE = {"error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
_CSR = {"error_model": "numpy", "fastmath": {"contract"}}


@numba.njit(**_DENSE)
def _dense_prefetch(X, i):
    width = X.shape[1]
    step = _LINE // X.itemsize
    for j in range(0, min(width, _MOST_LINES * step), step):
        _prefetch(X, i * width + j)
    _prefetch(X, i * width + width - 1)


@numba.njit(**_CSR)
def _csr_prefetch(data, indices, indptr, i):
    start = np.int64(indptr[i])
    stop = min(np.int64(indptr[i + 1]), start + _MOST_LINES * (_LINE // data.itemsize))
    for j in range(start, stop, _LINE // data.itemsize):
        _prefetch(data, j)
    for j in range(start, stop, _LINE // indices.itemsize):
        _prefetch(indices, j)


@numba.njit(**_DENSE)
def _dense_dot(X, i, v):
    x = X[i]
    product = 0.0
    square = 0.0
    for j in range(x.shape[0]):
        xj = np.float64(x[j])
        product += v[j] * xj
        square += xj * xj
    return product, square


@numba.njit(**_CSR)
def _csr_dot(data, indices, indptr, i, v):
    product = 0.0
    square = 0.0
    for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        xj = np.float64(data[j])
        product += v[np.uint64(indices[j])] * xj
        square += xj * xj
    return product, square


@numba.njit(**_DENSE)
def _dense_axpy(X, i, c, v):
    x = X[i]
    for j in range(x.shape[0]):
        v[j] += c * np.float64(x[j])


@numba.njit(**_CSR)
def _csr_axpy(data, indices, indptr, i, c, v):
    for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        v[np.uint64(indices[j])] += c * np.float64(data[j])


@numba.njit(**_DENSE)
def _dense_axpy2(X, i, c, v, d, u):
    x = X[i]
    for j in range(x.shape[0]):
        xj = np.float64(x[j])
        v[j] += c * xj
        u[j] += d * xj


@numba.njit(**_CSR)
def _csr_axpy2(data, indices, indptr, i, c, v, d, u):
    for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        k = np.uint64(indices[j])
        xj = np.float64(data[j])
        v[k] += c * xj
        u[k] += d * xj


def _implement(interface, dense, csr):
    """Let compiled code call ``interface(rows, ...)`` with dense or CSR rows."""

    def choose(rows, *_):
        if len(rows) == 1:
            return lambda rows, *rest: dense(rows[0], *rest)
        return lambda rows, *rest: csr(rows[0], rows[1], rows[2], *rest)

    overload(interface, strict=False)(choose)


_implement(prefetch, _dense_prefetch, _csr_prefetch)
_implement(dot, _dense_dot, _csr_dot)
_implement(axpy, _dense_axpy, _csr_axpy)
_implement(axpy2, _dense_axpy2, _csr_axpy2)
