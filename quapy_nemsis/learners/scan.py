"""SCAN (Algorithm 3 of the paper): settings, state and classifier."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._jit import Record
from quapy_nemsis._kernels import level as kernel
from quapy_nemsis._kernels import multiclass as class_kernel
from quapy_nemsis._kernels.rows import Rows
from quapy_nemsis._validation import check_integer, check_positive
from quapy_nemsis.learners.base import ProbabilisticOnlineClassifier
from quapy_nemsis.learners.nemsis import NEMSISParameters, NemsisSettings, NemsisState
from quapy_nemsis.learners.state import (
    MOST,
    UNWEIGHTED,
    Arrays,
    Model,
    SingleState,
    check_tally,
    flat,
    in_memory,
    in_threads,
    laid_out,
    prefixed,
    together,
    two_class_tally,
)
from quapy_nemsis.measures import (
    ClassRates,
    Measure,
    NestedMeasure,
    PseudoMeasure,
    Valuation,
    get_measure,
)

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class ScanSettings:
    """Checked parameters of SCAN: those of its NEMSIS steps, and the lengths of its epochs."""

    measure: PseudoMeasure
    steps: NemsisSettings
    first_epoch: int
    growth: float
    level_share: float

    @property
    def eta0(self) -> float:
        """Step size."""
        return self.steps.eta0

    @property
    def radius(self) -> float:
        """Radius of the ball onto which the weights are projected."""
        return self.steps.radius

    @property
    def resume_signature(self) -> tuple[int, ...]:
        """Values that must not change between calls, or learning cannot resume from the state."""
        return self.steps.resume_signature

    def completed(self, eta0: float, radius: float) -> Self:
        """Settings in which these values replace those still to be chosen (NaN)."""
        return replace(self, steps=self.steps.completed(eta0, radius))

    def at_level(self, level: float) -> NemsisSettings:
        """Settings for NEMSIS steps that optimise the valuation at a level."""
        return replace(self.steps, measure=self.measure.valuation(level))

    def learning_length(self, epoch: int) -> int:
        """Number of points in the learning phase of an epoch, s_e."""
        try:
            return min(round(self.first_epoch * self.growth**epoch), MOST - 1)
        except OverflowError:
            return MOST - 1

    def level_length(self, epoch: int) -> int:
        """Number of points in the level phase of an epoch, s'_e."""
        return max(1, round(min(self.level_share * self.learning_length(epoch), MOST - 1)))

    def phase_length(self, epoch: int, learning: bool) -> int:
        """Number of points in a phase of an epoch."""
        return self.learning_length(epoch) if learning else self.level_length(epoch)


