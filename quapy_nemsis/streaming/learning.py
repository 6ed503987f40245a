"""Learning from a source: judged before it is learned, with checkpoints to resume from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils.extmath import safe_sparse_dot

from quapy_nemsis.measures import BA, NegKLD
from quapy_nemsis.online import OnlineClassifier
from quapy_nemsis.persistence import read, write
from quapy_nemsis.streaming.sources import Chunk

CURVE = ("rows", "seconds", "value", "kld", "ba", "prevalence", "estimate", "drift")


class StreamError(ValueError):
    """A chunk that could not be used; `progress` is how things stood before it."""

    def __init__(self, message: str, progress: Progress):
        super().__init__(message)
        self.progress = progress


class CheckpointError(OSError):
    """A checkpoint that could not be written; `progress` is how things stand in memory, for another try at `save`."""

    def __init__(self, error: OSError, path: str | Path, progress: Progress):
        super().__init__(
            error.errno,
            f"the checkpoint after row {progress.rows:,} could not be written ({error.strerror}); "
            "the one before is still there",
            str(path),
        )
        self.progress = progress


@dataclass
class Progress:
    """How far a stream has come, and how the learner did on each window before it learned it.

    `curve` holds, for each window: ``rows`` so far, ``seconds`` of learning, ``value`` of the measure, ``kld``, ``ba``,
    the true ``prevalence`` of the window, the ``estimate`` of it, and its ``drift``, the distance of its prevalence
    from that of all rows before.
    """

    learner: OnlineClassifier
    rows: int = 0
    seconds: float = 0.0
    curve: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CURVE})
    #: TP, FN, FP, TN of the window that is not full yet, and positives in the windows before.
    window: list[float] = field(default_factory=lambda: [0.0] * 4)
    positives: float = 0.0
    #: Whether it ended before the source did.
    stopped: bool = False

    def extra(self) -> dict:
        """What a checkpoint holds beside the learner."""
        names = ("rows", "seconds", "curve", "window", "positives")
        return {name: getattr(self, name) for name in names}


def fit_stream(
    learner: OnlineClassifier,
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
) -> Progress:
    """Learn from a source of chunks, judging every chunk before it is learned (test, then train).

    Parameters
    ----------
    learner : NEMSISClassifier, SCANClassifier or OnePassMiniBatchClassifier
        Its parameters are used; it is not changed.
    source : Source or iterable of (X, y)
        Chunks.
    classes : array-like of shape (2,)
        Both labels, fixed beforehand.
    window : int, default=10,000
        Rows of a window of the curve (at the end of the chunk in which it is full).
    checkpoint : str or Path, optional
        File to write the learner and its position to, now and then, whole or not at all. One that is there already is
        refused unless `resume` is set.
    every_rows, every_seconds : default=1,000,000 and 60
        How often, whichever comes first; and at the end.
    resume : bool, default=False
        Go on from the checkpoint, if there is one: with the same source in the same order the weights end as if nothing
        had happened. Rows that were learned are read again, and skipped.
    max_rows : int, optional
        Stop after so many rows.
    patience : int, optional
        Stop when the measure has not been better than before for so many windows.
    callback : callable, optional
        Called with the `Progress` after every chunk; stops the stream by returning True.
    verbose : int, default=0
        Print a line per window.

    Returns
    -------
    Progress
        With the learner, and the curve.

    Raises
    ------
    StreamError
        If a chunk cannot be read or used, naming the file and the row; its `progress` holds the learner as it was
        before that chunk, which is also written to the checkpoint.
    CheckpointError
        If a checkpoint cannot be written; its `progress` holds the learner, and the checkpoint before is still there.
    """
    progress = _start(learner, checkpoint, resume)
    try:
        _run(
            progress,
            source,
            np.asarray(classes),
            window,
            checkpoint,
            every_rows,
            every_seconds,
            max_rows,
            patience,
            callback,
            verbose,
        )
    except ValueError as error:
        if checkpoint is not None:
            _save(progress, checkpoint)
        raise StreamError(str(error), progress) from error
    if checkpoint is not None:
        _save(progress, checkpoint)
    return progress


def _run(
    progress: Progress,
    source: Iterable[Chunk],
    classes: np.ndarray,
    window: int,
    checkpoint: str | Path | None,
    every_rows: int,
    every_seconds: float,
    max_rows: int | None,
    patience: int | None,
    callback: Callable[[Progress], bool | None] | None,
    verbose: int,
) -> None:
    """The loop over chunks."""
    skip, seen = progress.rows, 0
    saved_rows, saved_at = progress.rows, time.perf_counter()
    for X, y in source:
        begin, seen = max(skip - seen, 0), seen + len(y)
        if seen <= skip:
            continue
        X, y = (X[begin:], y[begin:]) if begin else (X, y)
        if max_rows is not None and progress.rows + len(y) > max_rows:
            X, y = X[: max_rows - progress.rows], y[: max_rows - progress.rows]
        if len(y):
            try:
                _take(progress, X, y, classes, window, verbose)
            except ValueError as error:
                name, first = getattr(source, "name", "the source"), progress.rows + 1
                last = progress.rows + len(y)
                raise ValueError(f"{name}, rows {first:,} to {last:,}: {error}") from error
        due = progress.rows - saved_rows >= every_rows
        if checkpoint is not None and (due or time.perf_counter() - saved_at >= every_seconds):
            _save(progress, checkpoint)
            saved_rows, saved_at = progress.rows, time.perf_counter()
        if callback is not None and callback(progress):
            progress.stopped = True
        if _is_stale(progress.curve["value"], patience) or progress.rows == max_rows:
            progress.stopped = True
        if progress.stopped:
            break
    if seen < skip:
        raise ValueError(
            f"the checkpoint is at row {skip:,}, but the source ends at row {seen:,}: is it the same source?"
        )


def _start(learner: OnlineClassifier, checkpoint: Any, resume: bool) -> Progress:
    if not isinstance(learner, OnlineClassifier):
        raise TypeError(
            f"{type(learner).__name__} is no online learner: give NEMSISClassifier, SCANClassifier or "
            "OnePassMiniBatchClassifier"
        )
    if not resume:
        if checkpoint is not None and Path(checkpoint).exists():
            raise FileExistsError(
                f"{checkpoint} is there already: go on from it with resume=True, name another file, or delete it"
            )
        return Progress(clone(learner))
    if checkpoint is None:
        raise ValueError("resume needs the file of a checkpoint")
    if not Path(checkpoint).exists():
        return Progress(clone(learner))
    found, extra = read(checkpoint)
    if type(found) is not type(learner) or repr(found) != repr(learner):
        raise ValueError(f"{checkpoint} is of {found!r}, not of {learner!r}: name another file")
    return Progress(found, **extra)


def _take(
    progress: Progress, X: Any, y: np.ndarray, classes: np.ndarray, window: int, verbose: int
) -> None:
    """Judge a chunk, learn it, and close the window if it is full."""
    learner = progress.learner
    before = (learner.coef_[0], learner.intercept_[0]) if hasattr(learner, "classes_") else None
    begin = time.perf_counter()
    learner.partial_fit(X, y, classes=classes)
    progress.seconds += time.perf_counter() - begin
    positive = y == learner.classes_[1]
    predicted = np.zeros(len(y), dtype=bool)
    if before is not None:  # what the learner would have said before it learned the chunk
        predicted = safe_sparse_dot(X, before[0], dense_output=True) + before[1] > 0.0
    counts = (
        positive & predicted,
        positive & ~predicted,
        ~positive & predicted,
        ~positive & ~predicted,
    )
    progress.window = [a + float(b.sum()) for a, b in zip(progress.window, counts, strict=True)]
    progress.rows += len(y)
    if sum(progress.window) >= window:
        _close_window(progress)
        if verbose:
            last = {name: column[-1] for name, column in progress.curve.items()}
            print(
                f"{type(learner).__name__}: {progress.rows:,} rows, value {last['value']:.4f}, KLD {last['kld']:.2e}, "
                f"prevalence {last['prevalence']:.4f}, estimated {last['estimate']:.4f}, {progress.seconds:.1f} s",
                flush=True,
            )


def _close_window(progress: Progress) -> None:
    tp, fn, fp, tn = progress.window
    total, positives = tp + fn + fp + tn, tp + fn
    p = positives / total
    rates = tp / max(positives, 1.0), tn / max(fp + tn, 1.0)
    before = progress.rows - total
    entries = {
        "rows": progress.rows,
        "seconds": progress.seconds,
        "prevalence": p,
        "estimate": (tp + fp) / total,
        "drift": abs(p - progress.positives / before) if before else 0.0,
    }
    measures = {"value": progress.learner._settings().measure, "kld": NegKLD(), "ba": BA()}
    for name, measure in measures.items():
        entries[name] = measure.value(*rates, p, 0.5 / total)
    entries["kld"] = abs(entries["kld"])
    for name in CURVE:
        progress.curve[name].append(entries[name])
    progress.positives += positives
    progress.window = [0.0] * 4


def _is_stale(values: list[float], patience: int | None) -> bool:
    if patience is None or len(values) <= patience:
        return False
    return max(values[-patience:]) <= max(values[:-patience])


def _save(progress: Progress, checkpoint: str | Path) -> None:
    try:
        write(progress.learner, checkpoint, progress.extra())
    except OSError as error:
        raise CheckpointError(error, checkpoint, progress) from error
