"""Slow and obvious SPADE, AMP's weights and plug-in optima, independent checks of faster implementations.

Narasimhan, Kar, Jain, *Optimizing Non-decomposable Performance Measures: A Tale of Two Classes*, ICML 2015 (SPADE, AMP,
STAMP); Narasimhan, Ramaswamy, Saha, Agarwal, *Consistent Multiclass Algorithms for Complex Performance Measures*, ICML
2015 (plug-in).

Departures from the print, for the sake of a stream of which nothing is known beforehand: p is the share of positives
seen so far, there is an intercept as in `tests.reference.nemsis`, and the first dual variables are (1/2, 1/2).
"""

import itertools
import math

import numpy as np
from scipy.optimize import LinearConstraint, brentq, minimize

from tests.reference.nemsis import TINY, averaged, reward_and_slope, smooth

SPADE_MEASURES = ("ba", "gmean", "hmean", "qmean", "kld", "bakld", "nss")


# ------------------------------------------------------------------- SPADE


def slope_of_count(measure: str, p_hat: float, p: float, eps: float) -> float:
    """Derivative of the part of a measure that depends on the predicted prevalence."""
    if measure == "nss":
        return 2.0 * (p - p_hat)
    slope = smooth(p, eps) / (p_hat + eps) - smooth(1.0 - p, eps) / (1.0 - p_hat + eps)
    return slope / 2.0 if measure == "bakld" else slope  # C = 1/2


def gradient_of_conjugate(measure: str, dual: np.ndarray, p: float, eps: float) -> np.ndarray:
    """Rates at which the measure has this gradient."""
    if measure in ("ba", "gmean", "hmean"):  # the conjugate is 0 on the region
        return np.zeros(2)
    if measure == "qmean":  # the conjugate is alpha + beta - 1
        return np.ones(2)
    centre = 0.25 if measure == "bakld" else 0.0
    along = np.array([p, p - 1.0])
    multiplier = float((dual - centre) @ along / (along @ along))
    ends = [slope_of_count(measure, end, p, eps) for end in (0.0, 1.0)]  # the slope falls
    if multiplier >= ends[0]:
        p_hat = 0.0
    elif multiplier <= ends[1]:
        p_hat = 1.0
    else:
        p_hat = brentq(
            lambda x: slope_of_count(measure, x, p, eps) - multiplier, 0.0, 1.0, xtol=1e-15
        )
    # Any rates with p P + n (1 - N) = p_hat; here those with P = 1 - N.
    return np.array([p_hat, 1.0 - p_hat])


def real_roots(coefficients: list[float], low: float, high: float) -> list[float]:
    """Real roots of a polynomial within bounds, and the bounds."""
    roots = np.roots(coefficients)
    real = roots.real[np.abs(roots.imag) < 1e-6 * (1.0 + np.abs(roots))]
    return [low, high, *(float(root) for root in real if low < root < high)]


def nearest(curve: list[tuple[float, float]], a: float, b: float) -> np.ndarray:
    """The nearest of some points."""
    return np.array(min(curve, key=lambda point: (point[0] - a) ** 2 + (point[1] - b) ** 2))


def project(measure: str, dual: np.ndarray, p: float, eps: float) -> np.ndarray:
    """The nearest point of the dual region."""
    a, b = dual.tolist()
    if measure == "ba":
        return np.array([0.5, 0.5])
    if measure == "qmean":
        found = np.maximum(dual, 0.0)
        return found * min(1.0, math.sqrt(0.5) / max(float(np.linalg.norm(found)), 1e-300))
    if measure == "gmean":
        # Rates are at least eps, so that no gradient is larger than this.
        high = 0.5 / math.sqrt(max(eps, TINY))
        a, b = min(a, high), min(b, high)
        if a > 0.0 and a * b >= 0.25:
            return np.array([a, b])
        # Stationary points of (u - a)^2 + (1/(4u) - b)^2.
        return nearest(
            [(u, 0.25 / u) for u in real_roots([1, -a, 0, b / 4, -1 / 16], 0.25 / high, high)], a, b
        )
    if measure == "hmean":
        a, b = min(a, 2.0), min(b, 2.0)
        if a >= 0.0 and b >= 0.0 and math.sqrt(a) + math.sqrt(b) >= math.sqrt(2.0):
            return np.array([a, b])
        # Stationary points of (2z^2 - a)^2 + (2(1 - z)^2 - b)^2.
        cubic = [4.0, -6.0, 6.0 - a - b, b - 2.0]
        return nearest([(2 * z * z, 2 * (1 - z) ** 2) for z in real_roots(cubic, 0.0, 1.0)], a, b)
    centre = 0.25 if measure == "bakld" else 0.0
    along = np.array([p, p - 1.0])
    multiplier = float((dual - centre) @ along / (along @ along))
    high, low = (slope_of_count(measure, end, p, eps) for end in (0.0, 1.0))
    return centre + min(max(multiplier, low), high) * along


