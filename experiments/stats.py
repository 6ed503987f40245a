"""Statistics of a comparison: mean errors, tests against the best, ranks over data sets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.stats

from experiments.cells import Cell

#: QuaPy's names of the errors, and what they are called in words.
NAMES = {
    "ae": "absolute error",
    "nae": "normalised absolute error",
    "rae": "relative absolute error",
    "nrae": "normalised relative absolute error",
    "se": "squared error",
    "kld": "Kullback-Leibler divergence",
    "nkld": "normalised Kullback-Leibler divergence",
}
#: All names that are understood: QuaPy puts an m before the mean of an error.
METRICS = (*(f"m{name}" for name in NAMES), *NAMES)
#: Those that QuaPy smooths, because they divide by prevalences.
SMOOTHED = ("rae", "nrae", "kld", "nkld")
#: Level of all tests.
ALPHA = 0.05


@dataclass(frozen=True)
class Table:
    """Mean errors of methods (rows) on data sets (columns), over all seeds and samples.

    Attributes
    ----------
    metric : str
        QuaPy's name of the error, without a leading m.
    methods, data : list of str
        In the order in which they came.
    means : ndarray of shape (n_methods, n_data)
        Not a number where a method has no result.
    pvalues : ndarray of shape (n_methods, n_data)
        Of the paired test against the best of the column. Not a number where there is nothing to
        compare.
    seeds : ndarray of shape (n_methods, n_data)
        How many seeds a mean is over.
    failed : ndarray of shape (n_methods, n_data)
        How many seeds failed.
    partial : ndarray of shape (n_methods, n_data)
        Whether a mean is over some of the seeds of its data set only.
    """

    metric: str
    methods: list[str]
    data: list[str]
    means: np.ndarray
    pvalues: np.ndarray
    seeds: np.ndarray
    failed: np.ndarray
    partial: np.ndarray

    @property
    def averages(self) -> np.ndarray:
        """Mean over the data sets; not a number for methods without a result on one of them."""
        return self.means.mean(axis=1)

    @property
    def best(self) -> np.ndarray:
        """Whether an entry is the least of its column."""
        return is_least(self.means)

    @property
    def same_as_best(self) -> np.ndarray:
        """Whether an entry is not the best, but not significantly different from it either."""
        return (self.pvalues >= ALPHA) & ~self.best


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of methods over data sets, and the difference from which on ranks differ."""

    methods: list[str]
    ranks: np.ndarray
    critical_difference: float
    n_data: int


def base_name(metric: str) -> str:
    """Name of an error without the leading m of a mean; complains about unknown ones."""
    name = metric.removeprefix("m")
    if name not in NAMES:
        raise ValueError(f"unknown metric {metric!r}; known are {', '.join(METRICS)}")
    return name


def failure(cell: Cell) -> str:
    """Why a cell has no result; empty if it has one."""
    if cell.error:
        return cell.error
    if not len(cell.true):
        return "no samples"
    if len(cell.true) != len(cell.estimated):
        return f"{len(cell.estimated)} estimates for {len(cell.true)} samples"
    if not np.isfinite(cell.estimated).all():
        return "estimates that are not finite"
    return ""


