"""Show how fast the structural SVM is. Run ``python -m experiments.baselines --data-dir FOLDER``.

KLD over training time next to NEMSIS and 1PMB is Figure 1 of the paper: ``python -m experiments reproduce fig1``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from experiments.catalogue import locate
from experiments.data import load, prepare
from experiments.errors import plain_errors
from quapy_nemsis import BA, NegKLD, SVMPerfClassifier

CS = tuple(10.0**k for k in range(-2, 5))


def timed_fit(learner: SVMPerfClassifier, X: Any, y: np.ndarray) -> float:
    """Return the seconds of `fit`, whose code is compiled beforehand."""
    SVMPerfClassifier(learner.loss, C=1.0, tol=1.0).fit(X[:200], y[:200])
    begin = time.perf_counter()
    learner.fit(X, y)
    return time.perf_counter() - begin


def quality(learner: Any, X: Any, y: np.ndarray) -> tuple[float, float]:
    """Return KLD and BA."""
    labels = learner.predict(X)
    return abs(NegKLD().score(y, labels)), BA().score(y, labels)


def fold(folder: Path, name: str) -> tuple:
    """Return the split that the source of a data set has (``fold``, 0 for training): X, y, X_test, y_test.

    Without one, 70 % of the rows at random are for training.
    """
    loaded = load(locate(name, folder))
    train = np.random.default_rng(0).random(len(loaded.y)) < 0.7
    if loaded.held_out is not None:
        train = ~loaded.held_out
    X, y = loaded.features.astype(float), loaded.y
    return X[train], y[train], X[~train], y[~train]


def over_C(folder: Path, tol: float) -> None:
    """Print how SVM(KLD) does on adult, for each C."""
    X, y, X_test, y_test = fold(folder, "adult")
    print(f"SVM(KLD) on adult, {X.shape[0]:,} x {X.shape[1]} CSR, tol {tol:g}")
    print("       C  seconds  planes      gap   KLD train  KLD test  BA train  BA test")
    for C in CS:
        learner = SVMPerfClassifier("kld", C=C, tol=tol, max_iter=5000)
        seconds = timed_fit(learner, X, y)
        (kld, ba), (kld_test, ba_test) = quality(learner, X, y), quality(learner, X_test, y_test)
        print(
            f"{C:8g} {seconds:8.3f} {learner.n_iter_:7} {learner.gap_:8.1e} {kld:11.2e} {kld_test:9.2e} "
            f"{ba:9.3f} {ba_test:8.3f}",
            flush=True,
        )


def over_rows(folder: Path, C: float) -> None:
    """Print the time of SVM(KLD) on more and more rows of cod-rna, with the slope of log time over log n."""
    loaded = load(locate("cod-rna", folder))
    X, y = StandardScaler().fit_transform(loaded.features), loaded.y
    order = np.random.default_rng(0).permutation(len(y))
    print(f"\nSVM(KLD) on cod-rna, C = {C:g}: time against rows")
    print("    rows  seconds  planes  ms a plane  slope")
    before: tuple[int, float] | None = None
    for rows in (10_000, 30_000, 100_000, 300_000):
        learner = SVMPerfClassifier("kld", C=C)
        part = order[:rows]
        seconds = min(timed_fit(learner, X[part], y[part]) for _ in range(3))
        each = 1e3 * seconds / learner.n_iter_
        slope = np.nan if before is None else np.log(each / before[1]) / np.log(rows / before[0])
        print(f"{rows:8} {seconds:8.3f} {learner.n_iter_:7} {each:11.2f} {slope:6.2f}", flush=True)
        before = rows, each


def two_dimensional(folder: Path) -> None:
    """Print how losses of two rates do on the training part of ijcnn1."""
    X, y, X_test, y_test = prepare(locate("ijcnn1", folder), seed=0)
    print(f"\nLosses of two rates on ijcnn1, {X.shape[0]:,} x {X.shape[1]}")
    print("loss          C  seconds  planes      gap  loss train  BA test")
    for loss in ("qrecall", "f1", "qgm"):
        for C in (1.0, 100.0, 10_000.0):
            learner = SVMPerfClassifier(loss, C=C)
            seconds = timed_fit(learner, X, y)
            print(
                f"{loss:7} {C:7g} {seconds:8.3f} {learner.n_iter_:7} {learner.gap_:8.1e} "
                f"{learner.history_['loss'][-1]:11.4f} {quality(learner, X_test, y_test)[1]:8.3f}",
                flush=True,
            )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.baselines", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of npz files")
    parser.add_argument("--tol", type=float, default=1e-3, help="duality gap on adult")
    options = parser.parse_args()
    over_C(options.data_dir, options.tol)
    over_rows(options.data_dir, C=1000.0)
    two_dimensional(options.data_dir)


if __name__ == "__main__":
    with plain_errors():
        main()
