"""How good are the learners with nothing chosen by the user? Against a full grid of step sizes, and under drift.

For each data set and measure: the test value with defaults, next to the best test value of step sizes {1e-4 … 1e4} with
five passes each (picked on the test rows themselves, which flatters the grid). Then QuaPy's APP for CC, ACC, PACC and
EMQ on logistic regression and on our learners. Run ``python -m experiments.defaults --data-dir FOLDER``.
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
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from experiments.accuracy import GRID, online_learner
from experiments.data import TEXT, from_npz, split
from experiments.errors import plain_errors
from quapy_nemsis import BA, NEMSISClassifier, SCANClassifier, get_measure

SETS = ("adult", "ijcnn1", "letter", "cod-rna", "covtype", "w8a", "imdb", "sms-spam")
MEASURES = ("kld", "bakld:0.5", "q", "cq")


def prepare(folder: Path, name: str, seed: int) -> tuple:
    """Train and test part: text as tf-idf, the rest standardised."""
    X, y = from_npz(folder, name)
    if name not in TEXT:
        return split(X, y, seed)
    parts = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
    weights = TfidfTransformer().fit(parts[0])
    return weights.transform(parts[0]), parts[2], weights.transform(parts[1]), parts[3]


def against_grid(folder: Path, names: list[str], measures: list[str], seeds: int) -> None:
    """Print the value with defaults next to the grid's best, per seed, and the mean and worst over seeds."""
    head = ("data", "measure", "seed", "default", "grid", "gap %", "BA", "s")
    print("{:9} {:9} {:>4} {:>9} {:>9} {:>7} {:>6} {:>6}".format(*head))
    for name in names:
        gaps: dict[str, list[float]] = {measure: [] for measure in measures}
        for seed in range(seeds):
            X, y, X_test, y_test = prepare(folder, name, seed)
            for measure in measures:
                value = get_measure(measure).score
                learner = online_learner(measure, 5, seed).set_params(radius="auto")
                begin = time.perf_counter()
                labels = learner.fit(X, y).predict(X_test)
                seconds = time.perf_counter() - begin
                default = value(y_test, labels)
                grid = max(
                    value(
                        y_test,
                        online_learner(measure, 5, seed)
                        .set_params(eta0=eta0)
                        .fit(X, y)
                        .predict(X_test),
                    )
                    for eta0 in GRID
                )
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
    """What the aggregations are put on."""
    return {
        "LR": LogisticRegression(max_iter=1000),
        "LR balanced": LogisticRegression(max_iter=1000, class_weight="balanced"),
        "NEMSIS:q": NEMSISClassifier("q", random_state=seed),
        "NEMSIS:ba": NEMSISClassifier("ba", random_state=seed),
        "NEMSIS:ba log.": NEMSISClassifier("ba", reward="logistic", random_state=seed),
        "SCAN:cq": SCANClassifier("cq", random_state=seed),
    }


def drift_errors(folder: Path, name: str, seed: int, repeats: int) -> np.ndarray:
    """Mean absolute error under APP, classifiers by aggregations."""
    X, y, X_test, y_test = prepare(folder, name, seed)
    test = qp.data.LabelledCollection(X_test, y_test, classes=[-1, 1])
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


def under_drift(folder: Path, names: list[str], seeds: int, repeats: int, jobs: int) -> None:
    """Print the error of four aggregations over our classifiers and logistic regression, mean over seeds."""
    cells = [(name, seed) for name in names for seed in range(seeds)]
    run = Parallel(jobs, return_as="generator")
    found = run(delayed(drift_errors)(folder, name, seed, repeats) for name, seed in cells)
    errors: dict[str, list[np.ndarray]] = {name: [] for name in names}
    print(f"\n{'MAE under APP':26}" + "".join(f"{method.__name__:>8}" for method in METHODS))
    for (name, _), cell in zip(cells, found, strict=True):
        errors[name].append(cell)
        if len(errors[name]) == seeds:
            _print_errors(name, np.mean(errors[name], axis=0))
    _print_errors("mean", np.mean([errors[name] for name in names], axis=(0, 1)))


def _print_errors(name: str, errors: np.ndarray) -> None:
    for label, row in zip(classifiers(0), errors, strict=True):
        print(f"{name:10} {label:15}" + "".join(f"{error:8.4f}" for error in row), flush=True)


def main() -> None:
    """Run both comparisons."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.defaults", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of npz files")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--measures", nargs="+", default=list(MEASURES))
    parser.add_argument("--seeds", type=int, default=5, help="splits for the grid, 0 leaves it out")
    parser.add_argument("--drift-seeds", type=int, default=3, help="splits for APP")
    parser.add_argument("--jobs", type=int, default=2, help="processes for APP")
    parser.add_argument(
        "--repeats", type=int, default=25, help="samples per prevalence in APP, 0 leaves it out"
    )
    options = parser.parse_args()
    if options.seeds:
        against_grid(options.data_dir, options.sets, options.measures, options.seeds)
    if options.repeats:
        sets, seeds = options.sets, options.drift_seeds
        under_drift(options.data_dir, sets, seeds, options.repeats, options.jobs)


if __name__ == "__main__":
    with plain_errors():
        main()
