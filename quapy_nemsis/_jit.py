"""The only module that imports numba: compiling, caching, signatures and function pointers.

Kernels call a measure through the address of a compiled C function. One kernel therefore serves every measure, and is
compiled and cached on disk only once. (A jitted function as an argument would recompile the kernel in every process.
numba's first-class functions would not, but each call would cost 7 ns more than with a bare ``void f(double *)``.)
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numba
import numpy as np
from llvmlite import ir
from numba import carray, cloudpickle, types
from numba.core.errors import NumbaError
from numba.extending import intrinsic, models, overload, register_model
from numba.extending import register_jitable as jitable

__all__ = [
    "CACHE_VARIABLE",
    "EXACT",
    "REORDERED",
    "Kernel",
    "Record",
    "Routine",
    "Wide",
    "call",
    "callback",
    "carray",
    "cloudpickle",
    "codes",
    "compiled_result",
    "cubes",
    "flags",
    "four_zeros",
    "fused",
    "integers",
    "intrinsic",
    "ir",
    "jitable",
    "load_four",
    "octets",
    "overload",
    "real",
    "reals",
    "records",
    "store_four",
    "tables",
    "types",
]

from quapy_nemsis._sources import source_digest

real = types.float64
reals = types.Array(types.float64, 1, "C")
tables = types.Array(types.float64, 2, "C")
cubes = types.Array(types.float64, 3, "C")
integers = types.Array(types.int64, 1, "C")
flags = types.Array(types.boolean, 1, "C")
codes = types.Array(types.int32, 1, "C")
octets = types.Array(types.int8, 1, "C")

#: Environment variable; "0" means: compile in every process and keep nothing on disk.
CACHE_VARIABLE = "QUAPY_NEMSIS_CACHE"


def records(dtype: np.dtype) -> types.Array:
    """Numba type of an array of records."""
    return types.Array(numba.from_dtype(dtype), 1, "C")


@dataclass(frozen=True)
class Wide:
    """Type of a kernel argument that has one entry for each feature along an axis.

    The axis is the last one. Arguments with three axes, weights of K classes, have the features last for dense rows and
    before the classes for CSR rows.
    """

    type: types.Type

    def axis(self, n_arrays: int) -> int:
        """The axis of the features, for rows of so many arrays."""
        return -2 if self.type.ndim == 3 and n_arrays == 3 else -1


@dataclass(frozen=True)
class Optional:
    """Type of a kernel argument that has one entry for each row, or none at all, and the name of an entry."""

    type: types.Type
    name: str = "weight"


class Record:
    """Named float64 numbers that a kernel keeps, grouped by what happens to them when learners are merged.

    Parameters
    ----------
    sums : tuple of str
        Names of numbers that add up over points.
    means : tuple of str
        Names of numbers that are averaged, weighted by the number of points.
    derived : tuple of str
        Names of numbers that are computed from the others.
    per_class : tuple of str
        Which of these names stand for one number for each class. They come last in the record.
    """

    def __init__(
        self,
        sums: tuple[str, ...],
        means: tuple[str, ...] = (),
        derived: tuple[str, ...] = (),
        per_class: tuple[str, ...] = (),
    ):
        self.sums, self.means, self.derived, self.per_class = sums, means, derived, per_class
        every = (*sums, *means, *derived)
        self.single = tuple(name for name in every if name not in per_class)
        self.dtype = self.dtype_for(2)

    def dtype_for(self, n_classes: int) -> np.dtype:
        """Type of the record for a number of classes."""
        numbers = [(name, np.float64) for name in self.single]
        return np.dtype([*numbers, *((name, np.float64, (n_classes,)) for name in self.per_class)])

    def zeros(self, n_classes: int = 2) -> np.ndarray:
        """A record of zeros."""
        return np.zeros((), dtype=self.dtype_for(n_classes))

    def split(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Views of a record: its single numbers, and a table with a row for each number of the classes."""
        flat, n = numbers.reshape(1).view(np.float64), len(self.single)
        return flat[:n], flat[n:].reshape(len(self.per_class), -1)


_warned = False
_compiling = threading.RLock()

