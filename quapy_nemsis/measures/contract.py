"""What a measure is: its interface for users and its interface for authors.

**Writing a measure.** A nested concave measure Ψ(ζ₁(P, N), ζ₂(P, N)) is a subclass of `NestedMeasure`. Its attribute
`functions` holds three functions that numba can compile. They take the rates P and N, the share of positives p, the
smoothing ε and an array with the parameters of the measure:

* ``values(P, N, p, eps, theta)`` returns (ζ₁, ζ₂);
* ``outer(x, y, p, eps, theta)`` returns Ψ(x, y);
* ``gradient(P, N, x, y, p, eps, theta)`` returns (∂ζ₁/∂P, ∂ζ₁/∂N, ∂ζ₂/∂P, ∂ζ₂/∂N, ∂Ψ/∂x, ∂Ψ/∂y). These are all the
  derivatives that lines 15-17 of the paper's algorithm need.

For any number of classes K, the attribute `class_functions` holds three functions of arrays with one entry for each
class: recalls R (mean rewards), counted prevalences q and shares p.

* ``values(R, q, p, eps, theta)`` returns (ζ₁, ζ₂);
* ``outer(x, y, p, eps, theta)`` returns Ψ(x, y);
* ``gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2)`` writes the gradients of ζ₁ and ζ₂ by R and by q
  into the last four arrays, and returns (∂Ψ/∂x, ∂Ψ/∂y). An array that it never writes to holds zeros.

Kernels for two classes use `functions`, if the measure has them: P and N determine the counts, so two rates replace
2K numbers. For two classes both forms must agree in Ψ(ζ₁, ζ₂), with R = (N, P), q = (1 − p̂, p̂) and p = (1 − p, p).

A pseudo-concave measure P_class/P_quant is a subclass of `PseudoMeasure` with the same functions for ζ₁ = P_class,
ζ₂ = P_quant and Ψ(x, y) = x − v·y, where ``theta`` is (v, *parameters). The attributes `affine`, `separates_count` and
`prevalence_only` allow shortcuts where they are True, and `prevalence_only` also lets BA break ties. All are False by
default, which is always correct, but slower. (`make_measure`, `NestedConcave` and `PseudoConcave` need less code, check
the given functions, and compute the gradients.)
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from quapy_nemsis.measures.compiled import ClassFunctions, Functions
from quapy_nemsis.measures.formulas import smoothing

Value = tuple[float, tuple[float, float]]


class Rates(NamedTuple):
    """Mean rewards of two classes, the share of positives, and the smoothing ε for the number of points."""

    P: float
    N: float
    p: float
    eps: float

    @classmethod
    def of(cls, reward_pos: float, positives: float, reward_neg: float, negatives: float) -> Rates:
        """Compute rates from sums of rewards and numbers of points; a class that does not occur has rate 0."""
        total = positives + negatives or 1.0
        return cls(
            float(reward_pos / (positives or 1.0)),
            float(reward_neg / (negatives or 1.0)),
            float(positives / total),
            float(smoothing(total)),
        )


class ClassRates(NamedTuple):
    """Recalls (mean rewards) R, counted prevalences q and shares p of K classes, and the smoothing ε.

    Examples
    --------
    >>> from quapy_nemsis import BA
    >>> BA().at(ClassRates.of([10, 10, 20], [5, 10, 15], [8, 17, 15]))
    0.75
    """

    R: np.ndarray
    q: np.ndarray
    p: np.ndarray
    eps: float

    @classmethod
    def of(cls, members: ArrayLike, rewards: ArrayLike, counted: ArrayLike) -> ClassRates:
        """Compute rates from points, sums of rewards and predicted points of each class.

        A class that does not occur has recall 0.
        """
        members, rewards, counted = (
            np.asarray(entries, dtype=float) for entries in (members, rewards, counted)
        )
        total = float(members.sum()) or 1.0
        recalls = rewards / np.where(members > 0.0, members, 1.0)
        return cls(recalls, counted / total, members / total, float(smoothing(total)))


def tally(
    y_true: ArrayLike, y_pred: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Labels that occur in y_true and, for each, its points, its correct predictions and its predicted points."""
    y_true, y_pred = np.asarray(y_true), np.asarray(y_pred)
    if y_true.ndim != 1 or y_true.shape != y_pred.shape:
        raise ValueError(
            "y_true and y_pred must be one-dimensional and of equal length; "
            f"got shapes {y_true.shape} and {y_pred.shape}"
        )
    classes, codes = np.unique(y_true, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y_true must hold at least two classes; got {classes.tolist()}")
    strange = np.setdiff1d(y_pred, classes)
    if len(strange):
        raise ValueError(
            f"y_pred holds labels that y_true does not have: {strange.tolist()}; "
            f"the classes are {classes.tolist()}"
        )
    predicted = np.searchsorted(classes, y_pred)
    sums = (codes, codes[codes == predicted], predicted)
    members, hits, counted = (np.bincount(which, minlength=len(classes)) for which in sums)
    return classes, members, hits, counted


def confusion(y_true: ArrayLike, y_pred: ArrayLike, pos_label: Any) -> tuple[int, int, int, int]:
    """True positives, positives, true negatives and negatives of crisp predictions of two classes."""
    classes, members, hits, _ = tally(y_true, y_pred)
    return two_class_counts(classes, members, hits, pos_label)


def two_class_counts(
    classes: np.ndarray, members: np.ndarray, hits: np.ndarray, pos_label: Any
) -> tuple[int, int, int, int]:
    """True positives, positives, true negatives and negatives from the `tally` of two classes."""
    if len(classes) > 2:
        some = f"{classes[:5].tolist()}{' and more' if len(classes) > 5 else ''}"
        raise ValueError(f"there must be two classes; y_true holds {len(classes)}, {some}")
    at = 1 if pos_label is None else int(np.argmax(classes == pos_label))
    if pos_label is not None and classes[at] != pos_label:
        raise ValueError(f"pos_label {pos_label!r} is not one of the classes {classes.tolist()}")
    return int(hits[at]), int(members[at]), int(hits[1 - at]), int(members[1 - at])


class Measure:
    """Base class of measures, which say how good a classifier is as a quantifier.

    Measures are immutable. Two measures of a class with the same parameters are equal. They can be pickled and hashed.
    """

    #: False for errors such as CQB, where lower is better.
    greater_is_better: ClassVar[bool] = True

    @property
    def key(self) -> str:
        """Short name without parameters."""
        raise TypeError(f"{type(self).__name__} must have a key")

    @property
    def formula(self) -> str:
        """Formula of the measure, shown in tables."""
        raise TypeError(f"{type(self).__name__} must have a formula")

    @property
    def prevalence_only(self) -> bool:
        """Whether the measure depends on the predicted prevalence alone."""
        return False

    @property
    def parameters(self) -> tuple[float, ...]:
        """Values of the parameters of the measure."""
        return tuple(float(getattr(self, field.name)) for field in fields(self))  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        """Short name with parameters. `get_measure` accepts the names of built-in measures.

        Examples
        --------
        >>> from quapy_nemsis import BAKLD, QMeasure
        >>> BAKLD(0.5).name, QMeasure(2).name
        ('bakld:0.5', 'q:2')
        """
        return ":".join([self.key, *(f"{value!r}".removesuffix(".0") for value in self.parameters)])

    def value(self, P: float, N: float, p: float, eps: float = 0.0) -> float:
        """Value of the measure, from the rates and the share of positives.

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

    def class_value(self, R: ArrayLike, q: ArrayLike, p: ArrayLike, eps: float = 0.0) -> float:
        """Value of the measure for any number of classes.

        Parameters
        ----------
        R : array-like of shape (n_classes,)
            Recall (mean reward) of each class.
        q : array-like of shape (n_classes,)
            Counted prevalences: the share of points that are predicted to be in each class.
        p : array-like of shape (n_classes,)
            True shares of the classes.
        eps : float, default=0
            Smoothing ε of the shares in KLD; `quapy.error` uses 1/(2·sample size).

        Examples
        --------
        >>> from quapy_nemsis import NSS
        >>> round(NSS().class_value(R=[0.8, 0.9, 1.0], q=[0.2, 0.3, 0.5], p=[0.3, 0.3, 0.4]), 6)
        0.99
        """
        R, q, p = (np.asarray(entries, dtype=float) for entries in (R, q, p))
        if not (R.ndim == 1 and len(R) >= 2 and R.shape == q.shape == p.shape):
            raise ValueError(
                "R, q and p must have one entry for each of two or more classes; "
                f"got shapes {R.shape}, {q.shape} and {p.shape}"
            )
        if not (p >= 0.0).all() or abs(p.sum() - 1.0) > 1e-6:
            raise ValueError(f"p must hold shares that sum to 1; got {p.tolist()}")
        if not eps >= 0.0:
            raise ValueError(f"eps must be at least 0; got {eps!r}")
        return float(self._class_value(R, q, p, float(eps)))

    def at(self, rates: Rates | ClassRates) -> float:
        """Value of the measure at the rates of two classes or of K classes."""
        return self.value(*rates) if isinstance(rates, Rates) else self.class_value(*rates)

    def score(
        self,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        pos_label: Any = None,
        eps: float | None = None,
    ) -> float:
        """Value of the measure for crisp predictions.

        Parameters
        ----------
        y_true, y_pred : array-like of shape (n_samples,)
            True and predicted labels, of any type; `y_true` must hold two or more classes.
        pos_label : label, optional
            The positive of two classes; by default the second in sorted order, as in `classes_[1]`.
        eps : float, optional
            Smoothing of the shares; by default 1/(2·n_samples).

        Examples
        --------
        >>> from quapy_nemsis import BA
        >>> BA().score(["a", "a", "b", "c"], ["a", "b", "b", "c"])
        0.8333333333333334
        """
        rates: Rates | ClassRates
        classes, members, hits, counted = tally(y_true, y_pred)
        if len(classes) > 2 and pos_label is None:
            rates = ClassRates.of(members, hits, counted)
        else:
            rates = Rates.of(*two_class_counts(classes, members, hits, pos_label))
        return self.at(rates if eps is None else rates._replace(eps=eps))

    def _value(self, P: float, N: float, p: float, eps: float) -> float:
        raise TypeError(f"{type(self).__name__} is abstract")

    def _class_value(self, R: np.ndarray, q: np.ndarray, p: np.ndarray, eps: float) -> float:
        if len(R) > 2:
            raise ValueError(
                f"{self.name} is a measure of two classes, a function of P and N; got {len(R)} classes: choose "
                "another, or write it as a function of (R, q, p, theta)"
            )
        return self._value(float(R[1]), float(R[0]), float(p[1]), eps)


class NestedMeasure(Measure):
    """A nested concave measure Ψ(ζ₁(P, N), ζ₂(P, N)). NEMSIS optimises this family."""

    @property
    def functions(self) -> Functions:
        """The functions that kernels call (see `quapy_nemsis.measures.contract`)."""
        raise TypeError(f"{type(self).__name__} must have functions (values, outer, gradient)")

    @property
    def class_functions(self) -> ClassFunctions | None:
        """The functions that kernels call for more than two classes, or None for a measure of two classes."""
        return None

    @property
    def affine(self) -> bool:
        """Whether Ψ is affine. Its gradient then does not depend on (x, y), so kernels need not keep x and y."""
        return False

    @property
    def separates_count(self) -> bool:
        """Whether ζ₁ grows with both rates, and ζ₂ depends only on the error of the predicted count."""
        return False

    @property
    def theta(self) -> np.ndarray:
        """Array of parameters that kernels pass to the functions."""
        return np.array(self.parameters or (0.0,), dtype=np.float64)

    def _value(self, P: float, N: float, p: float, eps: float) -> float:
        values, outer, _ = self.functions
        return outer(*values(P, N, p, eps, self.theta), p, eps, self.theta)

    def _class_value(self, R: np.ndarray, q: np.ndarray, p: np.ndarray, eps: float) -> float:
        form = self.class_functions
        if form is None:
            return super()._class_value(R, q, p, eps)
        return form.outer(*form.values(R, q, p, eps, self.theta), p, eps, self.theta)

    def gradients(
        self, R: np.ndarray, q: np.ndarray, p: np.ndarray, eps: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives (α, λ) of the measure by the recalls and by the counted prevalences of K classes.

        Examples
        --------
        >>> from quapy_nemsis import BA
        >>> R, q, p = np.ones(4), np.full(4, 0.25), np.full(4, 0.25)
        >>> BA().gradients(R, q, p)
        (array([0.25, 0.25, 0.25, 0.25]), array([0., 0., 0., 0.]))
        """
        form = self.class_form()
        parts = np.zeros((4, len(R)))
        x, y = form.values(R, q, p, eps, self.theta)
        g1, g2 = form.gradient(R, q, x, y, p, eps, self.theta, *parts)
        return g1 * parts[0] + g2 * parts[2], g1 * parts[1] + g2 * parts[3]

    def class_form(self) -> ClassFunctions:
        """The functions for K classes; a ValueError if the measure has none."""
        if self.class_functions is None:
            raise ValueError(
                f"{self.name} is a measure of two classes, a function of P and N: choose another, or write it as a "
                "function of (R, q, p, theta)"
            )
        return self.class_functions

    def _gradients(
        self, P: float, N: float, x: float, y: float, p: float, eps: float
    ) -> tuple[float, float, float, float, float, float]:
        a1, a2, b1, b2, g1, g2 = self.functions.gradient(P, N, x, y, p, eps, self.theta)
        return float(a1), float(a2), float(b1), float(b2), float(g1), float(g2)

    def psi(self, x: float, y: float, p: float, eps: float = 0.0) -> Value:
        """Value and gradient (∂x, ∂y) of Ψ.

        Examples
        --------
        >>> from quapy_nemsis import QMeasure
        >>> QMeasure(1).psi(0.5, 0.5, p=0.5)
        (0.5, (0.5, 0.5))
        """
        value = self.functions.outer(x, y, p, eps, self.theta)
        return float(value), self._gradients(0.5, 0.5, x, y, p, eps)[4:]

    def zeta1(self, P: float, N: float, p: float, eps: float = 0.0) -> Value:
        """Value and gradient (∂P, ∂N) of ζ₁.

        Examples
        --------
        >>> from quapy_nemsis import BA
        >>> BA().zeta1(0.75, 0.25, p=0.5)
        (0.5, (0.5, 0.5))
        """
        value = self.functions.values(P, N, p, eps, self.theta)[0]
        return float(value), self._gradients(P, N, 0.5, 0.5, p, eps)[:2]

    def zeta2(self, P: float, N: float, p: float, eps: float = 0.0) -> Value:
        """Value and gradient (∂P, ∂N) of ζ₂.

        Examples
        --------
        >>> from quapy_nemsis import QMeasure
        >>> QMeasure(1).zeta2(0.75, 0.75, p=0.5)
        (1.0, (0.0, -0.0))
        """
        value = self.functions.values(P, N, p, eps, self.theta)[1]
        return float(value), self._gradients(P, N, 0.5, 0.5, p, eps)[2:4]

    def class_gradients(
        self, P: float, N: float, p: float, eps: float = 0.0
    ) -> tuple[float, float]:
        """Class gradients: the derivatives (a⁺, a⁻) of the measure by P and N.

        Examples
        --------
        >>> from quapy_nemsis import BA
        >>> BA().class_gradients(0.5, 0.5, p=0.5)
        (0.5, 0.5)
        """
        x, y = self.functions.values(P, N, p, eps, self.theta)
        a1, a2, b1, b2, g1, g2 = self._gradients(P, N, x, y, p, eps)
        return g1 * a1 + g2 * b1, g1 * a2 + g2 * b2


class PseudoMeasure(Measure):
    """A pseudo-concave measure P_class/P_quant. SCAN and CAN optimise this family (Table 2 of the paper).

    P_class is concave and P_quant is convex and positive, so the valuation P_class − v·P_quant is concave for every
    level v ≥ 0. The measure is at least v exactly where the valuation is at least 0.
    """

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Range [m, M] of P_quant for 0-1 rewards, if known. CAN's gap shrinks at least as fast as (1 − m/M)ᵗ."""
        return None

    @property
    def functions(self) -> Functions:
        """Functions for kernels: ζ₁ = P_class, ζ₂ = P_quant and Ψ(x, y) = x − v·y, with theta = (v, *parameters)."""
        raise TypeError(f"{type(self).__name__} must have functions (values, outer, gradient)")

    @property
    def class_functions(self) -> ClassFunctions | None:
        """The same functions for more than two classes, or None for a measure of two classes."""
        return None

    @property
    def separates_count(self) -> bool:
        """Whether P_class grows with both rates, and P_quant depends only on the error of the predicted count."""
        return False

    def is_pseudo_linear(self) -> bool:
        """Whether P_class and P_quant are affine in the rates, as those of the F-measures are.

        It is found out from their gradients at some rates and shares.

        Examples
        --------
        >>> from quapy_nemsis import CQReward, FMeasure
        >>> FMeasure(2).is_pseudo_linear(), CQReward().is_pseudo_linear()
        (True, False)
        """
        rng = np.random.default_rng(0)
        for p in (0.1, 0.5, 0.8):
            rates = rng.uniform(0.05, 0.95, size=(6, 2))
            found = [
                (*self.p_class(P, N, p)[1], *self.p_quant(P, N, p)[1]) for P, N in rates.tolist()
            ]
            if not np.allclose(found, found[0], rtol=1e-6, atol=1e-8):
                return False
        return True

    def _value(self, P: float, N: float, p: float, eps: float) -> float:
        p_class, p_quant = self.functions.values(P, N, p, eps, self.valuation(0.0).theta)
        return p_class / p_quant

    def _class_value(self, R: np.ndarray, q: np.ndarray, p: np.ndarray, eps: float) -> float:
        form = self.class_functions
        if form is None:
            return super()._class_value(R, q, p, eps)
        p_class, p_quant = form.values(R, q, p, eps, self.valuation(0.0).theta)
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


@dataclass(frozen=True)
class Valuation(NestedMeasure):
    """V(·, v) = P_class − v·P_quant of a pseudo-concave measure at a level v."""

    measure: PseudoMeasure
    level: float

    key = "valuation"
    formula = "P_class − v·P_quant"
    affine = True

    @property
    def parameters(self) -> tuple[float, ...]:
        """The level, followed by the parameters of the pseudo-concave measure."""
        return (float(self.level), *self.measure.parameters)

    @property
    def separates_count(self) -> bool:
        """Whether the pseudo-concave measure separates the count from the rates."""
        return self.measure.separates_count

    @property
    def functions(self) -> Functions:
        """The functions of the pseudo-concave measure."""
        return self.measure.functions

    @property
    def class_functions(self) -> ClassFunctions | None:
        """The functions of the pseudo-concave measure for K classes."""
        return self.measure.class_functions

    @property
    def name(self) -> str:
        """Name of the pseudo-concave measure, and the level."""
        return f"{self.measure.name} at level {self.level:.4g}"


def is_number(value: Any) -> bool:
    """Whether a value can be a parameter of a measure."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
