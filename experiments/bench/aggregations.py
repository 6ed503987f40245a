"""Aggregations of many samples: QuaPy's own code and the compiled one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import quapy as qp
from quapy.method import aggregative
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from experiments.bench.passes import gaussian_classes
from experiments.bench.tables import BenchTable, best_of
from experiments.names import AGGREGATIONS, COMPILED
from quapy_nemsis import aggregation

SAMPLE_SIZE = 500
BINARY = ("HDy", "DyS", "MS")
CLASSES = (2, 3, 10, 26)


def seconds_of(
    name: str,
    train: Any,
    test: np.ndarray,
    learner: Any,
    indices: list[np.ndarray],
    n_few: int,
    repeats: int,
) -> dict[str, float]:
    """Return the seconds that 1,000 samples take with QuaPy's code, which sees a few of them, and compiled."""
    few = indices[:n_few]
    theirs, ours = (
        getattr(module, AGGREGATIONS[name])(learner, fit_classifier=False, val_split=None)
        for module in (aggregative, aggregation)
    )
    for model in (theirs, ours):
        model.fit(*train)
    predictions = ours.classify(test)
    ours.aggregate_samples(predictions, few[:1])  # which compiles
    found: dict[str, np.ndarray] = {}

    def of_quapy() -> None:
        found["QuaPy"] = np.array([theirs.aggregate(predictions[rows]) for rows in few])

    def compiled() -> None:
        found["compiled"] = ours.aggregate_samples(predictions, indices, n_jobs=1)

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        best = best_of(repeats, QuaPy=of_quapy, compiled=compiled)
    theirs_took, ours_took = best["QuaPy"] / len(few), best["compiled"] / len(indices)
    return {
        "QuaPy": 1000 * theirs_took,
        "compiled": 1000 * ours_took,
        "QuaPy / compiled": theirs_took / ours_took,
        "largest difference": float(abs(found["compiled"][: len(few)] - found["QuaPy"]).max()),
    }


def aggregations(n_rows: int, repeats: int) -> BenchTable:
    """Time the aggregation of 1,000 samples of 500 rows under UPP, for several numbers of classes."""
    n_train, n_samples = max(n_rows // 100, 500), max(n_rows // 500, 4)
    table = BenchTable(
        "aggregations",
        f"Aggregation of 1,000 samples of {SAMPLE_SIZE} rows, {n_train:,} training rows, one thread",
    )
    for n_classes in CLASSES:
        X, y = gaussian_classes(3 * n_train, max(n_classes, 10), n_classes)
        for first in (0, n_train):  # each class is there
            y[first : first + n_classes] = np.arange(n_classes)
        test = qp.data.LabelledCollection(X[n_train:], y[n_train:], classes=range(n_classes))
        train = X[:n_train], y[:n_train]
        learner = LogisticRegression(max_iter=1000).fit(*train)
        indices = list(qp.protocol.UPP(test, SAMPLE_SIZE, n_samples, return_type="index")())
        for name in COMPILED:
            if (name in BINARY) == (n_classes == 2):
                few = max(n_samples // 50, 2)
                found = seconds_of(
                    name, train, test.instances, learner, indices, few, max(repeats // 5, 1)
                )
                table.rows.append({"classes": n_classes, "aggregation": name, **found})
    table.note = (
        f"Seconds for 1,000 samples, from {max(n_samples // 50, 2)} with QuaPy's code and {n_samples:,} with the "
        "compiled one. Drawing and classifying rows is not counted: it is the same for both."
    )
    return table
