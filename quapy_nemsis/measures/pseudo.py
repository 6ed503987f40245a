"""The pseudo-concave measures of the paper's Table 2, and CQB, which is neither concave nor pseudo-concave."""

from __future__ import annotations

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
)
from quapy_nemsis.measures.formulas import ba, error, neg_kld, neg_kld_slope


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


@dataclass(frozen=True)
class CQReward(PseudoMeasure):
    """BA/(2 − NSS) = BA/(1 + d²) (Table 2, row 1); for K classes BA/(1 + ½‖p − q‖²).

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
    """BA/(1 + KLD) (Table 2, row 2, where the paper prints KLD for the denominator; its text has 1 + KLD).

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
