"""What each figure is made of: data sets, methods, and the numbers of one method on one split.

The protocol is the paper's: 70 % of the rows are for training, parameters are chosen on a held-out part of them, and
there are several seeds. Where a data set of the paper is not to be had, another one stands in and is labelled as such.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import quapy as qp
from quapy.protocol import APP

from experiments import data
from experiments.catalogue import DataSet
from experiments.curves import choose_C, marks, online_curve, structural_curve
from experiments.store import compute, provenance
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

#: The modules that determine what a piece holds.
COMPUTING = ("curves", "data", "reproduce/pieces")
# Data sets per figure; the value says what a set stands in for.
SETS: dict[str, dict[str, str]] = {
    "fig1": {"adult": "", "cod-rna": "", "covtype": "KDD08", "w8a": "PPI"},
    "fig2": {"adult": "", "cod-rna": "", "covtype": ""},
    "fig3": {
        "covtype": "",
        "w8a": "PPI",
        **dict.fromkeys(("letter", "ijcnn1", "adult", "cod-rna"), ""),
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


@dataclass(frozen=True)
class Piece:
    """A method on a split of a data set, for a figure."""

    figure: str
    dataset: DataSet
    method: str
    seed: int
    passes: int

    def key(self, code: dict) -> dict:
        """Return all that determines the piece, as plain JSON."""
        return {
            "figure": self.figure,
            "data": self.dataset.name,
            "method": self.method,
            "seed": self.seed,
            "passes": self.passes,
            "rows": data.load(self.dataset).fingerprint,
            "code": code,
        }


def online_learner(method: str, measure: str) -> Any:
    """Return the online learner of a name in the paper."""
    if method == "1PMB":
        return OnePassMiniBatchClassifier(get_measure(measure))
    kind = SCANClassifier if method.startswith("SCAN") else NEMSISClassifier
    return kind(measure, estimates="counts" if method.endswith("-NS") else "surrogate")


def trained(method: str, measure: str, X: Any, y: np.ndarray, seed: int) -> Any:
    """Return the method, trained, with its parameters chosen."""
    if method == "SVM(KLD)":
        return SVMPerfClassifier("kld", C=choose_C("kld", X, y, seed)).fit(X, y)
    return online_learner(method, measure).set_params(random_state=seed).fit(X, y)


def run_piece(piece: Piece) -> dict:
    """Compute the numbers of a piece: its curve, its values, or why it failed."""
    work = {"fig2": _tradeoff, "fig3": _final, "fig4": _drift}
    try:
        return work.get(piece.figure, _curve)(piece, *data.prepare(piece.dataset, piece.seed))
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
    seen = marks(len(y), piece.passes)[: len(rows)]
    return {"seconds": [row[0] for row in rows], "value": [row[1] for row in rows], "seen": seen}


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


def run(
    figures: list[str],
    locate: Callable[[str], DataSet],
    folder: Path,
    *,
    seeds: int = 5,
    passes: int = 25,
    jobs: int = 1,
) -> dict[str, pd.DataFrame]:
    """Return a row per data set, method and seed of each figure; missing sets are left out, and named."""
    found = {}
    code = provenance(*COMPUTING)
    for figure in figures:
        pieces = []
        for name in SETS[figure]:
            try:
                dataset = locate(name)
            except FileNotFoundError as error:
                print(f"{figure}: {name} is left out. {error}", flush=True)
                continue
            methods = METHODS.get(figure, tuple(str(weight) for weight in CWEIGHTS))
            pieces += [
                Piece(figure, dataset, method, seed, passes)
                for method in methods
                for seed in range(seeds)
            ]
        keys = [piece.key(code) for piece in pieces]
        print(f"{figure}: {TITLES[figure]}, {len(pieces)} pieces", flush=True)
        # Curves over time are taken one at a time: two at once would slow each other.
        together = 1 if figure in ("fig1", "fig5", "fig6") else jobs
        records = compute(run_piece, pieces, keys, folder, what="pieces", jobs=together)
        rows = [
            {
                "data": piece.dataset.name,
                "method": piece.method,
                "seed": piece.seed,
                "error": None,
                **record,
            }
            for piece, record in zip(pieces, records, strict=True)
        ]
        frame = pd.DataFrame(rows)
        good = frame[frame["error"].isna()] if rows else frame
        if len(good):
            found[figure] = good
        elif rows:
            print(f"{figure}: every piece failed, as with {rows[0]['error']}", flush=True)
    return found


def label(figure: str, name: str) -> str:
    """Return a data set's name, and what it stands in for."""
    replaced = SETS[figure].get(name, "")
    return f"{name} (in place of {replaced})" if replaced else name
