"""Streams from a file, and a Dask cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from experiments import data
from experiments.bench.tables import BenchTable, best_of
from experiments.catalogue import DataSet
from quapy_nemsis import NegKLD, NEMSISClassifier, QMeasure
from quapy_nemsis.streaming import fit_stream, read_parquet

WIDTH, GROUP = 50, 100_000
WORKERS: dict[str, Any] = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}


def write_rows(path: Path, n_rows: int) -> None:
    """Write a Parquet file of generated rows, in groups, if there is none of this size yet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.exists() and pq.ParquetFile(path).metadata.num_rows == n_rows:
        return
    rng = np.random.default_rng(0)
    w = rng.normal(size=WIDTH) / np.sqrt(WIDTH)
    schema = pa.schema([*((f"x{j}", pa.float64()) for j in range(WIDTH)), ("y", pa.int8())])
    with pq.ParquetWriter(path, schema) as file:
        for start in range(0, n_rows, GROUP):
            size = min(GROUP, n_rows - start)
            X = rng.normal(size=(WIDTH, size))
            y = (w @ X + 0.5 * rng.normal(size=size) > 1.0).astype(np.int8)
            file.write_table(pa.table([*X, y], schema=schema))


def stream(n_rows: int, folder: Path) -> BenchTable:
    """Measure rows a second from a Parquet file: parsed, read as a source, learned."""
    import pyarrow.parquet as pq

    path = Path(folder) / "rows.parquet"
    write_rows(path, n_rows)

    def parse() -> None:
        # Opened as `read_parquet` does, so that memory does not grow with the row groups.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20) as file:
            for batch in file.iter_batches(batch_size=65_536):
                for column in batch.columns:
                    column.to_numpy(zero_copy_only=False)

    def read() -> None:
        for _ in read_parquet(path, "y"):
            pass

    def learn() -> None:
        fit_stream(NEMSISClassifier("q"), read_parquet(path, "y"), classes=[0, 1])

    fit_stream(NEMSISClassifier("q"), read_parquet(path, "y"), classes=[0, 1], max_rows=10_000)
    read()  # so that the file is in memory for all, as far as it fits
    found = best_of(2, parsed=parse, read=read, learned=learn)
    return BenchTable(
        "stream",
        f"A stream of {n_rows:,} x {WIDTH} float64 from Parquet",
        [
            {
                "rows are": name,
                "seconds": seconds,
                "rows a second": n_rows / seconds,
                "of all": seconds / found["learned"],
            }
            for name, seconds in found.items()
        ],
        "Parsed by pyarrow to columns; read by read_parquet to checked row-major chunks; learned by fit_stream with "
        "its defaults, each chunk judged first, while the next one is read. Best of two, in turns, the file in the "
        "system's cache if it fits.",
    )


def task_seconds(tasks: int = 100, rounds: int = 5) -> float:
    """Measure what a cluster of one worker spends on a task of a round that has next to nothing to learn."""
    from distributed import Client, LocalCluster

    from quapy_nemsis.distributed import fit

    rng = np.random.default_rng(0)
    X = rng.normal(size=(tasks * 10, 100))
    y = X[:, 0] > 0.5
    learner = NEMSISClassifier("q", eta0=0.1, radius=1.0, n_passes=rounds, random_state=0)
    with LocalCluster(n_workers=1, **WORKERS) as cluster, Client(cluster) as client:
        blocks = client.scatter([(X[i::tasks], y[i::tasks]) for i in range(tasks)])
        seconds = []
        for passes in (1, 1, 1 + rounds):  # the first run loads the kernels
            begin = time.perf_counter()
            fit(learner.set_params(n_passes=passes), blocks)
            seconds.append(time.perf_counter() - begin)
    return (seconds[2] - seconds[1]) / (rounds * tasks)


def dask(dataset: DataSet, partitions: int = 2) -> BenchTable:
    """Time the serial learner against one and two workers of a cluster, after equal passes."""
    from distributed import Client, LocalCluster

    from quapy_nemsis.distributed import fit

    X, y, X_test, y_test = data.prepare(dataset, seed=0)
    X = np.ascontiguousarray(X)
    rows = -(-len(y) // partitions)
    table = BenchTable("dask", f"{dataset.name}, {X.shape[0]:,} x {X.shape[1]}, on a cluster")

    def measured(how: str, who: str, task: Callable[[], Any]) -> Any:
        task()  # loads the kernels
        begin = time.perf_counter()
        fitted = task()
        seconds = time.perf_counter() - begin
        labels = fitted.predict(X_test)
        q, kld = QMeasure().score(y_test, labels), -NegKLD().score(y_test, labels)
        serial = next((row["seconds"] for row in table.rows if row["how"] == how), seconds)
        entry = {"how": how, "who": who, "seconds": seconds, "/ serial": seconds / serial}
        table.rows.append({**entry, "q": q, "KLD": kld})
        return fitted

    def fit_clone(how: str) -> Any:
        return clone(learners[how]).fit(X, y)

    first = "5 passes, step chosen"
    learners = {first: NEMSISClassifier("q", random_state=0)}
    chosen = measured(first, "serial", partial(fit_clone, first))
    for n_passes in (5, 50):
        steps = {"eta0": chosen.eta0_, "radius": chosen.radius_, "n_passes": n_passes}
        how = f"{n_passes} passes, step given"
        learners[how] = clone(learners[first]).set_params(**steps)
        measured(how, "serial", partial(fit_clone, how))
    for workers, who in ((1, "1 worker"), (2, "2 workers")):
        with LocalCluster(n_workers=workers, **WORKERS) as cluster, Client(cluster) as client:
            parts = [slice(a, a + rows) for a in range(0, len(y), rows)]
            blocks = client.scatter([(X[part], y[part]) for part in parts])
            for how, learner in learners.items():
                measured(how, who, partial(fit, learner, blocks))
    table.rows.sort(key=lambda row: list(learners).index(row["how"]))
    where = f"{partitions} partitions, on the workers beforehand."
    table.note = f"{where} A step size is chosen on the client."
    return table