# Compiled code is kept in a folder named after a digest of all sources. numba itself checks only the file of the
# outermost function, and would keep using old code for the functions that it calls. The digest is taken at import,
# because code that is compiled later was read from the sources at import.
_PREFIX = "quapy-nemsis-"
_FOLDER = _PREFIX + source_digest()[:12]
_FORGOTTEN = 30 * 24 * 3600.0  # seconds; a folder that no process has used for longer is removed


def _warn_uncached(error: Exception) -> None:
    """Warn, once per process, that compiled code cannot be kept."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "quapy_nemsis: compiled kernels cannot be kept on disk, so each process compiles them again "
            f"({type(error).__name__}: {error}). Set NUMBA_CACHE_DIR to a writable directory, or set "
            f"{CACHE_VARIABLE}=0 to silence this warning.",
            RuntimeWarning,
            stacklevel=2,
        )


def _cache_folder() -> str:
    """Return the cache folder for these sources, in the first base directory that is writable."""
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    bases = (
        numba.config.CACHE_DIR,
        os.path.join(os.path.dirname(__file__), "__pycache__"),
        os.path.join(user, "quapy-nemsis") if os.path.isabs(user) else "",
    )
    for base in bases:
        if base:
            try:
                return _made(Path(base) / _FOLDER)
            except OSError as error:
                reason = error
    raise reason


def _made(folder: Path) -> str:
    """Create a folder if it does not exist, and mark it as used.

    A new folder is the occasion to remove folders that have not been used for long. Raises OSError if the folder is not
    writable.
    """
    new = not folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()
    os.utime(folder)
    if new:
        for other in folder.parent.glob(_PREFIX + "[0-9a-f]" * 12):
            with suppress(OSError):  # another process may be removing it too
                if other.stat().st_mtime < time.time() - _FORGOTTEN:
                    shutil.rmtree(other, ignore_errors=True)
    return str(folder)


@contextmanager
def _caching_in(folder: str) -> Iterator[None]:
    """Let numba use a folder as the cache of all functions decorated within the context."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = folder
    try:
        yield
    finally:
        if folder == numba.config.CACHE_DIR:  # otherwise numba has just read a changed environment
            numba.config.CACHE_DIR = before


def _with_cache(build: Callable[[bool], Any]) -> Any:
    """Run ``build(True)``, which uses the cache. If the cache fails, run ``build(False)`` and warn."""
    if os.environ.get(CACHE_VARIABLE, "1") == "0":
        return build(False)
    try:
        with _compiling, _caching_in(_cache_folder()):
            return build(True)
    except NumbaError:
        raise
    except Exception as error:  # no folder, disk full, broken file: types of errors vary
        compiled = build(False)
        _warn_uncached(error)
        return compiled


@intrinsic
def call(typingctx, address, table, k):
    """Call the C function ``void f(double *)`` at an address, with entry k of an array of tables or rows."""

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[1])(context, builder, args[1])
        width = builder.extract_value(array.shape, 1)
        if signature.args[1].ndim == 3:
            width = builder.mul(width, builder.extract_value(array.shape, 2))
        row = builder.gep(array.data, [builder.mul(args[2], width)])
        function = ir.FunctionType(ir.VoidType(), [row.type]).as_pointer()
        builder.call(builder.inttoptr(args[0], function), [row])
        return context.get_dummy_value()

    return types.void(types.uintp, table, types.uint64), codegen


class _Four(types.Type):
    """Four adjacent float64, which the processor handles at once. numba has no such type, and forms none by itself."""

    def __init__(self) -> None:
        super().__init__("four")


_four = _Four()
_FOUR = ir.VectorType(ir.DoubleType(), 4)


@register_model(_Four)
class _FourModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: types.Type):
        super().__init__(manager, kind, _FOUR)


def _place_of_four(context, builder, array_type, array, place):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [place]), _FOUR.as_pointer())


@intrinsic
def four_zeros(typingctx):
    """Four zeros."""
    return _four(), lambda context, builder, signature, args: ir.Constant(_FOUR, [0.0] * 4)


@intrinsic
def load_four(typingctx, array, place):
    """Read four numbers of ``array.ravel()``, from a place on."""

    def codegen(context, builder, signature, args):
        return builder.load(_place_of_four(context, builder, signature.args[0], *args), align=8)

    return _four(array, types.uint64), codegen


@intrinsic
def store_four(typingctx, array, place, four):
    """Write four numbers to ``array.ravel()``, from a place on."""

    def codegen(context, builder, signature, args):
        address = _place_of_four(context, builder, signature.args[0], *args[:2])
        builder.store(args[2], address, align=8)
        return context.get_dummy_value()

    return types.void(array, types.uint64, _four), codegen


