"""The only place that knows numba: compiling, caching, signatures and function pointers.

Kernels call a measure through the address of a compiled C function, so one kernel serves every measure and is
compiled, and cached on disk, once. (A jitted function as an argument would recompile the kernel in every process;
numba's first-class functions would not, but cost 7 ns more a call than a bare ``void f(double *)``.)
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
from numba.extending import intrinsic, overload
from numba.extending import register_jitable as jitable

__all__ = [
    "CACHE_VARIABLE",
    "Kernel",
    "Record",
    "Routine",
    "Wide",
    "call",
    "callback",
    "carray",
    "cloudpickle",
    "compiled_result",
    "flags",
    "integers",
    "intrinsic",
    "ir",
    "jitable",
    "overload",
    "real",
    "reals",
    "records",
    "tables",
    "types",
]

from quapy_nemsis._sources import source_digest

real = types.float64
reals = types.Array(types.float64, 1, "C")
tables = types.Array(types.float64, 2, "C")
integers = types.Array(types.int64, 1, "C")
flags = types.Array(types.boolean, 1, "C")

#: Set to "0" to compile in every process and keep nothing on disk.
CACHE_VARIABLE = "QUAPY_NEMSIS_CACHE"


def records(dtype: np.dtype) -> types.Array:
    """Type of an array of records."""
    return types.Array(numba.from_dtype(dtype), 1, "C")


@dataclass(frozen=True)
class Wide:
    """An argument that has a column for each feature."""

    type: types.Type


class Record:
    """Numbers that a kernel keeps, float64 under names, and what becomes of each when learners are merged.

    Parameters
    ----------
    sums : tuple of str
        Numbers that add up over points.
    means : tuple of str
        Numbers that are averaged, in proportion to the points.
    derived : tuple of str
        Numbers that follow from others.
    """

    def __init__(
        self, sums: tuple[str, ...], means: tuple[str, ...] = (), derived: tuple[str, ...] = ()
    ):
        self.sums, self.means, self.derived = sums, means, derived
        self.dtype = np.dtype([(name, np.float64) for name in (*sums, *means, *derived)])

    def zeros(self) -> np.ndarray:
        """A record of zeros."""
        return np.zeros((), dtype=self.dtype)


_warned = False
_compiling = threading.RLock()

# Compiled code is kept in a folder named by all sources: numba looks at the file of the outermost function only, and
# would go on with old code of what that calls. Named at import: what is compiled later is what was read then.
_PREFIX = "quapy-nemsis-"
_FOLDER = _PREFIX + source_digest()[:12]
_FORGOTTEN = 30 * 24 * 3600.0  # seconds after which a folder that no process has used is removed


def _warn_uncached(error: Exception) -> None:
    """Warn once a process."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "quapy_nemsis: compiled kernels cannot be kept on disk, so each process compiles them anew "
            f"({type(error).__name__}: {error}). Set NUMBA_CACHE_DIR to a writable directory, or "
            f"{CACHE_VARIABLE}=0 to silence this.",
            RuntimeWarning,
            stacklevel=2,
        )


def _cache_folder() -> str:
    """The folder for these sources, made if need be, in the first of numba's places where one can write."""
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
    """Make a folder unless it is there, and mark it as used; OSError if one cannot write there."""
    new = not folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()
    os.utime(folder)
    if new:
        for other in folder.parent.glob(_PREFIX + "[0-9a-f]" * 12):
            with suppress(OSError):  # another process may be at it too
                if other.stat().st_mtime < time.time() - _FORGOTTEN:
                    shutil.rmtree(other, ignore_errors=True)
    return str(folder)


