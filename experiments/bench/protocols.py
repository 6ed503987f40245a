"""Aggregations of all samples of a protocol, on data sets of users."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import quapy as qp
from sklearn.linear_model import LogisticRegression

from experiments.bench.aggregations import SAMPLE_SIZE, seconds_of
from experiments.bench.tables import BenchTable
from experiments.catalogue import locate
from experiments.data import split

METHODS = ("ACC", "PACC", "EMQ", "KDEy")


def protocols(sets: list[str], data_dir: Path | None, n_samples: int, few: int) -> BenchTable:
    """Time the aggregation of samples under UPP on several data sets, QuaPy's code and the compiled one.

    Parameters
    ----------
    sets : list of str
        Names or paths of data sets.
    data_dir : Path, optional
        Folder of data files.
    n_samples : int
        Number of samples that the compiled code takes.
    few : int
        Number of samples that QuaPy's code takes; its time is scaled up.
    """
    table = BenchTable(
        "protocols", f"Aggregation of UPP, {n_samples:,} samples of {SAMPLE_SIZE} rows, one thread"
    )
    for name in sets:
        X, y, X_test, y_test = split(locate(name, data_dir), seed=0)
        classes = np.unique(y)
        test = qp.data.LabelledCollection(X_test, y_test, classes=classes)
        learner = LogisticRegression(max_iter=1000).fit(X, y)
        protocol = qp.protocol.UPP(
            test, SAMPLE_SIZE, n_samples, random_state=0, return_type="index"
        )
        indices = list(protocol())
        row: dict[str, str | float] = {"set": name, "classes": float(len(classes))}
        for method in METHODS:
            found = seconds_of(method, (X, y), X_test, learner, indices, few, 1)
            scale = n_samples / 1000
            row |= {f"{method}, QuaPy": scale * found["QuaPy"], method: scale * found["compiled"]}
        table.rows.append(row)
    totals = {key: sum(row[key] for row in table.rows) for key in list(table.rows[0])[2:]}
    table.rows.append({"set": "all", "classes": 0.0, **totals})
    table.note = f"Seconds, of QuaPy's code scaled up from {few} samples. Drawing and classifying rows is not counted."
    return table
