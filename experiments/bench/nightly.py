"""What it takes to estimate prevalences in a large file, next to reading it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from experiments.bench.processes import run_python
from experiments.bench.tables import BenchTable
from quapy_nemsis import TableQuantifier, save

WIDTH = 50
_MEASURE = """
import time
from quapy_nemsis import load
from quapy_nemsis.tables.chunking import chunks
def status(key):
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(key)) * 1024
model = load(MODEL)
model.estimate(SMALL)  # what is done once in a process is done
tasks = {
    "read": lambda path: sum(len(part) for part, _ in chunks(path, NUMBERS)),
    "estimate": lambda path: model.estimate(path).n_rows,
}
for path in PATHS:
    for task in tasks.values():
        open("/proc/self/clear_refs", "w").write("5")
        began, used = time.perf_counter(), time.process_time()
        rows = task(path)
        print(time.perf_counter() - began, time.process_time() - used, status("VmHWM"), rows)
"""


def table(rows: int, seed: int) -> pd.DataFrame:
    """Return rows of 45 numbers, three categories, a boolean and a date; 30 % are positive."""
    rng = np.random.default_rng(seed)
    y = rng.random(rows) < 0.3
    X = rng.normal(size=(rows, WIDTH - 5)) + 0.2 * y[:, np.newaxis]
    frame = pd.DataFrame(X.round(4), columns=[f"x{k}" for k in range(WIDTH - 5)])
    for k in range(3):
        frame[f"c{k}"] = rng.choice(["red", "green", "blue", "grey"], rows)
    frame["flag"] = rng.random(rows) < 0.3 + 0.2 * y
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 360, rows), "D")
    frame["day"] = days.strftime("%Y-%m-%d")
    return frame.assign(label=np.where(y, "yes", "no"))


def files(rows: int, scratch: Path) -> BenchTable:
    """Measure reading a file in chunks and estimating from it, in a process of its own."""
    model = TableQuantifier("label").fit(table(5_000, 0))
    save(model, scratch / "model.qn")
    paths = {"CSV": scratch / f"rows{rows}.csv", "Parquet": scratch / f"rows{rows}.parquet"}
    block = 100_000
    whole = pd.concat(
        [table(min(block, rows - start), 1 + start) for start in range(0, rows, block)]
    ).drop(columns="label")
    whole.to_csv(paths["CSV"], index=False)
    whole.to_parquet(paths["Parquet"], index=False)
    whole[:100].to_csv(scratch / "small.csv", index=False)
    inside = {
        "MODEL": str(scratch / "model.qn"),
        "SMALL": str(scratch / "small.csv"),
        "PATHS": [str(path) for path in paths.values()],
        "NUMBERS": {name for name in whole if name.startswith("x")},
    }
    del whole
    code = _MEASURE
    for name, value in inside.items():
        code = code.replace(name, repr(value))
    numbers = iter(run_python(code))
    lines = []
    for kind in paths:
        for what in ("read", "estimate"):
            wall, used, peak, found = (next(numbers) for _ in range(4))
            lines.append(
                {
                    "what": f"{what} {kind}, {int(found):,} x {WIDTH}",
                    "seconds": wall,
                    "of the processor": used,
                    "peak MB": peak / 2**20,
                }
            )
    return BenchTable("files", "Estimates from large files", lines)
