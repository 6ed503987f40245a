"""Fenchel duals of concave measures of the rates, for learners that descend in the dual variables (SPADE).

A concave function Ψ of the rates is the lowest of its tangents,

    Ψ(P, N) = min over (α, β) of  α·P + β·N − Ψ*(α, β),

where Ψ* is its concave conjugate. The minimum is reached at the gradient of Ψ, so it suffices to look at the set A of
all gradients, the *sufficient dual region*, or at a convex set around it on which Ψ* is known:

=======  ==========================================================  =================
measure  A                                                           Ψ*(α, β) on A
=======  ==========================================================  =================
BA       the point (½, ½)                                            0
GMean    α·β ≥ ¼                                                     0
HMean    √α + √β ≥ √2                                                0
QMean    α² + β² ≤ ½, α ≥ 0, β ≥ 0                                   α + β − 1
NegKLD   the line (0, 0) + λ·(p, −n)                                 g*(λ) − λ·n
BAKLD    the line (C/2, C/2) + λ·(p, −n)                             g*(λ) − λ·n
NSS      the line (0, 0) + λ·(p, −n)                                 g*(λ) − λ·n
=======  ==========================================================  =================

The first four are those of Narasimhan, Kar and Jain (2015). Kar et al. (2016) say that the dual of quantification
measures is difficult to compute because they are nested. That holds for the Q-measure. KLD, NSS and BAKLD, however, are
linear functions of the rates plus a concave function g of the single number p̂ = p·P + n·(1 − N). Their dual is a line,
and ∇g* = (g')⁻¹ is the root of a quadratic equation.

Roots and ratios have no gradient at 0, so GMean's A has no bound. Here rates count as at least ε (at least 1e-12), as
in the gradients of `quapy_nemsis.measures.nested`, which bounds α and β.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from quapy_nemsis._jit import jitable
from quapy_nemsis.measures.formulas import TINY, inverse, smooth
from quapy_nemsis.measures.nested import BA, BAKLD, NSS, GMean, HMean, NegKLD, QMean

#: ``descend(alpha, beta, x, y, step, p, eps, theta)`` returns Π_A[(α, β) − step·((x, y) − ∇Ψ*(α, β))], where (x, y) is
#: an estimate of the rates.
Descend = Callable[
    [float, float, float, float, float, float, float, np.ndarray], tuple[float, float]
]

# A projection stops when its step is smaller than the first, or after so many steps.
_EXACT, _MOST_STEPS = 1e-14, 60


def _ba(a, b, x, y, step, p, eps, theta):
    return 0.5, 0.5


def _gmean(a, b, x, y, step, p, eps, theta):
    largest = 0.5 / math.sqrt(min(max(eps, TINY), 1.0))
    a, b = min(a - step * x, largest), min(b - step * y, largest)
    if a > 0.0 and a * b >= 0.25:
        return a, b
    # The nearest point of the hyperbola (e^s/2, e^−s/2), by Newton's method in s.
    end = math.log(2.0 * largest)
    s = 0.0
    for _ in range(_MOST_STEPS):
        u, v = 0.5 * math.exp(s), 0.5 * math.exp(-s)
        slope = (u - a) * u - (v - b) * v
        curvature = (2.0 * u - a) * u + (2.0 * v - b) * v
        change = -slope / curvature if curvature > 0.0 else (-1.0 if slope > 0.0 else 1.0)
        moved = min(max(s + min(max(change, -1.0), 1.0), -end), end)
        change, s = moved - s, moved
        if abs(change) < _EXACT:
            break
    return 0.5 * math.exp(s), 0.5 * math.exp(-s)


def _hmean(a, b, x, y, step, p, eps, theta):
    a, b = min(a - step * x, 2.0), min(b - step * y, 2.0)
    if a >= 0.0 and b >= 0.0 and math.sqrt(a) + math.sqrt(b) >= math.sqrt(2.0):
        return a, b
    # The nearest point of the curve (2z², 2(1 − z)²), by Newton's method. Below the curve a + b < 2, so that the
    # squared distance is a convex function of z.
    z = 0.5
    for _ in range(_MOST_STEPS):
        w = 1.0 - z
        slope = (2.0 * z * z - a) * z - (2.0 * w * w - b) * w
        curvature = 6.0 * (z * z + w * w) - (a + b)
        moved = min(max(z - slope / curvature, 0.0), 1.0)
        change, z = moved - z, moved
        if abs(change) < _EXACT:
            break
    return 2.0 * z * z, 2.0 * (1.0 - z) * (1.0 - z)


def _qmean(a, b, x, y, step, p, eps, theta):
    a, b = max(a - step * (x - 1.0), 0.0), max(b - step * (y - 1.0), 0.0)
    square = a * a + b * b
    inside = math.sqrt(0.5 / square) if square > 0.5 else 1.0
    return inside * a, inside * b


@jitable
def _multiplier(a, b, centre, p):
    """λ of the nearest point of the line (centre, centre) + λ·(p, −n)."""
    n = 1.0 - p
    return (p * (a - centre) - n * (b - centre)) / (p * p + n * n)


@jitable
def _along(multiplier, count, wanted, step, low, high, centre, p):
    """Descend along the line: ``count`` is the estimate of p̂, ``wanted`` is (g')⁻¹(λ), and λ stays in [low, high].

    The step is that of the projected gradient, in which λ moves by the gradient over the square of (p, −n).
    """
    n = 1.0 - p
    moved = multiplier - step * (count - wanted) / (p * p + n * n)
    moved = min(max(moved, low), high)
    return centre + moved * p, centre - moved * n


@jitable
def _kld_count(slope, p, eps):
    """The p̂ at which −KLD(p, p̂) has this derivative by p̂: s(p)/(p̂ + ε) − s(n)/(1 − p̂ + ε) = slope."""
    size, share = 1.0 + 2.0 * eps, smooth(p, eps)
    middle = slope * size + 1.0
    root = math.sqrt(max(middle * middle - 4.0 * slope * share * size, 0.0))
    if middle > 0.0:
        return 2.0 * share * size / (middle + root) - eps
    return (middle - root) / (2.0 * slope) - eps


@jitable
def _kld(a, b, x, y, step, p, eps, centre, factor):
    """Descend in the dual of centre·(P + N) − factor·KLD."""
    n, multiplier = 1.0 - p, _multiplier(a, b, centre, p)
    share, rest = smooth(p, eps), smooth(n, eps)
    high = factor * (share * inverse(eps) - rest / (1.0 + eps))
    low = factor * (share / (1.0 + eps) - rest * inverse(eps))
    multiplier = min(max(multiplier, low), high)
    wanted = _kld_count(multiplier / factor, p, eps) if factor > 0.0 else p
    return _along(multiplier, p * x + n * (1.0 - y), wanted, step, low, high, centre, p)


def _neg_kld(a, b, x, y, step, p, eps, theta):
    return _kld(a, b, x, y, step, p, max(eps, TINY), 0.0, 1.0)


def _bakld(a, b, x, y, step, p, eps, theta):
    return _kld(a, b, x, y, step, p, max(eps, TINY), 0.5 * theta[0], 1.0 - theta[0])


def _nss(a, b, x, y, step, p, eps, theta):
    n, low, high = 1.0 - p, 2.0 * (p - 1.0), 2.0 * p
    multiplier = min(max(_multiplier(a, b, 0.0, p), low), high)
    count = p * x + n * (1.0 - y)
    return _along(multiplier, count, p - 0.5 * multiplier, step, low, high, 0.0, p)


#: Steps in the dual, by the type of the measure.
DUALS: dict[type, Descend] = {
    BA: _ba,
    GMean: _gmean,
    HMean: _hmean,
    QMean: _qmean,
    NegKLD: _neg_kld,
    BAKLD: _bakld,
    NSS: _nss,
}
