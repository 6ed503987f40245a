"""Linear classifiers that optimise a quantification measure, for scikit-learn."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import scipy.sparse
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from quapy_nemsis._kernels.rows import as_rows
from quapy_nemsis._state import AVERAGES, Settings, State
from quapy_nemsis.measures import Measure, NestedMeasure, get_measure
from quapy_nemsis.rewards import reward_code

ESTIMATES: dict[str, bool] = {"counts": True, "surrogate": False}
HISTORY = ("samples", "seconds", "P", "N", "value")


class NEMSISParameters:
    """Parameters of NEMSIS, written once for the classifier and the QuaPy quantifier (see `NEMSISClassifier`)."""

    def __init__(
        self,
        measure: str | Measure = "q",
        *,
        reward: str = "hinge",
        estimates: str = "counts",
        monotone: bool = True,
        eta0: float = 0.1,
        radius: float = math.inf,
        reward_bound: float = 1.0,
        n_passes: int = 5,
        average: str = "suffix",
        fit_intercept: bool = True,
        shuffle: bool = True,
        random_state: int | RandomState | None = None,
        record_every: int | None = None,
        verbose: int = 0,
    ):
        self.measure = measure
        self.reward = reward
        self.estimates = estimates
        self.monotone = monotone
        self.eta0 = eta0
        self.radius = radius
        self.reward_bound = reward_bound
        self.n_passes = n_passes
        self.average = average
        self.fit_intercept = fit_intercept
        self.shuffle = shuffle
        self.random_state = random_state
        self.record_every = record_every
        self.verbose = verbose


class NEMSISClassifier(NEMSISParameters, ClassifierMixin, BaseEstimator):
    """Linear classifier trained by NEMSIS (Algorithm 1 of Kar et al., KDD 2016).

    Each point (x, y) moves the weights by

        w ← Π_R( w + η₀/√t · (a_y/p_y) · ∇ reward(w; x, y) ),

    where a_y is the measure's derivative by the mean reward of the class, taken at the running estimates:
    a⁺ = γ₁α₁ + γ₂β₁ and a⁻ = γ₁α₂ + γ₂β₂ with α = ∇ζ₁(r), β = ∇ζ₂(r), γ = ∇Ψ(q) (lines 6, 9 and 15-17). Two choices
    go beyond the listing: the share of positives p is the one seen so far, and the estimates r are means over the
    points of each class seen so far, which has the same expectation as the listing's Σ reward/p and less variance.

    Parameters
    ----------
    measure : str or Measure, default="q"
        The nested concave measure to optimise: a name such as "kld", "bakld:0.3", "q" (see
        `quapy_nemsis.get_measure`) or an object.
    reward : {"hinge", "logistic"}, default="hinge"
        Concave surrogate whose gradient moves the weights.
    estimates : {"counts", "surrogate"}, default="counts"
        Running estimates from 0-1 counts (the paper's NEMSIS-NS) or from the surrogate rewards (NEMSIS).
    monotone : bool, default=True
        Replace negative class weights by 0; False is the paper's algorithm with exact gradients.
    eta0 : float, default=0.1
        Step size; step t uses η₀/√t.
    radius : float, default=inf
        Radius of the ball that the weights (not the intercept) are projected on.
    reward_bound : float, default=1
        B: surrogate rewards enter the estimates clipped to [−B, 1].
    n_passes : int, default=5
        Passes of `fit` over the data.
    average : {"suffix", "all", "last"}, default="suffix"
        Mean of at least the last half of the iterates, of all of them, or the last one.
    fit_intercept : bool, default=True
        Whether to learn an intercept.
    shuffle : bool, default=True
        Whether `fit` walks the rows in a fresh random order in each pass.
    random_state : int, RandomState or None, default=None
        Seed of that order.
    record_every : int or None, default=None
        Append to `history_` every so many samples.
    verbose : int, default=0
        Print a line per pass of `fit`.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels; the second one is the positive class.
    coef_ : ndarray of shape (1, n_features)
        Weights.
    intercept_ : ndarray of shape (1,)
        Intercept.
    n_features_in_ : int
        Number of features.
    t_ : int
        Number of points seen, over all passes.
    history_ : dict of lists
        ``samples`` seen, ``seconds`` spent inside the kernel, running estimates ``P`` and ``N``, and the measure's
        ``value`` there; one entry per `record_every` samples, none if that is None.

    References
    ----------
    P. Kar, S. Li, H. Narasimhan, S. Chawla, F. Sebastiani. Online Optimization Methods for the Quantification
    Problem. KDD 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = scale(X)
    >>> learner = NEMSISClassifier(measure="kld", random_state=0).fit(X, y)
    >>> bool(abs(learner.predict(X).mean() - y.mean()) < 0.02)
    True
    >>> learner.t_
    2845
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> NEMSISClassifier:
        """Learn from `n_passes` passes over the data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; C-ordered float32 or float64 arrays and CSR matrices are used as they are, the rest is converted.
        y : array-like of shape (n_samples,)
            Labels, two classes of any type.

        Returns
        -------
        NEMSISClassifier
            The fitted learner itself.
        """
        settings = self._settings()
        X, y = self._check_data(X, y, reset=True)
        classes = self._two_classes(_distinct(y))
        positive = y == classes[1]
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        state, records = State.start(X.shape[1]), []
        for i in range(self.n_passes):
            order = rng.permutation(len(positive)) if self.shuffle else np.arange(len(positive))
            records += self._walk(state, X, positive, order, settings)
            if self.verbose:
                P, N = state.rewards
                print(
                    f"{type(self).__name__}: pass {i + 1}/{self.n_passes}, {state.t} samples, "
                    f"{settings.measure.name} {state.value(settings.measure):.5f}, "
                    f"P {P:.4f}, N {N:.4f}, {state.seconds:.2f} s"
                )
        self.history_ = {column: [] for column in HISTORY}
        return self._keep(state, records, settings, classes)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None
    ) -> NEMSISClassifier:
        """Learn from further points, in the order given.

        Any way of cutting the same rows into chunks gives the same weights. If a chunk cannot be used, the learner
        stays as it was.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels.
        classes : array-like of shape (2,), optional
            All labels that can occur; needed in the first call unless `y` holds both.

        Returns
        -------
        NEMSISClassifier
            The learner itself.
        """
        settings = self._settings()
        first = not hasattr(self, "_state")
        X, y = self._check_data(X, y, reset=first)
        if first:
            known = self._two_classes(_distinct(np.asarray(y if classes is None else classes)))
            state = State.start(X.shape[1])
        else:
            known = self.classes_
            if classes is not None and not np.array_equal(np.unique(classes), known):
                raise ValueError(
                    f"classes {np.unique(classes).tolist()} differ from those of the first call, "
                    f"{known.tolist()}"
                )
            if (settings.average, settings.counts) != self._kind:
                raise ValueError(
                    "average and estimates cannot change between calls of partial_fit; "
                    "set them back, or call fit to start anew"
                )
            state = self._state.copy()
        strange = np.setdiff1d(_distinct(y), known)
        if len(strange):
            raise ValueError(
                f"y holds labels {strange.tolist()} that are not among the classes {known.tolist()}"
            )
        records = self._walk(state, X, y == known[1], np.arange(X.shape[0]), settings)
        if first:
            self.history_ = {column: [] for column in HISTORY}
        return self._keep(state, records, settings, known)

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Scores w·x + b; a point is predicted positive if its score is above 0.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Scores.
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return safe_sparse_dot(X, self.coef_[0], dense_output=True) + self.intercept_[0]

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Labels of the rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels out of `classes_`.
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0.0).astype(np.intp)]

    @property
    def t_(self) -> int:
        """Number of points seen, over all passes."""
        check_is_fitted(self)
        return self._state.t

    # ----------------------------------------------------------------- inside

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags

    def _settings(self) -> Settings:
        """Check the parameters."""
        measure = get_measure(self.measure)
        if not isinstance(measure, NestedMeasure):
            raise ValueError(
                f"NEMSIS optimises nested concave measures; {measure!r} ({measure.formula}) is not one"
            )
        for name, options in (("estimates", ESTIMATES), ("average", AVERAGES)):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be a string; got {getattr(self, name)!r}")
            if getattr(self, name) not in options:
                raise ValueError(
                    f"{name} must be one of {sorted(options)}; got {getattr(self, name)!r}"
                )
        for name in ("monotone", "fit_intercept", "shuffle"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise TypeError(f"{name} must be True or False; got {getattr(self, name)!r}")
        _check_integer("n_passes", self.n_passes)
        if self.record_every is not None:
            _check_integer("record_every", self.record_every)
        _check_real("eta0", self.eta0)
        if math.isinf(self.eta0):
            raise ValueError(f"eta0 must be finite; got {self.eta0!r}")
        _check_real("radius", self.radius)
        _check_real("reward_bound", self.reward_bound)
        return Settings(
            measure=measure,
            reward=reward_code(self.reward),
            counts=ESTIMATES[self.estimates],
            monotone=bool(self.monotone),
            eta0=float(self.eta0),
            radius=float(self.radius),
            reward_bound=float(self.reward_bound),
            fit_intercept=bool(self.fit_intercept),
            average=AVERAGES[self.average],
        )

    def _check_data(self, X: Any, y: Any, reset: bool) -> tuple[Any, np.ndarray]:
        # NaN and inf in X are left to the kernel, which notices them on its way: see `_walk`.
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
            ensure_all_finite=False,
            reset=reset,
        )
        if scipy.sparse.issparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X, y

    def _two_classes(self, classes: np.ndarray) -> np.ndarray:
        check_classification_targets(classes)
        if len(classes) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{type_of_target(classes)}: {len(classes)} classes, {classes[:5].tolist()}... Wrap the learner "
                "in sklearn.multiclass.OneVsRestClassifier, the quantifier in quapy.method.base.newOneVsAll"
            )
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs two classes; the data holds one class, {classes.tolist()}. "
                "In a stream, name both with partial_fit(X, y, classes=...)"
            )
        return classes

    def _walk(
        self, state: State, X: Any, positive: np.ndarray, order: np.ndarray, settings: Settings
    ) -> list[tuple]:
        """Walk over the rows, stopping at every `record_every`-th sample to take down how things stand."""
        records = []
        rows = as_rows(X)
        done = 0
        while done < len(order):
            upto = len(order)
            if self.record_every is not None:
                upto = min(upto, done + self.record_every - state.t % self.record_every)
            if not state.walk(rows, positive, order[done:upto], settings):
                assert_all_finite(X, input_name="X", estimator_name=type(self).__name__)
                raise ValueError(
                    f"the weights became infinite or NaN near sample {state.t + 1}: scale the features "
                    f"(sklearn.preprocessing.StandardScaler) or lower eta0 (now {self.eta0!r})"
                )
            done = upto
            if self.record_every is not None and state.t % self.record_every == 0:
                value = state.value(settings.measure)
                records.append((state.t, state.seconds, *state.rewards, value))
        return records

    def _keep(
        self, state: State, records: list[tuple], settings: Settings, classes: np.ndarray
    ) -> NEMSISClassifier:
        """Take over what was learned, after all went well."""
        for record in records:
            for column, entry in zip(HISTORY, record, strict=True):
                self.history_[column].append(entry)
        weights, intercept = state.model(settings.average)
        self._state, self._kind = state, (settings.average, settings.counts)
        self.classes_ = classes
        self.coef_, self.intercept_ = weights[np.newaxis], np.array([intercept])
        return self


def _distinct(y: np.ndarray) -> np.ndarray:
    """Sorted distinct labels; without sorting all of y where its beginning shows both of two classes."""
    classes = np.unique(y[:1000])
    if len(classes) == 2 and ((y == classes[0]) | (y == classes[1])).all():
        return classes
    return np.unique(y)


def _check_integer(name: str, value: Any) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1; got {value!r}")


def _check_real(name: str, value: Any) -> None:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number; got {value!r}")
    if not value > 0.0:
        raise ValueError(f"{name} must be positive; got {value!r}")
