"""The nested concave measures of the paper's Table 1, their components, and concave means of the rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from quapy_nemsis._jit import jitable
from quapy_nemsis.measures import classes
from quapy_nemsis.measures.compiled import (
    Functions,
)
from quapy_nemsis.measures.contract import (
    NestedMeasure,
    is_number,
)
from quapy_nemsis.measures.formulas import (
    ba,
    error,
    inverse,
    log,
    neg_kld,
    neg_kld_slope,
    nss,
    predicted,
    q_gradient,
    smooth,
)


@jitable
def _rate(r, eps):
    """Clip a rate to [max(ε, 1e-12), ∞), because roots and ratios have no gradient at 0."""
    return max(r, eps, 1e-12)


def _ba_values(P, N, p, eps, theta):
    return ba(P, N), 0.0


def _ba_gradient(P, N, x, y, p, eps, theta):
    return 0.5, 0.5, 0.0, 0.0, 1.0, 0.0


def _nss_values(P, N, p, eps, theta):
    return nss(P, N, p), 0.0


def _nss_gradient(P, N, x, y, p, eps, theta):
    d = error(P, N, p)
    return 2.0 * p * d, -2.0 * (1.0 - p) * d, 0.0, 0.0, 1.0, 0.0


def _gmean_values(P, N, p, eps, theta):
    return math.sqrt(max(P, 0.0) * max(N, 0.0)), 0.0


def _gmean_gradient(P, N, x, y, p, eps, theta):
    P, N = _rate(P, eps), _rate(N, eps)
    return 0.5 * math.sqrt(N / P), 0.5 * math.sqrt(P / N), 0.0, 0.0, 1.0, 0.0


def _hmean_values(P, N, p, eps, theta):
    P, N = max(P, 0.0), max(N, 0.0)
    return 2.0 * P * N * inverse(P + N) if P * N > 0.0 else 0.0, 0.0


def _hmean_gradient(P, N, x, y, p, eps, theta):
    P, N = _rate(P, eps), _rate(N, eps)
    return 2.0 * (N / (P + N)) ** 2, 2.0 * (P / (P + N)) ** 2, 0.0, 0.0, 1.0, 0.0


def _qmean_values(P, N, p, eps, theta):
    return 1.0 - math.sqrt(0.5 * ((1.0 - P) ** 2 + (1.0 - N) ** 2)), 0.0


def _qmean_gradient(P, N, x, y, p, eps, theta):
    # At P = N = 1 the measure has its maximum but no gradient; 0 is a supergradient there.
    loss = max(math.sqrt(0.5 * ((1.0 - P) ** 2 + (1.0 - N) ** 2)), 1e-12)
    return 0.5 * (1.0 - P) / loss, 0.5 * (1.0 - N) / loss, 0.0, 0.0, 1.0, 0.0


def _kld_values(P, N, p, eps, theta):
    p_hat = predicted(P, N, p)
    return log(smooth(p_hat, eps)), log(smooth(1.0 - p_hat, eps))


def _kld_outer(x, y, p, eps, theta):
    p_s, n_s = smooth(p, eps), smooth(1.0 - p, eps)
    first = p_s * (x - log(p_s)) if p_s > 0.0 else 0.0
    second = n_s * (y - log(n_s)) if n_s > 0.0 else 0.0
    return first + second


def _kld_gradient(P, N, x, y, p, eps, theta):
    n = 1.0 - p
    p_hat = predicted(P, N, p)
    first, second = inverse(p_hat + eps), inverse(1.0 - p_hat + eps)
    return p * first, -n * first, -p * second, n * second, smooth(p, eps), smooth(n, eps)


def _bakld_values(P, N, p, eps, theta):
    return ba(P, N), neg_kld(P, N, p, eps)


def _bakld_gradient(P, N, x, y, p, eps, theta):
    slope = neg_kld_slope(P, N, p, eps)
    return 0.5, 0.5, p * slope, -(1.0 - p) * slope, theta[0], 1.0 - theta[0]


def _q_values(P, N, p, eps, theta):
    return ba(P, N), nss(P, N, p)


def _q_gradient(P, N, x, y, p, eps, theta):
    d = error(P, N, p)
    by_x, by_y = q_gradient(x, y, theta[0])
    return 0.5, 0.5, 2.0 * p * d, -2.0 * (1.0 - p) * d, by_x, by_y


@dataclass(frozen=True)
class NegKLD(NestedMeasure):
    """Negative Kullback-Leibler divergence between the true and the counted prevalence (Table 1, row 1).

    −KLD(p, p̂) with both distributions smoothed: exactly −`quapy.error.kld`. Here Ψ(x, y) = s(p)·x + s(n)·y −
    [s(p)·ln s(p) + s(n)·ln s(n)], ζ₁ = ln s(p̂), ζ₂ = ln s(n̂). The paper prints (1/r₁, 1/r₂) for both inner
    gradients, which is right if r₁, r₂ stand for p̂, n̂. By (P, N) they are (p, −n)/(p̂ + ε) and (−p, n)/(n̂ + ε).

    Examples
    --------
    >>> NegKLD().value(P=0.9, N=0.9, p=0.5)
    0.0
    """

    key = "kld"
    prevalence_only = True
    formula = "−KLD(p, p̂)"
    affine = True
    separates_count = True
    functions = Functions(_kld_values, _kld_outer, _kld_gradient)
    class_functions = classes.KLD


@dataclass(frozen=True)
class BAKLD(NestedMeasure):
    """Weighted mean of balanced accuracy and −KLD (Table 1, row 3): C·BA + (1 − C)·(−KLD).

    Parameters
    ----------
    C : float, default=0.5
        Weight of classification, in [0, 1]; the paper's CWeight.

    Examples
    --------
    >>> BAKLD(0.5).value(P=0.9, N=0.9, p=0.5)
    0.45
    """

    C: float = 0.5

    key = "bakld"
    formula = "C·BA + (1−C)·(−KLD)"
    affine = True
    separates_count = True
    functions = Functions(_bakld_values, classes.bakld_outer, _bakld_gradient)
    class_functions = classes.BAKLD

    def __post_init__(self):
        if not is_number(self.C) or not 0.0 <= self.C <= 1.0:
            raise ValueError(f"C, the weight of BA in BAKLD, must be in [0, 1]; got {self.C!r}")


@dataclass(frozen=True)
class QMeasure(NestedMeasure):
    """Q-measure of balanced accuracy and NSS (Table 1, row 2): (1 + β²)·BA·NSS/(β²·BA + NSS).

    The paper prints 2·(z, −z) for ∇ζ₂, which leaves out p, n and a constant. The gradient of 1 − d² is
    (2p·d, −2n·d).

    Parameters
    ----------
    beta : float, default=1
        Must be positive. Above 1, quantification has more weight; below 1, classification has more weight.

    Examples
    --------
    >>> QMeasure(1).value(P=1.0, N=1.0, p=0.3)
    1.0
    """

    beta: float = 1.0

    key = "q"
    formula = "(1+β²)·BA·NSS / (β²·BA + NSS)"
    separates_count = True
    functions = Functions(_q_values, classes.q_outer, _q_gradient)
    class_functions = classes.Q

    def __post_init__(self):
        if not is_number(self.beta) or not 0.0 < self.beta < math.inf:
            raise ValueError(f"beta of QMeasure must be positive and finite; got {self.beta!r}")


@dataclass(frozen=True)
class NSS(NestedMeasure):
    """Normalised squared score in the form of Table 1: 1 − d², d = (FN − FP)/|S|; for K classes 1 − ½‖p − q‖².

    The paper's text divides d by max(p, n) as well; its Table 1 and its algorithms do not.

    Examples
    --------
    >>> NSS().value(P=0.5, N=1.0, p=0.5)
    0.9375
    """

    key = "nss"
    prevalence_only = True
    formula = "1 − (p(1−P) − n(1−N))²"
    affine = True
    separates_count = True
    functions = Functions(_nss_values, classes.first, _nss_gradient)
    class_functions = classes.NSS


@dataclass(frozen=True)
class BA(NestedMeasure):
    """Balanced accuracy (P + N)/2, the mean recall of the classes: a measure of classification only.

    Examples
    --------
    >>> BA().value(P=0.5, N=1.0, p=0.1)
    0.75
    """

    key = "ba"
    formula = "(P + N)/2"
    affine = True
    separates_count = True
    functions = Functions(_ba_values, classes.first, _ba_gradient)
    class_functions = classes.BA


@dataclass(frozen=True)
class GMean(NestedMeasure):
    """Geometric mean of the recalls, √(P·N) for two classes: monotone and concave.

    Examples
    --------
    >>> GMean().value(P=0.25, N=1.0, p=0.1)
    0.5
    """

    key = "gmean"
    formula = "√(P·N)"
    affine = True
    separates_count = True
    functions = Functions(_gmean_values, classes.first, _gmean_gradient)
    class_functions = classes.GMEAN


@dataclass(frozen=True)
class HMean(NestedMeasure):
    """Harmonic mean of the recalls, 2·P·N/(P + N) for two classes: monotone and concave.

    Examples
    --------
    >>> HMean().value(P=0.5, N=0.5, p=0.1)
    0.5
    """

    key = "hmean"
    formula = "2·P·N / (P + N)"
    affine = True
    separates_count = True
    functions = Functions(_hmean_values, classes.first, _hmean_gradient)
    class_functions = classes.HMEAN


@dataclass(frozen=True)
class QMean(NestedMeasure):
    """Quadratic-mean measure of the recalls, 1 − √(((1−P)² + (1−N)²)/2) for two classes: monotone and concave.

    Examples
    --------
    >>> QMean().value(P=0.5, N=0.5, p=0.1)
    0.5
    """

    key = "qmean"
    formula = "1 − √(((1−P)² + (1−N)²)/2)"
    affine = True
    separates_count = True
    functions = Functions(_qmean_values, classes.first, _qmean_gradient)
    class_functions = classes.QMEAN
