"""Choosing the step size and the radius, so that users need not.

In `fit`, candidates are trained on one part of the rows and judged, as the averaged models that would be returned, on
rows held out: progressive validation would judge single iterates, and after the first pass rows that were learned from.
About 1,000 rows of the rarer class are wanted for the judgement; where a fifth of the rows holds fewer, several fifths
are held out in turn. At most 100,000 rows are learned from, in as many passes as `fit` makes but at most five; worse
candidates are dropped after the first two. The grid follows the scale of the data: a step moves the
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

_MOST_ROWS, _MOST_PASSES = 100_000, 5
_SMALL = 20_000
_JUDGED_RARE, _JUDGED_LEAST, _JUDGED_COUNTING, _JUDGED_MOST = 1_000, 5_000, 20_000, 100_000
_FIFTHS, _FINALISTS = 5, 4
_FIRST_DROP = 1 << 12


class Judgement:
    """How candidates did.

    Parameters
    ----------
    positives, negatives : float, or ndarray of shape (n_folds,)
        Rows of each class that were judged.
    hits_pos, hits_neg : ndarray of shape (n_candidates,) or (n_folds, n_candidates)
        How many of them each candidate had right.
    """

    def __init__(self, positives: Any, negatives: Any, hits_pos: np.ndarray, hits_neg: np.ndarray):
        self.positives, self.negatives = np.atleast_1d(positives), np.atleast_1d(negatives)
        self.hits_pos, self.hits_neg = np.atleast_2d(hits_pos), np.atleast_2d(hits_neg)

    def values(self, measure: Measure) -> np.ndarray:
        """Measure of each candidate, at the rates over all folds."""
        positives, negatives = float(self.positives.sum()), float(self.negatives.sum())
        total = max(positives + negatives, 1.0)
        P = self.hits_pos.sum(axis=0) / max(positives, 1.0)
        N = self.hits_neg.sum(axis=0) / max(negatives, 1.0)
        point = positives / total, 0.5 / total
        return np.array([measure.value(*rates, *point) for rates in zip(P, N, strict=True)])

    def count_errors(self) -> tuple[np.ndarray, np.ndarray]:
        """|FN − FP|/|S| of each candidate, mean over folds, and its standard error.

        Each fold has learners of its own, whose errors would cancel in a common count.
        """
        total = np.maximum(self.positives + self.negatives, 1.0)[:, np.newaxis]
        misses = self.positives[:, np.newaxis] - self.hits_pos
        alarms = self.negatives[:, np.newaxis] - self.hits_neg
        error = (misses - alarms) / total
        variance = np.maximum((misses + alarms) / total - error**2, 0) / total
        return np.abs(error).mean(axis=0), np.sqrt(variance.mean(axis=0) / len(total))

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

    def order(self, measure: Measure) -> np.ndarray:
        """Candidates from the best to the worst; among those whose counts are too far off, the nearer first."""
        return np.lexsort([self.count_errors()[0], -self.ranking(measure)])


@dataclass
class Tuned:
    """What `tune` found."""

    settings: Settings
    #: Per candidate: eta0, radius, and when it was last judged, value of the measure and ba; NaN if not finite before.
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


class _Fold:
    """Rows to learn from and rows to judge by, with a learner per candidate."""

    def __init__(
        self, X: Any, positive: np.ndarray, rows: tuple, used: np.ndarray, held: np.ndarray
    ):
        self.rows, self.positive = rows, positive
        self.train = used[~held]
        self.X_judged, self.y_judged = X[used[held]], positive[used[held]]
        self.states: dict[int, State] = {}

    def learn(self, tries: dict[int, Settings], rng: np.random.Generator) -> set[int]:
        """One pass of the candidates; those that did not stay finite."""
        order = rng.permutation(self.train)
        states = [self.states[k] for k in tries]
        kind = type(states[0])
        stayed = kind.walk_together(states, self.rows, self.positive, order, list(tries.values()))
        return {k for k, fine in zip(tries, stayed, strict=True) if not fine}

    def scores(self, tries: dict[int, Settings]) -> np.ndarray:
        """Of the rows to judge by, one column per candidate."""
        models = [self.states[k].model(candidate.average) for k, candidate in tries.items()]
        weights = np.column_stack([weights for weights, _ in models])
        return self.X_judged @ weights + np.array([intercept for _, intercept in models])


def _folds(X: Any, positive: np.ndarray, counting: bool, rng: np.random.Generator) -> list[_Fold]:
    """Fifths of the rows held out in turn, as many as are wanted to judge by."""
    share = positive.mean()
    least = _JUDGED_COUNTING if counting else _JUDGED_LEAST
    wanted = int(min(max(_JUDGED_RARE / min(share, 1.0 - share), least), _JUDGED_MOST))
    used = rng.permutation(len(positive))[: _MOST_ROWS + wanted]
    # Every fifth row of the rows sorted by class: folds have the share of positives of all.
    used = used[np.argsort(positive[used], kind="stable")]
    n_folds = min(max(round(wanted * _FIFTHS / len(used)), 1), _FIFTHS)
    if len(used) > _SMALL:
        n_folds = min(n_folds, 2)
    rows, fifth = as_rows(X), np.arange(len(used)) % _FIFTHS
    return [_Fold(X, positive, rows, used, fifth == k) for k in range(n_folds)]


def tune(
    X: Any,
    positive: np.ndarray,
    settings: Settings,
    state_type: type[State],
    pairs: list[tuple[float, float]],
    n_passes: int,
    rng: np.random.Generator,
) -> Tuned:
    """Train the candidates on part of the rows, judge them on the rest, and take the best.

    After the first and the second pass the worse half is dropped, down to four.
    """
    folds = _folds(X, positive, settings.measure.counting, rng)
    tries = {
        k: replace(settings, eta0=eta0, radius=radius) for k, (eta0, radius) in enumerate(pairs)
    }
    for fold in folds:
        fold.states = {k: state_type.start(X.shape[1], tries[k]) for k in tries}
    results = np.full((len(tries), 2), np.nan)
    n_passes = min(n_passes, _MOST_PASSES)
    for i in range(n_passes):
        for fold in folds:
            for failed in fold.learn(tries, rng):
                del tries[failed]
            if not tries:
                raise FloatingPointError
        last = i == n_passes - 1
        if not last and (i > 1 or len(tries) <= _FINALISTS):
            continue
        scores = [fold.scores(tries) for fold in folds]
        judged = zip(scores, (fold.y_judged for fold in folds), strict=True)
        counts = [(y.sum(), (~y).sum(), (s[y] > 0).sum(0), (s[~y] <= 0).sum(0)) for s, y in judged]
        judgement = Judgement(*(np.array(column) for column in zip(*counts, strict=True)))
        alive = np.array(list(tries))
        measures = settings.measure, BA()
        results[alive] = np.column_stack([judgement.values(measure) for measure in measures])
        order = alive[judgement.order(settings.measure)]
        if not last:
            # A ball that has not been reached makes no difference: of two equals the first is enough.
            weights = [state.v.tobytes() for state in (folds[0].states[k] for k in order)]
            order = [k for place, k in enumerate(order) if weights[place] not in weights[:place]]
            kept = set(order[: max((len(alive) + 1) // 2, _FINALISTS)])
            tries = {k: candidate for k, candidate in tries.items() if k in kept}
    best = int(order[0])
    table = {
        "eta0": [eta0 for eta0, _ in pairs],
        "radius": [radius for _, radius in pairs],
        "value": results[:, 0].tolist(),
        "ba": results[:, 1].tolist(),
    }
    return Tuned(
        tries[best],
        table,
        np.concatenate(scores)[:, list(tries).index(best)],
        np.concatenate([fold.y_judged for fold in folds]),
    )


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
