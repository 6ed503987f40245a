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
    """Mean errors of methods (rows) on data sets (columns); a method has one mean error on each split."""

    #: QuaPy's name of the error, without a leading m.
    metric: str
    #: Both are in the order in which they came.
    methods: list[str]
    data: list[str]
    #: Means over the splits; not a number where a method has no result.
    means: np.ndarray
    #: Standard deviations over the splits; not a number where there is only one.
    spreads: np.ndarray
    #: Of the test against the best of the column (see `against_best`); not a number where there is nothing to compare.
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
    """Mean ranks of methods over data sets, and which of them differ."""

    methods: list[str]
    ranks: np.ndarray
    n_data: int
    #: Of Friedman's test that all methods are alike; not a number for two methods.
    friedman: float
    #: Of Wilcoxon's signed-rank test of each pair over the data sets, corrected by Holm's method.
    pvalues: np.ndarray
    #: Geometric mean over the data sets of the error of the row's method divided by that of the column's.
    ratios: np.ndarray

    @property
    def differ(self) -> np.ndarray:
        """Tell which pairs differ significantly; none do unless Friedman's test says that some do."""
        alike = len(self.methods) > 2 and not self.friedman < ALPHA
        return np.zeros_like(self.pvalues, dtype=bool) if alike else self.pvalues < ALPHA

    @property
    def can_differ(self) -> bool:
        """Tell whether so many data sets could show that two of so many methods differ."""
        n_pairs = len(self.methods) * (len(self.methods) - 1) / 2
        return n_pairs * 2.0 ** (1 - self.n_data) < ALPHA


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

    For two classes it is p′ − p of the positive one, from -1 to 1. For more it is half the sum of |p′ − p| over the
    classes, from 0 to 1, which has no sign.
    """
    change = cell.true - cell.train_prevalence
    return change[:, 1] if change.shape[1] == 2 else np.abs(change).sum(axis=-1) / 2.0


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


def corrected_t_test(first: np.ndarray, second: np.ndarray, test_share: float) -> float:
    """Return the p-value of the corrected resampled t-test of Nadeau and Bengio (2003), paired and two-sided.

    Splits of the same rows are not independent. With J of them and a share s of the rows in the test part, the variance
    of the mean difference is estimated by (1/J + s/(1 − s))·S², where S² is the variance of the differences. With one
    split there is no test, and the result is not a number.
    """
    differences, n_splits = first - second, len(first)
    if not differences.any():
        return 1.0
    if n_splits < 2:
        return float("nan")
    scale = (1.0 / n_splits + test_share / (1.0 - test_share)) * differences.var(ddof=1)
    if scale == 0.0:
        return 0.0
    return float(2.0 * scipy.stats.t.sf(abs(differences.mean()) / np.sqrt(scale), n_splits - 1))


def holm(pvalues: np.ndarray) -> np.ndarray:
    """Return p-values of several tests, corrected by Holm's (1979) method; what is not a number stays so.

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    found = np.array(pvalues, dtype=float)
    order = [k for k in np.argsort(found, kind="stable") if not np.isnan(found[k])]
    factors = np.arange(len(order), 0, -1)
    found[order] = np.minimum(np.maximum.accumulate(found[order] * factors), 1.0)
    return found


def against_best(
    results: list[dict[int, float]], means: np.ndarray, test_share: float
) -> np.ndarray:
    """Return the p-value of each method against the one of least mean, on the seeds where both have results.

    The test is `corrected_t_test`, with Holm's correction for the number of methods. The p-value of the best itself
    is 1.
    """
    pvalues = np.full(len(results), np.nan)
    if np.isnan(means).all():
        return pvalues
    least = int(np.nanargmin(means))
    for k, result in enumerate(results):
        if common := [seed for seed in results[least] if seed in result]:
            pair = (np.array([each[seed] for seed in common]) for each in (result, results[least]))
            pvalues[k] = corrected_t_test(*pair, test_share)
    others = np.arange(len(results)) != least
    pvalues[others] = holm(pvalues[others])
    return pvalues


