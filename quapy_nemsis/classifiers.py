"""Online linear classifiers that optimise a quantification measure, for scikit-learn."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.extmath import safe_sparse_dot
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
from quapy_nemsis._state import AVERAGES, ScanSettings, ScanState, Settings, State
from quapy_nemsis.calibration import RECENT, Calibration, sample_of_classes
from quapy_nemsis.measures import Measure, NestedMeasure, PseudoMeasure, get_measure
from quapy_nemsis.rewards import reward_code
from quapy_nemsis.tuning import AUTO, Race, candidates, tune

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
        eta0: float | str = "auto",
        radius: float | str = "auto",
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


class SCANParameters(NEMSISParameters):
    """Parameters of SCAN, written once for the classifier and the QuaPy quantifier (see `SCANClassifier`)."""

    def __init__(
        self,
        measure: str | Measure = "cq",
        *,
        reward: str = "hinge",
        estimates: str = "counts",
        monotone: bool = True,
        eta0: float | str = "auto",
        radius: float | str = "auto",
        reward_bound: float = 1.0,
        n_passes: int = 5,
        average: str = "suffix",
        fit_intercept: bool = True,
        shuffle: bool = True,
        random_state: int | RandomState | None = None,
        first_epoch: int = 100,
        growth: float = 2.0,
        level_share: float = 0.25,
        record_every: int | None = None,
        verbose: int = 0,
    ):
        super().__init__(
            measure,
            reward=reward,
            estimates=estimates,
            monotone=monotone,
            eta0=eta0,
            radius=radius,
            reward_bound=reward_bound,
            n_passes=n_passes,
            average=average,
            fit_intercept=fit_intercept,
            shuffle=shuffle,
            random_state=random_state,
            record_every=record_every,
            verbose=verbose,
        )
        self.first_epoch = first_epoch
        self.growth = growth
        self.level_share = level_share


class OnlineClassifier(LinearClassifier):
    """A learner that takes one point at a time; subclasses say with which state and settings."""

    _state_type: ClassVar[type[State]] = State

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
        # Scores of held-out rows come from other models than the one kept, scores of training rows from this one. Where
        # rows are many for each feature these are the better guide, where they are few they are too good to be true.
        objective = state.objective(settings)
        if self._tuned is None or X.shape[0] >= 10 * X.shape[1]:
            sample, weights = sample_of_classes(positive, rng)
            scores = self._scores(X[sample])
            self._calibration = Calibration(scores, positive[sample], weights, objective)
        else:
            self._calibration = Calibration(
                self._tuned.scores, self._tuned.positive, measure=objective
            )
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
            if (settings.average, settings.counts) != self._kind:
                raise ValueError(
                    "average and estimates cannot change between calls of partial_fit; "
                    "set them back, or call fit to start anew"
                )
            state = self._state.copy()
            if isinstance(state, Race) and self.eta0 != AUTO:
                state = state.states[state.best]
            if not isinstance(state, Race):
                # What was chosen before stays.
                eta0 = self.eta0_ if self.eta0 == AUTO else settings.eta0
                radius = self.radius_ if self.radius == AUTO else settings.radius
                settings = replace(settings, eta0=eta0, radius=radius)
        strange = np.setdiff1d(distinct(y), known)
        if len(strange):
            raise ValueError(
                f"y holds labels {strange.tolist()} that are not among the classes {known.tolist()}"
            )
        positive = y == known[1]
        records = self._walk(state, X, positive, np.arange(X.shape[0]), settings)
        # The posterior is calibrated on scores of points that the model had not seen; the first chunk has none.
        if first:
            self.history_ = {column: [] for column in HISTORY}
            self._tuned = None
            self._keep(state, records, settings, known)
            self._calibration = Calibration(np.zeros(0), np.zeros(0, dtype=bool))
        newest = slice(-RECENT, None)
        scores = self._scores(X[newest])
        self._calibration = self._calibration.extended(
            scores, positive[newest], state.objective(settings)
        )
        if not first:
            self._keep(state, records, settings, known)
        return self

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Posterior probabilities at the prevalence of the training data.

        A nondecreasing function of the score (see `quapy_nemsis.calibration.Calibration`), fitted to scores of training
        rows; where there are fewer than ten rows per feature, of rows held out for tuning; in a stream, of the latest
        4,096 points before they were learned. With the logistic reward and constant class weights ω⁺, ω⁻ it would be
        σ(f(x) − ln(ω⁺/ω⁻)), but only at convergence, and a step size that is best for the measure need not converge in
        scale. `predict` follows the score, not the posterior: it optimises the measure.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Probabilities of `classes_`.
        """
        scores = self.decision_function(X)
        positive = self._calibration.posterior(scores)
        return np.column_stack([1.0 - positive, positive])

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
        check_option("estimates", self.estimates, ESTIMATES)
        check_option("average", self.average, AVERAGES)
        for name in ("monotone", "fit_intercept", "shuffle"):
            check_bool(name, getattr(self, name))
        check_integer("n_passes", self.n_passes)
        if self.record_every is not None:
            check_integer("record_every", self.record_every)
        check_positive("eta0", self.eta0, finite=True, auto=True)
        check_positive("radius", self.radius, auto=True)
        check_positive("reward_bound", self.reward_bound)
        return {
            "reward": reward_code(self.reward),
            "counts": ESTIMATES[self.estimates],
            "monotone": bool(self.monotone),
            "eta0": math.nan if self.eta0 == AUTO else float(self.eta0),
            "radius": math.inf if self.radius == AUTO else float(self.radius),
            "reward_bound": float(self.reward_bound),
            "fit_intercept": bool(self.fit_intercept),
            "average": AVERAGES[self.average],
        }

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

    def _refuse(self, X: Any, t: int) -> None:
        """Say why the weights are not finite: because X is not, or because they diverged."""
        assert_all_finite(X, input_name="X", estimator_name=type(self).__name__)
        raise ValueError(
            f"the weights became infinite or NaN after sample {t}: scale the features "
            f"(sklearn.preprocessing.StandardScaler) or lower eta0 (now {self.eta0!r})"
        )

    def _scores(self, X: Any) -> np.ndarray:
        return safe_sparse_dot(X, self.coef_[0], dense_output=True) + self.intercept_[0]

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
        self._state, self._kind = state, (settings.average, settings.counts)
        if isinstance(state, Race):
            best = state.tries[state.best]
            self.eta0_, self.radius_, self.tuning_ = best.eta0, best.radius, state.table
        else:
            self.eta0_, self.radius_ = settings.eta0, settings.radius
            self.tuning_ = self._tuned.table if self._tuned is not None else {}
        self.classes_ = classes
        self.coef_, self.intercept_ = weights[np.newaxis], np.array([intercept])
        return self


