"""The measures a quantifier can be trained for, and evaluated with.

Notation, as in the paper: P and N are the mean rewards on positives and on negatives (with the 0-1 reward, the
true positive and the true negative rate), p is the share of positives and n = 1 − p. Then

* p̂ = p·P + n·(1 − N) is the prevalence that classify-and-count estimates, n̂ = 1 − p̂;
* d = p·(1 − P) − n·(1 − N) = (FN − FP)/|S| is the signed quantification error, BA = (P + N)/2;
* s(v) = (v + ε)/(1 + 2ε) smooths a share; with ε = 1/(2|S|) it is the smoothing of `quapy.error`.

A *nested concave* measure is Ψ(ζ₁(P, N), ζ₂(P, N)) with three concave functions (Table 1 of the paper). NEMSIS
needs nothing of it but their values and gradients. Outside the domain of a logarithm, a root or a ratio
(surrogate rewards may be negative) a function is taken at the nearest point of its domain.

Examples
--------
>>> measure = get_measure("bakld:0.3")
>>> measure
BAKLD(C=0.3)
>>> round(measure.value(P=0.8, N=0.9, p=0.25), 4)
0.2539
>>> round(get_measure("q").score(["no", "no", "no", "yes"], ["no", "no", "yes", "yes"]), 4)
0.8824
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numba.extending import register_jitable
from numpy.typing import ArrayLike

Value = tuple[float, tuple[float, float]]


# --------------------------------------------------------------------------- building blocks
# Plain functions of floats: called as they are by the measures, and compiled into the kernels.


@register_jitable
def _log(x):
    return math.log(x) if x > 0.0 else -math.inf


@register_jitable
def _inverse(x):
    return 1.0 / x if x > 0.0 else math.inf


@register_jitable
def _smooth(v, eps):
    return (v + eps) / (1.0 + 2.0 * eps)


@register_jitable
def _predicted(P, N, p):
    """p̂, at the nearest point of [0, 1]."""
    return min(max(p * P + (1.0 - p) * (1.0 - N), 0.0), 1.0)


@register_jitable
def _ba(P, N):
    return 0.5 * (P + N)


@register_jitable
def _error(P, N, p):
    """d, the signed quantification error."""
    return p * (1.0 - P) - (1.0 - p) * (1.0 - N)


@register_jitable
def _relative_log(a, b):
    """a·ln(b/a), with its limit 0 at a = 0."""
    return a * _log(b / a) if a > 0.0 else 0.0


@register_jitable
def _neg_kld(P, N, p, eps):
    p_hat = _predicted(P, N, p)
    positives = _relative_log(_smooth(p, eps), _smooth(p_hat, eps))
    return positives + _relative_log(_smooth(1.0 - p, eps), _smooth(1.0 - p_hat, eps))


@register_jitable
def _neg_kld_slope(P, N, p, eps):
    """Derivative of −KLD by p̂."""
    p_hat = _predicted(P, N, p)
    return _smooth(p, eps) * _inverse(p_hat + eps) - _smooth(1.0 - p, eps) * _inverse(
        1.0 - p_hat + eps
    )


@register_jitable
def _nss(P, N, p):
    return 1.0 - _error(P, N, p) ** 2


@register_jitable
def _rate(r, eps):
    """A rate, at the nearest point of [max(ε, 1e-12), ∞): roots and ratios have no gradient at 0."""
    return max(r, eps, 1e-12)


# Each nested concave measure is three functions:
#   values(P, N, p, eps, theta)          -> (ζ₁, ζ₂)
#   outer(x, y, p, eps, theta)           -> Ψ
#   gradient(P, N, x, y, p, eps, theta)  -> (∂ζ₁/∂P, ∂ζ₁/∂N, ∂ζ₂/∂P, ∂ζ₂/∂N, ∂Ψ/∂x, ∂Ψ/∂y)
# The last is what lines 15-17 of the paper's algorithm need, in one call.


def _first(x, y, p, eps, theta):
    """Ψ of a measure that is a single concave function ζ₁ of the rates (ζ₂ = 0)."""
    return x


def _ba_values(P, N, p, eps, theta):
    return _ba(P, N), 0.0


def _ba_gradient(P, N, x, y, p, eps, theta):
    return 0.5, 0.5, 0.0, 0.0, 1.0, 0.0


def _nss_values(P, N, p, eps, theta):
    return _nss(P, N, p), 0.0


def _nss_gradient(P, N, x, y, p, eps, theta):
    d = _error(P, N, p)
    return 2.0 * p * d, -2.0 * (1.0 - p) * d, 0.0, 0.0, 1.0, 0.0


def _gmean_values(P, N, p, eps, theta):
    return math.sqrt(max(P, 0.0) * max(N, 0.0)), 0.0


def _gmean_gradient(P, N, x, y, p, eps, theta):
    P, N = _rate(P, eps), _rate(N, eps)
    return 0.5 * math.sqrt(N / P), 0.5 * math.sqrt(P / N), 0.0, 0.0, 1.0, 0.0


def _hmean_values(P, N, p, eps, theta):
    P, N = max(P, 0.0), max(N, 0.0)
    return 2.0 * P * N * _inverse(P + N) if P * N > 0.0 else 0.0, 0.0


def _hmean_gradient(P, N, x, y, p, eps, theta):
    P, N = _rate(P, eps), _rate(N, eps)
    return 2.0 * (N / (P + N)) ** 2, 2.0 * (P / (P + N)) ** 2, 0.0, 0.0, 1.0, 0.0


def _qmean_values(P, N, p, eps, theta):
    return 1.0 - math.sqrt(0.5 * ((1.0 - P) ** 2 + (1.0 - N) ** 2)), 0.0


def _qmean_gradient(P, N, x, y, p, eps, theta):
    # At P = N = 1 the measure has its maximum and no gradient; 0 is then a supergradient.
    loss = max(math.sqrt(0.5 * ((1.0 - P) ** 2 + (1.0 - N) ** 2)), 1e-12)
    return 0.5 * (1.0 - P) / loss, 0.5 * (1.0 - N) / loss, 0.0, 0.0, 1.0, 0.0


def _kld_values(P, N, p, eps, theta):
    p_hat = _predicted(P, N, p)
    return _log(_smooth(p_hat, eps)), _log(_smooth(1.0 - p_hat, eps))


def _kld_outer(x, y, p, eps, theta):
    p_s, n_s = _smooth(p, eps), _smooth(1.0 - p, eps)
    first = p_s * (x - _log(p_s)) if p_s > 0.0 else 0.0
    second = n_s * (y - _log(n_s)) if n_s > 0.0 else 0.0
    return first + second


def _kld_gradient(P, N, x, y, p, eps, theta):
    n = 1.0 - p
    p_hat = _predicted(P, N, p)
    first, second = _inverse(p_hat + eps), _inverse(1.0 - p_hat + eps)
    return p * first, -n * first, -p * second, n * second, _smooth(p, eps), _smooth(n, eps)


def _bakld_values(P, N, p, eps, theta):
    return _ba(P, N), _neg_kld(P, N, p, eps)


def _bakld_outer(x, y, p, eps, theta):
    return theta[0] * x + (1.0 - theta[0]) * y


def _bakld_gradient(P, N, x, y, p, eps, theta):
    slope = _neg_kld_slope(P, N, p, eps)
    return 0.5, 0.5, p * slope, -(1.0 - p) * slope, theta[0], 1.0 - theta[0]


def _q_values(P, N, p, eps, theta):
    return _ba(P, N), _nss(P, N, p)


def _q_outer(x, y, p, eps, theta):
    b2 = theta[0] * theta[0]
    x, y = max(x, 1e-12), max(y, 1e-12)
    return (1.0 + b2) * x * y / (b2 * x + y)


def _q_gradient(P, N, x, y, p, eps, theta):
    b2 = theta[0] * theta[0]
    x, y = max(x, 1e-12), max(y, 1e-12)
    # With z = y/(β²x + y) this is (1+β²)·(z², (1−z)²/β²); written so that β → 0 is harmless.
    inverse = 1.0 / (b2 * x + y)
    d = _error(P, N, p)
    return (
        0.5,
        0.5,
        2.0 * p * d,
        -2.0 * (1.0 - p) * d,
        (1.0 + b2) * (y * inverse) ** 2,
        (1.0 + b2) * b2 * (x * inverse) ** 2,
    )


# --------------------------------------------------------------------------- the measures


def _rates(y_true: ArrayLike, y_pred: ArrayLike, pos_label: Any) -> tuple[float, float, float, int]:
    """(TPR, TNR, p, |S|) of crisp predictions."""
    y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
    if y_true.ndim != 1 or y_true.shape != y_pred.shape:
        raise ValueError(
            "y_true and y_pred must be one-dimensional and of equal length; "
            f"got shapes {y_true.shape} and {y_pred.shape}"
        )
    classes = np.unique(y_true)
    if len(classes) != 2:
        raise ValueError(f"y_true must hold exactly two classes; got {classes.tolist()}")
    strange = np.setdiff1d(y_pred, classes)
    if len(strange):
        raise ValueError(
            f"y_pred holds labels that y_true has not: {strange.tolist()}; "
            f"the classes are {classes.tolist()}"
        )
    if pos_label is None:
        pos_label = classes[1]
    elif pos_label not in classes:
        raise ValueError(f"pos_label {pos_label!r} is not one of the classes {classes.tolist()}")
    positive, predicted = y_true == pos_label, y_pred == pos_label
    P = float(np.mean(predicted[positive]))
    N = float(np.mean(~predicted[~positive]))
    return P, N, float(np.mean(positive)), len(y_true)


class Measure:
    """A function of (P, N, p) that says how good a classifier is as a quantifier.

    Measures are immutable values: two with the same parameters are equal, and they can be pickled and hashed.
    """

    key: ClassVar[str]
    #: The canonical expression, for tables.
    formula: ClassVar[str]
    #: False for errors such as CQB.
    greater_is_better: ClassVar[bool] = True

    @property
    def parameters(self) -> tuple[float, ...]:
        """Values of the measure's own parameters."""
        return tuple(float(getattr(self, field.name)) for field in fields(self))

    @property
    def name(self) -> str:
        """Short name, accepted by `get_measure`.

        Examples
        --------
        >>> BAKLD(0.5).name, QMeasure(2).name
        ('bakld:0.5', 'q:2')
        """
        return ":".join([self.key, *(f"{value!r}".removesuffix(".0") for value in self.parameters)])

    def value(self, P: float, N: float, p: float, eps: float = 0.0) -> float:
        """Canonical value from the rates and the share of positives.

        Parameters
        ----------
        P, N : float
            Mean reward on positives and on negatives (TPR and TNR).
        p : float
            Share of positives, in [0, 1].
        eps : float, default=0
            Smoothing ε of the shares in KLD; `quapy.error` uses 1/(2·sample size).
        """
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"p must be a share in [0, 1]; got {p!r}")
        if not eps >= 0.0:
            raise ValueError(f"eps must be at least 0; got {eps!r}")
        return float(self._value(float(P), float(N), float(p), float(eps)))

    def score(
        self,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        pos_label: Any = None,
        eps: float | None = None,
    ) -> float:
        """Value of crisp predictions.

        Parameters
        ----------
        y_true, y_pred : array-like of shape (n_samples,)
            True and predicted labels, of any type; `y_true` must hold two classes.
        pos_label : label, optional
            The positive class; by default the greater one, as in `classes_[1]`.
        eps : float, optional
            Smoothing of the shares; by default 1/(2·n_samples).
        """
        P, N, p, size = _rates(y_true, y_pred, pos_label)
        return self.value(P, N, p, 0.5 / size if eps is None else eps)

    def _value(self, P: float, N: float, p: float, eps: float) -> float:
        raise TypeError(f"{type(self).__name__} is abstract")


