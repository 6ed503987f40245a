"""The experiments of the paper (section 6), figure by figure, and what this run says about each of its claims.

Protocol of the paper: 70 % of the rows for training, parameters chosen on a held-out part of them, several seeds. Where
a data set of the paper is not to be had, another one stands in and is labelled as such.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import quapy as qp
from matplotlib.figure import Figure
from quapy.protocol import APP

from experiments import data
from experiments.blocks import Block, Grid, Heading, Items, Paragraph, Picture
from experiments.cells import compute
from experiments.curves import choose_C, online_curve, structural_curve
from experiments.plots import png
from experiments.report import machine_blocks, replacing, write_blocks
from quapy_nemsis import (
    BA,
    BAKLD,
    NegKLD,
    NEMSISClassifier,
    OnePassMiniBatchClassifier,
    SCANClassifier,
    SVMPerfClassifier,
    get_measure,
)

FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6")
# Data sets per figure; the value says what a set stands in for.
SETS: dict[str, dict[str, str]] = {
    "fig1": {"adult": "", "cod-rna": "", "covtype": "KDD08", "w8a": "PPI"},
    "fig2": {"adult": "", "cod-rna": "", "covtype": ""},
    "fig3": {
        "covtype": "",
        "w8a": "PPI",
        "letter": "",
        "ijcnn1": "",
        "adult": "",
        "cod-rna": "",
    },
    "fig4": {"adult": "", "letter": ""},
    "fig5": {"adult": "", "cod-rna": "", "ijcnn1": "", "covtype": "KDD08"},
    "fig6": {"adult": "", "cod-rna": "", "covtype": "", "ijcnn1": ""},
}
METHODS: dict[str, tuple[str, ...]] = {
    "fig1": ("NEMSIS-NS", "NEMSIS", "1PMB", "SVM(KLD)"),
    "fig3": ("NEMSIS-NS", "NEMSIS", "1PMB", "SVM(KLD)"),
    "fig4": ("NEMSIS-NS", "NEMSIS", "1PMB"),
    "fig5": ("NEMSIS-NS", "NEMSIS", "1PMB"),
    "fig6": ("SCAN-NS", "SCAN", "1PMB"),
}
MEASURE = {"fig1": "kld", "fig3": "kld", "fig4": "kld", "fig5": "q", "fig6": "cq"}
CWEIGHTS = tuple(np.linspace(0.0, 1.0, 11).round(2).tolist())
# Test prevalence as a multiple of the training prevalence, in the paper's way of sampling.
FACTORS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
TITLES = {
    "fig1": "KLD over training time",
    "fig2": "BA and KLD over CWeight",
    "fig3": "KLD by class proportion",
    "fig4": "KLD under drift of the test prevalence",
    "fig5": "Q-measure over training time",
    "fig6": "CQReward over training time",
}

# Okabe and Ito's colours, with a marker each.
STYLES = {
    "NEMSIS-NS": ("#0072B2", "o"),
    "NEMSIS": ("#56B4E9", "s"),
    "SCAN-NS": ("#0072B2", "o"),
    "SCAN": ("#56B4E9", "s"),
    "1PMB": ("#E69F00", "^"),
    "SVM(KLD)": ("#D55E00", "D"),
}


@dataclass(frozen=True)
class Piece:
    """A method on a split of a data set, for a figure."""

    figure: str
    source: data.Source
    method: str
    seed: int
    passes: int

    def key(self, fingerprint: str) -> dict:
        """All that determines it, as plain JSON."""
        return {
            "figure": self.figure,
            "data": self.source.name,
            "method": self.method,
            "seed": self.seed,
            "passes": self.passes,
            "rows": fingerprint,
        }


@dataclass
class Claim:
    """Something the paper says about a figure, and what this run found."""

    figure: str
    text: str
    #: Whether it held, for each data set (or each case that the text speaks of).
    held: dict[str, bool] = field(default_factory=dict)
    numbers: str = ""
    #: In what share of the cases it must hold: half for "often", and so on.
    needed: float = 0.8

    @property
    def verdict(self) -> str:
        """Supported if it held in the share of cases that it needs, partly if in at least half of that."""
        if not self.held:
            return "not run"
        share = sum(self.held.values()) / len(self.held)
        if share >= self.needed:
            return "supported"
        return "partly" if share >= self.needed / 2 else "not supported"


# ---------------------------------------------------------------------- pieces


def online_learner(method: str, measure: str) -> Any:
    """The online learner of a name in the paper."""
    if method == "1PMB":
        return OnePassMiniBatchClassifier(get_measure(measure))
    kind = SCANClassifier if method.startswith("SCAN") else NEMSISClassifier
    return kind(measure, estimates="counts" if method.endswith("-NS") else "surrogate")


def trained(method: str, measure: str, X: Any, y: np.ndarray, seed: int) -> Any:
    """The method with its parameters chosen, trained."""
    if method == "SVM(KLD)":
        return SVMPerfClassifier("kld", C=choose_C("kld", X, y, seed)).fit(X, y)
    return online_learner(method, measure).set_params(random_state=seed).fit(X, y)


def run_piece(piece: Piece) -> dict:
    """Numbers of a piece: its curve, its values, or why it failed."""
    work = {
        "fig1": _curve,
        "fig2": _tradeoff,
        "fig3": _final,
        "fig4": _drift,
        "fig5": _curve,
        "fig6": _curve,
    }
    try:
        return work[piece.figure](piece, *data.prepare(piece.source, piece.seed))
    except Exception as error:  # one piece must not stop the rest
        return {"error": f"{type(error).__name__}: {error}"}


def _curve(piece: Piece, X: Any, y: np.ndarray, X_test: Any, y_test: np.ndarray) -> dict:
    measure = get_measure(MEASURE[piece.figure])
    if piece.method == "SVM(KLD)":
        svm = SVMPerfClassifier("kld", C=choose_C("kld", X, y, piece.seed))
        stages = structural_curve(svm, X, y)
    else:
        learner = online_learner(piece.method, MEASURE[piece.figure])
        stages = online_curve(learner, X, y, piece.passes, piece.seed)
    rows = [(seconds, measure.score(y_test, at.predict(X_test))) for seconds, at in stages]
    return {"seconds": [row[0] for row in rows], "value": [row[1] for row in rows]}


def _tradeoff(piece: Piece, X: Any, y: np.ndarray, X_test: Any, y_test: np.ndarray) -> dict:
    learner = NEMSISClassifier(BAKLD(float(piece.method)), random_state=piece.seed).fit(X, y)
    labels = learner.predict(X_test)
    return {"ba": BA().score(y_test, labels), "kld": -NegKLD().score(y_test, labels)}


def _final(piece: Piece, X: Any, y: np.ndarray, X_test: Any, y_test: np.ndarray) -> dict:
    learner = trained(piece.method, "kld", X, y, piece.seed)
    return {"kld": -NegKLD().score(y_test, learner.predict(X_test)), "p": float(y.mean())}


def _drift(piece: Piece, X: Any, y: np.ndarray, X_test: Any, y_test: np.ndarray) -> dict:
    learner = trained(piece.method, "kld", X, y, piece.seed)
    labels = learner.predict(X_test)
    rng = np.random.default_rng(piece.seed)
    classes = [np.flatnonzero(y_test == 0), np.flatnonzero(y_test == 1)]
    p, size = float(y.mean()), len(y_test)
    paper = []
    for factor in FACTORS:
        share = min(factor * p, 1.0)
        chosen = (rng.random(size) < share).astype(int)
        rows = np.array([rng.choice(classes[label]) for label in chosen])
        paper.append(-NegKLD().score(y_test[rows], labels[rows]))
    counted = qp.data.LabelledCollection(labels.reshape(-1, 1), y_test, classes=[0, 1])
    protocol = APP(counted, 500, n_prevalences=21, repeats=10, random_state=piece.seed)
    true, found = [], []
    for sample, prevalence in protocol():
        true.append(prevalence[1])
        found.append(sample.mean())
    pairs = [np.column_stack([1.0 - np.array(v), np.array(v)]) for v in (true, found)]
    app = qp.error.kld(*pairs, eps=1 / 1000)
    return {"p": p, "paper": paper, "app_prevalence": true, "app": app.tolist()}


# --------------------------------------------------------------------- running


def run(
    figures: list[str],
    sources: Callable[[str], data.Source],
    folder: Path,
    *,
    seeds: int = 5,
    passes: int = 25,
    jobs: int = 1,
) -> dict[str, dict[tuple[str, str], list[dict]]]:
    """Records of each figure by (data set, method), one per seed; sets that are not there are left out with a word."""
    found: dict[str, dict[tuple[str, str], list[dict]]] = {}
    for figure in figures:
        pieces = []
        for name in SETS[figure]:
            try:
                source = sources(name)
            except FileNotFoundError as error:
                print(f"{figure}: {name} is left out. {error}", flush=True)
                continue
            methods = METHODS.get(figure, tuple(str(weight) for weight in CWEIGHTS))
            pieces += [
                Piece(figure, source, method, seed, passes)
                for method in methods
                for seed in range(seeds)
            ]
        prints = {s: data.load(s).fingerprint for s in dict.fromkeys(p.source for p in pieces)}
        keys = [piece.key(prints[piece.source]) for piece in pieces]
        print(f"{figure}: {TITLES[figure]}, {len(pieces)} pieces", flush=True)
        # Curves over time are taken one at a time: two at once would slow each other.
        together = 1 if figure in ("fig1", "fig5", "fig6") else jobs
        records = compute(run_piece, pieces, keys, folder, jobs=together)
        found[figure] = {}
        for piece, record in zip(pieces, records, strict=True):
            found[figure].setdefault((piece.source.name, piece.method), []).append(record)
    return found


def label(figure: str, name: str) -> str:
    """A data set's name, and what it stands in for."""
    replaced = SETS[figure].get(name, "")
    return f"{name} (in place of {replaced})" if replaced else name


