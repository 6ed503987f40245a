"""Shuffling of a source, because a learner learns little from a stream that is sorted by class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from quapy_nemsis._validation import check_integer
from quapy_nemsis.streaming.sources import Chunk, Source


def shuffled(source: Source, buffer: int = 100_000, seed: int = 0) -> Source:
    """Shuffle the rows of a source with a buffer; use it for sources that may be sorted by class.

    Each arriving row replaces a random row of the buffer, which is passed on. A buffer as large as the source shuffles
    it completely. A smaller one cannot shuffle a source that is sorted over more rows than the buffer holds.

    Parameters
    ----------
    source : Source
        The source to shuffle.
    buffer : int, default=100,000
        Number of rows in the buffer.
    seed : int, default=0
        Seed for the random order, which is the same in every iteration.

    Examples
    --------
    The true share of positives is 0.19. After a stream sorted by class, the share of predicted positives is, without a
    buffer and with one:

    >>> import numpy as np
    >>> from quapy_nemsis import NEMSISClassifier
    >>> from quapy_nemsis.streaming import chunks_of, fit_stream, shuffled
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(8000, 3))
    >>> y = X[:, 0] + 0.5 * rng.normal(size=8000) > 1
    >>> order = np.argsort(y, kind="stable")
    >>> source = chunks_of(X[order], y[order], rows=500)
    >>> for stream in (source, shuffled(source, buffer=8000)):
    ...     learner = fit_stream(NEMSISClassifier("kld"), stream, classes=[False, True]).learner
    ...     print(f"{learner.predict(X).mean():.2f}")
    0.00
    0.19
    """
    check_integer("buffer", buffer)
    if not isinstance(source, Source):
        raise TypeError(f"shuffled needs a source, such as from_iterable(…); got {source!r}")
    if not source.labelled:
        raise ValueError(
            f"{source.name} has no labels, and is not shuffled: shuffle what is learned"
        )

    def chunks() -> Iterator[Chunk]:
        rng = np.random.default_rng(seed)
        filling: list[Chunk] = []
        missing = buffer
        held: Chunk | None = None
        for X, y in source:
            if missing:
                _check_width(X, filling)
                filling.append((X[:missing], y[:missing]))
                X, y, missing = X[missing:], y[missing:], max(missing - len(y), 0)
                if not missing:
                    held = _joined(filling)
                    filling.clear()
            if held is None:
                continue
            for start in range(0, len(y), buffer):
                arriving = X[start : start + buffer], y[start : start + buffer]
                leaving, held = _exchanged(held, arriving, rng)
                yield leaving
        if held or filling:
            X, y = held or _joined(filling)
            order = rng.permutation(len(y))
            size = max(len(y) // 10, 1)
            for start in range(0, len(y), size):
                yield X[order[start : start + size]], y[order[start : start + size]]

    return Source(f"{source.name}, shuffled", chunks)


def _check_width(X: Any, before: list[Chunk]) -> None:
    if before and before[0][0].shape[1] != X.shape[1]:
        raise ValueError(
            f"a chunk has {X.shape[1]} features, but earlier chunks have {before[0][0].shape[1]}"
        )


def _exchanged(held: Chunk, arriving: Chunk, rng: np.random.Generator) -> tuple[Chunk, Chunk]:
    """Exchange random rows of a full buffer for arriving rows; return the rows that leave, and the new buffer."""
    X, y = held
    n, k = len(y), len(arriving[1])
    _check_width(arriving[0], [held])
    leaving = rng.choice(n, k, replace=False)
    out = X[leaving], y[leaving]
    if scipy.sparse.issparse(X):
        kept = np.setdiff1d(np.arange(n), leaving)
        return out, _joined([(X[kept], y[kept]), arriving])
    return out, (_replaced(X, leaving, arriving[0]), _replaced(y, leaving, arriving[1]))


def _replaced(array: np.ndarray, places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Put values into an array, in place unless its type is too narrow (as for longer text labels)."""
    array = array.astype(np.result_type(array, values), copy=False)
    array[places] = values
    return array


def _joined(chunks: list[Chunk]) -> Chunk:
    """Concatenate chunks into one that shares no memory with them."""
    rows, labels = zip(*chunks, strict=True)
    if scipy.sparse.issparse(rows[0]):
        return scipy.sparse.vstack(rows).tocsr(), np.concatenate(labels)
    return np.concatenate(rows), np.concatenate(labels)
