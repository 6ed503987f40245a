"""CAN (Algorithm 2 of the paper): the exact batch optimum of a measure, the reference for online learners."""

from __future__ import annotations

import math
import warnings
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from quapy_nemsis._validation import (
    MatrixLike,
    check_bool,
    check_integer,
    check_positive,
    check_verbose,
    checked_data,
    checked_weights,
    encode,
    unchanged_on_error,
    warn_of_scale,
    without_zeros,
)
from quapy_nemsis.learners.base import PosteriorClassifier
from quapy_nemsis.learners.calibration import check_posteriors
from quapy_nemsis.learners.scores import linear_scores
from quapy_nemsis.learners.state import UNWEIGHTED, Arrays, Data
from quapy_nemsis.measures import (
    ClassRates,
    Measure,
    NestedMeasure,
    PseudoMeasure,
    Rates,
    get_measure,
)

if TYPE_CHECKING:
    from typing_extensions import Self

# Limit on the evaluations of the measure over all levels: the larger of a fixed number and a multiple of max_iter.
# Scaled features need fewer.
_EVALUATIONS, _EVALUATIONS_PER_ITER = 4000, 4
# Up to this many entries of the data, matrix products take less time than it takes to wake the threads of BLAS.
_ONE_THREAD = 100_000


@dataclass(eq=False, repr=False)
class CANParameters:
    """Parameters of CAN, shared by the classifier and the QuaPy quantifier (see `CANClassifier`)."""

    measure: str | Measure = "cq"
    _: KW_ONLY
    radius: float = math.inf
    tol: float = 1e-6
    max_levels: int = 50
    max_iter: int = 1000
    fit_intercept: bool = True
    verbose: int = 0
    class_weight: Any = None
    posteriors: str | None = None


