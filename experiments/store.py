"""Pieces of long work are written once and never half: a run that is killed continues where it stopped."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from tqdm import tqdm

from experiments.origin import PACKAGES
from quapy_nemsis import _files
from quapy_nemsis._sources import source_digest

#: Those fields of a cell that are arrays.
ARRAYS = ("true", "estimated", "train_prevalence")


def both(positive: Any) -> np.ndarray:
    """Return the shares of both classes from those of the positive one."""
    positive = np.asarray(positive, dtype=float)
    return np.stack([1.0 - positive, positive], axis=-1)


@dataclass
class Cell:
    """A method on a split of a data set, evaluated on many samples.

    If the method failed, ``error`` says how and the arrays are empty.
    """

    data: str
    method: str
    seed: int
    #: Names of the classes, in the order of the columns below.
    classes: list[str] = field(default_factory=list)
    #: Shares of the classes (columns) in each test sample (rows), and the method's estimates of them.
    true: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    estimated: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    #: Shares of the classes in the training part.
    train_prevalence: np.ndarray = field(default_factory=lambda: np.zeros(0))
    fit_seconds: float = float("nan")
    #: For all samples together.
    predict_seconds: float = float("nan")
    error: str = ""
    #: Share of the rows that are in the test part.
    test_share: float = 0.3
    #: Parameters that model selection chose, in words.
    chosen: str = ""
    #: Where, when and by what it was computed (see `experiments.origin`).
    origin: dict[str, str] = field(default_factory=dict)

    def record(self) -> dict:
        """Return the cell as plain JSON."""
        return {**asdict(self), **{name: getattr(self, name).tolist() for name in ARRAYS}}

    @classmethod
    def from_record(cls, record: dict) -> Cell:
        """Return the cell of a record. Old ones have the shares of the positive class, of two without names."""
        read = np.array if "classes" in record else both
        arrays = {name: read(record[name]) for name in ARRAYS}
        return cls(**{"classes": ["negative", "positive"], **record, **arrays})


def provenance(*modules: str) -> dict:
    """Return what computes a result, as part of a key: after an edit or with another version it is computed anew.

    Parameters
    ----------
    *modules : str
        The modules of this folder that compute, as ``methods`` or ``reproduce/pieces``.
    """
    folder = Path(__file__).parent
    return {
        "quapy_nemsis": source_digest(),
        "experiments": source_digest(*(folder / f"{module}.py" for module in modules)),
        "versions": {package: metadata.version(package) for package in PACKAGES},
    }


@contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file that takes its name when it is complete, in a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _files.replacing(path, mode) as file:
        yield file


class Store:
    """A folder of records, one JSON file each, named after a key of everything that determines them.

    A file holds the key as well: one that holds anything else is as good as none.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)

    def path(self, key: dict) -> Path:
        """Return the file of a record. The first words of the key are in its name, for people who look."""
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        words = [str(value) for value in key.values() if isinstance(value, str | int)][:3]
        name = "-".join(re.sub(r"\W", "_", word)[:30] for word in words)
        return self.folder / f"{name}-{digest}.json"

    def save(self, key: dict, record: dict) -> None:
        """Write a record, all or nothing."""
        with replacing(self.path(key)) as file:
            json.dump({"key": key, "record": record}, file)

    def load(self, key: dict) -> dict | None:
        """Return the record, or None if it is not there (or not readable: then it is computed anew)."""
        found = self.read(self.path(key))
        return found["record"] if found and found["key"] == key else None

    @staticmethod
    def read(path: Path) -> dict | None:
        """Return key and record of a file, or None if it holds no such thing."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and {"key", "record"} <= found.keys() else None


def _compute_one(function: Callable[[Any], dict], task: Any, number: int) -> tuple[int, dict]:
    return number, function(task)


def compute(
    function: Callable[[Any], dict],
    tasks: list[Any],
    keys: list[dict],
    folder: Path,
    *,
    what: str,
    jobs: int = 1,
    retry: bool = False,
) -> list[dict]:
    """Return the records of all tasks, in their order: those that are in the folder, and the others, computed now.

    Records are filed under the keys, each as soon as it is finished, and called ``what``, in the plural. With ``retry``
    those with an ``error`` are computed anew. On a Dask cluster (see `on_dask`) all workers are used, not ``jobs``.
    """
    store = Store(folder)
    found: dict[int, dict] = {}
    for i, key in enumerate(keys):
        record = store.load(key)
        if record is not None and not (retry and record.get("error")):
            found[i] = record
    missing = [i for i in range(len(tasks)) if i not in found]
    if found:
        print(
            f"{len(found)} of {len(tasks)} {what} are reused from {folder}: the same code and versions computed them "
            "from the same rows",
            flush=True,
        )
    work = (delayed(_compute_one)(function, tasks[i], i) for i in missing)
    results = Parallel(jobs, return_as="generator_unordered")(work)
    names = {i: store.path(keys[i]).stem.rpartition("-")[0] for i in missing}
    for i, record in _with_progress(results, names):
        store.save(keys[i], record)
        found[i] = record
    return [found[i] for i in range(len(tasks))]


@contextmanager
def on_dask(address: str | None) -> Iterator[None]:
    """Let `compute` use the workers of a Dask cluster; without an address nothing changes."""
    if address is None:
        yield
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise ValueError("--dask needs Dask: pip install 'quapy-nemsis[dask]'") from error
    try:
        client = Client(address, timeout=5)
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {address} ({error})") from error
    with client:
        threads = client.nthreads()
        if not threads:
            raise ValueError(f"the scheduler at {address} has no workers: start some first")
        if max(threads.values()) > 1:
            # QuaPy's methods draw from numpy's global random state, which threads of a process share.
            raise ValueError("workers must have one thread each: start them with --nthreads 1")
        print(f"{len(threads)} workers of the Dask cluster at {address}", flush=True)
        with parallel_config(backend="dask"):
            yield


def _with_progress(
    records: Iterator[tuple[int, dict]], names: dict[int, str]
) -> Iterator[tuple[int, dict]]:
    """Show a bar with the remaining time on a terminal, or print a line per record to a log."""
    if sys.stderr.isatty():
        with tqdm(total=len(names), dynamic_ncols=True) as bar:
            for i, record in records:
                yield i, record
                bar.set_postfix_str(names[i])
                bar.update()
        return
    begin = time.perf_counter()
    for done, (i, record) in enumerate(records, start=1):
        yield i, record
        left = (time.perf_counter() - begin) / done * (len(names) - done)
        outcome = f": {record['error']}" if record.get("error") else ""
        print(f"[{done}/{len(names)}, {left:.0f} s left] {names[i]}{outcome}", flush=True)
