"""Slow, plain reference of quantification trees, for use in tests only.

Every candidate split is judged by predicting all rows concerned and counting errors, as Milli et al. (2013) define
them: a leaf predicts its most frequent class (the first of several), and for each class j

    cqb: E_j = |FP_j^2 - FN_j^2|,    eb: E_j = |FP_j - FN_j|,

of which a split minimises the Euclidean norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

# Values that differ by a smaller share are equal.
EQUAL = 1e-12


@dataclass
class Node:
    """A leaf (without a feature) or a split."""

    counts: np.ndarray
    feature: int = -1
    threshold: float = np.nan
    missing_left: bool = False
    left: Node | None = None
    right: Node | None = None

    @property
    def label(self) -> int:
        return int(np.argmax(self.counts))

    def predict_row(self, x: np.ndarray) -> int:
        if self.left is None:
            return self.label
        value = x[self.feature]
        goes_left = self.missing_left if np.isnan(value) else value <= self.threshold
        return (self.left if goes_left else self.right).predict_row(x)

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.array([self.predict_row(x) for x in X])


def class_counts(y, w, n_classes):
    return np.array([w[y == j].sum() for j in range(n_classes)])


def loss(measure, y, predicted, w, n_classes):
    """What a split minimises, for rows with these labels and predictions."""
    members = class_counts(y, w, n_classes)
    hits = np.array([w[(y == j) & (predicted == j)].sum() for j in range(n_classes)])
    counted = class_counts(predicted, w, n_classes)
    FN, FP = members - hits, counted - hits
    if measure == "cqb":
        return np.linalg.norm(np.abs(FP**2 - FN**2))
    if measure == "eb":
        return np.linalg.norm(np.abs(FP - FN))
    R = hits / np.where(members > 0, members, 1)
    value = measure.class_value(R, counted / w.sum(), members / w.sum(), eps=0.5 / w.sum())
    return -value if measure.greater_is_better else value


def gini(y, w, n_classes):
    """Weighted Gini impurity of a leaf."""
    shares = class_counts(y, w, n_classes) / w.sum()
    return w.sum() * (1.0 - (shares**2).sum())


def splits(X):
    """All splits of rows: feature, threshold, whether missing values go left, and which rows go left."""
    for j in range(X.shape[1]):
        column = X[:, j]
        values, missing = np.unique(column[~np.isnan(column)]), np.isnan(column)
        cuts = [0.5 * a + 0.5 * b for a, b in pairwise(values)]
        if missing.any() and len(values):
            cuts.append(np.inf)
        for cut in cuts:
            sides = [False, True] if missing.any() and cut < np.inf else [False]
            for missing_left in sides:
                yield j, cut, missing_left, np.where(missing, missing_left, column <= cut)


class Grower:
    """Greedy growth, depth first and to the left first."""

    def __init__(self, X, y, w, n_classes, measure="cqb", scope="node", ties="gini", **limits):
        self.X, self.y, self.w, self.n_classes = X, y, w, n_classes
        self.measure, self.scope, self.ties = measure, scope, ties
        self.max_depth = limits.get("max_depth", np.inf)
        self.least = limits.get("min_samples_leaf", 0)
        self.predicted = np.full(len(y), np.argmax(class_counts(y, w, n_classes)))

    def grow(self, rows=None, depth=0):
        rows = np.arange(len(self.y)) if rows is None else rows
        counts = class_counts(self.y[rows], self.w[rows], self.n_classes)
        node = Node(counts)
        if (counts > 0).sum() < 2 or depth == self.max_depth:
            return node
        found = self.best_split(rows)
        if found is None:
            return node
        node.feature, node.threshold, node.missing_left, goes_left = found
        column = self.X[rows, node.feature]
        if not np.isnan(column).any():
            node.missing_left = self.w[rows][goes_left].sum() >= self.w[rows][~goes_left].sum()
        parts = rows[goes_left], rows[~goes_left]
        for part in parts:
            self.predicted[part] = self.majority(part)
        node.left, node.right = (self.grow(part, depth + 1) for part in parts)
        return node

    def majority(self, rows):
        return np.argmax(class_counts(self.y[rows], self.w[rows], self.n_classes))

    def judged(self, rows, parts):
        """Loss and impurity if the rows were leaves of these parts."""
        predicted = self.predicted.copy()
        for part in parts:
            predicted[part] = self.majority(part)
        used = rows if self.scope == "node" else np.arange(len(self.y))
        value = loss(self.measure, self.y[used], predicted[used], self.w[used], self.n_classes)
        return value, sum(gini(self.y[part], self.w[part], self.n_classes) for part in parts)

    def best_split(self, rows):
        best, found = self.judged(rows, [rows]), None
        if self.ties == "stop":
            best = best[0], -np.inf
        margin, total = EQUAL * abs(best[0]), self.w[rows].sum()
        for feature, cut, missing_left, goes_left in splits(self.X[rows]):
            parts = rows[goes_left], rows[~goes_left]
            if min(self.w[part].sum() for part in parts) < self.least:
                continue
            value, impurity = self.judged(rows, parts)
            equal = abs(value - best[0]) <= margin
            if value < best[0] - margin or (equal and impurity < best[1] - EQUAL * total):
                best, found = (value, impurity), (feature, cut, missing_left, goes_left)
        return found


def all_predictions(X, y, w, n_classes, depth):
    """Predictions of all trees of at most this depth, whose leaves predict their most frequent class."""
    whole = np.full(len(y), np.argmax(class_counts(y, w, n_classes)))
    yield whole
    if depth == 0:
        return
    for _, _, _, goes_left in splits(X):
        sides = [
            list(all_predictions(X[part], y[part], w[part], n_classes, depth - 1))
            for part in (goes_left, ~goes_left)
        ]
        for left, right in product(*sides):
            predicted = np.empty_like(whole)
            predicted[goes_left], predicted[~goes_left] = left, right
            yield predicted
