"""Access to the rows of a matrix from compiled code: one interface for dense and CSR data.

*Rows* hold a tuple of arrays: ``(X,)`` with X two-dimensional and C-ordered, or the CSR parts
``(data, indices, indptr)``. The compiled functions below pick the implementation from the tuple's type while the
kernel compiles, so a kernel is written once and no matrix is ever copied. Compiled code does not check where it reads,
so everything it relies on is checked when the rows are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from quapy_nemsis._jit import (
    four_zeros,
    fused,
    intrinsic,
    ir,
    jitable,
    load_four,
    overload,
    store_four,
    types,
)

#: Rows are prefetched this many rows ahead of the current one.
AHEAD = 8
# Prefetch every _STEP-th entry (a cache line of float64), up to _MOST; the hardware prefetches the rest of a row.
_STEP = 8
_MOST = 128
# numba would make mixed sums of signed and unsigned integers float64.
_0, _1, _2, _3, _4, _8 = (np.uint64(number) for number in (0, 1, 2, 3, 4, 8))


@dataclass(frozen=True)
class Rows:
    """Rows of a matrix, in the form that kernels take. Make them with `as_rows`, which checks the matrix."""

    #: ``(X,)`` or ``(data, indices, indptr)``.
    arrays: tuple[np.ndarray, ...]
    #: Number of features.
    width: int

    def __len__(self) -> int:
        *_, last = self.arrays
        return len(last) - (len(self.arrays) == 3)

    def take(self, order: np.ndarray) -> Rows:
        """Copy some rows, in the given order."""
        match self.arrays:
            case (X,):
                return Rows((X[order],), self.width)
            case (data, indices, indptr):
                lengths = np.diff(indptr)[order]
                bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(indptr.dtype)
                # Source position of each entry: the start of its row plus its offset within the row.
                entries = np.arange(bounds[-1]) + np.repeat(indptr[order] - bounds[:-1], lengths)
                return Rows((data[entries], indices[entries], bounds), self.width)
        raise TypeError(f"rows must have one array or three; got {len(self.arrays)}")

    def checked(self) -> Rows:
        """Check the rows with `as_rows` and return them."""
        return as_rows(self.matrix())

    def matrix(self) -> Any:
        """The rows as an array or a CSR matrix."""
        if len(self.arrays) == 1:
            return self.arrays[0]
        return scipy.sparse.csr_matrix(self.arrays, shape=(len(self), self.width))


def as_rows(X: Any) -> Rows:
    """Return the rows of a C-ordered dense matrix or a canonical CSR matrix, checked but not copied."""
    if scipy.sparse.issparse(X):
        check_compressed(X)
        arrays: tuple[np.ndarray, ...] = (X.data, X.indices, X.indptr)
        fine = all(part.dtype in (np.int32, np.int64) for part in arrays[1:])
    else:
        arrays, fine = (X,), X.ndim == 2
    if not fine or not all(part.dtype.isnative and part.flags.c_contiguous for part in arrays):
        raise ValueError("rows must be a C-ordered matrix of numbers in native byte order")
    if arrays[0].dtype not in (np.float64, np.float32):
        raise ValueError(f"rows must be float64 or float32; got {arrays[0].dtype}: convert them")
    return Rows(arrays, X.shape[1])


def check_compressed(X: Any) -> None:
    """Raise ValueError for a CSR, CSC or BSR matrix whose indices are out of range."""
    if X.format == "bsr":
        X.check_format(full_check=True)
        return
    n, width = X.shape if X.format == "csr" else X.shape[::-1]
    indptr, indices = X.indptr, X.indices
    if indptr.dtype.kind != "i" or indices.dtype.kind != "i":
        raise ValueError(f"indices of a sparse matrix must be integers; got {indices.dtype}")
    if indptr.shape != (n + 1,) or indptr[0] != 0 or (indptr[:-1] > indptr[1:]).any():
        raise ValueError(
            "indptr of a sparse matrix must start at 0, never fall, and have one more entry than rows"
        )
    if not indptr[-1] == len(indices) == len(X.data):
        raise ValueError(
            f"indptr of a sparse matrix ends at {indptr[-1]}, but it has {len(indices)} indices and "
            f"{len(X.data)} values"
        )
    if len(indices) and not (indices.min() >= 0 and indices.max() < width):
        raise ValueError(
            f"indices of a sparse matrix must be from 0 to {width - 1}; "
            f"got {indices.min()} to {indices.max()}"
        )


def join_rows(first: Rows, second: Rows) -> Rows:
    """Join rows with further rows; if either is CSR, the result is CSR."""
    kinds = {len(first.arrays), len(second.arrays)}
    dtype = np.result_type(first.arrays[0], second.arrays[0])
    matrices = [rows.matrix() for rows in (first, second)]
    if kinds == {1}:
        return Rows((np.concatenate(matrices, dtype=dtype),), first.width)
    return as_rows(scipy.sparse.vstack(matrices, format="csr", dtype=dtype))


@intrinsic
def _prefetch(typingctx, array, index):
    """Prefetch the cache line of ``array.ravel()[index]`` (with LLVM's prefetch, for reading, to be kept)."""

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
    """Prefetch row i, or its beginning if it is long."""


def dot(rows, i, v, k):
    """(v[k]·x, x·x) for row x = X[i]."""


def axpy(rows, i, c, v, k):
    """Add c·x to v[k], for row x = X[i]."""


def axpy2(rows, i, c, v, d, u, k):
    """Add c·x to v[k] and d·x to u[k], for row x = X[i], in one loop."""


# CSR rows reach weights at places that are not adjacent. So that a place costs one cache line for four learners, their
# weights can lie *in fours*: v[k // 4, feature, k % 4] are the weights of learner k, and at 4 + k % 4 follow its
# corrections. Each sum over a row then goes over the entries one by one, as that of a learner alone.


def dot_alone(rows, i, v, k, products):
    """Write `dot` to products[k], unless learners lie in fours."""


def dot_fours(rows, i, v, lanes, products):
    """Write `dot` to all products, if learners lie in fours."""


def move_alone(rows, i, v, c, d, averaged, u, k, lanes):
    """Add c·x to v[k] and, if it is averaged, d·x to u[k]; if learners lie in fours, `move_fours` will."""


def move_fours(rows, i, v, lanes, square):
    """Make the moves of learners that lie in fours, and forget them; ``square`` is x·x."""


def close_sums(v, u, previous, scale_sum, k):
    """Write scale_sum·v[k] − u[k] to previous[k], and zeros to u[k]."""


def multiply_out(v, u, scale_sum, scale, k):
    """Take scale_sum·v[k] from u[k], and multiply v[k] by its scale."""


def square_norm(v, k):
    """v[k]·v[k]."""


def class_count(rows, v):
    """Number of classes of weights v, whose axes depend on the rows (see `class_dots`)."""


def class_prefetch(rows, i, v, k):
    """Prefetch the weights that `class_dots` reads, if there is a learner k and the rows are CSR."""


def class_dots(rows, i, v, k, out):
    """Write v[k]·x for each class, for row x = X[i], and return x·x.

    Weights are laid out class by class for dense rows, v[k, class, feature], and feature by feature for CSR rows,
    v[k, feature, class], so that the inner loop runs over adjacent numbers.
    """


def class_axpy(rows, i, factors, v, k):
    """Add factors[c]·x to the weights of each class c, for row x = X[i]."""


def class_axpy2(rows, i, factors, v, d, u, k):
    """Add factors[c]·x to v[k] and d·factors[c]·x to u[k] for each class c, for row x = X[i]."""


def pair_axpy(rows, i, c, first, second, v, k):
    """Add c·x to the weights of the first class and take it from those of the second."""


def pair_axpy2(rows, i, c, first, second, v, d, u, k):
    """Do `pair_axpy` for v[k] with c and for u[k] with d, in one loop."""


def _implement(interface, n_arrays, fastmath):
    """Register the decorated function for compiled calls of ``interface`` with rows of ``n_arrays`` arrays."""

    def register(implementation):
        def choose(rows, *rest):
            return implementation if len(rows) == n_arrays else None

        options = {"error_model": "numpy", "fastmath": fastmath, "forceinline": True}
        overload(interface, jit_options=options, strict=False)(choose)
        return implementation

    return register


def _dense(interface):
    # Sums over a dense row may be reordered, so that the compiler can vectorise them.
    return _implement(interface, 1, {"reassoc", "contract", "nsz"})


def _csr(interface):
    # Sums over a CSR row may not be reordered: vectorised, they would need gathers, which are slower. Indices are used
    # as unsigned below, which saves a test for negative indices at every access.
    return _implement(interface, 3, {"contract"})


def _layout(interface, place, ndim):
    """Register the decorated function for weights of so many axes, which are the argument at that place."""

    def register(implementation):
        def choose(*arguments):
            return implementation if arguments[place].ndim == ndim else None

        options = {"error_model": "numpy", "fastmath": {"contract"}, "forceinline": True}
        overload(interface, jit_options=options, strict=False)(choose)
        return implementation

    return register


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


@jitable
def _close_sums(weights, corrections, previous, scale_sum):
    for j in range(weights.shape[0]):
        previous[j] = scale_sum * weights[j] - corrections[j]
        corrections[j] = 0.0


@_layout(close_sums, 0, 2)
def _close_sums_alone(v, u, previous, scale_sum, k):
    _close_sums(v[k], u[k], previous[k], scale_sum)


@_layout(close_sums, 0, 3)
def _close_sums_in_fours(v, u, previous, scale_sum, k):
    _close_sums(v[k >> _2, :, k & _3], u[k >> _2, :, _4 + (k & _3)], previous[k], scale_sum)


@jitable
def _multiply_out(weights, corrections, scale_sum, scale):
    for j in range(weights.shape[0]):
        corrections[j] -= scale_sum * weights[j]
        weights[j] *= scale


@_layout(multiply_out, 0, 2)
def _multiply_out_alone(v, u, scale_sum, scale, k):
    _multiply_out(v[k], u[k], scale_sum, scale)


@_layout(multiply_out, 0, 3)
def _multiply_out_in_fours(v, u, scale_sum, scale, k):
    _multiply_out(v[k >> _2, :, k & _3], u[k >> _2, :, _4 + (k & _3)], scale_sum, scale)


@jitable
def _square_norm(weights):
    norm2 = 0.0
    for j in range(weights.shape[0]):
        norm2 += weights[j] * weights[j]
    return norm2


@_layout(square_norm, 0, 2)
def _square_norm_alone(v, k):
    return _square_norm(v[k])


@_layout(square_norm, 0, 3)
def _square_norm_in_fours(v, k):
    return _square_norm(v[k >> _2, :, k & _3])


@_layout(dot_alone, 2, 2)
def _dot_alone(rows, i, v, k, products):
    products[k, 0], products[k, 1] = dot(rows, i, v, k)


@_layout(dot_alone, 2, 3)
def _dot_not_alone(rows, i, v, k, products):
    pass


@_layout(move_alone, 2, 2)
def _move_alone(rows, i, v, c, d, averaged, u, k, lanes):
    if averaged:
        axpy2(rows, i, c, v, d, u, k)
    else:
        axpy(rows, i, c, v, k)


@_layout(move_alone, 2, 3)
def _move_later(rows, i, v, c, d, averaged, u, k, lanes):
    lanes[k >> _2, k & _3] = c
    lanes[k >> _2, _4 + (k & _3)] = d if averaged else 0.0


@_layout(dot_fours, 2, 2)
def _dot_no_fours(rows, i, v, lanes, products):
    pass


@_layout(move_fours, 2, 2)
def _move_no_fours(rows, i, v, lanes, square):
    pass


@_layout(dot_fours, 2, 3)
def _dot_fours(rows, i, v, lanes, products):
    data, indices, indptr = rows
    n_fours, width = np.uint64(v.shape[0]), np.uint64(v.shape[1])
    begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
    square = 0.0
    # Two fours at a time: each entry of the row is read once for them, and their sums do not wait for each other.
    for g in range(_0, n_fours & ~_1, _2):
        first, second = four_zeros(), four_zeros()
        square = 0.0
        for j in range(begin, end):
            xj = np.float64(data[j])
            place = (g * width + np.uint64(indices[j])) * _8
            first = fused(load_four(v, place), xj, first)
            second = fused(load_four(v, place + width * _8), xj, second)
            square += xj * xj
        store_four(lanes, g * _8, first)
        store_four(lanes, (g + _1) * _8, second)
    if n_fours & _1:
        g = n_fours - _1
        first = four_zeros()
        square = 0.0
        for j in range(begin, end):
            xj = np.float64(data[j])
            first = fused(load_four(v, (g * width + np.uint64(indices[j])) * _8), xj, first)
            square += xj * xj
        store_four(lanes, g * _8, first)
    for k in range(np.uint64(products.shape[0])):
        products[k, 0], products[k, 1] = lanes[k >> _2, k & _3], square
        lanes[k >> _2, k & _3] = 0.0


@_layout(move_fours, 2, 3)
def _move_fours(rows, i, v, lanes, square):
    data, indices, indptr = rows
    n_fours, width = np.uint64(v.shape[0]), np.uint64(v.shape[1])
    begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
    for g in range(n_fours):
        moves = False
        for lane in range(_8):
            moves |= lanes[g, lane] != 0.0
        if not moves:
            continue
        if not square < np.inf:
            # 0·x is not 0 if x is not finite: learners that stay where they are must not move.
            for lane in range(_8):
                if lanes[g, lane] != 0.0:
                    for j in range(begin, end):
                        v[g, np.uint64(indices[j]), lane] += lanes[g, lane] * np.float64(data[j])
        else:
            c, d = load_four(lanes, g * _8), load_four(lanes, g * _8 + _4)
            for j in range(begin, end):
                xj = np.float64(data[j])
                place = (g * width + np.uint64(indices[j])) * _8
                store_four(v, place, fused(c, xj, load_four(v, place)))
                store_four(v, place + _4, fused(d, xj, load_four(v, place + _4)))
        for lane in range(_8):
            lanes[g, lane] = 0.0


@_dense(class_count)
def _class_count_dense(rows, v):
    return v.shape[1]


@_csr(class_count)
def _class_count_csr(rows, v):
    return v.shape[2]


@_dense(class_prefetch)
def _class_prefetch_dense(rows, i, v, k):
    pass


@_csr(class_prefetch)
def _class_prefetch_csr(rows, i, v, k):
    _, indices, indptr = rows
    width, n_classes = np.uint64(v.shape[1]), np.uint64(v.shape[2])
    if k < np.uint64(v.shape[0]):
        for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            place = (k * width + np.uint64(indices[j])) * n_classes
            for c in range(_0, n_classes, _8):
                _prefetch(v, np.int64(place + c))
            _prefetch(v, np.int64(place + n_classes - _1))


@_dense(class_dots)
def _class_dots_dense(rows, i, v, k, out):
    X = rows[0]
    width, n_classes = X.shape[1], v.shape[1]
    square = 0.0
    # Four classes at a time: each entry of the row is read once for them, and their sums do not wait for each other.
    for c in range(0, n_classes - 3, 4):
        square = first = second = third = fourth = 0.0
        for j in range(width):
            xj = np.float64(X[i, j])
            square += xj * xj
            first += v[k, c, j] * xj
            second += v[k, c + 1, j] * xj
            third += v[k, c + 2, j] * xj
            fourth += v[k, c + 3, j] * xj
        out[c], out[c + 1], out[c + 2], out[c + 3] = first, second, third, fourth
    c = n_classes - n_classes % 4
    if n_classes % 4 == 3:
        square = first = second = third = 0.0
        for j in range(width):
            xj = np.float64(X[i, j])
            square += xj * xj
            first += v[k, c, j] * xj
            second += v[k, c + 1, j] * xj
            third += v[k, c + 2, j] * xj
        out[c], out[c + 1], out[c + 2] = first, second, third
    elif n_classes % 4 == 2:
        square = first = second = 0.0
        for j in range(width):
            xj = np.float64(X[i, j])
            square += xj * xj
            first += v[k, c, j] * xj
            second += v[k, c + 1, j] * xj
        out[c], out[c + 1] = first, second
    elif n_classes % 4 == 1:
        product = 0.0
        for j in range(width):
            product += v[k, c, j] * np.float64(X[i, j])
        out[c] = product
    return square


@_csr(class_dots)
def _class_dots_csr(rows, i, v, k, out):
    data, indices, indptr = rows
    n_classes = v.shape[2]
    square = 0.0
    for c in range(n_classes):
        out[c] = 0.0
    for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        column = np.uint64(indices[j])
        xj = np.float64(data[j])
        square += xj * xj
        for c in range(n_classes):
            out[c] += v[k, column, c] * xj
    return square


@_dense(class_axpy)
def _class_axpy_dense(rows, i, factors, v, k):
    X = rows[0]
    for c in range(v.shape[1]):
        if factors[c] != 0.0:
            for j in range(X.shape[1]):
                v[k, c, j] += factors[c] * np.float64(X[i, j])


@_csr(class_axpy)
def _class_axpy_csr(rows, i, factors, v, k):
    data, indices, indptr = rows
    for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        column = np.uint64(indices[j])
        xj = np.float64(data[j])
        for c in range(v.shape[2]):
            v[k, column, c] += factors[c] * xj


@_dense(class_axpy2)
def _class_axpy2_dense(rows, i, factors, v, d, u, k):
    X = rows[0]
    for c in range(v.shape[1]):
        factor = factors[c]
        if factor != 0.0:
            for j in range(X.shape[1]):
                step = factor * np.float64(X[i, j])
                v[k, c, j] += step
                u[k, c, j] += d * step


@_csr(class_axpy2)
def _class_axpy2_csr(rows, i, factors, v, d, u, k):
    data, indices, indptr = rows
    for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        column = np.uint64(indices[j])
        xj = np.float64(data[j])
        for c in range(v.shape[2]):
            step = factors[c] * xj
            v[k, column, c] += step
            u[k, column, c] += d * step


@_dense(pair_axpy)
def _pair_axpy_dense(rows, i, c, first, second, v, k):
    X = rows[0]
    for j in range(X.shape[1]):
        step = c * np.float64(X[i, j])
        v[k, first, j] += step
        v[k, second, j] -= step


@_csr(pair_axpy)
def _pair_axpy_csr(rows, i, c, first, second, v, k):
    data, indices, indptr = rows
    for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        column = np.uint64(indices[j])
        step = c * np.float64(data[j])
        v[k, column, first] += step
        v[k, column, second] -= step


@_dense(pair_axpy2)
def _pair_axpy2_dense(rows, i, c, first, second, v, d, u, k):
    X = rows[0]
    for j in range(X.shape[1]):
        xj = np.float64(X[i, j])
        v[k, first, j] += c * xj
        v[k, second, j] -= c * xj
        u[k, first, j] += d * xj
        u[k, second, j] -= d * xj


@_csr(pair_axpy2)
def _pair_axpy2_csr(rows, i, c, first, second, v, d, u, k):
    data, indices, indptr = rows
    for j in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        column = np.uint64(indices[j])
        xj = np.float64(data[j])
        v[k, column, first] += c * xj
        v[k, column, second] -= c * xj
        u[k, column, first] += d * xj
        u[k, column, second] -= d * xj