def errors(cell: Cell, metric: str, sample_size: int) -> np.ndarray:
    """Error of each sample, as QuaPy defines it on the prevalences of both classes.

    Parameters
    ----------
    cell : Cell
        A cell with a result.
    metric : str
        One of `METRICS`.
    sample_size : int
        Rows of each sample; errors that divide by prevalences are smoothed by 1/(2 sample_size).

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    name = base_name(metric)
    # Only here, because importing QuaPy takes seconds and changes matplotlib's settings.
    import quapy.error

    true, estimated = (np.stack([1.0 - p, p], axis=-1) for p in (cell.true, cell.estimated))
    smoothing = {"eps": 1.0 / (2.0 * sample_size)} if name in SMOOTHED else {}
    return getattr(quapy.error, name)(true, estimated, **smoothing)


def distinct(names: Iterable[str]) -> list[str]:
    """Each name once, in the order in which they come."""
    return list(dict.fromkeys(names))


def is_least(values: np.ndarray) -> np.ndarray:
    """Whether a value is the least of its column; what is not a number never is."""
    return values == np.where(np.isnan(values), np.inf, values).min(axis=0)


def check_pairs(cells: list[Cell]) -> None:
    """Complain unless methods were run once, on the same samples of each data set and seed."""
    seen: set[tuple[str, str, int]] = set()
    samples: dict[tuple[str, int], np.ndarray] = {}
    for cell in cells:
        if (key := (cell.data, cell.method, cell.seed)) in seen:
            raise ValueError(f"more than one cell of data set, method and seed {key}")
        seen.add(key)
        if not failure(cell):
            split = (cell.data, cell.seed)
            if not np.array_equal(samples.setdefault(split, cell.true), cell.true):
                raise ValueError(f"methods were run on other samples of data set and seed {split}")


def paired_pvalue(first: np.ndarray, second: np.ndarray) -> float:
    """Two-sided Wilcoxon signed-rank test of paired errors; 1 if all are equal."""
    if np.array_equal(first, second):
        return 1.0
    return float(scipy.stats.wilcoxon(first, second).pvalue)


def against_best(results: list[dict[int, np.ndarray]], means: np.ndarray) -> list[float]:
    """Test methods against the one of least mean, on the seeds where both have results.

    Parameters
    ----------
    results : list of dict
        For each method, the errors of each sample by seed.
    means : ndarray of shape (n_methods,)
        Mean error of each method; not a number where it has no results.

    Returns
    -------
    list of float
        For each method its p-value, not a number without common seeds.
    """
    if np.isnan(means).all():
        return [float("nan")] * len(results)
    best = results[int(np.nanargmin(means))]
    pvalues = []
    for result in results:
        common = [seed for seed in best if seed in result]
        pairs = [np.concatenate([r[s] for s in common]) if common else None for r in (result, best)]
        pvalues.append(paired_pvalue(*pairs) if common else float("nan"))
    return pvalues


def error_table(cells: list[Cell], metric: str, sample_size: int) -> Table:
    """Mean errors of all methods on all data sets, with tests against the best of each data set.

    Parameters
    ----------
    cells : list of Cell
        At most one for each data set, method and seed.
    metric : str
        One of `METRICS`.
    sample_size : int
        Rows of each sample.

    Returns
    -------
    Table
    """
    check_pairs(cells)
    name = base_name(metric)
    data, methods = distinct(c.data for c in cells), distinct(c.method for c in cells)
    results: dict[tuple[str, str], dict[int, np.ndarray]] = {}
    failed = np.zeros((len(methods), len(data)), dtype=int)
    for cell in cells:
        if failure(cell):
            failed[methods.index(cell.method), data.index(cell.data)] += 1
        else:
            found = results.setdefault((cell.method, cell.data), {})
            found[cell.seed] = errors(cell, name, sample_size)
    grid = [[results.get((m, d), {}) for d in data] for m in methods]
    means = np.array(
        [[np.concatenate([*e.values()]).mean() if e else np.nan for e in row] for row in grid]
    )
    tests = [against_best([row[j] for row in grid], means[:, j]) for j in range(len(data))]
    seeds = np.array([[len(found) for found in row] for row in grid])
    wanted = np.array([len({c.seed for c in cells if c.data == d}) for d in data])
    return Table(
        metric=name,
        methods=methods,
        data=data,
        means=means,
        pvalues=np.array(tests).T,
        seeds=seeds,
        failed=failed,
        partial=(seeds > 0) & (seeds < wanted),
    )


def average_ranks(means: np.ndarray) -> np.ndarray:
    """Mean rank of each method (row) over data sets (columns), 1 the best.

    Equal means share the mean of their ranks. Methods without a result share the last ranks.
    """
    return scipy.stats.rankdata(np.where(np.isnan(means), np.inf, means), axis=0).mean(axis=1)


def critical_difference(n_methods: int, n_data: int) -> float:
    """Nemenyi's critical difference of mean ranks at 0.05."""
    q = scipy.stats.studentized_range.ppf(1.0 - ALPHA, n_methods, np.inf) / np.sqrt(2.0)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6.0 * n_data)))


def rank(table: Table) -> Ranking | None:
    """Rank the methods; None unless there are two methods and two data sets with results."""
    # Where no method has a result all would share a rank, which tells nothing.
    means = table.means[:, ~np.isnan(table.means).all(axis=0)]
    n_methods, n_data = means.shape
    if n_methods < 2 or n_data < 2:
        return None
    difference = critical_difference(n_methods, n_data)
    return Ranking(table.methods, average_ranks(means), difference, n_data)


def cliques(ranks: np.ndarray, difference: float) -> list[tuple[float, float]]:
    """Largest groups of ranks within the critical difference, each as its first and last rank."""
    ordered = np.sort(ranks)
    groups: list[tuple[int, int]] = []
    for first, rank_ in enumerate(ordered):
        last = int(np.searchsorted(ordered, rank_ + difference, side="right")) - 1
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return [(float(ordered[first]), float(ordered[last])) for first, last in groups]
