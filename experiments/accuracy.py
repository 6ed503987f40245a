"""Print test values of NEMSIS, SCAN and CAN on real data, with the paper's protocol.

The rows are split 70/30, stratified, and features are standardised on the training part. η₀ is chosen out of
{1e-4 … 1e4} by the measure on a fifth of the training part; then the learner is trained on all of it. Run
``python -m experiments.accuracy --data-dir FOLDER``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from experiments.catalogue import locate
from experiments.data import prepare
from experiments.errors import plain_errors
from quapy_nemsis import (
    BA,
    CANClassifier,
    NegKLD,
    NEMSISClassifier,
    PseudoMeasure,
    SCANClassifier,
    get_measure,
)

GRID = tuple(10.0**k for k in range(-4, 5))


def choose_eta0(
    learner: NEMSISClassifier | SCANClassifier, X: np.ndarray, y: np.ndarray, seed: int
) -> float:
    """Return the η₀ with the best value on a fifth of the data; ties of a measure that only counts are broken by BA."""
    X_fit, X_val, y_fit, y_val = train_test_split(
        X, y, test_size=0.2, stratify=y, random_state=seed
    )
    measure = get_measure(learner.measure)
    labels = [learner.set_params(eta0=eta0).fit(X_fit, y_fit).predict(X_val) for eta0 in GRID]
    values = np.array([measure.score(y_val, found) for found in labels])
    if measure.prevalence_only:
        # Many counts are as good as the best within two standard errors, among them those of bad classifiers.
        differences = [(found > 0).astype(int) - (y_val > 0) for found in labels]
        error = np.array([abs(difference.mean()) for difference in differences])
        deviation = np.array([difference.std() for difference in differences]) / np.sqrt(len(y_val))
        balanced = [BA().score(y_val, found) for found in labels]
        values = np.where(error <= np.min(error + 2 * deviation), balanced, -np.inf)
    return GRID[int(np.argmax(values))]


def online_learner(measure: str, passes: int, seed: int) -> NEMSISClassifier | SCANClassifier:
    """Return the learner of a measure's family."""
    pseudo = isinstance(get_measure(measure), PseudoMeasure)
    learner = SCANClassifier if pseudo else NEMSISClassifier
    return learner(measure, radius=np.inf, n_passes=passes, random_state=seed)


def main() -> None:
    """Print one line per data set, measure and method."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.accuracy", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--data-dir", type=Path, required=True, help="folder of data files, as NAME.npz"
    )
    parser.add_argument(
        "--sets",
        nargs="+",
        default=["adult", "ijcnn1", "letter", "covtype"],
        help="names of data sets (default: %(default)s)",
    )
    parser.add_argument("--measures", nargs="+", default=["kld", "bakld:0.5", "q", "cq", "bk"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--can", action="store_true", help="the exact batch optimum beside it")
    options = parser.parse_args()
    head = ("data", "measure", "method", "eta0", "value", "KLD", "BA", "fit s")
    print("{:10} {:10} {:8} {:>7} {:>10} {:>9} {:>7} {:>7}".format(*head))
    for name in options.sets:
        X, y, X_test, y_test = prepare(locate(name, options.data_dir), options.seed)
        for measure in options.measures:
            learner = online_learner(measure, options.passes, options.seed)
            learner.set_params(eta0=choose_eta0(learner, X, y, options.seed))
            learners = [learner, CANClassifier(measure)] if options.can else [learner]
            for method in learners:
                begin = time.perf_counter()
                method.fit(X, y)
                seconds = time.perf_counter() - begin
                labels = method.predict(X_test)
                print(
                    f"{name:10} {measure:10} {type(method).__name__.removesuffix('Classifier'):8} "
                    f"{getattr(method, 'eta0', float('nan')):7g} "
                    f"{get_measure(measure).score(y_test, labels):10.6f} "
                    f"{-NegKLD().score(y_test, labels):9.2e} {BA().score(y_test, labels):7.4f} "
                    f"{seconds:7.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    with plain_errors():
        main()
