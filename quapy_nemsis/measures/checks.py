"""Checks of user-written functions. Each message is one sentence that names the function and the point or line."""

from __future__ import annotations

import inspect
import itertools
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from quapy_nemsis._jit import compiled_result

_SHARES = (0.05, 0.3, 0.5, 0.9)
_RATES = ("P", "N")
_INNER = ("x", "y")


def _at(names: tuple[str, str], point: Any, p: float) -> str:
    return f"{names[0]}={point[0]:.3g}, {names[1]}={point[1]:.3g}, p={p:g}"


def _call(function: Callable, what: str, names, point, p: float, theta: np.ndarray) -> Any:
    try:
        return function(float(point[0]), float(point[1]), p, theta)
    except Exception as error:
        raise ValueError(
            f"{what} raises {type(error).__name__} ({error}) at {_at(names, point, p)}"
        ) from error


def _number(function: Callable, what: str, names, point, p: float, theta: np.ndarray) -> float:
    value = _call(function, what, names, point, p, theta)
    if not isinstance(value, (numbers.Real, np.bool_)):
        raise TypeError(f"{what} must return one number; got {value!r} at {_at(names, point, p)}")
    if not np.isfinite(float(value)):
        raise ValueError(f"{what} is not finite at {_at(names, point, p)}: got {value}")
    return float(value)


