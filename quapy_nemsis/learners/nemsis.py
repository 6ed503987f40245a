"""NEMSIS (Algorithm 1 of the paper): settings, state and classifier."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from quapy_nemsis._jit import Record
from quapy_nemsis._kernels import multiclass as class_kernel
from quapy_nemsis._kernels import nemsis as kernel
from quapy_nemsis._kernels.rows import Rows
from quapy_nemsis._validation import AUTO, check_bool, check_option, check_positive
from quapy_nemsis.learners.base import (
    PosteriorParameters,
    ProbabilisticOnlineClassifier,
    StepParameters,
    WeightParameters,
)
from quapy_nemsis.learners.state import (
    MOST,
    UNDIVIDED,
    UNWEIGHTED,
    Arrays,
    Model,
    SingleState,
    StepSettings,
    are_worth_fours,
    averaged,
    check_tally,
    flat,
    in_fours,
    in_memory,
    in_threads,
    laid_out,
    together,
    two_class_tally,
    weighted_mean,
)
from quapy_nemsis.measures import Measure, NestedMeasure, PseudoMeasure, get_measure
from quapy_nemsis.measures.compiled import (
    THETA,
    class_asks,
    class_callback,
    measure_callback,
)
from quapy_nemsis.surrogates import surrogate_code

if TYPE_CHECKING:
    from typing_extensions import Self

ESTIMATES: dict[str, bool] = {"counts": True, "surrogate": False}


@dataclass(frozen=True)
class NemsisSettings(StepSettings):
    """Checked parameters of NEMSIS."""

    measure: NestedMeasure
    reward: int
    counts: bool
    monotone: bool
    reward_bound: float

    @property
    def resume_signature(self) -> tuple[int, ...]:
        """Values that must not change between calls, or learning cannot resume from the state."""
        return self.average, int(self.counts)

    @property
    def affine(self) -> bool:
        """Whether the measure's Ψ is affine."""
        return self.measure.affine

    def options(self) -> tuple:
        """Values of the kernel's options."""
        return tuple(getattr(self, name) for name in kernel.OPTIONS.names or ())


