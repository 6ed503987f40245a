"""Tables of measurements: taken fairly, printed, kept as JSON, and drawn."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.origin import processor
from experiments.plots import figure_of, panels
from experiments.rendering import Block, Grid, Picture, Text, write_page
from experiments.report import aligned, machine_blocks
from experiments.store import replacing
from experiments.vectors import plain

TITLE = "Benchmarks"
# Okabe and Ito's colours, with a marker each.
STYLES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#E69F00", "D"), ("#CC79A7", "v"))


@dataclass
class BenchTable:
    """What a benchmark found: rows with the same columns, words or numbers."""

    name: str
    title: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""

    def grid(self) -> Grid:
        """Return a table of text, in which numbers have three digits."""
        rows = [[_text(value) for value in row.values()] for row in self.rows]
        return Grid(self.title, list(self.rows[0]), rows)


def _text(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def best_of(repeats: int, **tasks: Callable[[], Any]) -> dict[str, float]:
    """Return the best time of each task, taken in turns; a task that returns a number is not timed from outside."""
    best = dict.fromkeys(tasks, np.inf)
    for _ in range(repeats):
        for name, task in tasks.items():
            begin = time.perf_counter()
            found = task()
            elapsed = time.perf_counter() - begin
            best[name] = min(best[name], found if isinstance(found, float) else elapsed)
    return best


def compared(best: dict[str, float], *baselines: str) -> list[dict[str, Any]]:
    """Return a row per task: milliseconds, and the ratio to each baseline."""
    return [
        {
            "task": name,
            "ms": 1e3 * seconds,
            **{f"/ {name}": seconds / best[name] for name in baselines},
        }
        for name, seconds in best.items()
    ]


def show(table: BenchTable) -> None:
    """Print a table, aligned."""
    grid = table.grid()
    print(f"\n{table.title}")
    for line in aligned([grid.head, *grid.rows]):
        print(f"  {line}")
    if table.note:
        print(f"  {table.note}")


def write(tables: list[BenchTable], folder: Path, command: str) -> Path:
    """Write bench.json, and report.html and report.md with the plot; return the path of the page."""
    machine = f"{processor()}, {os.cpu_count()} cores"
    record = {
        "machine": machine,
        "python": platform.python_version(),
        "tables": [asdict(table) for table in tables],
    }
    with replacing(folder / "bench.json") as file:
        json.dump(record, file, indent=1)
    blocks: list[Block] = [
        Text("h1", TITLE),
        Text(
            "p",
            f"{machine}. Every time is the best of several, taken in turns so that a busy machine hits all alike; "
            "compiling is timed apart.",
        ),
    ]
    if (figure := draw({table.name: table for table in tables})) is not None:
        alt = "Time per row against width and nonzeros, time against rows, quality against time"
        caption = f"{alt}; the numbers are in the tables."
        blocks.append(Picture("bench", figure, caption, f"{alt}."))
    for table in tables:
        blocks += [table.grid(), *([Text("p", table.note)] if table.note else [])]
    return write_page(TITLE, [*blocks, *machine_blocks(command)], folder)


@plain
def draw(tables: dict[str, BenchTable]) -> Figure | None:
    """Draw a panel for each table that is a curve; return None if there is none."""
    titles = {
        "width": ("features", "nanoseconds a row"),
        "nonzeros": ("nonzeros a row", "nanoseconds a row"),
        "rows": ("rows", "seconds"),
        "quality": ("seconds", "Q-measure on test rows"),
    }
    here = [name for name in titles if name in tables]
    if not here:
        return None
    axes = panels(len(here), 5.6, 4.2, 2)
    for ax, name in zip(axes, here, strict=True):
        frame = pd.DataFrame(tables[name].rows)
        if name == "quality":
            groups = frame.groupby("method", sort=False)
            lines = {method: (rows["seconds"], rows["q"]) for method, rows in groups}
        else:
            x, *columns = frame
            lines = {column: (frame[x], frame[column]) for column in columns}
            ax.set_yscale("log")
        for (colour, marker), (label, line) in zip(STYLES, lines.items(), strict=False):
            ax.plot(*line, color=colour, marker=marker, ms=5, label=label)
        ax.set(xlabel=titles[name][0], ylabel=titles[name][1], xscale="log")
        ax.set_title(tables[name].title, fontsize=10, wrap=True)
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    return figure_of(axes)
