"""What all learners share that take one point at a time: `fit`, `partial_fit`, tuning and records."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._kernels.rows import as_rows
from quapy_nemsis._linear import (
    LinearClassifier,
    check_bool,
    check_integer,
    check_option,
    check_positive,
    distinct,
    warn_of_scale,
)
from quapy_nemsis._state import AVERAGES, Settings, State
from quapy_nemsis.tuning import AUTO, Race, candidates, tune

HISTORY = ("samples", "seconds", "P", "N", "value")


class OnlineClassifier(LinearClassifier):
    """A learner that takes one point at a time; subclasses say with which state and settings."""

    _state_type: ClassVar[type[State]]
    #: Parameters that a state depends on.
    _fixed: ClassVar[str]

    def fit(self, X: ArrayLike, y: ArrayLike) -> OnlineClassifier:
        """Learn from `n_passes` passes over the data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; C-ordered float32 or float64 arrays and CSR matrices are used as they are, the rest is converted.
        y : array-like of shape (n_samples,)
            Labels, two classes of any type.

        Returns
        -------
        OnlineClassifier
            The fitted learner itself.
        """
        settings = self._settings()
        X, y = self._check_rows(X, y, reset=True)
        classes = self._two_classes(distinct(y))
        positive = y == classes[1]
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        settings = self._tune(X, positive, settings, rng)
        state, records = self._state_type.start(X.shape[1], settings), []
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
        self._keep(state, records, settings, classes)
        self._calibrate(X, positive, settings, rng)
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None
    ) -> OnlineClassifier:
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
        OnlineClassifier
            The learner itself.
        """
        settings = self._settings()
        first = not hasattr(self, "_state")
        X, y = self._check_rows(X, y, reset=first)
        if first:
            known = self._two_classes(distinct(np.asarray(y if classes is None else classes)))
            if self.eta0 == AUTO:
                warn_of_scale(X, stacklevel=3)
                state = Race(X.shape[1], settings, self._state_type)
            else:
                state = self._state_type.start(X.shape[1], settings)
        else:
            known = self.classes_
            if classes is not None and not np.array_equal(np.unique(classes), known):
                raise ValueError(
                    f"classes {np.unique(classes).tolist()} differ from those of the first call, "
                    f"{known.tolist()}"
                )
            if settings.kind != self._kind:
                raise ValueError(
                    f"{self._fixed} cannot change between calls of partial_fit; "
                    "set them back, or call fit to start anew"
                )
            state = self._state.copy()
            if isinstance(state, Race) and self.eta0 != AUTO:
                state = state.states[state.best]
            if not isinstance(state, Race):
                settings = self._chosen(settings)
        strange = np.setdiff1d(distinct(y), known)
        if len(strange):
            raise ValueError(
                f"y holds labels {strange.tolist()} that are not among the classes {known.tolist()}"
            )
        positive = y == known[1]
        records = self._walk(state, X, positive, np.arange(X.shape[0]), settings)
        if first:
            self.history_ = {column: [] for column in HISTORY}
            self._tuned = None
        else:
            self._recalibrate(X, positive, settings)
        self._keep(state, records, settings, known)
        if first:
            self._recalibrate(X, positive, settings)
        return self

    @property
    def t_(self) -> int:
        """Number of points seen, over all passes."""
        check_is_fitted(self)
        return self._state.t

    # ----------------------------------------------------------------- inside

    def _settings(self) -> Settings:
        """Check the parameters."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def _common_settings(self) -> dict[str, Any]:
        """Check the parameters that all online learners have."""
        check_option("average", self.average, AVERAGES)
        for name in ("fit_intercept", "shuffle"):
            check_bool(name, getattr(self, name))
        check_integer("n_passes", self.n_passes)
        if self.record_every is not None:
            check_integer("record_every", self.record_every)
        check_positive("eta0", self.eta0, finite=True, auto=True)
        check_positive("radius", self.radius, auto=True)
        return {
            "eta0": math.nan if self.eta0 == AUTO else float(self.eta0),
            "radius": math.inf if self.radius == AUTO else float(self.radius),
            "fit_intercept": bool(self.fit_intercept),
            "average": AVERAGES[self.average],
        }

    def _chosen(self, settings: Settings) -> Settings:
        """Settings with what was chosen before."""
        eta0 = self.eta0_ if self.eta0 == AUTO else settings.eta0
        radius = self.radius_ if self.radius == AUTO else settings.radius
        return replace(settings, eta0=eta0, radius=radius)

    def _tune(self, X: Any, positive: np.ndarray, settings: Settings, rng: Any) -> Settings:
        """Choose what is left to be chosen."""
        self._tuned = None
        if AUTO not in (self.eta0, self.radius):
            return settings
        warn_of_scale(X, stacklevel=4)
        pairs = candidates(X, self.eta0, self.radius)
        try:
            tuned = tune(X, positive, settings, self._state_type, pairs, self.n_passes, rng)
        except FloatingPointError:
            self._refuse(X, 0)
        self._tuned = tuned
        if self.verbose:
            print(
                f"{type(self).__name__}: eta0 {tuned.settings.eta0:.4g}, radius {tuned.settings.radius:.4g} "
                f"chosen out of {len(pairs)} pairs"
            )
        return tuned.settings

    def _calibrate(self, X: Any, positive: np.ndarray, settings: Settings, rng: Any) -> None:
        """Called at the end of `fit`, for learners with posteriors."""

    def _recalibrate(self, X: Any, positive: np.ndarray, settings: Settings) -> None:
        """Called with every chunk of a stream before it is learned, with the first one after that."""

    def _refuse(self, X: Any, t: int) -> None:
        """Say why the weights are not finite: because X is not, or because they diverged."""
        assert_all_finite(X, input_name="X", estimator_name=type(self).__name__)
        raise ValueError(
            f"the weights became infinite or NaN after sample {t}: scale the features "
            f"(sklearn.preprocessing.StandardScaler) or lower eta0 (now {self.eta0!r})"
        )

    def _scores(self, X: Any) -> np.ndarray:
        # Without BLAS, whose threads go on spinning for a while: in a stream, on the core that reads.
        w = self.coef_[0]
        scores = X @ w if scipy.sparse.issparse(X) else np.einsum("ij,j->i", X, w)
        return scores + self.intercept_[0]

    def _check_rows(self, X: Any, y: Any, reset: bool) -> tuple[Any, np.ndarray]:
        # NaN and inf in X are left to the kernel, which notices them on its way: see `_walk`.
        return self._check_data(
            X, y, reset, dtype=[np.float64, np.float32], ensure_all_finite=False
        )

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
            seen = state.t
            if not state.walk(rows, positive, order[done:upto], settings):
                self._refuse(X, seen)
            done = upto
            if self.record_every is not None and state.t % self.record_every == 0:
                value = state.value(settings.measure)
                records.append((state.t, state.seconds, *state.rewards, value))
        return records

    def _keep(
        self, state: State, records: list[tuple], settings: Settings, classes: np.ndarray
    ) -> OnlineClassifier:
        """Take over what was learned, after all went well."""
        for record in records:
            for column, entry in zip(HISTORY, record, strict=True):
                self.history_[column].append(entry)
        weights, intercept = state.model(settings.average)
        self._state, self._kind = state, settings.kind
        if isinstance(state, Race):
            best = state.tries[state.best]
            self.eta0_, self.radius_, self.tuning_ = best.eta0, best.radius, state.table
        else:
            self.eta0_, self.radius_ = settings.eta0, settings.radius
            self.tuning_ = self._tuned.table if self._tuned is not None else {}
        self.classes_ = classes
        self.coef_, self.intercept_ = weights[np.newaxis], np.array([intercept])
        return self
