"""Rewards: concave surrogates of the 0-1 reward 1(y·ŷ > 0), as functions of the margin m = y·ŷ.

====================  ======================  ==========================
name                  reward r(m)             derivative r'(m)
====================  ======================  ==========================
``hinge``             min(1, m)               1 if m < 1 else 0
``logistic``          1 − ln(1 + exp(−m))     1 / (1 + exp(m))
====================  ======================  ==========================

The paper (section 3, "Examples of Surrogate Reward Functions") prints max(1, m) for the hinge reward; that
is convex, so the minimum is meant.
"""

from __future__ import annotations

import math

from numba.extending import register_jitable

HINGE, LOGISTIC = 0, 1
REWARDS: dict[str, int] = {"hinge": HINGE, "logistic": LOGISTIC}


@register_jitable
def reward(kind: int, margin: float) -> float:
    """Reward of a margin.

    Examples
    --------
    >>> reward(HINGE, 0.25), reward(HINGE, 3.0)
    (0.25, 1.0)
    """
    if kind == HINGE:
        return min(1.0, margin)
    # ln(1 + exp(−m)) without overflow for large |m|
    return 1.0 - (max(-margin, 0.0) + math.log1p(math.exp(-abs(margin))))


@register_jitable
def slope(kind: int, margin: float) -> float:
    """Derivative of the reward; for the hinge the one from the right at the kink.

    Examples
    --------
    >>> slope(HINGE, 0.25), slope(HINGE, 1.0), slope(LOGISTIC, 0.0)
    (1.0, 0.0, 0.5)
    """
    if kind == HINGE:
        return 1.0 if margin < 1.0 else 0.0
    if margin > 0.0:
        small = math.exp(-margin)
        return small / (1.0 + small)
    return 1.0 / (1.0 + math.exp(margin))


def reward_code(name: str) -> int:
    """Number by which kernels know a reward.

    Examples
    --------
    >>> reward_code("logistic")
    1
    """
    if not isinstance(name, str) or name not in REWARDS:
        raise ValueError(f"reward must be one of {sorted(REWARDS)}; got {name!r}")
    return REWARDS[name]