@dataclass
class NemsisState(SingleState[NemsisSettings]):
    """State of NEMSIS: weights, sums for the averaged model, counts, estimates (see `quapy_nemsis._kernels.nemsis`).

    This class is the state for two classes; `start` returns a `ClassNemsisState` for more.
    """

    settings: NemsisSettings
    v: np.ndarray
    correction: np.ndarray
    previous: np.ndarray
    numbers: np.ndarray
    #: Time spent inside the kernel.
    seconds: float = 0.0

    #: The numbers that the kernel keeps.
    record: ClassVar[Record] = kernel.NUMBERS
    #: Whether learners of CSR rows lie in fours.
    lies_in_fours: ClassVar[bool] = True

    @classmethod
    def kind_for(cls, n_classes: int) -> type[NemsisState]:
        """The class of states for a number of classes."""
        return NemsisState if n_classes == 2 else ClassNemsisState

    @classmethod
    def shape_for(cls, n_features: int, n_classes: int) -> tuple[int, ...]:
        """Shape of the weights."""
        return (n_features,)

    @classmethod
    def start(cls, n_features: int, n_classes: int, settings: NemsisSettings) -> NemsisState:
        """State before the first point: zero weights."""
        kind = cls.kind_for(n_classes)
        numbers = kind.record.zeros(n_classes)
        numbers["scale"] = 1.0
        shape = kind.shape_for(n_features, n_classes)
        v, correction, previous = (np.zeros(shape) for _ in range(3))
        return kind(settings, v, correction, previous, numbers)

    def copy(self) -> Self:
        """Independent copy."""
        arrays = ("v", "correction", "previous", "numbers")
        return replace(self, **{name: getattr(self, name).copy(order="K") for name in arrays})

    @property
    def steps(self) -> int:
        """Number of points learned."""
        return int(self.numbers["steps"])

    def tally(self) -> np.ndarray:
        """Points learned, sums of their rewards and predicted points, in three rows, for each class."""
        names = ("weight", "positives", "reward_pos", "reward_neg")
        return two_class_tally(*(float(self.numbers[name]) for name in names))

    def objective(self) -> NestedMeasure:
        """The measure that the steps increase."""
        return self.settings.measure

    @classmethod
    def learn_together(
        cls,
        states: Sequence[Self],
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        weights: np.ndarray = UNWEIGHTED,
    ) -> list[bool]:
        """Let learners that have seen the same points learn the same rows; return for each whether it stayed finite.

        The learners may differ in step size, radius and parameters of the measure. Each learns exactly what it would
        learn alone. Each row is read once per processor.
        """
        return cls._learn_all(rows, labels, order, weights, UNDIVIDED, states)

    @classmethod
    def learn_parts(
        cls,
        states: Sequence[Self],
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        parts: np.ndarray,
        weights: np.ndarray = UNWEIGHTED,
    ) -> list[bool]:
        """Let learner k learn the rows that are not in part k; return for each whether it stayed finite.

        Each learns exactly what it would learn alone from its rows in this order. Each row is read once per processor.
        """
        return cls._learn_all(rows, labels, order, weights, parts, states)

    @staticmethod
    def _learn_all(
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        weights: np.ndarray,
        parts: np.ndarray,
        states: Sequence[NemsisState],
    ) -> list[bool]:
        """Let learners learn the rows, learner k those that are not in part k, if rows have parts."""
        begin = time.perf_counter()
        work = partial(type(states[0])._learn, rows, labels, order, weights, parts)
        tasks = list(enumerate(states))
        # A four of learners takes hardly longer than one learner: on two processors, it would only use twice the time.
        fours = type(states[0]).lies_in_fours and are_worth_fours(len(tasks), rows, len(order))
        taken = in_threads(work, tasks, len(order), least=4 if fours else 1)
        seconds = time.perf_counter() - begin
        for state in states:
            state.seconds += seconds
        return [
            bool(count == len(order) and state.is_finite())
            for count, state in zip(taken, states, strict=True)
        ]

    @staticmethod
    def _learn(
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        weights: np.ndarray,
        parts: np.ndarray,
        tasks: Sequence[tuple[int, NemsisState]],
    ) -> np.ndarray:
        """Run the kernel with learners and the parts that they leave out; the number of rows that each has passed."""
        states, left_out = [state for _, state in tasks], np.array([part for part, _ in tasks])
        measure = states[0].settings.measure
        values, _, gradient = measure.functions
        n_theta = len(measure.theta)
        compiled = measure_callback(values, gradient, measure.affine, n_theta)
        n = len(states)
        asks = np.zeros((n, THETA + n_theta))
        asks[:, THETA:] = [state.settings.measure.theta for state in states]
        options = np.array([state.settings.options() for state in states], dtype=kernel.OPTIONS)
        shared = np.zeros((n if len(parts) else 1, kernel.SHARED))
        products, taken = np.zeros((n, 2)), np.zeros(n, dtype=np.int64)
        fours = are_worth_fours(n, rows, len(order))
        lanes = np.zeros((-(-n // 4) if fours else 0, 8))
        learn, side_by_side = (
            (kernel.nemsis_in_fours, in_fours) if fours else (kernel.nemsis, together)
        )
        with side_by_side([(s.v, s.correction, s.previous, s.numbers) for s in states]) as tables:
            learn(
                rows,
                order,
                labels,
                weights,
                parts,
                left_out,
                compiled.address,
                asks,
                options,
                *tables,
                shared,
                products,
                lanes,
                taken,
            )
        return taken

    def is_finite(self) -> bool:
        """Whether every number of the state is finite."""
        parts = (self.v, self.correction, self.previous, flat(self.numbers))
        return all(np.isfinite(part).all() for part in parts)

    def model(self) -> Model:
        """Weights and intercept, averaged according to the settings."""
        n, average = self.numbers, self.settings.average
        if average == kernel.LAST or self.steps == 0:
            return n["scale"] * self.v, n["intercept"].copy()[()]
        weights = n["scale_sum"] * self.v - self.correction
        intercept = n["intercept_sum"]
        if average == kernel.SUFFIX:
            weights = weights + self.previous
            intercept = intercept + n["intercept_previous"]
        count = sum(averaged(self.steps, average))
        return weights / count, intercept / count

    @classmethod
    def merge(cls, states: Sequence[Self], base: Self | None) -> Self:
        """Merge the states of several learners that started from the same base, or from scratch.

        Sums are added, counting the base once. Weights and means are averaged in proportion to the points learned.
        """
        moved = [state for state in states if base is None or state.t > base.t]
        if len(moved) <= 1:
            return (moved or states)[0].copy()
        return cls.combined(moved, base, max(moved, key=lambda state: state.t))

    @classmethod
    def combined(cls, states: Sequence[Self], base: Self | None, like: Self) -> Self:
        """Merge states that all learned further from the base; everything else is copied from the state `like`."""
        merged = like.copy()
        numbers = np.array([state.numbers for state in states])
        for name in cls.record.sums:
            known = base.numbers[name] if base is not None else 0.0
            merged.numbers[name] = known + (numbers[name] - known).sum(axis=0)
        merged.seconds = max(state.seconds for state in states)
        learned = np.array([state.steps - (base.steps if base else 0) for state in states])
        if not learned.any():  # for example in a level phase of SCAN
            return merged
        share = learned / learned.sum()
        for name in cls.record.means:
            merged.numbers[name] = weighted_mean(share, numbers[name])
        merged.v = weighted_mean(share, [state.numbers["scale"] * state.v for state in states])
        merged.numbers["scale"] = 1.0
        merged.numbers["norm2"] = np.vdot(merged.v, merged.v)
        # Set the sums of both windows as if all iterates were equal to the mean of the averaged models.
        models = [state.model() for state in states]
        weights = weighted_mean(share, [weights for weights, _ in models])
        intercept = weighted_mean(share, [intercept for _, intercept in models])
        now, past = averaged(merged.steps, merged.settings.average)
        merged.correction, merged.previous = -now * weights, past * weights
        merged.numbers["scale_sum"] = 0.0
        merged.numbers["intercept_sum"] = now * intercept
        merged.numbers["intercept_previous"] = past * intercept
        return merged

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All arrays and numbers, by name."""
        return {
            "v": self.v,
            "correction": self.correction,
            "previous": self.previous,
            "numbers": flat(self.numbers).copy(),
            "seconds": np.array(self.seconds),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, settings: NemsisSettings) -> NemsisState:
        """Inverse of `to_arrays`; arrays of the wrong name, type or shape raise a ValueError."""
        kind = cls.kind_for(arrays.n_classes)
        shape = kind.shape_for(arrays.width, arrays.n_classes)
        v, correction, previous = (
            arrays.take(name, *shape) for name in ("v", "correction", "previous")
        )
        numbers = arrays.record("numbers", kind.record)
        return kind(settings, v, correction, previous, numbers, arrays.real("seconds"))

    def check(self) -> None:
        """Raise a ValueError if the parts of the state are inconsistent."""
        if not self.is_finite():
            raise ValueError("its weights or estimates are not finite")
        tally = self.tally()
        check_tally(tally)
        steps, weight = float(self.numbers["steps"]), float(self.numbers["weight"])
        if not (0 <= steps < MOST and steps.is_integer() and (steps > 0) == (weight > 0)):
            raise ValueError(f"its number of points is {steps}, and their weight {weight}")
        if abs(tally[0].sum() - weight) > 1e-6 * max(weight, 1.0):
            raise ValueError(f"the weights of its classes do not add up to {weight}")
        if not self.numbers["scale"] > 0:
            raise ValueError(f"the scale of its weights is {self.numbers['scale']}, not positive")


class ClassNemsisState(NemsisState):
    """State of NEMSIS for more than two classes, with a row of weights for each class.

    In memory, classes come first for dense rows and features come first for CSR rows, as the kernel needs them (see
    `quapy_nemsis._kernels.rows.class_dots`). The shape of the arrays is the same.
    """

    record = class_kernel.NUMBERS
    lies_in_fours = False

    @classmethod
    def shape_for(cls, n_features: int, n_classes: int) -> tuple[int, ...]:
        """Shape of the weights."""
        return n_classes, n_features

    def tally(self) -> np.ndarray:
        """Points learned, sums of their rewards and predicted points, in three rows, for each class."""
        return np.array([self.numbers[name] for name in ("members", "rewards", "counted")])

    @staticmethod
    def _learn(
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        weights: np.ndarray,
        parts: np.ndarray,
        tasks: Sequence[tuple[int, NemsisState]],
    ) -> np.ndarray:
        """Run the kernel with learners and the parts that they leave out; the number of rows that each has passed."""
        states, left_out = [state for _, state in tasks], np.array([part for part, _ in tasks])
        measure, n_classes = states[0].settings.measure, len(states[0].v)
        values, _, gradient = measure.class_form()
        n_theta = len(measure.theta)
        compiled = class_callback(values, gradient, measure.affine, n_theta)
        thetas = np.array([state.settings.measure.theta for state in states])
        asks = class_asks(n_classes, thetas)
        options = np.array([state.settings.options() for state in states], dtype=kernel.OPTIONS)
        taken, scratch = np.zeros(len(states), dtype=np.int64), np.zeros((3, n_classes))
        for state in states:
            state.v, state.correction, state.previous = (
                laid_out(array, rows) for array in (state.v, state.correction, state.previous)
            )
        arrays = [
            (
                *(in_memory(array, rows) for array in (s.v, s.correction, s.previous)),
                *class_kernel.NUMBERS.split(s.numbers),
            )
            for s in states
        ]
        with together(arrays) as tables:
            class_kernel.nemsis(
                rows,
                order,
                labels,
                weights,
                parts,
                left_out,
                compiled.address,
                asks,
                options,
                *tables,
                scratch,
                taken,
            )
        return taken


@dataclass(eq=False, repr=False)
class NEMSISParameters(PosteriorParameters, WeightParameters, StepParameters):
    """Parameters of NEMSIS, shared by the classifier and the QuaPy quantifier (see `NEMSISClassifier`)."""

    measure: str | Measure = "q"
    _: KW_ONLY
    reward: str = AUTO
    estimates: str = "counts"
    monotone: bool = True
    reward_bound: float = 1.0

    def step_settings(self, measure: NestedMeasure, n_classes: int) -> NemsisSettings:
        """Check the parameters and return them as settings for a measure and a number of classes."""
        if n_classes > 2:
            measure.class_form()  # raises an error for a measure of two classes
        reward = self.reward
        if isinstance(reward, str) and reward == AUTO:
            reward = "hinge" if n_classes == 2 else "logistic"
        check_option("estimates", self.estimates, ESTIMATES)
        check_bool("monotone", self.monotone)
        check_positive("reward_bound", self.reward_bound)
        return NemsisSettings(
            measure=measure,
            reward=surrogate_code(reward),
            counts=ESTIMATES[self.estimates],
            monotone=bool(self.monotone),
            reward_bound=float(self.reward_bound),
            **self.checked_steps(),
        )


class NEMSISClassifier(NEMSISParameters, ProbabilisticOnlineClassifier[NemsisSettings]):
    """Linear classifier trained by NEMSIS (Algorithm 1 of Kar et al., KDD 2016).

    Each point (x, y) moves the weights by

        w ← Π_R( w + η₀/√t · (a_y/p_y) · ∇ reward(w; x, y) ),

    where a_y is the class gradient, the derivative of the measure with respect to the mean reward of class y, at the
    running estimates: a⁺ = γ₁α₁ + γ₂β₁ and a⁻ = γ₁α₂ + γ₂β₂ with α = ∇ζ₁(r), β = ∇ζ₂(r), γ = ∇Ψ(q) (lines 6, 9 and
    15-17). Our algorithm differs from the listing in three ways. The share of positives p is computed from the points
    seen so far. The estimates r are means over the points of each class seen so far; they have the same expectation as
    the listing's Σ reward/p and a lower variance. There is an intercept, updated like the weight of a feature of value
    1 but scaled by the mean of min(‖x‖², 1) so far, so that it does not dominate small features.

    For more than two classes there is a weight vector for each class. A point of class i is pulled from class j to its
    own with the force a_ij = α_i/p_i + λ_i − λ_j, where α and λ are the derivatives of the measure by the recalls and
    by the counted prevalences (see `quapy_nemsis._kernels.multiclass`). The radius then bounds √2·‖W‖. With two classes
    this is the step above.

    Parameters
    ----------
    measure : str or Measure, default="q"
        The nested concave measure to optimise: a name such as "kld", "bakld:0.3" or "q" (see
        `quapy_nemsis.get_measure`), or a measure object.
    reward : {"hinge", "logistic", "auto"}, default="auto"
        Concave surrogate whose gradient updates the weights. For more than two classes, "hinge" is the hinge of Crammer
        and Singer, and "logistic" is softmax. "auto" is "hinge" for two classes and "logistic" for more, because its
        posteriors are better there.
    estimates : {"counts", "surrogate"}, default="counts"
        Compute the running estimates from 0-1 counts (the paper's NEMSIS-NS) or from the surrogate rewards (NEMSIS).
    monotone : bool, default=True
        Replace negative class gradients (for more than two classes, negative forces a_ij) by 0; False is the paper's
        algorithm with exact gradients.
    eta0 : float or "auto", default="auto"
        Step size; step t uses η₀/√t. "auto" chooses it (see `quapy_nemsis.learners.tuning`).
    radius : float or "auto", default="auto"
        Radius of the ball onto which the weights (not the intercept) are projected. "auto" chooses it in `fit`; in a
        stream, "auto" means no limit (infinity).
    reward_bound : float, default=1
        Bound B: surrogate rewards are clipped to [−B, 1] before they enter the estimates.
    n_passes : int or "auto", default="auto"
        Number of passes of `fit` over the data. "auto" makes as many as give 200,000 steps, but at least 5 and at most
        60.
    average : {"suffix", "all", "last"}, default="suffix"
        Which iterates the model averages: at least the last half ("suffix"), all of them, or only the last one.
    fit_intercept : bool, default=True
        Whether to learn an intercept.
    shuffle : bool, default=True
        Whether `fit` shuffles the rows before each pass.
    random_state : int, RandomState or None, default=None
        Seed for the random choices in `fit`, such as the order of the rows.
    record_every : int or None, default=None
        Add an entry to `history_` every `record_every` samples. None records nothing.
    verbose : int, default=0
        If not 0, `fit` prints the chosen step size and radius, and a line per pass.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn. They multiply the weights of the rows. They change the class shares
        that the measure and the posteriors refer to. `partial_fit` cannot use "balanced".
    posteriors : {"training", "balanced"}, default="training"
        The class prevalences that the posteriors of `predict_proba` assume. "training" uses the training prevalences,
        as QuaPy's EMQ and PCC need. "balanced" uses equal prevalences, with which PACC and other matching methods have
        lower errors if a class is rare.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels; the second of two is the positive class.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights: one row for two classes, a row for each of more.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    n_features_in_ : int
        Number of features.
    t_ : int
        Number of points seen, over all passes.
    eta0_, radius_ : float
        The step size and the radius that were used, whether given or chosen.
    tuning_ : dict of lists
        ``eta0``, ``radius``, ``value`` of the measure and ``ba`` of every candidate; empty if nothing was tuned.
    history_ : dict of lists
        ``samples`` seen, ``seconds`` spent inside the kernel, running estimates ``P`` and ``N`` (for more than two
        classes ``R`` and ``q``, lists with a number for each class), and the measure's ``value`` at these
        estimates. There is one entry per `record_every` samples, and none if that is None.

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
    >>> learner.t_  # 60 passes over 569 rows
    34140
    """

    state_type = NemsisState
    resume_parameters = "average and estimates"

    def settings(self, n_classes: int = 2) -> NemsisSettings:
        """Check the parameters and return them as settings."""
        measure = get_measure(self.measure)
        if isinstance(measure, PseudoMeasure):
            raise ValueError(
                f"NEMSIS optimises nested concave measures, and {measure!r} is pseudo-concave: "
                "use SCANClassifier or CANClassifier (SCAN or CAN in QuaPy)"
            )
        if not isinstance(measure, NestedMeasure):
            raise ValueError(
                f"{measure!r} ({measure.formula}) is for evaluation only; choose another"
            )
        return self.step_settings(measure, n_classes)
