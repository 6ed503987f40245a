"""The losses that structural learners minimise: QuaPy's losses by name, and losses made from measures of this package.

For a loss, lower is better, and perfect rates give 0. The notation is that of `quapy_nemsis.measures`. A loss is
compiled from a function ``f(P, N, d, p, eps, theta)``. This function takes the quantification error
d = p(1−P) − n(1−N) as a separate argument, so that a search can bound it. If the loss is `bounded`, the function falls
as P or N rises with d fixed, and grows as d moves away from 0 with the rates fixed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from quapy_nemsis._jit import jitable
from quapy_nemsis.measures.compiled import (
    LossFunction,
    Outer,
    Values,
)
from quapy_nemsis.measures.contract import (
    Measure,
    NestedMeasure,
    PseudoMeasure,
)
from quapy_nemsis.measures.formulas import error, relative_log, smooth
from quapy_nemsis.measures.names import get_measure

_ALIASES = {"mae": "ae", "mrae": "rae"}


@jitable
def _accuracy(P, N, p):
    return p * P + (1.0 - p) * N


@jitable
def _f1(P, N, p):
    errors = p * (1.0 - P) + (1.0 - p) * (1.0 - N)
    hits = 2.0 * p * P
    return hits / (hits + errors) if hits > 0.0 else 1.0 if errors == 0.0 else 0.0


@jitable
def _kld(d, p, eps):
    first = relative_log(smooth(p, eps), smooth(p - d, eps))
    return -first - relative_log(smooth(1.0 - p, eps), smooth(1.0 - p + d, eps))


@jitable
def _with_count(quality, d, p):
    """1 − harmonic mean of a classification measure and NAS = 1 − |d|/max(p, n) (Barranquero et al. 2015)."""
    score = 1.0 - abs(d) / max(p, 1.0 - p)
    return 1.0 - 2.0 * quality * score / (quality + score) if quality + score > 0.0 else 1.0


def _zero_one_loss(P, N, d, p, eps, theta):
    return 1.0 - _accuracy(P, N, p)


def _f1_loss(P, N, d, p, eps, theta):
    return 1.0 - _f1(P, N, p)


def _ba_loss(P, N, d, p, eps, theta):
    return 1.0 - 0.5 * (P + N)


def _kld_loss(P, N, d, p, eps, theta):
    return _kld(d, p, eps)


def _nkld_loss(P, N, d, p, eps, theta):
    # 2·eᴷ/(1 + eᴷ) − 1
    return math.tanh(0.5 * _kld(d, p, eps))


def _ae_loss(P, N, d, p, eps, theta):
    return abs(d)


def _rae_loss(P, N, d, p, eps, theta):
    return 0.5 * abs(d) * (1.0 / (p + eps) + 1.0 / (1.0 - p + eps))


def _qrecall_loss(P, N, d, p, eps, theta):
    return _with_count(P, d, p)


def _qacc_loss(P, N, d, p, eps, theta):
    return _with_count(_accuracy(P, N, p), d, p)


def _qf1_loss(P, N, d, p, eps, theta):
    return _with_count(_f1(P, N, p), d, p)


def _qgm_loss(P, N, d, p, eps, theta):
    return _with_count(math.sqrt(P * N), d, p)


class _Entry(NamedTuple):
    formula: str
    function: LossFunction
    prevalence_only: bool = False


_TABLE: dict[str, _Entry] = {
    "01": _Entry("share of errors", _zero_one_loss),
    "f1": _Entry("1 − F₁", _f1_loss),
    "ba": _Entry("1 − BA", _ba_loss),
    "kld": _Entry("KLD(p, p̂)", _kld_loss, prevalence_only=True),
    "nkld": _Entry("2·exp(KLD)/(1 + exp(KLD)) − 1", _nkld_loss, prevalence_only=True),
    "ae": _Entry("|p̂ − p|", _ae_loss, prevalence_only=True),
    "rae": _Entry("mean of |p̂ − p|/p and |p̂ − p|/n, smoothed", _rae_loss, prevalence_only=True),
    "qrecall": _Entry("1 − harmonic mean of P and NAS = 1 − |d|/max(p, n)", _qrecall_loss),
    "qacc": _Entry("1 − harmonic mean of accuracy and NAS", _qacc_loss),
    "qf1": _Entry("1 − harmonic mean of F₁ and NAS", _qf1_loss),
    "qgm": _Entry("1 − harmonic mean of √(P·N) and NAS", _qgm_loss),
}

#: Names of the losses. `get_loss` accepts the names of measures, too.
LOSSES: tuple[str, ...] = tuple(_TABLE)


class Loss(Measure):
    """A loss Δ(P, N), which is 0 for perfect rates. Use `get_loss` to make one."""

    greater_is_better = False

    @property
    def bounded(self) -> bool:
        """Whether a search can bound the function, as the docstring of this module describes."""
        return False

    @property
    def function(self) -> LossFunction:
        """The function ``f(P, N, d, p, eps, theta)`` of the loss."""
        raise TypeError(f"{type(self).__name__} is abstract")

    @property
    def theta(self) -> np.ndarray:
        """Array of parameters for the function."""
        return np.zeros(1)

    def _value(self, P: float, N: float, p: float, eps: float) -> float:
        return self.function(P, N, error(P, N, p), p, eps, self.theta)


@dataclass(frozen=True)
class NamedLoss(Loss):
    """A loss whose name is in `LOSSES`."""

    key: str = "kld"
    bounded = True

    @property
    def name(self) -> str:
        """The name in `LOSSES`."""
        return self.key

    @property
    def formula(self) -> str:
        """Formula of the loss, shown in tables."""
        return _TABLE[self.key].formula

    @property
    def prevalence_only(self) -> bool:
        """Whether the loss depends on the predicted prevalence alone."""
        return _TABLE[self.key].prevalence_only

    @property
    def function(self) -> LossFunction:
        """The function ``f(P, N, d, p, eps, theta)`` of the loss."""
        return _TABLE[self.key].function


@dataclass(frozen=True)
class MeasureLoss(Loss):
    """A loss made from a measure: its value for perfect rates minus its value for the given rates."""

    measure: NestedMeasure | PseudoMeasure

    @property
    def name(self) -> str:
        """The name of the measure."""
        return self.measure.name

    @property
    def formula(self) -> str:
        """Formula of the loss, shown in tables."""
        return f"value of [{self.measure.formula}] for perfect rates, minus its value"

    @property
    def prevalence_only(self) -> bool:
        """Whether the measure depends on the predicted prevalence alone."""
        return self.measure.prevalence_only

    @property
    def bounded(self) -> bool:
        """Whether the measure separates the count from the rates."""
        return self.measure.separates_count

    @property
    def theta(self) -> np.ndarray:
        """Parameters of the measure; for a pseudo-concave measure, the level comes first."""
        if isinstance(self.measure, PseudoMeasure):
            return self.measure.valuation(0.0).theta
        return self.measure.theta

    @property
    def function(self) -> LossFunction:
        """The function ``f(P, N, d, p, eps, theta)`` of the loss."""
        values, outer, _ = self.measure.functions
        if isinstance(self.measure, PseudoMeasure):
            outer = _ratio
        return _measure_loss(values, outer, self.measure.separates_count)


@jitable
def _ratio(x, y, p, eps, theta):
    return x / y


@lru_cache(maxsize=256)
def _measure_loss(values: Values, outer: Outer, separates_count: bool) -> LossFunction:
    """Return the function of the loss of a measure outer(ζ₁, ζ₂)."""
    values, outer = jitable(values), jitable(outer)

    if not separates_count:

        def loss(P, N, d, p, eps, theta):
            best1, best2 = values(1.0, 1.0, p, eps, theta)
            x, y = values(P, N, p, eps, theta)
            return outer(best1, best2, p, eps, theta) - outer(x, y, p, eps, theta)

    else:

        def loss(P, N, d, p, eps, theta):
            best1, best2 = values(1.0, 1.0, p, eps, theta)
            x = values(P, N, p, eps, theta)[0]
            # Rates whose only error is d, within one class; a class that does not occur has no error.
            off_pos = max(d, 0.0) / p if p > 0.0 else 0.0
            off_neg = min(d, 0.0) / (1.0 - p) if p < 1.0 else 0.0
            y = values(1.0 - off_pos, 1.0 + off_neg, p, eps, theta)[1]
            return outer(best1, best2, p, eps, theta) - outer(x, y, p, eps, theta)

    # numba tells compiled functions of one name apart by a number that counts from 1 in each process. So code from the
    # cache could call a function of this name and number that was compiled here for another measure.
    loss.__qualname__ += f".{values.__module__}.{values.__qualname__}.{outer.__qualname__}"
    return loss


def get_loss(loss: str | Measure) -> Loss:
    """Return a loss by name, or the loss of a measure: its value for perfect rates minus its value.

    Parameters
    ----------
    loss : str or Measure
        One of 01, f1, ba, kld, nkld, ae (or mae), rae (or mrae), qrecall, qacc, qf1, qgm; the name of a measure
        ("bakld:0.3", "cq", …); or a measure object. The names are QuaPy's, except "qrecall", the loss of
        SVM(Q) (Barranquero et al. 2015). QuaPy calls it "q", but here "q" is the paper's Q-measure.

    Examples
    --------
    >>> get_loss("ae").value(P=0.5, N=1.0, p=0.5)
    0.25
    >>> get_loss("f1").score([1, 1, 0, 0], [1, 0, 0, 0]).__round__(4)
    0.3333
    >>> from quapy_nemsis import BAKLD
    >>> get_loss(BAKLD(0.5)).value(P=1.0, N=1.0, p=0.5)
    0.0
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str):
        name = _ALIASES.get(loss, loss)
        if name in _TABLE:
            return NamedLoss(name)
        try:
            loss = get_measure(loss)
        except ValueError as error:
            if not str(error).startswith("unknown measure"):
                raise
            raise ValueError(
                f"unknown loss {loss!r}; known are {', '.join(LOSSES)} and the names of measures"
            ) from None
    if not isinstance(loss, Measure):
        raise TypeError(
            f"loss must be a name or a Measure object; got {loss!r} of type {type(loss).__name__}"
        )
    if not isinstance(loss, NestedMeasure | PseudoMeasure):
        raise ValueError(f"{loss!r} ({loss.formula}) is for evaluation only; it cannot be a loss")
    return MeasureLoss(loss)
