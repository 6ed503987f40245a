"""Windows of a stream: what sources yield, and which rows belong together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from quapy_nemsis._validation import MatrixLike, check_integer
from quapy_nemsis.streaming.sources import Source, from_frame

#: How many rows of a window are kept at most. Of more, every second is kept, then every fourth, and so on.
MOST_ROWS = 100_000
_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True)
class Rows:
    """Rows of a stream, with their times or labels if these are known.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Rows.
    labels : array-like of shape (n_samples,), optional
        Labels, if they are known already; None or NaN for rows whose label is not.
    times : array-like of shape (n_samples,), optional
        Times in order, as numpy dates or as seconds since 1970.

    Examples
    --------
    >>> Rows([[1.0, 2.0]], times=["2024-05-01T12:00"]).labels is None
    True
    """

    X: MatrixLike
    labels: ArrayLike | None = None
    times: ArrayLike | None = None


@dataclass(frozen=True)
class LateLabels:
    """Labels of rows that came earlier in the stream.

    Parameters
    ----------
    rows : array-like of shape (n_samples,)
        Positions of the rows in the stream; the first row has position 0.
    labels : array-like of shape (n_samples,)
        Their labels.
    complete : bool, default=False
        Whether these are all labels that are known so far. They then replace those that were counted before, also
        where tracking goes on from a checkpoint. Otherwise they are added.

    Examples
    --------
    >>> LateLabels([0, 2], ["yes", "no"]).rows
    [0, 2]
    """

    rows: ArrayLike
    labels: ArrayLike
    complete: bool = False


def read_rows(
    path: str | Path,
    time: str,
    *,
    target: str | None = None,
    columns: list[str] | None = None,
    rows: int = 10_000,
    **options: Any,
) -> Iterator[Rows]:
    r"""Read rows with their times from a CSV file that is sorted by time.

    Parameters
    ----------
    path : str or Path
        The file.
    time : str
        Column with the times: dates that pandas understands, or seconds since 1970.
    target : str, optional
        Column with the labels, if there is one.
    columns : list of str, optional
        Columns with the features, which must be numeric; by default all except those of times and labels.
    rows : int, default=10,000
        Number of rows in a chunk.
    **options
        Other options of `pandas.read_csv`.

    Yields
    ------
    Rows
        Rows for `track`.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "rows.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("when,a\n2024-05-01 12:00,1.5\n2024-05-02 08:00,2.5\n")
    ...     [chunk] = read_rows(path, "when")
    >>> chunk.X.tolist(), [str(at)[:10] for at in chunk.times]
    ([[1.5], [2.5]], ['2024-05-01', '2024-05-02'])
    """
    import pandas as pd

    check_integer("rows", rows)
    with pd.read_csv(path, chunksize=rows, **options) as frames:
        for frame in frames:
            if time not in frame.columns:
                names = ", ".join(map(str, frame.columns))
                raise ValueError(f"{path}: there is no column {time!r}; the columns are {names}")
            times = frame.pop(time)
            if times.dtype.kind not in "iuf":
                times = pd.to_datetime(times)
                if times.dt.tz is not None:
                    times = times.dt.tz_convert("UTC").dt.tz_localize(None)
            X, y = from_frame(frame, target, columns)
            yield Rows(X, y, times.to_numpy())


def seconds_of(window: int | str) -> float | None:
    """Seconds of a window of time, such as "1d"; None for a number of rows."""
    if not isinstance(window, str):
        check_integer("window", window)
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|min|h|d|w)\s*", window)
    if found is None or float(found[1]) <= 0.0:
        raise ValueError(
            f"window must be a number of rows, or a time such as '30min', '6h', '1d' or '1w'; got {window!r}"
        )
    return float(found[1]) * _UNITS[found[2]]


def items_of(source: Any, times: ArrayLike | None, rows: int) -> tuple[str, Iterable[Any]]:
    """Name of a source and what it yields: `Rows` or `LateLabels`.

    A source is one of `quapy_nemsis.streaming`, a matrix, or an iterable of matrices, single rows, pairs (X, y),
    `Rows` and `LateLabels`, or a function that returns such an iterable.
    """
    if isinstance(source, Source):
        if times is not None:
            raise ValueError("times can be given for a matrix only: yield Rows(X, times=...)")
        return source.name, (Rows(X, y) for X, y in source)
    if hasattr(source, "shape") or _is_table(source):
        return "the matrix", _parts_of(source, times, rows)
    if times is not None:
        raise ValueError("times can be given for a matrix only: yield Rows(X, times=...)")
    made = source() if callable(source) else source
    if not isinstance(made, Iterable):
        raise TypeError(
            f"{type(source).__name__} is not a source: give a matrix, an iterable of chunks, or a source of "
            "quapy_nemsis.streaming"
        )
    return "the source", map(_item, made)


def _is_table(source: Any) -> bool:
    """Whether a list is a matrix, not a list of chunks."""
    if not isinstance(source, (list, tuple)) or not source:
        return False
    return all(isinstance(row, (list, tuple)) and all(map(np.isscalar, row)) for row in source)


def _parts_of(X: Any, times: ArrayLike | None, rows: int) -> Iterator[Rows]:
    X = X.tocsr() if scipy.sparse.issparse(X) else X if hasattr(X, "shape") else np.asarray(X)
    if len(X.shape) != 2:
        raise ValueError(f"the matrix has shape {X.shape}: give two dimensions")
    at = None if times is None else np.asarray(times)
    if at is not None and at.shape != X.shape[:1]:
        raise ValueError(f"the matrix has {X.shape[0]} rows, and times the shape {at.shape}")
    for start in range(0, X.shape[0], rows):
        part = slice(start, start + rows)
        chosen = X.iloc[part] if hasattr(X, "iloc") else X[part]
        yield Rows(chosen, times=None if at is None else at[part])


def _item(item: Any) -> Rows | LateLabels:
    if isinstance(item, (Rows, LateLabels)):
        return item
    if isinstance(item, tuple) and len(item) == 2 and np.ndim(item[0]) != 0:
        return Rows(*item)
    if scipy.sparse.issparse(item) or hasattr(item, "columns"):
        return Rows(item)
    X = np.asarray(item)
    return Rows(X[np.newaxis] if X.ndim == 1 else X)


def periods_of(times: ArrayLike | None, seconds: float, n_rows: int, row: int) -> np.ndarray:
    """Number of the period since 1970 in which each row lies; `row` is the position of the first."""
    if times is None:
        raise ValueError(
            f"row {row + 1:,} has no time, which a window of time needs: yield Rows(X, times=...), or give times= for "
            "a matrix"
        )
    at = np.asarray(times)
    if at.shape != (n_rows,):
        raise ValueError(f"row {row + 1:,}: {n_rows} rows have times of shape {at.shape}")
    if at.dtype.kind in "OUM":
        at = at.astype("datetime64[us]")
    if at.dtype.kind == "M":
        missing, at = np.isnat(at), at.astype(np.int64) / 1e6
    else:
        at = at.astype(float)
        missing = ~np.isfinite(at)
    if missing.any():
        raise ValueError(f"row {row + 1 + int(np.argmax(missing)):,} has no time; drop the row")
    return np.floor(at / seconds).astype(np.int64)


class Buffer:
    """Scores of the rows of the current window, of which at most 100,000 are kept.

    Parameters
    ----------
    scores, of_folds : ndarray
        Scores of the rows kept, by the committee and by one of its members each.
    rows : int
        How many rows the window has so far.
    stride : int
        Every how many rows one is kept.
    """

    def __init__(self, scores: np.ndarray, of_folds: np.ndarray, rows: int = 0, stride: int = 1):
        self.scores, self.of_folds, self.rows, self.stride = scores, of_folds, rows, stride

    @classmethod
    def empty(cls, n_classes: int) -> Buffer:
        """A window without rows."""
        none = np.empty(0) if n_classes == 2 else np.empty((0, n_classes))
        return cls(none, none)

    def add(self, scores: np.ndarray, of_folds: np.ndarray) -> None:
        """Add rows, and thin out if there are too many."""
        kept = slice(-self.rows % self.stride, None, self.stride)
        self.scores = np.concatenate([self.scores, scores[kept]])
        self.of_folds = np.concatenate([self.of_folds, of_folds[kept]])
        self.rows += len(scores)
        while len(self.scores) > MOST_ROWS:
            self.scores, self.of_folds = self.scores[::2], self.of_folds[::2]
            self.stride *= 2
