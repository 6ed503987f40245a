"""SCAN (Algorithm 3 of the paper): its settings, its state, and the classifier."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._kernels.level import SUMS, level
from quapy_nemsis._kernels.rows import Rows
from quapy_nemsis._validation import check_integer, check_positive
from quapy_nemsis.learners.base import ProbabilisticOnlineClassifier
from quapy_nemsis.learners.nemsis import NEMSISParameters, NemsisSettings, NemsisState
from quapy_nemsis.learners.state import (
    MOST,
    Arrays,
    SingleState,
    check_counted,
    from_record,
    in_threads,
    prefixed,
    together,
)
from quapy_nemsis.measures import (
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
        """Radius of the ball that the weights are projected on."""
        return self.steps.radius

    @property
    def resume_signature(self) -> tuple[int, ...]:
        """What a state cannot go on without."""
        return self.steps.resume_signature

    def completed(self, eta0: float, radius: float) -> Self:
        """Settings with these values where they were still to be chosen."""
        return replace(self, steps=self.steps.completed(eta0, radius))

    def at_level(self, level: float) -> NemsisSettings:
        """Settings of the steps on the valuation at a level."""
        return replace(self.steps, measure=self.measure.valuation(level))

    def learning_length(self, epoch: int) -> int:
        """Points of the learning phase, s_e."""
        try:
            return min(round(self.first_epoch * self.growth**epoch), MOST - 1)
        except OverflowError:
            return MOST - 1

    def level_length(self, epoch: int) -> int:
        """Points of the level phase, s'_e."""
        return max(1, round(min(self.level_share * self.learning_length(epoch), MOST - 1)))

    def phase_length(self, epoch: int, learning: bool) -> int:
        """Points of a phase."""
        return self.learning_length(epoch) if learning else self.level_length(epoch)