@contextmanager
def _caching_in(folder: str) -> Iterator[None]:
    """Have numba keep in a folder what is decorated meanwhile: a function's place is settled at its decoration."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = folder
    try:
        yield
    finally:
        if folder == numba.config.CACHE_DIR:  # else numba has just read a changed environment
            numba.config.CACHE_DIR = before


def _with_cache(build: Callable[[bool], Any]) -> Any:
    """Run ``build(True)``; a cache that cannot be used costs a warning, never the result."""
    if os.environ.get(CACHE_VARIABLE, "1") == "0":
        return build(False)
    try:
        with _compiling, _caching_in(_cache_folder()):
            return build(True)
    except NumbaError:
        raise
    except Exception as error:  # no folder, disk full, a broken cache file: numba raises all sorts
        compiled = build(False)
        _warn_uncached(error)
        return compiled


@intrinsic
def call(typingctx, address, table, k):
    """Call the C function ``void f(double *)`` at an address with row k of a table."""

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[1])(context, builder, args[1])
        width = builder.extract_value(array.shape, 1)
        row = builder.gep(array.data, [builder.mul(args[2], width)])
        function = ir.FunctionType(ir.VoidType(), [row.type]).as_pointer()
        builder.call(builder.inttoptr(args[0], function), [row])
        return context.get_dummy_value()

    return types.void(types.uintp, table, types.uint64), codegen


def callback(function: Callable) -> Any:
    """Compile ``function(pointer)``, of a pointer to float64, to a C function; its ``address`` goes to a kernel.

    The object must outlive the call. Compiled code is kept on disk if all of the source belongs to this package: numba
    would not notice a change in a user's source.
    """
    signature = types.void(types.CPointer(types.float64))

    def build(cached: bool) -> Any:
        return numba.cfunc(signature, cache=cached, nopython=True, error_model="numpy")(function)

    return _with_cache(build) if _is_ours(function) else build(False)


def _is_ours(thing: Any) -> bool:
    """Whether a function, and every function in its closure, comes from this package."""
    function = getattr(thing, "py_func", thing)
    code = getattr(function, "__code__", None)
    if code is None:
        return not callable(thing)
    inside = (cell.cell_contents for cell in function.__closure__ or ())
    here = Path(__file__).resolve().parent
    return here in Path(code.co_filename).resolve().parents and all(map(_is_ours, inside))


def compiled_result(function: Callable, what: str) -> int | str:
    """Compile a user's function of three numbers and an array; how many numbers it returns, or numba's word for it.

    Raises
    ------
    ValueError
        In one sentence with the line, if numba cannot compile it.
    """
    try:
        dispatcher = numba.njit(function)
        dispatcher.compile((real, real, real, reals))
    except Exception as error:  # not only NumbaError: what a function can do wrong has no end
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
        numeric = all(isinstance(part, types.Number | types.Boolean) for part in result)
        return len(result) if numeric else str(result)
    return 1 if isinstance(result, types.Number | types.Boolean) else str(result)


def _compile(function: Callable, signature: Any) -> Any:
    return _with_cache(
        lambda cached: numba.njit(
            signature,
            cache=cached,
            nogil=True,
            error_model="numpy",
            # Fused multiply-adds, but NaN and inf keep their meaning: divergence must be noticed.
            fastmath={"contract"},
        )(function)
    )


class Routine:
    """A compiled function of arrays and numbers, built on the first call: a decorator would compile at import.

    Parameters
    ----------
    function : callable
        The function.
    signature : numba signature
        Types of its result and arguments.
    """

    def __init__(self, function: Callable, signature: Any):
        self.function = function
        self.signature = signature
        self.compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self.compiled is None:
            with _compiling:
                if self.compiled is None:
                    self.compiled = _compile(self.function, self.signature)
        return self.compiled(*arguments)


def _all_below(order, n):
    highest = np.int64(-1)
    lowest = np.int64(0)
    for place in order:
        highest = max(highest, place)
        lowest = min(lowest, place)
    return lowest >= 0 and highest < n


#: Whether all places are those of n rows.
_within = Routine(_all_below, types.boolean(integers, types.int64))


class Rows(Protocol):
    """Checked rows of a matrix (see `quapy_nemsis._kernels.rows`)."""

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What compiled code reads."""

    @property
    def width(self) -> int:
        """Number of features."""

    def __len__(self) -> int: ...


class Kernel:
    """A compiled loop over rows in a given order, built on the first call for each type of rows.

    Compiled code does not look where it reads and writes. So rows are checked when they are made, and here it is
    checked that the other arguments fit them. The signature is explicit, so that the same kernel takes arrays that may
    be written and read-only ones (memory maps).

    Parameters
    ----------
    function : callable
        The loop; its first arguments are a tuple of arrays, the rows, and the order in which they are taken.
    returns : numba type
        Type of the result.
    *arguments : numba types
        Types of the arguments after the order. Flags have one entry for each row, `Wide` arguments a column for each
        feature.
    """

    def __init__(self, function: Callable, returns: types.Type, *arguments: types.Type | Wide):
        self.function = function
        self.returns = returns
        self.wide = [k for k, kind in enumerate(arguments) if isinstance(kind, Wide)]
        self.labels = [k for k, kind in enumerate(arguments) if kind is flags]
        self.arguments = [kind.type if isinstance(kind, Wide) else kind for kind in arguments]
        self.compiled: dict[tuple, Any] = {}

    def __call__(self, rows: Rows, order: np.ndarray, *arguments: Any) -> Any:
        if not _within(order, len(rows)):
            raise ValueError(f"the order names rows that are not there: there are {len(rows)} rows")
        if any(len(arguments[k]) != len(rows) for k in self.labels):
            raise ValueError(f"there must be one label for each of the {len(rows)} rows")
        if any(arguments[k].shape[1] != rows.width for k in self.wide):
            raise ValueError(f"the rows have {rows.width} features, the weights are for others")
        arrays = rows.arrays
        key = tuple((part.dtype.char, part.ndim) for part in arrays)
        if key not in self.compiled:
            with _compiling:  # threads that come together compile once
                if key not in self.compiled:
                    self.compiled[key] = self._compile(arrays)
        return self.compiled[key](arrays, order, *arguments)

    def _compile(self, arrays: tuple[np.ndarray, ...]) -> Any:
        parts = [
            types.Array(numba.from_dtype(part.dtype), part.ndim, "C", readonly=True)
            for part in arrays
        ]
        signature = self.returns(types.Tuple(parts), integers, *self.arguments)
        return _compile(self.function, signature)