def spade(
    X: np.ndarray,
    y: np.ndarray,
    *,
    measure: str,
    reward: str = "hinge",
    counts: bool = True,
    monotone: bool = True,
    eta0: float = 0.1,
    dual_step: float = 1.0,
    radius: float = math.inf,
    bound: float = 1.0,
    average: str = "suffix",
    fit_intercept: bool = True,
) -> tuple[np.ndarray, float, np.ndarray]:
    """Run SPADE once over the rows of X in the given order; weights, intercept and the last (alpha, beta)."""
    w, b, dual = np.zeros(X.shape[1]), 0.0, np.array([0.5, 0.5])
    n_seen = {True: 0, False: 0}
    sizes = 0.0
    weights: list[tuple[np.ndarray, float]] = []
    for t, (x, positive) in enumerate(zip(X, y.tolist(), strict=True), start=1):
        n_seen[positive] += 1
        sizes += min(float(x @ x), 1.0)
        p, eps = n_seen[True] / t, 1.0 / (2.0 * t)
        c, sign, p_y = (0, 1.0, p) if positive else (1, -1.0, 1.0 - p)
        m = sign * (float(w @ x) + b)
        surrogate, slope = reward_and_slope(reward, m)
        # Primal ascent.
        force = max(dual[c], 0.0) if monotone else dual[c]
        step = eta0 / math.sqrt(t) * (force / p_y) * slope * sign
        w = w + step * x
        b = b + step * sizes / t if fit_intercept else b
        norm = float(np.linalg.norm(w))
        w = w * (radius / norm) if norm > radius else w
        weights.append((w.copy(), b))
        # Dual descent.
        rates = np.zeros(2)
        rates[c] = ((1.0 if m > 0.0 else 0.0) if counts else max(surrogate, -bound)) / p_y
        # The duals of the last step lie on the line of the last p.
        on_line = project(measure, dual, p, eps) if measure in ("kld", "bakld", "nss") else dual
        gradient = rates - gradient_of_conjugate(measure, on_line, p, eps)
        dual = project(measure, on_line - dual_step / math.sqrt(t) * gradient, p, eps)
    coef, intercept = averaged(weights, average)
    return coef, intercept, dual


# ------------------------------------------------------------------- plug-in


def confusion(eta: np.ndarray, mass: np.ndarray, h: np.ndarray) -> np.ndarray:
    """C_ij = sum over the points x of mass(x) eta_i(x) h_j(x)."""
    return np.einsum("x,xi,xj->ij", mass, eta, h)


def best_randomised(value, eta: np.ndarray, mass: np.ndarray) -> float:
    """Highest value of a concave function of the confusion matrix over all randomised classifiers, by SLSQP."""
    m, k = eta.shape

    def loss(flat):
        return -value(confusion(eta, mass, flat.reshape(m, k)))

    sums = LinearConstraint(np.kron(np.eye(m), np.ones(k)), 1.0, 1.0)
    rng, best = np.random.default_rng(0), -math.inf
    for start in (eta, rng.dirichlet(np.ones(k), size=m)):
        found = minimize(
            loss,
            start.ravel(),
            method="SLSQP",
            bounds=[(0.0, 1.0)] * (m * k),
            constraints=[sums],
            options={"ftol": 1e-12, "maxiter": 500},
        )
        best = max(best, -found.fun)
    return best


def best_deterministic(value, eta: np.ndarray, mass: np.ndarray) -> float:
    """Highest value over all deterministic classifiers, of which each is tried."""
    m, k = eta.shape
    return max(
        value(confusion(eta, mass, np.eye(k)[list(labels)]))
        for labels in itertools.product(range(k), repeat=m)
    )
