"""Learning from a source: each chunk is evaluated before it is learned, and checkpoints allow resuming."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from quapy_nemsis._validation import check_integer, encode
from quapy_nemsis.learners import OnlineClassifier
from quapy_nemsis.learners.scores import predicted_codes, quiet_scores
from quapy_nemsis.learners.state import rates_of
from quapy_nemsis.measures import BA, ClassRates, Measure, NegKLD, Rates
from quapy_nemsis.persistence import read, write
from quapy_nemsis.streaming.sources import Chunk, Source, from_iterable

# Rows that are given their features together, if the learner is a pipeline.
_BLOCK = 4_096
CURVE = ("rows", "seconds", "value", "kld", "ba", "prevalence", "estimate", "drift")


class StreamError(ValueError):
    """A chunk could not be read or used. `progress` is the state of the stream before that chunk."""

    def __init__(self, message: str, progress: Progress):
        super().__init__(message)
        self.progress = progress


class CheckpointError(OSError):
    """A checkpoint could not be written; `progress` is the current state, whose learner can still be saved."""

    def __init__(self, error: OSError, path: str | Path, progress: Progress):
        super().__init__(
            error.errno,
            f"the checkpoint after row {progress.rows:,} could not be written ({error.strerror}); "
            "the previous checkpoint is unchanged",
            str(path),
        )
        self.progress = progress


@dataclass
class Progress:
    """Position in a stream, the learner, and its evaluation on each window before it was trained on that window.

    `curve` contains for each window: ``rows`` so far, ``seconds`` of learning, ``value`` of the measure, ``kld``,
    ``ba``, the true ``prevalence`` of the window, the ``estimate`` of this prevalence, and the ``drift``, which is the
    distance ½Σ|p − p'| between the prevalences of the window and of all earlier rows. With two classes, prevalence and
    estimate are those of the second; with more, they are lists with a number for each class. If a class does not occur
    in a window, values that depend on its recall are NaN (``ba``, but not ``kld``).
    """

    #: An online learner, or a pipeline that ends with one.
    learner: Any
    rows: int = 0
    seconds: float = 0.0
    curve: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in CURVE})
    #: Rows, correct predictions and predicted rows of each class in the current window, and rows in earlier windows.
    window: list[list[float]] = field(default_factory=list)
    members: list[float] = field(default_factory=list)
    #: Digest of the first row, to recognise the source.
    first_row: str = ""
    #: Whether learning stopped before the end of the source.
    stopped: bool = False

    @property
    def online(self) -> OnlineClassifier[Any]:
        """The online learner, which is the last step of a pipeline."""
        return _steps(self.learner)[-1]

    def extra(self) -> dict:
        """The values that a checkpoint stores in addition to the learner."""
        names = ("rows", "seconds", "curve", "window", "members", "first_row")
        return {name: getattr(self, name) for name in names}


def fit_stream(
    learner: OnlineClassifier[Any] | Pipeline,
    source: Iterable[Chunk],
    *,
    classes: ArrayLike,
    window: int = 10_000,
    checkpoint: str | Path | None = None,
    every_rows: int = 1_000_000,
    every_seconds: float = 60.0,
    resume: bool = False,
    max_rows: int | None = None,
    patience: int | None = None,
    callback: Callable[[Progress], bool | None] | None = None,
    verbose: int = 0,
    warm_up: int = 10_000,
) -> Progress:
    """Train on a source of chunks, evaluating the learner on each chunk before training on it (test, then train).

    Parameters
    ----------
    learner : NEMSISClassifier, SCANClassifier or OnePassMiniBatchClassifier, or a Pipeline
        An online learner. Only its parameters are used; the learner itself does not change. In a pipeline, transformers
        with a `partial_fit`, such as `FourierFeatures`, come before it. They are fitted to the first `warm_up` rows,
        and do not change after that. Features are computed for at most 4,096 rows at a time.
    source : Source or iterable of (X, y)
        Chunks to train on.
    classes : array-like of shape (n_classes,)
        All labels, as a chunk may contain only some of them.
    window : int, default=10,000
        Number of rows in a window of the curve. A window ends with the chunk that fills it.
    checkpoint : str or Path, optional
        File for checkpoints of the learner and its position in the stream. A failed write leaves no partial file. An
        existing file is an error unless `resume` is set.
    every_rows, every_seconds : default=1,000,000 and 60
        Write a checkpoint after this many rows or seconds, whichever comes first, when a chunk ends. A checkpoint is
        also written when the stream ends.
    resume : bool, default=False
        Continue from the checkpoint, if it exists. With the same source in the same order, the weights and the curve
        are the same as without the interruption. Rows that were already learned are read again and skipped.
    max_rows : int, optional
        Stop after this many rows.
    patience : int, optional
        Stop when the measure has not improved for this many windows. A stream that stopped because of `patience` or
        `max_rows` stops again when it is resumed.
    callback : callable, optional
        Called with the `Progress` after every chunk. If it returns True, the stream stops.
    verbose : int, default=0
        If not 0, print a line per window.
    warm_up : int, default=10,000
        Number of rows that the transformers of a pipeline are fitted to, before the learner sees the first row. These
        rows are kept in memory until then, without their features.

    Returns
    -------
    Progress
        The fitted learner, its position and the curve.

    Raises
    ------
    StreamError
        If a chunk cannot be read or used. The message names the file and the row. Rows of a shuffled source are
        counted in shuffled order. The learner as it was before that chunk is in `progress`, and in the checkpoint.
    CheckpointError
        If a checkpoint cannot be written. The learner is in `progress`, and the previous checkpoint is unchanged.
    """
    counts = {
        "window": window,
        "every_rows": every_rows,
        "max_rows": max_rows,
        "patience": patience,
        "warm_up": warm_up,
    }
    for name, value in counts.items():
        if value is not None:
            check_integer(name, value)
    if not isinstance(source, Source):
        source = from_iterable(source, "the source")
    if not source.labelled:
        raise ValueError(f"{source.name} has no labels to learn: name their column with target=")
    progress = _start(learner, checkpoint, resume)
    classes = progress.online.checked_classes(np.unique(np.asarray(classes)))
    if not progress.members:
        progress.window, progress.members = _no_rows(len(classes)), [0.0] * len(classes)
    keeper = _Keeper(progress, checkpoint, every_rows, every_seconds)
    try:
        progress.stopped = _is_over(progress, max_rows, patience)
        chunks = _unlearned(source, progress, max_rows)
        if isinstance(progress.learner, Pipeline):
            chunks = _prepared(_cut(chunks), progress, warm_up, source.name)
        for X, y in chunks if not progress.stopped else ():
            _take(progress, X, y, classes, source.name)
            if sum(progress.window[0]) >= window:
                _close_window(progress, verbose)
            asked = callback is not None and callback(progress)
            progress.stopped = bool(asked) or _is_over(progress, max_rows, patience)
            keeper.save_if_due()
            if progress.stopped:
                break
        if not progress.rows:
            raise ValueError(f"{source.name}: there are no rows to learn")
    except ValueError as error:
        keeper.save()
        raise StreamError(str(error), progress) from error
    keeper.save()
    return progress


class _Keeper:
    """Writes the checkpoints of a stream, if a file is given."""

    def __init__(
        self, progress: Progress, path: str | Path | None, every_rows: int, every_seconds: float
    ):
        self.progress, self.path = progress, path
        self.every_rows, self.every_seconds = every_rows, every_seconds
        self.rows, self.at = progress.rows, time.perf_counter()

    def save_if_due(self) -> None:
        """Write a checkpoint if enough rows were learned or enough time has passed."""
        enough = self.progress.rows - self.rows >= self.every_rows
        if enough or time.perf_counter() - self.at >= self.every_seconds:
            self.save()

    def save(self) -> None:
        """Write a checkpoint, unless nothing was learned since the last one."""
        if self.path is None or self.progress.rows == self.rows:
            return
        try:
            write(self.progress.learner, self.path, self.progress.extra())
        except OSError as error:
            raise CheckpointError(error, self.path, self.progress) from error
        self.rows, self.at = self.progress.rows, time.perf_counter()


def _unlearned(source: Source, progress: Progress, max_rows: int | None) -> Iterator[Chunk]:
    """Chunks of the source, without rows that were already learned and without rows beyond `max_rows`."""
    skip, seen = progress.rows, 0
    for X, y in source:
        if not seen and len(y):
            _check_first_row(progress, X, y, source.name)
        begin, seen = max(skip - seen, 0), seen + len(y)
        end = len(y) if max_rows is None else begin + max_rows - progress.rows
        if begin or end < len(y):
            X, y = X[begin:end], y[begin:end]
        if len(y):
            yield X, y
    if seen < skip:
        raise ValueError(
            f"the checkpoint is at row {skip:,}, but the source ends at row {seen:,}: resume with the same source"
        )


def _cut(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The same rows in chunks that are not large."""
    for X, y in chunks:
        for begin in range(0, len(y), _BLOCK):
            yield X[begin : begin + _BLOCK], y[begin : begin + _BLOCK]


