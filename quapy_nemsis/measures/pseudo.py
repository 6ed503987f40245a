"""The pseudo-concave measures of the paper's Table 2, the pseudo-linear F-measures, and CQB, which is neither."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from quapy_nemsis.measures import classes
from quapy_nemsis.measures.compiled import (
    Functions,
    valuation_outer,
)
from quapy_nemsis.measures.contract import (
    Measure,
    PseudoMeasure,
    confusion,
    is_number,
)
from quapy_nemsis.measures.formulas import TINY, ba, error, neg_kld, neg_kld_slope


def _cq_values(P, N, p, eps, theta):
    return ba(P, N), 1.0 + error(P, N, p) ** 2


def _cq_gradient(P, N, x, y, p, eps, theta):
    d = error(P, N, p)
    return 0.5, 0.5, -2.0 * p * d, 2.0 * (1.0 - p) * d, 1.0, -theta[0]


def _bk_values(P, N, p, eps, theta):
    return ba(P, N), 1.0 - neg_kld(P, N, p, eps)


def _bk_gradient(P, N, x, y, p, eps, theta):
    slope = neg_kld_slope(P, N, p, eps)
    return 0.5, 0.5, -p * slope, (1.0 - p) * slope, 1.0, -theta[0]


def _f_values(P, N, p, eps, theta):
    beta2 = theta[1] * theta[1]
    return (1.0 + beta2) * p * P, max(beta2 * p + p * P + (1.0 - p) * (1.0 - N), TINY)


def _f_gradient(P, N, x, y, p, eps, theta):
    beta2 = theta[1] * theta[1]
    return (1.0 + beta2) * p, 0.0, p, p - 1.0, 1.0, -theta[0]


def _jaccard_values(P, N, p, eps, theta):
    return p * P, max(p + (1.0 - p) * (1.0 - N), TINY)


def _jaccard_gradient(P, N, x, y, p, eps, theta):
    return p, 0.0, 0.0, p - 1.0, 1.0, -theta[0]


@dataclass(frozen=True)
class CQReward(PseudoMeasure):
    """Pseudo-concave measure BA/(2 − NSS) = BA/(1 + d²) (Table 2, row 1); for K classes BA/(1 + ½‖p − q‖²).

    Examples
    --------
    >>> CQReward().value(P=1.0, N=1.0, p=0.3)
    1.0
    """

    key = "cq"
    formula = "BA / (1 + (p(1−P) − n(1−N))²)"
    bounds = (1.0, 2.0)
    separates_count = True
    functions = Functions(_cq_values, valuation_outer, _cq_gradient)
    class_functions = classes.CQ


@dataclass(frozen=True)
class BKReward(PseudoMeasure):
    """Pseudo-concave measure BA/(1 + KLD) (Table 2, row 2, which prints KLD as the denominator; the text has 1 + KLD).

    The upper bound of KLD depends on the smoothing, so no range of P_quant is given. With surrogate rewards, counts may
    leave [0, 1]; they are clipped one by one. For three or more classes KLD can then fall below 0, by at most
    (e^B − 1 − B)·Kε for rewards of at least −B.

    Examples
    --------
    >>> BKReward().value(P=1.0, N=1.0, p=0.3)
    1.0
    """

    key = "bk"
    formula = "BA / (1 + KLD(p, p̂))"
    separates_count = True
    functions = Functions(_bk_values, valuation_outer, _bk_gradient)
    class_functions = classes.BK


@dataclass(frozen=True)
class FMeasure(PseudoMeasure):
    """F-measure of the positive class, (1 + β²)·TP/((1 + β²)·TP + β²·FN + FP), linear over linear in the rates.

    P_class = (1 + β²)·p·P and P_quant = β²·p + p̂. SCAN and CAN optimise it as they do every pseudo-concave measure.
    The valuation is linear in the rates, so their steps are those of a classifier with constant class weights. These
    are the algorithms STAMP and AMP of Narasimhan, Kar and Jain (2015). "f1" is the name of F with β = 1.

    For K classes, it is the micro-averaged F of all classes but the first (the background), (1 + β²)·Σ p_j·R_j over
    β²·(1 − p₀) + 1 − q₀ with a sum over j ≥ 1 (Narasimhan et al. 2015). If the first class were counted as well, that
    would be the accuracy. The macro average of the classes' F is no ratio of linear functions but a sum of such ratios.
    It is not pseudo-concave, so no learner here optimises it.

    Surrogate rewards may make P_quant negative where P < 0. It is then replaced by a tiny positive number, so that the
    measure is negative, as P is.

    Parameters
    ----------
    beta : float, default=1
        Must be positive. Above 1, recall has more weight; below 1, precision has more weight.

    Examples
    --------
    >>> FMeasure(1).score([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])
    0.8
    >>> FMeasure(2).value(P=0.5, N=1.0, p=0.5).__round__(4)
    0.5556
    """

    beta: float = 1.0

    key = "f"
    formula = "(1+β²)·p·P / (β²·p + p̂)"
    functions = Functions(_f_values, valuation_outer, _f_gradient)
    class_functions = classes.F

    def __post_init__(self):
        if not is_number(self.beta) or not 0.0 < self.beta < math.inf:
            raise ValueError(f"beta of FMeasure must be positive and finite; got {self.beta!r}")


@dataclass(frozen=True)
class Jaccard(PseudoMeasure):
    """Jaccard index of the positive class, TP/(TP + FN + FP): a ratio of linear functions of the rates.

    P_class = p·P and P_quant = p + n·(1 − N). With F = `FMeasure(1)` it is F/(2 − F), so that both have their maximum
    at the same model. For K classes it is the micro average of all classes but the first, as with `FMeasure`.

    Examples
    --------
    >>> Jaccard().score([0, 0, 1, 1], [0, 1, 1, 1]).__round__(4)
    0.6667
    """

    key = "jaccard"
    formula = "p·P / (p + n(1−N))"
    functions = Functions(_jaccard_values, valuation_outer, _jaccard_gradient)
    class_functions = classes.JACCARD


@dataclass(frozen=True)
class CQB(Measure):
    """Classification-quantification balancing error |FP² − FN²| (section 3.1; Milli et al. 2013).

    Lower is better. `score` uses FP and FN as counts; `value` uses them as shares of the sample, which divides the
    result by |S|². CQB is neither concave nor pseudo-concave, so no linear learner optimises it. Quantification
    trees do (see `quapy_nemsis.QuantificationTreeClassifier`).

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
        """Value of the measure for crisp predictions, with FP and FN as counts (`eps` has no effect)."""
        hits_pos, positives, hits_neg, negatives = confusion(y_true, y_pred, pos_label)
        return float(abs((negatives - hits_neg) ** 2 - (positives - hits_pos) ** 2))
