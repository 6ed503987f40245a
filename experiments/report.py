"""The report of a comparison is one page of HTML, the same in Markdown, tables in LaTeX, and all numbers as files."""

from __future__ import annotations

import math
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from experiments import plots
from experiments.names import ERRORS, REPORTS, base_name
from experiments.origin import machine
from experiments.rendering import Block, Grid, Items, Picture, Text, as_latex, write_page
from experiments.stats import (
    ALPHA,
    SMOOTHED,
    ErrorTable,
    Ranking,
    cliques,
    distinct,
    error_table,
    errors,
    failure,
    is_least,
    mean_of_finite,
    rank,
    seconds,
    shown_classes,
)
from experiments.store import Cell, replacing

DAGGER, PARTIAL = "†", "‡"
#: A method whose error is at most so many times the least is close to it.
CLOSE = 1.1
#: Names of methods that were not tuned end so, where others were.
PLAIN = " (plain)"
#: Where a method is not shown to be worse than the best of each data set, if that is all that is tested.
ON_ANY = "on any data set"
#: With fewer splits, only large differences are significant.
FEW_SPLITS = 5


def number(value: float, like: float | None = None) -> str:
    """Return four digits after the point, or a power of ten if they would hide the value, or another one."""
    scale = value if like is None else like
    return f"{value:.4f}" if scale == 0.0 or abs(scale) >= 1e-3 else f"{value:.1e}"


def duration(value: float, like: float | None = None) -> str:
    """Return seconds with about three digits, or with as many after the point as another value has."""
    if np.isnan(value):
        return "–"
    digits = 2 - math.floor(math.log10(max(value if like is None else like, 1e-9)))
    return f"{value:.{min(max(digits, 0), 4)}f}"


def entry(table: ErrorTable, row: int, column: int) -> str:
    """Return what a table of errors says about a method on a data set."""
    if not table.seeds[row, column]:
        return "failed" if table.failed[row, column] else "not run"
    dagger = DAGGER if table.same_as_best[row, column] else ""
    partial = PARTIAL if table.partial[row, column] else ""
    spread = table.spreads[row, column]
    mean = table.means[row, column]
    over = "" if np.isnan(spread) else f" ± {number(spread, mean)}"
    return number(mean) + over + dagger + partial


def entries(table: ErrorTable) -> tuple[list[str], list[list[str]], np.ndarray]:
    """Return the head, the rows without the names of the methods, and which entries are best.

    The last column holds averages, of methods with results on all data sets; with one data set there is none.
    """
    head, best = list(table.data), table.best
    rows = [[entry(table, i, j) for j in range(len(head))] for i in range(len(table.methods))]
    if len(head) > 1:
        head = [*head, "average"]
        best = np.column_stack([best, is_least(table.averages)])
        for row, average, partial in zip(rows, table.averages, table.partial, strict=True):
            mark = PARTIAL if partial.any() else ""
            row.append("–" if np.isnan(average) else number(average) + mark)
    return head, rows, best


def in_words(metric: str) -> str:
    """Return the name of a mean error in words, with its short name."""
    name = base_name(metric)
    return f"mean {ERRORS[name]} (M{name.upper()})"


