"""Figures of a comparison, made without pyplot: they need no screen and no closing."""

from __future__ import annotations

import math
import textwrap
from typing import Any, cast

import matplotlib
import numpy as np
import scipy.stats
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullFormatter
from matplotlib.transforms import Bbox

from experiments.names import ERRORS
from experiments.stats import (
    SMOOTHED,
    ErrorTable,
    Ranking,
    average_ranks,
    cliques,
    distinct,
    drift,
    errors,
    failure,
    mean_of_finite,
    seconds,
)
from experiments.store import Cell
from experiments.vectors import as_panel, plain, series

#: Okabe and Ito's colours, told apart by colour-blind readers too; without yellow, which is too
#: pale for lines on white.
COLOURS = ("#000000", "#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
#: As many as have no common divisor with the colours, so that pairs repeat late.
MARKERS = ("o", "s", "v", "^", "D", "X", "P", "*", "<", ">")
LINES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))
#: Points between a marker and its label.
GAP = 14
#: Panels side by side; a page may show more or fewer.
COLUMNS = 3
#: Curves that can be told apart in a panel; of more methods, so many of the best are in colour.
MOST, IN_COLOUR = 10, 8
#: Classes that have a panel each, and classes that a heat map has room to write numbers for.
MOST_PANELS, MOST_NUMBERS = 9, 14
#: The triangle of three prevalences is divided into triangles with so many on a side.
SIDE = 6
OTHERS = "others"
#: Panels share an axis of errors if no end of one would be more than so many times that of another.
MOST_UNLIKE = 3.0


def look(index: int) -> dict[str, Any]:
    """Return the colour, marker and line of a method, which are the same in all figures."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": LINES[index // len(COLOURS) % len(LINES)],
    }


def literal(text: str, width: int = 34) -> str:
    """Return text that matplotlib shows as it is, in lines of a width: a $ would begin a formula.

    Characters that cannot be shown, some of which no SVG may hold, are left out.
    """
    shown = "".join(c for c in text if c.isprintable() or c.isspace())
    return textwrap.fill(shown, width).replace("$", r"\$")


def panels(n: int, width: float, height: float, columns: int, **shared: Any) -> list[Axes]:
    """Return the axes of a new figure, side by side in rows of some columns; the last row may be shorter."""
    rows = math.ceil(n / columns)
    columns = math.ceil(n / rows)
    # Half an inch each for what is around all panels: labels, and a title or a legend.
    size = max(width * columns, 6.0) + 0.5, height * rows + 0.5
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **shared).ravel()
    for ax in axes[n:]:
        ax.remove()
    for k, ax in enumerate(axes[:n]):
        as_panel(ax, k)
        # Each can be read alone.
        ax.tick_params(labelbottom=True, labelleft=True)
    return list(axes[:n])


def figure_of(axes: list[Axes]) -> Figure:
    """Return the figure that axes are in."""
    return cast(Figure, axes[0].figure)


def legend_below(figure: Figure, axes: list[Axes]) -> None:
    """Draw one legend for all panels, below them, in as many columns as have room."""
    drawn = (line for ax in axes for line in ax.get_lines())
    lines = {line.get_label(): line for line in drawn if line.get_gid()}
    if not lines:
        return
    longest = max(len(str(name)) for name in lines)
    columns = max(1, int(figure.get_figwidth() / (0.7 + 0.085 * longest)))
    rows = math.ceil(len(lines) / columns)
    # Otherwise the panels would lose what the legend takes.
    figure.set_figheight(figure.get_figheight() + 0.2 * rows)
    figure.legend(
        handles=sorted(lines.values(), key=lambda line: line.get_label() == OTHERS),
        loc="outside lower center",
        ncols=math.ceil(len(lines) / rows),
        fontsize=9,
        handlelength=3.6,
    )


def binned(x: np.ndarray, y: np.ndarray, bins: int, end: float = 1.0) -> np.ndarray:
    """Return the mean of x, and the mean and standard deviation of y, in each bin of [0, end] that is not empty."""
    means = scipy.stats.binned_statistic(x, [x, y], "mean", bins, (0.0, end)).statistic
    spread = scipy.stats.binned_statistic(x, y, "std", bins, (0.0, end)).statistic
    return np.array([*means, spread])[:, ~np.isnan(means[0])]


def over_splits(cells: list[Cell], metric: str, sample_size: int) -> np.ndarray:
    """Return the mean drift, and the mean and standard deviation over splits of the mean error, in bins of drift.

    The cells are of one method on one data set, and have a result. Where a bin has samples of one split only, the
    deviation is not a number.
    """
    start = -1.0 if len(cells[0].classes) == 2 else 0.0
    bins = round((1.0 - start) / 0.1)
    means = []
    for cell in cells:
        far, error = drift(cell), errors(cell, metric, sample_size)
        found = scipy.stats.binned_statistic(far, [far, error], "mean", bins, (start, 1.0))
        means.append(found.statistic)
    full = np.array(means)[:, :, ~np.isnan(means).any(axis=1).all(axis=0)]
    x, mean = mean_of_finite(full[:, 0].T), mean_of_finite(full[:, 1].T)
    several = np.isfinite(full[:, 1]).sum(axis=0) > 1
    spread = np.full(len(x), np.nan)
    spread[several] = np.nanstd(full[:, 1, several], axis=0, ddof=1)
    return np.array([x, mean, spread])


def select(cells: list[Cell], data: str, method: str) -> list[Cell]:
    """Return the cells of a method on a data set that have a result."""
    return [c for c in cells if c.data == data and c.method == method and not failure(c)]


def pooled(cells: list[Cell], method: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the true and the estimated prevalences of a method, over all seeds; all cells have a result."""
    found = [cell for cell in cells if cell.method == method]
    return np.concatenate([c.true for c in found]), np.concatenate([c.estimated for c in found])


