"""CAN: the exact batch optimum of a measure, for scikit-learn. What the online learners are measured against."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from quapy_nemsis._linear import (
    LinearClassifier,
    check_bool,
    check_integer,
    check_positive,
    distinct,
)
from quapy_nemsis.measures import Measure, NestedMeasure, PseudoMeasure, get_measure


class CANParameters:
    """Parameters of CAN, written once for the classifier and the QuaPy quantifier (see `CANClassifier`)."""

    def __init__(
        self,
        measure: str | Measure = "cq",
        *,
        radius: float = math.inf,
        tol: float = 1e-6,
        max_levels: int = 50,
        max_iter: int = 1000,
        fit_intercept: bool = True,
        verbose: int = 0,
    ):
        self.measure = measure
        self.radius = radius
        self.tol = tol
        self.max_levels = max_levels
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.verbose = verbose


class CANClassifier(CANParameters, LinearClassifier):
    """Linear classifier trained by CAN (Algorithm 2 of Kar et al., KDD 2016): batch, exact.

    With the logistic reward, P(w) and N(w) are smooth. For a pseudo-concave measure CAN alternates between
    w ← argmax V(w, v) over ‖w‖ ≤ R and v ← P_class(w)/P_quant(w), until v gains less than `tol`; the gap to the best
    level shrinks at least as fast as (1 − m/M)ᵗ (Theorem 2). (The paper's step 5 prints V ≥ v; V ≥ 0 is meant.) For a
    nested concave measure the measure itself is maximised, once. The maximisation is scipy's L-BFGS; a radius that
    binds is met by a root search for the multiplier of ‖w‖².

    A measure that grows with P and with N is concave in w, and its maximum global: BA and the means of the rates, and
    CQReward's valuations where P and N are at least 0. Measures with KLD (BKReward too, against what the paper says) or
    NSS alone do not grow everywhere; what is found is then a local maximum, reached from zero weights.

    Parameters
    ----------
    measure : str or Measure, default="cq"
        Pseudo-concave ("cq", "bk", …) or nested concave ("kld", "bakld:0.3", "q", …).
    radius : float, default=inf
        R, the radius of the ball for the weights (not the intercept).
    tol : float, default=1e-6
        The least gain of the level to go on for, and the tolerance of the maximisation (largest entry of the gradient).
    max_levels : int, default=50
        Most levels.
    max_iter : int, default=1000
        Most iterations of L-BFGS for one level.
    fit_intercept : bool, default=True
        Whether to learn an intercept.
    verbose : int, default=0
        Print a line per level.

    Attributes
    ----------
    levels_ : ndarray of shape (n_iter_,)
        The level, or the measure's value, after each maximisation, at the mean logistic rewards.
    n_iter_ : int
        Number of maximisations.
    classes_, coef_, intercept_, n_features_in_
        As for `NEMSISClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> learner = CANClassifier("cq", radius=5.0).fit(scale(X), y)
    >>> bool(learner.score(scale(X), y) > 0.97)
    True
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> CANClassifier:
        """Maximise the measure over all rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; converted to float64 if they are not.
        y : array-like of shape (n_samples,)
            Labels, two classes of any type.

        Returns
        -------
        CANClassifier
            The fitted learner itself.
        """
        measure = self._checked_measure()
        X, y = self._check_data(X, y, reset=True, dtype=np.float64)
        classes = self._two_classes(distinct(y))
        problem = _Problem(X, y == classes[1], self)
        model = np.zeros(X.shape[1] + 1)
        levels: list[float] = []
        if isinstance(measure, NestedMeasure):
            model = problem.maximise(measure, model)
            levels.append(problem.value(measure, model))
        else:
            level = max(problem.value(measure, model), 0.0)
            while True:
                model = problem.maximise(measure.valuation(level), model)
                before, level = level, max(problem.value(measure, model), 0.0)
                levels.append(level)
                if self.verbose:
                    print(f"{type(self).__name__}: level {len(levels)}, {measure.name} {level:.8f}")
                if level - before <= self.tol:
                    break
                if len(levels) == self.max_levels:
                    warnings.warn(
                        f"the level still gains {level - before:.2g} after max_levels={self.max_levels}",
                        ConvergenceWarning,
                        stacklevel=2,
                    )
                    break
        self.classes_ = classes
        self.coef_, self.intercept_ = model[np.newaxis, :-1].copy(), model[-1:].copy()
        self.levels_, self.n_iter_ = np.array(levels), len(levels)
        return self

    def _checked_measure(self) -> NestedMeasure | PseudoMeasure:
        measure = get_measure(self.measure)
        if not isinstance(measure, (NestedMeasure, PseudoMeasure)):
            raise ValueError(f"{measure!r} ({measure.formula}) is for evaluation only")
        check_positive("radius", self.radius)
        check_positive("tol", self.tol, finite=True)
        check_integer("max_levels", self.max_levels)
        check_integer("max_iter", self.max_iter)
        check_bool("fit_intercept", self.fit_intercept)
        return measure


class _Problem:
    """The mean logistic rewards of a data set, and their maximisation under a measure. A model is (w, b) in one."""

    def __init__(self, X: Any, positive: np.ndarray, options: CANParameters):
        self.X = X
        self.positive = positive
        self.sign = np.where(positive, 1.0, -1.0)
        self.counts = np.array([positive.sum(), (~positive).sum()], dtype=float)
        self.p = float(positive.mean())
        self.eps = 0.5 / len(positive)
        self.options = options

    def rewards(self, model: np.ndarray) -> tuple[float, float, np.ndarray]:
        """(P, N) and the margins."""
        margins = self.sign * (self.X @ model[:-1] + model[-1])
        rewards = 1.0 - np.logaddexp(0.0, -margins)
        P = float(rewards[self.positive].sum() / self.counts[0])
        return P, float(rewards[~self.positive].sum() / self.counts[1]), margins

    def value(self, measure: Measure, model: np.ndarray) -> float:
        """Measure at the model's mean rewards."""
        P, N, _ = self.rewards(model)
        return measure.value(P, N, self.p, self.eps)

    def loss(
        self, model: np.ndarray, measure: NestedMeasure, multiplier: float
    ) -> tuple[float, np.ndarray]:
        """−measure + multiplier·‖w‖²/2, and its gradient."""
        P, N, margins = self.rewards(model)
        a_pos, a_neg = measure.weights(P, N, self.p, self.eps)
        weight = np.where(self.positive, a_pos / self.counts[0], a_neg / self.counts[1])
        slopes = weight * self.sign * expit(-margins)
        gradient = np.empty_like(model)
        gradient[:-1] = multiplier * model[:-1] - self.X.T @ slopes
        gradient[-1] = -slopes.sum() if self.options.fit_intercept else 0.0
        value = measure.value(P, N, self.p, self.eps)
        return 0.5 * multiplier * model[:-1] @ model[:-1] - value, gradient

    def maximise(self, measure: NestedMeasure, start: np.ndarray) -> np.ndarray:
        """Model of greatest value in the ball, from a starting point."""
        radius = self.options.radius
        model = self._lbfgs(measure, start, 0.0)
        if np.linalg.norm(model[:-1]) <= radius:
            return model
        # The norm falls with the multiplier: double it until the ball is reached, then find where it is met.
        found = {0.0: model}

        def excess(multiplier: float) -> float:
            if multiplier not in found:
                nearest = min(found, key=lambda other: abs(other - multiplier))
                found[multiplier] = self._lbfgs(measure, found[nearest], multiplier)
            return float(np.linalg.norm(found[multiplier][:-1])) - radius

        high = 1e-6
        while excess(high) > 0.0:
            high *= 4.0
        low = max(other for other in found if excess(other) > 0.0)
        best = found[brentq(excess, low, high, xtol=1e-12, rtol=1e-10)].copy()
        best[:-1] *= min(1.0, radius / np.linalg.norm(best[:-1]))
        return best

    def _lbfgs(self, measure: NestedMeasure, start: np.ndarray, multiplier: float) -> np.ndarray:
        result = minimize(
            self.loss,
            start,
            args=(measure, multiplier),
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": self.options.max_iter,
                "maxfun": 10 * self.options.max_iter,
                "gtol": self.options.tol,
                "ftol": 1e-14,
                "maxcor": 20,
            },
        )
        if not np.isfinite(result.x).all():
            raise ValueError(
                "the weights became infinite or NaN: scale the features "
                "(sklearn.preprocessing.StandardScaler) or give a radius"
            )
        if result.status == 1:
            warnings.warn(
                f"L-BFGS stopped after max_iter={self.options.max_iter} iterations with a gradient of "
                f"{np.abs(result.jac).max():.2g}; scale the features, raise max_iter or give a radius",
                ConvergenceWarning,
                stacklevel=4,
            )
        return result.x
