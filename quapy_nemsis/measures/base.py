"""What a measure is: values, gradients, names. The families that the learners know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

Value = tuple[float, tuple[float, float]]


def rates(y_true: ArrayLike, y_pred: ArrayLike, pos_label: Any) -> tuple[float, float, float, int]:
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
    #: Whether it depends on the predicted prevalence alone.
    counting: ClassVar[bool] = False

    @property
    def parameters(self) -> tuple[float, ...]:
        """Values of the measure's own parameters."""
        return tuple(float(getattr(self, field.name)) for field in fields(self))

    @property
    def name(self) -> str:
        """Short name; that of a built-in measure is accepted by `get_measure`.

        Examples
        --------
        >>> from quapy_nemsis import BAKLD, QMeasure
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
        P, N, p, size = rates(y_true, y_pred, pos_label)
        return self.value(P, N, p, 0.5 / size if eps is None else eps)

    def _value(self, P: float, N: float, p: float, eps: float) -> float:
        raise TypeError(f"{type(self).__name__} is abstract")


class NestedMeasure(Measure):
    """A nested concave measure Ψ(ζ₁(P, N), ζ₂(P, N)), the family NEMSIS optimises."""

    #: Whether Ψ is affine: then its gradient does not depend on q, and kernels need not keep q.
    affine: bool = True
    #: Whether compiled code may be kept on disk; not for functions whose source may change unnoticed.
    cacheable: ClassVar[bool] = True
    #: Whether ζ₁ grows with both rates and ζ₂ depends on the count alone, and on how far it is off.
    count_apart: ClassVar[bool] = True

    # Set by the subclasses; see the comment in `quapy_nemsis.measures.nested`.
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
        >>> from quapy_nemsis import QMeasure
        >>> QMeasure(1).psi(0.5, 0.5, p=0.5)
        (0.5, (0.5, 0.5))
        """
        value = self._outer(x, y, p, eps, self.theta)
        return float(value), self._gradients(0.5, 0.5, x, y, p, eps)[4:]

    def zeta1(self, P: float, N: float, p: float, eps: float = 0.0) -> Value:
        """Value and gradient (∂P, ∂N) of ζ₁.

        Examples
        --------
        >>> from quapy_nemsis import BA
        >>> BA().zeta1(0.75, 0.25, p=0.5)
        (0.5, (0.5, 0.5))
        """
        value = self._values(P, N, p, eps, self.theta)[0]
        return float(value), self._gradients(P, N, 0.5, 0.5, p, eps)[:2]

    def zeta2(self, P: float, N: float, p: float, eps: float = 0.0) -> Value:
        """Value and gradient (∂P, ∂N) of ζ₂.

        Examples
        --------
        >>> from quapy_nemsis import QMeasure
        >>> QMeasure(1).zeta2(0.75, 0.75, p=0.5)
        (1.0, (0.0, -0.0))
        """
        value = self._values(P, N, p, eps, self.theta)[1]
        return float(value), self._gradients(P, N, 0.5, 0.5, p, eps)[2:4]

    def weights(self, P: float, N: float, p: float, eps: float = 0.0) -> tuple[float, float]:
        """Derivatives (a⁺, a⁻) of the measure by P and N.

        Examples
        --------
        >>> from quapy_nemsis import BA
        >>> BA().weights(0.5, 0.5, p=0.5)
        (0.5, 0.5)
        """
        x, y = self._values(P, N, p, eps, self.theta)
        a1, a2, b1, b2, g1, g2 = self._gradients(P, N, x, y, p, eps)
        return g1 * a1 + g2 * b1, g1 * a2 + g2 * b2


class PseudoMeasure(Measure):
    """A pseudo-concave measure P_class/P_quant, the family SCAN and CAN optimise (Table 2 of the paper).

    P_class is concave and P_quant convex and positive, so the valuation P_class − v·P_quant is concave for every level
    v ≥ 0, and the measure is at least v where it is at least 0.
    """

    #: Range [m, M] of P_quant, where known: CAN's gap shrinks at least as fast as (1 − m/M)ᵗ.
    bounds: tuple[float, float] | None = None
    cacheable: ClassVar[bool] = True
    #: Whether P_class grows with both rates and P_quant depends on the count alone, and on how far it is off.
    count_apart: ClassVar[bool] = True

    # As for a nested measure with ζ₁ = P_class, ζ₂ = P_quant and Ψ(x, y) = x − v·y; theta is (v, *parameters).
    _values: ClassVar[Callable]
    _gradient: ClassVar[Callable]

    def _value(self, P: float, N: float, p: float, eps: float) -> float:
        p_class, p_quant = self.valuation(0.0)._values(P, N, p, eps, self.valuation(0.0).theta)
        return p_class / p_quant

    def p_class(self, P: float, N: float, p: float, eps: float = 0.0) -> Value:
        """Value and gradient (∂P, ∂N) of P_class."""
        return self.valuation(0.0).zeta1(P, N, p, eps)

    def p_quant(self, P: float, N: float, p: float, eps: float = 0.0) -> Value:
        """Value and gradient (∂P, ∂N) of P_quant."""
        return self.valuation(0.0).zeta2(P, N, p, eps)

    def valuation(self, level: float) -> Valuation:
        """The valuation V(·, v) = P_class − v·P_quant, a nested concave measure (Definition 2 of the paper).

        Examples
        --------
        >>> from quapy_nemsis import CQReward
        >>> CQReward().valuation(0.5).value(P=1.0, N=1.0, p=0.3)
        0.5
        """
        return Valuation(self, level)


def _valuation_outer(x, y, p, eps, theta):
    return x - theta[0] * y


@dataclass(frozen=True)
class Valuation(NestedMeasure):
    """V(·, v) = P_class − v·P_quant of a pseudo-concave measure at a level v."""

    measure: PseudoMeasure
    level: float

    key = "valuation"
    formula = "P_class − v·P_quant"
    _outer = staticmethod(_valuation_outer)

    @property
    def parameters(self) -> tuple[float, ...]:
        """The level and the measure's own parameters."""
        return (float(self.level), *self.measure.parameters)

    @property
    def cacheable(self) -> bool:
        """As for the measure."""
        return self.measure.cacheable

    @property
    def count_apart(self) -> bool:
        """As for the measure."""
        return self.measure.count_apart

    @property
    def _values(self) -> Callable:
        return self.measure._values

    @property
    def _gradient(self) -> Callable:
        return self.measure._gradient


def is_number(value: Any) -> bool:
    """Whether a value can be a measure's parameter."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