def as_title(text: str) -> str:
    """Return text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def notes(table: ErrorTable, best_mark: str) -> list[str]:
    """Explain those marks of a table of errors that occur."""
    words = [f"{best_mark}: best of the column."]
    if table.same_as_best.any():
        words.append(
            f"{DAGGER}: not significantly different from the best of the column (corrected resampled t-test over the "
            "splits, two-sided, with Holm's correction, p ≥ 0.05)."
        )
    if np.isfinite(table.spreads).any():
        words.append("±: standard deviation over the splits.")
        if table.same_as_best.any() and table.seeds.max() < FEW_SPLITS:
            words.append("With so few splits, only large differences are significant.")
    else:
        words.append("There is one split, so nothing is said about significance.")
    if table.partial.any():
        words.append(f"{PARTIAL}: over some of the splits only, and tested on these.")
    if np.isnan(table.averages).any() and len(table.data) > 1:
        words.append("–: no average, because a data set is missing.")
    return words


def error_grid(table: ErrorTable, sample_size: int) -> Grid:
    """Return the table of mean errors, with what its marks mean."""
    head, rows, best = entries(table)
    words = notes(table, "Bold")
    if table.metric in SMOOTHED:
        words.append(f"Prevalences are smoothed by 1/(2·{sample_size}), as QuaPy does.")
    return Grid(
        f"{as_title(in_words(table.metric))}, mean over the splits; lower is better",
        ["Method", *head],
        [[method, *row] for method, row in zip(table.methods, rows, strict=True)],
        frozenset((i, j + 1) for i, j in np.argwhere(best).tolist()),
        note=" ".join(words),
    )


def failure_blocks(cells: list[Cell]) -> list[Block]:
    """List the methods that failed, and how."""
    failed = [(f"{c.method} on {c.data}, seed {c.seed}", failure(c)) for c in cells if failure(c)]
    return [Text("p", "Failed:"), Items(failed)] if failed else []


def ranking_blocks(ranking: Ranking | None, metric: str) -> list[Block]:
    """Return mean ranks as a table and as a diagram, or say why there are none."""
    if ranking is None:
        need = "Ranks need at least two methods that were run on at least two data sets."
        return [Text("p", need)]
    order = np.argsort(ranking.ranks, kind="stable")
    best = int(order[0])
    rows = [
        [
            ranking.methods[k],
            f"{ranking.ranks[k]:.2f}",
            "–"
            if k == best or np.isnan(ranking.ratios[k, best])
            else f"{ranking.ratios[k, best]:.2f}",
            "–" if k == best else number(ranking.pvalues[k, best]),
        ]
        for k in order
    ]
    words = (
        f"The ranks are over {ranking.n_data} data sets, each with {len(rows)} methods. Equal errors share a rank; "
        "methods without a result come last. "
    )
    if len(rows) > 2:
        verdict = (
            "some methods differ" if ranking.friedman < ALPHA else "no method is shown to differ"
        )
        words += f"Friedman's test: p = {number(ranking.friedman)}, so {verdict}. "
    words += (
        "The ratio is the geometric mean over the data sets of the error divided by that of the method of best rank. "
        "The p-value is of Wilcoxon's signed-rank test of the two over the data sets, with Holm's correction for all "
        "pairs."
    )
    if not ranking.can_differ:
        words += " So few data sets cannot show that two of so many methods differ."
    caption = f"Mean rank by {in_words(metric)}; 1 is best"
    head = ["Method", "Mean rank", f"Ratio to {ranking.methods[best]}", "p-value"]
    blocks: list[Block] = [Grid(caption, head, rows, note=words)]
    if (figure := plots.rank_diagram(ranking)) is not None:
        ranks = ", ".join(f"{row[0]} {row[1]}" for row in rows)
        bars = "bars join methods of which no two differ" if cliques(ranking) else "any two differ"
        caption = f"Mean ranks; {bars} significantly."
        alt = f"Mean ranks on an axis: {ranks}."
        blocks.append(Picture(f"ranks-{metric}", figure, caption, alt))
    return blocks


def drift_block(cells: list[Cell], table: ErrorTable, sample_size: int) -> Picture:
    """Return the figure of errors against drift."""
    scale = " (log scale)" if table.metric in SMOOTHED else ""
    words = in_words(table.metric)
    figure = plots.drift_curves(cells, table, sample_size)
    caption = (
        f"{as_title(words)}{scale} against the drift from the training prevalences p to those of the sample p′, in "
        "bins of 0.1. The drift of two classes is p′ − p of the positive one, that of more is half the sum of |p′ − p|."
    )
    if np.isfinite(table.spreads).any():
        caption += " Bands are one standard deviation over the splits to each side."
    if len({ax.get_ylim() for ax in figure.axes}) > 1:
        caption += " Each panel has its own scale of errors."
    if len(table.methods) > plots.MOST:
        caption += f" In colour: the {plots.IN_COLOUR} methods of best mean rank; others may leave the panel."
    alt = (
        f"Line plot of {words} against drift for {', '.join(table.methods)}; "
        f"one panel each for {', '.join(table.data)}."
    )
    return Picture(f"drift-{table.metric}", figure, caption, alt)


def cost_block(cells: list[Cell], table: ErrorTable) -> Picture:
    """Return the figure of errors against seconds."""
    times = plots.mean_seconds(cells, table)
    points = "; ".join(
        f"{method} {second:.2g} s, {number(average)}"
        for method, second, average in zip(table.methods, times, table.averages, strict=True)
        if np.isfinite(second) and np.isfinite(average)
    )
    return Picture(
        f"time-{table.metric}",
        plots.time_quality(cells, table),
        f"{as_title(in_words(table.metric))} against seconds of training (log scale), averaged "
        "over the data sets. Methods without a result on one of them are left out.",
        f"Scatter plot of seconds of training and mean error: {points}.",
    )


def seconds_grid(cells: list[Cell], table: ErrorTable, kind: str, caption: str) -> Grid:
    """Return a table of mean seconds, with their standard deviations over the splits."""
    means, spreads = seconds(cells, table, kind)
    rows = [
        [
            duration(m) + ("" if np.isnan(s) else f" ± {duration(s, m)}")
            for m, s in zip(*pair, strict=True)
        ]
        for pair in zip(means, spreads, strict=True)
    ]
    head = ["Method", *table.data]
    if len(table.data) > 1:
        head.append("average")
        for row, average in zip(rows, mean_of_finite(means), strict=True):
            row.append(duration(average))
    named = [[method, *row] for method, row in zip(table.methods, rows, strict=True)]
    return Grid(caption, head, named)


def time_blocks(cells: list[Cell], table: ErrorTable) -> list[Block]:
    """Return tables of seconds, and of what model selection chose."""
    blocks: list[Block] = [
        Text("h2", "Time, and what was chosen"),
        seconds_grid(cells, table, "fit_seconds", "Seconds of training, with model selection"),
        seconds_grid(
            cells, table, "predict_seconds", "Seconds of prediction, of all samples of a split"
        ),
    ]
    chosen: dict[tuple[str, str, str], list[str]] = {}
    for c in cells:
        if c.chosen:
            chosen.setdefault((c.method, c.data, c.chosen), []).append(str(c.seed))
    if chosen:
        rows = [[method, data, ", ".join(s), words] for (method, data, words), s in chosen.items()]
        head = ["Method", "Data", "Seeds", "Chosen"]
        caption = "Parameters that model selection chose"
        blocks.append(Grid(caption, head, rows, words=True, folded=True))
    return blocks


def unbeaten(table: ErrorTable, ranking: Ranking | None, best: int) -> tuple[list[str], str]:
    """Return the other methods that no test shows to be worse, and where; the latter is empty if there is no test.

    The tests are those over the data sets if these are enough, or else those over the splits of each.
    """
    shown: set[str] = set()
    where = ""
    if ranking is not None and ranking.can_differ and table.methods[best] in ranking.methods:
        place = ranking.methods.index(table.methods[best])
        worse = ranking.differ[place] & (ranking.ranks > ranking.ranks[place])
        shown = {ranking.methods[k] for k in np.flatnonzero(worse)}
        where = "over the data sets"
    elif np.isfinite(table.spreads).any():
        alike = (table.best | table.same_as_best).all(axis=1)
        shown = {table.methods[k] for k in np.flatnonzero(~alike)}
        where = "over the splits" if len(table.data) == 1 else ON_ANY
    known = [table.methods[k] for k in np.flatnonzero(np.isfinite(table.averages)) if k != best]
    return [method for method in known if method not in shown], where


def answer(cells: list[Cell], table: ErrorTable) -> str:
    """Say in a few sentences which method is best, which others will do, and at what cost."""
    averages, times = table.averages, plots.mean_seconds(cells, table)
    if np.isnan(averages).all():
        return "No method has a result on all data sets, so that none is best."
    short = f"M{table.metric.upper()}"
    best = int(np.nanargmin(averages))
    on = "on average" if len(table.data) > 1 else f"on {table.data[0]}"
    words = [f"Best {on}: {table.methods[best]} ({short} {number(averages[best])})."]
    if np.isfinite(averages).sum() == 1:
        return words[0]
    alike, where = unbeaten(table, rank(table), best)
    if not where:
        words.append("One split and so few data sets cannot show that another is worse.")
    elif alike:
        words.append(f"Not shown to be worse than the best {where}: {', '.join(alike)}.")
    else:
        where = "on some data set" if where == ON_ANY else where
        words.append(f"All others are shown to be worse than the best {where}.")
    close = np.flatnonzero(averages <= CLOSE * averages[best])
    fastest = min(close.tolist(), key=lambda k: times[k])
    if len(close) == 1:
        words.append("No other is within 10 % of it.")
    elif fastest == best:
        words.append("It is also the fastest to train of those within 10 % of it.")
    else:
        told = f"{duration(times[fastest])} s of training instead of {duration(times[best])} s"
        error = f"{short} {number(averages[fastest])}"
        words.append(f"Fastest within 10 % of it: {table.methods[fastest]} ({error}, {told}).")
    if any(method.endswith(PLAIN) for method in table.methods):
        near = alike if where else [table.methods[k] for k in close]
        words.append(without_tuning(table.methods[best], near))
    return " ".join(words)


def without_tuning(best: str, alike: list[str]) -> str:
    """Say which methods that were not tuned are as good as the best."""
    if best.endswith(PLAIN):
        return "It was not tuned."
    plain = [method for method in alike if method.endswith(PLAIN)]
    return f"As good without tuning: {', '.join(plain) or 'none'}."


def metric_blocks(cells: list[Cell], metric: str, sample_size: int, first: bool) -> list[Block]:
    """Return all blocks about one error; failures, the same for all errors, are listed below the first table."""
    table = error_table(cells, metric, sample_size)
    return [
        Text("h2", as_title(in_words(metric))),
        error_grid(table, sample_size),
        *(failure_blocks(cells) if first else []),
        *ranking_blocks(rank(table), table.metric),
        drift_block(cells, table, sample_size),
        cost_block(cells, table),
    ]


def diagonal_blocks(cells: list[Cell], table: ErrorTable) -> list[Block]:
    """Return figures of estimates against the truth for each data set; of more than two classes, for each class."""
    methods = ", ".join(table.methods)
    blocks: list[Block] = [Text("h2", "Estimated against true prevalence")]
    for index, data in enumerate(table.data, start=1):
        found = [c for c in cells if c.data == data and not failure(c)]
        if found and len(found[0].classes) > 2:
            blocks += class_blocks(found, table, index)
            continue
        caption = (
            f"{data}: mean of the estimated prevalences (upwards) against the true ones (to the right), and one "
            "standard deviation to each side."
        )
        alt = f"Estimated against true prevalence on {data}, one panel each for {methods}."
        blocks.append(Picture(f"diagonal-{index}", plots.diagonal(cells, data), caption, alt))
    return blocks


def class_blocks(cells: list[Cell], table: ErrorTable, index: int) -> list[Block]:
    """Return a table and figures of the classes of a data set, all of whose cells have a result."""
    data, classes = cells[0].data, cells[0].classes
    methods = ", ".join(distinct(c.method for c in cells))
    shown = [classes[k] for k in plots.frequent(cells[0])]
    caption = f"{data}: mean of the estimates of each class"
    if len(shown) < len(classes):
        caption += (
            f"; the {len(shown)} of {len(classes)} classes that are most frequent in training"
        )
    if len(table.methods) > plots.MOST:
        caption += f". In colour: the {plots.IN_COLOUR} methods of best mean rank"
    diagonals = Picture(
        f"diagonal-{index}",
        plots.class_diagonals(cells, table),
        f"{caption}.",
        f"Estimated against true prevalence on {data} for {methods}; one panel each for {', '.join(shown)}.",
    )
    biases = Picture(
        f"bias-{index}",
        plots.biases(cells),
        f"{data}: mean signed error of each class, in points of a hundred. Red classes are counted too often, blue "
        "ones too rarely.",
        f"Heat map of mean signed errors on {data}: {methods} in rows, {', '.join(classes)} in columns.",
    )
    blocks: list[Block] = [class_grid(cells), biases, diagonals]
    if len(classes) == 3:
        caption = (
            f"{data}: arrows lead from true to estimated prevalences, means of the samples in each of {plots.SIDE**2} "
            "small triangles. A corner is a sample of one class only. The cross is the training part."
        )
        alt = f"Triangles of prevalences on {data}, one each for {methods}."
        blocks.append(Picture(f"simplex-{index}", plots.simplex(cells), caption, alt))
    return blocks


def class_grid(cells: list[Cell]) -> Grid:
    """Return a table of the mean absolute error of each method on each class."""
    methods = distinct(c.method for c in cells)
    pairs = [plots.pooled(cells, method) for method in methods]
    values = np.array([np.abs(estimated - true).mean(axis=0) for true, estimated in pairs])
    rows = [
        [name, f"{100 * share:.2f} %", *map(number, column)]
        for name, share, column in zip(
            cells[0].classes, cells[0].train_prevalence, values.T, strict=True
        )
    ]
    best = frozenset((k, i + 2) for i, k in np.argwhere(is_least(values)).tolist())
    caption = f"{cells[0].data}: mean absolute error on each class; lower is better"
    return Grid(caption, ["Class", "Share in training", *methods], rows, best)


def machine_blocks(command: str, provenance: list[list[str]] | None = None) -> list[Block]:
    """Return the hardware and the versions, those given or those of this machine, and the command to repeat it."""
    rows = [[*fact] for fact in machine().items()] if provenance is None else provenance
    return [
        Text("h2", "Hardware and versions"),
        Grid(
            "Where the results were computed, when, and by what",
            ["What", "Value"],
            rows,
            words=True,
        ),
        Text("h2", "To repeat it"),
        Text("pre", command),
    ]


def write_csv(rows: list[list], columns: list[str], path: Path) -> None:
    """Write rows as CSV; what is not a number is left empty."""
    with replacing(path) as file:
        pd.DataFrame(rows, columns=columns).to_csv(file, index=False, lineterminator="\n")


def write_parquet(rows: list[list], columns: list[str], path: Path) -> None:
    """Write rows as Parquet, or say what is missing."""
    if find_spec("pyarrow") is None:
        print(f"{path.name} is left out: it needs pyarrow (pip install 'quapy-nemsis[parquet]')")
        return
    with replacing(path, "wb") as file:
        pd.DataFrame(rows, columns=columns).to_parquet(file, index=False)


def write_numbers(
    cells: list[Cell], folder: Path, metrics: list[str], sample_size: int, formats: Collection[str]
) -> None:
    """Write results.csv with a row for each cell, and samples.csv or samples.parquet with one for each sample."""
    results, samples = [], []
    for c in cells:
        name, failed = [c.data, c.method, c.seed], failure(c)
        means = [np.nan if failed else errors(c, m, sample_size).mean() for m in metrics]
        results.append([*name, *means, c.fit_seconds, c.predict_seconds, c.chosen, failed])
        # A method that failed may have left arrays of different shapes.
        if c.true.shape == c.estimated.shape and len(c.true):
            shown = [(k, c.classes[k]) for k in shown_classes(len(c.classes))]
            pairs = enumerate(zip(c.true, c.estimated, strict=True))
            samples += [[*name, i, label, t[k], e[k]] for i, (t, e) in pairs for k, label in shown]
    head = ["data", "method", "seed"]
    columns = [*head, "sample", "class", "true", "estimated"]
    if "csv" in formats:
        tail = ["fit_seconds", "predict_seconds", "chosen", "error"]
        write_csv(results, [*head, *metrics, *tail], folder / "results.csv")
        write_csv(samples, columns, folder / "samples.csv")
    if "parquet" in formats:
        write_parquet(samples, columns, folder / "samples.parquet")


def page_blocks(
    cells: list[Cell], setting: dict[str, str], metrics: list[str], sample_size: int
) -> list[Block]:
    """Return what a report says about the results, the answer first."""
    facts = [[name, str(value)] for name, value in setting.items()]
    table = error_table(cells, metrics[0], sample_size)
    return [
        Text("lead", answer(cells, table)),
        Text("h2", "Setting"),
        Grid("Setting of the comparison", ["What", "Value"], facts, words=True),
        *(b for k, m in enumerate(metrics) for b in metric_blocks(cells, m, sample_size, k == 0)),
        *time_blocks(cells, table),
        *diagonal_blocks(cells, table),
    ]


def latex(
    cells: list[Cell], title: str, setting: dict[str, str], metrics: list[str], sample_size: int
) -> str:
    """Return the tables of errors, of ranks and of seconds as a LaTeX document."""
    grids: list[Block] = []
    for metric in metrics:
        table = error_table(cells, metric, sample_size)
        grids += [error_grid(table, sample_size), *ranking_blocks(rank(table), table.metric)]
    grids += time_blocks(cells, error_table(cells, metrics[0], sample_size))
    drawn = [f"{name}: {value}." for name, value in setting.items() if name.startswith("Protocol")]
    splits = len({cell.seed for cell in cells})
    words = [*drawn, f"Samples of {sample_size} rows, {splits} split{'s' * (splits > 1)}."]
    shown = [grid for grid in grids if isinstance(grid, Grid) and not grid.words]
    return as_latex(title, shown, " ".join(words))


def write_report(
    cells: list[Cell],
    folder: Path,
    *,
    title: str,
    setting: dict[str, str],
    command: str,
    metrics: list[str],
    sample_size: int,
    provenance: list[list[str]] | None = None,
    formats: Collection[str] = REPORTS,
) -> Path:
    """Write a report of a comparison, and return the path of the page, or the folder if there is none.

    There is at most one cell for each data set, method and seed, and those of the same data set and seed are on the
    same samples.

    Parameters
    ----------
    cells : list of Cell
        The results.
    folder : Path
        Where to write to.
    title : str
        The title of the page.
    setting : dict
        What was compared how, in words.
    command : str
        What to type to repeat it.
    metrics : list of str
        QuaPy's names of the errors.
    sample_size : int
        Rows of a sample, which determine how prevalences are smoothed.
    provenance : list of list of str, optional
        What the results were computed with, in rows of a name and a value. The default is this machine, and what is
        installed on it.
    formats : collection of str, default: all of REPORTS
        "html" and "md" write report.html and report.md, both with figures as SVG and PDF; "latex" writes report.tex;
        "csv" writes results.csv and samples.csv; "parquet" writes samples.parquet.
    """
    if not cells or not metrics:
        raise ValueError("a report needs at least one cell and one metric")
    if unknown := sorted(set(formats) - set(REPORTS)):
        raise ValueError(f"unknown format {unknown[0]!r}; choose from {', '.join(REPORTS)}")
    folder, wanted = Path(folder), distinct(base_name(metric) for metric in metrics)
    write_numbers(cells, folder, metrics, sample_size, formats)
    if "latex" in formats:
        with replacing(folder / "report.tex") as file:
            file.write(latex(cells, title, setting, wanted, sample_size))
    pages = tuple(name for name in ("html", "md") if name in formats)
    if not pages:
        return folder
    blocks = [
        Text("h1", title),
        *page_blocks(cells, setting, wanted, sample_size),
        *machine_blocks(command, provenance),
    ]
    return write_page(title, blocks, folder, pages)


def aligned(rows: list[list[str]]) -> list[str]:
    """Return rows as lines of text: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]).rstrip()
        for first, *rest in rows
    ]


def text_table(cells: list[Cell], metric: str, sample_size: int) -> str:
    """Return mean errors as aligned text for a terminal: methods in rows, data sets in columns."""
    table = error_table(cells, metric, sample_size)
    head, rows, best = entries(table)
    # Marks have room of their own, so that numbers stand below each other.
    wide = [
        max(len(v.partition(" ± ")[1]) and 9 for v in column) for column in zip(*rows, strict=True)
    ]
    for row, flags in zip(rows, best, strict=True):
        row[:] = [f"{v}*" if b else v for v, b in zip(row, flags, strict=True)]
        row[:] = [
            v.ljust(len(v.rstrip(f"*{DAGGER}{PARTIAL}")) + 2 + (0 if " ± " in v else room))
            for v, room in zip(row, wide, strict=True)
        ]
    rows = [[name, *row] for name, row in zip(table.methods, rows, strict=True)]
    lines = aligned([["", *head], *rows])
    return "\n".join([as_title(in_words(metric)), *lines, *notes(table, "*")])
