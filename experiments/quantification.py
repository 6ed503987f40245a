"""Compare `Quantifier` with calibrated and tuned baselines: with and without drift, with few rows; and its intervals.

``python -m experiments.quantification PART --data-dir FOLDER`` prints a table for each of the parts

* ``drift``: sets of two classes, mean absolute error under APP (21 prevalences, 25 samples of 500 rows each), and under
  NPP (500 samples at the prevalence of the data);
* ``rows``: error against the number of training rows, with a figure;
* ``coverage``: how often intervals contain the true prevalence, and their widths;
* ``seconds``: time to fit.

A finished cell is kept in the folder ``--out``, and a run that was stopped goes on with the same command.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import quapy as qp
from joblib import Parallel, delayed
from quapy.method.aggregative import EMQ, PACC
from scipy.stats import ttest_rel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from experiments import tuned
from experiments.catalogue import locate
from experiments.data import load, split
from experiments.errors import plain_errors
from experiments.stats import holm
from quapy_nemsis import NEMSISClassifier, Quantifier
from quapy_nemsis.tables.preparing import are_term_counts, preparer

SETS = (
    *("adult", "ijcnn1", "letter", "sms-spam", "mr-polarity"),
    *("w8a", "covtype", "cod-rna", "imdb"),
)
#: Training rows at most, for sets of two classes that have many more.
MOST = {"covtype": 60_000, "cod-rna": 60_000}
SIZE = 500
ROWS = (100, 300, 1000, 3000, 10_000)
COVERAGE = {
    "letter": (300, 1000, 10_000),
    "adult": (300, 1000, 10_000),
    "cod-rna": (300, 1000),
    "satellite": (1000,),
    "nursery": (3000,),
    "academic-success": (1000,),
    "page_block": (1000,),
    "shuttle": (1000,),
}

Fit = Callable[[Any, np.ndarray], Any]


def ours(seed: int) -> dict[str, Fit]:
    """Return functions that fit the methods of this package, by name."""

    def balanced() -> NEMSISClassifier:
        return NEMSISClassifier("ba", reward="logistic", posteriors="balanced", random_state=seed)

    def learner() -> NEMSISClassifier:
        return NEMSISClassifier("ba", reward="logistic", random_state=seed)

    return {
        "Quantifier": lambda X, y: Quantifier(random_state=seed).fit(X, y),
        "Quantifier(no_drift=0)": lambda X, y: Quantifier(no_drift=0.0, random_state=seed).fit(
            X, y
        ),
        "Quantifier(features=None)": lambda X, y: Quantifier(features=None, random_state=seed).fit(
            X, y
        ),
        "Quantifier(LR)": lambda X, y: Quantifier(tuned.RememberedLR(), random_state=seed).fit(
            X, y
        ),
        "EMQ(NEMSIS:ba)": lambda X, y: EMQ(learner()).fit(X, y),
        "PACC(NEMSIS:ba)": lambda X, y: PACC(learner()).fit(X, y),
        "PACC(NEMSIS:ba, balanced)": lambda X, y: PACC(balanced()).fit(X, y),
    }


def data(name: str, folder: Path, seed: int, most: int | None) -> tuple:
    """Return a split of a data set with at most so many training rows: X, y, X_test, y_test."""
    X, y, X_test, y_test = split(locate(name, folder), seed)
    if most is not None and len(y) > most:
        X, _, y, _ = train_test_split(X, y, train_size=most, stratify=y, random_state=seed)
    return X, y, X_test, y_test


def quietly(seed: int, work: Callable[[], Any]) -> Any:
    """Do some work with a seed for numpy, one thread for BLAS, and no warnings."""
    with threadpool_limits(1), qp.util.temp_seed(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


def errors(name: str, folder: Path, seed: int, most: int | None, method: str, samples: int) -> dict:
    """Mean absolute error of a method under APP and under NPP, and the seconds of its fit."""
    X, y, X_test, y_test = data(name, folder, seed, most)
    test = qp.data.LabelledCollection(X_test, y_test, classes=np.unique(y_test))
    fit = {**ours(seed), **tuned.baselines(SIZE)}[method]

    def evaluate() -> dict:
        begin = time.perf_counter()
        quantifier = fit(X, y)
        seconds = time.perf_counter() - begin
        repeats = max(samples // 21, 1)
        drift = qp.protocol.APP(test, SIZE, n_prevalences=21, repeats=repeats, random_state=seed)
        same = qp.protocol.NPP(test, SIZE, repeats=min(samples, 500), random_state=seed)
        return {
            "drift": float(qp.evaluation.evaluate(quantifier, drift, "mae")),
            "same": float(qp.evaluation.evaluate(quantifier, same, "mae")),
            "seconds": seconds,
        }

    return quietly(seed, evaluate)


def coverage(name: str, folder: Path, seed: int, rows: int) -> dict:
    """Share of classes whose prevalence lies in its interval (nominally 95 %), width, and mean absolute error.

    A sample has 200 rows, none of them twice. It comes from all rows that are not used for training.
    """
    dataset = locate(name, folder)
    loaded = load(dataset)
    train, test = train_test_split(
        np.arange(len(loaded.y)), train_size=rows, stratify=loaded.y, random_state=seed
    )
    tools = preparer(loaded.features[train], counts=are_term_counts(loaded.features))
    X, X_test = tools.fit_transform(loaded.features[train]), tools.transform(loaded.features[test])
    labelled = qp.data.LabelledCollection(X_test, loaded.y[test])

    def evaluate() -> dict:
        quantifier = Quantifier(random_state=seed).fit(X, loaded.y[train])
        if labelled.n_classes == 2:
            protocol = qp.protocol.APP(labelled, 200, 21, repeats=2, random_state=seed)
        else:
            protocol = qp.protocol.UPP(labelled, 200, repeats=42, random_state=seed)
        found = []
        for sample, true in protocol():
            point, region = quantifier.predict_conf(sample)
            inside = region.coverage_soft(true.round(9))
            width = np.mean(region.I_high - region.I_low)
            found.append((inside, width, np.abs(point - true).mean()))
        inside, width, error = np.mean(found, axis=0)
        return {"inside": float(inside), "width": float(width), "error": float(error)}

    return quietly(seed, evaluate)


def seconds(name: str, folder: Path, method: str) -> dict:
    """Seconds of a fit, after one that compiles and is not counted."""
    X, y, _, _ = data(name, folder, 0, None)

    def evaluate() -> dict:
        fits: dict[str, Fit] = {
            "LogisticRegression": lambda X, y: LogisticRegression(max_iter=1000).fit(X, y),
            "calibrated LR": lambda X, y: tuned.isotonic().fit(X, y),
            **ours(0),
            **tuned.baselines(SIZE),
        }
        fits[method](X[:500], y[:500])
        with tuned.stopwatch((name, method)) as taken:
            fits[method](X, y)
            return {"seconds": taken()}

    return quietly(0, evaluate)


class Cells:
    """Results of cells, kept in a file, a line each."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.found = {json.dumps(key): value for key, value in map(json.loads, lines)}

    def run(self, work: Callable[..., dict], keys: list[tuple], folder: Path, jobs: int) -> None:
        """Compute the cells that are missing; a key is the arguments of the work except the folder."""
        missing = [key for key in keys if json.dumps(key) not in self.found]
        tasks = (delayed(_cell)(work, key, folder) for key in missing)
        results = Parallel(jobs, return_as="generator_unordered")(tasks)
        for done, (name, value) in enumerate(results, 1):
            self.found[json.dumps(name)] = value
            with self.path.open("a") as file:
                file.write(json.dumps([name, value]) + "\n")
            print(f"\r{done} of {len(missing)} cells", end="", flush=True)
        if missing:
            print()

    def __getitem__(self, key: tuple) -> dict:
        return self.found[json.dumps(key)]


