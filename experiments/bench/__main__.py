"""Run benchmarks: ``python -m experiments.bench --help``."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from experiments import data
from experiments.bench import fits, passes, processes, scale
from experiments.bench.cost import cost
from experiments.bench.tables import Table, show, write
from experiments.errors import at_least, plain_errors


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        prog="python -m experiments.bench", description="Speed, memory and scale, next to peers."
    )
    found.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which (default all): {', '.join(NAMES)}"
    )
    found.add_argument("--rows", type=int, default=500_000, help="of dense data (default 500,000)")
    found.add_argument("--repeats", type=int, default=10, help="of which the best counts")
    found.add_argument(
        "--stream-rows", type=int, default=1_000_000, help="of the Parquet file (default 10⁶)"
    )
    found.add_argument(
        "--gigabytes", type=float, default=1.0, help="of the stream whose memory is measured"
    )
    found.add_argument("--set", default="drift", help="data set for Dask (default drift)")
    found.add_argument("--data-dir", type=Path, help="folder of data files")
    found.add_argument("--scratch", type=Path, help="folder for the Parquet file, which is kept")
    found.add_argument("--out", type=Path, default=Path("results/bench"), help="folder to write to")
    return found


NAMES = (
    "dense",
    "sparse",
    "width",
    "nonzeros",
    "rows",
    "custom",
    "side-by-side",
    "tuning",
    "quality",
    "memory",
    "start",
    "stream",
    "dask",
    "cost",
)


def benchmarks(options: argparse.Namespace, scratch: Path) -> dict[str, Callable[[], Table | str]]:
    """All benchmarks by name; one that cannot run here says why."""
    size = options.rows, options.repeats
    width = cache(lambda: passes.width(*size))  # for two of them
    needs = {
        "memory": "" if processes.can_measure_memory() else "needs Linux",
        "stream": "" if importlib.util.find_spec("pyarrow") else "needs pyarrow",
        **dict.fromkeys(
            ("dask", "cost"), "" if importlib.util.find_spec("distributed") else "needs Dask"
        ),
    }
    found: dict[str, Callable[[], Table | str]] = {
        "dense": lambda: passes.dense(*size),
        "sparse": lambda: passes.sparse(*size),
        "width": width,
        "nonzeros": lambda: passes.nonzeros(*size),
        "rows": lambda: fits.rows(*size),
        "custom": lambda: passes.custom(*size),
        "side-by-side": lambda: passes.side_by_side(*size),
        "tuning": lambda: fits.tuning(*size),
        "quality": lambda: fits.quality(*size),
        "memory": lambda: processes.memory(options.rows, options.gigabytes, scratch),
        "start": lambda: processes.start(options.repeats),
        "stream": lambda: scale.stream(options.stream_rows, scratch),
        "dask": lambda: scale.dask(data.source(options.set, options.data_dir)),
        "cost": lambda: cost(width(), scale.task_seconds()),
    }
    for name, why in needs.items():
        if why:
            found[name] = lambda why=why: why
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run benchmarks one after the other, print their tables, and write them down."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(arguments)
    at_least(vars(options), 1, "repeats", "stream_rows")
    at_least(vars(options), 1000, "rows")
    names = options.names or list(NAMES)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"unknown benchmark {unknown[0]!r}; known are {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory() as temporary:
        scratch = options.scratch or Path(temporary)
        scratch.mkdir(parents=True, exist_ok=True)
        known, tables = benchmarks(options, scratch), []
        for name in names:
            found = known[name]()
            if isinstance(found, str):
                print(f"\n{name}: left out, {found}", flush=True)
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
