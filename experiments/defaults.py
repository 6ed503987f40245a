"""Compare the learners' defaults with a full grid of step sizes, and with logistic regression under drift.

For each data set and measure, this prints the test value with defaults, next to the best test value of step sizes
{1e-4 … 1e4} with five passes each (picked on the test rows themselves, which flatters the grid). Then it runs QuaPy's
APP for CC, ACC, PACC and EMQ on logistic regression and on our learners. Run
``python -m experiments.defaults --data-dir FOLDER``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import quapy as qp
from joblib import Parallel, delayed
from quapy.method.aggregative import ACC, CC, EMQ, PACC
from quapy.protocol import APP
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from experiments.accuracy import GRID, online_learner
from experiments.catalogue import DataSet, locate
from experiments.data import prepare
from experiments.errors import plain_errors
from quapy_nemsis import BA, NEMSISClassifier, SCANClassifier, get_measure

SETS = ("adult", "ijcnn1", "letter", "cod-rna", "covtype", "w8a", "imdb", "sms-spam")
MEASURES = ("kld", "bakld:0.5", "q", "cq")


def against_grid(datasets: list[DataSet], measures: list[str], seeds: int) -> None:
    """Print the value with defaults next to the grid's best, per seed, and the mean and worst over seeds."""
    head = ("data", "measure", "seed", "default", "grid", "gap %", "BA", "s")
    print("{:9} {:9} {:>4} {:>9} {:>9} {:>7} {:>6} {:>6}".format(*head))
    for dataset in datasets:
        name = dataset.name
        gaps: dict[str, list[float]] = {measure: [] for measure in measures}
        for seed in range(seeds):
            X, y, X_test, y_test = prepare(dataset, seed)
            for measure in measures:
                value = get_measure(measure).score
                learner = online_learner(measure, 5, seed).set_params(radius="auto")
                begin = time.perf_counter()
                labels = learner.fit(X, y).predict(X_test)
                seconds = time.perf_counter() - begin
                default = value(y_test, labels)
                fixed = (online_learner(measure, 5, seed).set_params(eta0=eta0) for eta0 in GRID)
                grid = max(value(y_test, one.fit(X, y).predict(X_test)) for one in fixed)
                gap = 100.0 * (default - grid) / abs(grid) if measure != "kld" else np.nan
                gaps[measure].append(default if measure == "kld" else gap)
                print(
                    f"{name:9} {measure:9} {seed:4} {default:9.5f} {grid:9.5f} {gap:7.2f} "
                    f"{BA().score(y_test, labels):6.3f} {seconds:6.2f}",
                    flush=True,
                )
        for measure, found in gaps.items():
            print(f"{name:9} {measure:9} mean {np.mean(found):9.5f} worst {np.min(found):9.5f}")


METHODS = (CC, ACC, PACC, EMQ)


def classifiers(seed: int) -> dict[str, Any]:
    """Return the classifiers that the aggregations are put on."""
    return {
        "LR": LogisticRegression(max_iter=1000),
        "LR balanced": LogisticRegression(max_iter=1000, class_weight="balanced"),
        "NEMSIS:q": NEMSISClassifier("q", random_state=seed),
        "NEMSIS:ba": NEMSISClassifier("ba", random_state=seed),
        "NEMSIS:ba log.": NEMSISClassifier("ba", reward="logistic", random_state=seed),
        "SCAN:cq": SCANClassifier("cq", random_state=seed),
    }


def drift_errors(dataset: DataSet, seed: int, repeats: int) -> np.ndarray:
    """Return the mean absolute errors under APP: classifiers in rows, aggregations in columns."""
    X, y, X_test, y_test = prepare(dataset, seed)
    test = qp.data.LabelledCollection(X_test, y_test, classes=[0, 1])
    errors = []
    for classifier in classifiers(seed).values():
        row = []
        for method in METHODS:
            with threadpool_limits(1), qp.util.temp_seed(seed), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                quantifier = method(clone(classifier)).fit(X, y)
                protocol = APP(test, 500, n_prevalences=21, repeats=repeats, random_state=seed)
                row.append(qp.evaluation.evaluate(quantifier, protocol, "mae"))
        errors.append(row)
    return np.array(errors)


def under_drift(datasets: list[DataSet], seeds: int, repeats: int, jobs: int) -> None:
    """Print the error of four aggregations over our classifiers and logistic regression, mean over seeds."""
    cells = [(dataset, seed) for dataset in datasets for seed in range(seeds)]
    run = Parallel(jobs, return_as="generator")
    found = run(delayed(drift_errors)(*cell, repeats) for cell in cells)
    errors: dict[str, list[np.ndarray]] = {dataset.name: [] for dataset in datasets}
    print(f"\n{'MAE under APP':26}" + "".join(f"{method.__name__:>8}" for method in METHODS))
    for (dataset, _), cell in zip(cells, found, strict=True):
        errors[dataset.name].append(cell)
        if len(errors[dataset.name]) == seeds:
            _print_errors(dataset.name, np.mean(errors[dataset.name], axis=0))
    _print_errors("mean", np.mean(list(errors.values()), axis=(0, 1)))


def _print_errors(name: str, errors: np.ndarray) -> None:
    for label, row in zip(classifiers(0), errors, strict=True):
        print(f"{name:10} {label:15}" + "".join(f"{error:8.4f}" for error in row), flush=True)


def main() -> None:
    """Run both comparisons."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.defaults", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of data files")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--measures", nargs="+", default=list(MEASURES))
    parser.add_argument("--seeds", type=int, default=5, help="splits for the grid, 0 leaves it out")
    parser.add_argument("--drift-seeds", type=int, default=3, help="splits for APP")
    parser.add_argument("--jobs", type=int, default=2, help="processes for APP")
    parser.add_argument(
        "--repeats", type=int, default=25, help="samples per prevalence in APP, 0 leaves it out"
    )
    options = parser.parse_args()
    datasets = [locate(name, options.data_dir) for name in options.sets]
    if options.seeds:
        against_grid(datasets, options.measures, options.seeds)
    if options.repeats:
        under_drift(datasets, options.drift_seeds, options.repeats, options.jobs)


if __name__ == "__main__":
    with plain_errors():
        main()