def fine(records: list[dict]) -> list[dict]:
    """Those that did not fail."""
    return [record for record in records if not record.get("error")]


# ---------------------------------------------------------------------- claims


def settled(record: dict, target: float) -> float:
    """Seconds from which on a curve is at least at the target; infinite if it does not end there."""
    values, seconds = np.array(record["value"]), np.array(record["seconds"])
    below = np.flatnonzero(values < target)
    if not len(below):
        return float(seconds[0])
    return float(seconds[below[-1] + 1]) if below[-1] + 1 < len(values) else np.inf


def medians(figure: str, found: dict, target: Callable[[str], float]) -> dict:
    """Per (data set, method): median of the last value, and of the time from which on the target is kept."""
    result = {}
    for (name, method), records in found.items():
        good = fine(records)
        if good:
            last = float(np.median([record["value"][-1] for record in good]))
            time = float(np.median([settled(record, target(name)) for record in good]))
            result[name, method] = (last, time)
    return result


def _names(found: dict) -> list[str]:
    return list(dict.fromkeys(name for name, _ in found))


def _times(results: dict, method: str) -> str:
    parts = (f"{name} {time:.3g} s" for (name, m), (_, time) in results.items() if m == method)
    return f"{method}: " + ", ".join(parts)


def claims_fig1(found: dict) -> list[Claim]:
    """KLD over time; a curve has settled where KLD stays at 1e-3 or less."""
    results = medians("fig1", found, lambda name: -1e-3)
    comparable = Claim(
        "fig1", "NEMSIS-NS and NEMSIS end with a KLD comparable to 1PMB's and SVM(KLD)'s, or lower"
    )
    faster = Claim("fig1", "They converge faster than SVM(KLD), significantly (here: ten times)")
    than_batch = Claim("fig1", "They are often faster than 1PMB", needed=0.5)
    ns = Claim("fig1", "NEMSIS-NS converges faster than NEMSIS, on three of four sets", needed=0.75)
    for name in _names(found):
        row = {m: results[name, m] for m in METHODS["fig1"] if (name, m) in results}
        if len(row) < len(METHODS["fig1"]):
            continue
        ours = max(row["NEMSIS-NS"][0], row["NEMSIS"][0])
        theirs = max(row["1PMB"][0], row["SVM(KLD)"][0])
        comparable.held[name] = -ours <= max(2 * -theirs, 1e-4)
        best = min(row["NEMSIS-NS"][1], row["NEMSIS"][1])
        faster.held[name] = 10 * best <= row["SVM(KLD)"][1] and np.isfinite(best)
        than_batch.held[name] = best < row["1PMB"][1]
        ns.held[name] = row["NEMSIS-NS"][1] < row["NEMSIS"][1]
    comparable.numbers = "; ".join(
        f"{name} {method} {-last:.1e}" for (name, method), (last, _) in results.items()
    )
    both = _times(results, "NEMSIS-NS"), _times(results, "NEMSIS")
    faster.numbers = "; ".join([*both, _times(results, "SVM(KLD)")])
    than_batch.numbers = "; ".join([*both, _times(results, "1PMB")])
    ns.numbers = "; ".join(both)
    return [comparable, faster, than_batch, ns]


