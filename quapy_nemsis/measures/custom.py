"""Custom measures: Python functions that are compiled like the built-in measures.

A function of the rates has the form ``f(P, N, p, theta)``, an outer function the form ``psi(x, y, p, theta)``. Here p
is the share of positives and ``theta`` the array of the measure's parameters. Each function returns one number and must
use only Python that numba can compile: arithmetic, ``math``, numpy's scalar functions, conditions.

By default, gradients are central differences with h = 2⁻¹⁷, in compiled code. P and N are kept max(h, ε) away from 0
and 1, so that roots and logarithms have gradients at the edges too (ε = 1/(2t), because t points give rates no finer
than that). Alternatively, you can give gradients: functions of the same arguments that return the two partial
derivatives. They are checked against the values and called at the rates themselves. Where a gradient is not finite, it
is evaluated at the nearest point that central differences would use.

Functions are checked on a grid of rates, at four shares of positives. This catches mistakes but proves nothing.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from quapy_nemsis._jit import cloudpickle, jitable, overload
from quapy_nemsis.measures.checks import check_nested, check_pseudo
from quapy_nemsis.measures.contract import (
    Functions,
    Measure,
    NestedMeasure,
    PseudoMeasure,
    is_number,
    valuation_outer,
)

_H = 2.0**-17


# --------------------------------------------------------------------------- compilation for kernels


def _names(code: types.CodeType) -> set[str]:
    """Names of globals that a code object, or a code object nested in it, may use."""
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return set(code.co_names).union(*(_names(const) for const in inner))


def _frozen(function: types.FunctionType) -> types.FunctionType:
    """Copy a function together with the globals it uses, so that later changes of these do not affect the measure."""
    used = {
        name: value
        for name, value in function.__globals__.items()
        if name in _names(function.__code__)
    }
    used["__name__"] = function.__module__
    used["__builtins__"] = function.__globals__.get("__builtins__", __builtins__)
    copy = types.FunctionType(
        function.__code__, used, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__module__ = function.__module__
    return copy


def fingerprint(thing: Any) -> Any:
    """Return a hashable value that is equal for functions with the same code and data.

    Each time a function is sent to another process, it becomes a new object there. With this value as the key, it is
    still compiled only once.
    """
    if isinstance(thing, types.FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        names = sorted(_names(thing.__code__))
        used = [thing.__globals__.get(name) for name in names]
        parts = (thing.__code__, cells, names, used, list(thing.__defaults__ or ()))
        return tuple(fingerprint(part) for part in parts)
    if isinstance(thing, types.CodeType):
        return (thing.co_code, thing.co_names, fingerprint(list(thing.co_consts)))
    if isinstance(thing, (tuple, list)):
        return tuple(fingerprint(part) for part in thing)
    if isinstance(thing, types.ModuleType):
        return thing.__name__
    try:
        hash(thing)
    except TypeError:
        return id(thing)
    return (type(thing).__name__, repr(thing) if isinstance(thing, float) else thing)


_jitable: dict[Any, Callable] = {}
_built: dict[Any, Functions] = {}


def _compilable(function: Callable) -> Callable:
    key = fingerprint(function)
    if key not in _jitable:
        _jitable[key] = jitable(function)
    return _jitable[key]


@jitable
def _inside(rate, eps):
    """Clip a rate to [max(ε, h), 1 − max(ε, h)]."""
    low = min(max(eps, _H), 0.5)
    return min(max(rate, low), 1.0 - low)


def _clamped(f: Callable) -> Callable:
    """Return the function with rates clipped to [0, 1]."""

    def nearest(P, N, p, theta):
        return f(min(max(P, 0.0), 1.0), min(max(N, 0.0), 1.0), p, theta)

    return jitable(nearest)


def _finite(f: Callable) -> Callable:
    """Return f with finite values: where f is not finite, the value at the nearest point that differences would use.

    Such points occur because surrogate rewards may be negative and rates may be 0.
    """

    def value(P, N, p, eps, theta):
        try:
            exact = f(P, N, p, theta)
        except (ArithmeticError, ValueError):
            exact = math.nan
        if not isinstance(exact, complex) and math.isfinite(exact):
            return exact
        return f(_inside(P, eps), _inside(N, eps), p, theta)

    # Compiled code does not raise; it returns inf or nan.
    def compiled(P, N, p, eps, theta):
        exact = f(P, N, p, theta)
        if math.isfinite(exact):
            return exact
        return f(_inside(P, eps), _inside(N, eps), p, theta)

    overload(value)(lambda P, N, p, eps, theta: compiled)
    return value


def _finite_pair(d: Callable) -> Callable:
    """Return a finite gradient: where d is not finite, the gradient at the nearest point that differences would use."""

    def gradient(P, N, p, eps, theta):
        try:
            by_P, by_N = d(P, N, p, theta)
        except (ArithmeticError, ValueError):
            by_P, by_N = math.nan, math.nan
        if not isinstance(by_P + by_N, complex) and math.isfinite(by_P + by_N):
            return by_P, by_N
        return d(_inside(P, eps), _inside(N, eps), p, theta)

    def compiled(P, N, p, eps, theta):
        by_P, by_N = d(P, N, p, theta)
        if math.isfinite(by_P + by_N):
            return by_P, by_N
        return d(_inside(P, eps), _inside(N, eps), p, theta)

    overload(gradient)(lambda P, N, p, eps, theta: compiled)
    return gradient


def _rate_differences(f: Callable) -> Callable:
    def gradient(P, N, p, eps, theta):
        P, N = _inside(P, eps), _inside(N, eps)
        by_P = (f(P + _H, N, p, theta) - f(P - _H, N, p, theta)) / (2.0 * _H)
        by_N = (f(P, N + _H, p, theta) - f(P, N - _H, p, theta)) / (2.0 * _H)
        return by_P, by_N

    return jitable(gradient)


def _outer_differences(f: Callable) -> Callable:
    def gradient(x, y, p, theta):
        hx, hy = _H * max(1.0, abs(x)), _H * max(1.0, abs(y))
        by_x = (f(x + hx, y, p, theta) - f(x - hx, y, p, theta)) / (2.0 * hx)
        by_y = (f(x, y + hy, p, theta) - f(x, y - hy, p, theta)) / (2.0 * hy)
        return by_x, by_y

    return jitable(gradient)


def _build_nested(
    functions: tuple[Callable, ...], gradients: tuple[Callable, ...] | None
) -> Functions:
    """Build the functions of a nested concave measure (see `quapy_nemsis.measures.contract`)."""
    key = ("nested", fingerprint(functions), fingerprint(gradients or ()))
    if key not in _built:
        f, f1, f2 = (_compilable(function) for function in functions)
        if gradients is None:
            d, d1, d2 = _outer_differences(f), _rate_differences(f1), _rate_differences(f2)
            f1, f2 = _finite(_clamped(f1)), _finite(_clamped(f2))
        else:
            d, d1, d2 = (_compilable(function) for function in gradients)
            f1, f2, d1, d2 = _finite(f1), _finite(f2), _finite_pair(d1), _finite_pair(d2)

        def values(P, N, p, eps, theta):
            return f1(P, N, p, eps, theta), f2(P, N, p, eps, theta)

        def outer(x, y, p, eps, theta):
            return f(x, y, p, theta)

        def gradient(P, N, x, y, p, eps, theta):
            a1, a2 = d1(P, N, p, eps, theta)
            b1, b2 = d2(P, N, p, eps, theta)
            g1, g2 = d(x, y, p, theta)
            return a1, a2, b1, b2, g1, g2

        _built[key] = Functions(values, outer, gradient)
    return _built[key]


def _build_pseudo(
    functions: tuple[Callable, ...], gradients: tuple[Callable, ...] | None
) -> Functions:
    """Build the functions of a pseudo-concave measure; theta holds the level, then the parameters."""
    key = ("pseudo", fingerprint(functions), fingerprint(gradients or ()))
    if key not in _built:
        f1, f2 = (_compilable(function) for function in functions)
        if gradients is None:
            d1, d2 = _rate_differences(f1), _rate_differences(f2)
            f1, f2 = _finite(_clamped(f1)), _finite(_clamped(f2))
        else:
            d1, d2 = (_compilable(function) for function in gradients)
            f1, f2, d1, d2 = _finite(f1), _finite(f2), _finite_pair(d1), _finite_pair(d2)

        def values(P, N, p, eps, theta):
            return f1(P, N, p, eps, theta[1:]), f2(P, N, p, eps, theta[1:])

        def gradient(P, N, x, y, p, eps, theta):
            a1, a2 = d1(P, N, p, eps, theta[1:])
            b1, b2 = d2(P, N, p, eps, theta[1:])
            return a1, a2, b1, b2, 1.0, -theta[0]

        _built[key] = Functions(values, valuation_outer, gradient)
    return _built[key]


# --------------------------------------------------------------------------- the measures


class _Custom(Measure):
    """Base of custom measures: immutable, compared and pickled by their functions and parameters."""

    key = "custom"
    _given: tuple[Callable, ...]
    _gradients_given: tuple[Callable, ...] | None
    _parameters: tuple[float, ...]
    _name: str
    _formula: str
    _built: Functions
    _identity: tuple

    #: The affine flag of a nested measure, the bounds of a pseudo-concave one.
    _more: Any

    def _assemble(self, functions, parameters, gradients, name, formula, more) -> None:
        """Set all attributes, of functions that were checked."""
        prints = fingerprint(functions), fingerprint(gradients or ())
        parts = {
            "_given": functions,
            "_parameters": parameters,
            "_gradients_given": gradients,
            "_name": name,
            "_formula": formula,
            "_more": more,
            "_built": self._build(functions, gradients),
            "_identity": (type(self).__name__, name, parameters, *prints),
        }
        for key, value in parts.items():
            object.__setattr__(self, key, value)

    @staticmethod
    def _build(
        functions: tuple[Callable, ...], gradients: tuple[Callable, ...] | None
    ) -> Functions:
        """The functions that kernels call."""
        raise TypeError("a custom measure is NestedConcave or PseudoConcave")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"measures are immutable; cannot set {name!r}")

    @property
    def parameters(self) -> tuple[float, ...]:
        """Values of the parameters of the measure."""
        return self._parameters

    @property
    def name(self) -> str:
        """The name that was given."""
        return self._name

    @property
    def formula(self) -> str:
        """The formula that was given."""
        return self._formula

    @property
    def functions(self) -> Functions:
        """The functions that kernels call."""
        return self._built

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Custom) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, parameters={self._parameters})"

    def __reduce__(self):
        functions = self._given, self._parameters, self._gradients_given
        parts = (*functions, self._name, self._formula, self._more)
        return _restore, (type(self), cloudpickle.dumps(parts))


def _restore(cls: type, pickled: bytes) -> _Custom:
    """Rebuild a measure that was pickled; it is not checked again."""
    measure: Any = object.__new__(cls)
    measure._assemble(*cloudpickle.loads(pickled))
    return measure


class NestedConcave(_Custom, NestedMeasure):
    """A custom nested concave measure Ψ(ζ₁(P, N), ζ₂(P, N)).

    Parameters
    ----------
    psi : callable
        Ψ(x, y, p, theta), concave. It should grow with x and y; otherwise the measure need not be concave.
    zeta1, zeta2 : callable
        ζ₁(P, N, p, theta) and ζ₂(P, N, p, theta), concave.
    parameters : sequence of float, default=()
        Values that the functions find in theta. Changing them does not recompile anything.
    gradients : tuple of three callables, optional
        Partial derivatives of psi, zeta1 and zeta2; by default central differences (see the module documentation).
    name, formula : str
        Name and formula shown in tables and messages.

    Examples
    --------
    Balanced accuracy minus a penalty on the square of the share of false positives:

    >>> def weighted(x, y, p, theta):
    ...     return x - theta[0] * y * y
    >>> def ba(P, N, p, theta):
    ...     return (P + N) / 2
    >>> def false_alarms(P, N, p, theta):
    ...     return (1 - p) * (1 - N)
    >>> measure = NestedConcave(weighted, ba, false_alarms, parameters=[2.0], name="ba-fp")
    >>> measure
    NestedConcave('ba-fp', parameters=(2.0,))
    >>> round(measure.value(P=0.8, N=0.9, p=0.5), 6)
    0.845
    """

    _build = staticmethod(_build_nested)

    def __init__(
        self,
        psi: Callable,
        zeta1: Callable,
        zeta2: Callable,
        parameters: Sequence[float] = (),
        *,
        gradients: tuple[Callable, Callable, Callable] | None = None,
        name: str = "custom",
        formula: str = "Ψ(ζ₁(P, N), ζ₂(P, N))",
    ):
        self._make((psi, zeta1, zeta2), parameters, gradients, name, formula, _NESTED)

    def _make(self, functions, parameters, gradients, name, formula, called) -> None:
        """Check the functions and assemble the measure; ``called`` has their names in messages."""
        functions = tuple(_plain(f, n) for f, n in zip(functions, called, strict=True))
        gradients = _plain_gradients(gradients, called)
        parameters = _numbers(parameters)
        affine = check_nested(functions, gradients, np.array(parameters or (0.0,)), _H, called)
        self._assemble(functions, parameters, gradients, name, formula, affine)

    @property
    def affine(self) -> bool:
        """Whether psi was affine at all points that were checked."""
        return self._more


class PseudoConcave(_Custom, PseudoMeasure):
    """A custom pseudo-concave measure P_class/P_quant.

    Parameters
    ----------
    p_class : callable
        P_class(P, N, p, theta), concave and not negative.
    p_quant : callable
        P_quant(P, N, p, theta), convex and positive.
    parameters : sequence of float, default=()
        Values that the functions find in theta. Changing them does not recompile anything.
    gradients : tuple of two callables, optional
        Partial derivatives of p_class and p_quant; by default central differences (see the module documentation).
    bounds : (float, float), optional
        Range [m, M] of P_quant, if known.
    name, formula : str
        Name and formula shown in tables and messages.

    Examples
    --------
    >>> def ba(P, N, p, theta):
    ...     return (P + N) / 2
    >>> def quant(P, N, p, theta):
    ...     return 1 + theta[0] * (p * (1 - P) - (1 - p) * (1 - N)) ** 2
    >>> measure = PseudoConcave(ba, quant, parameters=[4.0], name="cq4", bounds=(1.0, 5.0))
    >>> round(measure.value(P=0.8, N=0.9, p=0.5), 6)
    0.841584
    """

    _build = staticmethod(_build_pseudo)

    def __init__(
        self,
        p_class: Callable,
        p_quant: Callable,
        parameters: Sequence[float] = (),
        *,
        gradients: tuple[Callable, Callable] | None = None,
        bounds: tuple[float, float] | None = None,
        name: str = "custom",
        formula: str = "P_class / P_quant",
    ):
        functions = tuple(_plain(f, n) for f, n in zip((p_class, p_quant), _PSEUDO, strict=True))
        given, numbers = _plain_gradients(gradients, _PSEUDO), _numbers(parameters)
        check_pseudo(functions, given, np.array(numbers or (0.0,)), _H, bounds)
        self._assemble(functions, numbers, given, name, formula, bounds)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The range [m, M] of P_quant that was given."""
        return self._more


