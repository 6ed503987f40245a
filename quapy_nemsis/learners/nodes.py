"""Trees as tables of nodes: bins of features, growing a tree, and finding the leaves of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils import gen_batches

from quapy_nemsis._kernels import trees as kernel
from quapy_nemsis.learners.state import Arrays
from quapy_nemsis.measures import Measure, NestedMeasure, PseudoMeasure
from quapy_nemsis.measures.compiled import class_asks, ratio, value_callback

#: The most bins of a feature; one code is that of missing values.
MOST_BINS = kernel.MISSING
# Quantiles are those of at most so many rows, and so many values are converted at a time.
_SAMPLED, _BLOCK = 200_000, 2**22


def _columns(X: Any) -> Iterator[tuple[int, np.ndarray]]:
    """The columns of dense or CSC rows as float64, a block at a time."""
    width = max(_BLOCK // max(X.shape[0], 1), 1)
    for part in gen_batches(X.shape[1], width):
        block = X[:, part]
        block = block.toarray() if scipy.sparse.issparse(block) else block
        for j, column in enumerate(np.asarray(block.T, dtype=np.float64, order="C")):
            yield part.start + j, column


def edges_of(column: np.ndarray, max_bins: int) -> np.ndarray:
    """The cuts between the bins of a feature: between all of its values, or between quantiles if it has too many.

    A cut lies halfway between the two values next to it.
    """
    sample = column[:: max(len(column) // _SAMPLED, 1)]
    values, counts = np.unique(sample[~np.isnan(sample)], return_counts=True)
    if len(values) < 2:
        return np.zeros(0)
    if len(values) > max_bins:
        wanted = np.arange(1, max_bins) * (counts.sum() / max_bins)
        after = np.unique(np.searchsorted(np.cumsum(counts), wanted))
        after = after[after < len(values) - 1]
    else:
        after = np.arange(len(values) - 1)
    below, above = values[after], values[after + 1]
    middle = 0.5 * below + 0.5 * above
    # Between neighbouring floats there is no other, and x ≤ cut must tell them apart.
    return np.where((below <= middle) & (middle < above), middle, below)


@dataclass(frozen=True)
class Bins:
    """Rows whose values are replaced by the codes of bins, with a row of codes for each feature."""

    codes: np.ndarray
    #: For each feature and code, the value up to which rows have that code or a lower one; it is infinite for the last.
    upper: np.ndarray

    @classmethod
    def of(cls, X: Any, max_bins: int) -> Bins:
        """Bins of dense or sparse rows, in which NaN stands for a missing value."""
        X = X.tocsc() if scipy.sparse.issparse(X) else X
        codes = np.empty((X.shape[1], X.shape[0]), dtype=np.uint8)
        upper = np.full((X.shape[1], MOST_BINS), np.inf)
        for j, column in _columns(X):
            edges = edges_of(column, max_bins)
            kernel.assign(column, edges, codes[j])
            upper[j, : len(edges)] = edges
        return cls(codes, upper)


@dataclass(frozen=True)
class Growth:
    """How a tree grows: checked parameters, and the function of the measure."""

    kind: int
    measure: Measure | None
    whole_tree: bool
    by_purity: bool
    max_depth: int
    least: float
    n_tried: int

    def question(self, n_classes: int) -> tuple[Any, float, np.ndarray]:
        """The compiled measure, the sign with which it is minimised, and the table through which it is asked."""
        measure = self.measure
        if measure is None:
            return None, 1.0, class_asks(n_classes, np.zeros((1, 1)))
        if isinstance(measure, PseudoMeasure):
            theta = measure.valuation(0.0).theta
        elif isinstance(measure, NestedMeasure):
            theta = measure.theta
        else:
            raise ValueError(f"{measure!r} ({measure.formula}) is for evaluation only")
        two = n_classes == 2
        form: Any = measure.functions if two else measure.class_functions
        if form is None:
            raise ValueError(
                f"{measure.name} is a measure of two classes, and there are {n_classes}: choose another"
            )
        outer = ratio if isinstance(measure, PseudoMeasure) else form.outer
        compiled = value_callback(form.values, outer, two, len(theta))
        return (
            compiled,
            -1.0 if measure.greater_is_better else 1.0,
            class_asks(n_classes, theta[None]),
        )

    def tree(
        self, bins: Bins, labels: np.ndarray, weights: np.ndarray, n_classes: int, seed: int
    ) -> tuple[Nodes, np.ndarray, np.ndarray]:
        """Grow a tree on the rows that have a weight; returns it, its importances, and the leaves of the other rows.

        Parameters
        ----------
        bins : Bins
            The rows.
        labels : ndarray of int32
            Positions of their classes.
        weights : ndarray of float64
            Their weights; rows of weight 0 are left out.
        n_classes : int
            Number of classes.
        seed : int
            Seed of the features that are tried.
        """
        rows = np.flatnonzero(weights)
        compiled, sign, ask = self.question(n_classes)
        most = 2 * len(rows) - 1
        feature, left = np.empty(most, dtype=np.int32), np.empty(most, dtype=np.int32)
        cut, missing_left = np.zeros(most, dtype=np.uint8), np.zeros(most, dtype=bool)
        counts = np.empty((len(rows), n_classes))
        importances = np.zeros(len(bins.codes))
        n_nodes, n_leaves = kernel.grow(
            *(bins.codes, rows.copy(), labels[rows], weights[rows], self.kind),
            *(0 if compiled is None else compiled.address, sign, ask),
            *(self.whole_tree, self.by_purity, self.max_depth, self.least, self.n_tried, seed),
            *(feature, cut, left, missing_left, counts, importances),
        )
        feature, cut, left = feature[:n_nodes].copy(), cut[:n_nodes], left[:n_nodes].copy()
        missing_left = missing_left[:n_nodes].copy()
        threshold = np.where(left >= 0, bins.upper[feature, cut], 0.0)
        outside = np.flatnonzero(weights == 0.0)
        leaves = np.empty(len(outside), dtype=np.int32)
        kernel.route(bins.codes, outside, feature, cut, left, missing_left, leaves)
        roots = np.zeros(1, dtype=np.int64)
        tree = Nodes(roots, feature, threshold, left, missing_left, counts[:n_leaves].copy())
        return tree, importances, leaves


@dataclass(frozen=True)
class Nodes:
    """The nodes of one tree or of several, one after the other.

    Rows with ``X[feature] <= threshold`` go to the left child, others to the right one, which stands behind it. A leaf
    has ``left = −1 − leaf``, and its class counts are ``counts[leaf]``.
    """

    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    missing_left: np.ndarray
    counts: np.ndarray

    @classmethod
    def joined(cls, trees: Sequence[Nodes]) -> Nodes:
        """All trees in one table."""
        nodes = np.cumsum([0, *(len(tree.left) for tree in trees)])
        leaves = np.cumsum([0, *(len(tree.counts) for tree in trees)])
        if nodes[-1] > np.iinfo(np.int32).max:
            raise ValueError(
                f"the trees have {nodes[-1]:,} nodes, which are too many: raise min_samples_leaf, or lower max_depth"
            )
        left = [
            np.where(tree.left >= 0, tree.left + nodes[t], tree.left - leaves[t]).astype(np.int32)
            for t, tree in enumerate(trees)
        ]
        parts = (
            np.concatenate([getattr(tree, name) for tree in trees])
            for name in ("feature", "threshold", "missing_left", "counts")
        )
        feature, threshold, missing_left, counts = parts
        return cls(nodes[:-1], feature, threshold, np.concatenate(left), missing_left, counts)

    @property
    def labels(self) -> np.ndarray:
        """Position of the class that each leaf predicts, the first of those that occur most."""
        return np.argmax(self.counts, axis=1).astype(np.int32)

    def posteriors(self, n_trees: int) -> np.ndarray:
        """Shares of the classes in each leaf, to be averaged over so many trees.

        The leaves of all trees together get one more row, so that no mean is 0. (With one more row in each leaf, a
        forest whose trees all agree would hardly be surer than one in which most of them do.)
        """
        counts = self.counts + 1.0 / (self.counts.shape[1] * n_trees)
        return counts / counts.sum(axis=1, keepdims=True)

    def leaves(self, X: Any) -> Iterator[tuple[slice, np.ndarray]]:
        """The leaves of blocks of rows, with a column for each tree."""
        width = max(X.shape[1], len(self.roots), self.counts.shape[1])
        for part in gen_batches(X.shape[0], max(_BLOCK // width, 1)):
            block = X[part].toarray() if scipy.sparse.issparse(X) else X[part]
            found = np.empty((len(block), len(self.roots)), dtype=np.int32)
            block = np.array(block, dtype=np.float64, order="C", ndmin=2)
            kernel.apply(
                *(block, self.roots, self.feature, self.threshold, self.left),
                *(self.missing_left, found),
            )
            yield part, found

    def mean_posteriors(self, X: Any) -> np.ndarray:
        """Mean over the trees of the posteriors of the leaf of each row."""
        posteriors = self.posteriors(len(self.roots))
        sums = np.zeros((X.shape[0], posteriors.shape[1]))
        for part, leaves in self.leaves(X):
            kernel.add(posteriors, leaves, sums[part])
        return sums / len(self.roots)

    def votes(self, X: Any) -> np.ndarray:
        """The class that each tree predicts for each row, as positions, with a column for each tree."""
        labels = self.labels
        found = np.empty((X.shape[0], len(self.roots)), dtype=np.int32)
        for part, leaves in self.leaves(X):
            found[part] = labels[leaves]
        return found

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The tables by name."""
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Nodes:
        """Inverse of `to_arrays`; tables in which a path would lead astray, or not end, raise a ValueError."""
        roots = arrays.take("roots", None, types=(np.int64,))
        left = arrays.take("left", None, types=(np.int32,))
        feature = arrays.take("feature", len(left), types=(np.int32,))
        threshold = arrays.take("threshold", len(left))
        missing_left = arrays.take("missing_left", len(left), types=(np.bool_,))
        counts = arrays.take("counts", None, arrays.n_classes)
        places, is_split = np.arange(len(left)), left >= 0
        if not (len(roots) and roots.min() >= 0 and roots.max() < len(left)):
            raise ValueError("its trees have no root among the nodes")
        children = left[is_split].astype(np.int64)
        if not ((children > places[is_split]).all() and (children + 1 < len(left)).all()):
            raise ValueError("its nodes have children that do not stand behind them")
        inner = feature[is_split]
        if not ((inner >= 0).all() and (inner < arrays.width).all()):
            raise ValueError(f"its splits are of features that are not among the {arrays.width}")
        if np.isnan(threshold).any():
            raise ValueError("its splits have thresholds that are not numbers")
        leaves = -1 - left[~is_split].astype(np.int64)
        if not (leaves < len(counts)).all():
            raise ValueError(f"its nodes point to leaves that are not among the {len(counts)}")
        if not ((counts >= 0.0).all() and np.isfinite(counts.sum()) and (counts.sum(1) > 0).all()):
            raise ValueError("its leaves have class counts that are negative, infinite or all 0")
        return cls(roots, feature, threshold, left, missing_left, counts)
