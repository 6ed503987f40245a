"""Samples of rows, and what quantifiers share that aggregate many of them at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike

from quapy_nemsis.quantifiers._quapy import AggregativeQuantifier, qp


@dataclass(frozen=True)
class Samples:
    """Samples of the rows of a table: sample s has the rows ``rows[starts[s]:starts[s + 1]]``."""

    rows: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, indices: Sequence[ArrayLike] | np.ndarray, n_rows: int) -> Samples:
        """Check samples that are given as arrays of row indices, for a table of so many rows."""
        parts = [np.asarray(index) for index in indices]
        for part in parts:
            if part.ndim != 1 or not np.issubdtype(part.dtype, np.integer):
                raise ValueError(
                    "indices must hold an array of row indices for each sample; got an array of shape "
                    f"{part.shape} and type {part.dtype}"
                )
            if not len(part):
                raise ValueError(
                    "there are no rows to estimate prevalences from: leave out empty samples"
                )
        sizes = [len(part) for part in parts]
        rows = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < n_rows):
            raise ValueError(
                f"indices must be those of {n_rows} rows; got {rows.min()} to {rows.max()}"
            )
        return cls(rows, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    @classmethod
    def whole(cls, n_rows: int) -> Samples:
        """One sample, of all rows of a table."""
        if not n_rows:
            raise ValueError("there are no rows to estimate prevalences from")
        return cls(np.arange(n_rows), np.array([0, n_rows]))

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """What kernels take."""
        return self.rows, self.starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    def each(self) -> Iterator[np.ndarray]:
        """The row indices of each sample."""
        for first, last in pairwise(self.starts):
            yield self.rows[first:last]

    def divided(self, n_parts: int) -> list[Samples]:
        """These samples in so many parts, or fewer."""
        bounds = np.linspace(0, len(self), min(n_parts, max(len(self), 1)) + 1).astype(int)
        return [
            Samples(self.rows, self.starts[first : last + 1]) for first, last in pairwise(bounds)
        ]

    def shares(self, codes: np.ndarray, n_classes: int) -> np.ndarray:
        """The share of each class among the rows of each sample. Rows with the code ``n_classes`` do not count."""
        sample = np.repeat(np.arange(len(self)), np.diff(self.starts))
        places = sample * (n_classes + 1) + codes[self.rows[self.starts[0] : self.starts[-1]]]
        counts = np.bincount(places, minlength=len(self) * (n_classes + 1))
        counts = counts.reshape(len(self), n_classes + 1)[:, :n_classes].astype(float)
        return counts / counts.sum(axis=1, keepdims=True)


def class_codes(labels: ArrayLike, classes: ArrayLike) -> np.ndarray:
    """Position of each label among the classes, in whatever order they are; their number for other labels."""
    labels, classes = np.asarray(labels), np.asarray(classes)
    order = np.argsort(classes)
    places = np.searchsorted(classes, labels, sorter=order)
    found = order[np.minimum(places, len(classes) - 1)]
    return np.where(classes[found] == labels, found, len(classes))


def table_of(values: ArrayLike) -> np.ndarray:
    """Numbers as kernels take them: float64 in C order, writable; the array itself if it is that already."""
    return np.require(values, dtype=np.float64, requirements=["C", "W"])


def posteriors_of(values: ArrayLike, n_classes: int) -> np.ndarray:
    """Posteriors as kernels take them, with a column for each class: kernels do not check where they read."""
    found = table_of(values)
    if found.ndim != 2 or found.shape[1] != n_classes:
        raise ValueError(
            f"posteriors must have a column for each of the {n_classes} classes, as those of classify; got an array of "
            f"shape {found.shape}"
        )
    return found


def one_of_each(values: ArrayLike, what: str) -> np.ndarray:
    """An array with one entry for each row, a label or a score."""
    found = np.asarray(values)
    if found.ndim != 1:
        raise ValueError(
            f"there must be one {what} for each row; got an array of shape {found.shape}"
        )
    return found


def in_threads(function: Callable[[Any], np.ndarray], parts: Sequence[Any]) -> np.ndarray:
    """The results of a function that releases the interpreter's lock, for all parts, joined in their order."""
    if len(parts) == 1:
        return function(parts[0])
    with ThreadPoolExecutor(len(parts)) as pool:
        return np.concatenate(list(pool.map(function, parts)))


def n_threads(n_jobs: int | None) -> int:
    """How many threads are meant; None stands for QuaPy's setting N_JOBS."""
    return int(effective_n_jobs(qp._get_njobs(n_jobs)))


class CompiledAggregation(AggregativeQuantifier):
    """A quantifier of QuaPy whose aggregation is compiled, and takes one sample or many.

    It comes before QuaPy's class among the bases, and overrides its `aggregate`.
    """

    def _is_compiled(self) -> bool:
        """Whether the aggregation is compiled for the quantifier's parameters; QuaPy's own code runs otherwise."""
        return True

    @abstractmethod
    def _prepared(self, predictions: Any, n_jobs: int) -> Any:
        """What samples are aggregated from, for all rows: from predictions as `classify` returns them."""

    @abstractmethod
    def _estimates(self, prepared: Any, samples: Samples) -> np.ndarray:
        """Prevalences of samples, (n_samples, n_classes). Several threads may call this at once."""

    def aggregate(self, classif_predictions: Any) -> np.ndarray:
        """Estimate the prevalences of the classes in a sample.

        Parameters
        ----------
        classif_predictions : array-like of shape (n_rows,) or (n_rows, n_classes)
            Predictions, as `classify` returns them.

        Returns
        -------
        ndarray of shape (n_classes,)
            Estimated prevalences, in the order of `classes_`.
        """
        if not self._is_compiled():
            return super().aggregate(classif_predictions)
        samples = Samples.whole(len(classif_predictions))
        return self._estimates(self._prepared(classif_predictions, 1), samples)[0]

    def aggregate_samples(
        self,
        classif_predictions: Any,
        indices: Sequence[ArrayLike] | np.ndarray,
        n_jobs: int | None = None,
    ) -> np.ndarray:
        """Estimate the prevalences of the classes in many samples of the same rows.

        Parameters
        ----------
        classif_predictions : array-like of shape (n_rows,) or (n_rows, n_classes)
            Predictions, as `classify` returns them.
        indices : sequence of array-like of int
            The rows of each sample. A row may be in a sample several times.
        n_jobs : int, optional
            Number of threads, -1 for all cores; the default is QuaPy's setting ``N_JOBS``. Estimates do not depend on
            it.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            What `aggregate` returns for each sample.
        """
        predictions = np.asarray(classif_predictions)
        samples = Samples.of(indices, len(predictions))
        if not len(samples):
            return np.zeros((0, len(self.classes_)))
        if not self._is_compiled():
            return np.array(
                [
                    super(CompiledAggregation, self).aggregate(predictions[rows])
                    for rows in samples.each()
                ]
            )
        threads = n_threads(n_jobs)
        prepared = self._prepared(predictions, threads)
        return in_threads(lambda part: self._estimates(prepared, part), samples.divided(threads))