class NestedMeasure(Measure):
    """A nested concave measure Ψ(ζ₁(P, N), ζ₂(P, N)), the family NEMSIS optimises."""

    #: Whether Ψ is affine: then its gradient does not depend on q, and kernels need not keep q.
    affine: ClassVar[bool] = True

    # Set by the subclasses; see the comment above `_first`.
    _values: ClassVar[Callable]
    _outer: ClassVar[Callable]
    _gradient: ClassVar[Callable]

    @property
    def theta(self) -> np.ndarray:
        """Parameters as kernels take them."""
        return np.array(self.parameters or (0.0,), dtype=np.float64)

    def _value(self, P: float, N: float, p: float, eps: float) -> float:
        return self._outer(*self._values(P, N, p, eps, self.theta), p, eps, self.theta)

    def _gradients(self, *point: float) -> tuple[float, ...]:
        return tuple(float(slope) for slope in self._gradient(*point, self.theta))

    def psi(self, x: float, y: float, p: float, eps: float = 0.0) -> Value:
        """Value and gradient (∂x, ∂y) of Ψ.

        Examples
        --------
        >>> QMeasure(1).psi(0.5, 0.5, p=0.5)
        (0.5, (0.5, 0.5))
        """
        value = self._outer(x, y, p, eps, self.theta)
        return float(value), self._gradients(0.5, 0.5, x, y, p, eps)[4:]

    def zeta1(self, P: float, N: float, p: float, eps: float = 0.0) -> Value:
        """Value and gradient (∂P, ∂N) of ζ₁.

        Examples
        --------
        >>> BA().zeta1(0.75, 0.25, p=0.5)
        (0.5, (0.5, 0.5))
        """
        value = self._values(P, N, p, eps, self.theta)[0]
        return float(value), self._gradients(P, N, 0.5, 0.5, p, eps)[:2]

    def zeta2(self, P: float, N: float, p: float, eps: float = 0.0) -> Value:
        """Value and gradient (∂P, ∂N) of ζ₂.

        Examples
        --------
        >>> QMeasure(1).zeta2(0.75, 0.75, p=0.5)
        (1.0, (0.0, -0.0))
        """
        value = self._values(P, N, p, eps, self.theta)[1]
        return float(value), self._gradients(P, N, 0.5, 0.5, p, eps)[2:4]