@dataclass
class ScanState(SingleState[ScanSettings]):
    """A NEMSIS state on the valuation at the current level, and where in SCAN's epochs it stands."""

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
    #: The model that a level phase judges, and its rewards so far.
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0))
    intercept: float = 0.0
    sums: np.ndarray = field(default_factory=SUMS.zeros)

    @classmethod
    def start(cls, n_features: int, settings: ScanSettings) -> Self:
        """State before the first point: zero weights, level 0."""
        state = cls(settings, NemsisState.start(n_features, settings.at_level(0.0)))
        state.left = settings.phase_length(*state.phase)
        return state

    def adopt(self, settings: ScanSettings) -> None:
        """Go on with other settings; what they leave open stays as it was."""
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
        """Number of points learned from."""
        return self.nemsis.steps

    @property
    def t(self) -> int:
        """Number of points seen, in both kinds of phases."""
        return self.steps + self.judged

    @property
    def seconds(self) -> float:
        """Time spent inside kernels."""
        return self.nemsis.seconds

    @property
    def phase(self) -> tuple[int, bool]:
        """Epoch, and whether in its learning phase."""
        return len(self.levels), self.learning

    def counted(self) -> tuple[float, float, float, float]:
        """Numbers of positives and negatives learned from, and the sums of their rewards."""
        return self.nemsis.counted()

    def place(self) -> tuple[int, ...]:
        """Where in the stream it is."""
        return self.t, self.steps, *self.phase, self.left

    def model(self) -> tuple[np.ndarray, float]:
        """Weights and intercept, averaged as the settings say."""
        return self.nemsis.model()

    def objective(self) -> Valuation:
        """The valuation at the current level."""
        return self.settings.measure.valuation(self.level)

    def details(self) -> dict[str, Any]:
        """The level after each finished epoch."""
        return {"levels": np.array(self.levels)}

    @classmethod
    def learn_together(
        cls, states: Sequence[Self], rows: Rows, positive: np.ndarray, order: np.ndarray
    ) -> list[bool]:
        """Let learners in the same phase learn the same rows, through as many phases as these fill.

        The result says of each whether it stayed finite.
        """
        fine = [True] * len(states)
        done = 0
        while done < len(order) and any(fine):
            alive = [i for i, stays in enumerate(fine) if stays]
            going = [states[i] for i in alive]
            part = order[done : done + going[0].left]
            if going[0].learning:
                inner = [state.nemsis for state in going]
                stayed = NemsisState.learn_together(inner, rows, positive, part)
            else:
                stayed = cls._judge_together(going, rows, positive, part)
            done += len(part)
            for i, stays in zip(alive, stayed, strict=True):
                fine[i] = stays
                states[i].left -= len(part)
                if stays and states[i].left == 0:
                    states[i]._turn()
        return fine

    @staticmethod
    def _judge_together(
        states: Sequence[ScanState], rows: Rows, positive: np.ndarray, part: np.ndarray
    ) -> list[bool]:
        """Take the rewards of the rows, without learning them."""
        common = states[0].settings.steps

        def judge(several: Sequence[ScanState]) -> np.ndarray:
            intercepts = np.array([state.intercept for state in several])
            taken = np.zeros(len(several), dtype=np.int64)
            with together([(s.weights, s.sums) for s in several]) as (weights, sums):
                level(
                    rows,
                    part,
                    positive,
                    common.reward,
                    common.counts,
                    common.reward_bound,
                    weights,
                    intercepts,
                    sums,
                    taken,
                )
            return taken

        begin = time.perf_counter()
        taken = in_threads(judge, states, len(part))
        seconds = time.perf_counter() - begin
        for count, state in zip(taken, states, strict=True):
            state.nemsis.seconds += seconds
            state.judged += int(count)
        return [bool(count == len(part)) for count in taken]

    def _turn(self) -> None:
        """From a phase to the next."""
        if self.learning:
            self.weights, self.intercept = self.model()
            self.sums = SUMS.zeros()
        else:
            self.level = self._new_level()
            self.levels.append(self.level)
            self.nemsis.settings = self.settings.at_level(self.level)
        self.learning = not self.learning
        self.left = self.settings.phase_length(*self.phase)

    def _new_level(self) -> float:
        """P_class/P_quant of the judged model (line 19); the old level if a class did not occur.

        Surrogate rewards may put it below 0 or above what perfect rates would give: it is clipped to that range.
        """
        reward_pos, positives, reward_neg, negatives = self.sums.item()
        if min(positives, negatives) == 0.0:
            return self.level
        measure, (_, _, p, eps) = self.settings.measure, self.rates()
        highest = measure.value(1.0, 1.0, p, eps)
        reached = measure.value(reward_pos / positives, reward_neg / negatives, p, eps)
        return min(max(reached, 0.0), highest)

    @classmethod
    def merge(cls, states: Sequence[Self], base: Self | None) -> Self:
        """One state out of those of several learners that began with the same base, or from nothing.

        It goes on in the phase of the learner that is furthest, at the mean level of those in that phase, with what
        all of them have taken of it; the phase may be over with that.
        """
        moved = [state for state in states if base is None or state.t > base.t]
        if len(moved) <= 1:
            return (moved or states)[0].copy()
        merged = max(moved, key=lambda state: (state.t, state.levels)).copy()
        inner = [state.nemsis for state in moved]
        merged.nemsis = NemsisState.combined(inner, base.nemsis if base else None, merged.nemsis)
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
            for name in SUMS.sums:
                known = start.sums[name] if start else 0.0
                merged.sums[name] = known + sum(state.sums[name] - known for state in here)
            if start is None:
                merged.weights, merged.intercept = merged.model()
        return merged

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All numbers, by name."""
        return {
            **prefixed("nemsis", self.nemsis.to_arrays()),
            "level": np.array(self.level),
            "levels": np.array(self.levels, dtype=float),
            "learning": np.array(self.learning, dtype=np.int64),
            "left": np.array(self.left, dtype=np.int64),
            "judged": np.array(self.judged, dtype=np.int64),
            "weights": self.weights,
            "intercept": np.array(self.intercept),
            "sums": from_record(self.sums),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, settings: ScanSettings) -> Self:
        """The inverse of `to_arrays`; refuses arrays of other names, types or shapes."""
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
            arrays.take("weights", None),
            arrays.real("intercept"),
            arrays.record("sums", SUMS),
        )

    def check(self) -> None:
        """Refuse a state whose parts do not fit together, with a ValueError."""
        self.nemsis.check()
        numbers = [*self.weights, self.intercept, self.level, *self.levels, *self.sums.item()]
        if not np.isfinite(numbers).all():
            raise ValueError("its levels, or the model that it judges, are not finite")
        if min(self.level, *self.levels, 0.0) < 0:
            raise ValueError("its levels are negative")
        if len(self.levels) > self.judged:
            raise ValueError("it has seen fewer points than its levels need")
        reward_pos, positives, reward_neg, negatives = self.sums.item()
        check_counted(positives, negatives, reward_pos, reward_neg)
        # The model that is judged is there from the first level phase on.
        width = len(self.nemsis.v)
        if len(self.weights) not in ((0, width) if self.learning else (width,)):
            raise ValueError("the model that it judges is of another width")


@dataclass(eq=False, repr=False)
class SCANParameters(NEMSISParameters):
    """Parameters of SCAN, written once for the classifier and the QuaPy quantifier (see `SCANClassifier`)."""

    measure: str | Measure = "cq"
    _: KW_ONLY
    first_epoch: int = 100
    growth: float = 2.0
    level_share: float = 0.25


class SCANClassifier(SCANParameters, ProbabilisticOnlineClassifier[ScanSettings]):
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

    state_type = ScanState
    resume_parameters = "average and estimates"

    @property
    def levels_(self) -> np.ndarray:
        """The level after each finished epoch."""
        check_is_fitted(self)
        return self.state_.details()["levels"]

    def settings(self) -> ScanSettings:
        """The parameters, checked."""
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
            steps=self.step_settings(measure.valuation(0.0)),
            first_epoch=int(self.first_epoch),
            growth=float(self.growth),
            level_share=float(self.level_share),
        )