@dataclass
class ScanState(SingleState[ScanSettings]):
    """State of SCAN: a NEMSIS state for the valuation at the current level, and the position within the epochs."""

    settings: ScanSettings
    nemsis: NemsisState
    level: float = 0.0
    #: The level after each finished epoch.
    levels: list[float] = field(default_factory=list)
    learning: bool = True
    #: Points left in this phase.
    left: int = 0
    #: Points seen in level phases.
    judged: int = 0
    #: The model that a level phase evaluates, and its rewards so far.
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0))
    intercept: Any = 0.0
    sums: np.ndarray = field(default_factory=kernel.SUMS.zeros)

    @classmethod
    def start(cls, n_features: int, n_classes: int, settings: ScanSettings) -> Self:
        """State before the first point: zero weights, level 0."""
        state = cls(settings, NemsisState.start(n_features, n_classes, settings.at_level(0.0)))
        state.left = settings.phase_length(*state.phase)
        state.intercept = state.model()[1]
        state.sums = record_for(n_classes).zeros(n_classes)
        return state

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.nemsis.tally().shape[1]

    def adopt(self, settings: ScanSettings) -> None:
        """Continue with other settings; values that these leave open (NaN) stay as they are."""
        super().adopt(settings)
        self.nemsis.settings = self.settings.at_level(self.level)

    def copy(self) -> Self:
        """Independent copy."""
        return replace(
            self,
            nemsis=self.nemsis.copy(),
            levels=list(self.levels),
            weights=self.weights.copy(),
            sums=self.sums.copy(),
        )

    @property
    def steps(self) -> int:
        """Number of points learned."""
        return self.nemsis.steps

    @property
    def t(self) -> int:
        """Number of points seen, in learning and level phases."""
        return self.steps + self.judged

    @property
    def seconds(self) -> float:
        """Time spent inside kernels."""
        return self.nemsis.seconds

    @property
    def phase(self) -> tuple[int, bool]:
        """Number of the epoch, and whether it is in its learning phase."""
        return len(self.levels), self.learning

    def tally(self) -> np.ndarray:
        """Points learned, sums of their rewards and predicted points, in three rows, for each class."""
        return self.nemsis.tally()

    def place(self) -> tuple[int, ...]:
        """Position in the stream; learners at the same position can learn together."""
        return self.t, self.steps, *self.phase, self.left

    def model(self) -> Model:
        """Weights and intercept, averaged according to the settings."""
        return self.nemsis.model()

    def objective(self) -> Valuation:
        """The valuation at the current level."""
        return self.settings.measure.valuation(self.level)

    def details(self) -> dict[str, Any]:
        """The level after each finished epoch."""
        return {"levels": np.array(self.levels)}

    @classmethod
    def learn_together(
        cls,
        states: Sequence[Self],
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        weights: np.ndarray = UNWEIGHTED,
    ) -> list[bool]:
        """Let learners in the same phase learn the same rows; return for each whether it stayed finite.

        The rows may span several phases.
        """
        fine = [True] * len(states)
        done = 0
        while done < len(order) and any(fine):
            alive = [i for i, stays in enumerate(fine) if stays]
            going = [states[i] for i in alive]
            part = order[done : done + going[0].left]
            if going[0].learning:
                inner = [state.nemsis for state in going]
                stayed = NemsisState.learn_together(inner, rows, labels, part, weights)
            else:
                stayed = cls._evaluate_together(going, rows, labels, part, weights)
            done += len(part)
            for i, stays in zip(alive, stayed, strict=True):
                fine[i] = stays
                states[i].left -= len(part)
                if stays and states[i].left == 0:
                    states[i]._turn()
        return fine

    @staticmethod
    def _evaluate_together(
        states: Sequence[ScanState],
        rows: Rows,
        labels: np.ndarray,
        part: np.ndarray,
        weights: np.ndarray,
    ) -> list[bool]:
        """Add up the rewards of the rows without learning them; return for each learner whether it stayed finite."""
        common, n_classes = states[0].settings.steps, states[0].n_classes
        options = (common.reward, common.counts, common.reward_bound)

        def evaluate(several: Sequence[ScanState]) -> np.ndarray:
            intercepts = np.array([state.intercept for state in several])
            taken = np.zeros(len(several), dtype=np.int64)
            data = (rows, part, labels, weights, *options)
            if n_classes == 2:
                with together([(s.weights, s.sums) for s in several]) as (models, sums):
                    kernel.level(*data, models, intercepts, sums, taken)
                return taken
            for state in several:
                state.weights = laid_out(state.weights, rows)
            parts = [class_kernel.SUMS.split(state.sums)[1] for state in several]
            arrays = [(in_memory(s.weights, rows), p) for s, p in zip(several, parts, strict=True)]
            scratch = np.zeros((2, n_classes))
            with together(arrays) as (models, sums):
                class_kernel.level(*data, models, intercepts, sums, scratch, taken)
            return taken

        begin = time.perf_counter()
        taken = in_threads(evaluate, states, len(part))
        seconds = time.perf_counter() - begin
        for count, state in zip(taken, states, strict=True):
            state.nemsis.seconds += seconds
            state.judged += int(count)
        return [bool(count == len(part)) for count in taken]

    def _turn(self) -> None:
        """Move to the next phase."""
        if self.learning:
            self.weights, self.intercept = self.model()
            self.sums = record_for(self.n_classes).zeros(self.n_classes)
        else:
            self.level = self._new_level()
            self.levels.append(self.level)
            self.nemsis.settings = self.settings.at_level(self.level)
        self.learning = not self.learning
        self.left = self.settings.phase_length(*self.phase)

    def level_tally(self) -> np.ndarray:
        """Points of the level phase, sums of their rewards and predicted points, in three rows, for each class."""
        if self.n_classes > 2:
            return np.array([self.sums[name] for name in class_kernel.SUMS.sums])
        reward_pos, positives, reward_neg, negatives = self.sums.item()
        return two_class_tally(positives + negatives, positives, reward_pos, reward_neg)

    def _new_level(self) -> float:
        """P_class/P_quant of the evaluated model (line 19).

        The recalls are those of the level phase, the shares of the classes those of all points learned. If one of two
        classes did not occur in the phase, the level stays; of more classes, those that did not occur keep their
        running recall. With surrogate rewards the ratio may be below 0 or above its value at perfect rates, so it is
        clipped to that range.
        """
        found, running, measure = self.level_tally(), self.rates(), self.settings.measure
        if isinstance(running, ClassRates):
            p, seen = running.p, ClassRates.of(*found)
            recalls = np.where(found[0] > 0.0, seen.R, running.R)
            # The counts that the recalls imply at the shares p, with misses spread evenly where these differ.
            change = p - seen.p
            missed = change * (1.0 - recalls) / (len(p) - 1)
            counted = seen.q + change * recalls + missed.sum() - missed
            highest = measure.class_value(np.ones(len(p)), p, p, running.eps)
            reached = measure.class_value(recalls, counted, p, running.eps)
        else:
            if found[0].min() == 0.0:
                return self.level
            recall_neg, recall_pos = found[1] / found[0]
            highest = measure.value(1.0, 1.0, running.p, running.eps)
            reached = measure.value(recall_pos, recall_neg, running.p, running.eps)
        return min(max(reached, 0.0), highest)

    @classmethod
    def merge(cls, states: Sequence[Self], base: Self | None) -> Self:
        """Merge the states of several learners that started from the same base, or from scratch.

        The merged state continues in the phase of the most advanced learner. Its level is the mean level of the
        learners in that phase, and the points that they have seen in the phase are added. These may complete the phase.
        """
        moved = [state for state in states if base is None or state.t > base.t]
        if len(moved) <= 1:
            return (moved or states)[0].copy()
        merged = max(moved, key=lambda state: (state.t, state.levels)).copy()
        inner = [state.nemsis for state in moved]
        merged.nemsis = merged.nemsis.combined(inner, base.nemsis if base else None, merged.nemsis)
        seen = base.judged if base is not None else 0
        merged.judged = seen + sum(state.judged - seen for state in moved)
        here = [state for state in moved if state.phase == merged.phase]
        start = base if base is not None and base.phase == merged.phase else None
        length = start.left if start else merged.settings.phase_length(*merged.phase)
        merged.left = max(length - sum(length - state.left for state in here), 0)
        levels, points = [state.level for state in here], [state.t for state in here]
        merged.level = float(np.average(levels, weights=points))
        merged.nemsis.settings = merged.settings.at_level(merged.level)
        if not merged.learning:
            for name in record_for(merged.n_classes).sums:
                known = start.sums[name] if start else 0.0
                merged.sums[name] = known + sum(state.sums[name] - known for state in here)
            if start is None:
                merged.weights, merged.intercept = merged.model()
        return merged

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All arrays and numbers, by name."""
        return {
            **prefixed("nemsis", self.nemsis.to_arrays()),
            "level": np.array(self.level),
            "levels": np.array(self.levels, dtype=float),
            "learning": np.array(self.learning, dtype=np.int64),
            "left": np.array(self.left, dtype=np.int64),
            "judged": np.array(self.judged, dtype=np.int64),
            "weights": self.weights,
            "intercept": np.array(self.intercept),
            "sums": flat(self.sums).copy(),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, settings: ScanSettings) -> Self:
        """Inverse of `to_arrays`; arrays of the wrong name, type or shape raise a ValueError."""
        level = arrays.real("level")
        inner = arrays.part("nemsis")
        nemsis = NemsisState.from_arrays(inner, settings.at_level(level))
        inner.finish()
        return cls(
            settings,
            nemsis,
            level,
            arrays.take("levels", None).tolist(),
            bool(arrays.count("learning")),
            arrays.count("left"),
            arrays.count("judged"),
            arrays.take("weights", *[None] * arrays.arrays.get("weights", np.zeros(0)).ndim),
            arrays.take("intercept", *nemsis.model()[1].shape)[()],
            arrays.record("sums", record_for(arrays.n_classes)),
        )

    def check(self) -> None:
        """Raise a ValueError if the parts of the state are inconsistent."""
        self.nemsis.check()
        numbers = [
            *np.ravel(self.weights),
            *np.ravel(self.intercept),
            self.level,
            *self.levels,
            *flat(self.sums),
        ]
        if not np.isfinite(numbers).all():
            raise ValueError("its levels, or the model that it evaluates, are not finite")
        if min(self.level, *self.levels, 0.0) < 0:
            raise ValueError("its levels are negative")
        if len(self.levels) > self.judged:
            raise ValueError("it has seen fewer points than its levels need")
        check_tally(self.level_tally())
        # The evaluated model exists from the first level phase on.
        shapes = [self.nemsis.v.shape, *([(0,)] if self.learning else [])]
        if self.weights.shape not in shapes:
            raise ValueError("the model that it evaluates has a different number of features")


def record_for(n_classes: int) -> Record:
    """The numbers that a level phase keeps."""
    return kernel.SUMS if n_classes == 2 else class_kernel.SUMS


@dataclass(eq=False, repr=False)
class SCANParameters(NEMSISParameters):
    """Parameters of SCAN, shared by the classifier and the QuaPy quantifier (see `SCANClassifier`)."""

    measure: str | Measure = "cq"
    _: KW_ONLY
    first_epoch: int = 100
    growth: float = 2.0
    level_share: float = 0.25


class SCANClassifier(SCANParameters, ProbabilisticOnlineClassifier[ScanSettings]):
    """Linear classifier trained by SCAN (Algorithm 3 of Kar et al., KDD 2016), for pseudo-concave measures.

    The ratio P_class/P_quant is not concave. However, it is at least v exactly where the valuation P_class − v·P_quant
    is at least 0, and the valuation is concave. SCAN works in epochs of geometrically growing length, each with two
    phases. The learning phase optimises the valuation at the current level v by NEMSIS steps with Ψ(x, y) = x − v·y.
    The level phase then evaluates the model on points it does not learn from; the result is the new level.

    The listing does not keep the learned weights. Here w, its estimates and the step counter carry over from epoch to
    epoch. Restarting the counter, as the listing does, would change the step sizes by a constant factor only (epochs
    grow geometrically), but each epoch would begin with steps that undo the previous one.

    Parameters
    ----------
    measure : str or Measure, default="cq"
        The pseudo-concave measure to optimise: "cq", "bk" or a measure object, such as a `PseudoConcave`.
    reward : {"hinge", "logistic", "auto"}, default="auto"
        Concave surrogate whose gradient updates the weights, as in `NEMSISClassifier`. "auto" is "hinge" for two
        classes and "logistic" for more.
    estimates : {"counts", "surrogate"}, default="counts"
        Compute estimates and levels from 0-1 counts (the paper's SCAN-NS) or from the surrogate rewards (SCAN).
    monotone : bool, default=True
        Replace negative class gradients (for more than two classes, negative forces) by 0.
    eta0 : float or "auto", default="auto"
        Step size; step t uses η₀/√t. "auto" chooses it (see `quapy_nemsis.learners.tuning`).
    radius : float or "auto", default="auto"
        Radius of the ball onto which the weights (not the intercept) are projected. "auto" chooses it in `fit`; in a
        stream, "auto" means no limit (infinity).
    reward_bound : float, default=1
        Bound B: surrogate rewards are clipped to [−B, 1] before they enter the estimates.
    n_passes : int or "auto", default="auto"
        Number of passes of `fit` over the data, as in `NEMSISClassifier`. Epochs may span several passes.
    average : {"suffix", "all", "last"}, default="suffix"
        Which iterates the model averages: at least the last half ("suffix"), all of them, or only the last one.
    fit_intercept : bool, default=True
        Whether to learn an intercept.
    shuffle : bool, default=True
        Whether `fit` shuffles the rows before each pass.
    random_state : int, RandomState or None, default=None
        Seed for the random choices in `fit`, such as the order of the rows.
    first_epoch : int, default=100
        Number of points in the first learning phase, s₀.
    growth : float, default=2
        Ratio of an epoch's length to that of the previous epoch.
    level_share : float, default=0.25
        Length of a level phase relative to the learning phase of the same epoch, s'_e/s_e.
    record_every : int or None, default=None
        Add an entry to `history_` every `record_every` samples. None records nothing.
    verbose : int, default=0
        If not 0, `fit` prints the chosen step size and radius, and a line per pass.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in `NEMSISClassifier`.
    posteriors : {"training", "balanced"}, default="training"
        The class prevalences that the posteriors of `predict_proba` assume. "training" uses the training prevalences,
        as QuaPy's EMQ and PCC need. "balanced" uses equal prevalences, with which PACC and other matching methods have
        lower errors if a class is rare.

    Attributes
    ----------
    levels_ : ndarray of shape (n_epochs,)
        The level after each finished epoch.
    classes_, coef_, intercept_, n_features_in_, t_, eta0_, radius_, tuning_, history_
        See `NEMSISClassifier`; `t_` includes the points of level phases.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> learner = SCANClassifier("cq", random_state=0).fit(scale(X), y)
    >>> len(learner.levels_)
    8
    >>> bool(learner.levels_[-1] > 0.9)
    True
    """

    state_type = ScanState
    resume_parameters = "average and estimates"

    @property
    def levels_(self) -> np.ndarray:
        """The level after each finished epoch."""
        check_is_fitted(self)
        return self.state_.details()["levels"]

    def settings(self, n_classes: int = 2) -> ScanSettings:
        """Check the parameters and return them as settings."""
        measure = get_measure(self.measure)
        if isinstance(measure, NestedMeasure):
            raise ValueError(
                f"SCAN optimises pseudo-concave measures, and {measure!r} is nested concave: "
                "use NEMSISClassifier or CANClassifier (NEMSIS or CAN in QuaPy)"
            )
        if not isinstance(measure, PseudoMeasure):
            raise ValueError(
                f"{measure!r} ({measure.formula}) is for evaluation only; choose another"
            )
        check_integer("first_epoch", self.first_epoch)
        check_positive("growth", self.growth, finite=True)
        if self.growth < 1.0:
            raise ValueError(f"growth must be at least 1; got {self.growth!r}")
        check_positive("level_share", self.level_share, finite=True)
        return ScanSettings(
            measure=measure,
            steps=self.step_settings(measure.valuation(0.0), n_classes),
            first_epoch=int(self.first_epoch),
            growth=float(self.growth),
            level_share=float(self.level_share),
        )
