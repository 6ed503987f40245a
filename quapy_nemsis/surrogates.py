"""Surrogates of the 0-1 reward 1(y·ŷ > 0): concave functions of the margin m = y·ŷ.

====================  ======================  ==========================
name                  reward r(m)             derivative r'(m)
====================  ======================  ==========================
``hinge``             min(1, m)               1 if m < 1 else 0
``logistic``          1 − ln(1 + exp(−m))     1 / (1 + exp(m))
====================  ======================  ==========================

The paper (section 3, "Examples of Surrogate Reward Functions") prints max(1, m) for the hinge reward. That is convex,
so the minimum is meant. To add a surrogate, add an entry to `SURROGATES`; kernels select it by its position.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from quapy_nemsis._jit import jitable


def _hinge(margin: float) -> float:
    return min(1.0, margin)


def _hinge_slope(margin: float) -> float:
    # At the kink m = 1 this is the derivative from the right.
    return 1.0 if margin < 1.0 else 0.0


def _logistic(margin: float) -> float:
    # ln(1 + exp(−m)) without overflow for large |m|
    return 1.0 - (max(-margin, 0.0) + math.log1p(math.exp(-abs(margin))))


def _logistic_slope(margin: float) -> float:
    # 1/(1 + exp(m)) without overflow, and without a branch that a processor cannot predict
    small = math.exp(-abs(margin))
    return (small if margin > 0.0 else 1.0) / (1.0 + small)


class Surrogate(NamedTuple):
    """A surrogate reward and its derivative, as functions of the margin."""

    reward: Callable[[float], float]
    slope: Callable[[float], float]


SURROGATES: dict[str, Surrogate] = {
    "hinge": Surrogate(_hinge, _hinge_slope),
    "logistic": Surrogate(_logistic, _logistic_slope),
}


def _chosen_by(functions: list[Callable[[float], float]]) -> Callable[[int, float], float]:
    """Return a compilable function of a position in the list and a margin; an unknown position gives NaN."""
    chosen: Callable[[int, float], float] = _none
    for place in reversed(range(len(functions))):
        chosen = _before(place, jitable(functions[place]), chosen)
    return chosen


@jitable
def _none(kind: int, margin: float) -> float:
    return math.nan


def _before(
    place: int, function: Callable[[float], float], rest: Callable[[int, float], float]
) -> Callable[[int, float], float]:
    @jitable
    def chosen(kind: int, margin: float) -> float:
        if kind == place:
            return function(margin)
        return rest(kind, margin)

    return chosen


#: Reward and slope at a margin, for the surrogate at a given position in `SURROGATES`.
reward = _chosen_by([surrogate.reward for surrogate in SURROGATES.values()])
slope = _chosen_by([surrogate.slope for surrogate in SURROGATES.values()])


def surrogate_code(name: str) -> int:
    """Position of a surrogate in `SURROGATES`, by which kernels select it.

    Examples
    --------
    >>> surrogate_code("logistic")
    1
    >>> reward(surrogate_code("hinge"), 0.25), slope(surrogate_code("hinge"), 1.0)
    (0.25, 0.0)
    """
    if not isinstance(name, str) or name not in SURROGATES:
        raise ValueError(f"reward must be one of {sorted(SURROGATES)}; got {name!r}")
    return list(SURROGATES).index(name)