def _cell(work: Callable[..., dict], key: tuple, folder: Path) -> tuple[tuple, dict]:
    name, *others = key
    return key, work(name, folder, *others)


def table(title: str, rows: dict[str, list[float]], columns: list[str], digits: int = 4) -> None:
    """Print a table, with the mean and the geometric mean of each row."""
    print(
        f"\n{title}\n{'':26}"
        + "".join(f"{column[:9]:>10}" for column in [*columns, "mean", "geometric"])
    )
    for name, values in rows.items():
        shown = [*values, np.mean(values), np.exp(np.mean(np.log(values)))]
        print(f"{name:26}" + "".join(f"{value:10.{digits}f}" for value in shown), flush=True)


def _means(
    cells: Cells, keys: Callable[[str], list[tuple]], what: str, names: list[str]
) -> list[float]:
    return [float(np.mean([cells[key][what] for key in keys(name)])) for name in names]


def drift(options: argparse.Namespace) -> None:
    """Print errors on sets of two classes."""
    methods = options.methods or [*ours(0), *tuned.baselines(SIZE)]
    names, cells = options.sets or list(SETS), Cells(options.out / "drift.jsonl")

    def keys(method: str) -> Callable[[str], list[tuple]]:
        return lambda name: [
            (name, seed, MOST.get(name), method, options.samples or 525)
            for seed in range(options.splits)
        ]

    every = [key for name in names for method in methods for key in keys(method)(name)]
    cells.run(errors, every, options.data_dir, options.jobs)
    for what, title in (("drift", "MAE under APP"), ("same", "MAE under NPP")):
        table(
            title, {method: _means(cells, keys(method), what, names) for method in methods}, names
        )
    ranks = np.array([_means(cells, keys(method), "drift", names) for method in methods])
    order = ranks.argsort(axis=0).argsort(axis=0) + 1
    print(
        "\nmean rank under APP:",
        ", ".join(f"{m} {r:.1f}" for m, r in zip(methods, order.mean(axis=1), strict=True)),
    )


