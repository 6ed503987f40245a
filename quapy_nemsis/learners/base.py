"""Base classes: prediction for all classifiers; `fit`, `partial_fit`, history and posteriors for online learners."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._validation import (
    AUTO,
    FLOATS,
    MatrixLike,
    check_bool,
    check_integer,
    check_labels,
    check_memory,
    check_option,
    check_positive,
    check_seed,
    check_verbose,
    checked_data,
    checked_rows,
    checked_weights,
    distinct,
    encode,
    refuse_divergence,
    several_classes,
    two_classes,
    unchanged_on_error,
    warn_of_scale,
    without_zeros,
)
from quapy_nemsis.learners.calibration import PRIORS, RECENT, Calibration
from quapy_nemsis.learners.scores import linear_scores, predicted_codes, quiet_scores, scale_of
from quapy_nemsis.learners.state import (
    AVERAGES,
    UNWEIGHTED,
    Arrays,
    Data,
    Model,
    S,
    State,
    columns_to_arrays,
    prefixed,
)
from quapy_nemsis.learners.tuning import (
    RADII,
    STEP_SIZES,
    STREAM_STEP_SIZES,
    FoldLearners,
    StreamTuner,
    fold_sizes,
    out_of_fold,
    tune,
)
from quapy_nemsis.measures import Measure, Rates

if TYPE_CHECKING:
    from typing_extensions import Self

#: Columns of the training history for two classes, and for more.
HISTORY = ("samples", "seconds", "P", "N", "value")
CLASS_HISTORY = ("samples", "seconds", "R", "q", "value")
# With n_passes="auto", `fit` makes as many passes as give so many steps, within these bounds.
_STEPS, _LEAST_PASSES, _MOST_PASSES = 200_000, 5, 60


class Learner(ClassifierMixin, BaseEstimator):
    """A classifier of this package, with `classes_` and `n_features_in_`, that can be saved."""

    #: Whether the classifier takes more than two classes.
    multiclass: ClassVar[bool] = False

    classes_: np.ndarray
    n_features_in_: int

    def checked_classes(self, labels: np.ndarray) -> np.ndarray:
        """The sorted distinct labels, if the classifier takes as many."""
        classes = distinct(labels)
        return several_classes(classes, self) if self.multiclass else two_classes(classes, self)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, as named arrays."""
        arrays = {"classes": self.classes_}
        if hasattr(self, "feature_names_in_"):
            arrays["feature_names"] = self.feature_names_in_
        return arrays

    def from_arrays(self, arrays: Arrays) -> None:
        """Inverse of `to_arrays`; arrays of the wrong type or shape raise a ValueError."""
        if not arrays.width:
            raise ValueError("it has no features")
        if arrays.n_classes < 2 or (arrays.n_classes > 2 and not self.multiclass):
            raise ValueError(f"it has {arrays.n_classes} classes")
        self.classes_ = arrays.any("classes", arrays.n_classes)
        self.n_features_in_ = arrays.width
        ordered = self.classes_.dtype.kind in "biufUmM" and all(
            first < second for first, second in pairwise(self.classes_.tolist())
        )
        if not ordered:
            raise ValueError(f"its classes are {self.classes_.tolist()}, not sorted labels")
        if "feature_names" in arrays.arrays:
            names = arrays.take("feature_names", arrays.width, types=(np.str_,))
            self.feature_names_in_ = names.astype(object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = self.multiclass
        return tags


class LinearClassifier(Learner):
    """A linear classifier with `coef_`, `intercept_` and `classes_`; subclasses learn them."""

    coef_: np.ndarray
    intercept_: np.ndarray

    def decision_function(self, X: MatrixLike) -> np.ndarray:
        """Return the scores w·x + b.

        A row is predicted to be in the second of two classes if its score is above 0, and in the class with the highest
        score if there are more.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores: one for each row, or one for each row and class if there are more than two.
        """
        check_is_fitted(self)
        return self._scores(X, self.model())

    def _scores(self, X: Any, model: Model) -> np.ndarray:
        X = checked_rows(self, X, dtype=FLOATS)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = linear_scores(X, *model)
        if not np.isfinite(scores).all():
            row = int(np.argmin(np.isfinite(scores.reshape(len(scores), -1)).all(axis=1)))
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
        codes = predicted_codes(self.decision_function(X))
        return self.classes_[codes]

    def model(self) -> Model:
        """Weights and intercept: a vector and a number for two classes, rows and numbers for more."""
        if len(self.classes_) == 2:
            return self.coef_[0], self.intercept_[0]
        return self.coef_, self.intercept_

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, as named arrays."""
        return {**super().to_arrays(), "coef": self.coef_, "intercept": self.intercept_}

    def from_arrays(self, arrays: Arrays) -> None:
        """Inverse of `to_arrays`; arrays of the wrong type or shape raise a ValueError."""
        super().from_arrays(arrays)
        n_models = 1 if arrays.n_classes == 2 else arrays.n_classes
        self.coef_ = arrays.take("coef", n_models, arrays.width)
        self.intercept_ = arrays.take("intercept", n_models)
        if not (np.isfinite(self.coef_).all() and np.isfinite(self.intercept_).all()):
            raise ValueError("its weights are not finite")


@dataclass(eq=False, repr=False)
class StepParameters:
    """Parameters shared by all online learners."""

    _: KW_ONLY
    eta0: float | str = AUTO
    radius: float | str = AUTO
    n_passes: int | str = AUTO
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
        if self.n_passes != AUTO:
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

    def passes(self, n_rows: int) -> int:
        """Number of passes of `fit` over so many rows."""
        if self.n_passes != AUTO:
            return int(self.n_passes)
        return min(max(math.ceil(_STEPS / n_rows), _LEAST_PASSES), _MOST_PASSES)


class OnlineClassifier(StepParameters, LinearClassifier, Generic[S]):
    """Base class of online learners, which can learn from a stream; subclasses define the settings and the state."""

    state_type: ClassVar[type[State[Any]]]
    #: Names of the parameters that must not change between calls of `partial_fit`, for the error message.
    resume_parameters: ClassVar[str]
    #: Whether the kernel detects NaN and infinity in X while it learns, so that X need not be checked beforehand.
    notices_nan: ClassVar[bool] = True
    #: Whether the learner has posteriors.
    has_posteriors: ClassVar[bool] = False

    state_: State[S]
    resume_signature_: tuple[int, ...]
    eta0_: float
    radius_: float
    tuning_: dict[str, list[float]]
    history_: dict[str, list[Any]]

    def settings(self, n_classes: int = 2) -> S:
        """Check the parameters and return them as settings for a number of classes."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Train the learner with `n_passes` passes over the data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows. C-ordered float32 or float64 arrays and CSR matrices are used without a copy; others are converted.
        y : array-like of shape (n_samples,)
            Labels of any type.

        Returns
        -------
        self
            The fitted learner.
        """
        return self._fit(X, y, None, None)

    def _fit(self, X: Any, y: Any, sample_weight: Any, class_weight: Any) -> Self:
        self.settings()  # raises an error for invalid parameters before the data are looked at
        with unchanged_on_error(self):
            X, labels = self._checked(X, y, reset=True)
            classes = self.checked_classes(labels)
            weights = checked_weights(sample_weight, class_weight, X, labels, classes)
            X, labels, weights = without_zeros(X, labels, weights)
            if weights is not None:
                classes = self.checked_classes(labels)
            counts = UNWEIGHTED if weights is None else weights
            data = Data(X, encode(labels, classes), len(classes), counts)
            settings = self.settings(len(classes))
            self._check_size(data, settings.measure)
            n_passes = self.passes(X.shape[0])
            rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
            tuned = tune(data, settings, self.state_type, n_passes, self.has_posteriors, rng)
            if tuned is not None:
                settings = tuned.settings
                self._say(
                    f"eta0 {settings.eta0:.4g}, radius {settings.radius:.4g} chosen out of "
                    f"{len(tuned.table['eta0'])} pairs"
                )
            state: State[S] = self.state_type.start(X.shape[1], len(classes), settings)
            records = []
            folds = self._fold_learners(data, settings, rng)
            for i in range(n_passes):
                n = len(data.labels)
                order = rng.permutation(n) if self.shuffle else np.arange(n)
                records += self._learn(state, data, order, folds)
                self._report(state, f"pass {i + 1}/{n_passes}")
            self.history_ = no_history(len(classes))
            self.tuning_ = tuned.table if tuned is not None else {}
            self.take_over(state, classes, records)
            self._calibrate(data, folds)
        return self

    def partial_fit(self, X: MatrixLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Train the learner on more rows, in the given order.

        The weights do not depend on how the rows are divided into chunks. If a chunk cannot be used, the learner is
        left unchanged.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels.
        classes : array-like of shape (n_classes,), optional
            All labels that can occur. Required in the first call unless `y` contains them all.

        Returns
        -------
        self
            The learner.
        """
        return self._partial_fit(X, y, classes, None, None)

    def _partial_fit(
        self, X: Any, y: Any, classes: Any, sample_weight: Any, class_weight: Any
    ) -> Self:
        self.settings()
        first = not hasattr(self, "state_")
        with unchanged_on_error(self):
            X, labels = self._checked(X, y, reset=first)
            if classes is not None:
                check_labels(classes, "classes")
            if first:
                known = self.checked_classes(labels if classes is None else np.asarray(classes))
            else:
                known = self.classes_
            strange = np.setdiff1d(distinct(labels), known)
            if len(strange):
                raise ValueError(
                    f"y contains labels {strange.tolist()} that are not among the classes {known.tolist()}"
                )
            weights = checked_weights(sample_weight, class_weight, X, labels, known)
            X, labels, weights = without_zeros(X, labels, weights)
            counts = UNWEIGHTED if weights is None else weights
            data = Data(X, encode(labels, known), len(known), counts)
            settings = self.settings(len(known))
            if first:
                self._check_size(data, settings.measure, stream=True)
                state = self._start_stream(data, settings)
                self.history_ = no_history(len(known))
                self.tuning_ = {}
            else:
                state = self._resumed(settings, classes)
                self.history_ = {name: list(column) for name, column in self.history_.items()}
            records = self._learn(state, data, np.arange(X.shape[0]))
            if first:
                self.take_over(state, known, records)
                self._recalibrate(data)
            else:
                self._recalibrate(data)
                before = self.coef_
                self.take_over(state, known, records)
                self._rescale_calibration(before)
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
            for column, entry in zip(self.history_.values(), record, strict=True):
                column.append(entry)
        self.state_ = state
        self.resume_signature_ = state.settings.resume_signature
        self.eta0_, self.radius_ = state.settings.eta0, state.settings.radius
        self.tuning_ = state.details().get("tuning", self.tuning_)
        self.classes_ = classes
        weights, intercept = state.model()
        # In C order, whatever rows were learned: the order of memory decides how scores of dense rows are rounded.
        self.coef_ = np.ascontiguousarray(np.atleast_2d(weights))
        self.intercept_ = np.atleast_1d(intercept)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, as named arrays."""
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
        history = tuple(no_history(arrays.n_classes))
        self.history_ = arrays.part("history").columns(history, per_class=("R", "q"))
        part, given = arrays.part("state"), self.settings(arrays.n_classes)
        settings = given.completed(self.eta0_, self.radius_)
        if len(signature) != len(settings.resume_signature) or not self.eta0_ > 0 < self.radius_:
            raise ValueError("its step size, radius or resume signature is not valid")
        if StreamTuner.is_in(part):
            self.state_ = StreamTuner.restored(part, given, self.state_type)
        else:
            self.state_ = self.state_type.from_arrays(part, settings)
        part.finish()
        self.state_.check()

    # ---------------------------------------------------------------- private

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Any, np.ndarray]:
        options = {"dtype": FLOATS, "ensure_all_finite": not self.notices_nan}
        return checked_data(self, X, y, reset=reset, **options)

    def _check_size(self, data: Data, measure: Measure, stream: bool = False) -> None:
        """Refuse weights that do not fit into memory, before it is taken."""
        steps = len(STREAM_STEP_SIZES if stream else STEP_SIZES) if self.eta0 == AUTO else 1
        radii = len(RADII) if self.radius == AUTO and not stream else 1
        n_learners, width = steps * radii, data.X.shape[1]
        n_models = 1 if data.n_classes == 2 else data.n_classes
        advice, n_states = "use fewer classes or features", 2
        if n_learners > 1:
            advice += ", or give eta0 and radius, so that there is one learner and not several"
            # Learners that learn together are copied into one table. The next chunk of a stream copies them once more.
            n_folds = 1 if stream else fold_sizes(data, measure.prevalence_only).folds
            n_states = n_learners * (n_folds + 1 + stream)
        check_memory(
            8 * 3 * n_states * n_models * width,
            f"the weights of {data.n_classes:,} classes and {width:,} features in {n_learners} learners",
            advice,
        )

    def _start_stream(self, data: Data, settings: S) -> State[S]:
        sizes = data.X.shape[1], data.n_classes
        if self.eta0 == AUTO:
            warn_of_scale(data.X, stacklevel=5, rows=data.rows)
            return StreamTuner.begin(*sizes, settings, self.state_type)
        return self.state_type.start(*sizes, settings.completed(math.nan, math.inf))

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
        self,
        state: State[S],
        data: Data,
        order: np.ndarray,
        folds: FoldLearners[S] | None = None,
    ) -> list[tuple]:
        """Learn the rows; return a record of the estimates for every `record_every`-th sample.

        If there are learners of folds, they learn the rows as well, in the same walk unless there are records.
        """
        records: list[tuple] = []
        if folds is not None:
            alone = self.record_every is not None
            seen = state.t
            if not all(folds.learn(order, () if alone else (state,))):
                refuse_divergence(data.X, f"after sample {seen}", self.eta0)
            if not alone:
                return records
        rows = data.rows
        every = None if self.record_every is None else int(self.record_every)
        done = 0
        while done < len(order):
            upto = len(order) if every is None else done + every - state.t % every
            seen = state.t
            if not state.learn(rows, data.labels, order[done:upto], data.weights):
                refuse_divergence(data.X, f"after sample {seen}", self.eta0)
            done = upto
            if every is not None and state.t % every == 0:
                rates = state.rates()
                first, second = rates[:2]
                if not isinstance(rates, Rates):
                    first, second = rates.R.tolist(), rates.q.tolist()
                value = state.settings.measure.at(rates)
                records.append((state.t, state.seconds, first, second, value))
        return records

    def _say(self, text: str) -> None:
        if self.verbose:
            print(f"{type(self).__name__}: {text}", flush=True)

    def _report(self, state: State[S], where: str) -> None:
        measure, rates = state.settings.measure, state.rates()
        if isinstance(rates, Rates):
            shown = f"P {rates.P:.4f}, N {rates.N:.4f}"
        else:
            shown = f"recalls {rates.R.min():.4f} to {rates.R.max():.4f}"
        self._say(
            f"{where}, {state.t} samples, {measure.name} {measure.at(rates):.5f}, "
            f"{shown}, {state.seconds:.2f} s"
        )

    def _fold_learners(
        self, data: Data, settings: S, rng: np.random.Generator
    ) -> FoldLearners[S] | None:
        """Learners that score held-out rows in `fit`, for learners with posteriors."""
        return None

    def _calibrate(self, data: Data, folds: FoldLearners[S] | None) -> None:
        """Calibrate posteriors at the end of `fit`; learners without posteriors do nothing."""

    def _recalibrate(self, data: Data) -> None:
        """Update the calibration with a chunk of a stream, before its new weights are set (the first chunk: after)."""

    def _rescale_calibration(self, before: np.ndarray) -> None:
        """Adapt the scores of earlier points to weights that replaced these; learners without posteriors do nothing."""


@dataclass(eq=False, repr=False)
class WeightParameters:
    """The parameter of learners that weight classes."""

    _: KW_ONLY
    class_weight: Any = None


@dataclass(eq=False, repr=False)
class PosteriorParameters:
    """The parameter of learners with posteriors."""

    _: KW_ONLY
    posteriors: str = "training"


F = TypeVar("F", bound=Callable[..., Any])


def _if_wanted(method: F) -> F:
    """A method that a learner has unless its `posteriors` is None; keeps the types, which scikit-learn's does not."""
    return cast(F, available_if(lambda learner: learner.posteriors is not None)(method))


class PosteriorClassifier(LinearClassifier):
    """A linear classifier with posteriors, which are calibrated on out-of-fold scores, unless `posteriors` is None."""

    posteriors: Any
    calibration_: Calibration
    committee_: Model | None
    members_: list[Model] | None = None

    @_if_wanted
    def predict_proba(self, X: MatrixLike) -> np.ndarray:
        """Return posteriors, at the training prevalences or, with ``posteriors="balanced"``, at equal prevalences.

        For two classes, the log-odds are a nondecreasing, piecewise linear function of the score (see
        `quapy_nemsis.learners.calibration.TwoClassCalibration`). For more classes they are T·f + b, where f are the
        scores (see `quapy_nemsis.learners.calibration.ClassCalibration`). Both are fitted to out-of-fold scores: `fit`
        trains up to five more learners, each of which scores rows that it was not trained on. In a stream, the
        functions are fitted to the latest 4,096 points, each scored before the learner was trained on it. `predict`
        uses the score and not the posterior, because the score optimises the measure.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities of the classes, in the order of `classes_`.
        """
        self._check_calibrated()
        scores = self.decision_function(X)
        return self.calibration_.probabilities(scores, balanced=self.posteriors == "balanced")

    def committee_scores(self, X: MatrixLike) -> np.ndarray:
        """Return scores by the mean of the learners that scored held-out rows in `fit`; in a stream, the learner's own.

        The calibration fits these scores at least as well as those of `decision_function`. If there are few rows
        compared with features, they also separate the classes better. `quapy_nemsis.Quantifier` uses them.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores: one for each row, or one for each row and class if there are more than two.
        """
        check_is_fitted(self)
        self._check_calibrated()
        return self._scores(X, self.model() if self.committee_ is None else self.committee_)

    def fold_scores(self, X: MatrixLike, first: int = 0) -> np.ndarray:
        """Return scores by the learners that scored held-out rows in `fit`; they take turns, one for each row.

        If the rows have the same distribution as the training rows, these scores have the same distribution as
        `calibration_.scores`: both come from one learner that was not trained on the row. This is not quite true of
        `committee_scores`, because a mean of learners is less noisy.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        first : int, default=0
            Position of the first row, if the rows of a stream are scored in parts.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores, as `committee_scores` returns them.
        """
        check_is_fitted(self)
        self._check_calibrated()
        if self.committee_ is None or self.members_ is None:
            return self.committee_scores(X)
        scores = [self._scores(X, member) for member in self.members_]
        turn = (first + np.arange(len(scores[0]))) % len(scores)
        return np.stack(scores)[turn, np.arange(len(turn))]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, as named arrays."""
        arrays = super().to_arrays()
        if not hasattr(self, "calibration_"):
            return arrays
        committee, members = {}, {}
        if self.committee_ is not None:
            committee = _as_arrays(self.committee_)
        if self.members_ is not None:
            columns = zip(*self.members_, strict=True)
            members = _as_arrays(tuple(np.array(column) for column in columns))
        return {
            **arrays,
            **prefixed("calibration", self.calibration_.to_arrays()),
            **prefixed("committee", committee),
            **prefixed("members", members),
        }

    def from_arrays(self, arrays: Arrays) -> None:
        """Inverse of `to_arrays`; arrays of the wrong type or shape raise a ValueError."""
        super().from_arrays(arrays)
        part = arrays.part("calibration")
        if self.posteriors is None and not part.arrays:
            return
        self.calibration_ = Calibration.from_arrays(part)
        part.finish()
        part, self.committee_, self.members_ = arrays.part("committee"), None, None
        if part.arrays:
            shape = () if arrays.n_classes == 2 else (arrays.n_classes,)
            weights = part.take("coef", *shape, arrays.width)
            self.committee_ = weights, part.take("intercept", *shape)[()]
            if not all(np.isfinite(numbers).all() for numbers in self.committee_):
                raise ValueError("the weights of its committee are not finite")
        part.finish()
        part = arrays.part("members")
        if part.arrays and self.committee_ is not None:
            weights = part.take("coef", None, *shape, arrays.width)
            intercepts = part.take("intercept", len(weights), *shape)
            if not (len(weights) and np.isfinite(weights).all() and np.isfinite(intercepts).all()):
                raise ValueError("the weights of its learners of folds are not finite, or missing")
            self.members_ = list(zip(weights, intercepts, strict=True))
        part.finish()

    def _check_calibrated(self) -> None:
        check_is_fitted(self)
        if not hasattr(self, "calibration_"):
            raise ValueError(
                f"this {type(self).__name__} was fitted without posteriors: set posteriors='training' and fit it again"
            )

    def _forget_calibration(self) -> None:
        for name in ("calibration_", "committee_", "members_"):
            if name in vars(self):
                delattr(self, name)

    def _calibrate_batch(self, data: Data, **parameters: Any) -> None:
        """Calibrate a learner of all rows: fit copies of it to parts of them, with these parameters."""
        self._forget_calibration()
        if self.posteriors is None:
            return

        def model(train: np.ndarray) -> Model | None:
            labels = data.labels[train]
            if len(np.unique(labels)) < data.n_classes:
                return None
            twin = clone(self).set_params(posteriors=None, verbose=0, **parameters)
            weights = {"sample_weight": data.weights[train]} if len(data.weights) else {}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the learner of all rows has warned
                return twin.fit(data.X[train], labels, **weights).model()

        def fitted(parts: np.ndarray, n_folds: int) -> list[Model | None]:
            return [model(np.flatnonzero(parts != k)) for k in range(n_folds)]

        # The folds are always the same, as these learners have no random choices otherwise.
        found = out_of_fold(data, fitted, np.random.default_rng(0))
        if found is None or not len(found.points.scores):
            raise ValueError(
                "posteriors need two rows of each class, one to learn and one to score: add rows, or set "
                "posteriors=None"
            )
        points, self.committee_, self.members_ = found
        self.calibration_ = Calibration.of(*points)


class PosteriorOnlineClassifier(PosteriorClassifier, OnlineClassifier[S]):
    """An online learner with posteriors, calibrated out of fold in `fit` and on the latest points in a stream."""

    def _fold_learners(
        self, data: Data, settings: S, rng: np.random.Generator
    ) -> FoldLearners[S] | None:
        if self.posteriors is None:
            return None
        # Orders of rows, and so weights, are those of a learner without posteriors.
        return FoldLearners(data, settings, self.state_type, rng.spawn(1)[0])

    def _calibrate(self, data: Data, folds: FoldLearners[S] | None) -> None:
        self._forget_calibration()
        if folds is None:
            return
        found = folds.held_out()
        if found is None:
            refuse_divergence(data.X, "on parts of the rows", self.eta0)
        points, self.committee_, self.members_ = found
        self.calibration_ = Calibration.of(*points)

    def _recalibrate(self, data: Data) -> None:
        if self.posteriors is None:
            return self._forget_calibration()
        newest = slice(-RECENT, None)
        known = getattr(self, "calibration_", None)
        self.committee_ = self.members_ = None
        scores = quiet_scores(data.X[newest], *self.model())
        weights = data.weights[newest]
        self.calibration_ = Calibration.latest(known, scores, data.labels[newest], weights)

    def _rescale_calibration(self, before: np.ndarray) -> None:
        # The scale of scores grows with training, and changes by orders of magnitude with the step size that is best in
        # a stream. One temperature can only fit scores of one scale.
        if len(self.classes_) == 2:
            return
        scores, old, new = self.calibration_.scores, scale_of(before), scale_of(self.coef_)
        ratio = new / old if min(old, new) > 0.0 else 1.0
        if np.isfinite(ratio * np.abs(scores).max()):
            scores *= ratio


class ProbabilisticOnlineClassifier(
    PosteriorParameters, WeightParameters, PosteriorOnlineClassifier[S]
):
    """Base class of online learners with posterior probabilities, weights of rows, and any number of classes."""

    multiclass = True
    has_posteriors = True

    def checked_steps(self) -> dict[str, Any]:
        """Check the parameters and return those that a state needs."""
        check_option("posteriors", self.posteriors, PRIORS)
        return super().checked_steps()

    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the learner with `n_passes` passes over the data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows. C-ordered float32 or float64 arrays and CSR matrices are used without a copy; others are converted.
        y : array-like of shape (n_samples,)
            Labels of any type, of two or more classes.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows. A row of weight 3 counts as three rows in all estimates and step sizes; a row of
            weight 0 is left out. The posteriors are those of the weighted data.

        Returns
        -------
        self
            The fitted learner.
        """
        return self._fit(X, y, sample_weight, self.class_weight)

    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train the learner on more rows, in the given order.

        The weights do not depend on how the rows are divided into chunks. If a chunk cannot be used, the learner is
        left unchanged.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels.
        classes : array-like of shape (n_classes,), optional
            All labels that can occur. Required in the first call unless `y` contains them all.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows, as in `fit`.

        Returns
        -------
        self
            The learner.
        """
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all rows, and partial_fit sees a part: give a dict, such "
                "as that of sklearn.utils.compute_class_weight on a sample"
            )
        return self._partial_fit(X, y, classes, sample_weight, self.class_weight)


def _as_arrays(model: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """Weights and intercepts of a model, or of several, by name."""
    return dict(zip(("coef", "intercept"), map(np.asarray, model), strict=True))


def no_history(n_classes: int) -> dict[str, list[Any]]:
    """Training history without entries."""
    return {column: [] for column in (HISTORY if n_classes == 2 else CLASS_HISTORY)}
