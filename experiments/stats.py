"""Statistics of a comparison: mean errors, tests against the best, ranks over data sets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import quapy.error
import scipy.stats

from experiments.names import base_name
from experiments.store import Cell

#: The errors that QuaPy smooths, because they divide by prevalences.
SMOOTHED = ("rae", "nrae", "kld", "nkld")
#: The level of all tests.
ALPHA = 0.05


@dataclass(frozen=True)
class ErrorTable:
    """Mean errors of methods (rows) on data sets (columns), over all seeds and samples."""

    #: QuaPy's name of the error, without a leading m.
    metric: str
    #: Both are in the order in which they came.
    methods: list[str]
    data: list[str]
    #: Not a number where a method has no result.
    means: np.ndarray
    #: Of the paired test against the best of the column; not a number where there is nothing to compare.
    pvalues: np.ndarray
    #: How many seeds a mean is over, how many failed, and whether some of the data set's seeds are missing.
    seeds: np.ndarray
    failed: np.ndarray
    partial: np.ndarray

    @property
    def averages(self) -> np.ndarray:
        """Return the means over the data sets; they are not a number for methods without a result on one of them."""
        return self.means.mean(axis=1)

    @property
    def best(self) -> np.ndarray:
        """Tell whether an entry is the least of its column."""
        return is_least(self.means)

    @property
    def same_as_best(self) -> np.ndarray:
        """Tell whether an entry is not the best, but not significantly different from it either."""
        return (self.pvalues >= ALPHA) & ~self.best


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods over data sets, and the difference from which on ranks differ."""

    methods: list[str]
    ranks: np.ndarray
    critical_difference: float
    n_data: int

    @property
    def none_differ(self) -> bool:
        """Tell whether the critical difference is no less than that of the best and the worst method."""
        return self.critical_difference >= np.ptp(self.ranks)


def failure(cell: Cell) -> str:
    """Say why a cell has no result; the text is empty if it has one."""
    if cell.error:
        return cell.error
    if not len(cell.true):
        return "no samples"
    if cell.true.shape != cell.estimated.shape:
        return f"{cell.estimated.shape} estimates for {cell.true.shape} prevalences"
    return "" if np.isfinite(cell.estimated).all() else "estimates that are not finite"


def errors(cell: Cell, metric: str, sample_size: int) -> np.ndarray:
    """Return the error of each sample, as QuaPy defines it on the prevalences of all classes.

    Errors that divide by prevalences are smoothed by 1/(2 sample_size).
    """
    name = base_name(metric)
    smoothing = {"eps": 1.0 / (2.0 * sample_size)} if name in SMOOTHED else {}
    return getattr(quapy.error, name)(cell.true, cell.estimated, **smoothing)


def drift(cell: Cell) -> np.ndarray:
    """Return how far the prevalences of each sample are from those of the training part.

    The distance is half the sum of |p′ − p| over classes, from 0 to 1. For two classes it is |p′ − p| of either.
    """
    return np.abs(cell.true - cell.train_prevalence).sum(axis=-1) / 2.0


def shown_classes(n_classes: int) -> list[int]:
    """Return the classes whose prevalences are shown: the positive one of two, all of several."""
    return [1] if n_classes == 2 else list(range(n_classes))


def distinct(names: Iterable[str]) -> list[str]:
    """Return each name once, in the order in which they come."""
    return list(dict.fromkeys(names))


def is_least(values: np.ndarray) -> np.ndarray:
    """Tell whether a value is the least of its column; what is not a number never is."""
    return values == np.where(np.isnan(values), np.inf, values).min(axis=0)


def check_pairs(cells: list[Cell]) -> None:
    """Complain unless methods were run once, on the same samples of each data set and seed."""
    seen: set[tuple[str, str, int]] = set()
    samples: dict[tuple[str, int], np.ndarray] = {}
    for cell in cells:
        if (key := (cell.data, cell.method, cell.seed)) in seen:
            raise ValueError(f"there is more than one cell of data set, method and seed {key}")
        seen.add(key)
        if not failure(cell):
            split = (cell.data, cell.seed)
            if not np.array_equal(samples.setdefault(split, cell.true), cell.true):
                raise ValueError(f"methods were run on other samples of data set and seed {split}")


