"""Base classes: prediction for all classifiers; `fit`, `partial_fit`, history and posteriors for online learners."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._kernels.rows import as_rows
from quapy_nemsis._validation import (
    AUTO,
    FLOATS,
    MatrixLike,
    check_bool,
    check_integer,
    check_labels,
    check_option,
    check_positive,
    check_seed,
    check_verbose,
    checked_data,
    checked_rows,
    distinct,
    refuse_divergence,
    two_classes,
    unchanged_on_error,
    warn_of_scale,
)
from quapy_nemsis.learners.calibration import RECENT, Calibration, calibrate
from quapy_nemsis.learners.scores import linear_scores, quiet_scores
from quapy_nemsis.learners.state import (
    AVERAGES,
    Arrays,
    S,
    State,
    columns_to_arrays,
    prefixed,
)
from quapy_nemsis.learners.tuning import StreamTuner, Tuned, tune

if TYPE_CHECKING:
    from typing_extensions import Self

HISTORY = ("samples", "seconds", "P", "N", "value")


class LinearClassifier(ClassifierMixin, BaseEstimator):
    """A binary linear classifier with `coef_`, `intercept_` and `classes_`; subclasses learn them."""

    classes_: np.ndarray
    coef_: np.ndarray
    intercept_: np.ndarray
    n_features_in_: int

    def decision_function(self, X: MatrixLike) -> np.ndarray:
        """Return the scores w·x + b; a row is predicted positive if its score is above 0.

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
        X = checked_rows(self, X, dtype=FLOATS)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = linear_scores(X, self.coef_[0], self.intercept_[0])
        if not np.isfinite(scores).all():
            row = int(np.argmin(np.isfinite(scores)))
            raise ValueError(f"the score of row {row} is too large for a float: scale the features")
        return scores

    def predict(self, X: MatrixLike) -> np.ndarray:
        """Predict the label of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels from `classes_`.
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0.0).astype(np.intp)]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, as arrays by name."""
        arrays = {"classes": self.classes_, "coef": self.coef_, "intercept": self.intercept_}
        if hasattr(self, "feature_names_in_"):
            arrays["feature_names"] = self.feature_names_in_
        return arrays

    def from_arrays(self, arrays: Arrays) -> None:
        """Inverse of `to_arrays`; arrays of the wrong type or shape raise a ValueError."""
        if not arrays.width:
            raise ValueError("it has no features")
        self.classes_ = arrays.any("classes", 2)
        self.coef_ = arrays.take("coef", 1, arrays.width)
        self.intercept_ = arrays.take("intercept", 1)
        self.n_features_in_ = arrays.width
        if not (np.isfinite(self.coef_).all() and np.isfinite(self.intercept_).all()):
            raise ValueError("its weights are not finite")
        first, second = self.classes_
        if self.classes_.dtype.kind not in "biufUmM" or not first < second:
            raise ValueError(f"its classes are {self.classes_.tolist()}, not two sorted labels")
        if "feature_names" in arrays.arrays:
            names = arrays.take("feature_names", arrays.width, types=(np.str_,))
            self.feature_names_in_ = names.astype(object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags


@dataclass(eq=False, repr=False)
class StepParameters:
    """Parameters shared by all online learners."""

    _: KW_ONLY
    eta0: float | str = AUTO
    radius: float | str = AUTO
    n_passes: int = 5
    average: str = "suffix"
    fit_intercept: bool = True
    shuffle: bool = True
    random_state: int | RandomState | None = None
    record_every: int | None = None
    verbose: int = 0

    def checked_steps(self) -> dict[str, Any]:
        """Check the parameters and return those that a state needs."""
        check_option("average", self.average, AVERAGES)
        check_bool("fit_intercept", self.fit_intercept)
        check_bool("shuffle", self.shuffle)
        check_integer("n_passes", self.n_passes)
        if self.record_every is not None:
            check_integer("record_every", self.record_every)
        check_positive("eta0", self.eta0, finite=True, auto=True)
        check_positive("radius", self.radius, auto=True)
        check_seed(self.random_state)
        check_verbose(self.verbose)
        return {
            "eta0": math.nan if self.eta0 == AUTO else float(self.eta0),
            "radius": math.nan if self.radius == AUTO else float(self.radius),
            "fit_intercept": bool(self.fit_intercept),
            "average": AVERAGES[self.average],
        }


class OnlineClassifier(StepParameters, LinearClassifier, Generic[S]):
    """Base class of online learners, which can learn from a stream; subclasses define the settings and the state."""

    state_type: ClassVar[type[State[Any]]]
    #: Names of the parameters that must not change between calls of `partial_fit`, for the error message.
    resume_parameters: ClassVar[str]
    #: Whether the kernel detects NaN and infinity in X while it learns, so that X need not be checked beforehand.
    notices_nan: ClassVar[bool] = True

    state_: State[S]
    resume_signature_: tuple[int, ...]
    eta0_: float
    radius_: float
    tuning_: dict[str, list[float]]
    history_: dict[str, list[float]]

    def settings(self) -> S:
        """Check the parameters and return them as settings."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Learn from `n_passes` passes over the data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows. C-ordered float32 or float64 arrays and CSR matrices are used without a copy; others are converted.
        y : array-like of shape (n_samples,)
            Labels of any type, with two classes.

        Returns
        -------
        self
            The fitted learner.
        """
        settings = self.settings()
        with unchanged_on_error(self):
            X, labels = self._checked(X, y, reset=True)
            classes = two_classes(distinct(labels), self)
            positive = labels == classes[1]
            rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
            tuned = tune(X, positive, settings, self.state_type, self.n_passes, rng)
            if tuned is not None:
                settings = tuned.settings
                self._say(
                    f"eta0 {settings.eta0:.4g}, radius {settings.radius:.4g} chosen out of "
                    f"{len(tuned.table['eta0'])} pairs"
                )
            state: State[S] = self.state_type.start(X.shape[1], settings)
            records = []
            for i in range(self.n_passes):
                n = len(positive)
                order = rng.permutation(n) if self.shuffle else np.arange(n)
                records += self._learn(state, X, positive, order)
                self._report(state, f"pass {i + 1}/{self.n_passes}")
            self.history_ = {column: [] for column in HISTORY}
            self.tuning_ = tuned.table if tuned is not None else {}
            self.take_over(state, classes, records)
            self._calibrate(X, positive, tuned, rng)
        return self

    def partial_fit(self, X: MatrixLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learn from more rows, in the given order.

        The weights do not depend on how the rows are divided into chunks. If a chunk cannot be used, the learner is
        left unchanged.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels.
        classes : array-like of shape (2,), optional
            All labels that can occur. Required in the first call unless `y` contains both.

        Returns
        -------
        self
            The learner.
        """
        settings = self.settings()
        first = not hasattr(self, "state_")
        with unchanged_on_error(self):
            X, labels = self._checked(X, y, reset=first)
            if classes is not None:
                check_labels(classes, "classes")
            if first:
                named = labels if classes is None else np.asarray(classes)
                known = two_classes(distinct(named), self)
                state = self._start_stream(X, settings)
                self.history_ = {column: [] for column in HISTORY}
                self.tuning_ = {}
            else:
                known = self.classes_
                state = self._resumed(settings, classes)
                self.history_ = {name: list(column) for name, column in self.history_.items()}
            strange = np.setdiff1d(distinct(labels), known)
            if len(strange):
                raise ValueError(
                    f"y contains labels {strange.tolist()} that are not among the classes {known.tolist()}"
                )
            positive = labels == known[1]
            records = self._learn(state, X, positive, np.arange(X.shape[0]))
            if not first:
                self._recalibrate(X, positive)
            self.take_over(state, known, records)
            if first:
                self._recalibrate(X, positive)
        return self

    @property
    def t_(self) -> int:
        """Number of points seen, over all passes."""
        check_is_fitted(self)
        return self.state_.t

    def take_over(
        self, state: State[S], classes: np.ndarray, records: Sequence[tuple[float, ...]] = ()
    ) -> None:
        """Set the fitted attributes from a state, after learning has succeeded."""
        for record in records:
            for column, entry in zip(HISTORY, record, strict=True):
                self.history_[column].append(entry)
        self.state_ = state
        self.resume_signature_ = state.settings.resume_signature
        self.eta0_, self.radius_ = state.settings.eta0, state.settings.radius
        self.tuning_ = state.details().get("tuning", self.tuning_)
        self.classes_ = classes
        weights, intercept = state.model()
        self.coef_, self.intercept_ = weights[np.newaxis], np.array([intercept])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, as arrays by name."""
        return {
            **super().to_arrays(),
            "eta0": np.array(self.eta0_),
            "radius": np.array(self.radius_),
            "resume_signature": np.array(self.resume_signature_, dtype=np.int64),
            **prefixed("tuning", columns_to_arrays(self.tuning_)),
            **prefixed("history", columns_to_arrays(self.history_)),
            **prefixed("state", self.state_.to_arrays()),
        }

    def from_arrays(self, arrays: Arrays) -> None:
        """Inverse of `to_arrays`; arrays of the wrong type or shape raise a ValueError."""
        super().from_arrays(arrays)
        self.eta0_, self.radius_ = arrays.real("eta0"), arrays.real("radius", finite=False)
        signature = arrays.take("resume_signature", None, types=(np.int64,)).tolist()
        self.resume_signature_ = tuple(signature)
        tuning = arrays.part("tuning")
        self.tuning_ = tuning.columns(("eta0", "radius", "value", "ba")) if tuning.arrays else {}
        self.history_ = arrays.part("history").columns(HISTORY)
        settings, part = self.settings().completed(self.eta0_, self.radius_), arrays.part("state")
        if len(signature) != len(settings.resume_signature) or not self.eta0_ > 0 < self.radius_:
            raise ValueError("its step size, radius or resume signature is not valid")
        if StreamTuner.is_in(part):
            self.state_ = StreamTuner.restored(part, self.settings(), self.state_type)
        else:
            self.state_ = self.state_type.from_arrays(part, settings)
        part.finish()
        self.state_.check()

    # ---------------------------------------------------------------- private

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Any, np.ndarray]:
        options = {"dtype": FLOATS, "ensure_all_finite": not self.notices_nan}
        return checked_data(self, X, y, reset=reset, **options)

    def _start_stream(self, X: Any, settings: S) -> State[S]:
        if self.eta0 == AUTO:
            warn_of_scale(X, stacklevel=4)
            return StreamTuner.begin(X.shape[1], settings, self.state_type)
        return self.state_type.start(X.shape[1], settings.completed(math.nan, math.inf))

    def _resumed(self, settings: S, classes: ArrayLike | None) -> State[S]:
        """A copy of the state, ready to learn more; the learner's own state is not changed."""
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes {np.unique(classes).tolist()} differ from those of the first call, "
                f"{self.classes_.tolist()}"
            )
        if settings.resume_signature != self.resume_signature_:
            raise ValueError(
                f"{self.resume_parameters} cannot change between calls of partial_fit; "
                "set them back, or call fit to start again"
            )
        state = self.state_.copy()
        if self.eta0 != AUTO:
            state = state.settled()
        state.adopt(settings)
        return state

    def _learn(
        self, state: State[S], X: Any, positive: np.ndarray, order: np.ndarray
    ) -> list[tuple]:
        """Learn the rows; return a record of the estimates for every `record_every`-th sample."""
        records = []
        rows = as_rows(X)
        every = None if self.record_every is None else int(self.record_every)
        done = 0
        while done < len(order):
            upto = len(order) if every is None else done + every - state.t % every
            seen = state.t
            if not state.learn(rows, positive, order[done:upto]):
                refuse_divergence(X, f"after sample {seen}", self.eta0)
            done = upto
            if every is not None and state.t % every == 0:
                rates = state.rates()
                value = state.settings.measure.value(*rates)
                records.append((state.t, state.seconds, rates.P, rates.N, value))
        return records

    def _say(self, text: str) -> None:
        if self.verbose:
            print(f"{type(self).__name__}: {text}", flush=True)

    def _report(self, state: State[S], where: str) -> None:
        measure, rates = state.settings.measure, state.rates()
        self._say(
            f"{where}, {state.t} samples, {measure.name} {measure.value(*rates):.5f}, "
            f"P {rates.P:.4f}, N {rates.N:.4f}, {state.seconds:.2f} s"
        )

    def _calibrate(self, X: Any, positive: np.ndarray, tuned: Tuned[S] | None, rng: Any) -> None:
        """Calibrate posteriors at the end of `fit`; learners without posteriors do nothing."""

    def _recalibrate(self, X: Any, positive: np.ndarray) -> None:
        """Update the calibration with a chunk of a stream, before its new weights are set (the first chunk: after)."""


