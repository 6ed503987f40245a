"""The losses that structural learners minimise: QuaPy's names for them, and the measures of this package.

A loss is a measure whose smaller values are better, 0 for perfect rates. Notation as in `quapy_nemsis.measures`. It is
compiled from a function ``f(P, N, d, p, eps, theta)`` that is given the quantification error d = p(1−P) − n(1−N) apart
from the rates, so that a search can bound it: where `bounded`, it falls as P or N rise with d fixed, and grows as d
moves away from 0 with the rates fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numba.extending import register_jitable

from quapy_nemsis.measures import Measure, NestedMeasure, PseudoMeasure, get_measure
from quapy_nemsis.measures.blocks import error, relative_log, smooth

_ALIASES = {"mae": "ae", "mrae": "rae"}


@register_jitable
def _accuracy(P, N, p):
    return p * P + (1.0 - p) * N


@register_jitable
def _f1(P, N, p):
    errors = p * (1.0 - P) + (1.0 - p) * (1.0 - N)
    return 2.0 * p * P / (2.0 * p * P + errors) if P > 0.0 else 0.0


@register_jitable
def _kld(d, p, eps):
    first = relative_log(smooth(p, eps), smooth(p - d, eps))
    return -first - relative_log(smooth(1.0 - p, eps), smooth(1.0 - p + d, eps))


@register_jitable
def _with_count(quality, d, p):
    """1 − the harmonic mean of a classification measure and of NAS = 1 − |d|/max(p, n) (Barranquero et al. 2015)."""
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


def _q_loss(P, N, d, p, eps, theta):
    return _with_count(P, d, p)


def _qacc_loss(P, N, d, p, eps, theta):
    return _with_count(_accuracy(P, N, p), d, p)


def _qf1_loss(P, N, d, p, eps, theta):
    return _with_count(_f1(P, N, p), d, p)


def _qgm_loss(P, N, d, p, eps, theta):
    return _with_count(math.sqrt(P * N), d, p)


# Name, what it is, function.
_TABLE: dict[str, tuple[str, Callable]] = {
    "01": ("share of errors", _zero_one_loss),
    "f1": ("1 − F₁", _f1_loss),
    "ba": ("1 − BA", _ba_loss),
    "kld": ("KLD(p, p̂)", _kld_loss),
    "nkld": ("2·exp(KLD)/(1 + exp(KLD)) − 1", _nkld_loss),
    "ae": ("|p̂ − p|", _ae_loss),
    "rae": ("mean of |p̂ − p|/p and |p̂ − p|/n, smoothed", _rae_loss),
    "q": ("1 − harmonic mean of P and NAS = 1 − |d|/max(p, n)", _q_loss),
    "qacc": ("1 − harmonic mean of accuracy and NAS", _qacc_loss),
    "qf1": ("1 − harmonic mean of F₁ and NAS", _qf1_loss),
    "qgm": ("1 − harmonic mean of √(P·N) and NAS", _qgm_loss),
}
_COUNTING = ("kld", "nkld", "ae", "rae")

#: Names of the losses; those of measures are accepted too.
LOSSES: tuple[str, ...] = tuple(_TABLE)


class Loss(Measure):
    """A loss Δ(P, N): 0 for perfect rates. Made by `get_loss`."""

    greater_is_better = False
    #: Whether its function can be bounded from parts, as the head of this module says.
    bounded: bool = True
    #: Whether compiled code may be kept on disk.
    cacheable: bool = True

    @property
    def function(self) -> Callable:
        """``f(P, N, d, p, eps, theta)``."""
        raise TypeError(f"{type(self).__name__} is abstract")

    @property
    def theta(self) -> np.ndarray:
        """Parameters of the function."""
        return np.zeros(1)

    def _value(self, P: float, N: float, p: float, eps: float) -> float:
        return self.function(P, N, error(P, N, p), p, eps, self.theta)


@dataclass(frozen=True)
class _NamedLoss(Loss):
    key: str

    @property
    def name(self) -> str:
        """The name in `LOSSES`."""
        return self.key

    @property
    def formula(self) -> str:
        """What it is."""
        return _TABLE[self.key][0]

    @property
    def counting(self) -> bool:
        """Whether it depends on the predicted prevalence alone."""
        return self.key in _COUNTING

    @property
    def function(self) -> Callable:
        """``f(P, N, d, p, eps, theta)``."""
        return _TABLE[self.key][1]


@dataclass(frozen=True)
class _MeasureLoss(Loss):
    measure: NestedMeasure | PseudoMeasure

    @property
    def name(self) -> str:
        """The name of the measure."""
        return self.measure.name

    @property
    def formula(self) -> str:
        """What it is."""
        return f"value of [{self.measure.formula}] for perfect rates, less its value"

    @property
    def counting(self) -> bool:
        """As for the measure."""
        return self.measure.counting

    @property
    def bounded(self) -> bool:
        """Whether the measure keeps rates and count apart."""
        return self.measure.count_apart

    @property
    def cacheable(self) -> bool:
        """As for the measure."""
        return self.measure.cacheable

    @property
    def _nested(self) -> NestedMeasure:
        # P_class and P_quant of a pseudo-concave measure are the inner functions of its valuations.
        is_ratio = isinstance(self.measure, PseudoMeasure)
        return self.measure.valuation(0.0) if is_ratio else self.measure

    @property
    def theta(self) -> np.ndarray:
        """Parameters of the measure."""
        return self._nested.theta

    @property
    def function(self) -> Callable:
        """``f(P, N, d, p, eps, theta)``."""
        outer = None if isinstance(self.measure, PseudoMeasure) else self.measure._outer
        return _measure_loss(self._nested._values, outer, self.measure.count_apart)


@register_jitable
def _ratio(x, y, p, eps, theta):
    return x / y


@lru_cache(maxsize=256)
def _measure_loss(values: Callable, outer: Callable | None, count_apart: bool) -> Callable:
    """Loss of a measure Ψ(ζ₁, ζ₂), or of a ratio ζ₁/ζ₂ if Ψ is None."""
    values = register_jitable(values)
    outer = register_jitable(outer) if outer is not None else _ratio

    if not count_apart:

        def loss(P, N, d, p, eps, theta):
            best1, best2 = values(1.0, 1.0, p, eps, theta)
            x, y = values(P, N, p, eps, theta)
            return outer(best1, best2, p, eps, theta) - outer(x, y, p, eps, theta)

    else:

        def loss(P, N, d, p, eps, theta):
            best1, best2 = values(1.0, 1.0, p, eps, theta)
            x = values(P, N, p, eps, theta)[0]
            # Rates that are off by d alone.
            y = values(1.0 - max(d, 0.0) / p, 1.0 + min(d, 0.0) / (1.0 - p), p, eps, theta)[1]
            return outer(best1, best2, p, eps, theta) - outer(x, y, p, eps, theta)

    return loss


def get_loss(loss: str | Measure) -> Loss:
    """Loss of a name, or of a measure: its value for perfect rates, less its value.

    Parameters
    ----------
    loss : str or Measure
        One of 01, f1, ba, kld, nkld, ae (or mae), rae (or mrae), q, qacc, qf1, qgm, as QuaPy names them; the name of a
        measure ("bakld:0.3", "cq", …); or a measure object. "q" is QuaPy's loss, of Barranquero et al. (2015); the
        paper's Q-measure is `QMeasure()`.

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
            return _NamedLoss(name)
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
        raise ValueError(f"{loss!r} ({loss.formula}) is for evaluation only")
    return _MeasureLoss(loss)