def styles(table: ErrorTable, panel: int) -> list[dict[str, Any]]:
    """Return the looks and labels of the methods as curves; of many, all but those of best mean rank are grey."""
    looks = [
        {"label": literal(method), **look(k), **series(k, f"line-{panel}")}
        for k, method in enumerate(table.methods)
    ]
    if len(looks) > MOST:
        grey = {"label": OTHERS, "color": "0.6", "alpha": 0.6, "linewidth": 0.8, "zorder": 1}
        for k in np.argsort(average_ranks(table.means), kind="stable")[IN_COLOUR:]:
            looks[k] = {**grey, **series(OTHERS, f"{k}-{panel}")}
    return looks


@plain
def drift_curves(cells: list[Cell], table: ErrorTable, sample_size: int) -> Figure:
    """Draw the mean error against the drift from training to test prevalence, one panel per data set.

    Bands are one standard deviation over the splits to each side. Of many methods, all but those of best mean rank
    are grey, and may leave the panel. Errors that divide by prevalences have a logarithmic axis: they are greater by
    orders of magnitude where a class is rare.
    """
    axes = panels(len(table.data), 3.6, 3.3, COLUMNS)
    log = table.metric in SMOOTHED
    limits = []
    for panel, (ax, data) in enumerate(zip(axes, table.data, strict=True)):
        coloured, grey = [0.0], [0.0]
        for k, style in enumerate(styles(table, panel)):
            if not (found := select(cells, data, table.methods[k])):
                continue
            x, mean, spread = over_splits(found, table.metric, sample_size)
            ax.plot(x, mean, markersize=4, **style)
            (grey if style["label"] == OTHERS else coloured).extend(mean)
            if style["label"] != OTHERS and np.isfinite(spread).any():
                band = {"color": style["color"], "alpha": 0.15, "linewidth": 0}
                low = np.maximum(mean - spread, 0.0)
                ax.fill_between(x, low, mean + spread, **band, **series(k, f"band-{panel}"))
        ax.set_title(literal(data), fontsize=11)
        limits.append(error_limits(coloured, grey, log))
        two = len(next((c.classes for c in cells if c.data == data and c.classes), [])) == 2
        ax.set_xlabel("drift p′ − p of the positive class" if two else "drift ½ Σ |p′ − p|")
        if two:
            ax.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
        else:
            ax.set_xlim(left=0.0)
        ax.set_ylabel(ERRORS[table.metric])
        ax.grid(alpha=0.3)
    lows, highs = np.array(limits).T
    if all(ends.max() <= MOST_UNLIKE * ends.min() for ends in (lows, highs)):
        lows[:], highs[:] = lows.min(), highs.max()
    for ax, low, high in zip(axes, lows, highs, strict=True):
        if low > 0.0:
            ax.set_yscale("log")
        if high > 0.0:
            ax.set_ylim(low, high)
        if low > 0.0:
            log_ticks(ax.yaxis)
    figure = figure_of(axes)
    legend_below(figure, axes)
    return figure