def rows(options: argparse.Namespace) -> None:
    """Print errors against the number of training rows, say where the first two methods differ, and draw a figure."""
    methods = options.methods or ["Quantifier", "EMQ(LR-isotonic)", "EMQ(LR)"]
    names, cells = options.sets or list(SETS), Cells(options.out / "rows.jsonl")
    sizes = {
        n: [size for size in ROWS if size < 0.7 * len(load(locate(n, options.data_dir)).y)]
        for n in names
    }

    def keys(method: str, name: str, size: int) -> list[tuple]:
        return [
            (name, seed, size, method, options.samples or 105) for seed in range(options.splits)
        ]

    every = [key for n in names for size in sizes[n] for m in methods for key in keys(m, n, size)]
    cells.run(errors, every, options.data_dir, options.jobs)

    def of_splits(method: str, name: str, size: int) -> np.ndarray:
        return np.array([cells[key]["drift"] for key in keys(method, name, size)])

    def error(method: str, name: str, size: int) -> float:
        return float(np.mean(of_splits(method, name, size)))

    for name in names:
        found = {method: [error(method, name, size) for size in sizes[name]] for method in methods}
        table(f"{name}: MAE under APP by training rows", found, [str(size) for size in sizes[name]])
    if len(methods) > 1 and options.splits > 1:
        _print_ratios(names, sizes, methods, of_splits)
    _plot_rows(names, sizes, methods, error, options.out / "rows.png")


def _print_ratios(
    names: list[str],
    sizes: dict[str, list[int]],
    methods: list[str],
    of_splits: Callable[[str, str, int], np.ndarray],
) -> None:
    """Print the error of the first method as a multiple of that of the second, and where they differ.

    The training rows of splits are small parts of the data and have few rows in common. So the paired t-test over the
    splits needs no correction for that, only Holm's for the number of cells.
    """
    first, second = methods[:2]
    cells = [(name, size) for name in names for size in sizes[name]]
    pairs = [(of_splits(first, *cell), of_splits(second, *cell)) for cell in cells]
    ratios = {c: a.mean() / b.mean() for c, (a, b) in zip(cells, pairs, strict=True)}
    p_values = np.array([ttest_rel(np.log(a), np.log(b)).pvalue for a, b in pairs])
    differ = {c for c, p in zip(cells, holm(p_values), strict=True) if p < 0.05}
    every = sorted({size for _, size in cells})
    print(f"\n{first}, error as a multiple of that of {second} (* differs)")
    print(f"{'':12}" + "".join(f"{size:>10}" for size in every))
    for name in names:
        shown = [
            f"{ratios[name, n]:.2f}{'*' if (name, n) in differ else ' '}"
            if n in sizes[name]
            else ""
            for n in every
        ]
        print(f"{name:12}" + "".join(f"{text:>10}" for text in shown))
    means = [np.mean([np.log(ratios[c]) for c in cells if c[1] == size]) for size in every]
    print(f"{'geometric':12}" + "".join(f"{np.exp(mean):9.2f} " for mean in means))


