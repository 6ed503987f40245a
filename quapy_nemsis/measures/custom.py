"""Custom measures: Python functions that are compiled like the built-in measures.

A function of the rates of two classes has the form ``f(P, N, p, theta)``, an outer function the form
``psi(x, y, p, theta)``. Here p is the share of positives and ``theta`` the array of the measure's parameters. With
``of="classes"``, the measure is one of any number of classes: a function has the form ``f(R, q, p, theta)`` with arrays
of recalls R, counted prevalences q and shares p, and p is such an array in psi too. Each function returns one number
and must use only Python that numba can compile: arithmetic, ``math``, conditions, loops, numpy.

By default, gradients are central differences with h = 2⁻¹⁷, in compiled code. P and N are kept max(h, ε) away from 0
and 1, so that roots and logarithms have gradients at the edges too (ε = 1/(2t), because t points give rates no finer
than that). Alternatively, you can give gradients: functions of the same arguments that return the two partial
derivatives; for classes, a pair of arrays, by R and by q. They are checked against the values and called at the rates
themselves. Where a gradient is not finite, it is evaluated at the nearest point that central differences would use. For
K classes, central differences call a function 4K times per point, so gradients are worth giving if K is large.

Functions are checked on a grid of rates, at four shares of positives; those of classes at random points of three
classes. This catches mistakes but proves nothing.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from quapy_nemsis._jit import cloudpickle, jitable, overload
from quapy_nemsis.measures.checks import check_nested, check_pseudo
from quapy_nemsis.measures.compiled import (
    ClassFunctions,
    Functions,
    two_class_form,
    valuation_outer,
)
from quapy_nemsis.measures.contract import (
    Measure,
    NestedMeasure,
    PseudoMeasure,
    is_number,
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


class Forms(NamedTuple):
    """The functions of a measure for kernels of two classes and, if it is one of K classes, for kernels of more."""

    functions: Functions
    class_functions: ClassFunctions | None


_jitable: dict[Any, Callable] = {}
_built: dict[Any, Forms] = {}


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


def _finite_outer(d: Callable) -> Callable:
    """Return a finite gradient of psi: before any point has a reward, x and y can both be 0, where ratios have none."""

    def gradient(x, y, p, theta):
        try:
            by_x, by_y = d(x, y, p, theta)
        except ArithmeticError:
            by_x, by_y = math.nan, math.nan
        if math.isfinite(by_x + by_y):
            return by_x, by_y
        return d(x + _H, y + _H, p, theta)

    def compiled(x, y, p, theta):
        by_x, by_y = d(x, y, p, theta)
        if math.isfinite(by_x + by_y):
            return by_x, by_y
        return d(x + _H, y + _H, p, theta)

    overload(gradient)(lambda x, y, p, theta: compiled)
    return gradient


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
    """Build the functions of a nested concave measure of two classes (see `quapy_nemsis.measures.contract`)."""
    f, f1, f2 = (_compilable(function) for function in functions)
    if gradients is None:
        d, d1, d2 = _outer_differences(f), _rate_differences(f1), _rate_differences(f2)
        f1, f2 = _finite(_clamped(f1)), _finite(_clamped(f2))
    else:
        d, d1, d2 = (_compilable(function) for function in gradients)
        d, f1, f2 = _finite_outer(d), _finite(f1), _finite(f2)
        d1, d2 = _finite_pair(d1), _finite_pair(d2)

    def values(P, N, p, eps, theta):
        return f1(P, N, p, eps, theta), f2(P, N, p, eps, theta)

    def gradient(P, N, x, y, p, eps, theta):
        a1, a2 = d1(P, N, p, eps, theta)
        b1, b2 = d2(P, N, p, eps, theta)
        g1, g2 = d(x, y, p, theta)
        return a1, a2, b1, b2, g1, g2

    return Functions(values, _outer(f), gradient)


def _build_pseudo(
    functions: tuple[Callable, ...], gradients: tuple[Callable, ...] | None
) -> Functions:
    """Build the functions of a pseudo-concave measure of two classes; theta holds the level, then the parameters."""
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

    return Functions(values, valuation_outer, gradient)


def _outer(f: Callable) -> Callable:
    def outer(x, y, p, eps, theta):
        return f(x, y, p, theta)

    return outer


# --------------------------------------------------------------------------- the same for K classes


@jitable
def _all_inside(v, eps):
    """Copy of an array of rates or shares, clipped to [max(ε, h), 1 − max(ε, h)]."""
    clipped = np.empty(len(v))
    for j in range(len(v)):
        clipped[j] = _inside(v[j], eps)
    return clipped


def _class_value(f: Callable, clamped: bool) -> Callable:
    """Return f with finite values, as `_finite` does, and with arguments clipped to [0, 1] if it is clamped."""

    def value(R, q, p, eps, theta):
        if clamped:
            R, q = np.minimum(np.maximum(R, 0.0), 1.0), np.minimum(np.maximum(q, 0.0), 1.0)
        try:
            with np.errstate(all="ignore"):
                exact = f(R, q, p, theta)
        except (ArithmeticError, ValueError):
            exact = math.nan
        if not isinstance(exact, complex) and math.isfinite(exact):
            return float(exact)
        return float(f(_all_inside(R, eps), _all_inside(q, eps), p, theta))

    # Compiled code does not raise; it returns inf or nan.
    def compiled(R, q, p, eps, theta):
        if clamped:
            R, q = np.minimum(np.maximum(R, 0.0), 1.0), np.minimum(np.maximum(q, 0.0), 1.0)
        exact = float(f(R, q, p, theta))
        if math.isfinite(exact):
            return exact
        return float(f(_all_inside(R, eps), _all_inside(q, eps), p, theta))

    overload(value)(lambda R, q, p, eps, theta: compiled)
    return value


def _class_differences(f: Callable) -> Callable:
    """Return a function that writes the central differences of f by R and by q."""

    @jitable
    def slopes(R, q, p, theta, moved, out):
        # The array that is moved is R or q.
        for j in range(len(moved)):
            at = moved[j]
            moved[j] = at + _H
            above = f(R, q, p, theta)
            moved[j] = at - _H
            out[j] = (above - f(R, q, p, theta)) / (2.0 * _H)
            moved[j] = at

    def gradient(R, q, p, eps, theta, by_R, by_q):
        R, q = _all_inside(R, eps), _all_inside(q, eps)
        slopes(R, q, p, theta, R, by_R)
        slopes(R, q, p, theta, q, by_q)

    return jitable(gradient)


def _class_gradient(d: Callable) -> Callable:
    """Return a function that writes the given gradient or, where that is not finite, the one at the nearest point."""

    def gradient(R, q, p, eps, theta, by_R, by_q):
        first, second = d(R, q, p, theta)
        if not (np.isfinite(first).all() and np.isfinite(second).all()):
            first, second = d(_all_inside(R, eps), _all_inside(q, eps), p, theta)
        for j in range(len(R)):
            by_R[j] = first[j]
            by_q[j] = second[j]

    return jitable(gradient)


def _class_parts(
    functions: tuple[Callable, ...], gradients: tuple[Callable, ...] | None
) -> tuple[list[Callable], list[Callable]]:
    """Values and gradients of functions of K classes, in the form of `ClassFunctions`."""
    plain = [_compilable(function) for function in functions]
    values = [_class_value(f, clamped=gradients is None) for f in plain]
    if gradients is None:
        return values, [_class_differences(f) for f in plain]
    return values, [_class_gradient(_compilable(gradient)) for gradient in gradients]


def _build_class_nested(
    functions: tuple[Callable, ...], gradients: tuple[Callable, ...] | None
) -> ClassFunctions:
    f = _compilable(functions[0])
    d = _outer_differences(f)
    if gradients is not None:
        d = _finite_outer(_compilable(gradients[0]))
    (f1, f2), (d1, d2) = _class_parts(functions[1:], gradients and gradients[1:])

    def values(R, q, p, eps, theta):
        return f1(R, q, p, eps, theta), f2(R, q, p, eps, theta)

    def gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
        d1(R, q, p, eps, theta, by_R1, by_q1)
        d2(R, q, p, eps, theta, by_R2, by_q2)
        return d(x, y, p, theta)

    return ClassFunctions(values, _outer(f), gradient)


def _build_class_pseudo(
    functions: tuple[Callable, ...], gradients: tuple[Callable, ...] | None
) -> ClassFunctions:
    (f1, f2), (d1, d2) = _class_parts(functions, gradients)

    def values(R, q, p, eps, theta):
        return f1(R, q, p, eps, theta[1:]), f2(R, q, p, eps, theta[1:])

    def gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
        d1(R, q, p, eps, theta[1:], by_R1, by_q1)
        d2(R, q, p, eps, theta[1:], by_R2, by_q2)
        return 1.0, -theta[0]

    return ClassFunctions(values, valuation_outer, gradient)


# --------------------------------------------------------------------------- the measures


#: What the functions of a measure are functions of.
RATES, CLASSES = "rates", "classes"


class _Custom(Measure):
    """Base of custom measures: immutable, compared and pickled by their functions and parameters."""

    key = "custom"
    _given: tuple[Callable, ...]
    _gradients_given: tuple[Callable, ...] | None
    _parameters: tuple[float, ...]
    _name: str
    _formula: str
    _of: str
    _forms: Forms
    _identity: tuple

    #: The affine flag of a nested measure, the bounds of a pseudo-concave one.
    _more: Any

    #: Functions that build the functions for kernels, by what the measure is of.
    builders: ClassVar[dict[str, Callable]]

    def _assemble(self, functions, parameters, gradients, name, formula, more, of) -> None:
        """Set all attributes, of functions that were checked."""
        prints = fingerprint(functions), fingerprint(gradients or ())
        key = (type(self).__name__, of, *prints)
        if key not in _built:
            form = self.builders[of](functions, gradients)
            _built[key] = Forms(form, None) if of == RATES else Forms(two_class_form(form), form)
        parts = {
            "_given": functions,
            "_parameters": parameters,
            "_gradients_given": gradients,
            "_name": name,
            "_formula": formula,
            "_more": more,
            "_of": of,
            "_forms": _built[key],
            "_identity": (*key, name, parameters),
        }
        for attribute, value in parts.items():
            object.__setattr__(self, attribute, value)

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
        """The functions that kernels call for two classes."""
        return self._forms.functions

    @property
    def class_functions(self) -> ClassFunctions | None:
        """The functions that kernels call for more classes, or None for a measure of two classes."""
        return self._forms.class_functions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Custom) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, parameters={self._parameters})"

    def __reduce__(self):
        functions = self._given, self._parameters, self._gradients_given
        parts = (*functions, self._name, self._formula, self._more, self._of)
        return _restore, (type(self), cloudpickle.dumps(parts))


def _restore(cls: type, pickled: bytes) -> _Custom:
    """Rebuild a measure that was pickled; it is not checked again."""
    measure: Any = object.__new__(cls)
    measure._assemble(*cloudpickle.loads(pickled))
    return measure


class NestedConcave(_Custom, NestedMeasure):
    """A custom nested concave measure Ψ(ζ₁, ζ₂).

    Parameters
    ----------
    psi : callable
        Ψ(x, y, p, theta), concave. It should grow with x and y; otherwise the measure need not be concave.
    zeta1, zeta2 : callable
        ζ₁(P, N, p, theta) and ζ₂(P, N, p, theta), concave; for classes ζ₁(R, q, p, theta) and ζ₂(R, q, p, theta).
    parameters : sequence of float, default=()
        Values that the functions find in theta. Changing them does not recompile anything.
    gradients : tuple of three callables, optional
        Partial derivatives of psi, zeta1 and zeta2; by default central differences (see the module documentation).
    name, formula : str
        Name and formula shown in tables and messages.
    of : {"rates", "classes"}, default="rates"
        Whether zeta1 and zeta2 are functions of the rates P and N of two classes, or of arrays with an entry for each
        class (see the module documentation).

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

    builders: ClassVar[dict[str, Callable]] = {RATES: _build_nested, CLASSES: _build_class_nested}

    def __init__(
        self,
        psi: Callable,
        zeta1: Callable,
        zeta2: Callable,
        parameters: Sequence[float] = (),
        *,
        gradients: tuple[Callable, Callable, Callable] | None = None,
        name: str = "custom",
        formula: str = "Ψ(ζ₁, ζ₂)",
        of: str = RATES,
    ):
        self._make((psi, zeta1, zeta2), parameters, gradients, name, formula, _NESTED, of)

    def _make(self, functions, parameters, gradients, name, formula, called, of) -> None:
        """Check the functions and assemble the measure; ``called`` has their names in messages."""
        _check_of(of, functions[1])
        functions = tuple(_plain(f, n) for f, n in zip(functions, called, strict=True))
        gradients = _plain_gradients(gradients, called)
        parameters = _numbers(parameters)
        theta = np.array(parameters or (0.0,))
        affine = check_nested(functions, gradients, theta, _H, called, of == CLASSES)
        self._assemble(functions, parameters, gradients, name, formula, affine, of)

    @property
    def affine(self) -> bool:
        """Whether psi was affine at all points that were checked."""
        return self._more


