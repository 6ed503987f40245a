"""What a learner carries from one point to the next, and how it walks over rows."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from quapy_nemsis._jit import THETA, duals_callback
from quapy_nemsis._kernels import level as lv
from quapy_nemsis._kernels import nemsis as k
from quapy_nemsis.measures import Measure, NestedMeasure, PseudoMeasure

AVERAGES: dict[str, int] = {"last": k.LAST, "all": k.ALL, "suffix": k.SUFFIX}
# Points taken by learners below which threads cost more than they gain.
_WORTH_THREADS = 20_000


@dataclass(frozen=True)
class Settings:
    """A learner's checked parameters, as kernels take them."""

    measure: Measure
    eta0: float
    radius: float
    fit_intercept: bool
    average: int

    @property
    def kind(self) -> tuple:
        """What a state cannot go on without."""
        return (self.average,)


@dataclass(frozen=True)
class NemsisSettings(Settings):
    """The same for NEMSIS."""

    reward: int
    counts: bool
    monotone: bool
    reward_bound: float

    @property
    def kind(self) -> tuple:
        """What a state cannot go on without."""
        return self.average, self.counts


@dataclass(frozen=True)
class ScanSettings(NemsisSettings):
    """The same for SCAN, with the lengths of its epochs."""

    first_epoch: int
    growth: float
    level_share: float

    def learning_length(self, epoch: int) -> int:
        """Points of the learning phase, s_e."""
        return round(self.first_epoch * self.growth**epoch)

    def level_length(self, epoch: int) -> int:
        """Points of the level phase, s'_e."""
        return max(1, round(self.level_share * self.learning_length(epoch)))

    def phase_length(self, epoch: int, learning: bool) -> int:
        """Points of a phase."""
        return self.learning_length(epoch) if learning else self.level_length(epoch)


@contextmanager
def together(parts: list[tuple[np.ndarray, ...]]) -> Iterator[list[np.ndarray]]:
    """Tables with one row per learner; what is written to them goes back to the learners' own arrays."""
    if len(parts) == 1:
        yield [array[np.newaxis] for array in parts[0]]
        return
    tables = [np.stack(arrays) for arrays in zip(*parts, strict=True)]
    yield tables
    for row, arrays in enumerate(parts):
        for array, table in zip(arrays, tables, strict=True):
            array[:] = table[row]


def in_threads(work: Callable[[slice], np.ndarray], n_learners: int, n_points: int) -> np.ndarray:
    """Divide learners among threads, if there is enough to do; their results joined."""
    n_threads = min(os.cpu_count() or 1, n_learners)
    if n_threads == 1 or n_learners * n_points < _WORTH_THREADS:
        return work(slice(0, n_learners))
    edges = np.linspace(0, n_learners, n_threads + 1).round().astype(int)
    groups = [slice(a, b) for a, b in pairwise(edges)]
    with ThreadPoolExecutor(n_threads) as pool:
        return np.concatenate(list(pool.map(work, groups)))