def error_table(cells: list[Cell], metric: str, sample_size: int) -> ErrorTable:
    """Return the mean errors of all methods on all data sets, with tests against the best of each data set.

    There is at most one cell for each data set, method and seed.
    """
    check_pairs(cells)
    name = base_name(metric)
    data, methods = distinct(c.data for c in cells), distinct(c.method for c in cells)
    grid: list[list[dict[int, float]]] = [[{} for _ in data] for _ in methods]
    failed = np.zeros((len(methods), len(data)), dtype=int)
    for cell in cells:
        i, j = methods.index(cell.method), data.index(cell.data)
        if failure(cell):
            failed[i, j] += 1
        else:
            grid[i][j][cell.seed] = float(errors(cell, name, sample_size).mean())
    means = np.array([[np.mean([*e.values()]) if e else np.nan for e in row] for row in grid])
    spreads = np.array(
        [[np.std([*e.values()], ddof=1) if len(e) > 1 else np.nan for e in row] for row in grid]
    )
    shares = {cell.data: cell.test_share for cell in cells}
    tests = [
        against_best([row[j] for row in grid], means[:, j], shares[name])
        for j, name in enumerate(data)
    ]
    seeds = np.array([[len(found) for found in row] for row in grid])
    wanted = np.array([len({c.seed for c in cells if c.data == d}) for d in data])
    partial = (seeds > 0) & (seeds < wanted)
    return ErrorTable(
        name, methods, data, means, spreads, np.array(tests).T, seeds, failed, partial
    )


def seconds(
    cells: list[Cell], table: ErrorTable, kind: str = "fit_seconds"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean seconds of the methods (rows) on the data sets (columns), and their spread over the splits.

    Both are not a number where there is nothing to take the mean or the spread of.
    """
    grid: dict[tuple[str, str], list[float]] = {}
    for cell in cells:
        if not failure(cell):
            grid.setdefault((cell.method, cell.data), []).append(getattr(cell, kind))
    found = [[grid.get((method, name), []) for name in table.data] for method in table.methods]
    means = [[np.mean(each) if each else np.nan for each in row] for row in found]
    spreads = [[np.std(each, ddof=1) if len(each) > 1 else np.nan for each in row] for row in found]
    return np.array(means), np.array(spreads)


def mean_of_finite(values: np.ndarray) -> np.ndarray:
    """Return the mean of those entries of each row that are numbers; not a number if none is."""
    known = np.isfinite(values)
    sums, counts = np.where(known, values, 0.0).sum(axis=1), known.sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def average_ranks(means: np.ndarray) -> np.ndarray:
    """Return the mean rank of each method (row) over data sets (columns), 1 the best.

    Equal means share the mean of their ranks. Methods without a result share the last ranks.
    """
    return scipy.stats.rankdata(np.where(np.isnan(means), np.inf, means), axis=0).mean(axis=1)


def pairwise_tests(means: np.ndarray) -> np.ndarray:
    """Return the p-values of Wilcoxon's signed-rank test of each pair of methods (rows) over data sets (columns).

    They are two-sided and corrected by Holm's method. A method without a result is worse than all that have one.
    """
    filled = np.where(np.isnan(means), 2.0 * np.nanmax(means) + 1.0, means)
    first, second = np.triu_indices(len(means), 1)
    pairs = zip(filled[first], filled[second], strict=True)
    raw = [
        1.0 if np.array_equal(a, b) else float(scipy.stats.wilcoxon(a, b).pvalue) for a, b in pairs
    ]
    found = np.ones((len(means), len(means)))
    found[first, second] = found[second, first] = holm(np.array(raw))
    return found


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
    methods = [name for name, kept in zip(table.methods, rows, strict=True) if kept]
    ranks = np.where(np.isnan(means), np.inf, means)
    if (ranks == ranks[0]).all():
        friedman = 1.0
    else:
        friedman = np.nan if n_methods < 3 else scipy.stats.friedmanchisquare(*ranks).pvalue
    logs = np.log(np.maximum(means, 1e-12))
    ratios = np.exp((logs[:, np.newaxis] - logs).mean(axis=2))
    return Ranking(
        methods,
        average_ranks(means),
        n_data,
        float(friedman),
        pairwise_tests(means),
        ratios,
    )


def cliques(ranking: Ranking) -> list[tuple[float, float]]:
    """Return the largest groups of methods of adjacent rank of which no two differ, as their first and last rank."""
    order = np.argsort(ranking.ranks, kind="stable")
    differ = ranking.differ[np.ix_(order, order)]
    groups: list[tuple[int, int]] = []
    for first in range(len(order)):
        last = first
        while last + 1 < len(order) and not differ[first : last + 1, last + 1].any():
            last += 1
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    ordered = ranking.ranks[order]
    return [(float(ordered[first]), float(ordered[last])) for first, last in groups]