@intrinsic
def fused(typingctx, four, factor, added):
    """Multiply four numbers by a factor and add four others, rounded as the same arithmetic of single numbers is."""

    def codegen(context, builder, signature, args):
        first = builder.insert_element(ir.Constant(_FOUR, ir.Undefined), args[1], ir.IntType(32)(0))
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), 4), [0] * 4)
        factors = builder.shuffle_vector(first, first, everywhere)
        product = builder.fmul(args[0], factors, flags=("contract",))
        return builder.fadd(product, args[2], flags=("contract",))

    return _four(_four, types.float64, _four), codegen


#: How compiled code may transform arithmetic. By default only to fused multiply-adds: NaN and inf must keep their
#: meaning, so that divergence is noticed. Sums may be reordered where that pays, so that they can be vectorised.
STRICT, REORDERED = {"contract"}, {"contract", "reassoc", "nsz"}
#: Not at all: results are those of the same arithmetic in numpy, to the last bit.
EXACT: set[str] = set()


def callback(function: Callable, fastmath: Any = False) -> Any:
    """Compile ``function(pointer)``, which takes a pointer to float64, to a C function; kernels take its ``address``.

    Keep the returned object for as long as a kernel uses the address. Compiled code is kept on disk only if all of the
    source belongs to this package, because numba would not notice a change in a user's source. Arithmetic of users is
    never reordered: math.isfinite, for example, would then always be true.
    """
    signature = types.void(types.CPointer(types.float64))
    ours = _is_ours(function)

    def build(cached: bool) -> Any:
        options = {
            "nopython": True,
            "error_model": "numpy",
            "fastmath": fastmath if ours else False,
        }
        return numba.cfunc(signature, cache=cached, **options)(function)

    return _with_cache(build) if ours else build(False)


def _is_ours(thing: Any) -> bool:
    """Whether a function, and every function in its closure, is defined in this package."""
    function = getattr(thing, "py_func", thing)
    code = getattr(function, "__code__", None)
    if code is None:
        return not callable(thing)
    inside = (cell.cell_contents for cell in function.__closure__ or ())
    here = Path(__file__).resolve().parent
    return here in Path(code.co_filename).resolve().parents and all(map(_is_ours, inside))


def compiled_result(function: Callable, what: str, arrays: int = 1) -> int | str:
    """Compile a user's function of four arguments, of which the last ones are arrays, to see what it returns.

    Returns
    -------
    int or str
        How many numbers the function returns, or the name of the numba type if it returns anything else; "arrays" for
        a pair of arrays.

    Raises
    ------
    ValueError
        If numba cannot compile the function. The message is one sentence that names the line.
    """
    try:
        dispatcher = numba.njit(function)
        dispatcher.compile((real,) * (4 - arrays) + (reals,) * arrays)
    except Exception as error:  # not only NumbaError: a user's function can fail in any way
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        first = next((i for i, x in enumerate(lines) if not x.startswith(("Failed in", "-"))), 0)
        reason = " ".join(lines[first : first + (2 if lines[first].endswith(":") else 1)])
        places = re.findall(r'File "([^"]+)", line (\d+)', text)
        code = function.__code__
        file, line = places[-1] if places else (code.co_filename, code.co_firstlineno)
        where = f"{os.path.basename(file)}, line {line}"
        raise ValueError(f"{what} cannot be compiled by numba: {reason} ({where})") from None
    result = dispatcher.nopython_signatures[-1].return_type
    if isinstance(result, types.BaseTuple):
        if len(result) == 2 and all(
            isinstance(part, types.Array) and part.ndim == 1 for part in result
        ):
            return "arrays"
        numeric = all(isinstance(part, types.Number | types.Boolean) for part in result)
        return len(result) if numeric else str(result)
    return 1 if isinstance(result, types.Number | types.Boolean) else str(result)


def _compile(
    function: Callable, signature: Any, fastmath: set[str] = STRICT, counted: bool = True
) -> Any:
    return _with_cache(
        lambda cached: numba.njit(
            signature,
            cache=cached,
            nogil=True,
            error_model="numpy",
            fastmath=fastmath,
            _nrt=counted,
        )(function)
    )


