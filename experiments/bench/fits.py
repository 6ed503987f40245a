"""Whole fits: what choosing costs, how time grows with rows, and quality against time, next to baselines."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from experiments import data
from experiments.bench.passes import (
    ONE,
    bags,
    bags_of_classes,
    fitting,
    gaussian,
    gaussian_classes,
    sgd,
    with_threads,
)
from experiments.bench.tables import BenchTable, best_of, compared
from experiments.catalogue import DataSet, locate
from experiments.curves import online_curve, partial_curve
from quapy_nemsis import NegKLD, NEMSISClassifier, QMeasure, Quantifier


def tuning(n_rows: int, repeats: int) -> BenchTable:
    """Measure what choosing the step size and the radius costs."""
    X, y = gaussian(n_rows)
    tasks: dict[str, Callable] = {
        "fit, both given": fitting(NEMSISClassifier("q", **{**ONE, "n_passes": 5}), X, y),
        "fit, both chosen": fitting(NEMSISClassifier("q", random_state=0), X, y),
        "LogisticRegression.fit": fitting(LogisticRegression(max_iter=1000), X, y),
    }
    return BenchTable(
        "tuning",
        f"Five passes, step size and radius given or chosen out of 16 pairs, dense {n_rows:,} x 54",
        compared(
            best_of(max(repeats // 3, 1), **tasks), "fit, both given", "LogisticRegression.fit"
        ),
    )


#: With the threads of BLAS that it takes, and with one: for small matrices, one is often faster.
REGRESSION = ("LogisticRegression", "LogisticRegression, one thread")


def defaults(
    n_rows: int, repeats: int, sets: Sequence[str] = (), data_dir: Path | None = None
) -> BenchTable:
    """Time fits with all their defaults, with posteriors out of fold, dense and CSR, next to baselines.

    Parameters
    ----------
    n_rows : int
        Number of generated rows.
    repeats : int
        Three times the number of repeats, of which the best counts.
    sets : sequence of str
        Names or paths of data sets, whose training rows are timed as well.
    data_dir : Path, optional
        Folder of data files.
    """
    table = BenchTable("defaults", "Fit with defaults, posteriors out of fold")
    generated: dict[str, Callable[[], tuple]] = {
        f"dense {n_rows // 10:,} x 54": partial(gaussian, n_rows // 10),
        f"dense {n_rows:,} x 54": partial(gaussian, n_rows),
        f"CSR {n_rows // 10:,} x 27,272": partial(bags, n_rows // 10, 27_272, 130),
        f"7 classes, dense {n_rows // 10:,} x 54": partial(gaussian_classes, n_rows // 10, 54, 7),
    }
    real = {name: partial(data.split, locate(name, data_dir), 0) for name in sets}
    for name, make in (generated | real).items():
        X, y, *_ = make()
        ours = NEMSISClassifier("ba", reward="logistic", random_state=0)
        clone(ours).fit(X[:1000], y[:1000]).predict_proba(X[:10])  # which compiles
        regression = fitting(LogisticRegression(max_iter=1000), X, y)
        tasks: dict[str, Callable] = {
            "NEMSIS": fitting(ours, X, y),
            "Quantifier": fitting(Quantifier(features=None, random_state=0), X, y),
            **dict(zip(REGRESSION, (regression, with_threads(1, regression)), strict=True)),
            "SGDClassifier": fitting(sgd(5), X, y),
            "LinearSVC": fitting(LinearSVC(dual=False), X, y),
        }
        best = best_of(max(repeats // 3, 1), **tasks)
        ratios = {
            f"NEMSIS / {other}": best["NEMSIS"] / best[other]
            for other in (*REGRESSION, "SGDClassifier", "LinearSVC")
        }
        table.rows.append({"data": name, "rows": X.shape[0], **best, **ratios})
    table.note = "Seconds, and ratios. SGDClassifier makes five passes with its fixed step, without posteriors."
    return table


def class_fits(n_rows: int, repeats: int) -> BenchTable:
    """Time a fit of several classes with all its defaults, next to logistic regression."""
    table = BenchTable("class fits", "Fit with defaults (tuned) of several classes")
    cases = {
        f"7 classes, dense {n_rows // 10:,} x 54": gaussian_classes(n_rows // 10, 54, 7),
        f"7 classes, dense {n_rows * 4 // 5:,} x 54": gaussian_classes(n_rows * 4 // 5, 54, 7),
        f"20 classes, CSR {n_rows // 5:,} x 7,000": bags_of_classes(n_rows // 5, 20),
    }
    for name, (X, y) in cases.items():
        tasks = {
            "NEMSISClassifier": fitting(NEMSISClassifier("q", random_state=0), X, y),
            "LogisticRegression": fitting(LogisticRegression(max_iter=1000), X, y),
        }
        best = best_of(max(repeats // 5, 1), **tasks)
        ratio = best["NEMSISClassifier"] / best["LogisticRegression"]
        table.rows.append({"data": name, **best, "ratio": ratio})
    table.note = "Seconds."
    return table


def rows(n_rows: int, repeats: int) -> BenchTable:
    """Time a fit with all its defaults against the number of rows, next to baselines."""
    table = BenchTable(
        "rows", "Fit with defaults (five passes, tuned) against rows, dense, 54 features"
    )
    X, y = gaussian(n_rows)
    for n in (n_rows // 50, n_rows // 15, n_rows // 5, n_rows):
        learners = {
            "NEMSISClassifier": NEMSISClassifier("q", random_state=0),
            "SGDClassifier": sgd(5),
            "LogisticRegression": LogisticRegression(),
            "LinearSVC": LinearSVC(dual=False),
        }
        tasks = {name: fitting(learner, X[:n], y[:n]) for name, learner in learners.items()}
        best = best_of(max(repeats // 3, 1), **tasks)
        table.rows.append({"rows": n, **best})
    table.note = (
        "Seconds. SGDClassifier makes five passes with its fixed step; the others use their defaults, LinearSVC in "
        "the primal."
    )
    return table


def quality(n_rows: int, repeats: int) -> BenchTable:
    """Measure Q-measure and KLD on test rows against seconds of training, on the embedded set ``drift``."""
    X, y, X_test, y_test = data.prepare(DataSet("drift"), seed=0)
    X, y = X[:n_rows], y[:n_rows]
    iterative = {
        "LogisticRegression": LogisticRegression(),
        "LogisticRegression, balanced": LogisticRegression(class_weight="balanced"),
        "LinearSVC, balanced": LinearSVC(dual=False, class_weight="balanced"),
    }
    weights = dict(enumerate(len(y) / (2.0 * np.bincount(y))))
    curves = {
        "NEMSIS:q": online_curve(NEMSISClassifier("q"), X, y, n_passes=20, seed=0),
        "SGD, balanced": partial_curve(sgd().set_params(class_weight=weights), X, y, 20, seed=0),
        **{name: _more_iterations(learner, X, y) for name, learner in iterative.items()},
    }
    table = BenchTable("quality", "Quality against seconds of training: 42,000 x 20, 5 % positive")
    for method, curve in curves.items():
        for seconds, learner in curve:
            labels = learner.predict(X_test)
            q, kld = QMeasure().score(y_test, labels), -NegKLD().score(y_test, labels)
            table.rows.append({"method": method, "seconds": seconds, "q": q, "KLD": kld})
    table.note = "One run, as it comes. NEMSIS with its step size chosen beforehand (see tuning)."
    return table


def _more_iterations(learner: Any, X: np.ndarray, y: np.ndarray) -> Iterator[tuple[float, Any]]:
    """Yield the learner after 1, 2, 4 … iterations, each time from the beginning, with the seconds it took."""
    for number in (1, 2, 4, 8, 16, 32):
        stage = clone(learner).set_params(max_iter=number)
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            stage.fit(X, y)
        yield time.perf_counter() - begin, stage
