"""Data sets × methods × seeds under a protocol of QuaPy: cells that are computed once and kept."""

from __future__ import annotations

import math
import time
import traceback
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import quapy as qp
from threadpoolctl import threadpool_limits

from experiments import data, methods
from experiments.catalogue import DataSet
from experiments.origin import here_and_now
from experiments.store import Cell, Store, both, compute, provenance
from experiments.tuned import stopwatch
from quapy_nemsis.aggregation import prediction

#: The modules that determine what a cell holds.
COMPUTING = ("bags", "compare", "data", "methods", "names", "tuned")
#: What determines the rows of a data set and their division, besides its source.
DIVIDED = ("target", "positive", "reading", "split", "test_size", "train_rows")
#: The most samples that APP may draw, and the most combinations of prevalences that QuaPy may pick its grid from.
MOST_SAMPLES, MOST_POINTS = 10**5, 10**7


@dataclass(frozen=True)
class Protocol:
    """How test samples are drawn."""

    #: "APP" (a grid of prevalences), "UPP" (prevalences at random, all alike), "Dirichlet" (at random, from a symmetric
    #: Dirichlet distribution), "NPP" (as in the test part) or "bags" (those of a folder, see `experiments.bags`).
    name: str = "APP"
    sample_size: int = 100
    #: Samples per prevalence of APP, samples in all of the others.
    repeats: int = 25
    #: Points of APP's grid.
    n_prevalences: int = 21
    #: Concentration of the Dirichlet distribution: 1 is UPP, with less a few classes make up most of a sample.
    alpha: float = 0.5

    @classmethod
    def chosen(cls, options: dict, n_classes: int) -> Protocol:
        """Return the protocol that the options of a comparison mean for a data set.

        If none is named, it is APP for two classes. For more, whose grid is too large, it is UPP with as many samples
        as APP draws of two.
        """
        sizes = {"n_prevalences": options["prevalences"]}
        sizes |= {name: options[name] for name in ("sample_size", "alpha") if name in options}
        name, repeats = options["protocol"] or "APP", options["repeats"]
        if options["protocol"] is None and n_classes > 2:
            name, repeats = "UPP", repeats * options["prevalences"]
        return cls(name, repeats=repeats, **sizes)

    @classmethod
    def of(cls, loaded: data.LabelledData, options: dict) -> Protocol:
        """Return the protocol on a data set: a folder's own bags, or what `chosen` returns."""
        if isinstance(loaded, data.BagData):
            return cls("bags", repeats=loaded.test.total())
        return cls.chosen(options, len(loaded.classes))

    def points(self, n_classes: int) -> int:
        """Return the number of prevalences in APP's grid."""
        return math.comb(self.n_prevalences + n_classes - 2, n_classes - 1)

    def describe(self, n_classes: int) -> str:
        """Return in words what is drawn."""
        if self.name == "bags":
            return f"{self.repeats:,} bags of the folder"
        samples = f"{self.repeats:,} samples of {self.sample_size} rows"
        if self.name == "APP":
            return f"APP, {samples} at each of {self.points(n_classes):,} prevalences"
        return f"{self.name}{f' ({self.alpha:g})' if self.name == 'Dirichlet' else ''}, {samples}"

    def check(self, n_classes: int) -> None:
        """Refuse a grid of APP that is too large, as it soon is with more classes."""
        samples = self.repeats * self.points(n_classes)
        lattice = self.n_prevalences ** (n_classes - 1)
        if self.name == "APP" and (samples > MOST_SAMPLES or lattice > MOST_POINTS):
            raise ValueError(
                f"APP with {self.n_prevalences} prevalences of each of {n_classes} classes, {self.repeats} times, "
                f"draws more than {MOST_SAMPLES:,} samples, or picks them from more than {MOST_POINTS:,} "
                "combinations: choose --protocol UPP, or fewer --prevalences or --repeats"
            )

    def on(self, collection: qp.data.LabelledCollection, seed: int) -> Any:
        """Return QuaPy's protocol over a collection."""
        options: dict[str, Any] = {"repeats": self.repeats, "random_state": seed}
        options["sample_size"] = self.sample_size
        if self.name == "Dirichlet":
            options["alpha"] = np.full(collection.n_classes, self.alpha)
            return qp.protocol.DirichletProtocol(collection, **options)
        if self.name == "APP":
            # Its own check allows fewer samples than `check` does.
            options |= {"n_prevalences": self.n_prevalences, "sanity_check": None}
        return getattr(qp.protocol, self.name)(collection, **options)


@dataclass(frozen=True)
class Task:
    """What a cell is made from."""

    dataset: DataSet
    method: str
    seed: int
    protocol: Protocol
    #: Whether QuaPy's own code aggregates, where there is a compiled aggregation.
    quapy: bool = False


def run_task(task: Task) -> Cell:
    """Train the method on a split and let it estimate every sample; what goes wrong is written down."""
    cell = Cell(task.dataset.name, task.method, task.seed)
    try:
        with threadpool_limits(1), qp.util.temp_seed(task.seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = data.load(task.dataset)
            facts = {f"sha256 of {task.dataset.name}": loaded.fingerprint}
            if aggregates := methods.implementation(task.method, task.quapy):
                facts[f"aggregation {aggregates.rpartition('.')[2]}"] = aggregates
            cell.origin = here_and_now(**facts)
            cell.classes = loaded.classes
            n_classes = len(cell.classes)
            if isinstance(loaded, data.BagData):
                X, y, protocol, held = loaded.X, loaded.y, loaded.test, loaded.validation
            else:
                X, y, X_test, y_test = data.split(task.dataset, task.seed)
                test = qp.data.LabelledCollection(X_test, y_test, classes=range(n_classes))
                protocol, held = task.protocol.on(test, task.seed), None
                cell.test_share = len(y_test) / (len(y) + len(y_test))
            cell.train_prevalence = np.bincount(y) / len(y)
            with stopwatch((task.dataset, task.seed)) as seconds:
                quantifier, cell.chosen = methods.fitted(
                    task.method, X, y, task.seed, task.protocol.sample_size, held, task.quapy
                )
                cell.fit_seconds = seconds()
            begin = time.perf_counter()
            true, estimated = prediction(quantifier, protocol, aggr_speedup="force")
            cell.predict_seconds = time.perf_counter() - begin
        if n_classes == 2:
            true, estimated = both(true[:, 1]), both(estimated[:, 1])
        cell.true, cell.estimated = true, estimated
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
            **{name: asdict(task.dataset)[name] for name in DIVIDED},
            "own": methods.own_source(task.method),
            "aggregation": methods.implementation(task.method, task.quapy),
            "code": code,
        }
        for task in tasks
    ]


def share_of(tasks: list[Task], shard: tuple[int, int]) -> list[Task]:
    """Return the tasks of the first, second, … of several runs that divide the work."""
    number, count = shard
    return tasks[number - 1 :: count]


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