class Routine:
    """A compiled function of arrays and numbers. It is compiled on its first call, not at import.

    Parameters
    ----------
    function : callable
        The function to compile.
    signature : numba signature
        Types of its result and arguments.
    fastmath : set of str
        How arithmetic may be transformed.
    """

    def __init__(self, function: Callable, signature: Any, fastmath: set[str] = STRICT):
        self.function, self.fastmath = function, fastmath
        self.signature = signature
        self.compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self.compiled is None:
            with _compiling:
                if self.compiled is None:
                    self.compiled = _compile(self.function, self.signature, self.fastmath)
        return self.compiled(*arguments)


def _all_below(order, n):
    highest = np.int64(-1)
    lowest = np.int64(0)
    for place in order:
        highest = max(highest, place)
        lowest = min(lowest, place)
    return lowest >= 0 and highest < n


#: Whether all indices are in the range of n rows.
_within = Routine(_all_below, types.boolean(integers, types.int64))


class Rows(Protocol):
    """Checked rows of a matrix (see `quapy_nemsis._kernels.rows`)."""

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays that compiled code reads."""

    @property
    def width(self) -> int:
        """Number of features."""

    def __len__(self) -> int: ...


class Kernel:
    """A compiled loop over rows in a given order. It is compiled on the first call for each type of rows.

    Compiled code does not check where it reads and writes. Rows are therefore checked when they are made, and each call
    checks that the other arguments fit the rows. The signature is explicit, so that the same kernel takes both writable
    and read-only arrays (memory maps).

    Parameters
    ----------
    function : callable
        The loop. Its first two arguments are the rows, as a tuple of arrays, and the order in which to take them.
    returns : numba type
        Type of the result.
    *arguments : numba types
        Types of the arguments after the order. An argument of type `flags` or `codes` has one entry for each row, an
        `Optional` one has one for each row or none, and a `Wide` one has one for each feature along an axis.
    fastmath : set of str
        How arithmetic may be transformed.
    """

    def __init__(
        self,
        function: Callable,
        returns: types.Type,
        *arguments: types.Type | Wide | Optional,
        fastmath: set[str] = STRICT,
    ):
        self.function, self.fastmath = function, fastmath
        self.returns = returns
        self.wide = [(k, kind) for k, kind in enumerate(arguments) if isinstance(kind, Wide)]
        self.labels = [k for k, kind in enumerate(arguments) if kind is flags or kind is codes]
        self.optional = [
            (k, kind.name) for k, kind in enumerate(arguments) if isinstance(kind, Optional)
        ]
        self.arguments = [
            kind.type if isinstance(kind, (Wide, Optional)) else kind for kind in arguments
        ]
        self.compiled: dict[tuple, Any] = {}

    def __call__(self, rows: Rows, order: np.ndarray, *arguments: Any) -> Any:
        n_rows = len(rows)
        if not _within(order, n_rows):
            raise ValueError(
                f"order must hold row indices, but there are {n_rows} rows; got {order.min()} to {order.max()}"
            )
        for k in self.labels:
            if len(arguments[k]) != n_rows:
                raise ValueError(f"there must be one label for each of the {n_rows} rows")
        for k, name in self.optional:
            if len(arguments[k]) not in (0, n_rows):
                raise ValueError(f"there must be one {name} for each of the {n_rows} rows, or none")
        arrays = rows.arrays
        for k, kind in self.wide:
            if arguments[k].shape[kind.axis(len(arrays))] != rows.width:
                raise ValueError(
                    f"the rows have {rows.width} features; give weights with as many columns"
                )
        key = tuple((part.dtype.char, part.ndim) for part in arrays)
        if key not in self.compiled:
            with _compiling:  # threads that arrive together compile it once
                if key not in self.compiled:
                    self.compiled[key] = self._compile(arrays)
        return self.compiled[key](arrays, order, *arguments)

    def _compile(self, arrays: tuple[np.ndarray, ...]) -> Any:
        parts = [
            types.Array(numba.from_dtype(part.dtype), part.ndim, "C", readonly=True)
            for part in arrays
        ]
        signature = self.returns(types.Tuple(parts), integers, *self.arguments)
        # Loops over rows make no arrays. Without counting references, atomic operations do not hold up each step.
        return _compile(self.function, signature, self.fastmath, counted=False)
