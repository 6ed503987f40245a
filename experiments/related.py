"""Compare NEMSIS with SPADE, SCAN with STAMP, and learning for a measure with plug-in rules, on real data.

A table has the value of each measure on test rows: of logistic regression as it is, of the learners that are trained
for the measure, and of the plug-in rule for it on the posteriors of logistic regression, whose C is that of the least
cross-entropy in cross-validation. Sets may have several classes. A figure shows values on test rows over the number of
training rows seen. For F-measures and the Jaccard index, SCAN takes the steps of STAMP, so that
only STAMP is run; the figure also has STAMP with levels from surrogate rewards, as in print. Results are written after
each split. Run ``python -m experiments.related --data-dir FOLDER``.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from experiments.catalogue import DataSet, locate
from experiments.curves import marks, online_curve
from experiments.data import split as divided
from experiments.errors import plain_errors
from experiments.learners import best_C, some
from experiments.methods import learner
from experiments.plots import figure_of, look, panels
from experiments.store import replacing
from experiments.tuned import RememberedLR
from experiments.vectors import plain
from quapy_nemsis import PseudoMeasure, get_measure
from quapy_nemsis.measures import DUALS

SETS = ("adult", "ijcnn1", "letter", "covtype")
MEASURES = ("gmean", "hmean", "qmean", "kld", "bakld", "q", "f1", "f:2", "jaccard", "cq", "bk")
FIGURE = ("gmean", "qmean", "kld", "f1")
PLAIN, PLUG_IN = "LR", "plug-in"


def direct(measure: str) -> list[str]:
    """Names of the learners that are trained for a measure.

    Examples
    --------
    >>> direct("gmean"), direct("q"), direct("f1"), direct("cq")
    (['NEMSIS', 'SPADE'], ['NEMSIS'], ['STAMP', 'AMP'], ['SCAN'])
    """
    found = get_measure(measure)
    if isinstance(found, PseudoMeasure):
        return ["STAMP", "AMP"] if found.is_pseudo_linear() else ["SCAN"]
    return ["NEMSIS", "SPADE"] if type(found) in DUALS else ["NEMSIS"]


def split(dataset: DataSet, seed: int, most: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Training and test rows; of the training rows so many at most."""
    X, y, X_test, y_test = divided(dataset, seed)
    return *some(X, y, most), X_test, y_test


def values(
    data: tuple[Any, np.ndarray, Any, np.ndarray], measures: Sequence[str], seed: int
) -> list[dict[str, Any]]:
    """A record for each measure and method, with the value on test rows."""
    X, y, X_test, y_test = data
    C = best_C(X, y)
    plain_labels = LogisticRegression(C=C, max_iter=1000).fit(X, y).predict(X_test)
    several = len(np.unique(y)) > 2
    records = []
    for measure in measures:
        names = [name for name in direct(measure) if not (several and name == "SPADE")]
        made = {name: learner(name, measure)(seed) for name in (*names, PLUG_IN)}
        made[PLUG_IN].set_params(estimator=RememberedLR(C=C))  # the same for each measure
        labels = {name: made[name].fit(X, y).predict(X_test) for name in made}
        records += [
            {"measure": measure, "method": name, "value": get_measure(measure).score(y_test, found)}
            for name, found in {PLAIN: plain_labels, **labels}.items()
        ]
    return records


