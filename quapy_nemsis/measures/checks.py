"""Checks of user-written functions. Each message is one sentence that names the function and the point or line."""

from __future__ import annotations

import inspect
import itertools
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from quapy_nemsis._jit import compiled_result

#: Shares of positives at which functions of two classes are checked, and shares of three classes.
_SHARES: tuple[Any, ...] = (0.05, 0.3, 0.5, 0.9)
_CLASS_SHARES: tuple[Any, ...] = tuple(
    np.array(shares) for shares in ((1 / 3, 1 / 3, 1 / 3), (0.05, 0.15, 0.8), (0.5, 0.4, 0.1))
)
_N_CLASSES, _N_POINTS = 3, 16


@dataclass(frozen=True)
class _Domain:
    """What a function takes: its first two arguments, as a flat vector of coordinates, and the shares p."""

    #: Names of the first two arguments.
    names: tuple[str, str]
    #: Shares at which the function is checked.
    shares: tuple[Any, ...]
    #: How many of the four arguments are arrays; the last ones are.
    n_arrays: int = 1

    @property
    def of_classes(self) -> bool:
        """Whether the first two arguments are arrays."""
        return self.n_arrays == 4

    def arguments(self, point: np.ndarray) -> tuple[Any, Any]:
        """The first two arguments of a vector of coordinates."""
        if self.of_classes:
            return point[:_N_CLASSES].copy(), point[_N_CLASSES:].copy()
        return float(point[0]), float(point[1])

    def place(self, point: np.ndarray) -> str:
        """The first two arguments, for a message."""
        return ", ".join(
            f"{name}={_shown(value)}"
            for name, value in zip(self.names, self.arguments(point), strict=True)
        )

    def at(self, point: np.ndarray, p: Any) -> str:
        """All arguments but theta, for a message."""
        return f"{self.place(point)}, p={_shown(p)}"

    def coordinate(self, i: int) -> str:
        """Name of a coordinate, for a message."""
        if self.of_classes:
            return f"{self.names[i // _N_CLASSES]}[{i % _N_CLASSES}]"
        return self.names[i]

    def call(self, function: Callable, what: str, point: np.ndarray, p: Any, theta: Any) -> Any:
        """Call a function; any exception becomes a ValueError that names the point."""
        try:
            return function(*self.arguments(point), p, theta)
        except Exception as error:
            raise ValueError(
                f"{what} raises {type(error).__name__} ({error}) at {self.at(point, p)}"
            ) from error

    def number(self, function: Callable, what: str, point: np.ndarray, p: Any, theta: Any) -> float:
        """Call a function that must return one finite number."""
        value = self.call(function, what, point, p, theta)
        if not isinstance(value, (numbers.Real, np.bool_)):
            raise TypeError(f"{what} must return one number; got {value!r} at {self.at(point, p)}")
        if not np.isfinite(float(value)):
            raise ValueError(f"{what} is not finite at {self.at(point, p)}: got {value}")
        return float(value)

    def points(self, low: float, size: int = 5) -> list[np.ndarray]:
        """Points at which to check: a grid of rates, or random recalls and counted prevalences."""
        if not self.of_classes:
            side = np.linspace(low, 1.0 - low, size)
            return [np.array(point) for point in itertools.product(side, side)]
        rng = np.random.default_rng(0)
        recalls = low + (1.0 - 2.0 * low) * rng.random((_N_POINTS, _N_CLASSES))
        counts = rng.dirichlet(np.ones(_N_CLASSES), _N_POINTS)
        counts = low + (1.0 - _N_CLASSES * low) * counts
        return list(np.hstack([recalls, counts])[: _N_POINTS if size > 3 else size])


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"[{', '.join(f'{entry:.3g}' for entry in value)}]"
    return f"{value:.3g}"


_RATES = _Domain(("P", "N"), _SHARES)
_CLASSES = _Domain(("R", "q"), _CLASS_SHARES, n_arrays=4)
_INNER = _Domain(("x", "y"), _SHARES)
_CLASS_INNER = _Domain(("x", "y"), _CLASS_SHARES, n_arrays=2)