class PseudoConcave(_Custom, PseudoMeasure):
    """A custom pseudo-concave measure P_class/P_quant.

    Parameters
    ----------
    p_class : callable
        P_class(P, N, p, theta), concave and not negative; for classes P_class(R, q, p, theta).
    p_quant : callable
        P_quant(P, N, p, theta), convex and positive; for classes P_quant(R, q, p, theta).
    parameters : sequence of float, default=()
        Values that the functions find in theta. Changing them does not recompile anything.
    gradients : tuple of two callables, optional
        Partial derivatives of p_class and p_quant; by default central differences (see the module documentation).
    bounds : (float, float), optional
        Range [m, M] of P_quant, if known.
    name, formula : str
        Name and formula shown in tables and messages.
    of : {"rates", "classes"}, default="rates"
        Whether both are functions of the rates P and N of two classes, or of arrays with an entry for each class.

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

    builders: ClassVar[dict[str, Callable]] = {RATES: _build_pseudo, CLASSES: _build_class_pseudo}

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
        of: str = RATES,
    ):
        _check_of(of, p_class)
        functions = tuple(_plain(f, n) for f, n in zip((p_class, p_quant), _PSEUDO, strict=True))
        given, numbers = _plain_gradients(gradients, _PSEUDO), _numbers(parameters)
        check_pseudo(functions, given, np.array(numbers or (0.0,)), _H, bounds, of == CLASSES)
        self._assemble(functions, numbers, given, name, formula, bounds, of)

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


def _nothing_class_gradient(R, q, p, theta):
    return np.zeros(len(R)), np.zeros(len(R))


def make_measure(
    function: Callable,
    parameters: Sequence[float] = (),
    *,
    gradient: Callable | None = None,
    name: str = "custom",
    formula: str = "ζ",
    of: str = RATES,
) -> NestedConcave:
    """Make a custom measure from a single concave function ζ₁, with Ψ(x, y) = x and ζ₂ = 0.

    Parameters
    ----------
    function : callable
        ζ(P, N, p, theta), concave in (P, N); for classes ζ(R, q, p, theta), concave in (R, q).
    parameters : sequence of float, default=()
        Values that the function finds in theta. Changing them does not recompile anything.
    gradient : callable, optional
        Partial derivatives of the function by P and N (for classes: a pair of arrays, by R and by q); by default
        central differences.
    name, formula : str
        Name and formula shown in tables and messages.
    of : {"rates", "classes"}, default="rates"
        Whether it is a function of the rates P and N of two classes, or of arrays with an entry for each class.

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

    For any number of classes, the lowest recall minus the largest error of the counts:

    >>> def careful(R, q, p, theta):
    ...     return R.min() - theta[0] * np.abs(q - p).max()
    >>> measure = make_measure(careful, [0.5], of="classes", name="careful")
    >>> round(measure.class_value(R=[0.8, 0.9, 1.0], q=[0.2, 0.3, 0.5], p=[0.3, 0.3, 0.4]), 6)
    0.75
    """
    gradients = None
    if gradient is not None:
        nothing = _nothing_gradient if of == RATES else _nothing_class_gradient
        gradients = (_identity_psi_gradient, gradient, nothing)
    measure = object.__new__(NestedConcave)
    functions = (_identity_psi, function, _nothing)
    called = ("psi", "the function", "zeta2")
    measure._make(functions, parameters, gradients, name, formula, called, of)
    return measure


def _check_of(of: Any, function: Any) -> None:
    if of not in (RATES, CLASSES):
        raise ValueError(f"of must be {RATES!r} or {CLASSES!r}; got {of!r}")
    names = getattr(getattr(function, "__code__", None), "co_varnames", ())[:2]
    if of == RATES and names == ("R", "q"):
        raise ValueError(f"a function of (R, q, p, theta) is one of classes: give of={CLASSES!r}")


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