class CANClassifier(CANParameters, PosteriorClassifier):
    """Linear classifier trained by CAN (Algorithm 2 of Kar et al., KDD 2016), an exact batch method.

    With the logistic reward, P(w) and N(w) are smooth. For K classes the reward of a row of class i is 1 + c·ln
    softmax(f)_i with c = ln 2/ln K, which for K = 2 is the logistic reward. The difference from 1 counts for the other
    classes, in proportion to their softmax. For a pseudo-concave measure, CAN alternates between w ← argmax V(w, v)
    over ‖w‖ ≤ R and v ← P_class(w)/P_quant(w), until v gains less than `tol`. The gap to the best level shrinks at
    least as fast as (1 − m/M)ᵗ (Theorem 2). (The paper's step 5 prints V ≥ v, but V ≥ 0 is meant.) A nested concave
    measure is maximised directly, once. The maximisation uses scipy's L-BFGS, followed by spectral projected gradients
    if the radius binds.

    A measure that increases with P and with N is concave in w, so the maximum found is global. Examples are BA, the
    means of the rates, and, for two classes, CQReward's valuations where P and N are at least 0. Measures with KLD
    (including BKReward, contrary to the paper) or NSS do not increase everywhere; for these, CAN finds a local maximum
    from zero weights. CAN for KLD or NSS alone is not a usable quantifier: logistic rewards that give p̂ = p do not
    imply a correct 0-1 count, and often all points are predicted to be in one class.

    Parameters
    ----------
    measure : str or Measure, default="cq"
        Pseudo-concave ("cq", "bk", …) or nested concave ("kld", "bakld:0.3", "q", …).
    radius : float, default=inf
        R, the radius of the ball for the weights (not the intercept).
    tol : float, default=1e-6
        CAN stops when the level gains no more than this. It is also the tolerance of the maximisation (for the largest
        entry of the gradient).
    max_levels : int, default=50
        Maximum number of levels.
    max_iter : int, default=1000
        Maximum number of iterations of L-BFGS for one level.
    fit_intercept : bool, default=True
        Whether to learn an intercept.
    verbose : int, default=0
        If not 0, print a line per level.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn. They multiply the weights of the rows.
    posteriors : {"training", "balanced"} or None, default=None
        If given, `fit` trains up to five more learners, each on four fifths of the rows, and calibrates posteriors on
        their scores for the other rows, as in `NEMSISClassifier`. `predict_proba` then returns posteriors at the
        training prevalences or at equal prevalences. With None, there is no `predict_proba`, and `fit` needs no extra
        time.

    Attributes
    ----------
    levels_ : ndarray of shape (n_iter_,)
        The level (for a nested concave measure, its value) at the mean logistic rewards, after each maximisation.
    n_iter_ : int
        Number of maximisations.
    classes_, coef_, intercept_, n_features_in_
        See `NEMSISClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> learner = CANClassifier("cq", radius=5.0).fit(scale(X), y)
    >>> bool(learner.score(scale(X), y) > 0.97)
    True
    """

    multiclass = True

    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Maximise the measure over all rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; other types than float64 are converted to it.
        y : array-like of shape (n_samples,)
            Labels of any type, of two or more classes.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows; a row of weight 3 counts as three rows.

        Returns
        -------
        self
            The fitted learner.
        """
        with unchanged_on_error(self):
            return self._fit(self._checked_measure(), X, y, sample_weight)

    def _fit(
        self, measure: NestedMeasure | PseudoMeasure, X: Any, y: Any, sample_weight: Any
    ) -> Self:
        X, y = checked_data(self, X, y, reset=True, dtype=np.float64)
        classes = self.checked_classes(y)
        weights = checked_weights(sample_weight, self.class_weight, X, y, classes)
        X, y, weights = without_zeros(X, y, weights)
        if weights is not None:
            classes = self.checked_classes(y)
        warn_of_scale(X, stacklevel=4)
        kind = _Problem if len(classes) == 2 else _ClassProblem
        labels = encode(y, classes)
        problem = kind(X, labels, len(classes), weights, self)
        model = np.zeros(problem.n_models * (X.shape[1] + 1))
        levels: list[float] = []
        if isinstance(measure, NestedMeasure):
            model = problem.maximise(measure, model)
            levels.append(problem.value(measure, model))
        else:
            level, gain = max(problem.value(measure, model), 0.0), math.inf
            while gain > self.tol and len(levels) < self.max_levels and problem.left > 0:
                trial = problem.maximise(measure.valuation(level), model)
                gain = problem.value(measure, trial) - level
                if gain > 0.0:
                    model, level = trial, level + gain
                levels.append(level)
                if self.verbose:
                    print(f"{type(self).__name__}: level {len(levels)}, {measure.name} {level:.8f}")
            if gain > self.tol:
                bound = f"max_levels={self.max_levels}"
                if len(levels) < self.max_levels:
                    bound = f"{len(levels)} levels and {problem.allowed} evaluations, the most that max_iter allows"
                self._warn(
                    f"the level still gains {gain:.2g} after {bound}: raise max_levels, max_iter or tol"
                )
        if problem.unfinished:
            self._warn(
                f"the maximisation stopped early (max_iter={self.max_iter}, at most {problem.allowed} evaluations) "
                f"with a gradient of {problem.unfinished:.2g}; the features are up to {abs(X).max():.3g} in size: "
                "scale them (sklearn.preprocessing.StandardScaler or, if sparse, MaxAbsScaler), raise max_iter or give "
                "a radius"
            )
        self.classes_ = classes
        self.coef_, self.intercept_ = problem.split(model)
        self.levels_, self.n_iter_ = np.array(levels), len(levels)
        counts = UNWEIGHTED if weights is None else weights
        self._calibrate_batch(Data(X, labels, len(classes), counts), class_weight=None)
        return self

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, as named arrays."""
        own = {"levels": self.levels_, "n_iter": np.array(self.n_iter_, dtype=np.int64)}
        return {**super().to_arrays(), **own}

    def from_arrays(self, arrays: Arrays) -> None:
        """Inverse of `to_arrays`; arrays of the wrong type or shape raise a ValueError."""
        super().from_arrays(arrays)
        self.levels_, self.n_iter_ = arrays.take("levels", None), arrays.count("n_iter")
        if not (len(self.levels_) == self.n_iter_ and np.isfinite(self.levels_).all()):
            raise ValueError("its levels are not finite, or their number differs from n_iter")
        self._checked_measure()

    def _warn(self, message: str) -> None:
        warnings.warn(message, ConvergenceWarning, stacklevel=4)

    def _checked_measure(self) -> NestedMeasure | PseudoMeasure:
        measure = get_measure(self.measure)
        if not isinstance(measure, (NestedMeasure, PseudoMeasure)):
            raise ValueError(
                f"{measure!r} ({measure.formula}) is for evaluation only; choose another"
            )
        check_positive("radius", self.radius)
        check_positive("tol", self.tol, finite=True)
        check_integer("max_levels", self.max_levels)
        check_integer("max_iter", self.max_iter)
        check_bool("fit_intercept", self.fit_intercept)
        check_verbose(self.verbose)
        check_posteriors(self.posteriors)
        return measure