def claims_fig2(found: dict) -> list[Claim]:
    """A sweet spot: BA within 5 % of its best and KLD at most 1e-3 at the same CWeight."""
    spot = Claim("fig2", "There is a CWeight where quantification and classification are both good")
    notes = []
    for name in _names(found):
        rows = []
        for weight in CWEIGHTS:
            good = fine(found.get((name, str(weight)), []))
            if good:
                means = [float(np.mean([r[column] for r in good])) for column in ("ba", "kld")]
                rows.append((weight, *means))
        if not rows:
            continue
        top = max(row[1] for row in rows)
        sweet = [r for r in rows if r[1] >= 0.95 * top and r[2] <= 1e-3]
        spot.held[name] = bool(sweet)
        best = max(sweet, key=lambda r: r[1]) if sweet else max(rows, key=lambda r: r[1] - r[2])
        notes.append(
            f"{name}: CWeight {best[0]:g} has BA {best[1]:.3f} (best {top:.3f}), KLD {best[2]:.1e}"
        )
    spot.numbers = "; ".join(notes)
    return [spot]


def claims_fig3(found: dict) -> list[Claim]:
    """Mean KLD over seeds, the better of NEMSIS and NEMSIS-NS against the better of the others."""
    better = Claim(
        "fig3", "The NEMSIS family has a lower KLD than 1PMB and SVM(KLD), at any class proportion"
    )
    notes = []
    for name in _names(found):
        means = {
            m: float(np.mean([r["kld"] for r in fine(found.get((name, m), []))] or [np.nan]))
            for m in METHODS["fig3"]
        }
        ours, theirs = (
            np.nanmin([means[m] for m in group])
            for group in (("NEMSIS-NS", "NEMSIS"), ("1PMB", "SVM(KLD)"))
        )
        better.held[name] = bool(ours < theirs)
        notes.append(f"{name}: {ours:.1e} against {theirs:.1e}")
    better.numbers = "; ".join(notes)
    return [better]


