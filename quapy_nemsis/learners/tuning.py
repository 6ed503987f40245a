"""Automatic choice of the step size and the radius.

In `fit`, candidates are trained on one part of the rows and evaluated on held-out rows, using the averaged models
that would be returned. (Progressive validation would evaluate single iterates and, after the first pass, use rows
that were already learned.) The evaluation aims at about 1,000 rows of the rarer class. If a fifth of the rows
contains fewer, the candidates are cross-validated on up to five folds. At most 200,000 rows are used (30,000 for more
than two classes), four fifths of them for training, in as many passes as `fit` makes (1PMB: at most five). The worse
half of the candidates is dropped after 1, 2, 4, 8, … passes, until four are left. Candidates that are within two
standard errors of the best are told apart by the likelihood of their posteriors: the step size matters more for these
than for the measure. The grid follows the scale of the data: a step changes the score of its row x in proportion to
η₀·‖x‖², so the step sizes are multiples of 1/mean‖x‖², and the finite radii are multiples of 1/√mean‖x‖².

With the step size and radius that are used, given or chosen, further learners score rows that they have not learned
(`held_out_scores`), and posteriors are fitted to these scores: scores of training rows flatter the model.

In a stream, no rows can be held out and the scale is unknown. Candidates with step sizes 1e-4 … 1e3 learn in parallel,
and each point is scored before it is learned (progressive validation over the current and the previous window, where
windows end at powers of two). From 4,096 points on, the worse half is dropped at every power of two, until one is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import numpy as np
import scipy.sparse

from quapy_nemsis._kernels.batch import score
from quapy_nemsis._kernels.rows import Rows, as_rows
from quapy_nemsis._validation import AUTO, check_positive, refuse_divergence, warn_of_scale
from quapy_nemsis.learners.calibration import Calibration, Points
from quapy_nemsis.learners.scores import linear_scores, predicted_codes, quiet_scores
from quapy_nemsis.learners.state import (
    UNWEIGHTED,
    Arrays,
    Data,
    Model,
    S,
    State,
    check_tally,
    in_threads,
    prefixed,
    rates_of,
)
from quapy_nemsis.measures import BA, ClassRates, Measure, Rates

if TYPE_CHECKING:
    from typing_extensions import Self

STEP_SIZES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
# The last three are for posteriors where rows are few: elsewhere they gain little, and candidates take longer.
RADII = (math.inf, 100.0, 30.0, 10.0, 3.0)
STREAM_STEP_SIZES = tuple(10.0**k for k in range(-4, 4))

_MOST_ROWS = 100_000
# For learners without posteriors, whose passes take longer.
_MOST_PASSES = 5
_SMALL = 20_000
_HELD_RARE, _HELD_LEAST, _HELD_PREVALENCE_ONLY, _HELD_MOST = 1_000, 5_000, 20_000, 100_000
_FIFTHS, _FINALISTS = 5, 4
_FIRST_DROP = 1 << 12
# How many held-out scores of the rarest class posteriors are fitted to, if there are as many, and how many rows are
# scored at once: indexing copies rows.
_SCORED_RARE, _BLOCK = 10_000, 4_096
# How many scores of each class, about, decide between candidates that are equally good by the measure.
_MOST_TIED = 5_000
# For more than two classes, where a step takes longer: how many rows are used at most, and how many scores of held-out
# rows are kept in memory at most.
_MOST_CLASS_ROWS, _MOST_SCORES = 30_000, 10_000_000


class CandidateScores:
    """Scores of candidates on rows that they had not learned.

    Parameters
    ----------
    members : ndarray of shape (n_folds, n_classes)
        Number (or weight) of the evaluated rows of each class.
    hits, counted : ndarray of shape (n_folds, n_candidates, n_classes)
        How many rows of each class each candidate classified correctly, and how many it put into each class.
    """

    def __init__(self, members: np.ndarray, hits: np.ndarray, counted: np.ndarray):
        self.members, self.hits, self.counted = members, hits, counted

    def values(self, measure: Measure) -> np.ndarray:
        """Value of the measure for each candidate, at its rates over all folds."""
        members = self.members.sum(axis=0)
        found = zip(self.hits.sum(axis=0), self.counted.sum(axis=0), strict=True)
        return np.array(
            [measure.at(rates_of(np.array([members, *both], dtype=float))) for both in found],
            dtype=float,
        )

    def count_errors(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean over the folds of ½Σ|q − p|, the share of rows counted wrongly, and its standard error.

        For two classes that is |FN − FP|/|S|. Each fold has its own learners, and their errors could cancel if the
        folds were counted together.
        """
        total = self.members.sum(axis=1)[:, np.newaxis, np.newaxis]
        total = np.where(total > 0, total, 1.0)
        misses = self.members[:, np.newaxis] - self.hits
        alarms = self.counted - self.hits
        error = (misses - alarms) / total
        variance = np.maximum((misses + alarms) / total - error**2, 0) / total
        deviation = np.sqrt(variance.mean(axis=0) / len(total))
        return np.abs(error).mean(axis=0).sum(axis=-1) / 2, deviation.sum(axis=-1) / 2

    def ranking(self, measure: Measure) -> np.ndarray:
        """Score of each candidate; higher is better. It is the value of the measure, negated if lower is better.

        Under a prevalence-only measure many candidates are tied within sampling noise, including classifiers at chance
        level. Candidates within two standard errors of the best count are therefore ranked by BA.
        """
        values = self.values(measure) * (1.0 if measure.greater_is_better else -1.0)
        if measure.prevalence_only:
            error, deviation = self.count_errors()
            values = np.where(error <= np.min(error + 2 * deviation), self.values(BA()), -np.inf)
        return values

    def tied(self, measure: Measure) -> np.ndarray:
        """Which candidates are as good as the best, up to two standard errors of BA."""
        ranking = self.ranking(measure)
        members, hits = self.members.sum(axis=0), self.hits.sum(axis=0)
        seen = members > 0
        recalls = hits[:, seen] / members[seen]
        variance = (recalls * (1.0 - recalls) / members[seen]).sum(axis=1) / seen.sum() ** 2
        best = int(np.argmax(ranking))
        return ranking >= ranking[best] - 2.0 * np.sqrt(variance[best])

    def order(self, measure: Measure) -> np.ndarray:
        """Candidates from best to worst; candidates with equal scores are ordered by the error of their counts."""
        return np.lexsort([self.count_errors()[0], -self.ranking(measure)])