def against_best(results: list[dict[int, np.ndarray]], means: np.ndarray) -> list[float]:
    """Return the p-value of each method against the one of least mean, on the seeds where both have results.

    The test is Wilcoxon's of signed ranks, paired and two-sided. The p-value is 1 if all errors are equal, and not a
    number without common seeds.
    """
    pvalues = [np.nan] * len(results)
    if np.isnan(means).all():
        return pvalues
    best = results[int(np.nanargmin(means))]
    for k, result in enumerate(results):
        if common := [seed for seed in best if seed in result]:
            first, second = (np.concatenate([r[s] for s in common]) for r in (result, best))
            same = np.array_equal(first, second)
            pvalues[k] = 1.0 if same else float(scipy.stats.wilcoxon(first, second).pvalue)
    return pvalues


def error_table(cells: list[Cell], metric: str, sample_size: int) -> ErrorTable:
    """Return the mean errors of all methods on all data sets, with tests against the best of each data set.

    There is at most one cell for each data set, method and seed.
    """
    check_pairs(cells)
    name = base_name(metric)
    data, methods = distinct(c.data for c in cells), distinct(c.method for c in cells)
    grid: list[list[dict[int, np.ndarray]]] = [[{} for _ in data] for _ in methods]
    failed = np.zeros((len(methods), len(data)), dtype=int)
    for cell in cells:
        i, j = methods.index(cell.method), data.index(cell.data)
        if failure(cell):
            failed[i, j] += 1
        else:
            grid[i][j][cell.seed] = errors(cell, name, sample_size)
    means = np.array(
        [[np.concatenate([*e.values()]).mean() if e else np.nan for e in row] for row in grid]
    )
    tests = [against_best([row[j] for row in grid], means[:, j]) for j in range(len(data))]
    seeds = np.array([[len(found) for found in row] for row in grid])
    wanted = np.array([len({c.seed for c in cells if c.data == d}) for d in data])
    partial = (seeds > 0) & (seeds < wanted)
    return ErrorTable(name, methods, data, means, np.array(tests).T, seeds, failed, partial)


def average_ranks(means: np.ndarray) -> np.ndarray:
    """Return the mean rank of each method (row) over data sets (columns), 1 the best.

    Equal means share the mean of their ranks. Methods without a result share the last ranks.
    """
    return scipy.stats.rankdata(np.where(np.isnan(means), np.inf, means), axis=0).mean(axis=1)


def critical_difference(n_methods: int, n_data: int) -> float:
    """Return Nemenyi's critical difference of mean ranks at 0.05."""
    q = scipy.stats.studentized_range.ppf(1.0 - ALPHA, n_methods, np.inf) / np.sqrt(2.0)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6.0 * n_data)))


def rank(table: ErrorTable) -> Ranking | None:
    """Rank methods over data sets; return None unless there are two of each, and all were run on all.

    If some methods were not run on some data sets, either these methods or these data sets are left out, whichever
    leaves more.
    """
    run = table.seeds + table.failed > 0
    rows, columns = run.all(axis=1), run.all(axis=0)
    if rows.mean() > columns.mean():
        columns[:] = True
    else:
        rows[:] = True
    # Where no method has a result all would share a rank, which tells nothing.
    columns &= ~np.isnan(table.means).all(axis=0)
    means = table.means[np.ix_(rows, columns)]
    n_methods, n_data = means.shape
    if n_methods < 2 or n_data < 2:
        return None
    difference = critical_difference(n_methods, n_data)
    methods = [name for name, kept in zip(table.methods, rows, strict=True) if kept]
    return Ranking(methods, average_ranks(means), difference, n_data)


def cliques(ranks: np.ndarray, difference: float) -> list[tuple[float, float]]:
    """Return the largest groups of ranks within the critical difference, each as its first and last rank."""
    ordered = np.sort(ranks)
    groups: list[tuple[int, int]] = []
    for first, rank_ in enumerate(ordered):
        last = int(np.searchsorted(ordered, rank_ + difference, side="right")) - 1
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return [(float(ordered[first]), float(ordered[last])) for first, last in groups]
