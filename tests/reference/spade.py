"""SPADE from the values of a measure alone: no closed form of a conjugate, a region or a projection is used.

Algorithm 1 of Narasimhan, Kar, Jain (ICML 2015) needs the concave conjugate Ψ*(d) = min over r of d·r − Ψ(r), where
d = (α, β) and r = (P, N). Here, the region A in which Ψ* is finite, the projection onto it and the rates ∇Ψ*(d) come
from numeric derivatives and searches:

* GMean and HMean are homogeneous, so Ψ* is 0 on A, and A is what lies above the curve of all gradients of Ψ. QMean is
  homogeneous in (1 − P, 1 − N); A is what lies below the curve, and ∇Ψ* is (1, 1). The curve is drawn with many
  gradients, and the nearest point of the polygon is taken. Rates are at least ε = 1/(2t), so no gradient is larger than
  that at (ε, 1).
* NegKLD depends on the predicted prevalence x = p·P + (1 − p)(1 − N) alone. A is a segment of the line through
  (p, p − 1), and ∇Ψ* has the x that maximises Ψ(x) − m·x, where m is the place on the line.

The learner here has the hinge reward, 0-1 counts in the dual step, no intercept, and returns its last weights.
"""

import math

import numpy as np
from scipy.optimize import minimize_scalar

MEASURES = {
    "gmean": lambda P, N: np.sqrt(P * N),
    "hmean": lambda P, N: 2.0 * P * N / (P + N),
    "qmean": lambda P, N: 1.0 - np.sqrt(((1.0 - P) ** 2 + (1.0 - N) ** 2) / 2.0),
}


def gradients(measure: str, P: np.ndarray, N: np.ndarray) -> np.ndarray:
    """Central differences of a measure, in two columns."""
    value = MEASURES[measure]
    h, k = 1e-6 * P, 1e-6 * N
    slopes = (
        (value(P + h, N) - value(P - h, N)) / (2 * h),
        (value(P, N + k) - value(P, N - k)) / (2 * k),
    )
    return np.column_stack(slopes)


def region(measure: str, eps: float) -> np.ndarray:
    """Vertices of a polygon that is nearly A, around it."""
    if measure == "qmean":
        angles = np.linspace(0.0, math.pi / 2, 4001)
        curve = gradients(measure, 1.0 - np.cos(angles) / 2.0, 1.0 - np.sin(angles) / 2.0)
        return np.vstack([[0.0, 0.0], curve])
    ratios = np.geomspace(eps, 1.0, 4001)
    one, few = np.ones_like(ratios), ratios
    above = gradients(measure, few, one)  # from the steepest in P to the diagonal
    curve = np.vstack([above, gradients(measure, one, few)[::-1]])
    corner = above[0, 0]
    return np.vstack([[corner, corner], curve])


def nearest(vertices: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The nearest point of a convex polygon."""
    ends = np.roll(vertices, -1, axis=0)
    edges = ends - vertices
    kept = (edges**2).sum(axis=1) > 0
    starts, edges = vertices[kept], edges[kept]
    sides = edges[:, 0] * (d - starts)[:, 1] - edges[:, 1] * (d - starts)[:, 0]
    if (sides >= 0).all() or (sides <= 0).all():
        return d
    along = np.clip(((d - starts) * edges).sum(axis=1) / (edges**2).sum(axis=1), 0.0, 1.0)
    points = starts + along[:, np.newaxis] * edges
    return points[np.argmin(((points - d) ** 2).sum(axis=1))]


def negative_kld(x: float, p: float, eps: float) -> float:
    """-KLD of the smoothed prevalences p and x of two classes."""
    true, counted = (
        (np.array([v, 1.0 - v]) + eps) / (1.0 + 2.0 * eps) for v in (p, min(max(x, 0.0), 1.0))
    )
    return -float(true @ np.log(true / counted))


def kld_step(d: np.ndarray, rates: np.ndarray, step: float, p: float, eps: float) -> np.ndarray:
    """The dual step for NegKLD, along the line of its gradients."""
    a = np.array([p, p - 1.0])
    h = 1e-7
    high = (negative_kld(h, p, eps) - negative_kld(0.0, p, eps)) / h
    low = (negative_kld(1.0, p, eps) - negative_kld(1.0 - h, p, eps)) / h
    m = min(max(float(d @ a / (a @ a)), low), high)
    x = minimize_scalar(
        lambda x: m * x - negative_kld(x, p, eps),
        bounds=(0.0, 1.0),
        method="bounded",
        options={"xatol": 1e-12},
    ).x
    # Rates whose predicted prevalence is x.
    m -= step * float(a @ (rates - np.array([x, 1.0 - x])) / (a @ a))
    return min(max(m, low), high) * a


def spade(
    X: np.ndarray, y: np.ndarray, measure: str, eta0: float, dual_step: float, radius: float
) -> tuple[np.ndarray, np.ndarray]:
    """The last weights and the last (α, β)."""
    w, d = np.zeros(X.shape[1]), np.array([0.5, 0.5])
    for t in range(1, len(y) + 1):
        x, positive, share = X[t - 1], bool(y[t - 1]), float(np.mean(y[:t]))
        eps, c = 1.0 / (2.0 * t), 0 if positive else 1
        sign, mass = (1.0, share) if positive else (-1.0, 1.0 - share)
        margin = sign * float(w @ x)
        slope = 1.0 if margin < 1.0 else 0.0  # of min(1, margin)
        w = w + eta0 / math.sqrt(t) * max(d[c], 0.0) / mass * slope * sign * x
        w = w * min(1.0, radius / max(float(np.linalg.norm(w)), 1e-300))
        rates = np.zeros(2)
        rates[c] = (margin > 0.0) / mass
        step = dual_step / math.sqrt(t)
        if measure == "kld":
            d = kld_step(d, rates, step, share, eps)
        else:
            best = np.ones(2) if measure == "qmean" else np.zeros(2)
            d = nearest(region(measure, eps), d - step * (rates - best))
    return w, d