def _check_form(function: Callable, what: str, domain: _Domain, gradient: bool = False) -> None:
    """Check the number of arguments, then that numba can compile the function, then what it returns."""
    signature = inspect.signature(function)
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if kinds != [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 4:
        arguments = ", ".join((*domain.names, "p", "theta"))
        raise TypeError(f"{what} must take ({arguments}); it takes {signature}")
    found = compiled_result(function, what, domain.n_arrays)
    wanted: int | str = 1
    form = "one number"
    if gradient:
        wanted = "arrays" if domain.of_classes else 2
        first, second = domain.names
        form = "two numbers, the partial derivatives"
        if domain.of_classes:
            form = f"two arrays, the partial derivatives by {first} and by {second}"
    if found != wanted:
        got = f"{found} numbers" if isinstance(found, int) else found
        line = function.__code__.co_firstlineno
        raise TypeError(f"{what} must return {form}; it returns {got} (line {line})")


def _check_curvature(
    function: Callable,
    what: str,
    domain: _Domain,
    points: list[np.ndarray],
    p: Any,
    theta: np.ndarray,
    sign: float,
) -> bool:
    """Test midpoints of all pairs of points (sign 1: concave, −1: convex); return whether it is affine on them."""
    values = [domain.number(function, what, point, p, theta) for point in points]
    room = 1e-9 * max(1.0, np.max(np.abs(values)))
    affine = True
    for (a, fa), (b, fb) in itertools.combinations(zip(points, values, strict=True), 2):
        bend = domain.number(function, what, (a + b) / 2, p, theta) - (fa + fb) / 2
        affine = affine and abs(bend) <= room
        if sign * bend < -room:
            shape = "concave" if sign > 0 else "convex"
            raise ValueError(
                f"{what} is not {shape}: halfway between {domain.place(a)} and {domain.place(b)} at "
                f"p={_shown(p)} it is {abs(bend):.3g} {'below' if sign > 0 else 'above'} the chord"
            )
    return affine


def _flat(gradient: Any) -> np.ndarray:
    """Partial derivatives by all coordinates."""
    return np.concatenate([np.atleast_1d(np.asarray(part, dtype=float)) for part in gradient])


def _check_gradient(
    function: Callable,
    gradient: Callable,
    what: str,
    domain: _Domain,
    points: list[np.ndarray],
    p: Any,
    theta: np.ndarray,
) -> None:
    h = 1e-5
    for point in points:
        given = _flat(domain.call(gradient, f"the gradient of {what}", point, p, theta))
        if len(given) != len(point):
            raise ValueError(
                f"the gradient of {what} must have an entry for each class; got {len(given)} entries for "
                f"{len(point)} at {domain.at(point, p)}"
            )
        for i, direction in enumerate(np.eye(len(point))):
            slope = domain.number(function, what, point + h * direction, p, theta)
            slope -= domain.number(function, what, point - h * direction, p, theta)
            slope /= 2 * h
            if not abs(given[i] - slope) <= 1e-4 * max(1.0, abs(slope)):
                raise ValueError(
                    f"the gradient of {what} disagrees with its values at {domain.at(point, p)}: "
                    f"∂{domain.coordinate(i)} is {given[i]:.6g}, but differences give {slope:.6g}"
                )


def _check_inner(
    function: Callable,
    gradient: Callable | None,
    what: str,
    domain: _Domain,
    theta: np.ndarray,
    h: float,
    sign: float,
) -> None:
    """Check a function of rates or of classes: its form, values, curvature and gradient."""
    _check_form(function, what, domain)
    if gradient is not None:
        _check_form(gradient, f"the gradient of {what}", domain, gradient=True)
    # A given gradient is called at the rates themselves, edges included; differences stay inside the edges.
    low = 0.0 if gradient is not None else h
    for p in domain.shares:
        _check_curvature(function, what, domain, domain.points(low), p, theta, sign)
        if gradient is not None:
            _check_gradient(function, gradient, what, domain, domain.points(0.1, 3), p, theta)
            for point in domain.points(0.0, 3):
                slopes = domain.call(gradient, f"the gradient of {what}", point, p, theta)
                if not np.isfinite(_flat(slopes)).all():
                    raise ValueError(
                        f"the gradient of {what} is not finite at {domain.at(point, p)}: "
                        f"got {tuple(slopes)}"
                    )


def check_nested(
    functions: tuple,
    gradients: tuple | None,
    theta: np.ndarray,
    h: float,
    called: tuple[str, str, str],
    of_classes: bool,
) -> bool:
    """Check Ψ, ζ₁ and ζ₂; return whether Ψ is affine on the values that ζ₁ and ζ₂ take."""
    psi, zeta1, zeta2 = functions
    d_psi, d_zeta1, d_zeta2 = gradients or (None, None, None)
    domain, outer = (_CLASSES, _CLASS_INNER) if of_classes else (_RATES, _INNER)
    _check_inner(zeta1, d_zeta1, called[1], domain, theta, h, 1.0)
    _check_inner(zeta2, d_zeta2, called[2], domain, theta, h, 1.0)
    _check_form(psi, "psi", outer)
    if d_psi is not None:
        _check_form(d_psi, "the gradient of psi", outer, gradient=True)
    affine = True
    for p in domain.shares:
        inner = [
            np.array([f(*domain.arguments(point), p, theta) for f in (zeta1, zeta2)], dtype=float)
            for point in domain.points(h)
        ]
        affine &= _check_curvature(psi, "psi", outer, inner, p, theta, 1.0)
        if d_psi is not None:
            _check_gradient(psi, d_psi, "psi", outer, inner[6:19:6], p, theta)
    return bool(affine)


def check_pseudo(
    functions: tuple,
    gradients: tuple | None,
    theta: np.ndarray,
    h: float,
    bounds: tuple[float, float] | None,
    of_classes: bool,
) -> None:
    """Check that P_class is concave, and P_quant convex, positive and within its bounds."""
    p_class, p_quant = functions
    d_class, d_quant = gradients or (None, None)
    domain = _CLASSES if of_classes else _RATES
    _check_inner(p_class, d_class, "p_class", domain, theta, h, 1.0)
    _check_inner(p_quant, d_quant, "p_quant", domain, theta, h, -1.0)
    numbers_given = isinstance(bounds, tuple) and all(isinstance(b, numbers.Real) for b in bounds)
    if bounds is not None and not (
        numbers_given and len(bounds) == 2 and 0.0 < bounds[0] <= bounds[1]
    ):
        raise ValueError(f"bounds must be a tuple (m, M) with 0 < m ≤ M; got {bounds!r}")
    m, M = bounds or (0.0, np.inf)
    for p, point in itertools.product(domain.shares, domain.points(h)):
        if domain.number(p_class, "p_class", point, p, theta) < 0.0:
            raise ValueError(
                f"p_class must not be negative; it is negative at {domain.at(point, p)}"
            )
        value = domain.number(p_quant, "p_quant", point, p, theta)
        if not value > 0.0:
            raise ValueError(f"p_quant must be positive; got {value:.4g} at {domain.at(point, p)}")
        if not m - 1e-9 <= value <= M + 1e-9:
            raise ValueError(
                f"p_quant leaves its bounds {bounds}: got {value:.4g} at {domain.at(point, p)}"
            )
