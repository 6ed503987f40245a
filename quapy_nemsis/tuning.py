"""Choosing the step size and the radius, so that users need not.

In `fit`, candidates are trained on one part of the rows and judged, as the averaged models that would be returned, on
rows held out: progressive validation would judge single iterates, and after the first pass rows that were learned from.
About 1,000 rows of the rarer class are wanted for the judgement; where a fifth of the rows holds fewer, several fifths
are held out in turn. At most 100,000 rows are learned from. The grid follows the scale of the data: a step moves the
score of its row x in proportion to η₀·‖x‖², so step sizes are multiples of 1/mean‖x‖², and the finite radius a multiple
of 1/√mean‖x‖².

In a stream nothing can be held out and the scale is not known: candidates of step sizes 1e-4 … 1e3 learn side by side,
and each point counts for or against them before it is learned (progressive validation over the current and the last
window between powers of two). From 4,096 points on the worse half is dropped at every power of two, until one is left.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from quapy_nemsis._kernels.nemsis import POSITIVES as SCALAR_POSITIVES
from quapy_nemsis._kernels.nemsis import REWARD_NEG as SCALAR_NEG
from quapy_nemsis._kernels.nemsis import REWARD_POS as SCALAR_POS
from quapy_nemsis._kernels.nemsis import STEPS as SCALAR_STEPS
from quapy_nemsis._kernels.rows import as_rows
from quapy_nemsis._state import Settings, State
from quapy_nemsis.measures import BA, Measure

AUTO = "auto"
STEPS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
RADII = (math.inf, 100.0)
STREAM_STEPS = tuple(10.0**k for k in range(-4, 4))

_MOST_ROWS = 100_000
_SMALL = 20_000
_JUDGED_RARE, _JUDGED_LEAST, _JUDGED_MOST = 1_000, 5_000, 100_000
_FIFTHS = 5
_FIRST_DROP = 1 << 12


@dataclass
class Judgement:
    """How candidates did: rows of positives and negatives, and hits among them per candidate."""

    positives: float
    negatives: float
    hits_pos: np.ndarray
    hits_neg: np.ndarray

    def rates(self, k: int) -> tuple[float, float, float, float]:
        """(P, N, p, ε) of candidate k."""
        total = self.positives + self.negatives
        return (
            float(self.hits_pos[k] / max(self.positives, 1.0)),
            float(self.hits_neg[k] / max(self.negatives, 1.0)),
            float(self.positives / max(total, 1.0)),
            0.5 / max(total, 1.0),
        )

    def values(self, measure: Measure) -> np.ndarray:
        """Measure of each candidate."""
        return np.array([measure.value(*self.rates(k)) for k in range(len(self.hits_pos))])

    def count_errors(self) -> tuple[np.ndarray, np.ndarray]:
        """|FN − FP|/|S| of each candidate, and its standard error."""
        total = max(self.positives + self.negatives, 1.0)
        misses, alarms = self.positives - self.hits_pos, self.negatives - self.hits_neg
        error = (misses - alarms) / total
        return np.abs(error), np.sqrt(np.maximum((misses + alarms) / total - error**2, 0) / total)

    def ranking(self, measure: Measure) -> np.ndarray:
        """A number for each candidate, the best one's greatest: its value, an error's with the opposite sign.

        A measure that only counts ties within sampling noise for many candidates, among them classifiers at chance
        level: those within two standard errors of the best count are told apart by BA.
        """
        values = self.values(measure) * (1.0 if measure.greater_is_better else -1.0)
        if measure.counting:
            error, deviation = self.count_errors()
            values = np.where(error <= np.min(error + 2 * deviation), self.values(BA()), -np.inf)
        return values


@dataclass
class Tuned:
    """What `tune` found."""

    settings: Settings
    #: Per candidate: eta0, radius, value of the measure, ba; NaN where the weights were not finite.
    table: dict[str, list[float]]
    #: Scores of held-out rows under the winner's settings, and whether these rows are positive.
    scores: np.ndarray
    positive: np.ndarray


def _mean_square(X: Any) -> float:
    """Mean of ‖x‖² over the rows."""
    values = X.data if scipy.sparse.issparse(X) else X.ravel()
    return float(np.einsum("i,i->", values, values, dtype=np.float64) / X.shape[0])


def candidates(X: Any, eta0: Any, radius: Any) -> list[tuple[float, float]]:
    """Pairs of step size and radius to try; a value that is given stays."""
    square = _mean_square(X[: 10 * _MOST_ROWS])
    square = square if 0.0 < square < math.inf else 1.0
    steps = [c / square for c in STEPS] if eta0 == AUTO else [float(eta0)]
    radii = [c / math.sqrt(square) for c in RADII] if radius == AUTO else [float(radius)]
    return [(step, size) for size in radii for step in steps]


def tune(
    X: Any,
    positive: np.ndarray,
    settings: Settings,
    state_type: type[State],
    pairs: list[tuple[float, float]],
    n_passes: int,
    rng: np.random.Generator,
) -> Tuned:
    """Train every candidate on part of the rows, judge it on the rest, and take the best."""
    rows = as_rows(X)
    share = positive.mean()
    least = _SMALL if settings.measure.counting else _JUDGED_LEAST
    wanted = int(min(max(_JUDGED_RARE / min(share, 1.0 - share), least), _JUDGED_MOST))
    used = rng.permutation(len(positive))[: _MOST_ROWS + wanted]
    # Every fifth row of the rows sorted by class: folds have the share of positives of all.
    used = used[np.argsort(positive[used], kind="stable")]
    n_folds = min(math.ceil(wanted * _FIFTHS / len(used)), _FIFTHS)
    small = len(used) <= _SMALL
    if not small:
        n_folds = min(n_folds, 3 if settings.measure.counting else 2)
    tries = [replace(settings, eta0=eta0, radius=radius) for eta0, radius in pairs]
    passes = min(n_passes, 3 if small else 2)

    hits_pos, hits_neg = np.zeros(len(tries)), np.zeros(len(tries))
    failed = np.zeros(len(tries), dtype=bool)
    all_scores, all_positive = [], []
    for fold in range(n_folds):
        held = np.zeros(len(used), dtype=bool)
        held[fold::_FIFTHS] = True
        train, judged = used[~held], used[held]
        states = [state_type.start(X.shape[1], candidate) for candidate in tries]
        for _ in range(passes):
            order = rng.permutation(train)
            alive = np.flatnonzero(~failed)
            if not len(alive):
                raise FloatingPointError
            failed[alive] = np.logical_not(
                state_type.walk_together(
                    [states[k] for k in alive], rows, positive, order, [tries[k] for k in alive]
                )
            )
        X_judged, y = X[judged], positive[judged]
        scores = np.zeros((len(judged), len(tries)))
        for k in np.flatnonzero(~failed):
            weights, intercept = states[k].model(settings.average)
            scores[:, k] = X_judged @ weights + intercept
        hits_pos += (scores[y] > 0).sum(axis=0)
        hits_neg += (scores[~y] <= 0).sum(axis=0)
        all_scores.append(scores)
        all_positive.append(y)
    if failed.all():
        raise FloatingPointError
    y = np.concatenate(all_positive)
    judgement = Judgement(y.sum(), (~y).sum(), hits_pos, hits_neg)
    alive = np.flatnonzero(~failed)
    chosen = Judgement(y.sum(), (~y).sum(), hits_pos[alive], hits_neg[alive])
    best = int(alive[np.argmax(chosen.ranking(settings.measure))])
    nan = np.where(failed, np.nan, 0.0)
    table = {
        "eta0": [eta0 for eta0, _ in pairs],
        "radius": [radius for _, radius in pairs],
        "value": (judgement.values(settings.measure) + nan).tolist(),
        "ba": (judgement.values(BA()) + nan).tolist(),
    }
    return Tuned(tries[best], table, np.concatenate(all_scores)[:, best], y)


class Race:
    """Learners of different step sizes side by side in a stream; to the outside, the state of the best of them."""

    def __init__(self, n_features: int, settings: Settings, state_type: type[State]):
        self.tries = [replace(settings, eta0=eta0) for eta0 in STREAM_STEPS]
        self.states: list[State | None] = [
            state_type.start(n_features, candidate) for candidate in self.tries
        ]
        # Class counts and rewards of each candidate at the beginning of the window before this one, and of this one.
        self.marks = [self._sums(), self._sums()]
        self.scores = np.full((len(self.tries), 2), np.nan)
        self.best = len(self.tries) // 2

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "states" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.states[self.best], name)

    def copy(self) -> Race:
        """Independent copy."""
        return copy.deepcopy(self)

    @property
    def alive(self) -> list[int]:
        """Candidates that have not been dropped."""
        return [k for k, state in enumerate(self.states) if state is not None]

    def walk(
        self, rows: tuple, positive: np.ndarray, order: np.ndarray, settings: Settings
    ) -> bool:
        """Let every candidate take the rows; False if none of them stayed finite."""
        done = 0
        while done < len(order):
            if len(self.alive) == 1:
                return self.states[self.best].walk(
                    rows, positive, order[done:], self.tries[self.best]
                )
            mark = 1 << self.t.bit_length()
            part = order[done : done + mark - self.t]
            alive = self.alive
            going = [self.states[k] for k in alive]
            tries = [self.tries[k] for k in alive]
            stayed = going[0].walk_together(going, rows, positive, part, tries)
            for k, stays in zip(alive, stayed, strict=True):
                if not stays:
                    self.states[k] = None
            if not self.alive:
                return False
            done += len(part)
            self._judge(settings.measure, self.states[self.alive[0]].t == mark)
        return True

    def _sums(self) -> np.ndarray:
        sums = np.zeros((len(self.states), 4))
        for k in self.alive:
            s = self.states[k].scalars
            positives = s[SCALAR_POSITIVES]
            sums[k] = positives, s[SCALAR_STEPS] - positives, s[SCALAR_POS], s[SCALAR_NEG]
        return sums

    def _judge(self, measure: Measure, at_mark: bool) -> None:
        alive = self.alive
        now = self._sums()
        window = (now - self.marks[0])[alive]
        judgement = Judgement(window[0, 0], window[0, 1], window[:, 2], window[:, 3])
        ranking = judgement.ranking(measure)
        self.best = alive[int(np.argmax(ranking))]
        if at_mark:
            self.marks = [self.marks[1], now]
            self.scores[alive] = np.column_stack(
                [judgement.values(measure), judgement.values(BA())]
            )
            if self.t >= _FIRST_DROP:
                for k in np.argsort(-ranking, kind="stable")[(len(alive) + 1) // 2 :]:
                    self.states[alive[k]] = None

    @property
    def table(self) -> dict[str, list[float]]:
        """Per candidate: eta0, radius, and its value and BA when it was last judged at a power of two."""
        return {
            "eta0": [candidate.eta0 for candidate in self.tries],
            "radius": [candidate.radius for candidate in self.tries],
            "value": self.scores[:, 0].tolist(),
            "ba": self.scores[:, 1].tolist(),
        }
