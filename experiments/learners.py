"""Compare all learners of this package and calibrated logistic regression under CC, ACC and EMQ.

Each learner is trained once for each data set, on at most 5,000 rows, and tested on at most 10,000. CC counts its
predictions. ACC corrects the count by its predictions out of fold: of its own folds where the learner has such, of
three folds otherwise. EMQ takes its posteriors. Samples of 500 rows are drawn at 21 prevalences (APP, 25 each), for
several classes at 525 prevalences drawn uniformly (UPP). C of logistic regression is that of the least cross-entropy in
cross-validation (three folds of at most 5,000 rows), C of the structural SVM that of the least loss on held-out rows;
learners of this package choose their own step sizes. Seconds are those of the processor, of the fit with posteriors and
with the choice of C, and without compiling. Features are appended to rows of at most 1,000 columns, and trees are grown
on at most 5,000. For several classes, logistic regression is not calibrated: scikit-learn's isotonic regression takes
the linear scores of one class at a time, and makes it worse. A finished cell is kept in the folder ``--out``, and a run
that was stopped goes on with the same command. Run
``python -m experiments.learners --data-dir FOLDER``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import quapy as qp
from quapy.method.aggregative import CC
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split
from sklearn.pipeline import Pipeline

from experiments.curves import choose_C
from experiments.errors import plain_errors
from experiments.methods import TREES, learner, on_features, suited
from experiments.names import parse_method
from experiments.quantification import SETS, SIZE, Cells, data, quietly
from experiments.store import replacing
from experiments.tuned import RememberedLR, isotonic
from quapy_nemsis import PlugInClassifier, SVMPerfClassifier
from quapy_nemsis.aggregation import ACC, EMQ, evaluate
from quapy_nemsis.learners.base import PosteriorClassifier
from quapy_nemsis.learners.scores import predicted_codes

CLASS_SETS = ("yeast", "academic-success", "satellite", "nursery", "shuttle", "connect-4")
LEARNERS = (
    *("LR-isotonic", "Fourier+LR-isotonic", "Nystrom+LR-isotonic"),
    *("NEMSIS:ba", "NEMSIS:q", "SCAN:cq", "CAN:cq"),
    *("Fourier+NEMSIS:ba", "Nystrom+NEMSIS:ba", "Fourier+SCAN:cq"),
    *("SPADE:gmean", "STAMP:f1", "AMP:f1", "SVM(KLD)", "1PMB:kld"),
    *("plug-in:q", "Fourier+plug-in:q", "QTree", "QForest"),
)
AGGREGATIONS = ("CC", "ACC", "EMQ")
# Learners that were compiled in this process, by name and number of classes.
_COMPILED: set[tuple[str, int]] = set()
_MOST_COLUMNS, _MOST_TREE_COLUMNS = 1_000, 5_000
_MOST_ROWS, _FOLDS = 5_000, StratifiedKFold(3)
_STRENGTHS = [1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3]


def some(X: Any, y: np.ndarray, most: int) -> tuple[Any, np.ndarray]:
    """At most so many rows, with the shares of the classes of all."""
    if len(y) <= most:
        return X, y
    X, _, y, _ = train_test_split(X, y, train_size=most, stratify=y, random_state=0)
    return X, y


def best_C(X: Any, y: np.ndarray) -> float:
    """C of logistic regression with the least cross-entropy in cross-validation on some of the rows."""
    search = LogisticRegressionCV(
        Cs=_STRENGTHS,
        cv=_FOLDS,
        scoring="neg_log_loss",
        max_iter=1000,
        refit=False,
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
    )
    return float(search.fit(*some(X, y, _MOST_ROWS)).C_)


def completed(model: Any, X: Any, y: np.ndarray, seed: int) -> Any:
    """Return the learner with the C that is chosen for it, if it has one."""
    if isinstance(model, Pipeline):
        features = model[0].fit(X)
        inner = completed(model[-1], features.transform(X), y, seed)
        return Pipeline([("features", features), ("learner", inner)])
    if isinstance(model, SVMPerfClassifier):
        return model.set_params(C=choose_C("kld", X, y, seed))
    if isinstance(model, PlugInClassifier):
        return model.set_params(estimator__C=best_C(X, y))
    if isinstance(model, RememberedLR):
        plain = LogisticRegression(C=best_C(X, y), max_iter=1000)
        return isotonic(plain) if model.isotonic else plain
    return model


def fitted(name: str, X: Any, y: np.ndarray, seed: int) -> Any:
    """Return the learner of a name, with posteriors, fitted."""
    parts = parse_method(name)
    model = completed(
        on_features(parts.features, learner(parts.learner, parts.objective))(seed), X, y, seed
    )
    inner = model[-1] if parts.features else model
    if "posteriors" in inner.get_params():
        inner.set_params(posteriors="training")
    return model.fit(X, y)


def out_of_fold(model: Any, X: Any, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels that a fitted learner predicts for rows that it has not learned, and their true labels."""
    inner = model[-1] if isinstance(model, Pipeline) else model
    if isinstance(inner, PosteriorClassifier):
        known = inner.calibration_
        codes = predicted_codes(known.scores)
        return inner.classes_[codes], inner.classes_[known.labels.astype(int)]
    return cross_val_predict(model, X, y, cv=_FOLDS), y


