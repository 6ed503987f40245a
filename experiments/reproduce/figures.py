"""The figures, drawn from the numbers of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plots import figure_of, panels
from experiments.reproduce.pieces import FACTORS, MEASURE, METHODS, label
from experiments.vectors import plain
from quapy_nemsis import get_measure

# Okabe and Ito's colours, with a marker each.
STYLES = {
    "NEMSIS-NS": ("#0072B2", "o"),
    "NEMSIS": ("#56B4E9", "s"),
    "SCAN-NS": ("#0072B2", "o"),
    "SCAN": ("#56B4E9", "s"),
    "1PMB": ("#E69F00", "^"),
    "SVM(KLD)": ("#D55E00", "D"),
}


@plain
def draw(figure: str, frame: pd.DataFrame) -> Figure:
    """Draw the figure, with error bars or bands over seeds."""
    painters = {"fig2": _draw_tradeoff, "fig3": _draw_bars, "fig4": _draw_drift}
    return painters.get(figure, _draw_curves)(figure, frame)


def _by_set(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return each data set's records, in order."""
    return list(frame.groupby("data", sort=False))


def _by_method(figure: str, rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return each method's records, in the order of the paper."""
    groups = dict(list(rows.groupby("method")))
    return [(method, groups[method]) for method in METHODS[figure] if method in groups]


def _with_legend(axes: list[Axes]) -> Figure:
    figure = figure_of(axes)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4)
    return figure


def _draw_curves(figure: str, frame: pd.DataFrame) -> Figure:
    sets = _by_set(frame)
    axes = panels(len(sets), 5.2, 3.8, 2)
    measure = MEASURE[figure]
    kld = measure == "kld"
    for ax, (name, rows) in zip(axes, sets, strict=True):
        for method, group in _by_method(figure, rows):
            start = max(group["seconds"].str[0].max(), 1e-4)
            end = group["seconds"].str[-1].min()
            grid = np.geomspace(start, max(end, 1.01 * start), 40)
            # The value at a time is that of the last model before it.
            values = np.array(
                [
                    np.array(value)[np.searchsorted(seconds, grid, side="right") - 1]
                    for seconds, value in zip(group["seconds"], group["value"], strict=True)
                ]
            )
            values = np.maximum(-values, 1e-7) if kld else values
            low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
            colour, marker = STYLES[method]
            ax.plot(grid, middle, color=colour, marker=marker, markevery=6, ms=5, label=method)
            ax.fill_between(grid, low, high, color=colour, alpha=0.2, linewidth=0)
        ax.set(xscale="log", yscale="log" if kld else "linear", title=label(figure, name))
        ax.set_xlabel("seconds of training")
        ax.set_ylabel(f"{'KLD' if kld else get_measure(measure).name} on test rows")
        ax.grid(alpha=0.3)
    return _with_legend(axes)


def _draw_tradeoff(figure: str, frame: pd.DataFrame) -> Figure:
    sets = _by_set(frame)
    axes = panels(len(sets), 5.2, 3.8, 3)
    for ax, (name, rows) in zip(axes, sets, strict=True):
        groups = rows.groupby(rows["method"].astype(float))
        ba, kld = groups["ba"], groups["kld"].median().clip(lower=1e-7)
        blue, red = "#0072B2", "#D55E00"
        style: dict[str, Any] = {"color": blue, "marker": "o", "capsize": 3}
        ax.errorbar(kld.index, ba.mean(), ba.std(ddof=0), label="BA", **style)
        ax.set(xlabel="CWeight", title=label(figure, name))
        ax.set_ylabel("BA", color=blue)
        ax.grid(alpha=0.3)
        other = ax.twinx()
        other.plot(kld.index, kld, color=red, marker="s", ls="--", label="KLD")
        other.set_yscale("log")
        other.set_ylabel("KLD", color=red)
    return figure_of(axes)


def _draw_bars(figure: str, frame: pd.DataFrame) -> Figure:
    share = frame.groupby("data")["p"].first().sort_values()
    (ax,) = panels(1, 1.6 * len(share) + 2, 3.7, 1)
    width = 0.8 / len(METHODS[figure])
    for k, (method, rows) in enumerate(_by_method(figure, frame)):
        kld = rows.groupby("data")["kld"].agg(["min", "median", "max"]).clip(lower=1e-7)
        low, middle, high = kld.reindex(share.index).to_numpy().T
        at = np.arange(len(share)) + (k - 1.5) * width
        spread = [middle - low, high - middle]
        style: dict[str, Any] = {"color": STYLES[method][0], "hatch": ("", "//", "..", "xx")[k]}
        ax.bar(at, middle, width, yerr=spread, capsize=2, label=method, **style)
    ticks = [f"{label(figure, name)}\n{100 * p:.1f} %" for name, p in share.items()]
    ax.set_xticks(range(len(share)), ticks, fontsize=8)
    ax.set(yscale="log", ylabel="KLD on test rows")
    ax.grid(alpha=0.3, axis="y")
    return _with_legend([ax])


def _draw_drift(figure: str, frame: pd.DataFrame) -> Figure:
    sets = _by_set(frame)
    axes = panels(2 * len(sets), 5.2, 3.8, 2)
    for left, right, (name, rows) in zip(axes[::2], axes[1::2], sets, strict=True):
        for method, group in _by_method(figure, rows):
            colour, marker = STYLES[method]
            style: dict[str, Any] = {"color": colour, "marker": marker, "ms": 5, "capsize": 3}
            style["label"] = method
            paper = np.array(group["paper"].tolist())
            left.errorbar(FACTORS, paper.mean(axis=0), paper.std(axis=0), **style)
            # Columns are splits; samples of the same prevalence are averaged.
            samples = pd.DataFrame(group["app"].tolist()).T
            means = samples.groupby(group["app_prevalence"].iloc[0]).mean()
            right.errorbar(means.index, means.mean(axis=1), means.std(axis=1, ddof=0), **style)
        left.set_title(f"{label(figure, name)}: the paper's sampling")
        left.set_xlabel("test prevalence / training prevalence")
        right.set_title(f"{label(figure, name)}: APP, samples of 500")
        right.set_xlabel("test prevalence")
    for ax in axes:
        ax.set(yscale="log", ylabel="KLD")
        ax.grid(alpha=0.3)
    return _with_legend(axes)
