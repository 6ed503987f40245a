"""The only place that knows numba's caching, signatures and function pointers.

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
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core.errors import NumbaError
from numba.extending import intrinsic, register_jitable

from quapy_nemsis._sources import source_digest

real = types.float64
reals = types.Array(types.float64, 1, "C")
tables = types.Array(types.float64, 2, "C")

#: Set to "0" to compile in every process and keep nothing on disk.
CACHE_VARIABLE = "QUAPY_NEMSIS_CACHE"

# The array through which a kernel and a measure talk: what the measure is asked, what it answers, its parameters.
(ASK_P, ASK_N, ASK_Q1, ASK_Q2, ASK_SHARE, ASK_EPS) = range(6)
(WEIGHT_POS, WEIGHT_NEG, ZETA1, ZETA1_P, ZETA1_N, ZETA2, ZETA2_P, ZETA2_N) = range(6, 14)
THETA = 14
# The same for a loss.
(ASK_LOSS_P, ASK_LOSS_N, ASK_LOSS_D, ASK_LOSS_SHARE, ASK_LOSS_EPS, LOSS, LOSS_THETA) = range(7)


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


@lru_cache(maxsize=256)
def duals_callback(
    gradient: Callable, values: Callable | None, n_theta: int, cacheable: bool = True
) -> Any:
    """Compile a measure's functions into one that answers a kernel.

    Parameters
    ----------
    gradient : callable
        ``gradient(P, N, x, y, p, eps, theta)``, the six partial derivatives of ζ₁, ζ₂ and Ψ.
    values : callable or None
        ``values(P, N, p, eps, theta)``, (ζ₁, ζ₂); None if Ψ is affine, because then they are not needed.
    n_theta : int
        Number of the measure's parameters.
    cacheable : bool, default=True
        Whether the result may be kept on disk: numba would not notice a change in a user's source.

    Returns
    -------
    numba CFunc
        Its ``address`` goes to the kernel; the object must outlive the call.
    """
    length = THETA + n_theta
    gradient = register_jitable(gradient)

    if values is None:

        def duals(pointer):
            a = numba.carray(pointer, (length,))
            a1, a2, b1, b2, g1, g2 = gradient(
                a[ASK_P], a[ASK_N], a[ASK_Q1], a[ASK_Q2], a[ASK_SHARE], a[ASK_EPS], a[THETA:]
            )
            a[WEIGHT_POS] = g1 * a1 + g2 * b1
            a[WEIGHT_NEG] = g1 * a2 + g2 * b2

    else:
        values = register_jitable(values)

        def duals(pointer):
            a = numba.carray(pointer, (length,))
            a1, a2, b1, b2, g1, g2 = gradient(
                a[ASK_P], a[ASK_N], a[ASK_Q1], a[ASK_Q2], a[ASK_SHARE], a[ASK_EPS], a[THETA:]
            )
            a[WEIGHT_POS] = g1 * a1 + g2 * b1
            a[WEIGHT_NEG] = g1 * a2 + g2 * b2
            z1, z2 = values(a[ASK_P], a[ASK_N], a[ASK_SHARE], a[ASK_EPS], a[THETA:])
            a[ZETA1], a[ZETA1_P], a[ZETA1_N] = z1, a1, a2
            a[ZETA2], a[ZETA2_P], a[ZETA2_N] = z2, b1, b2

    return _callback(duals, cacheable)


@lru_cache(maxsize=256)
def loss_callback(function: Callable, n_theta: int, cacheable: bool = True) -> Any:
    """Compile a loss's ``f(P, N, d, p, eps, theta)`` into one that answers a kernel, as `duals_callback` does."""
    length = LOSS_THETA + n_theta
    function = register_jitable(function)

    def loss(pointer):
        a = numba.carray(pointer, (length,))
        a[LOSS] = function(
            a[ASK_LOSS_P],
            a[ASK_LOSS_N],
            a[ASK_LOSS_D],
            a[ASK_LOSS_SHARE],
            a[ASK_LOSS_EPS],
            a[LOSS_THETA:],
        )

    return _callback(loss, cacheable)


def _callback(function: Callable, cacheable: bool) -> Any:
    signature = types.void(types.CPointer(types.float64))

    def build(cached: bool) -> Any:
        return numba.cfunc(signature, cache=cached, nopython=True, error_model="numpy")(function)

    return _with_cache(build) if cacheable else build(False)


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


class Kernel:
    """A compiled loop over rows, built on the first call for each type of rows.

    Its signature must be explicit, so that the same kernel takes arrays that may be written and read-only ones (memory
    maps).

    Parameters
    ----------
    function : callable
        The loop; its first argument is a tuple of arrays, the rows (see `quapy_nemsis._kernels.rows`).
    returns : numba type
        Type of the result.
    *arguments : numba types
        Types of the arguments after the rows.
    """

    def __init__(self, function: Callable, returns: types.Type, *arguments: types.Type):
        self.function = function
        self.returns = returns
        self.arguments = arguments
        self.compiled: dict[tuple, Any] = {}

    def __call__(self, rows: tuple, *arguments: Any) -> Any:
        key = tuple((part.dtype.char, part.ndim) for part in rows)
        if key not in self.compiled:
            with _compiling:  # threads that come together compile once
                if key not in self.compiled:
                    self.compiled[key] = self._compile(rows)
        return self.compiled[key](rows, *arguments)

    def _compile(self, rows: tuple) -> Any:
        parts = [
            types.Array(numba.from_dtype(part.dtype), part.ndim, "C", readonly=True)
            for part in rows
        ]
        return _compile(self.function, self.returns(types.Tuple(parts), *self.arguments))
