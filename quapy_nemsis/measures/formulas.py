"""Formulas that measures share: plain functions of floats, called from Python and compiled into kernels."""

from __future__ import annotations

import math

from quapy_nemsis._jit import jitable

#: What a number that must be positive is at least.
TINY = 1e-12


@jitable
def log(x):
    """Ln x, or −∞ for x ≤ 0."""
    return math.log(x) if x > 0.0 else -math.inf


@jitable
def inverse(x):
    """1/x, or ∞ for x ≤ 0."""
    return 1.0 / x if x > 0.0 else math.inf


@jitable
def smoothing(size: float) -> float:
    """ε = 1/(2·size), the smoothing of shares among ``size`` points, as in `quapy.error`."""
    return 0.5 / size


@jitable
def smooth(v, eps):
    """s(v), a smoothed share of one of two classes."""
    return (v + eps) / (1.0 + 2.0 * eps)


@jitable
def clip_share(v):
    """Clip a share to [0, 1]: surrogate rewards can lead outside."""
    return min(max(v, 0.0), 1.0)


@jitable
def predicted(P, N, p):
    """p̂, clipped to [0, 1]."""
    return clip_share(p * P + (1.0 - p) * (1.0 - N))


@jitable
def ba(P, N):
    """Balanced accuracy."""
    return 0.5 * (P + N)


@jitable
def error(P, N, p):
    """d, the signed quantification error."""
    return p * (1.0 - P) - (1.0 - p) * (1.0 - N)


@jitable
def relative_log(a, b):
    """a·ln(b/a), with its limit 0 at a = 0."""
    return a * log(b / a) if a > 0.0 else 0.0


@jitable
def neg_kld(P, N, p, eps):
    """−KLD(p, p̂), smoothed."""
    p_hat = predicted(P, N, p)
    positives = relative_log(smooth(p, eps), smooth(p_hat, eps))
    return positives + relative_log(smooth(1.0 - p, eps), smooth(1.0 - p_hat, eps))


@jitable
def neg_kld_slope(P, N, p, eps):
    """Derivative of the smoothed −KLD(p, p̂) by p̂."""
    p_hat = predicted(P, N, p)
    return smooth(p, eps) * inverse(p_hat + eps) - smooth(1.0 - p, eps) * inverse(1.0 - p_hat + eps)


@jitable
def nss(P, N, p):
    """NSS, 1 − d²."""
    return 1.0 - error(P, N, p) ** 2


@jitable
def q_mean(x, y, beta):
    """Ψ of the Q-measure, (1+β²)·xy/(β²x + y), for x and y of at least 1e-12."""
    b2 = beta * beta
    x, y = max(x, 1e-12), max(y, 1e-12)
    return (1.0 + b2) * x * y / (b2 * x + y)


@jitable
def q_gradient(x, y, beta):
    """Gradient of `q_mean`. With z = y/(β²x + y) it is (1+β²)·(z², (1−z)²/β²); written so that β → 0 is safe."""
    b2 = beta * beta
    x, y = max(x, 1e-12), max(y, 1e-12)
    below = 1.0 / (b2 * x + y)
    return (1.0 + b2) * (y * below) ** 2, (1.0 + b2) * b2 * (x * below) ** 2