def error_limits(coloured: list[float], grey: list[float], log: bool) -> tuple[float, float]:
    """Return the ends of an axis of errors, for curves in colour and in grey; the lower one is positive if it is log.

    Where there are grey curves, those above all others by far leave the panel of an axis that is not log.
    """
    every = np.array([*coloured, *grey])
    if log and every.max() > 0.0:
        return 0.8 * float(every[every > 0.0].min()), 1.25 * float(every.max())
    highest = max(coloured) or max(grey)
    return 0.0, 1.1 * float(min(every.max(), 1.4 * highest))


@plain
def diagonal(cells: list[Cell], data: str) -> Figure:
    """Draw estimated against true prevalence of the positive class on a data set, one panel per method.

    The line is the mean of the estimates, the band one standard deviation to each side.
    """
    methods = distinct(c.method for c in cells)
    axes = panels(len(methods), 1.9, 2.0, 4, sharex=True, sharey=True)
    for index, (ax, method) in enumerate(zip(axes, methods, strict=True)):
        ax.plot([0.0, 1.0], [0.0, 1.0], color="0.6", linewidth=1.0)
        if found := select(cells, data, method):
            true, estimated = pooled(found, method)
            x, mean, spread = binned(true[:, 1], estimated[:, 1], 21)
            colour = look(index)["color"]
            ax.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.25, linewidth=0)
            ax.plot(x, mean, color=colour, linewidth=1.6)
        else:
            ax.text(0.95, 0.1, "no result", ha="right")
        ax.set_title(literal(method, 26), fontsize=9)
        ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
        for set_ticks in (ax.set_xticks, ax.set_yticks):
            set_ticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
        ax.grid(alpha=0.3)
    figure = figure_of(axes)
    figure.suptitle(literal(data, 60), fontsize=12)
    figure.supxlabel("true prevalence", fontsize=11)
    figure.supylabel("estimated prevalence", fontsize=11)
    return figure


def frequent(cell: Cell) -> list[int]:
    """Return the classes that have a panel each: the most frequent ones in training, in their order."""
    order = np.argsort(-cell.train_prevalence, kind="stable")
    return sorted(order[:MOST_PANELS].tolist())


@plain
def class_diagonals(cells: list[Cell], table: ErrorTable) -> Figure:
    """Draw the mean estimated against the true prevalence of each class, one panel per class.

    The cells, here and in the figures below, are of one data set, and have a result.
    """
    chosen = frequent(cells[0])
    axes = panels(len(chosen), 2.6, 2.6, COLUMNS, sharex=True, sharey=True)
    end = max(float(c.true.max()) for c in cells)
    for index, (ax, k) in enumerate(zip(axes, chosen, strict=True)):
        for method, style in zip(table.methods, styles(table, index), strict=True):
            if found := select(cells, cells[0].data, method):
                true, estimated = pooled(found, method)
                x, mean, _ = binned(true[:, k], estimated[:, k], 10, end)
                ax.plot(x, mean, markersize=4, **style)
        ax.plot([0.0, end], [0.0, end], color="0.6", linewidth=1.0, zorder=0)
        ax.set_title(literal(cells[0].classes[k], 30), fontsize=10)
        ax.set(xlabel="true prevalence", ylabel="estimated")
        ax.grid(alpha=0.3)
    axes[0].set(xlim=(0.0, None), ylim=(0.0, None))
    figure = figure_of(axes)
    figure.suptitle(literal(cells[0].data, 60), fontsize=12)
    legend_below(figure, axes)
    return figure


@plain
def biases(cells: list[Cell]) -> Figure:
    """Draw the mean signed error of each method (rows) on each class (columns), as a heat map."""
    methods, classes = distinct(c.method for c in cells), cells[0].classes
    pairs = (pooled(cells, method) for method in methods)
    values = 100.0 * np.array([(estimated - true).mean(axis=0) for true, estimated in pairs])
    rows, columns = values.shape
    wide = 0.7 if columns <= MOST_NUMBERS else 0.3
    figure = Figure(figsize=(3.2 + wide * columns, 1.6 + 0.3 * rows), layout="constrained")
    ax = figure.subplots()
    end = max(float(np.abs(values).max()), 1e-9)
    # In steps: a smooth scale would be an image.
    steps = matplotlib.colormaps["RdBu_r"].resampled(11)
    shades = ax.pcolormesh(values, cmap=steps, vmin=-end, vmax=end, edgecolors="white")
    ax.set_xticks(np.arange(columns) + 0.5, [literal(name, 16) for name in classes], rotation=40)
    for label in ax.get_xticklabels():
        label.set(ha="right", rotation_mode="anchor")
    ax.set_yticks(np.arange(rows) + 0.5, [literal(method) for method in methods])
    ax.invert_yaxis()
    ax.tick_params(length=0, labelsize=9)
    for i, j in np.ndindex(values.shape) if columns <= MOST_NUMBERS else ():
        # Not black, which would become white on a dark page.
        ink = "white" if abs(values[i, j]) > 0.6 * end else "#111111"
        place = {"ha": "center", "va": "center", "fontsize": 8}
        # Without the sign of a zero that is rounded.
        shown = f"{values[i, j].round(1) + 0.0:+.1f}"
        ax.text(j + 0.5, i + 0.5, shown, color=ink, **place)
    figure.colorbar(shades, ax=ax, label="points of a hundred", pad=0.02)
    figure.suptitle(literal(cells[0].data, 60), fontsize=12)
    return figure