@dataclass
class Tuned(Generic[S]):
    """Result of `tune`."""

    settings: S
    #: Per candidate: eta0, radius, and the value of the measure and ba when it was last evaluated. The latter are NaN
    #: if the candidate diverged before that.
    table: dict[str, list[float]]


def _mean_square(X: Any) -> float:
    """Mean of ‖x‖² over the rows."""
    values = X.data if scipy.sparse.issparse(X) else X.ravel()
    return float(np.einsum("i,i->", values, values, dtype=np.float64) / X.shape[0])


def candidates(X: Any, settings: S, posteriors: bool) -> list[S]:
    """Candidate settings; values given by the user are kept. Small radii are for posteriors, of few rows."""
    square = _mean_square(X[: 10 * _MOST_ROWS])
    square = square if 0.0 < square < math.inf else 1.0
    steps = [c / square for c in STEP_SIZES] if math.isnan(settings.eta0) else [math.nan]
    factors = RADII if posteriors and X.shape[0] <= _SMALL else RADII[:2]
    radii = [c / math.sqrt(square) for c in factors] if math.isnan(settings.radius) else [math.nan]
    return [settings.completed(step, radius) for radius in radii for step in steps]


def table_of(settings: Sequence[S], scores: np.ndarray) -> dict[str, list[float]]:
    """Table of the candidates for users, with one entry per candidate in each column."""
    return {
        "eta0": [candidate.eta0 for candidate in settings],
        "radius": [candidate.radius for candidate in settings],
        "value": scores[:, 0].tolist(),
        "ba": scores[:, 1].tolist(),
    }


