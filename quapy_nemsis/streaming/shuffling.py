"""Rows of a source in another order: what is sorted by class teaches a stream little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from quapy_nemsis._validation import check_integer
from quapy_nemsis.streaming.sources import Chunk, Source


def shuffled(source: Source, buffer: int = 100_000, seed: int = 0) -> Source:
    """Rows of a source in a random order, as far as a buffer allows: sources are often sorted by class.

    Rows that arrive take the places of rows in the buffer that leave it, at random. A buffer that is as large as the
    source shuffles fully; a smaller one cannot mend an order that is sorted over more rows than it holds.

    Parameters
    ----------
    source : Source
        Chunks.
    buffer : int, default=100,000
        Rows that are held back.
    seed : int, default=0
        Of the random order; every iteration has the same.

    Examples
    --------
    The share of positives that is counted after a stream sorted by class, without a buffer and with one; it is 0.19:

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
        raise TypeError(f"shuffled takes a source, such as from_iterable(…); got {source!r}")

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
            f"a chunk has {X.shape[1]} features, those before it {before[0][0].shape[1]}"
        )


def _exchanged(held: Chunk, arriving: Chunk, rng: np.random.Generator) -> tuple[Chunk, Chunk]:
    """Rows of a full buffer that make room for those that arrive, and the buffer with these in it."""
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
    """Put values into an array, in place unless its type is too narrow for them (labels of text)."""
    array = array.astype(np.result_type(array, values), copy=False)
    array[places] = values
    return array


def _joined(chunks: list[Chunk]) -> Chunk:
    """A chunk of several, which shares no memory with them."""
    rows, labels = zip(*chunks, strict=True)
    if scipy.sparse.issparse(rows[0]):
        return scipy.sparse.vstack(rows).tocsr(), np.concatenate(labels)
    return np.concatenate(rows), np.concatenate(labels)