@dataclass
class State:
    """Weights, sums for the averaged model, counts and estimates (see `quapy_nemsis._kernels.nemsis`)."""

    v: np.ndarray
    lag: np.ndarray
    before: np.ndarray
    scalars: np.ndarray
    #: Time spent inside the kernel.
    seconds: float = 0.0

    @classmethod
    def start(cls, n_features: int, settings: Settings) -> State:
        """State before the first point: zero weights."""
        scalars = np.zeros(k.N_SCALARS)
        scalars[k.SCALE] = 1.0
        return cls(np.zeros(n_features), np.zeros(n_features), np.zeros(n_features), scalars)

    def copy(self) -> State:
        """Independent copy."""
        return copy.deepcopy(self)

    @property
    def steps(self) -> int:
        """Number of points learned from."""
        return int(self.scalars[k.STEPS])

    @property
    def t(self) -> int:
        """Number of points seen."""
        return self.steps

    @property
    def p(self) -> float:
        """Share of positives among the points learned from."""
        return float(self.scalars[k.POSITIVES] / max(self.steps, 1))

    @property
    def eps(self) -> float:
        """Smoothing of the shares."""
        return 0.5 / max(self.steps, 1)

    @property
    def rewards(self) -> tuple[float, float]:
        """Running estimates (P, N) of the mean reward per class."""
        positives = self.scalars[k.POSITIVES]
        return (
            float(self.scalars[k.REWARD_POS] / max(positives, 1.0)),
            float(self.scalars[k.REWARD_NEG] / max(self.steps - positives, 1.0)),
        )

    def value(self, measure: Measure) -> float:
        """Measure at the running estimates."""
        return measure.value(*self.rewards, self.p, self.eps)

    def objective(self, settings: Settings) -> NestedMeasure:
        """What the steps ascend."""
        return settings.measure

    def walk(
        self, rows: tuple, positive: np.ndarray, order: np.ndarray, settings: Settings
    ) -> bool:
        """Take the rows in the given order; False if the weights ceased to be finite on the way."""
        return self.walk_together([self], rows, positive, order, [settings])[0]

    @classmethod
    def walk_together(
        cls,
        states: list[State],
        rows: tuple,
        positive: np.ndarray,
        order: np.ndarray,
        settings: list[Settings],
    ) -> list[bool]:
        """Let learners take the same rows, reading each row once per processor; for each, whether it stayed finite.

        They have seen the same points, and may differ in step size, radius and parameters of the measure. What each
        learns is what it would learn alone.
        """
        common = settings[0]
        measure = common.measure
        callback = duals_callback(
            measure._gradient,
            None if measure.affine else measure._values,
            len(measure.theta),
            measure.cacheable,
        )

        def learn(group: slice) -> np.ndarray:
            several, chosen = states[group], settings[group]
            duals = np.zeros((len(several), THETA + len(measure.theta)))
            duals[:, THETA:] = [candidate.measure.theta for candidate in chosen]
            taken = np.zeros(len(several), dtype=np.int64)
            with together([(s.v, s.lag, s.before, s.scalars) for s in several]) as tables:
                k.nemsis(
                    rows,
                    positive,
                    order,
                    callback.address,
                    duals,
                    measure.affine,
                    common.reward,
                    common.counts,
                    common.monotone,
                    np.array([candidate.eta0 for candidate in chosen], dtype=float),
                    np.array([candidate.radius for candidate in chosen], dtype=float),
                    common.reward_bound,
                    common.fit_intercept,
                    common.average,
                    *tables,
                    taken,
                )
            return taken

        begin = time.perf_counter()
        taken = in_threads(learn, len(states), len(order))
        seconds = time.perf_counter() - begin
        for state in states:
            state.seconds += seconds
        return [
            bool(count == len(order) and state.is_finite())
            for count, state in zip(taken, states, strict=True)
        ]

    def is_finite(self) -> bool:
        """Whether every number of the state is finite."""
        return all(np.isfinite(part).all() for part in (self.v, self.lag, self.scalars))

    def windows(self, average: int) -> tuple[int, int]:
        """Number of iterates that are averaged: since the average began, and in the finished window before.

        The suffix average began at the greatest power of two ≤ t, and its window before at half of that.
        """
        if average != k.SUFFIX or self.steps == 0:
            return self.steps, 0
        began = 1 << (self.steps.bit_length() - 1)
        return self.steps - began + 1, began // 2

    def model(self, average: int) -> tuple[np.ndarray, float]:
        """Weights and intercept, averaged as asked."""
        s = self.scalars
        if average == k.LAST or self.steps == 0:
            return s[k.SCALE] * self.v, float(s[k.INTERCEPT])
        weights = s[k.SCALE_SUM] * self.v - self.lag
        intercept = s[k.INTERCEPT_SUM]
        if average == k.SUFFIX:
            weights += self.before
            intercept += s[k.INTERCEPT_BEFORE]
        count = sum(self.windows(average))
        return weights / count, float(intercept / count)


