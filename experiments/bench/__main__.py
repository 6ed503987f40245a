"""Run benchmarks: ``python -m experiments.bench --help``."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from experiments.catalogue import locate
from experiments.errors import at_least, plain_errors

NAMES = (
    *("dense", "sparse", "classes", "width", "nonzeros", "rows", "class-fits", "custom"),
    *("side-by-side", "defaults"),
    *(
        "tuning",
        "aggregations",
        "protocols",
        "quality",
        "trees",
        "memory",
        "start",
        "stream",
        "files",
        "dask",
    ),
    "cost",
)
#: What some of them need to be installed.
NEEDED = {"stream": "pyarrow", "files": "pyarrow", "dask": "distributed", "cost": "distributed"}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m experiments.bench",
        description="Speed, memory and scale, next to baselines.",
    )
    add = found.add_argument
    add("names", nargs="*", metavar="NAME", help=f"which (default all): {', '.join(NAMES)}")
    add("--rows", type=int, default=500_000, help="rows of dense data (default 500,000)")
    add("--repeats", type=int, default=10, help="repeats, of which the best counts")
    add("--stream-rows", type=int, default=1_000_000, help="rows of the Parquet file (default 10⁶)")
    add("--gigabytes", type=float, default=1.0, help="size of the stream whose memory is measured")
    add("--set", default="drift", help="data set for Dask (default drift)")
    add(
        "--sets",
        nargs="+",
        default=["digits3"],
        help="data sets for protocols (default digits3) and, with --data-dir, defaults",
    )
    add("--samples", type=int, default=1000, help="samples of protocols (default 1,000)")
    add("--data-dir", type=Path, help="folder of data files")
    add("--scratch", type=Path, help="folder for the Parquet file, which is kept")
    add("--out", type=Path, default=Path("results/bench"), help="folder to write to")
    return found


def benchmarks(options: argparse.Namespace, scratch: Path) -> dict[str, Callable[[], Any]]:
    """Return all benchmarks by name, each of which gives a table, or says why it cannot run here."""
    # Only here, because it takes seconds.
    from experiments.bench import fits, nightly, passes, processes, scale
    from experiments.bench.aggregations import aggregations
    from experiments.bench.cost import cost
    from experiments.bench.protocols import protocols
    from experiments.bench.trees import trees

    size = options.rows, options.repeats
    width = cache(lambda: passes.width(*size))  # for two of them
    found: dict[str, Callable[[], Any]] = {
        "dense": lambda: passes.dense(*size),
        "sparse": lambda: passes.sparse(*size),
        "classes": lambda: passes.classes(*size),
        "width": width,
        "nonzeros": lambda: passes.nonzeros(*size),
        "rows": lambda: fits.rows(*size),
        "class-fits": lambda: fits.class_fits(*size),
        "custom": lambda: passes.custom(*size),
        "side-by-side": lambda: passes.side_by_side(*size),
        "defaults": lambda: fits.defaults(
            *size, options.sets if options.data_dir else (), options.data_dir
        ),
        "tuning": lambda: fits.tuning(*size),
        "aggregations": lambda: aggregations(*size),
        "protocols": lambda: protocols(
            options.sets, options.data_dir, options.samples, max(options.samples // 100, 2)
        ),
        "quality": lambda: fits.quality(*size),
        "trees": lambda: trees(options.rows),
        "memory": lambda: processes.memory(options.rows, options.gigabytes, scratch),
        "start": lambda: processes.start(options.repeats),
        "stream": lambda: scale.stream(options.stream_rows, scratch),
        "files": lambda: nightly.files(options.stream_rows, scratch),
        "dask": lambda: scale.dask(locate(options.set, options.data_dir)),
        "cost": lambda: cost(width(), scale.task_seconds()),
    }
    for name, package in NEEDED.items():
        if not importlib.util.find_spec(package):
            found[name] = partial(str, f"it needs {package}")
    if not processes.can_measure_memory():
        found |= dict.fromkeys(("memory", "trees", "files"), lambda: "it needs Linux")
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run benchmarks one after the other, print their tables, and write them down."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(arguments)
    at_least(vars(options), 1, "repeats", "stream_rows", "samples")
    at_least(vars(options), 1000, "rows")
    names = options.names or list(NAMES)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"unknown benchmark {unknown[0]!r}; choose from {', '.join(NAMES)}")
    if "dask" in names:
        locate(options.set, options.data_dir)  # which refuses unknown names
    import matplotlib

    matplotlib.use("Agg")
    from experiments.bench.tables import show, write

    with tempfile.TemporaryDirectory() as temporary:
        scratch = options.scratch or Path(temporary)
        scratch.mkdir(parents=True, exist_ok=True)
        known, tables = benchmarks(options, scratch), []
        for name in names:
            found = known[name]()
            if isinstance(found, str):
                print(f"\n{name} is left out: {found}", flush=True)
                continue
            tables.append(found)
            show(found)
            sys.stdout.flush()
    if tables:
        command = f"python -m experiments.bench {shlex.join(arguments)}".strip()
        print(f"\nReport: {write(tables, options.out, command)}")


if __name__ == "__main__":
    with plain_errors():
        main()
