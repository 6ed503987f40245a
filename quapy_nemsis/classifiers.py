"""Online linear classifiers that optimise a quantification measure, for scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._linear import check_bool, check_integer, check_option, check_positive
from quapy_nemsis._state import NemsisSettings, ScanSettings, ScanState, State
from quapy_nemsis.calibration import RECENT, Calibration, sample_of_classes
from quapy_nemsis.measures import Measure, NestedMeasure, PseudoMeasure, get_measure
from quapy_nemsis.online import OnlineClassifier
from quapy_nemsis.rewards import reward_code

ESTIMATES: dict[str, bool] = {"counts": True, "surrogate": False}


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


class _NestedClassifier(OnlineClassifier):
    """What NEMSIS and SCAN share."""

    _fixed = "average and estimates"

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

    def _calibrate(self, X: Any, positive: np.ndarray, settings: NemsisSettings, rng: Any) -> None:
        # Scores of held-out rows come from other models than the one kept, scores of training rows from this one. Where
        # rows are many for each feature these are the better guide, where they are few they are too good to be true.
        objective = self._state.objective(settings)
        if self._tuned is None or X.shape[0] >= 10 * X.shape[1]:
            sample, weights = sample_of_classes(positive, rng)
            blocks = np.array_split(sample, len(sample) // 10_000 + 1)  # rows are copied
            scores = np.concatenate([self._scores(X[rows]) for rows in blocks])
            self._calibration = Calibration(scores, positive[sample], weights, objective)
        else:
            tuned = self._tuned
            self._calibration = Calibration(tuned.scores, tuned.positive, measure=objective)

    def _recalibrate(self, X: Any, positive: np.ndarray, settings: NemsisSettings) -> None:
        known = getattr(self, "_calibration", None)
        if known is None:
            known = Calibration(np.zeros(0), np.zeros(0, dtype=bool))
        newest = slice(-RECENT, None)
        scores, objective = self._scores(X[newest]), self._state.objective(settings)
        self._calibration = known.extended(scores, positive[newest], objective)

    def _nested_settings(self) -> dict[str, Any]:
        """Check the parameters that both have."""
        check_option("estimates", self.estimates, ESTIMATES)
        check_bool("monotone", self.monotone)
        check_positive("reward_bound", self.reward_bound)
        return {
            "reward": reward_code(self.reward),
            "counts": ESTIMATES[self.estimates],
            "monotone": bool(self.monotone),
            "reward_bound": float(self.reward_bound),
            **self._common_settings(),
        }


class NEMSISClassifier(NEMSISParameters, _NestedClassifier):
    """Linear classifier trained by NEMSIS (Algorithm 1 of Kar et al., KDD 2016).

    Each point (x, y) moves the weights by

        w ← Π_R( w + η₀/√t · (a_y/p_y) · ∇ reward(w; x, y) ),

    where a_y is the measure's derivative by the mean reward of the class, taken at the running estimates:
    a⁺ = γ₁α₁ + γ₂β₁ and a⁻ = γ₁α₂ + γ₂β₂ with α = ∇ζ₁(r), β = ∇ζ₂(r), γ = ∇Ψ(q) (lines 6, 9 and 15-17). Three choices
    go beyond the listing: the share of positives p is the one seen so far; the estimates r are means over the points of
    each class seen so far, which has the same expectation as the listing's Σ reward/p and less variance; and there is
    an intercept, which moves like the weight of a feature of value 1, times the mean of min(‖x‖², 1) so far, lest it
    drown features that are small.

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

    _state_type = State

    def _settings(self) -> NemsisSettings:
        measure = get_measure(self.measure)
        if isinstance(measure, PseudoMeasure):
            raise ValueError(
                f"NEMSIS optimises nested concave measures, and {measure!r} is pseudo-concave: "
                "use SCANClassifier or CANClassifier (SCAN or CAN in QuaPy)"
            )
        if not isinstance(measure, NestedMeasure):
            raise ValueError(f"{measure!r} ({measure.formula}) is for evaluation only")
        return NemsisSettings(measure=measure, **self._nested_settings())


class SCANClassifier(SCANParameters, _NestedClassifier):
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
            **self._nested_settings(),
        )
