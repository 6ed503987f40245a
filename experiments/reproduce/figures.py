"""The figures, drawn from the numbers of a run."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from experiments.reproduce.pieces import CWEIGHTS, FACTORS, MEASURE, METHODS, fine, label, sets_of
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


def draw(figure: str, found: dict) -> Figure:
    """The figure, with error bars or bands over seeds."""
    painters = {"fig2": _draw_tradeoff, "fig3": _draw_bars, "fig4": _draw_drift}
    with plt.style.context("default"):
        return painters.get(figure, _draw_curves)(figure, found)


def _panels(number: int, columns: int = 2) -> tuple[Figure, list]:
    columns = min(columns, number)
    rows = -(-number // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(5.2 * columns, 3.8 * rows), layout="constrained", squeeze=False
    )
    for ax in axes.ravel()[number:]:
        ax.axis("off")
    return figure, list(axes.ravel()[:number])


def _draw_curves(figure: str, found: dict) -> Figure:
    names = sets_of(found)
    picture, axes = _panels(len(names))
    kld = MEASURE[figure] == "kld"
    for ax, name in zip(axes, names, strict=True):
        for method in METHODS[figure]:
            good = fine(found.get((name, method), []))
            if not good:
                continue
            start = max(max(record["seconds"][0], 1e-4) for record in good)
            end = min(record["seconds"][-1] for record in good)
            grid = np.geomspace(start, max(end, 1.01 * start), 40)
            # The value at a time is that of the last model before it.
            values = np.array(
                [
                    np.array(r["value"])[np.searchsorted(r["seconds"], grid, side="right") - 1]
                    for r in good
                ]
            )
            values = np.maximum(-values, 1e-7) if kld else values
            low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
            colour, marker = STYLES[method]
            ax.plot(grid, middle, color=colour, marker=marker, markevery=6, ms=5, label=method)
            ax.fill_between(grid, low, high, color=colour, alpha=0.2, linewidth=0)
        ax.set_xscale("log")
        if kld:
            ax.set_yscale("log")
        ax.set_title(label(figure, name))
        ax.set_xlabel("seconds of training")
        ax.set_ylabel(
            "KLD on test rows" if kld else f"{get_measure(MEASURE[figure]).name} on test rows"
        )
        ax.grid(alpha=0.3)
    picture.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return picture


def _draw_tradeoff(figure: str, found: dict) -> Figure:
    names = sets_of(found)
    picture, axes = _panels(len(names), columns=3)
    for ax, name in zip(axes, names, strict=True):
        good = [fine(found.get((name, str(weight)), [])) for weight in CWEIGHTS]
        used = [(w, records) for w, records in zip(CWEIGHTS, good, strict=True) if records]
        weights = [w for w, _ in used]
        ba = np.array(
            [[np.mean([r["ba"] for r in g]), np.std([r["ba"] for r in g])] for _, g in used]
        )
        kld = np.array([np.median([r["kld"] for r in g]) for _, g in used])
        ax.errorbar(weights, ba[:, 0], ba[:, 1], color="#0072B2", marker="o", capsize=3, label="BA")
        ax.set_xlabel("CWeight")
        ax.set_ylabel("BA", color="#0072B2")
        other = ax.twinx()
        other.plot(
            weights, np.maximum(kld, 1e-7), color="#D55E00", marker="s", ls="--", label="KLD"
        )
        other.set_yscale("log")
        other.set_ylabel("KLD", color="#D55E00")
        ax.set_title(label(figure, name))
        ax.grid(alpha=0.3)
    return picture


def _draw_bars(figure: str, found: dict) -> Figure:
    def share(name: str) -> float:
        return next(r["p"] for m in METHODS[figure] for r in fine(found.get((name, m), [])))

    names = sorted(sets_of(found), key=share)
    picture, ax = plt.subplots(figsize=(1.6 * len(names) + 2, 4.2), layout="constrained")
    width = 0.8 / len(METHODS[figure])
    for k, method in enumerate(METHODS[figure]):
        values = [[r["kld"] for r in fine(found.get((n, method), []))] or [np.nan] for n in names]
        middle = np.maximum([np.median(v) for v in values], 1e-7)
        low = np.maximum([np.min(v) for v in values], 1e-7)
        spread = [middle - low, np.maximum([np.max(v) for v in values], 1e-7) - middle]
        at = np.arange(len(names)) + (k - 1.5) * width
        hatch = ("", "//", "..", "xx")[k]
        ax.bar(
            at,
            middle,
            width,
            yerr=spread,
            color=STYLES[method][0],
            hatch=hatch,
            label=method,
            capsize=2,
        )
    ax.set_yscale("log")
    ax.set_xticks(
        range(len(names)),
        [f"{label(figure, n)}\n{100 * share(n):.1f} %" for n in names],
        fontsize=8,
    )
    ax.set_ylabel("KLD on test rows")
    ax.grid(alpha=0.3, axis="y")
    picture.legend(loc="outside lower center", ncols=4)
    return picture


def _draw_drift(figure: str, found: dict) -> Figure:
    names = sets_of(found)
    picture, axes = _panels(2 * len(names))
    for row, name in enumerate(names):
        for method in METHODS[figure]:
            good = fine(found.get((name, method), []))
            if not good:
                continue
            colour, marker = STYLES[method]
            paper = np.array([record["paper"] for record in good])
            style = {"color": colour, "marker": marker, "ms": 5, "capsize": 3, "label": method}
            axes[2 * row].errorbar(FACTORS, paper.mean(axis=0), paper.std(axis=0), **style)
            true = np.array(good[0]["app_prevalence"])
            values = np.array([record["app"] for record in good])
            grid = np.unique(true)
            means = np.array([[v[true == p].mean() for p in grid] for v in values])
            axes[2 * row + 1].errorbar(grid, means.mean(axis=0), means.std(axis=0), **style)
        axes[2 * row].set_title(f"{label(figure, name)}: the paper's sampling")
        axes[2 * row].set_xlabel("test prevalence / training prevalence")
        axes[2 * row + 1].set_title(f"{label(figure, name)}: APP, samples of 500")
        axes[2 * row + 1].set_xlabel("test prevalence")
    for ax in axes:
        ax.set_yscale("log")
        ax.set_ylabel("KLD")
        ax.grid(alpha=0.3)
    picture.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return picture