@dataclass(frozen=True)
class NegKLD(NestedMeasure):
    """Negative Kullback-Leibler divergence of the estimated from the true prevalence (Table 1, row 1).

    −KLD(p, p̂) with both distributions smoothed: exactly −`quapy.error.kld`. Here Ψ(x, y) = s(p)·x + s(n)·y −
    [s(p)·ln s(p) + s(n)·ln s(n)], ζ₁ = ln s(p̂), ζ₂ = ln s(n̂). The paper prints (1/r₁, 1/r₂) for both inner
    gradients; that holds for r₁, r₂ read as p̂, n̂. By (P, N) they are (p, −n)/(p̂ + ε) and (−p, n)/(n̂ + ε).

    Examples
    --------
    >>> NegKLD().value(P=0.9, N=0.9, p=0.5)
    0.0
    """

    key = "kld"
    formula = "−KLD(p, p̂)"
    _values = staticmethod(_kld_values)
    _outer = staticmethod(_kld_outer)
    _gradient = staticmethod(_kld_gradient)


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
    _values = staticmethod(_bakld_values)
    _outer = staticmethod(_bakld_outer)
    _gradient = staticmethod(_bakld_gradient)

    def __post_init__(self):
        if not _is_number(self.C) or not 0.0 <= self.C <= 1.0:
            raise ValueError(f"C, the weight of BA in BAKLD, must be in [0, 1]; got {self.C!r}")