def _plot_rows(
    names: list[str],
    sizes: dict[str, list[int]],
    methods: list[str],
    error: Callable[[str, str, int], float],
    path: Path,
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    width = min(len(names), 3)
    height = -(-len(names) // width)
    with plt.rc_context({"font.size": 9}):
        figure, axes = plt.subplots(
            height,
            width,
            figsize=(3 * width, 2.4 * height),
            squeeze=False,
            layout="constrained",
            sharey=True,
        )
        for axis, name in zip(axes.flat, names, strict=False):
            for method in methods:
                values = [error(method, name, size) for size in sizes[name]]
                axis.loglog(sizes[name], values, marker="o", markersize=3, label=method)
            axis.set_title(name)
            axis.grid(alpha=0.3)
        for axis in axes.flat[len(names) :]:
            axis.remove()
        figure.supxlabel("training rows")
        figure.supylabel("mean absolute error under APP")
        figure.legend(
            *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=len(methods)
        )
        figure.savefig(path, dpi=120)
    print(f"\nfigure: {path}")


def intervals(options: argparse.Namespace) -> None:
    """Print coverage and widths of intervals."""
    cells = Cells(options.out / "coverage.jsonl")
    chosen = {name: COVERAGE[name] for name in options.sets or COVERAGE}

    def keys(name: str, size: int) -> list[tuple]:
        return [(name, seed, size) for seed in range(options.repeats)]

    every = [key for name, sizes in chosen.items() for size in sizes for key in keys(name, size)]
    cells.run(coverage, every, options.data_dir, options.jobs)
    print(f"{'':12}{'rows':>8}{'coverage':>10}{'width':>8}{'MAE':>8}")
    for name, sizes in chosen.items():
        for size in sizes:
            found = [cells[key] for key in keys(name, size)]
            means = [
                np.mean([cell[what] for cell in found]) for what in ("inside", "width", "error")
            ]
            print(f"{name:12}{size:8}{means[0]:10.3f}{means[1]:8.3f}{means[2]:8.4f}")


def times(options: argparse.Namespace) -> None:
    """Print seconds of fits."""
    methods = options.methods or ["Quantifier", "LogisticRegression", "calibrated LR", "EMQ tuned"]
    names, cells = options.sets or ["adult", "letter", "imdb"], Cells(options.out / "seconds.jsonl")
    every = [(name, method) for name in names for method in methods]
    cells.run(seconds, every, options.data_dir, 1)
    found = {method: [cells[name, method]["seconds"] for name in names] for method in methods}
    table("seconds to fit", found, names, digits=2)


PARTS = {"drift": drift, "rows": rows, "coverage": intervals, "seconds": times}


def main() -> None:
    """Run a part."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.quantification",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("part", choices=PARTS)
    add("--data-dir", type=Path, required=True, help="folder of data files, as NAME.npz")
    add("--sets", nargs="+", metavar="SET", help="names of data sets")
    add("--methods", nargs="+", metavar="METHOD", help="names of methods")
    add("--splits", type=int, default=3, help="splits of each set (default %(default)s)")
    add("--repeats", type=int, default=15, help="training sets for coverage (default %(default)s)")
    add("--samples", type=int, help="test samples of each cell")
    add("--jobs", type=int, default=2, help="processes (default %(default)s)")
    add("--out", type=Path, default=Path("results/quantification"), help="folder for results")
    options = parser.parse_args()
    PARTS[options.part](options)


if __name__ == "__main__":
    with plain_errors():
        main()