def curves(
    data: tuple[Any, np.ndarray, Any, np.ndarray], measures: Sequence[str], n_passes: int, seed: int
) -> list[dict[str, Any]]:
    """A record for each measure, online learner and number of training rows seen."""
    X, y, X_test, y_test = data
    records = []
    for measure in measures:
        unsuited = {"AMP", "SPADE"} if len(np.unique(y)) > 2 else {"AMP"}
        names = [name for name in direct(measure) if name not in unsuited]
        for name in [*names, "STAMP-surrogate"] if "STAMP" in names else names:
            stages = online_curve(learner(name, measure)(seed), X, y, n_passes, seed)
            for seen, (_, stage) in zip(marks(len(y), n_passes), stages, strict=True):
                value = get_measure(measure).score(y_test, stage.predict(X_test))
                records.append({"measure": measure, "method": name, "seen": seen, "value": value})
    return records


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds: a row for each measure and data set, a column for each method."""
    order = [PLAIN, "NEMSIS", "SPADE", "SCAN", "STAMP", "AMP", PLUG_IN]
    # In the order in which measures and data sets were given.
    keys = {key: pd.Categorical(frame[key], frame[key].unique()) for key in ("measure", "data")}
    groups = frame.assign(**keys).groupby([*keys, "method"], observed=True)
    wide = groups["value"].mean().unstack("method")
    return wide[[name for name in order if name in wide]]


def as_markdown(wide: pd.DataFrame) -> str:
    """The table as text; KLD, which is far smaller than other values, with powers of ten."""
    lines = [f"| measure | data | {' | '.join(wide.columns)} |"]
    lines.append("|" + " --- |" * (len(wide.columns) + 2))
    for (measure, data), row in wide.iterrows():  # type: ignore[misc]
        form = "{:.1e}" if measure == "kld" else "{:.4f}"
        cells = ["" if np.isnan(value) else form.format(value) for value in row]
        lines.append(f"| {measure} | {data} | {' | '.join(cells)} |")
    return "\n".join(lines)


@plain
def draw(frame: pd.DataFrame) -> Figure:
    """Draw values over the rows seen: a row of panels for each data set, a column for each measure."""
    groups = list(frame.groupby(["data", "measure"], sort=False))
    axes = panels(len(groups), 3.6, 2.8, frame["measure"].nunique())
    names = list(dict.fromkeys(frame["method"]))
    for ax, ((data, measure), rows) in zip(axes, groups, strict=True):
        kld = measure == "kld"
        for name, group in rows.groupby("method", sort=False):
            median = group.groupby("seen")["value"].median()
            shown = np.maximum(-median, 1e-7) if kld else median
            label = "SCAN = STAMP" if name == "STAMP" else name
            style = {**look(names.index(str(name))), "markevery": 4, "ms": 4, "label": label}
            ax.plot(median.index, shown, **style)
        ax.set(xscale="log", yscale="log" if kld else "linear", title=f"{data}: {measure}")
        ax.set_xlabel("training rows seen")
        ax.set_ylabel("KLD on test rows" if kld else f"{measure} on test rows")
        ax.grid(alpha=0.3)
    figure = figure_of(axes)
    handles = {
        name: line
        for ax in axes
        for line, name in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    return figure


def write(found: dict[str, list[dict[str, Any]]], folder: Path) -> None:
    """Write the records, the table and the figure."""
    frames = {key: pd.DataFrame(records) for key, records in found.items()}
    for key, frame in frames.items():
        with replacing(folder / f"{key}.csv", "w") as file:
            frame.to_csv(file, index=False)
    with replacing(folder / "table.md", "w") as file:
        file.write(as_markdown(table(frames["values"])) + "\n")
    if len(frames["curves"]):
        for suffix in ("svg", "png"):
            draw(frames["curves"]).savefig(folder / f"curves.{suffix}", dpi=150)


def main() -> None:
    """Print the table, and write it and the figure into a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.related", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--data-dir", type=Path, required=True, help="folder of data files, as NAME.npz"
    )
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="names of data sets")
    parser.add_argument("--measures", nargs="+", default=list(MEASURES))
    parser.add_argument("--figure-measures", nargs="*", default=list(FIGURE))
    parser.add_argument("--rows", type=int, default=60_000, help="training rows, at most")
    parser.add_argument("--seeds", type=int, default=3, help="number of splits")
    parser.add_argument("--passes", type=int, default=3, help="passes of the figure's curves")
    parser.add_argument("--out", type=Path, default=Path("related"), help="folder of the results")
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {"values": [], "curves": []}
    options.out.mkdir(parents=True, exist_ok=True)
    for seed, name in itertools.product(range(options.seeds), options.sets):
        data = split(locate(name, options.data_dir), seed, options.rows)
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)
            parts = {
                "values": values(data, options.measures, seed),
                "curves": curves(data, options.figure_measures, options.passes, seed),
            }
        for key, records in parts.items():
            found[key] += [{"data": name, "seed": seed, **record} for record in records]
        write(found, options.out)
        print(f"{name}, split {seed}: done", flush=True)
    print(as_markdown(table(pd.DataFrame(found["values"]))))


if __name__ == "__main__":
    with plain_errors():
        main()