@dataclass(frozen=True)
class QMeasure(NestedMeasure):
    """Q-measure of balanced accuracy and NSS (Table 1, row 2): (1 + β²)·BA·NSS/(β²·BA + NSS).

    The paper prints 2·(z, −z) for ∇ζ₂, which drops p, n and a constant; the gradient of 1 − d² is
    (2p·d, −2n·d).

    Parameters
    ----------
    beta : float, default=1
        Above 1 quantification weighs more, below 1 classification. Must be positive.

    Examples
    --------
    >>> QMeasure(1).value(P=1.0, N=1.0, p=0.3)
    1.0
    """

    beta: float = 1.0

    key = "q"
    formula = "(1+β²)·BA·NSS / (β²·BA + NSS)"
    affine = False
    _values = staticmethod(_q_values)
    _outer = staticmethod(_q_outer)
    _gradient = staticmethod(_q_gradient)

    def __post_init__(self):
        if not _is_number(self.beta) or not 0.0 < self.beta < math.inf:
            raise ValueError(f"beta of QMeasure must be positive and finite; got {self.beta!r}")


@dataclass(frozen=True)
class NSS(NestedMeasure):
    """Normalised squared score in the form of Table 1: 1 − d², d = (FN − FP)/|S|.

    The paper's text divides d by max(p, n) as well; its Table 1 and its algorithms do not.

    Examples
    --------
    >>> NSS().value(P=0.5, N=1.0, p=0.5)
    0.9375
    """

    key = "nss"
    formula = "1 − (p(1−P) − n(1−N))²"
    _values = staticmethod(_nss_values)
    _outer = staticmethod(_first)
    _gradient = staticmethod(_nss_gradient)


