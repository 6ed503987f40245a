"""Test values of NEMSIS, SCAN and CAN on real data, with the paper's protocol.

70/30 stratified split, features standardised on the training part, η₀ out of {1e-4 … 1e4} by the measure on a fifth of
the training part, then trained on all of it. Run ``python -m experiments.accuracy --data-dir FOLDER``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from experiments.data import from_npz, split
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
from quapy_nemsis.tuning import Judgement

GRID = tuple(10.0**k for k in range(-4, 5))


def choose_eta0(
    learner: NEMSISClassifier | SCANClassifier, X: np.ndarray, y: np.ndarray, seed: int
) -> float:
    """η₀ with the best value on a fifth of the data; ties of a measure that only counts are broken by BA."""
    X_fit, X_val, y_fit, y_val = train_test_split(
        X, y, test_size=0.2, stratify=y, random_state=seed
    )
    positive = y_val > 0
    hits = []
    for eta0 in GRID:
        right = learner.set_params(eta0=eta0).fit(X_fit, y_fit).predict(X_val) == y_val
        hits.append((right[positive].sum(), right[~positive].sum()))
    judgement = Judgement(positive.sum(), (~positive).sum(), *np.array(hits, dtype=float).T)
    return GRID[int(np.argmax(judgement.ranking(get_measure(learner.measure))))]


def online_learner(measure: str, passes: int, seed: int) -> NEMSISClassifier | SCANClassifier:
    """The learner of a measure's family."""
    pseudo = isinstance(get_measure(measure), PseudoMeasure)
    learner = SCANClassifier if pseudo else NEMSISClassifier
    return learner(measure, radius=np.inf, n_passes=passes, random_state=seed)


def main() -> None:
    """Print one line per data set, measure and method."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.accuracy", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--data-dir", type=Path, required=True, help="folder of NAME.npz with X and y in ±1"
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
        X, y, X_test, y_test = split(*from_npz(options.data_dir, name), options.seed)
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