class _Fold(Generic[S]):
    """Training rows and held-out rows, with one learner per candidate."""

    def __init__(self, data: Data, rows: Rows, used: np.ndarray, held: np.ndarray):
        self.data, self.rows, self.train = data, rows, used[~held]
        self.X_held, self.y_held = data.X[used[held]], data.labels[used[held]]
        self.weights_held = data.weights[used[held]] if len(data.weights) else UNWEIGHTED
        self.states: dict[int, State[S]] = {}

    def learn(self, rng: np.random.Generator) -> set[int]:
        """Let the candidates make one pass; return those whose weights became infinite or NaN."""
        order = rng.permutation(self.train)
        states = list(self.states.values())
        stayed = states[0].learn_together(
            states, self.rows, self.data.labels, order, self.data.weights
        )
        return {k for k, fine in zip(self.states, stayed, strict=True) if not fine}

    def evaluate(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Held-out rows of each class and, for each candidate, its hits and counts of each class."""
        if self.data.n_classes == 2:
            predicted = list((self._two_class_scores() > 0).T)
        else:
            # A block of rows after the other: the scores of all could fill the memory.
            n_blocks = 1 + len(self.y_held) * self.data.n_classes // _MOST_SCORES
            blocks = np.array_split(np.arange(len(self.y_held)), n_blocks)
            predicted = [
                np.concatenate([predicted_codes(self.scores(k, rows)) for rows in blocks])
                for k in self.states
            ]

        def count(codes: np.ndarray, which: Any = slice(None)) -> np.ndarray:
            weights = self.weights_held[which] if len(self.weights_held) else None
            return np.bincount(codes[which], weights, self.data.n_classes)

        hits = [count(self.y_held, found == self.y_held) for found in predicted]
        return count(self.y_held), np.array(hits), np.array([count(found) for found in predicted])

    def scores(self, k: int, rows: Any = slice(None)) -> np.ndarray:
        """Scores of the held-out rows, or of some of them, by a candidate."""
        if self.data.n_classes == 2:
            return self._two_class_scores()[rows, list(self.states).index(k)]
        return linear_scores(self.X_held[rows], *self.states[k].model())

    def _two_class_scores(self) -> np.ndarray:
        """Scores of the held-out rows by all candidates, in columns, from one product of matrices."""
        models = [state.model() for state in self.states.values()]
        weights = np.column_stack([weights for weights, _ in models])
        return linear_scores(self.X_held, weights.T, np.array([b for _, b in models]))

    def keep(self, kept: set[int]) -> None:
        """Keep these candidates and drop the others."""
        self.states = {k: state for k, state in self.states.items() if k in kept}


def fold_sizes(data: Data, prevalence_only: bool) -> tuple[int, int]:
    """How many rows `tune` uses, and how many folds it makes of them, as many as the evaluation needs."""
    least = _HELD_PREVALENCE_ONLY if prevalence_only else _HELD_LEAST
    wanted = int(min(max(_HELD_RARE / data.rarest(), least), _HELD_MOST))
    if data.n_classes > 2 and len(data.labels) > _MOST_CLASS_ROWS:
        return _MOST_CLASS_ROWS, 1
    n_used = min(len(data.labels), _MOST_ROWS + wanted)
    n_folds = min(max(round(wanted * _FIFTHS / n_used), 1), _FIFTHS)
    return n_used, min(n_folds, 2) if n_used > _SMALL else n_folds


def in_fifths(
    labels: np.ndarray, n_used: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """So many random rows, and which of five parts each is in; all parts have the same shares of the classes.

    The parts do not depend on the order of the classes.
    """
    used = rng.permutation(len(labels))[:n_used]
    fifth = np.empty(len(used), dtype=np.int64)
    for label in np.unique(labels[used]):
        places = np.flatnonzero(labels[used] == label)
        # Not every class starts with the first part, which would be the largest.
        fifth[places] = (np.arange(len(places)) - places[0]) % _FIFTHS
    return used, fifth


def _folds(data: Data, prevalence_only: bool, rng: np.random.Generator) -> list[_Fold[Any]]:
    """Make folds that each hold out a fifth of the rows."""
    n_used, n_folds = fold_sizes(data, prevalence_only)
    used, fifth = in_fifths(data.labels, n_used, rng)
    rows = as_rows(data.X)
    return [_Fold(data, rows, used, fifth == k) for k in range(n_folds)]


class HeldOut(NamedTuple):
    """Scores of rows by learners that have not learned them, the mean of the learners' models, and each of them."""

    points: Points
    committee: Model
    members: list[Model]


def n_held_out_folds(data: Data) -> int:
    """How many of five folds are needed for about 10,000 held-out scores of the rarest class."""
    n_rows = len(data.labels)
    return min(math.ceil(_SCORED_RARE * _FIFTHS / (data.rarest() * n_rows)), _FIFTHS, n_rows)


def out_of_fold(
    data: Data,
    fitted: Callable[[np.ndarray, int], Sequence[Model | None]],
    rng: np.random.Generator,
) -> HeldOut | None:
    """Scores of rows by models that have not learned them, and these models.

    Each of up to five models learns four fifths of the rows and scores the others. There are as many models as are
    needed for about 10,000 scores of the rarest class. A model that is None or diverges is left out; if all do, the
    result is None.

    Parameters
    ----------
    data : Data
        Rows, labels and weights.
    fitted : callable
        Function of the fifth that each row is in (int8) and the number of models, which returns the models. Model k has
        learned the rows that are not in fifth k. A model that could not be learned is None.
    rng : numpy.random.Generator
        For the choice of the folds.
    """
    used, fifth = in_fifths(data.labels, len(data.labels), rng)
    parts = np.empty(len(used), dtype=np.int8)
    parts[used] = fifth
    models = fitted(parts, n_held_out_folds(data))
    rows = as_rows(data.X)

    def scored(folds: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray, Model]]:
        found = []
        for k in folds:
            model, held = models[k], used[fifth == k]
            if model is None:
                continue
            scores = _scores_of(rows, held, model, data)
            if np.isfinite(scores).all():
                found.append((held, scores, model))
        return found

    found = in_threads(scored, range(len(models)), len(used) // _FIFTHS)
    if not found:
        return None
    held, scores, kept = zip(*found, strict=True)
    # In random order: a stream that continues from these points keeps only the last ones.
    order = rng.permutation(sum(map(len, held)))
    chosen = np.concatenate(held)[order]
    weights = data.weights[chosen] if len(data.weights) else np.ones(len(chosen))
    points = Points(np.concatenate(scores)[order], data.labels[chosen], weights)
    committee = (
        np.mean([np.ascontiguousarray(w) for w, _ in kept], axis=0),
        np.mean([b for _, b in kept], axis=0),
    )
    return HeldOut(points, committee, list(kept))


def _scores_of(rows: Rows, places: np.ndarray, model: Model, data: Data) -> np.ndarray:
    """Scores of some rows, of which no more than a few are copied at once."""
    weights, intercept = model
    if data.n_classes == 2:
        scores = np.empty(len(places))
        score(rows, places, np.ascontiguousarray(weights)[np.newaxis], float(intercept), scores)
        return scores
    blocks = np.array_split(places, len(places) // _BLOCK + 1)
    return np.concatenate([quiet_scores(data.X[block], weights, intercept) for block in blocks])


def held_out_scores(
    data: Data,
    settings: S,
    state_type: type[State[Any]],
    n_passes: int,
    shuffle: bool,
    rng: np.random.Generator,
) -> HeldOut | None:
    """Scores of rows by online learners that have not learned them, and their models, as `out_of_fold`.

    The learners take the rows in the same order, so that each row is read once for several of them.
    """
    rows, seed = as_rows(data.X), rng.spawn(1)[0]

    def fitted(parts: np.ndarray, n_folds: int) -> list[Model | None]:
        states: list[State[S]] = [
            state_type.start(data.X.shape[1], data.n_classes, settings) for _ in range(n_folds)
        ]
        alive, n_rows = list(range(n_folds)), len(parts)
        for _ in range(n_passes):
            order = seed.permutation(n_rows) if shuffle else np.arange(n_rows)
            stayed = state_type.learn_parts(states, rows, data.labels, order, parts, data.weights)
            alive = [k for k in alive if stayed[k]]
        return [state.model() if k in alive else None for k, state in enumerate(states)]

    return out_of_fold(data, fitted, rng)


def tune(
    data: Data,
    settings: S,
    state_type: type[State[Any]],
    n_passes: int,
    posteriors: bool,
    rng: np.random.Generator,
) -> Tuned[S] | None:
    """Train the candidates on part of the rows, evaluate them on the rest, and choose the best.

    After 1, 2, 4, 8, … passes, the worse half is dropped, but at least four are kept. If the learner has posteriors,
    they decide between candidates that are equally good by the measure. The result is None if step size and
    radius are both given.
    """
    if not (math.isnan(settings.eta0) or math.isnan(settings.radius)):
        return None
    warn_of_scale(data.X, stacklevel=5)
    every, measure = candidates(data.X, settings, posteriors), settings.measure
    folds = _folds(data, measure.prevalence_only, rng)
    n_features, n_classes = data.X.shape[1], data.n_classes
    for fold in folds:
        fold.states = {
            k: state_type.start(n_features, n_classes, one) for k, one in enumerate(every)
        }
    alive = np.arange(len(every))
    results = np.full((len(every), 2), np.nan)
    if not posteriors:
        n_passes = min(n_passes, _MOST_PASSES)
    for i in range(n_passes):
        for fold in folds:
            failed = fold.learn(rng)
            alive = np.array([k for k in alive if k not in failed], dtype=int)
            for other in folds:
                other.keep(set(alive))
            if not len(alive):
                eta0 = AUTO if math.isnan(settings.eta0) else settings.eta0
                refuse_divergence(data.X, "with every candidate", eta0)
        last, done = i == n_passes - 1, i + 1
        if not last and (done & (done - 1) or len(alive) <= _FINALISTS):  # no power of two
            continue
        parts = zip(*(fold.evaluate() for fold in folds), strict=True)
        found = CandidateScores(*(np.array(part) for part in parts))
        results[alive] = np.column_stack([found.values(measure), found.values(BA())])
        order = alive[found.order(measure)]
        if not last:
            # A radius that has not been reached makes no difference: of two equal models, keep the first.
            models = [folds[0].states[k].model()[0].tobytes() for k in order]
            order = np.array([k for at, k in enumerate(order) if models[at] not in models[:at]])
            kept = set(order[: max((len(alive) + 1) // 2, _FINALISTS)])
            alive = np.array([k for k in alive if k in kept])
            for fold in folds:
                fold.keep(kept)
    best = int(order[0])
    if posteriors:
        tied = alive[found.tied(measure)].tolist()
        if len(tied) > 1:
            losses = [Calibration.of(*_thinned(_held(folds, k))).loss() for k in tied]
            best = tied[int(np.argmin(losses))]
        else:
            (best,) = tied
    return Tuned(every[best], table_of(every, results))


def _thinned(points: Points) -> Points:
    """Every nth point of a class that has very many, counting n times, so that rare classes lose none."""
    kept, weights = np.zeros(len(points.labels), dtype=bool), points.weights.copy()
    for label in np.unique(points.labels):
        places = np.flatnonzero(points.labels == label)
        every = max(len(places) // _MOST_TIED, 1)
        kept[places[::every]] = True
        weights[places] *= len(places) / len(places[::every])
    return Points(points.scores[kept], points.labels[kept], weights[kept])


def _held(folds: Sequence[_Fold[Any]], k: int) -> Points:
    """Scores of the held-out rows of all folds by a candidate, with labels and weights; of very many, every nth."""
    n_classes, n_rows = folds[0].data.n_classes, sum(len(fold.y_held) for fold in folds)
    kept = slice(None, None, 1 if n_classes == 2 else 1 + n_rows * n_classes // _MOST_SCORES)
    scores = np.concatenate([fold.scores(k, kept) for fold in folds])
    labels = np.concatenate([fold.y_held[kept] for fold in folds])
    weights = np.concatenate([fold.weights_held[kept] for fold in folds])
    return Points(scores, labels, weights if len(weights) else np.ones(len(scores)))


class StreamTuner(Generic[S]):
    """Runs learners with different step sizes in parallel on a stream, and acts as the state of the best one.

    The stream tuner implements the protocol `State`. A candidate that has been dropped is None.
    """

    def __init__(self, candidates: list[S], states: list[State[S] | None]):
        self.candidates, self.states = candidates, states
        # Tallies of the candidates at the start of the previous window and of the current one.
        self.marks = [self._sums(), self._sums()]
        self.scores = np.full((len(candidates), 2), np.nan)
        self.best = len(candidates) // 2

    @classmethod
    def begin(
        cls, n_features: int, n_classes: int, settings: S, state_type: type[State[Any]]
    ) -> Self:
        """State before the first point, with a learner for each step size."""
        every = [settings.completed(eta0, math.inf) for eta0 in STREAM_STEP_SIZES]
        return cls(every, [state_type.start(n_features, n_classes, one) for one in every])

    @classmethod
    def start(cls, n_features: int, n_classes: int, settings: S) -> Self:
        """Raise a TypeError: use `begin`, which also takes the type of the states."""
        raise TypeError("StreamTuner needs the type of its states: use StreamTuner.begin")

    @property
    def settings(self) -> S:
        """Settings of the best candidate."""
        return self.candidates[self.best]

    def adopt(self, settings: S) -> None:
        """Continue with other settings; each candidate keeps its step size."""
        for k in self.alive:
            state = self._state(k)
            state.adopt(settings)
            self.candidates[k] = state.settings

    @property
    def alive(self) -> list[int]:
        """Indices of the candidates that have not been dropped."""
        return [k for k, state in enumerate(self.states) if state is not None]

    def _state(self, k: int) -> State[S]:
        state = self.states[k]
        if state is None:
            raise ValueError(f"candidate {k} has been dropped")
        return state

    def settled(self) -> State[S]:
        """The state of the best candidate."""
        return self._state(self.best)

    def is_settled(self) -> bool:
        """Whether only one candidate is left."""
        return len(self.alive) == 1

    def tally(self) -> np.ndarray:
        """Points learned, sums of their rewards and predicted points, in three rows, for each class."""
        return self.settled().tally()

    def place(self) -> tuple[int, ...]:
        """Position in the stream; learners at the same position can learn together."""
        return self.settled().place()

    @property
    def t(self) -> int:
        """Number of points seen."""
        return self.settled().t

    @property
    def steps(self) -> int:
        """Number of points learned."""
        return self.settled().steps

    @property
    def seconds(self) -> float:
        """Time spent inside kernels."""
        return self.settled().seconds

    def rates(self) -> Rates | ClassRates:
        """Running estimates of the best candidate."""
        return self.settled().rates()

    def model(self) -> Model:
        """Weights and intercept of the best candidate."""
        return self.settled().model()

    def objective(self) -> Measure:
        """The measure that the steps increase."""
        return self.settled().objective()

    def details(self) -> dict[str, Any]:
        """Details of the best candidate, and the table of candidate scores at the last power of two."""
        return {**self.settled().details(), "tuning": table_of(self.candidates, self.scores)}

    def learn(
        self, rows: Rows, labels: np.ndarray, order: np.ndarray, weights: np.ndarray = UNWEIGHTED
    ) -> bool:
        """Let every candidate learn the rows; return False if none of them stayed finite."""
        done = 0
        while done < len(order):
            alive = self.alive
            if len(alive) == 1:
                return self.settled().learn(rows, labels, order[done:], weights)
            mark = 1 << self.t.bit_length()
            part = order[done : done + mark - self.t]
            going = [self._state(k) for k in alive]
            stayed = going[0].learn_together(going, rows, labels, part, weights)
            for k, stays in zip(alive, stayed, strict=True):
                if not stays:
                    self.states[k] = None
            if not self.alive:
                return False
            done += len(part)
            self._compare(self._state(self.alive[0]).t == mark)
        return True

    @classmethod
    def learn_together(
        cls,
        states: Sequence[Self],
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        weights: np.ndarray = UNWEIGHTED,
    ) -> list[bool]:
        """Let stream tuners learn the same rows, one after the other."""
        return [state.learn(rows, labels, order, weights) for state in states]

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
        """Let stream tuner k learn the rows that are not in part k, one after the other."""
        return [
            state.learn(rows, labels, order[parts[order] != k], weights)
            for k, state in enumerate(states)
        ]

    def _sums(self) -> np.ndarray:
        """Tally of each candidate; zeros for those that were dropped."""
        found = {k: self._state(k).tally() for k in self.alive}
        nothing = np.zeros_like(next(iter(found.values())))
        return np.array([found.get(k, nothing) for k in range(len(self.states))])

    def _compare(self, at_mark: bool) -> None:
        alive, measure = self.alive, self.candidates[0].measure
        now = self._sums()
        window = (now - self.marks[0])[alive]
        found = CandidateScores(window[:1, 0], window[np.newaxis, :, 1], window[np.newaxis, :, 2])
        ranking = found.ranking(measure)
        self.best = alive[int(np.argmax(ranking))]
        if at_mark:
            self.marks = [self.marks[1], now]
            self.scores[alive] = np.column_stack([found.values(measure), found.values(BA())])
            if self.t >= _FIRST_DROP:
                for k in np.argsort(-ranking, kind="stable")[(len(alive) + 1) // 2 :]:
                    self.states[alive[k]] = None

    @classmethod
    def merge(cls, states: Sequence[Self], base: Self | None) -> Self:
        """Merge stream tuners that have all chosen the same step size."""
        if not all(state.is_settled() for state in (*states, *([base] if base else []))):
            raise ValueError(
                "a learner is still choosing its step size: set eta0, or learn more rows before merging"
            )
        merged = states[0].copy()
        runners = [state.settled() for state in states]
        merged.states[merged.best] = runners[0].merge(runners, base.settled() if base else None)
        return merged

    def copy(self) -> Self:
        """Independent copy."""
        states = [None if state is None else state.copy() for state in self.states]
        twin = type(self)(list(self.candidates), states)
        twin.marks, twin.scores = [mark.copy() for mark in self.marks], self.scores.copy()
        twin.best = self.best
        return twin

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All arrays and numbers, by name."""
        arrays = {
            "eta0": np.array([candidate.eta0 for candidate in self.candidates]),
            "alive": np.array(self.alive, dtype=np.int64),
            "marks": np.array(self.marks),
            "scores": self.scores,
            "best": np.array(self.best, dtype=np.int64),
        }
        for k in self.alive:
            arrays |= prefixed(str(k), self._state(k).to_arrays())
        return arrays

    @staticmethod
    def is_in(arrays: Arrays) -> bool:
        """Whether the arrays are those of a stream tuner."""
        return "alive" in arrays.arrays

    @classmethod
    def restored(cls, arrays: Arrays, settings: S, state_type: type[State[Any]]) -> Self:
        """Inverse of `to_arrays`; arrays of the wrong name, type or shape raise a ValueError."""
        eta0 = arrays.take("eta0", None)
        n = len(eta0)
        open_settings = [settings.completed(float(step), math.inf) for step in eta0]
        states: list[State[S] | None] = [None] * n
        for k in arrays.take("alive", None, types=(np.int64,)).tolist():
            if not 0 <= k < n:
                raise ValueError(f"there is no candidate {k}")
            part = arrays.part(str(k))
            states[k] = state_type.from_arrays(part, open_settings[k])
            part.finish()
        marks = arrays.take("marks", 2, n, 3, arrays.n_classes)
        scores = arrays.take("scores", n, 2)
        best = arrays.count("best")
        if best >= n or states[best] is None:
            raise ValueError("its best candidate is missing")
        tuner = cls(open_settings, states)
        tuner.marks, tuner.scores, tuner.best = [marks[0], marks[1]], scores, best
        return tuner

    @classmethod
    def from_arrays(cls, arrays: Arrays, settings: S) -> Self:
        """Raise a TypeError: use `restored`, which also takes the type of the states."""
        raise TypeError("StreamTuner needs the type of its states: use StreamTuner.restored")

    def check(self) -> None:
        """Raise a ValueError if the candidates differ in position, or a window starts after the points seen."""
        alive = [self._state(k) for k in self.alive]
        for state in alive:
            state.check()
        for candidate in self.candidates:
            check_positive("eta0", candidate.eta0, finite=True)
        if len({(*state.place(), *state.tally()[0]) for state in alive}) != 1:
            raise ValueError("its candidates are at different positions in the stream")
        for tally in np.concatenate(self.marks):
            check_tally(tally)
        counts = [sums[self.alive, 0] for sums in (*self.marks, self._sums())]
        if any((before > after).any() for before, after in pairwise(counts)):
            raise ValueError("its windows start after the points that it has seen")