@dataclass(frozen=True)
class BA(NestedMeasure):
    """Balanced accuracy (P + N)/2: classification only.

    Examples
    --------
    >>> BA().value(P=0.5, N=1.0, p=0.1)
    0.75
    """

    key = "ba"
    formula = "(P + N)/2"
    _values = staticmethod(_ba_values)
    _outer = staticmethod(_first)
    _gradient = staticmethod(_ba_gradient)


@dataclass(frozen=True)
class GMean(NestedMeasure):
    """Geometric mean of the rates, √(P·N): monotone and concave.

    Examples
    --------
    >>> GMean().value(P=0.25, N=1.0, p=0.1)
    0.5
    """

    key = "gmean"
    formula = "√(P·N)"
    _values = staticmethod(_gmean_values)
    _outer = staticmethod(_first)
    _gradient = staticmethod(_gmean_gradient)


@dataclass(frozen=True)
class HMean(NestedMeasure):
    """Harmonic mean of the rates, 2·P·N/(P + N): monotone and concave.

    Examples
    --------
    >>> HMean().value(P=0.5, N=0.5, p=0.1)
    0.5
    """

    key = "hmean"
    formula = "2·P·N / (P + N)"
    _values = staticmethod(_hmean_values)
    _outer = staticmethod(_first)
    _gradient = staticmethod(_hmean_gradient)


@dataclass(frozen=True)
class QMean(NestedMeasure):
    """Quadratic mean measure of the rates, 1 − √(((1−P)² + (1−N)²)/2): monotone and concave.

    Examples
    --------
    >>> QMean().value(P=0.5, N=0.5, p=0.1)
    0.5
    """

    key = "qmean"
    formula = "1 − √(((1−P)² + (1−N)²)/2)"
    _values = staticmethod(_qmean_values)
    _outer = staticmethod(_first)
    _gradient = staticmethod(_qmean_gradient)


@dataclass(frozen=True)
class CQB(Measure):
    """Classification-quantification balancing error |FP² − FN²| (section 3.1), for evaluation only.

    `score` counts FP and FN; `value` takes them as shares of the sample, which divides the result by |S|².
    It is neither concave nor pseudo-concave: no learner here optimises it.

    Examples
    --------
    >>> CQB().score([0, 0, 0, 1, 1], [1, 1, 0, 0, 1])
    3.0
    """

    key = "cqb"
    formula = "|FP² − FN²|"
    greater_is_better = False

    def _value(self, P: float, N: float, p: float, eps: float) -> float:
        return abs((p * (1.0 - P)) ** 2 - ((1.0 - p) * (1.0 - N)) ** 2)

    def score(
        self,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        pos_label: Any = None,
        eps: float | None = None,
    ) -> float:
        """Value of crisp predictions, with FP and FN as counts (`eps` has no effect)."""
        P, N, p, size = _rates(y_true, y_pred, pos_label)
        positives = round(p * size)
        misses, false_alarms = (
            round((1.0 - P) * positives),
            round((1.0 - N) * (size - positives)),
        )
        return float(abs(false_alarms**2 - misses**2))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


MEASURES: dict[str, type[Measure]] = {
    cls.key: cls for cls in (NegKLD, BAKLD, QMeasure, NSS, BA, GMean, HMean, QMean, CQB)
}


def get_measure(measure: str | Measure) -> Measure:
    """Measure of a short name, its parameter after a colon; a measure object is returned as it is.

    Parameters
    ----------
    measure : str or Measure
        One of kld, bakld, bakld:0.3, q, q:2, nss, ba, gmean, hmean, qmean, cqb, or an object.

    Examples
    --------
    >>> get_measure("q:2")
    QMeasure(beta=2.0)
    >>> get_measure(NSS())
    NSS()
    """
    if isinstance(measure, Measure):
        return measure
    if not isinstance(measure, str):
        raise TypeError(
            f"measure must be a name or a Measure object; got {measure!r} of type "
            f"{type(measure).__name__}"
        )
    key, colon, text = measure.partition(":")
    if key not in MEASURES:
        raise ValueError(f"unknown measure {measure!r}; known are {', '.join(MEASURES)}")
    cls = MEASURES[key]
    if not colon:
        return cls()
    if not fields(cls):
        raise ValueError(f"measure {key!r} has no parameter; got {measure!r}")
    try:
        parameter = float(text)
    except ValueError:
        raise ValueError(
            f"the parameter of measure {key!r} must be a number; got {text!r} in {measure!r}"
        ) from None
    return cls(parameter)