@lru_cache(maxsize=1)
def rows_of(name: str, folder: Path, seed: int, most: int) -> tuple:
    """Return a split with at most so many training rows, and twice as many test rows."""
    X, y, X_test, y_test = data(name, folder, seed, most)
    return X, y, *some(X_test, y_test, 2 * most)


def errors(name: str, folder: Path, seed: int, most: int, method: str, samples: int) -> dict:
    """Mean absolute error of a learner under each aggregation, and the processor's seconds of its fit."""
    X, y, X_test, y_test = rows_of(name, folder, seed, most)
    test = qp.data.LabelledCollection(X_test, y_test, classes=np.unique(y_test))

    def work() -> dict:
        if (method, test.n_classes) not in _COMPILED:
            fitted(method, *some(X, y, 1000), seed)
            _COMPILED.add((method, test.n_classes))
        begin = time.process_time()
        model = fitted(method, X, y, seed)
        seconds = time.process_time() - begin
        adjusted = ACC(model, fit_classifier=False)
        adjusted.aggregation_fit(*out_of_fold(model, X, y))
        made = {
            "CC": CC(model, fit_classifier=False).fit(X, y),
            "ACC": adjusted,
            "EMQ": EMQ(model, fit_classifier=False).fit(X, y),
        }
        if test.n_classes == 2:
            protocol = qp.protocol.APP(test, SIZE, 21, repeats=max(samples // 21, 1))
        else:
            protocol = qp.protocol.UPP(test, SIZE, repeats=samples)
        protocol.random_state = seed
        found = {key: float(evaluate(one, protocol, "mae")) for key, one in made.items()}
        return {**found, "seconds": seconds}

    return quietly(seed, work)


def as_markdown(
    cells: Callable[[str, str], dict | None], methods: list[str], sets: list[str]
) -> str:
    """A row for each learner: CC / ACC / EMQ on each set, geometric means, and the sum of seconds.

    A geometric mean is given to learners that have a value on every set.
    """
    head = ["CC / ACC / EMQ", *sets, "geometric mean", "seconds"]
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for method in methods:
        found = [cells(name, method) for name in sets]
        shown = [
            "" if cell is None else " / ".join(f"{cell[key]:.4f}" for key in AGGREGATIONS)
            for cell in found
        ]
        known = [cell for cell in found if cell is not None]
        mean = ""
        if len(known) == len(found):
            means = [np.exp(np.mean(np.log([cell[key] for cell in known]))) for key in AGGREGATIONS]
            mean = " / ".join(f"{value:.4f}" for value in means)
        seconds = f"{sum(cell['seconds'] for cell in known):.1f}" if known else ""
        lines.append(f"| {method} | {' | '.join(shown)} | {mean} | {seconds} |")
    return "\n".join(lines)


def main() -> None:
    """Compute what is missing, and print and write a table for two classes and one for several."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.learners", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--data-dir", type=Path, required=True, help="folder of data files, as NAME.npz")
    add("--sets", nargs="*", default=list(SETS), help="names of sets of two classes")
    add("--class-sets", nargs="*", default=list(CLASS_SETS), help="names of sets of several")
    add("--class-data-dir", type=Path, help="folder of these (default FOLDER/multiclass)")
    add("--learners", nargs="+", default=list(LEARNERS), metavar="LEARNER")
    add("--rows", type=int, default=5_000, help="training rows, at most (default %(default)s)")
    add("--samples", type=int, default=525, help="test samples (default %(default)s)")
    add("--seeds", type=int, default=1, help="number of splits")
    add("--out", type=Path, default=Path("results/learners"), help="folder of the results")
    options = parser.parse_args()
    class_folder = options.class_data_dir or options.data_dir / "multiclass"
    groups = {
        "two": (options.sets, options.data_dir),
        "several": (options.class_sets, class_folder),
    }
    texts = []
    for kind, (sets, folder) in groups.items():
        cells = Cells(options.out / f"{kind}.jsonl")
        tasks: dict[tuple[str, str], list[tuple]] = {}
        chosen = list(options.learners)
        if kind == "several":
            chosen = [name.replace("LR-isotonic", "LR") for name in chosen]
        for name in sets:
            X, y, _, _ = rows_of(name, folder, 0, options.rows)
            for method in suited(chosen, len(np.unique(y))):
                parts = parse_method(method)
                if parts.features and X.shape[1] > _MOST_COLUMNS:
                    continue
                if parts.learner in TREES and X.shape[1] > _MOST_TREE_COLUMNS:
                    continue
                tasks[name, method] = [
                    (name, seed, options.rows, method, options.samples)
                    for seed in range(options.seeds)
                ]
        cells.run(errors, [key for keys in tasks.values() for key in keys], folder, 1)

        def mean(name: str, method: str, cells: Cells = cells, tasks: dict = tasks) -> dict | None:
            found = [cells[key] for key in tasks.get((name, method), [])]
            return (
                {key: float(np.mean([f[key] for f in found])) for key in found[0]}
                if found
                else None
            )

        methods = [m for m in chosen if any((name, m) in tasks for name in sets)]
        texts.append(as_markdown(mean, methods, sets))
        print(f"\n{texts[-1]}", flush=True)
    with replacing(options.out / "table.md", "w") as file:
        file.write("\n\n".join(texts) + "\n")


if __name__ == "__main__":
    with plain_errors():
        main()