class _Problem:
    """Maximises a measure of the mean logistic rewards on a data set of two classes.

    A model is one vector: the weights, then the intercept. With more classes, it has one such vector for each.
    """

    def __init__(
        self,
        X: Any,
        labels: np.ndarray,
        n_classes: int,
        weights: np.ndarray | None,
        options: CANParameters,
    ):
        self.X, self.labels = X, labels
        self.n_models = 1 if n_classes == 2 else n_classes
        self.weights = np.ones(len(labels)) if weights is None else weights
        self.members = np.bincount(labels, self.weights, n_classes)
        self.options = options
        #: Largest entry of the gradient if the last maximisation stopped before reaching its tolerance, otherwise 0.
        self.unfinished = 0.0
        self.steep = max(1e-3 * float(abs(X).max()), 1e-3)
        #: Number of evaluations left, and number allowed in all.
        self.left = self.allowed = max(_EVALUATIONS, _EVALUATIONS_PER_ITER * int(options.max_iter))

    def split(self, model: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights, with a row for each model, and intercepts."""
        parts = model.reshape(self.n_models, -1)
        return parts[:, :-1].copy(), parts[:, -1].copy()

    def size(self, model: np.ndarray) -> float:
        """The norm of the weights that the radius bounds."""
        return float(np.linalg.norm(model.reshape(self.n_models, -1)[:, :-1]))

    def rates(self, model: np.ndarray) -> tuple[Rates | ClassRates, Any]:
        """Mean rewards of a model, and what `slopes` needs besides."""
        sign = np.where(self.labels, 1.0, -1.0)
        margins = sign * linear_scores(self.X, model[:-1], model[-1])
        rewards = self.weights * (1.0 - np.logaddexp(0.0, -margins))
        sums = rewards[self.labels].sum(), rewards[~self.labels].sum()
        return Rates.of(sums[0], self.members[1], sums[1], self.members[0]), (sign, margins)

    def slopes(self, measure: NestedMeasure, rates: Any, found: Any) -> np.ndarray:
        """Derivatives of the measure by the scores."""
        sign, margins = found
        a_pos, a_neg = measure.class_gradients(*rates)
        factor = np.where(self.labels, a_pos / self.members[1], a_neg / self.members[0])
        return self.weights * factor * sign * expit(-margins)

    def value(self, measure: Measure, model: np.ndarray) -> float:
        """Value of the measure at the model's mean rewards."""
        return measure.at(self.rates(model)[0])

    def loss(self, model: np.ndarray, measure: NestedMeasure) -> tuple[float, np.ndarray]:
        """Negative measure and its gradient."""
        self.left -= 1
        rates, found = self.rates(model)
        slopes = self.slopes(measure, rates, found)
        gradient = np.empty((self.n_models, self.X.shape[1] + 1))
        gradient[:, :-1] = -(self.X.T @ slopes).T
        gradient[:, -1] = -slopes.sum(axis=0) if self.options.fit_intercept else 0.0
        return -measure.at(rates), gradient.ravel()

    def maximise(self, measure: NestedMeasure, start: np.ndarray) -> np.ndarray:
        """Find the model with the highest value inside the ball, from a starting point."""
        limit = 1 if self.X.size <= _ONE_THREAD else None
        with threadpool_limits(limit, "blas"), np.errstate(over="ignore", invalid="ignore"):
            return self._maximise(measure, start)

    def _maximise(self, measure: NestedMeasure, start: np.ndarray) -> np.ndarray:
        model = self._lbfgs(measure, start)
        if self.size(model) <= self.options.radius:
            return model
        # The radius binds, and the path that L-BFGS took outside the ball does not tell where the maximum inside is.
        # Search from both ends of that path and keep the better result.
        found = [self._projected(measure, end) for end in (model, start)]
        return min(found, key=lambda model: self.loss(model, measure)[0])

    def _lbfgs(self, measure: NestedMeasure, start: np.ndarray) -> np.ndarray:
        max_iter = int(self.options.max_iter)
        options = {
            "maxiter": max_iter,
            "maxfun": min(10 * max_iter, max(self.left, 1)),
            "gtol": self.options.tol,
            "ftol": 1e-14,
            "maxcor": 20,
        }
        result = minimize(
            self.loss, start, args=(measure,), jac=True, method="L-BFGS-B", options=options
        )
        if not np.isfinite(result.x).all():
            raise ValueError(
                "the weights became infinite or NaN: scale the features "
                "(sklearn.preprocessing.StandardScaler) or give a radius"
            )
        steepest = float(np.abs(result.jac).max())
        # L-BFGS also stops when its steps vanish in rounding. The gradient is then large, because the features are.
        self.unfinished = steepest if result.status == 1 or steepest > self.steep else 0.0
        return result.x

    def _project(self, model: np.ndarray) -> np.ndarray:
        model = model.copy()
        inside = min(1.0, self.options.radius / max(self.size(model), 1e-300))
        model.reshape(self.n_models, -1)[:, :-1] *= inside
        return model

    def _projected(self, measure: NestedMeasure, start: np.ndarray) -> np.ndarray:
        """Spectral projected gradient (Birgin, Martínez, Raydan 2000), as L-BFGS cannot stay inside a ball."""
        model = self._project(start)
        loss, gradient = self.loss(model, measure)
        recent, length = [loss], 1.0
        best, best_loss = model, loss
        for _ in range(self.options.max_iter):
            if self.left <= 0:
                break
            if np.abs(self._project(model - gradient) - model).max() <= self.options.tol:
                self.unfinished = 0.0
                return best
            direction = self._project(model - length * gradient) - model
            descent, step = float(gradient @ direction), 1.0
            while True:
                trial = model + step * direction
                trial_loss, trial_gradient = self.loss(trial, measure)
                if trial_loss <= max(recent) + 1e-4 * step * descent:
                    break
                step /= 2.0
                if (
                    step < 1e-12
                ):  # no gain along the gradient, for example where the measure is flat
                    return best
            moved, turned = trial - model, trial_gradient - gradient
            curvature = float(moved @ turned)
            length = (
                min(max(float(moved @ moved) / curvature, 1e-10), 1e10) if curvature > 0 else 1e3
            )
            model, loss, gradient = trial, trial_loss, trial_gradient
            recent = [*recent[-9:], loss]
            if loss < best_loss:
                best, best_loss = model, loss
        self.unfinished = float(np.abs(self._project(model - gradient) - model).max())
        return best


class _ClassProblem(_Problem):
    """The problem for more than two classes. The radius bounds √2·‖W‖, as in `NEMSISClassifier`."""

    def size(self, model: np.ndarray) -> float:
        """The norm of the weights that the radius bounds."""
        return math.sqrt(2.0) * super().size(model)

    def rates(self, model: np.ndarray) -> tuple[ClassRates, Any]:
        """Mean rewards and counts of a model, and what `slopes` needs besides."""
        parts = model.reshape(self.n_models, -1)
        scores = linear_scores(self.X, parts[:, :-1], parts[:, -1])
        logs = log_softmax(scores, axis=1)
        own = np.arange(len(self.labels)), self.labels
        missing = -self.unit * logs[own]
        # Softmax over the other classes.
        scores[own] = -math.inf
        others = softmax(scores, axis=1)
        rewards = np.bincount(self.labels, self.weights * (1.0 - missing), self.n_models)
        counted = (self.weights * missing) @ others + rewards
        return ClassRates.of(self.members, rewards, counted), (np.exp(logs), own, missing, others)

    def slopes(self, measure: NestedMeasure, rates: Any, found: Any) -> np.ndarray:
        """Derivatives of the measure by the scores, with a column for each class."""
        shares, own, missing, others = found
        alpha, by_count = measure.gradients(*rates)
        gain = (alpha / rates.p + by_count)[self.labels]
        mean = others @ by_count
        # What is missing falls as the own score grows; it moves among the others as their scores change.
        slopes = -self.unit * (gain - mean)[:, np.newaxis] * shares
        slopes += missing[:, np.newaxis] * others * (by_count - mean[:, np.newaxis])
        slopes[own] = self.unit * (gain - mean) * (1.0 - shares[own])
        return slopes * (self.weights / self.members.sum())[:, np.newaxis]

    @property
    def unit(self) -> float:
        """Factor of the reward, ln 2/ln K (see `quapy_nemsis._kernels.multiclass`)."""
        return math.log(2.0) / math.log(self.n_models)