def _prepared(
    chunks: Iterator[Chunk], progress: Progress, warm_up: int, name: str
) -> Iterator[Chunk]:
    """The chunks, after the transformers of a pipeline that has learned nothing have seen the first rows."""
    if progress.rows:
        yield from chunks
        return
    kept: list[Chunk] = []
    failure, missing = None, int(warm_up)
    try:
        for X, y in chunks:
            kept.append((X, y))
            missing -= len(y)
            if missing <= 0:
                break
    except ValueError as error:  # what was read before is still learned
        failure = error
    # The transformers see exactly so many rows, whatever the chunks are.
    parts = [X for X, _ in kept]
    if parts and missing < 0:
        parts[-1] = parts[-1][:missing]
    for step in _steps(progress.learner)[:-1]:
        for k, X in enumerate(parts):
            try:
                step.partial_fit(X)
            except Exception as error:
                if not k:
                    raise ValueError(f"{name}, rows 1 to {X.shape[0]:,}: {error}") from error
                del parts[k:]  # the chunk is refused when its turn to be learned comes
                break
        parts = [step.transform(X) for X in parts]
    yield from kept
    if failure is not None:
        raise failure
    yield from chunks


def _check_first_row(progress: Progress, X: Any, y: np.ndarray, name: str) -> None:
    """Refuse to resume with a source whose first row differs."""
    row = X[:1].toarray() if scipy.sparse.issparse(X) else X[:1]
    content = np.asarray(row, dtype=np.float64).tobytes() + repr(y[:1].tolist()).encode()
    first_row = hashlib.sha256(content).hexdigest()
    if progress.first_row and first_row != progress.first_row:
        raise ValueError(
            f"{name}: the first row differs from that of the checkpoint's source; resume with the same source"
        )
    progress.first_row = first_row