@dataclass
class ScanState(State):
    """A NEMSIS state on the valuation at the current level, and where in SCAN's epochs it stands."""

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
    sums: np.ndarray = field(default_factory=lambda: np.zeros(4))

    @classmethod
    def start(cls, n_features: int, settings: ScanSettings) -> ScanState:
        """State before the first point: zero weights, level 0."""
        state = super().start(n_features, settings)
        state.left = settings.phase_length(*state.phase)
        return state

    @property
    def t(self) -> int:
        """Number of points seen, in both kinds of phases."""
        return self.steps + self.judged

    @property
    def phase(self) -> tuple[int, bool]:
        """Epoch, and whether in its learning phase."""
        return len(self.levels), self.learning

    def objective(self, settings: ScanSettings) -> NestedMeasure:
        """The valuation at the current level."""
        return settings.measure.valuation(self.level)

    @classmethod
    def walk_together(
        cls,
        states: list[ScanState],
        rows: tuple,
        positive: np.ndarray,
        order: np.ndarray,
        settings: list[ScanSettings],
    ) -> list[bool]:
        """Take the rows in the given order, through as many phases as they fill; all are in the same phase."""
        fine = [True] * len(states)
        done = 0
        while done < len(order) and any(fine):
            alive = [i for i, stays in enumerate(fine) if stays]
            going, chosen = [states[i] for i in alive], [settings[i] for i in alive]
            part = order[done : done + going[0].left]
            if going[0].learning:
                at_level = [
                    replace(candidate, measure=state.objective(candidate))
                    for state, candidate in zip(going, chosen, strict=True)
                ]
                stayed = super().walk_together(going, rows, positive, part, at_level)
            else:
                stayed = cls._judge_together(going, rows, positive, part, chosen[0])
            done += len(part)
            for i, stays in zip(alive, stayed, strict=True):
                fine[i] = stays
                states[i].left -= len(part)
                if stays and states[i].left == 0:
                    states[i]._turn(settings[i])
        return fine

    @staticmethod
    def _judge_together(
        states: list[ScanState], rows, positive, part, settings: ScanSettings
    ) -> list[bool]:
        def judge(group: slice) -> np.ndarray:
            several = states[group]
            taken = np.zeros(len(several), dtype=np.int64)
            with together([(s.weights, s.sums) for s in several]) as (weights, sums):
                lv.level(
                    rows,
                    positive,
                    part,
                    settings.reward,
                    settings.counts,
                    settings.reward_bound,
                    weights,
                    np.array([state.intercept for state in several]),
                    sums,
                    taken,
                )
            return taken

        begin = time.perf_counter()
        taken = in_threads(judge, len(states), len(part))
        seconds = time.perf_counter() - begin
        for count, state in zip(taken, states, strict=True):
            state.seconds += seconds
            state.judged += int(count)
        return [bool(count == len(part)) for count in taken]

    def _turn(self, settings: ScanSettings) -> None:
        """From a phase to the next."""
        if self.learning:
            self.weights, self.intercept = self.model(settings.average)
            self.sums = np.zeros(4)
        else:
            self.level = self._new_level(settings.measure)
            self.levels.append(self.level)
        self.learning = not self.learning
        self.left = settings.phase_length(*self.phase)

    def _new_level(self, measure: PseudoMeasure) -> float:
        """P_class/P_quant of the judged model (line 19); the old level if a class did not occur.

        Surrogate rewards may put it below 0 or above what perfect rates would give: it is clipped to that range.
        """
        if min(self.sums[lv.COUNT_POS], self.sums[lv.COUNT_NEG]) == 0.0:
            return self.level
        P = self.sums[lv.SUM_POS] / self.sums[lv.COUNT_POS]
        N = self.sums[lv.SUM_NEG] / self.sums[lv.COUNT_NEG]
        highest = measure.value(1.0, 1.0, self.p, self.eps)
        return min(max(measure.value(P, N, self.p, self.eps), 0.0), highest)
