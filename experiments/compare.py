"""Data sets × methods × seeds under a protocol of QuaPy: cells that are computed once and kept."""

from __future__ import annotations

import time
import traceback
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import quapy as qp
from threadpoolctl import threadpool_limits

from experiments import data, methods
from experiments.catalogue import DataSet
from experiments.store import Cell, Store, compute, provenance

#: The modules that determine what a cell holds.
COMPUTING = ("compare", "curves", "data", "files", "methods", "names", "prepare")


@dataclass(frozen=True)
class Protocol:
    """How test samples are drawn."""

    #: "APP" (a grid of prevalences), "UPP" (prevalences at random) or "NPP" (as in the test part).
    name: str = "APP"
    sample_size: int = 100
    #: Samples per prevalence of APP, samples in all of the others.
    repeats: int = 25
    #: Points of APP's grid.
    n_prevalences: int = 21

    def on(self, collection: qp.data.LabelledCollection, seed: int) -> Any:
        """Return QuaPy's protocol over a collection."""
        options: dict[str, Any] = {"repeats": self.repeats, "random_state": seed}
        if self.name == "APP":
            options["n_prevalences"] = self.n_prevalences
        return getattr(qp.protocol, self.name)(collection, self.sample_size, **options)


@dataclass(frozen=True)
class Task:
    """What a cell is made from."""

    dataset: DataSet
    method: str
    seed: int
    protocol: Protocol


def run_task(task: Task) -> Cell:
    """Train the method on a split and let it estimate every sample; what goes wrong is written down."""
    cell = Cell(task.dataset.name, task.method, task.seed)
    try:
        with threadpool_limits(1), qp.util.temp_seed(task.seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            X, y, X_test, y_test = data.prepare(task.dataset, task.seed)
            cell.train_prevalence = float(y.mean())
            begin = time.perf_counter()
            quantifier = methods.method(task.method)(X, y, task.seed).fit(X, y)
            cell.fit_seconds = time.perf_counter() - begin
            test = qp.data.LabelledCollection(X_test, y_test, classes=[0, 1])
            protocol = task.protocol.on(test, task.seed)
            begin = time.perf_counter()
            true, estimated = qp.evaluation.prediction(quantifier, protocol, aggr_speedup="force")
            cell.predict_seconds = time.perf_counter() - begin
        cell.true, cell.estimated = true[:, 1], estimated[:, 1]
    except Exception as error:  # a method can fail in any way, and must not stop the rest
        where = traceback.extract_tb(error.__traceback__)[-1]
        cell.error = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    return cell


def _run_record(task: Task) -> dict:
    return run_task(task).record()


def keys(tasks: list[Task]) -> list[dict]:
    """Return the keys that cells are filed under: all that determines them, as plain JSON."""
    code = provenance(*COMPUTING)
    return [
        {
            "data": task.dataset.name,
            "method": task.method,
            "seed": task.seed,
            "protocol": asdict(task.protocol),
            "rows": data.load(task.dataset).fingerprint,
            "target": task.dataset.target,
            "positive": task.dataset.positive,
            "code": code,
        }
        for task in tasks
    ]


def run(tasks: list[Task], folder: Path, jobs: int = 1, retry: bool = False) -> list[Cell]:
    """Return the cells of all tasks, in their order (see `experiments.store.compute`)."""
    options: dict[str, Any] = {"what": "cells", "jobs": jobs, "retry": retry}
    records = compute(_run_record, tasks, keys(tasks), folder, **options)
    return [Cell.from_record(record) for record in records]


def file_names(tasks: list[Task], folder: Path) -> list[str]:
    """Return the file names of the cells of all tasks, whether they exist or not."""
    return [Store(folder).path(key).name for key in keys(tasks)]


def finished(names: list[str], folder: Path) -> list[Cell]:
    """Return the cells of those files that exist."""
    found = (Store.read(folder / name) for name in names)
    return [Cell.from_record(entry["record"]) for entry in found if entry is not None]