def claims_fig4(found: dict) -> list[Claim]:
    """The paper's way of sampling: a quarter more or less is small, twice as many is large."""
    small = Claim(
        "fig4", "The NEMSIS family is fairly robust to small drift (here: KLD at most 0.01)"
    )
    large = Claim(
        "fig4",
        "When the class proportion changes by over 100 %, all methods do poorly (ten times worse)",
    )
    notes = []
    near = [i for i, factor in enumerate(FACTORS) if 0.75 <= factor <= 1.25]
    far = [i for i, factor in enumerate(FACTORS) if factor >= 2.0]
    for (name, method), records in found.items():
        good = fine(records)
        if not good:
            continue
        mean = np.mean([record["paper"] for record in good], axis=0)
        if method != "1PMB":
            small.held[f"{name} {method}"] = bool(mean[near].max() <= 0.01)
        large.held[f"{name} {method}"] = bool(mean[far].max() >= 10 * mean[near].max())
        notes.append(f"{name} {method}: {mean[near].max():.1e} near, {mean[far].max():.1e} far")
    small.numbers = large.numbers = "; ".join(notes)
    return [small, large]


def _claims_hybrid(figure: str, found: dict, ours: tuple[str, str], what: str) -> list[Claim]:
    ends = medians(figure, found, lambda name: -np.inf)
    best = {
        name: max(last for (n, _), (last, _) in ends.items() if n == name) for name in _names(found)
    }
    results = medians(figure, found, lambda name: 0.99 * best[name])
    better = Claim(figure, f"{what} is often better than 1PMB", needed=0.5)
    faster = Claim(
        figure, f"{what} is often faster to 99 % of the best value than 1PMB", needed=0.5
    )
    for name in _names(found):
        row = {m: results[name, m] for m in (*ours, "1PMB") if (name, m) in results}
        if "1PMB" not in row or len(row) < 2:
            continue
        better.held[name] = max(row[m][0] for m in ours if m in row) > row["1PMB"][0]
        faster.held[name] = min(row[m][1] for m in ours if m in row) < row["1PMB"][1]
    better.numbers = "; ".join(f"{n} {m} {last:.4f}" for (n, m), (last, _) in results.items())
    faster.numbers = "; ".join(_times(results, method) for method in (*ours, "1PMB"))
    return [better, faster]


