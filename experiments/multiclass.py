"""Print errors of quantifiers on data of several classes, under the protocol of QuaPy's UCI multi-class sets.

The rows are split 70/30, stratified, with at most 25,000 rows for training. Features are standardised on the training
part, term counts weighted by tf-idf. Test samples of 500 rows have prevalences drawn uniformly from the simplex (UPP).
Every method has its default parameters. Run ``python -m experiments.multiclass --data-dir FOLDER``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import quapy as qp
from quapy.method.aggregative import CC, EMQ
from quapy.method.base import newOneVsAll
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import train_test_split

from experiments.catalogue import locate
from experiments.data import split
from experiments.errors import plain_errors
from quapy_nemsis import NEMSIS, NEMSISClassifier, SCANClassifier

#: Sets of QuaPy's list, by name.
SETS = (
    *("mhr", "cmc", "hcv", "yeast", "phishing", "obesity", "molecular", "abalone"),
    *("academic-success", "page_block", "satellite", "wine-quality", "nursery", "letter"),
    *("shuttle", "connect-4"),
)
MOST_ROWS = 25_000
METHODS: dict[str, Callable[[], Any]] = {
    "CC(LR)": lambda: CC(LogisticRegression(max_iter=1000)),
    "OneVsAll(NEMSIS:q)": lambda: newOneVsAll(NEMSIS("q", random_state=0)),
    "NEMSIS:q": lambda: CC(NEMSISClassifier("q", random_state=0)),
    "NEMSIS:bakld": lambda: CC(NEMSISClassifier("bakld", random_state=0)),
    "SCAN:cq": lambda: CC(SCANClassifier("cq", random_state=0)),
    "EMQ(LR)": lambda: EMQ(LogisticRegression(max_iter=1000)),
    "EMQ(NEMSIS:ba)": lambda: EMQ(NEMSISClassifier("ba", random_state=0)),
    "EMQ(NEMSIS:q)": lambda: EMQ(NEMSISClassifier("q", random_state=0)),
    "CC(SGD)": lambda: CC(SGDClassifier(random_state=0)),
}


def errors(name: str, folder: Path, methods: list[str], repeats: int, most: int) -> dict[str, Any]:
    """Mean absolute error of each method on a data set, and seconds of its fit."""
    X, y, X_test, y_test = split(locate(name, folder), seed=0)
    if len(y) > most:
        X, _, y, _ = train_test_split(X, y, train_size=most, stratify=y, random_state=0)
    test = qp.data.LabelledCollection(X_test, y_test, classes=np.unique(y))
    found = {}
    for method in methods:
        quantifier, begin = METHODS[method](), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantifier.fit(X, y)
            seconds = time.perf_counter() - begin
            protocol = qp.protocol.UPP(test, 500, repeats=repeats, random_state=0)
            found[method] = qp.evaluation.evaluate(quantifier, protocol, "mae"), seconds
    return found


def main() -> None:
    """Print a line per data set, then means and geometric means."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.multiclass", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--data-dir", type=Path, required=True, help="folder of data files, as NAME.npz")
    add("--sets", nargs="+", default=list(SETS), metavar="SET", help="names of data sets")
    default = [method for method in METHODS if method != "CC(SGD)"]
    add("--methods", nargs="+", choices=METHODS, default=default, metavar="METHOD")
    add("--repeats", type=int, default=1000, help="test samples (default %(default)s)")
    add("--rows", type=int, default=MOST_ROWS, help="training rows at most (default %(default)s)")
    options = parser.parse_args()
    shown = options.methods
    print(f"{'MAE (seconds of the fit)':18}", *(f"{method:>19}" for method in shown))
    every = []
    for name in options.sets:
        found = errors(name, options.data_dir, shown, options.repeats, options.rows)
        every.append([found[method][0] for method in shown])
        cells = (f"{error:.4f} ({seconds:.1f})" for error, seconds in found.values())
        print(f"{name:24}", *(f"{cell:>19}" for cell in cells), flush=True)
    table = np.array(every)
    means = {"mean": table.mean(axis=0), "geometric mean": np.exp(np.log(table).mean(axis=0))}
    for name, row in means.items():
        print(f"{name:24}", *(f"{error:>19.4f}" for error in row))


if __name__ == "__main__":
    with plain_errors():
        main()
