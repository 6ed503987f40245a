"""Streams: sources of chunks whatever the size of the file, live evaluation, and checkpoints to resume from.

A *source* is iterated for chunks (X, y), X a float64 array or CSR matrix and y an array of labels, and can be iterated
again. Readers that are well kept do the parsing: pandas, pyarrow, scikit-learn.

Examples
--------
>>> import numpy as np
>>> from quapy_nemsis import NEMSISClassifier
>>> from quapy_nemsis.streaming import chunks_of, fit_stream, shuffled
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(5000, 3))
>>> y = np.where(X[:, 0] + rng.normal(size=5000) > 1, "yes", "no")
>>> order = np.argsort(y)  # sorted by class, as sources often are
>>> source = shuffled(chunks_of(X[order], y[order], rows=500), buffer=5000, seed=0)
>>> result = fit_stream(NEMSISClassifier("q"), source, classes=["no", "yes"], window=1000)
>>> result.rows, result.curve["rows"]
(5000, [1000, 2000, 3000, 4000, 5000])
>>> bool(result.curve["value"][-1] > 0.8)
True
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from sklearn.base import clone

from quapy_nemsis.measures import BA, NegKLD
from quapy_nemsis.online import OnlineClassifier
from quapy_nemsis.persistence import read, write

Chunk = tuple[Any, np.ndarray]
CURVE = ("rows", "seconds", "value", "kld", "ba", "prevalence", "estimate", "drift")


@dataclass
class Source:
    """Chunks (X, y) that can be iterated again and again.

    Parameters
    ----------
    name : str
        What it is called in messages, the file's name as a rule.
    chunks : callable
        Without arguments; begins an iteration.
    """

    name: str
    chunks: Callable[[], Iterator[Chunk]]

    def __iter__(self) -> Iterator[Chunk]:
        row = 0
        iterator = self.chunks()
        while True:
            try:
                X, y = next(iterator)
            except StopIteration:
                return
            except Exception as error:  # readers raise all sorts for a broken file
                raise ValueError(
                    f"{self.name}: cannot be read after row {row:,} ({type(error).__name__}: {error})"
                ) from error
            self._check(X, y, row)
            row += len(y)
            yield X, y

    def _check(self, X: Any, y: np.ndarray, row: int) -> None:
        """Refuse NaN and inf, naming the row."""
        values = X.data if scipy.sparse.issparse(X) else X
        if np.isfinite(values).all():
            return
        if scipy.sparse.issparse(X):
            place = np.flatnonzero(~np.isfinite(values))[0]
            bad = int(np.searchsorted(X.indptr, place, side="right") - 1)
        else:
            bad = int(np.flatnonzero(~np.isfinite(X).all(axis=1))[0])
        raise ValueError(
            f"{self.name}: row {row + bad + 1:,} holds NaN or infinity; fill it in or leave the row out"
        )


# ----------------------------------------------------------------------- sources


def read_csv(
    path: str | Path,
    target: str,
    *,
    columns: list[str] | None = None,
    rows: int = 10_000,
    **options: Any,
) -> Source:
    """Chunks of a CSV file: plain, or compressed as .gz, .bz2, .xz or .zst (which needs the package zstandard).

    Parameters
    ----------
    path : str or Path
        The file.
    target : str
        Column of the labels.
    columns : list of str, optional
        Columns of the features, numbers; by default all but the target.
    rows : int, default=10,000
        Rows of a chunk.
    **options
        For `pandas.read_csv`.
    """
    import pandas as pd

    def chunks() -> Iterator[Chunk]:
        wanted = None if columns is None else [*columns, target]
        with pd.read_csv(path, chunksize=rows, usecols=wanted, **options) as frames:
            for frame in frames:
                yield _from_frame(frame, target, columns)

    return Source(str(path), chunks)


def read_parquet(
    path: str | Path, target: str, *, columns: list[str] | None = None, rows: int = 65_536
) -> Source:
    """Chunks of a Parquet file (needs pyarrow), reading only the columns that are used.

    Parameters
    ----------
    path : str or Path
        The file.
    target : str
        Column of the labels.
    columns : list of str, optional
        Columns of the features, numbers; by default all but the target.
    rows : int, default=65,536
        Most rows of a chunk.
    """

    def chunks() -> Iterator[Chunk]:
        import pyarrow.parquet as pq

        wanted = None if columns is None else [*columns, target]
        with pq.ParquetFile(path) as file:
            names = columns or [name for name in file.schema_arrow.names if name != target]
            for batch in file.iter_batches(batch_size=rows, columns=wanted):
                X = np.empty((batch.num_rows, len(names)))
                for j, name in enumerate(names):
                    X[:, j] = batch.column(name).to_numpy(zero_copy_only=False)
                yield X, batch.column(target).to_numpy(zero_copy_only=False)

    return Source(str(path), chunks)


def read_libsvm(path: str | Path, n_features: int, *, rows: int = 10_000) -> Source:
    """Chunks of a LIBSVM text file, plain or .gz, as CSR matrices of a given width (indices from 1).

    Parameters
    ----------
    path : str or Path
        The file.
    n_features : int
        Number of features: a stream cannot know the greatest index beforehand.
    rows : int, default=10,000
        Rows of a chunk.
    """
    from sklearn.datasets import load_svmlight_file

    def chunks() -> Iterator[Chunk]:
        import gzip

        opened = gzip.open if str(path).endswith(".gz") else open
        with opened(path, "rb") as file:
            while lines := [line for _, line in zip(range(rows), file, strict=False)]:
                text = io.BytesIO(b"".join(lines))
                yield load_svmlight_file(text, n_features=n_features, zero_based=False)

    return Source(str(path), chunks)


def chunks_of(X: Any, y: ArrayLike, *, rows: int = 10_000) -> Source:
    """Chunks of a matrix in memory, or of a memory map.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Rows.
    y : array-like of shape (n_samples,)
        Labels.
    rows : int, default=10,000
        Rows of a chunk.
    """
    y = np.asarray(y)

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(y), rows):
            yield X[start : start + rows], y[start : start + rows]

    return Source("the matrix", chunks)


def from_iterable(
    iterable: Iterable[Chunk] | Callable[[], Iterable[Chunk]], name: str = "the iterable"
) -> Source:
    """Chunks (X, y) of anything that gives them; of a function that begins anew, if the source is to be read again.

    Parameters
    ----------
    iterable : iterable of (X, y), or callable
        Chunks.
    name : str
        What it is called in messages.
    """

    def chunks() -> Iterator[Chunk]:
        for X, y in iterable() if callable(iterable) else iterable:
            yield (X if scipy.sparse.issparse(X) else np.asarray(X, dtype=float)), np.asarray(y)

    return Source(name, chunks)


def from_dicts(
    iterable: Iterable[tuple[dict, Any]], *, n_features: int = 2**18, rows: int = 1000
) -> Source:
    """Chunks of pairs (dictionary of features, label), as River has them, hashed to a given width.

    Parameters
    ----------
    iterable : iterable of (dict, label), or callable
        Points.
    n_features : int, default=2**18
        Width of the hashed rows.
    rows : int, default=1000
        Rows of a chunk.
    """
    from sklearn.feature_extraction import FeatureHasher

    hasher = FeatureHasher(n_features)

    def chunks() -> Iterator[Chunk]:
        points = iter(iterable() if callable(iterable) else iterable)
        while some := [point for _, point in zip(range(rows), points, strict=False)]:
            yield hasher.transform(x for x, _ in some), np.array([label for _, label in some])

    return Source("the dictionaries", chunks)


def shuffled(source: Source, buffer: int = 100_000, seed: int = 0) -> Source:
    """The rows of a source in a random order, as far as a buffer allows: sources are often sorted by class.

    Each chunk goes into the buffer, and as many rows leave it at random. A buffer that is as large as the source
    shuffles fully; a smaller one cannot mend an order that is sorted over more rows than it holds.

    Parameters
    ----------
    source : Source
        Chunks.
    buffer : int, default=100,000
        Rows that are held back.
    seed : int, default=0
        Of the random order; every iteration has the same.
    """

    def chunks() -> Iterator[Chunk]:
        rng = np.random.default_rng(seed)
        held: Chunk | None = None
        for chunk in source:
            held = chunk if held is None else _joined(held, chunk)
            leaving = len(held[1]) - buffer
            if leaving > 0:
                order = rng.permutation(len(held[1]))
                yield held[0][order[:leaving]], held[1][order[:leaving]]
                held = held[0][order[leaving:]], held[1][order[leaving:]]
        if held is not None:
            order = rng.permutation(len(held[1]))
            size = max(min(buffer, len(order)) // 10, 1)
            for start in range(0, len(order), size):
                part = order[start : start + size]
                yield held[0][part], held[1][part]

    return Source(source.name, chunks)


def _joined(first: Chunk, second: Chunk) -> Chunk:
    stack = scipy.sparse.vstack if scipy.sparse.issparse(first[0]) else np.vstack
    X = stack([first[0], second[0]])
    return (X.tocsr() if scipy.sparse.issparse(X) else X), np.concatenate([first[1], second[1]])


def _from_frame(frame: Any, target: str, columns: list[str] | None) -> Chunk:
    if target not in frame.columns:
        raise KeyError(f"there is no column {target!r}; the columns are {', '.join(frame.columns)}")
    features = frame.drop(columns=target) if columns is None else frame[columns]
    text = [name for name, kind in features.dtypes.items() if kind.kind not in "biuf"]
    if text:
        raise TypeError(f"column {text[0]!r} does not hold numbers; name others with columns=")
    return np.ascontiguousarray(features.to_numpy(dtype=np.float64)), frame[target].to_numpy()


# ---------------------------------------------------------------------- learning


class StreamError(ValueError):
    """A chunk that could not be used; `progress` is how things stood before it."""

    def __init__(self, message: str, progress: Progress):
        super().__init__(message)
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
        File to write the learner and its position to, now and then, whole or not at all.
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
    labels = learner.predict(X) if hasattr(learner, "classes_") else np.full(len(y), classes[0])
    begin = time.perf_counter()
    learner.partial_fit(X, y, classes=classes)
    progress.seconds += time.perf_counter() - begin
    positive, predicted = y == learner.classes_[1], labels == learner.classes_[1]
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
        raise OSError(
            error.errno,
            f"the checkpoint after row {progress.rows:,} could not be written ({error.strerror}); "
            "the one before is still there",
            str(checkpoint),
        ) from error