def claims(found: dict[str, dict]) -> list[Claim]:
    """What the paper says about the figures that were run, judged by the numbers."""
    judges = {
        "fig1": claims_fig1,
        "fig2": claims_fig2,
        "fig3": claims_fig3,
        "fig4": claims_fig4,
        "fig5": lambda f: _claims_hybrid("fig5", f, ("NEMSIS-NS", "NEMSIS"), "NEMSIS for Q"),
        "fig6": lambda f: _claims_hybrid("fig6", f, ("SCAN-NS", "SCAN"), "SCAN for CQReward"),
    }
    return [claim for figure, records in found.items() for claim in judges[figure](records)]


# --------------------------------------------------------------------- figures


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
    names = _names(found)
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
    names = _names(found)
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

    names = sorted(_names(found), key=share)
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
    names = _names(found)
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


def write_page(
    claims: list[Claim], pictures: dict[str, Figure], folder: Path, seeds: int, command: str
) -> Path:
    """Write report.html, report.md with its figures, and claims.csv; the path of the first."""
    head = ["Figure", "The paper says", "This run", "Held for"]
    rows = [[c.figure, c.text, c.verdict, _cases(c)] for c in claims]
    blocks: list[Block] = [
        Heading(1, "The paper's experiments, run again"),
        Paragraph(
            "P. Kar, S. Li, H. Narasimhan, S. Chawla, F. Sebastiani. Online Optimization Methods for the "
            f"Quantification Problem. KDD 2016. {seeds} splits, 70 % for training. A claim is supported if it held in "
            "four fifths of the cases (in half of them if it says often), partly if in half as many."
        ),
        Grid("Claims of the paper, and what this run says", head, rows, words=True),
    ]
    for figure, picture in pictures.items():
        title = f"Figure {figure.removeprefix('fig')}: {TITLES[figure]}"
        texts = [(c.text, c.numbers) for c in claims if c.figure == figure]
        alt = f"{title}; the numbers are below."
        blocks += [
            Heading(2, title),
            Picture(figure, png(picture), _caption(figure), alt),
            Items(texts),
        ]
    write_blocks("The paper's experiments, run again", [*blocks, *machine_blocks(command)], folder)
    with replacing(folder / "claims.csv") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([*head, "Numbers"])
        lines.writerows([*row, c.numbers] for row, c in zip(rows, claims, strict=True))
    return folder / "report.html"


def _cases(claim: Claim) -> str:
    held = [name for name, fact in claim.held.items() if fact]
    return f"{len(held)} of {len(claim.held)}" + (f": {', '.join(held)}" if held else "")


def _caption(figure: str) -> str:
    return {
        "fig2": "Mean and standard deviation of BA, median of KLD over splits.",
        "fig3": "Median over splits, with the least and the greatest value.",
        "fig4": "Mean and standard deviation over splits.",
    }.get(figure, "Median over splits; bands hold the middle half.")