_NESTED = ("psi", "zeta1", "zeta2")
_PSEUDO = ("p_class", "p_quant")


def _identity_psi(x, y, p, theta):
    return x


def _identity_psi_gradient(x, y, p, theta):
    return 1.0, 0.0


def _nothing(P, N, p, theta):
    return 0.0


def _nothing_gradient(P, N, p, theta):
    return 0.0, 0.0


def make_measure(
    function: Callable,
    parameters: Sequence[float] = (),
    *,
    gradient: Callable | None = None,
    name: str = "custom",
    formula: str = "ζ(P, N)",
) -> NestedConcave:
    """Make a custom measure from a single concave function of the rates: ζ₁, with Ψ(x, y) = x and ζ₂ = 0.

    Parameters
    ----------
    function : callable
        ζ(P, N, p, theta), concave in (P, N).
    parameters : sequence of float, default=()
        Values that the function finds in theta. Changing them does not recompile anything.
    gradient : callable, optional
        Partial derivatives of the function by P and N; by default central differences.
    name, formula : str
        Name and formula shown in tables and messages.

    Returns
    -------
    NestedConcave
        Learners accept it like a built-in nested concave measure.

    Examples
    --------
    A weighted mean of the two rates:

    >>> measure = make_measure(lambda P, N, p, theta: theta[0] * P + (1 - theta[0]) * N, [0.8])
    >>> measure.value(P=1.0, N=0.5, p=0.3)
    0.9
    """
    gradients = None
    if gradient is not None:
        gradients = (_identity_psi_gradient, gradient, _nothing_gradient)
    measure = object.__new__(NestedConcave)
    functions = (_identity_psi, function, _nothing)
    measure._make(functions, parameters, gradients, name, formula, ("psi", "the function", "zeta2"))
    return measure


def _plain(function: Any, name: str) -> Callable:
    """Return the Python function behind a function that may already be jitted."""
    function = getattr(function, "py_func", function)
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"{name} must be a Python function; got {function!r}")
    return _frozen(function)


def _plain_gradients(gradients: Any, names: tuple[str, ...]) -> tuple[Callable, ...] | None:
    if gradients is None:
        return None
    if not isinstance(gradients, (tuple, list)) or len(gradients) != len(names):
        raise TypeError(
            f"gradients must be the gradients of {', '.join(names)}, as a tuple; got {gradients!r}"
        )
    return tuple(
        _plain(function, f"the gradient of {name}")
        for function, name in zip(gradients, names, strict=True)
    )


def _numbers(parameters: Any) -> tuple[float, ...]:
    if isinstance(parameters, (str, bytes, dict)) or not hasattr(parameters, "__iter__"):
        raise TypeError(f"parameters must be a sequence of numbers; got {parameters!r}")
    for value in parameters:
        if not is_number(value) or not np.isfinite(value):
            raise ValueError(f"parameters must be finite numbers; got {value!r}")
    return tuple(float(value) for value in parameters)
