"""The demo: quantifiers under prevalence drift, on data that ships with scikit-learn.

Trains NEMSIS for three measures next to classify-and-count (CC) and adjusted count (ACC) on logistic regression, runs
QuaPy's artificial-prevalence protocol (APP), prints a table and writes a plot of the error against the drift.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import quapy as qp
from quapy.method.aggregative import ACC, CC
from quapy.protocol import APP
from sklearn.linear_model import LogisticRegression

from experiments.data import embedded, split
from quapy_nemsis import NEMSIS, NEMSISClassifier

SETS = ("breast_cancer", "digits")
SEED = 0

# Okabe and Ito's colours, told apart by colour-blind readers too.
COLOURS = ("#000000", "#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00")
MARKERS = "osv^DX"


def methods() -> dict[str, qp.method.base.BaseQuantifier]:
    """Fresh quantifiers by name."""
    return {
        "CC(LR)": CC(LogisticRegression(max_iter=1000)),
        "ACC(LR)": ACC(LogisticRegression(max_iter=1000)),
        "NEMSIS:kld": NEMSIS("kld", random_state=SEED),
        "NEMSIS:bakld": NEMSIS("bakld", random_state=SEED),
        "NEMSIS:q": NEMSIS("q", random_state=SEED),
        "ACC(NEMSIS:q)": ACC(NEMSISClassifier("q", random_state=SEED)),
    }


def evaluate(name: str, sample_size: int, repeats: int) -> dict[str, dict]:
    """Fit every method on a data set and run APP on its test part."""
    X, y, X_test, y_test = split(*embedded(name), SEED)
    test = qp.data.LabelledCollection(X_test, y_test, classes=[0, 1])
    results = {}
    for method, quantifier in methods().items():
        with qp.util.temp_seed(SEED):
            begin = time.perf_counter()
            quantifier.fit(X, y)
            seconds = time.perf_counter() - begin
            protocol = APP(
                test,
                sample_size=sample_size,
                n_prevalences=21,
                repeats=repeats,
                random_state=SEED,
            )
            true, estimated = qp.evaluation.prediction(quantifier, protocol)
        errors = qp.error.ae(true, estimated)
        results[method] = {
            "mae": errors.mean(),
            "kld": qp.error.mkld(true, estimated, eps=0.5 / sample_size),
            "seconds": seconds,
            "drift": np.abs(true[:, 1] - y.mean()),
            "errors": errors,
        }
        print(
            f"{name:14} {method:14} MAE {results[method]['mae']:.4f}  "
            f"KLD {results[method]['kld']:.4f}  fit {seconds:.2f} s",
            flush=True,
        )
    return results


@plt.style.context("default")  # importing quapy.plot sets a larger font for all figures
def plot(results: dict[str, dict[str, dict]], path: Path) -> None:
    """Absolute error against the drift of the prevalence, one panel per data set."""
    figure, axes = plt.subplots(
        1, len(results), figsize=(5.2 * len(results), 4.2), sharey=True, layout="constrained"
    )
    edges = np.linspace(0.0, 1.0, 11)
    for ax, (name, methods_) in zip(np.atleast_1d(axes), results.items(), strict=True):
        for (method, result), colour, marker in zip(
            methods_.items(), COLOURS, MARKERS, strict=True
        ):
            bins = np.digitize(result["drift"], edges[1:-1])
            used = np.unique(bins)
            centres = [result["drift"][bins == b].mean() for b in used]
            means = [result["errors"][bins == b].mean() for b in used]
            ax.plot(centres, means, color=colour, marker=marker, markersize=5, label=method)
        ax.set_title(name.replace("_", " "))
        ax.set_xlabel("drift |p′ − p| between training and test prevalence")
        ax.grid(alpha=0.3)
    first = np.atleast_1d(axes)[0]
    first.set_ylabel("absolute error of the estimated prevalence")
    first.set_ylim(bottom=0.0)
    first.legend(fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def table(results: dict[str, dict[str, dict]]) -> str:
    """MAE under APP by method and data set, the best of each column marked."""
    names = list(results)
    lines = [f"{'MAE under APP':16}" + "".join(f"{name:>16}" for name in names)]
    best = {name: min(result["mae"] for result in results[name].values()) for name in names}
    for method in results[names[0]]:
        cells = (results[name][method]["mae"] for name in names)
        marks = (
            "*" if cell == best[name] else " " for cell, name in zip(cells, names, strict=True)
        )
        row = (f"{results[n][method]['mae']:>15.4f}{m}" for n, m in zip(names, marks, strict=True))
        lines.append(f"{method:16}" + "".join(row))
    return "\n".join([*lines, "* best of the column"])


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/demo"), help="folder to write to")
    parser.add_argument("--sample-size", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=25, help="samples per prevalence")
    options = parser.parse_args()
    print(
        f"QuaPy's APP: 21 prevalences from 0 to 1, {options.repeats} samples of "
        f"{options.sample_size} rows each\n"
    )
    results = {name: evaluate(name, options.sample_size, options.repeats) for name in SETS}
    print("\n" + table(results))
    path = options.out / "drift.png"
    plot(results, path)
    print(f"\nDrift plot: {path}")


if __name__ == "__main__":
    main()