def _steps(learner: Any) -> list[Any]:
    """The learner, after the transformers of its pipeline, if it is one."""
    return [step for _, step in learner.steps] if isinstance(learner, Pipeline) else [learner]


def _check_steps(learner: Any) -> None:
    """Refuse what is not an online learner, or a pipeline of transformers that ends with one."""
    *transformers, online = _steps(learner)
    if not isinstance(online, OnlineClassifier):
        raise TypeError(
            f"{type(online).__name__} is not an online learner: give NEMSISClassifier, SCANClassifier or "
            "OnePassMiniBatchClassifier, or a Pipeline that ends with one"
        )
    for step in transformers:
        if not (hasattr(step, "partial_fit") and hasattr(step, "transform")):
            raise TypeError(
                f"{step!r} has no partial_fit and transform: give transformers that have both, such as "
                "FourierFeatures or StandardScaler"
            )
    online.settings()


def _parameters(learner: Any) -> list[tuple[type, dict[str, Any]]]:
    """What a checkpoint must agree with, for each step."""
    return [(type(step), step.get_params()) for step in _steps(learner)]


def _start(learner: Any, checkpoint: Any, resume: bool) -> Progress:
    """Start or resume the progress, and raise now any error that would occur at the first checkpoint."""
    _check_steps(learner)
    if checkpoint is None:
        if resume:
            raise ValueError("resume needs a checkpoint: name its file with checkpoint=")
        return Progress(clone(learner))
    path = Path(checkpoint)
    if not path.exists():
        probe = path.with_name(f".{path.name}.probe")
        try:
            write(clone(learner), probe)
        finally:
            probe.unlink(missing_ok=True)
        return Progress(clone(learner))
    if not resume:
        raise FileExistsError(
            f"{checkpoint} already exists: continue from it with resume=True, name another file, or delete it"
        )
    found, extra = read(checkpoint)
    if not isinstance(extra, dict) or extra.keys() != Progress(found).extra().keys():
        raise ValueError(
            f"{checkpoint} contains a learner without a position, so it is not a checkpoint of fit_stream"
        )
    if _parameters(found) != _parameters(learner):
        raise ValueError(f"{checkpoint} contains {found!r}, not {learner!r}: name another file")
    return Progress(found, **extra)