def on_triangle(prevalences: np.ndarray) -> np.ndarray:
    """Return the points of an equilateral triangle that have three prevalences as weights of its corners."""
    return prevalences @ np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3.0) / 2.0]])


def displacements(true: np.ndarray, estimated: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean true and estimated prevalences in each small triangle of the simplex that has samples."""
    # The whole parts tell the triangles apart; a corner of the simplex is in the triangle beside it.
    places = np.floor(SIDE * np.clip(true, 0.0, 1.0 - 1e-9))
    _, group, counts = np.unique(places, axis=0, return_inverse=True, return_counts=True)
    means = []
    for values in (true, estimated):
        sums = [np.bincount(group.ravel(), column) for column in values.T]
        means.append(np.stack(sums, axis=-1) / counts[:, np.newaxis])
    return means[0], means[1]


@plain
def simplex(cells: list[Cell]) -> Figure:
    """Draw arrows from true to estimated prevalences of three classes, one panel per method.

    Each arrow is the mean of the samples in a small triangle.
    """
    methods, classes = distinct(c.method for c in cells), cells[0].classes
    arrows = [displacements(*pooled(cells, method)) for method in methods]
    training = on_triangle(cells[0].train_prevalence)
    corners = on_triangle(np.eye(3))
    axes = panels(len(methods), 2.6, 2.5, COLUMNS)
    for ax, method, (true, estimated) in zip(axes, methods, arrows, strict=True):
        ax.fill(*corners.T, facecolor="none", edgecolor="0.5", linewidth=1.0)
        start = on_triangle(true)
        moves = on_triangle(estimated) - start
        whole = {"angles": "xy", "scale_units": "xy", "scale": 1.0, "width": 0.011}
        ax.quiver(*start.T, *moves.T, color="#0072B2", **whole)
        ax.plot(*training, "X", color="#D55E00", markersize=7)
        for name, corner, side in zip(classes, corners, ("left", "right", "center"), strict=True):
            up = corner[1] > 0.0
            words = {"fontsize": 8, "ha": side, "va": "bottom" if up else "top"}
            ax.annotate(
                literal(name, 18), corner, (0, 3 if up else -3), textcoords="offset points", **words
            )
        ax.set_title(literal(method, 30), fontsize=10, pad=12)
        ax.set(xlim=(-0.05, 1.05), ylim=(-0.1, 0.95), aspect="equal")
        ax.axis("off")
    figure = figure_of(axes)
    figure.suptitle(literal(cells[0].data, 60), fontsize=12)
    return figure


def mean_seconds(cells: list[Cell], table: ErrorTable) -> np.ndarray:
    """Return the mean seconds of training of each method; every data set counts alike."""
    return mean_of_finite(seconds(cells, table)[0])


def place_labels(ax: Axes, x: np.ndarray, y: np.ndarray, names: list[str]) -> None:
    """Write names beside points, moved up or down where they would cover a point or each other."""
    figure = figure_of([ax])
    figure.draw_without_rendering()
    frame, pixel = ax.get_window_extent(), figure.dpi / 72.0
    points = ax.transData.transform(np.column_stack([x, y]))
    taken = [Bbox([point - 5 * pixel, point + 5 * pixel]) for point in points]
    for k in np.argsort(y):
        side = 1 if points[k, 0] < frame.x0 + 0.6 * frame.width else -1
        line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 4}
        label = ax.annotate(
            literal(names[k]),
            (x[k], y[k]),
            xytext=(GAP * side, 0),
            textcoords="offset points",
            ha="left" if side == 1 else "right",
            va="center",
            fontsize=9,
            arrowprops={**line, "relpos": (0.0 if side == 1 else 1.0, 0.5)},
        )
        # The layout is done: labels must not move the points any more.
        label.set_in_layout(False)
        # Of an annotation only the size of its text is known before it is drawn.
        width, height = Text.get_window_extent(label).size
        x0 = points[k, 0] + (GAP * pixel if side == 1 else -GAP * pixel - width)
        box = Bbox.from_bounds(x0, points[k, 1] - height / 2, width, height)
        shift = free_shift(box, taken, frame, pixel)
        taken.append(box.translated(0.0, shift * pixel))
        label.xyann = (GAP * side, shift)


def free_shift(box: Bbox, taken: list[Bbox], frame: Bbox, pixel: float) -> float:
    """Return the least vertical shift, in points, that takes a box away from others; 0 if there is none."""
    for shift in sorted(range(-300, 301, 3), key=abs):
        moved = box.translated(0.0, shift * pixel)
        inside = frame.y0 < moved.y0 and moved.y1 < frame.y1
        if inside and not moved.count_overlaps(taken):
            return shift
    return 0


def log_ticks(axis: Axis) -> None:
    """Put plain numbers on a logarithmic axis, and enough of them in a short range too."""
    low, high = axis.get_view_interval()
    steps = range(1, 10) if high < 10 * low else (1, 2, 5) if high < 1e4 * low else (1,)
    axis.set_major_locator(LogLocator(subs=[float(step) for step in steps]))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


@plain
def time_quality(cells: list[Cell], table: ErrorTable) -> Figure:
    """Draw the mean error against mean seconds of training, over all data sets.

    Methods without a result on one of the data sets are left out: their means would be over
    other data.
    """
    times = np.maximum(mean_seconds(cells, table), 1e-6)
    shown = np.flatnonzero(np.isfinite(times) & np.isfinite(table.averages))
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    ax = figure.subplots()
    for k in shown:
        style = look(int(k))
        ax.plot(times[k], table.averages[k], style["marker"], color=style["color"], markersize=8)
    ax.margins(y=0.15)
    ax.set_xscale("log")
    if len(shown):
        ax.set_xlim(times[shown].min() / 1.7, times[shown].max() * 1.7)
    log_ticks(ax.xaxis)
    ax.set_xlabel("mean seconds of training")
    ax.set_ylabel(f"mean {ERRORS[table.metric]}")
    ax.grid(alpha=0.3)
    if len(shown):
        names = [table.methods[k] for k in shown]
        place_labels(ax, times[shown], table.averages[shown], names)
    else:
        ax.text(
            0.5, 0.5, "no method has results on all data sets", ha="center", transform=ax.transAxes
        )
    return figure


@plain
def rank_diagram(ranking: Ranking) -> Figure | None:
    """Draw mean ranks; bars join methods of which no two differ significantly (see `Ranking`).

    Return None where a diagram would tell nothing: with two methods, or where no two differ.
    """
    if len(ranking.methods) < 3 or not ranking.differ.any():
        return None
    n, groups = len(ranking.methods), cliques(ranking)
    half = math.ceil(n / 2)
    top = 0.5 + 0.4 * len(groups)
    figure = Figure(figsize=(9.0, 1.0 + 0.3 * (top + half)), layout="constrained")
    ax = figure.subplots()
    ax.set(xlim=(1.0, n), ylim=(top + half, 0.0))
    ax.spines[["left", "right", "bottom"]].set_visible(False)
    ax.xaxis.tick_top()
    # At most twelve: more numbers would run together.
    ax.set_xticks(range(1, n + 1, math.ceil(n / 12)))
    ax.set_yticks([])
    draw_names(ax, ranking, top)
    for level, (first, last) in enumerate(groups):
        height = 0.4 + 0.4 * level
        bar = [first - 0.006 * n, last + 0.006 * n]
        ax.plot(bar, [height, height], color="#D55E00", linewidth=4, clip_on=False)
    return figure


def draw_names(ax: Axes, ranking: Ranking, top: float) -> None:
    """Draw lines from the axis to the names: the better half on the left, the others on the right."""
    n = len(ranking.methods)
    half = math.ceil(n / 2)
    for place, k in enumerate(np.argsort(ranking.ranks, kind="stable")):
        better = place < half
        x, side = ranking.ranks[k], 1.0 if better else n
        y = top + 0.5 + (place if better else n - 1 - place)
        ax.plot([x, x, side], [0.0, y, y], color="0.5", linewidth=0.9, clip_on=False)
        ax.annotate(
            f"{literal(ranking.methods[k])}  ({x:.2f})",
            (side, y),
            xytext=(-4 if better else 4, 0),
            textcoords="offset points",
            ha="right" if better else "left",
            va="center",
            fontsize=10,
        )