class ProbabilisticOnlineClassifier(OnlineClassifier[S]):
    """Base class of online learners with posterior probabilities."""

    calibration_: Calibration

    def predict_proba(self, X: MatrixLike) -> np.ndarray:
        """Posterior probabilities at the prevalence of the training data.

        The posterior is a nondecreasing function of the score (see
        `quapy_nemsis.learners.calibration.Calibration`). `fit` fits it to the scores of training rows or, with fewer
        than ten rows per feature, of rows held out for tuning. In a stream it is fitted to the latest 4,096 points,
        scored before they were learned. With the logistic reward and constant class gradients ω⁺, ω⁻ the posterior
        would be σ(f(x) − ln(ω⁺/ω⁻)), but only at convergence, and with the step size that is best for the measure the
        scale of the scores need not converge. `predict` uses the score, not the posterior, because the score is what
        optimises the measure.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Probabilities of the two classes, in the order of `classes_`.
        """
        scores = self.decision_function(X)
        positive = self.calibration_.posterior(scores)
        return np.column_stack([1.0 - positive, positive])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, as arrays by name."""
        return {**super().to_arrays(), **prefixed("calibration", self.calibration_.to_arrays())}

    def from_arrays(self, arrays: Arrays) -> None:
        """Inverse of `to_arrays`; arrays of the wrong type or shape raise a ValueError."""
        super().from_arrays(arrays)
        part = arrays.part("calibration")
        self.calibration_ = Calibration.from_arrays(part)
        part.finish()

    def _calibrate(self, X: Any, positive: np.ndarray, tuned: Tuned[S] | None, rng: Any) -> None:
        self.calibration_ = calibrate(self.state_, X, positive, tuned, rng)

    def _recalibrate(self, X: Any, positive: np.ndarray) -> None:
        newest = slice(-RECENT, None)
        known = getattr(self, "calibration_", Calibration.of_nothing())
        scores = quiet_scores(X[newest], self.coef_[0], self.intercept_[0])
        self.calibration_ = known.extended(scores, positive[newest], self.state_.objective())
