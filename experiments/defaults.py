"""Compare the learners' defaults with a full grid of step sizes.

For each data set and measure, this prints the test value with defaults, next to the best test value of step sizes
{1e-4 … 1e4} with five passes each (picked on the test rows themselves, which flatters the grid). Run
``python -m experiments.defaults --data-dir FOLDER``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from experiments.accuracy import GRID, online_learner
from experiments.catalogue import DataSet, locate
from experiments.data import prepare
from experiments.errors import plain_errors
from quapy_nemsis import BA, get_measure

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


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.defaults", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of data files")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--measures", nargs="+", default=list(MEASURES))
    parser.add_argument("--seeds", type=int, default=5, help="splits of each set")
    options = parser.parse_args()
    datasets = [locate(name, options.data_dir) for name in options.sets]
    against_grid(datasets, options.measures, options.seeds)


if __name__ == "__main__":
    with plain_errors():
        main()