class NEMSISClassifier(NEMSISParameters, OnlineClassifier):
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
    eta0 : float or "auto", default="auto"
        Step size; step t uses η₀/√t. "auto" chooses it (see `quapy_nemsis.tuning`).
    radius : float or "auto", default="auto"
        Radius of the ball that the weights (not the intercept) are projected on. "auto" chooses it in `fit`, and is
        infinite in a stream.
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
        Print what was chosen, and a line per pass of `fit`.

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
    eta0_, radius_ : float
        The step size and radius used: as given, or chosen.
    tuning_ : dict of lists
        ``eta0``, ``radius``, ``value`` of the measure and ``ba`` of every candidate; empty if none was chosen.
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

    def _settings(self) -> Settings:
        measure = get_measure(self.measure)
        if isinstance(measure, PseudoMeasure):
            raise ValueError(
                f"NEMSIS optimises nested concave measures, and {measure!r} is pseudo-concave: "
                "use SCANClassifier or CANClassifier (SCAN or CAN in QuaPy)"
            )
        if not isinstance(measure, NestedMeasure):
            raise ValueError(f"{measure!r} ({measure.formula}) is for evaluation only")
        return Settings(measure=measure, **self._common_settings())


class SCANClassifier(SCANParameters, OnlineClassifier):
    """Linear classifier trained by SCAN (Algorithm 3 of Kar et al., KDD 2016), for pseudo-concave measures.

    A ratio P_class/P_quant is not concave, but it is at least v just where the valuation P_class − v·P_quant is at
    least 0, and that is concave. SCAN alternates, in epochs of geometric length, between learning for the valuation at
    the current level v, by NEMSIS steps with Ψ(x, y) = x − v·y, and estimating the level that the model has reached on
    points it does not learn from.

    The listing forgets to keep the learned weights: here w and its estimates go on from epoch to epoch, and so does the
    step counter. Restarting it, as the listing does, would change step sizes by a constant factor only (epochs grow
    geometrically) but begin each epoch with steps that undo the last.

    Parameters
    ----------
    measure : str or Measure, default="cq"
        The pseudo-concave measure to optimise: "cq", "bk" or a `PseudoConcave` object.
    reward : {"hinge", "logistic"}, default="hinge"
        Concave surrogate whose gradient moves the weights.
    estimates : {"counts", "surrogate"}, default="counts"
        Estimates and levels from 0-1 counts (the paper's SCAN-NS) or from the surrogate rewards (SCAN).
    monotone : bool, default=True
        Replace negative class weights by 0.
    eta0 : float or "auto", default="auto"
        Step size; step t uses η₀/√t. "auto" chooses it (see `quapy_nemsis.tuning`).
    radius : float or "auto", default="auto"
        Radius of the ball that the weights (not the intercept) are projected on. "auto" chooses it in `fit`, and is
        infinite in a stream.
    reward_bound : float, default=1
        B: surrogate rewards enter the estimates clipped to [−B, 1].
    n_passes : int, default=5
        Passes of `fit` over the data; epochs go on through them.
    average : {"suffix", "all", "last"}, default="suffix"
        Mean of at least the last half of the iterates, of all of them, or the last one.
    fit_intercept : bool, default=True
        Whether to learn an intercept.
    shuffle : bool, default=True
        Whether `fit` walks the rows in a fresh random order in each pass.
    random_state : int, RandomState or None, default=None
        Seed of that order.
    first_epoch : int, default=100
        Points of the first learning phase, s₀.
    growth : float, default=2
        Ratio of one epoch's length to that of the one before.
    level_share : float, default=0.25
        Points of a level phase for each point of its learning phase, s'_e/s_e.
    record_every : int or None, default=None
        Append to `history_` every so many samples.
    verbose : int, default=0
        Print what was chosen, and a line per pass of `fit`.

    Attributes
    ----------
    levels_ : ndarray of shape (n_epochs,)
        The level after each finished epoch.
    classes_, coef_, intercept_, n_features_in_, t_, eta0_, radius_, tuning_, history_
        As for `NEMSISClassifier`; `t_` counts the points of level phases too.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> learner = SCANClassifier("cq", random_state=0).fit(scale(X), y)
    >>> len(learner.levels_)
    4
    >>> bool(learner.levels_[-1] > 0.9)
    True
    """

    _state_type = ScanState

    @property
    def levels_(self) -> np.ndarray:
        """The level after each finished epoch."""
        check_is_fitted(self)
        return np.array(self._state.levels)

    def _settings(self) -> ScanSettings:
        measure = get_measure(self.measure)
        if isinstance(measure, NestedMeasure):
            raise ValueError(
                f"SCAN optimises pseudo-concave measures, and {measure!r} is nested concave: "
                "use NEMSISClassifier or CANClassifier (NEMSIS or CAN in QuaPy)"
            )
        if not isinstance(measure, PseudoMeasure):
            raise ValueError(f"{measure!r} ({measure.formula}) is for evaluation only")
        check_integer("first_epoch", self.first_epoch)
        check_positive("growth", self.growth, finite=True)
        if self.growth < 1.0:
            raise ValueError(f"growth must be at least 1; got {self.growth!r}")
        check_positive("level_share", self.level_share, finite=True)
        return ScanSettings(
            measure=measure,
            first_epoch=int(self.first_epoch),
            growth=float(self.growth),
            level_share=float(self.level_share),
            **self._common_settings(),
        )
