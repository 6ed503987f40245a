"""Aggregations of many samples: QuaPy's own code and the compiled one."""

from __future__ import annotations

import warnings
from functools import partial
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


def _one_by_one(model: Any, predictions: np.ndarray, indices: list[np.ndarray]) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.array([model.aggregate(predictions[rows]) for rows in indices])


def aggregations(n_rows: int, repeats: int) -> BenchTable:
    """Time the aggregation of 1,000 samples of 500 rows under UPP, for several numbers of classes."""
    n_train, n_samples = max(n_rows // 100, 500), max(n_rows // 500, 4)
    few = max(n_samples // 50, 2)
    table = BenchTable(
        "aggregations",
        f"Aggregation of 1,000 samples of {SAMPLE_SIZE} rows, {n_train:,} training rows, one thread",
    )
    for n_classes in (2, 3, 10, 26):
        X, y = gaussian_classes(3 * n_train, max(n_classes, 10), n_classes)
        for first in (0, n_train):  # each class is there
            y[first : first + n_classes] = np.arange(n_classes)
        test = qp.data.LabelledCollection(X[n_train:], y[n_train:], classes=range(n_classes))
        learner = LogisticRegression(max_iter=1000).fit(X[:n_train], y[:n_train])
        protocol = qp.protocol.UPP(test, SAMPLE_SIZE, n_samples, return_type="index")
        indices = list(protocol())
        for name in COMPILED:
            if (name in BINARY) != (n_classes == 2):
                continue
            theirs, ours = (
                getattr(module, AGGREGATIONS[name])(learner, fit_classifier=False, val_split=None)
                for module in (aggregative, aggregation)
            )
            for model in (theirs, ours):
                model.fit(X[:n_train], y[:n_train])
            predictions = ours.classify(test.instances)
            found = ours.aggregate_samples(predictions, indices, n_jobs=1)
            expected = _one_by_one(theirs, predictions, indices[:few])
            tasks = {
                "QuaPy": partial(_one_by_one, theirs, predictions, indices[:few]),
                "compiled": partial(ours.aggregate_samples, predictions, indices, n_jobs=1),
            }
            with threadpool_limits(1):
                best = best_of(max(repeats // 5, 1), **tasks)
            seconds = {
                "QuaPy": 1000 * best["QuaPy"] / few,
                "compiled": 1000 * best["compiled"] / n_samples,
            }
            table.rows.append(
                {
                    "classes": n_classes,
                    "aggregation": name,
                    **seconds,
                    "QuaPy / compiled": seconds["QuaPy"] / seconds["compiled"],
                    "largest difference": float(abs(found[:few] - expected).max()),
                }
            )
    table.note = (
        f"Seconds for 1,000 samples, from {few} with QuaPy's code and {n_samples:,} with the compiled one. Drawing and "
        "classifying rows is not counted: it is the same for both."
    )
    return table