def _take(progress: Progress, X: Any, y: np.ndarray, classes: np.ndarray, name: str) -> None:
    """Evaluate a chunk, then learn it."""
    learner, first = progress.online, progress.rows + 1
    expected = np.logical_or.reduce([_is(y, label) for label in classes])
    if not expected.all():
        bad = int(np.argmin(expected))
        raise ValueError(
            f"{name}: row {first + bad:,} has the label {y[bad:].tolist()[0]!r}, "
            f"which is not among the classes {classes.tolist()}"
        )
    codes = encode(y, classes).astype(np.intp)
    predicted = np.zeros(len(y), dtype=np.intp)
    known = hasattr(learner, "classes_")
    if known and X.shape[1] != progress.learner.n_features_in_:
        raise ValueError(
            f"{name}: row {first:,} has {X.shape[1]} features, but earlier rows have "
            f"{progress.learner.n_features_in_}"
        )
    begin = time.perf_counter()
    try:
        for step in _steps(progress.learner)[:-1]:
            X = step.transform(X)
        if known:
            predicted = predicted_codes(quiet_scores(X, *learner.model()))
        learner.partial_fit(X, y, classes=classes)
    except Exception as error:
        rows = f"rows {first:,} to {progress.rows + len(y):,}"
        raise ValueError(f"{name}, {rows}: {error}") from error
    progress.seconds += time.perf_counter() - begin
    sums = [
        np.bincount(of, minlength=len(classes))
        for of in (codes, codes[codes == predicted], predicted)
    ]
    progress.window = (np.array(progress.window) + sums).tolist()
    progress.rows += len(y)


def _no_rows(n_classes: int) -> list[list[float]]:
    return [[0.0] * n_classes for _ in range(3)]


def _is(y: np.ndarray, label: Any) -> np.ndarray:
    """Which labels are equal to this one; labels of another type are not equal."""
    return np.broadcast_to(np.asarray(y == label, dtype=bool), y.shape)


def _close_window(progress: Progress, verbose: int) -> None:
    tally, before = np.array(progress.window), np.array(progress.members)
    members, _, counted = tally
    p, estimate = members / members.sum(), counted / members.sum()
    earlier = before / (before.sum() or 1.0)
    entries: dict[str, Any] = {
        "rows": progress.rows,
        "seconds": progress.seconds,
        "prevalence": p.tolist() if len(p) > 2 else float(p[1]),
        "estimate": estimate.tolist() if len(p) > 2 else float(estimate[1]),
        "drift": float(np.abs(p - earlier).sum() / 2) if before.any() else 0.0,
    }
    measures = {"value": progress.online.settings().measure, "kld": NegKLD(), "ba": BA()}
    for name, measure in measures.items():
        entries[name] = _value(measure, tally)
    entries["kld"] = abs(entries["kld"])
    for name in CURVE:
        progress.curve[name].append(entries[name])
    progress.members = (before + members).tolist()
    progress.window = _no_rows(len(p))
    if verbose:
        shown = f"prevalence {p[1]:.4f}, estimated {estimate[1]:.4f}"
        if len(p) > 2:
            shown = f"mean error of the prevalences {np.abs(p - estimate).mean():.4f}"
        print(
            f"{type(progress.online).__name__}: {progress.rows:,} rows, value {entries['value']:.4f}, "
            f"KLD {entries['kld']:.2e}, {shown}, {progress.seconds:.1f} s",
            flush=True,
        )


def _value(measure: Measure, tally: np.ndarray) -> float:
    """Value for the counts of a window; NaN if it depends on the recall of a class that does not occur."""
    rates, absent = rates_of(tally), tally[0] == 0.0
    perfect: Rates | ClassRates
    if isinstance(rates, Rates):
        perfect = rates._replace(N=1.0 if absent[0] else rates.N, P=1.0 if absent[1] else rates.P)
    else:
        perfect = rates._replace(R=np.where(absent, 1.0, rates.R))
    value = measure.at(rates)
    return value if measure.at(perfect) == value else math.nan


def _is_over(progress: Progress, max_rows: int | None, patience: int | None) -> bool:
    """Whether `max_rows` rows were learned, or the measure has not improved for `patience` windows."""
    if max_rows is not None and progress.rows >= max_rows:
        return True
    values = np.array(progress.curve["value"])
    values = values[np.isfinite(values)]
    if patience is None or len(values) <= patience:
        return False
    if not progress.online.settings().measure.greater_is_better:
        values = -values
    return bool(values[-patience:].max() <= values[:-patience].max())