def _check_form(function: Callable, what: str, arguments: str, n_results: int) -> None:
    """Check the number of arguments, then that numba can compile the function, then what it returns."""
    signature = inspect.signature(function)
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if kinds != [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 4:
        raise TypeError(f"{what} must take ({arguments}); it takes {signature}")
    found = compiled_result(function, what)
    if found != n_results:
        form = "one number" if n_results == 1 else "two numbers, the partial derivatives"
        got = f"{found} numbers" if isinstance(found, int) else found
        line = function.__code__.co_firstlineno
        raise TypeError(f"{what} must return {form}; it returns {got} (line {line})")


def _check_curvature(function, what, names, points, p, theta, sign: float) -> bool:
    """Test midpoints of all pairs of points (sign 1: concave, −1: convex); return whether it is affine on them."""
    values = [_number(function, what, names, point, p, theta) for point in points]
    room = 1e-9 * max(1.0, np.max(np.abs(values)))
    affine = True
    for (a, fa), (b, fb) in itertools.combinations(zip(points, values, strict=True), 2):
        middle = (a + b) / 2
        bend = _number(function, what, names, middle, p, theta) - (fa + fb) / 2
        affine = affine and abs(bend) <= room
        if sign * bend < -room:
            shape = "concave" if sign > 0 else "convex"
            raise ValueError(
                f"{what} is not {shape}: halfway between ({', '.join(names)}) = ({a[0]:.3g}, {a[1]:.3g}) and "
                f"({b[0]:.3g}, {b[1]:.3g}) at p={p:g} it is "
                f"{abs(bend):.3g} {'below' if sign > 0 else 'above'} the chord"
            )
    return affine


def _check_gradient(function, gradient, what, names, points, p, theta) -> None:
    h = 1e-5
    for point in points:
        given = _call(gradient, f"the gradient of {what}", names, point, p, theta)
        for i, direction in enumerate(np.eye(2)):
            slope = _number(function, what, names, point + h * direction, p, theta)
            slope -= _number(function, what, names, point - h * direction, p, theta)
            slope /= 2 * h
            if not abs(float(given[i]) - slope) <= 1e-4 * max(1.0, abs(slope)):
                raise ValueError(
                    f"the gradient of {what} disagrees with its values at {_at(names, point, p)}: "
                    f"∂{names[i]} is {float(given[i]):.6g}, but differences give {slope:.6g}"
                )


def _square(low: float, high: float, size: int = 5) -> list[np.ndarray]:
    side = np.linspace(low, high, size)
    return [np.array(point) for point in itertools.product(side, side)]


def _check_rates(function, gradient, what, theta, h, sign) -> None:
    """Check a function of the rates: its form, values, curvature and gradient."""
    _check_form(function, what, "P, N, p, theta", 1)
    if gradient is not None:
        _check_form(gradient, f"the gradient of {what}", "P, N, p, theta", 2)
    # A given gradient is called at the rates themselves, edges included; differences stay inside the edges.
    low = 0.0 if gradient is not None else h
    for p in _SHARES:
        _check_curvature(function, what, _RATES, _square(low, 1 - low), p, theta, sign)
        if gradient is not None:
            _check_gradient(function, gradient, what, _RATES, _square(0.1, 0.9, 3), p, theta)
            for point in _square(0.0, 1.0, 3):
                slopes = _call(gradient, f"the gradient of {what}", _RATES, point, p, theta)
                if not np.isfinite(slopes).all():
                    raise ValueError(
                        f"the gradient of {what} is not finite at {_at(_RATES, point, p)}: "
                        f"got {tuple(slopes)}"
                    )


def check_nested(
    functions: tuple,
    gradients: tuple | None,
    theta: np.ndarray,
    h: float,
    called: tuple[str, str, str],
) -> bool:
    """Check Ψ, ζ₁ and ζ₂; return whether Ψ is affine on the values that ζ₁ and ζ₂ take."""
    psi, zeta1, zeta2 = functions
    d_psi, d_zeta1, d_zeta2 = gradients or (None, None, None)
    _check_rates(zeta1, d_zeta1, called[1], theta, h, 1.0)
    _check_rates(zeta2, d_zeta2, called[2], theta, h, 1.0)
    _check_form(psi, "psi", "x, y, p, theta", 1)
    if d_psi is not None:
        _check_form(d_psi, "the gradient of psi", "x, y, p, theta", 2)
    affine = True
    for p in _SHARES:
        inner = [
            np.array([f(*point, p, theta) for f in (zeta1, zeta2)], dtype=float)
            for point in _square(h, 1 - h)
        ]
        affine &= _check_curvature(psi, "psi", _INNER, inner, p, theta, 1.0)
        if d_psi is not None:
            _check_gradient(psi, d_psi, "psi", _INNER, inner[6:19:6], p, theta)
    return bool(affine)


def check_pseudo(
    functions: tuple,
    gradients: tuple | None,
    theta: np.ndarray,
    h: float,
    bounds: tuple[float, float] | None,
) -> None:
    """Check that P_class is concave, and P_quant convex, positive and within its bounds."""
    p_class, p_quant = functions
    d_class, d_quant = gradients or (None, None)
    _check_rates(p_class, d_class, "p_class", theta, h, 1.0)
    _check_rates(p_quant, d_quant, "p_quant", theta, h, -1.0)
    numbers_given = isinstance(bounds, tuple) and all(isinstance(b, numbers.Real) for b in bounds)
    if bounds is not None and not (
        numbers_given and len(bounds) == 2 and 0.0 < bounds[0] <= bounds[1]
    ):
        raise ValueError(f"bounds must be a tuple (m, M) with 0 < m ≤ M; got {bounds!r}")
    m, M = bounds or (0.0, np.inf)
    for p, point in itertools.product(_SHARES, _square(h, 1 - h)):
        if _number(p_class, "p_class", _RATES, point, p, theta) < 0.0:
            raise ValueError(
                f"p_class must not be negative; it is negative at {_at(_RATES, point, p)}"
            )
        value = _number(p_quant, "p_quant", _RATES, point, p, theta)
        if not value > 0.0:
            raise ValueError(
                f"p_quant must be positive; got {value:.4g} at {_at(_RATES, point, p)}"
            )
        if not m - 1e-9 <= value <= M + 1e-9:
            raise ValueError(
                f"p_quant leaves its bounds {bounds}: got {value:.4g} at {_at(_RATES, point, p)}"
            )
