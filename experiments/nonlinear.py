"""Draw learning curves of linear learners with random features in a stream, next to kernel SVMs and forests.

Online learners make one pass, inside `fit_stream`, and choose their step size while they learn; features are computed
block by block. Batch learners are trained anew at each number of rows: an SVM with a Gaussian kernel on up to 5,000
rows (C of 1, 10 and 100, chosen on held-out rows), a linear SVM on scikit-learn's Nyström features on all, and forests
of 50 trees. The error is 1 − BA on at most 10,000 test rows. All learners aim at it: NEMSIS and
QForest by their measure, the others by balanced class weights. A second table has the error at the chosen step size
next to the least and the median among fixed ones on the same test rows, for one pass over 5,000 rows and for `fit` to
them. Run ``python -m experiments.nonlinear --data-dir FOLDER``.
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits

from experiments.errors import plain_errors
from experiments.learners import some
from experiments.methods import learner, on_features
from experiments.plots import figure_of, look, panels
from experiments.quantification import data
from experiments.store import replacing
from experiments.vectors import plain
from quapy_nemsis import BA, QuantificationForestClassifier
from quapy_nemsis.learners.tuning import RADII, STEP_SIZES, STREAM_STEP_SIZES
from quapy_nemsis.streaming import Progress, fit_stream, from_iterable

SETS = ("covtype", "ijcnn1", "letter", "cod-rna")
ROWS = (500, 1000, 2000, 5000, 10_000, 20_000)
ONLINE = ("NEMSIS:ba", "Fourier+NEMSIS:ba", "Nystrom+NEMSIS:ba")
Rows = tuple[Any, np.ndarray, Any, np.ndarray]


def online(name: str, seed: int, **parameters: Any) -> Any:
    """A linear learner for BA, or a pipeline of features and such a learner."""
    features = name.partition("+")[0] if "+" in name else ""
    made = on_features(features, lambda seed: learner("NEMSIS", "ba")(seed))(seed)
    inner = made[-1] if features else made
    inner.set_params(**parameters)
    return made


def rbf(X: Any, y: np.ndarray, seed: int) -> Any:
    """An SVM with a Gaussian kernel, fitted."""
    X_some, y_some = some(X, y, 3000)
    parts = train_test_split(X_some, y_some, test_size=0.3, stratify=y_some, random_state=seed)
    every = [SVC(C=C, class_weight="balanced", cache_size=500) for C in (1.0, 10.0, 100.0)]
    values = [BA().score(parts[3], one.fit(parts[0], parts[2]).predict(parts[1])) for one in every]
    return clone(every[int(np.argmax(values))]).fit(X, y)


#: Batch learners: how many rows they are given at most, and a function that fits them.
BATCH: dict[str, tuple[float, Callable[[Any, np.ndarray, int], Any]]] = {
    "RBF-SVM": (5_000, rbf),
    "Nystroem + LinearSVC": (
        math.inf,
        lambda X, y, seed: make_pipeline(
            Nystroem(n_components=200, gamma=1.0 / (X.shape[1] * X.var()), random_state=seed),
            LinearSVC(class_weight="balanced", random_state=seed),
        ).fit(X, y),
    ),
    "QForest:ba": (
        math.inf,
        lambda X, y, seed: QuantificationForestClassifier(
            "ba", n_estimators=50, random_state=seed
        ).fit(X, y),
    ),
    "RandomForest": (
        math.inf,
        lambda X, y, seed: RandomForestClassifier(
            50, min_samples_leaf=5, class_weight="balanced_subsample", random_state=seed
        ).fit(X, y),
    ),
}


def curves(rows: Rows, seed: int) -> Iterator[dict[str, Any]]:
    """A record for each learner and number of rows."""
    X, y, X_test, y_test = rows
    places = [size for size in ROWS if size < len(y)]
    places = [*places, len(y)] if len(y) < ROWS[-1] else list(ROWS)
    for name in ONLINE:
        found: list[dict[str, Any]] = []

        def note(progress: Progress, found: list = found, name: str = name) -> None:
            if progress.rows in places:
                error = 1.0 - BA().score(y_test, progress.learner.predict(X_test))
                found.append({"method": name, "rows": progress.rows, "error": error})

        ends = zip([0, *places], places, strict=False)
        source = from_iterable([(X[begin:end], y[begin:end]) for begin, end in ends], "rows")
        fit_stream(
            online(name, seed), source, classes=np.unique(y), callback=note, warm_up=places[0]
        )
        yield from found
    for name, (most, fit) in BATCH.items():
        for size in (size for size in places if size <= most):
            predicted = fit(X[:size], y[:size], seed).predict(X_test)
            error = 1.0 - BA().score(y_test, predicted)
            yield {"method": name, "rows": size, "error": error}


def choices(rows: Rows, seed: int) -> Iterator[dict[str, Any]]:
    """The error at chosen step sizes, and the least among given ones, for one pass and for `fit`."""
    X, y, X_test, y_test = rows
    X, y = some(X, y, 5_000)
    for name in ONLINE:
        *features, _ = made.steps if hasattr(made := online(name, seed), "steps") else [None]
        for _, step in features:
            X_all, X_held = step.fit(X).transform(X), step.transform(X_test)
        if not features:
            X_all, X_held = X, X_test
        square = float((X_all**2).sum(axis=1).mean())
        grids = {
            "one pass": [{"eta0": eta0} for eta0 in STREAM_STEP_SIZES],
            "fit": [
                {"eta0": step / square, "radius": radius / math.sqrt(square)}
                for step, radius in itertools.product(STEP_SIZES, RADII)
            ],
        }
        for how, grid in grids.items():
            errors = []
            for parameters in [{}, *grid]:
                one = online("NEMSIS:ba", seed, **parameters)
                fitted = (one.partial_fit if how == "one pass" else one.fit)(X_all, y)
                errors.append(1.0 - BA().score(y_test, fitted.predict(X_held)))
            least, median = min(errors[1:]), float(np.median(errors[1:]))
            found = {"chosen": errors[0], "least": least, "median": median}
            yield {"method": name, "how": how, **found}


@plain
def draw(frame: pd.DataFrame) -> Figure:
    """Draw the errors over the numbers of rows, a panel for each data set."""
    groups = list(frame.groupby("data", sort=False))
    axes = panels(len(groups), 3.6, 2.8, 2)
    names = list(dict.fromkeys(frame["method"]))
    for ax, (name, rows) in zip(axes, groups, strict=True):
        for method, group in rows.groupby("method", sort=False):
            mean = group.groupby("rows")["error"].mean()
            ax.plot(
                mean.index, mean, **{**look(names.index(str(method))), "ms": 4, "label": method}
            )
        ax.set(xscale="log", yscale="log", title=str(name))
        ax.set_xlabel("training rows seen")
        ax.set_ylabel("1 − BA on test rows")
        ax.grid(alpha=0.3)
    figure = figure_of(axes)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3)
    return figure


def as_markdown(wide: pd.DataFrame) -> str:
    """A table of errors as text."""
    names = [*wide.index.names, *map(str, wide.columns)]
    lines = [f"| {' | '.join(names)} |", "|" + " --- |" * len(names)]
    for key, row in wide.iterrows():
        words = key if isinstance(key, tuple) else (key,)
        cells = ["" if np.isnan(value) else f"{value:.4f}" for value in row]
        lines.append(f"| {' | '.join([*map(str, words), *cells])} |")
    return "\n".join(lines)


def write(found: dict[str, list[dict[str, Any]]], folder: Path) -> str:
    """Write records, tables and the figure; return the tables."""
    frames = {key: pd.DataFrame(records) for key, records in found.items()}
    for frame in frames.values():
        for key in {"data", "method"} & {*frame}:
            frame[key] = pd.Categorical(frame[key], frame[key].unique())
    errors = frames["curves"].groupby(["data", "method", "rows"], observed=True)["error"].mean()
    steps = frames["choices"].groupby(["data", "method", "how"], observed=True)
    tables = [errors.unstack("rows"), steps[["chosen", "least", "median"]].mean()]
    text = "\n\n".join(map(as_markdown, tables))
    for key, frame in frames.items():
        with replacing(folder / f"{key}.csv", "w") as file:
            frame.to_csv(file, index=False)
    with replacing(folder / "tables.md", "w") as file:
        file.write(text + "\n")
    for suffix in ("svg", "png"):
        draw(frames["curves"]).savefig(folder / f"nonlinear.{suffix}", dpi=150)
    return text


def main() -> None:
    """Print the tables, and write them and the figure into a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.nonlinear", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--data-dir", type=Path, required=True, help="folder of data files, as NAME.npz")
    add("--sets", nargs="+", default=list(SETS), help="names of data sets")
    add("--rows", type=int, default=ROWS[-1], help="training rows, at most (default %(default)s)")
    add("--seeds", type=int, default=1, help="number of splits")
    add("--out", type=Path, default=Path("results/nonlinear"), help="folder of the results")
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {"curves": [], "choices": []}
    text = ""
    for seed, name in itertools.product(range(options.seeds), options.sets):
        X, y, X_test, y_test = data(name, options.data_dir, seed, options.rows)
        rows = X, y, *some(X_test, y_test, 10_000)
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")
            parts = {"curves": curves(rows, seed), "choices": choices(rows, seed)}
            for key, records in parts.items():
                found[key] += [{"data": name, "seed": seed, **record} for record in records]
        text = write(found, options.out)
        print(f"{name}, split {seed}: done", flush=True)
    print(text)


if __name__ == "__main__":
    with plain_errors():
        main()
