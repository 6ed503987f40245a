"""Automatic choice of the step size and the radius.

In `fit`, candidates are trained on one part of the rows and evaluated on held-out rows, using the averaged models
that would be returned. (Progressive validation would evaluate single iterates and, after the first pass, use rows
that were already learned.) The evaluation aims at about 1,000 rows of the rarer class. Up to 20,000 rows are all
used: if a fifth of them contains fewer of the rarer class, the candidates are cross-validated on up to five folds. Of
more rows, at most 24,000 are learned, and up to 100,000 others are held out, once (for more than two classes, of more
than 30,000 rows, 6,000 to 20,000 others). If the measure only counts, about 80,000 are learned, in two folds at most:
counts need longer to settle than classifiers. There are as many passes as `fit` makes, but at most five over many
rows (and for 1PMB). The worse half of the candidates is dropped after 1, 2, 4, 8, … passes (over more than 20,000
rows: after a quarter of the first pass, and all of it), until four are left. Candidates that are within two standard
errors of the best are told apart by the likelihood of their posteriors: the step size matters more for these than for
the measure. The grid follows the scale of the data: a step changes the score of its row x in proportion to η₀·‖x‖²,
so the step sizes are multiples of 1/mean‖x‖², and the finite radii are multiples of 1/√mean‖x‖².

With the step size and radius that are used, given or chosen, further learners score rows that they have not learned
(`FoldLearners`), and posteriors are fitted to these scores: scores of training rows flatter the model.

In a stream, no rows can be held out and the scale is unknown. Candidates with step sizes 1e-4 … 1e3 learn in parallel,
and each point is scored before it is learned (progressive validation over the current and the previous window, where
windows end at powers of two). From 4,096 points on, the worse half is dropped at every power of two, until one is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import numpy as np

from quapy_nemsis._kernels.batch import class_score, score_all, score_all_in_fours
from quapy_nemsis._kernels.rows import Rows
from quapy_nemsis._validation import AUTO, check_positive, refuse_divergence, warn_of_scale
from quapy_nemsis.learners.calibration import Calibration, Points
from quapy_nemsis.learners.scores import predicted_codes
from quapy_nemsis.learners.state import (
    UNWEIGHTED,
    Arrays,
    Data,
    Model,
    S,
    State,
    are_worth_fours,
    check_tally,
    fours,
    in_memory,
    in_threads,
    laid_out,
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

# Candidates of two classes learn at most so many rows, or about so many if the measure only counts: counts need longer
# to settle than classifiers.
_MOST_ROWS, _MOST_PREVALENCE_ONLY = 24_000, 80_000
# The part of the first pass after which the first candidates are dropped.
_FIRST_PART = 0.25
# How many rows, about, tell their mean square.
_MOST_SQUARES = 50_000
# Over many rows, and for learners without posteriors, whose passes take longer.
_MOST_PASSES = 5
_SMALL = 20_000
_HELD_RARE, _HELD_LEAST, _HELD_PREVALENCE_ONLY, _HELD_MOST = 1_000, 5_000, 20_000, 100_000
# Of many rows, so many are held out even if fewer are needed.
_HELD_ENOUGH = 10_000
_FIFTHS, _FINALISTS = 5, 4
_FIRST_DROP = 1 << 12
# How many held-out scores of the rarest class posteriors are fitted to, if there are as many: the second number holds
# for online learners of many rows of several classes, where there are few parameters and learners take long.
_SCORED_RARE, _SCORED_RARE_CLASS = 10_000, 2_000
# Held-out rows are scored in so many parts, divided among threads; for more classes, about so many scores at once.
_PARTS, _BLOCK = 8, 500_000
# Losses that differ by a smaller share are equal.
_ROUNDING = 1e-9
# How many scores of each class, about, decide between candidates that are equally good by the measure.
_MOST_TIED = 5_000
# For more than two classes, where a step takes longer: of more rows than this, four fifths of so many are learned, and
# enough others are held out for so many of the rarest class, but not more than the third number.
_MOST_CLASS_ROWS, _HELD_RARE_CLASS, _HELD_CLASSES = 30_000, 300, 20_000
# How many scores of held-out rows of several classes are kept in memory at most.
_MOST_SCORES = 10_000_000


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
    """Mean of ‖x‖² over the rows, of very many over every nth."""
    every = X.shape[0] // _MOST_SQUARES
    X = X[::every] if every > 1 else X
    if isinstance(X, np.ndarray) and not X.flags.c_contiguous:
        return float(np.einsum("ij,ij->", X, X, dtype=np.float64) / X.shape[0])
    values = X.ravel() if isinstance(X, np.ndarray) else X.data
    return float(np.einsum("i,i->", values, values, dtype=np.float64) / X.shape[0])


def candidates(X: Any, settings: S, posteriors: bool) -> list[S]:
    """Candidate settings; values given by the user are kept. Small radii are for posteriors, of few rows."""
    square = _mean_square(X)
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

    def __init__(self, data: Data, train: np.ndarray, held: np.ndarray):
        self.data, self.train, self.held = data, train, held
        self.y_held = data.labels[held]
        self.weights_held = data.weights[held] if len(data.weights) else np.ones(len(held))
        self.states: dict[int, State[S]] = {}
        # The order of the rows in the present pass.
        self.order = train
        # For two classes, the scores of the held-out rows by the candidates that were last evaluated.
        self.known: dict[int, np.ndarray] = {}

    def learn(self, rng: np.random.Generator, begin: float, end: float) -> set[int]:
        """Let the candidates make a part of a pass; return those whose weights became infinite or NaN."""
        if begin == 0.0:
            self.order = rng.permutation(self.train)
        order = self.order[round(begin * len(self.order)) : round(end * len(self.order))]
        states = list(self.states.values())
        stayed = states[0].learn_together(
            states, self.data.rows, self.data.labels, order, self.data.weights
        )
        return {k for k, fine in zip(self.states, stayed, strict=True) if not fine}

    def evaluate(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Held-out rows of each class and, for each candidate, its hits and counts of each class."""
        members = np.bincount(self.y_held, self.weights_held, self.data.n_classes)
        if self.data.n_classes == 2:
            hits, counted = self._two_class_tallies()
            total = members.sum()
            return (
                members,
                np.column_stack([members[0] - (counted - hits), hits]),
                np.column_stack([total - counted, counted]),
            )
        found = in_threads(
            lambda states: [self._tally(state.model()) for state in states],
            list(self.states.values()),
            len(self.held),
        )
        hits, counted = np.array(found).swapaxes(0, 1)
        return members, hits, counted

    def _two_class_tallies(self) -> tuple[np.ndarray, np.ndarray]:
        """Weight of the positives that each candidate finds, and of all rows that it counts as positive."""
        models = [state.model() for state in self.states.values()]
        scores = np.empty((len(self.held), len(models)))
        rows, intercepts = self.data.rows, np.array([intercept for _, intercept in models])
        if are_worth_fours(len(models), rows, len(self.held)):
            weights, lanes = fours(len(models), rows.width)
            for lane, (own, _) in zip(lanes, models, strict=True):
                lane[0] = own
        else:
            weights = np.array([own for own, _ in models])

        def fill(slices: Sequence[slice]) -> list[None]:
            for part in slices:
                _score(rows, self.held[part], weights, intercepts, scores[part])
            return []

        edges = np.linspace(0, len(self.held), _PARTS + 1).astype(int).tolist()
        slices = [slice(*both) for both in pairwise(edges)]
        in_threads(fill, slices, scores.size // _PARTS)
        self.known = dict(zip(self.states, scores.T, strict=True))
        found = scores > 0.0
        hits = np.einsum("i,ij->j", self.weights_held * self.y_held, found)
        return hits, np.einsum("i,ij->j", self.weights_held, found)

    def _tally(self, model: Model) -> tuple[np.ndarray, np.ndarray]:
        """Weights of the held-out rows that a model of several classes finds in each, and that it counts there."""
        n_classes = self.data.n_classes
        # A block of rows after the other: the scores of all could fill the memory.
        n_blocks = 1 + len(self.held) * n_classes // _BLOCK
        codes = np.concatenate(
            [
                predicted_codes(_scores_of(self.data, block, model))
                for block in np.array_split(self.held, n_blocks)
            ]
        )
        right = codes == self.y_held
        hits = np.bincount(codes[right], self.weights_held[right], n_classes)
        return hits, np.bincount(codes, self.weights_held, n_classes)

    def scores(self, k: int, rows: slice) -> np.ndarray:
        """Scores of some of the held-out rows by a candidate that has been evaluated since it learned."""
        if self.data.n_classes == 2:
            return self.known[k][rows]
        return _scores_of(self.data, self.held[rows], self.states[k].model())

    def keep(self, kept: set[int]) -> None:
        """Keep these candidates and drop the others."""
        self.states = {k: state for k, state in self.states.items() if k in kept}


class FoldSizes(NamedTuple):
    """How many rows candidates learn, how many are held out, and how often rows are divided like that."""

    train: int
    held: int
    folds: int


def fold_sizes(data: Data, prevalence_only: bool) -> FoldSizes:
    """How many rows `tune` uses, in as many folds as the evaluation needs."""
    least = _HELD_PREVALENCE_ONLY if prevalence_only else _HELD_LEAST
    wanted = int(min(max(_HELD_RARE / data.rarest(), least), _HELD_MOST))
    n_rows = len(data.labels)
    if data.n_classes > 2 and n_rows > _MOST_CLASS_ROWS:
        least = _MOST_CLASS_ROWS // _FIFTHS
        train = _MOST_CLASS_ROWS - least
        wanted = int(min(max(_HELD_RARE_CLASS / data.rarest(), least), _HELD_CLASSES))
        return FoldSizes(train, min(wanted, n_rows - train), 1)
    if n_rows > _SMALL and data.n_classes == 2 and not prevalence_only:
        held = min(max(wanted, min(n_rows // _FIFTHS, _HELD_ENOUGH)), n_rows // 2)
        return FoldSizes(min(n_rows - held, _MOST_ROWS), held, 1)
    n_used = min(n_rows, _MOST_PREVALENCE_ONLY * _FIFTHS // (_FIFTHS - 1) + wanted)
    n_folds = min(max(round(wanted * _FIFTHS / n_used), 1), _FIFTHS)
    held = n_used // _FIFTHS
    return FoldSizes(n_used - held, held, min(n_folds, 2) if n_rows > _SMALL else n_folds)


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
    """Make folds of random rows, whose parts have the same shares of the classes."""
    train, held, n_folds = fold_sizes(data, prevalence_only)
    in_parts = prevalence_only and data.n_classes == 2
    if in_parts or len(data.labels) <= (_SMALL if data.n_classes == 2 else _MOST_CLASS_ROWS):
        used, fifth = in_fifths(data.labels, train + held, rng)
        return [_Fold(data, used[fifth != k], used[fifth == k]) for k in range(n_folds)]
    used = rng.permutation(len(data.labels))[: train + held]
    is_held = np.zeros(len(used), dtype=bool)
    for label in range(data.n_classes):
        places = np.flatnonzero(data.labels[used] == label)
        is_held[places[: round(len(places) * held / len(used))]] = True
    return [_Fold(data, used[~is_held], used[is_held])]


class HeldOut(NamedTuple):
    """Scores of rows by learners that have not learned them, the mean of the learners' models, and each of them."""

    points: Points
    committee: Model
    members: list[Model]


def n_held_out_folds(data: Data, wanted: int = _SCORED_RARE) -> int:
    """How many of five folds are needed for about so many held-out scores of the rarest class."""
    n_rows = len(data.labels)
    return min(math.ceil(wanted * _FIFTHS / (data.rarest() * n_rows)), _FIFTHS, n_rows)


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
    models = fitted(_parts(used, fifth), n_held_out_folds(data))
    return _gathered(data, used, fifth, models, rng)


def _parts(used: np.ndarray, fifth: np.ndarray) -> np.ndarray:
    """The fifth that each row is in, in the order of the rows."""
    parts = np.empty(len(used), dtype=np.int8)
    parts[used] = fifth
    return parts


def _gathered(
    data: Data,
    used: np.ndarray,
    fifth: np.ndarray,
    models: Sequence[Model | None],
    rng: np.random.Generator,
) -> HeldOut | None:
    """Scores of the rows of each fifth by the model that has not learned it, and these models."""

    def scored(folds: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray, Model]]:
        found = []
        for k in folds:
            model, held = models[k], used[fifth == k]
            if model is None:
                continue
            scores = _scores_of(data, held, model)
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


def _score(
    rows: Rows, places: np.ndarray, weights: np.ndarray, intercepts: np.ndarray, out: np.ndarray
) -> None:
    """Write the scores of some rows by models of two classes, which may lie in fours, to the columns of ``out``."""
    lanes, products = np.zeros((len(weights), 8)), np.zeros((len(intercepts), 2))
    kernel = score_all if weights.ndim == 2 else score_all_in_fours
    kernel(rows, places, weights, intercepts, lanes, products, out)


def _scores_of(data: Data, places: np.ndarray, model: Model) -> np.ndarray:
    """Scores of some rows by a model."""
    weights, intercept = model
    if data.n_classes == 2:
        scores = np.empty((len(places), 1))
        one = np.ascontiguousarray(weights)[np.newaxis]
        _score(data.rows, places, one, np.array([intercept], dtype=float), scores)
        return scores[:, 0]
    scores = np.empty((len(places), data.n_classes))
    one = np.ascontiguousarray(in_memory(laid_out(weights, data.rows), data.rows))[np.newaxis]
    class_score(data.rows, places, one, np.ascontiguousarray(intercept), scores)
    return scores


class FoldLearners(Generic[S]):
    """Online learners that each leave out a part of the rows, to score the rows that they have not learned.

    Parameters
    ----------
    data : Data
        Rows, labels and weights.
    settings : Settings
        Settings of the learners.
    state_type : type
        Type of their states.
    rng : numpy.random.Generator
        For the choice of the parts.
    """

    def __init__(
        self, data: Data, settings: S, state_type: type[State[Any]], rng: np.random.Generator
    ):
        self.data, self.rng = data, rng
        self.used, self.fifth = in_fifths(data.labels, len(data.labels), rng)
        many = data.n_classes > 2 and len(data.labels) > _MOST_CLASS_ROWS
        n_folds = n_held_out_folds(data, _SCORED_RARE_CLASS if many else _SCORED_RARE)
        shape = data.X.shape[1], data.n_classes
        self.states: list[State[S]] = [state_type.start(*shape, settings) for _ in range(n_folds)]
        self.stayed = [True] * n_folds
        # A learner that comes after these leaves out no row.
        self.parts = _parts(self.used, self.fifth)
        self.parts[self.parts >= n_folds] = -1

    def learn(self, order: np.ndarray, others: Sequence[State[S]] = ()) -> list[bool]:
        """Let the learners, and at most one other, make one pass; return whether the other stayed finite.

        Each row is read once for several learners. The other learns all rows, and exactly what it would learn alone.
        """
        data, states = self.data, [*self.states, *others]
        stayed = states[0].learn_parts(
            states, data.rows, data.labels, order, self.parts, data.weights
        )
        n_folds = len(self.states)
        self.stayed = [a and b for a, b in zip(self.stayed, stayed[:n_folds], strict=True)]
        return stayed[n_folds:]

    def held_out(self) -> HeldOut | None:
        """Scores of the rows that learners have left out, and their models, as `out_of_fold`."""
        models = [
            state.model() if fine else None
            for state, fine in zip(self.states, self.stayed, strict=True)
        ]
        return _gathered(self.data, self.used, self.fifth, models, self.rng)


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
    seed, learners = rng.spawn(1)[0], FoldLearners(data, settings, state_type, rng)
    n_rows = len(data.labels)
    for _ in range(n_passes):
        learners.learn(seed.permutation(n_rows) if shuffle else np.arange(n_rows))
    return learners.held_out()


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
    warn_of_scale(data.X, stacklevel=5, rows=data.rows)
    every, measure = candidates(data.X, settings, posteriors), settings.measure
    folds = _folds(data, measure.prevalence_only, rng)
    n_features, n_classes = data.X.shape[1], data.n_classes
    for fold in folds:
        fold.states = {
            k: state_type.start(n_features, n_classes, one) for k, one in enumerate(every)
        }
    alive = np.arange(len(every))
    results = np.full((len(every), 2), np.nan)
    is_large = len(data.labels) > _SMALL and not measure.prevalence_only
    if is_large or not posteriors:
        n_passes = min(n_passes, _MOST_PASSES)
    # Of many rows, some of the first pass will do to drop the first candidates.
    walks = [(0.0, 1.0)] * n_passes
    if is_large:
        walks[:1] = [(0.0, _FIRST_PART), (_FIRST_PART, 1.0)]
    for i, walk in enumerate(walks):
        for fold in folds:
            failed = fold.learn(rng, *walk)
            alive = np.array([k for k in alive if k not in failed], dtype=int)
            for other in folds:
                other.keep(set(alive))
            if not len(alive):
                eta0 = AUTO if math.isnan(settings.eta0) else settings.eta0
                refuse_divergence(data.X, "with every candidate", eta0)
        last, done = i == len(walks) - 1, i + 1
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
            points = sum(len(fold.held) for fold in folds)
            losses = np.array(in_threads(partial(_losses, folds), tied, points))
            # Scores that differ by a factor have equal losses up to rounding: of equal ones, keep the first.
            best = tied[int(np.argmax(losses <= losses.min() * (1.0 + _ROUNDING)))]
        else:
            (best,) = tied
    return Tuned(every[best], table_of(every, results))


def _losses(folds: Sequence[_Fold[Any]], several: Sequence[int]) -> list[float]:
    """Losses of the posteriors of several candidates."""
    return [Calibration.of(*_thinned(_held(folds, k))).loss() for k in several]


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
    return Points(scores, labels, weights)


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
