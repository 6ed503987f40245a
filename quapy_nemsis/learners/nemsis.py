"""NEMSIS (Algorithm 1 of the paper): settings, state and classifier."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from quapy_nemsis._kernels import nemsis as kernel
from quapy_nemsis._kernels.rows import Rows
from quapy_nemsis._validation import check_bool, check_option, check_positive
from quapy_nemsis.learners.base import ProbabilisticOnlineClassifier, StepParameters
from quapy_nemsis.learners.state import (
    Arrays,
    SingleState,
    StepSettings,
    averaged,
    check_counted,
    counted,
    from_record,
    in_threads,
    together,
)
from quapy_nemsis.measures import Measure, NestedMeasure, PseudoMeasure, get_measure
from quapy_nemsis.measures.contract import THETA, measure_callback
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
    """State of NEMSIS: weights, sums for the averaged model, counts, estimates (see `quapy_nemsis._kernels.nemsis`)."""

    settings: NemsisSettings
    v: np.ndarray
    correction: np.ndarray
    previous: np.ndarray
    numbers: np.ndarray
    #: Time spent inside the kernel.
    seconds: float = 0.0

    @classmethod
    def start(cls, n_features: int, settings: NemsisSettings) -> Self:
        """State before the first point: zero weights."""
        numbers = kernel.NUMBERS.zeros()
        numbers["scale"] = 1.0
        v, correction, previous = (np.zeros(n_features) for _ in range(3))
        return cls(settings, v, correction, previous, numbers)

    def copy(self) -> Self:
        """Independent copy."""
        arrays = ("v", "correction", "previous", "numbers")
        return replace(self, **{name: getattr(self, name).copy() for name in arrays})

    @property
    def steps(self) -> int:
        """Number of points learned."""
        return int(self.numbers["steps"])

    def counted(self) -> tuple[float, float, float, float]:
        """Numbers of positives and negatives learned, and the sums of their rewards."""
        return counted(self.numbers)

    def objective(self) -> NestedMeasure:
        """The measure that the steps increase."""
        return self.settings.measure

    @classmethod
    def learn_together(
        cls, states: Sequence[Self], rows: Rows, positive: np.ndarray, order: np.ndarray
    ) -> list[bool]:
        """Let learners that have seen the same points learn the same rows; return for each whether it stayed finite.

        The learners may differ in step size, radius and parameters of the measure. Each learns exactly what it would
        learn alone. Each row is read once per processor.
        """
        begin = time.perf_counter()
        work = partial(_learn, rows, positive, order)
        taken = work(states) if len(states) == 1 else in_threads(work, states, len(order))
        seconds = time.perf_counter() - begin
        for state in states:
            state.seconds += seconds
        return [
            bool(count == len(order) and state.is_finite())
            for count, state in zip(taken, states, strict=True)
        ]

    def is_finite(self) -> bool:
        """Whether every number of the state is finite."""
        parts = (self.v, self.correction, self.previous, from_record(self.numbers))
        return all(np.isfinite(part).all() for part in parts)

    def model(self) -> tuple[np.ndarray, float]:
        """Weights and intercept, averaged according to the settings."""
        n, average = self.numbers, self.settings.average
        if average == kernel.LAST or self.steps == 0:
            return n["scale"] * self.v, float(n["intercept"])
        weights = n["scale_sum"] * self.v - self.correction
        intercept = n["intercept_sum"]
        if average == kernel.SUFFIX:
            weights = weights + self.previous
            intercept = intercept + n["intercept_previous"]
        count = sum(averaged(self.steps, average))
        return weights / count, float(intercept / count)

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
        for name in kernel.NUMBERS.sums:
            known = base.numbers[name] if base is not None else 0.0
            merged.numbers[name] = known + (numbers[name] - known).sum()
        merged.seconds = max(state.seconds for state in states)
        learned = np.array([state.steps - (base.steps if base else 0) for state in states])
        if not learned.any():  # for example in a level phase of SCAN
            return merged
        share = learned / learned.sum()
        for name in kernel.NUMBERS.means:
            merged.numbers[name] = share @ numbers[name]
        merged.v = share @ np.array([state.numbers["scale"] * state.v for state in states])
        merged.numbers["scale"] = 1.0
        merged.numbers["norm2"] = merged.v @ merged.v
        # Set the sums of both windows as if all iterates were equal to the mean of the averaged models.
        models = [state.model() for state in states]
        weights = share @ np.array([weights for weights, _ in models])
        intercept = float(share @ [intercept for _, intercept in models])
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
            "numbers": from_record(self.numbers),
            "seconds": np.array(self.seconds),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, settings: NemsisSettings) -> Self:
        """Inverse of `to_arrays`; arrays of the wrong name, type or shape raise a ValueError."""
        names = ("v", "correction", "previous")
        v, correction, previous = (arrays.take(name, arrays.width) for name in names)
        numbers = arrays.record("numbers", kernel.NUMBERS)
        return cls(settings, v, correction, previous, numbers, arrays.real("seconds"))

    def check(self) -> None:
        """Raise a ValueError if the parts of the state are inconsistent."""
        if not self.is_finite():
            raise ValueError("its weights or estimates are not finite")
        check_counted(*self.counted())
        if not self.numbers["scale"] > 0:
            raise ValueError(f"the scale of its weights is {self.numbers['scale']}, not positive")


def _learn(
    rows: Rows, positive: np.ndarray, order: np.ndarray, states: Sequence[NemsisState]
) -> np.ndarray:
    """Run the kernel; the number of rows that each learner took."""
    measure = states[0].settings.measure
    values, _, gradient = measure.functions
    n_theta = len(measure.theta)
    compiled = measure_callback(values, gradient, measure.affine, n_theta)
    asks = np.zeros((len(states), THETA + n_theta))
    asks[:, THETA:] = [state.settings.measure.theta for state in states]
    options = np.array([state.settings.options() for state in states], dtype=kernel.OPTIONS)
    taken = np.zeros(len(states), dtype=np.int64)
    with together([(s.v, s.correction, s.previous, s.numbers) for s in states]) as tables:
        kernel.nemsis(rows, order, positive, compiled.address, asks, options, *tables, taken)
    return taken


@dataclass(eq=False, repr=False)
class NEMSISParameters(StepParameters):
    """Parameters of NEMSIS, shared by the classifier and the QuaPy quantifier (see `NEMSISClassifier`)."""

    measure: str | Measure = "q"
    _: KW_ONLY
    reward: str = "hinge"
    estimates: str = "counts"
    monotone: bool = True
    reward_bound: float = 1.0

    def step_settings(self, measure: NestedMeasure) -> NemsisSettings:
        """Check the parameters and return them as settings for a measure."""
        check_option("estimates", self.estimates, ESTIMATES)
        check_bool("monotone", self.monotone)
        check_positive("reward_bound", self.reward_bound)
        return NemsisSettings(
            measure=measure,
            reward=surrogate_code(self.reward),
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
    15-17). Three choices go beyond the listing. The share of positives p is that of the points seen so far. The
    estimates r are means over the points of each class seen so far; they have the same expectation as the listing's
    Σ reward/p and a lower variance. There is an intercept, updated like the weight of a feature of value 1 but scaled
    by the mean of min(‖x‖², 1) so far, so that it does not dominate small features.

    Parameters
    ----------
    measure : str or Measure, default="q"
        The nested concave measure to optimise: a name such as "kld", "bakld:0.3" or "q" (see
        `quapy_nemsis.get_measure`), or a measure object.
    reward : {"hinge", "logistic"}, default="hinge"
        Concave surrogate whose gradient updates the weights.
    estimates : {"counts", "surrogate"}, default="counts"
        Compute the running estimates from 0-1 counts (the paper's NEMSIS-NS) or from the surrogate rewards (NEMSIS).
    monotone : bool, default=True
        Replace negative class gradients by 0; False is the paper's algorithm with exact gradients.
    eta0 : float or "auto", default="auto"
        Step size; step t uses η₀/√t. "auto" chooses it (see `quapy_nemsis.learners.tuning`).
    radius : float or "auto", default="auto"
        Radius of the ball onto which the weights (not the intercept) are projected. "auto" chooses it in `fit`; in a
        stream, "auto" means no limit (infinity).
    reward_bound : float, default=1
        B. Surrogate rewards are clipped to [−B, 1] before they enter the estimates.
    n_passes : int, default=5
        Passes of `fit` over the data.
    average : {"suffix", "all", "last"}, default="suffix"
        Which iterates the model averages: at least the last half ("suffix"), all of them, or only the last one.
    fit_intercept : bool, default=True
        Whether to learn an intercept.
    shuffle : bool, default=True
        Whether `fit` learns the rows in a new random order in each pass.
    random_state : int, RandomState or None, default=None
        Seed of the random choices in `fit`, such as the order of the rows.
    record_every : int or None, default=None
        Add an entry to `history_` every `record_every` samples. None records nothing.
    verbose : int, default=0
        If not 0, `fit` prints the chosen step size and radius, and a line per pass.

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
        The step size and radius that were used, either given or chosen.
    tuning_ : dict of lists
        ``eta0``, ``radius``, ``value`` of the measure and ``ba`` of every candidate; empty if nothing was tuned.
    history_ : dict of lists
        ``samples`` seen, ``seconds`` spent inside the kernel, running estimates ``P`` and ``N``, and the measure's
        ``value`` at these estimates. There is one entry per `record_every` samples, and none if that is None.

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

    state_type = NemsisState
    resume_parameters = "average and estimates"

    def settings(self) -> NemsisSettings:
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
        return self.step_settings(measure)
