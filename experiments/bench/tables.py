"""Tables of measurements: taken fairly, printed, kept as JSON, and drawn."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots import png
from experiments.rendering import Block, Grid, Heading, Paragraph, Picture, write_page
from experiments.report import machine_blocks
from experiments.store import replacing

TITLE = "Benchmarks"
# Okabe and Ito's colours, with a marker each.
STYLES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#E69F00", "D"), ("#CC79A7", "v"))


@dataclass
class BenchTable:
    """What a benchmark found: rows with the same columns, words or numbers."""

    name: str
    title: str
    rows: list[dict[str, str | float]] = field(default_factory=list)
    note: str = ""

    def grid(self) -> Grid:
        """As a table of text; numbers with three digits."""
        head = list(self.rows[0])
        return Grid(
            self.title, head, [[_text(row[column]) for column in head] for row in self.rows]
        )


def _text(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def best_of(repeats: int, **tasks: Callable[[], float | None]) -> dict[str, float]:
    """Best time of each task, taken in turns; a task may return its own time instead of being timed from outside."""
    best = dict.fromkeys(tasks, np.inf)
    for _ in range(repeats):
        for name, task in tasks.items():
            begin = time.perf_counter()
            seconds = task()
            elapsed = time.perf_counter() - begin
            best[name] = min(best[name], elapsed if seconds is None else seconds)
    return best


def compared(best: dict[str, float], *baselines: str) -> list[dict[str, str | float]]:
    """A row per task: milliseconds, and the ratio to each baseline."""
    return [
        {
            "task": name,
            "ms": 1e3 * seconds,
            **{f"/ {name}": seconds / best[name] for name in baselines},
        }
        for name, seconds in best.items()
    ]


def processor() -> str:
    """What the machine calls its processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def show(table: BenchTable) -> None:
    """Print a table, aligned."""
    grid = table.grid()
    columns = [list(column) for column in zip(grid.head, *grid.rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    print(f"\n{table.title}")
    for line in zip(*columns, strict=True):
        first, *rest = (v.rjust(w) for v, w in zip(line, widths, strict=True))
        print("  " + "  ".join([line[0].ljust(len(first)), *rest]))
    if table.note:
        print(f"  {table.note}")


def write(tables: list[BenchTable], folder: Path, command: str) -> Path:
    """Write bench.json, and report.html and report.md with the plot; the path of the page."""
    machine = f"{processor()}, {os.cpu_count()} cores"
    record = {
        "machine": machine,
        "python": platform.python_version(),
        "tables": [asdict(table) for table in tables],
    }
    with replacing(folder / "bench.json") as file:
        json.dump(record, file, indent=1)
    blocks: list[Block] = [
        Heading(1, TITLE),
        Paragraph(
            f"{machine}. Every time is the best of several, taken in turns so that a busy machine hits all alike; "
            "compiling is timed apart."
        ),
    ]
    picture = draw({table.name: table for table in tables})
    if picture is not None:
        alt = "Time per row against width and nonzeros, time against rows, quality against time"
        blocks.append(
            Picture("bench", png(picture), f"{alt}; the numbers are in the tables.", f"{alt}.")
        )
    for table in tables:
        blocks += [table.grid(), *([Paragraph(table.note)] if table.note else [])]
    return write_page(TITLE, [*blocks, *machine_blocks(command)], folder)


def draw(tables: dict[str, BenchTable]) -> Figure | None:
    """A panel for each table that is a curve; None if there is none."""
    panels = {
        "width": ("features", "nanoseconds a row"),
        "nonzeros": ("nonzeros a row", "nanoseconds a row"),
        "rows": ("rows", "seconds"),
        "quality": ("seconds", "Q-measure on test rows"),
    }
    here = [name for name in panels if name in tables]
    if not here:
        return None
    with plt.style.context("default"):
        columns = min(2, len(here))
        rows = -(-len(here) // columns)
        figure, axes = plt.subplots(
            rows, columns, figsize=(5.6 * columns, 4.2 * rows), layout="constrained", squeeze=False
        )
        for ax, name in zip(axes.flat, here, strict=False):
            (_draw_methods if name == "quality" else _draw_columns)(ax, tables[name])
            ax.set(xlabel=panels[name][0], ylabel=panels[name][1], xscale="log")
            ax.set_title(tables[name].title, fontsize=10, wrap=True)
            ax.grid(alpha=0.3)
            ax.legend(fontsize=8)
        for ax in axes.flat[len(here) :]:
            ax.axis("off")
    return figure


def _draw_columns(ax: Axes, table: BenchTable) -> None:
    """A line per column, over the first one."""
    first, *others = table.rows[0]
    for column, (colour, marker) in zip(others, STYLES, strict=False):
        x = [row[first] for row in table.rows]
        ax.plot(x, [row[column] for row in table.rows], color=colour, marker=marker, label=column)
    ax.set_yscale("log")


def _draw_methods(ax: Axes, table: BenchTable) -> None:
    """A line per method, value over seconds."""
    methods = dict.fromkeys(row["method"] for row in table.rows)
    for method, (colour, marker) in zip(methods, STYLES, strict=False):
        rows = [row for row in table.rows if row["method"] == method]
        x, y = ([row[column] for row in rows] for column in ("seconds", "q"))
        ax.plot(x, y, color=colour, marker=marker, ms=4, label=method)
