"""Quantification trees and forests (Milli et al. 2013): splits that balance the errors of each class."""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from joblib import effective_n_jobs
from numpy.random import RandomState
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._kernels import trees as kernel
from quapy_nemsis._validation import (
    FLOATS,
    MatrixLike,
    check_integer,
    check_memory,
    check_option,
    check_seed,
    checked_data,
    checked_rows,
    checked_weights,
    encode,
    unchanged_on_error,
    without_zeros,
)
from quapy_nemsis.learners.base import Learner
from quapy_nemsis.learners.calibration import Calibration
from quapy_nemsis.learners.nodes import MOST_BINS, Bins, Growth, Nodes
from quapy_nemsis.learners.scores import predicted_codes
from quapy_nemsis.learners.state import UNWEIGHTED, Arrays, Data, prefixed
from quapy_nemsis.learners.tuning import in_fifths, n_held_out_folds
from quapy_nemsis.measures import CQB, Measure, get_measure

if TYPE_CHECKING:
    from typing_extensions import Self

#: What splits improve, besides the measures of the package.
ERRORS = {"cqb": kernel.CQB, "eb": kernel.EB, "gini": kernel.GINI}
SCOPES = ("node", "tree")
TIES = ("gini", "stop")
# No tree is deeper than it has rows. More trees than this are a mistake.
_DEEPEST, _MOST_TREES = 2**62, 1_000_000
# Trees that have grown are read when so many for each thread have, so that few wait.
_WAITING = 4

T = TypeVar("T")


@dataclass(eq=False, repr=False)
class TreeParameters:
    """Parameters of quantification trees, shared with the QuaPy quantifiers (see `QuantificationTreeClassifier`)."""

    measure: str | Measure = "cqb"
    _: KW_ONLY
    scope: str = "node"
    ties: str = "gini"
    max_depth: int | None = None
    min_samples_leaf: float = 1
    max_features: float | str | None = None
    max_bins: int = 255
    class_weight: Any = None
    random_state: int | RandomState | None = None

    def growth(self, n_features: int = 1) -> Growth:
        """Check the parameters, and return them as a tree of so many features takes them."""
        check_option("scope", self.scope, SCOPES)
        check_option("ties", self.ties, TIES)
        if self.max_depth is not None:
            check_integer("max_depth", self.max_depth)
        check_integer("max_bins", self.max_bins, least=2)
        if self.max_bins > MOST_BINS:
            raise ValueError(f"max_bins must be at most {MOST_BINS}; got {self.max_bins!r}")
        check_seed(self.random_state)
        least = self.min_samples_leaf
        if not isinstance(least, numbers.Real) or isinstance(least, bool):
            raise TypeError(f"min_samples_leaf must be a number; got {least!r}")
        if not 1.0 <= float(least) < np.inf:
            raise ValueError(f"min_samples_leaf must be at least 1; got {least!r}")
        kind, measure = kernel.MEASURE, None
        if isinstance(self.measure, CQB):
            kind = kernel.CQB
        elif isinstance(self.measure, str) and self.measure in ERRORS:
            kind = ERRORS[self.measure]
        else:
            measure = _known_measure(self.measure)
        return Growth(
            kind=kind,
            measure=measure,
            whole_tree=self.scope == "tree",
            by_purity=self.ties == "gini" and kind != kernel.GINI,
            max_depth=_DEEPEST if self.max_depth is None else min(int(self.max_depth), _DEEPEST),
            # With weights, a leaf of one row may have any weight.
            least=float(least) if least > 1 else 0.0,
            n_tried=_n_tried(self.max_features, n_features),
        )


def _known_measure(measure: Any) -> Measure:
    """The measure of a name; the error for an unknown one names those of trees as well."""
    if not isinstance(measure, str | Measure):
        raise TypeError(f"measure must be a name or a Measure object; got {measure!r}")
    try:
        return get_measure(measure)
    except ValueError as error:
        raise ValueError(f"{error}; trees also know {', '.join(ERRORS)}") from None


def _n_tried(max_features: Any, n_features: int) -> int:
    """How many features a split is chosen from."""
    if max_features is None:
        return n_features
    if isinstance(max_features, str):
        check_option("max_features", max_features, ("sqrt", "log2"))
        if max_features == "sqrt":
            return max(int(math.sqrt(n_features)), 1)
        return min(int(math.log2(n_features)) + 1, n_features)
    if isinstance(max_features, numbers.Integral) and not isinstance(max_features, bool):
        check_integer("max_features", max_features)
        return min(int(max_features), n_features)
    if not isinstance(max_features, numbers.Real) or isinstance(max_features, bool):
        raise TypeError(
            f"max_features must be a number, 'sqrt', 'log2' or None; got {max_features!r}"
        )
    if not 0.0 < float(max_features) <= 1.0:
        raise ValueError(
            f"max_features must be a share above 0 and at most 1, or an integer; got {max_features!r}"
        )
    return max(int(float(max_features) * n_features), 1)


class TreeClassifier(TreeParameters, Learner):
    """A classifier of one tree or of several; subclasses grow them."""

    multiclass = True

    nodes_: Nodes
    calibration_: Calibration
    class_prior_: np.ndarray
    feature_importances_: np.ndarray

    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Grow the tree or the trees.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; NaN stands for a missing value.
        y : array-like of shape (n_samples,)
            Labels of any type, of two or more classes.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows. A row of weight 3 counts as three rows; a row of weight 0 is left out.

        Returns
        -------
        self
            The fitted classifier.
        """
        self.growth()  # raises an error for invalid parameters before the data are looked at
        with unchanged_on_error(self):
            options = {"dtype": FLOATS, "ensure_all_finite": "allow-nan"}
            X, labels = checked_data(self, X, y, reset=True, **options)
            classes = self.checked_classes(labels)
            weights = checked_weights(sample_weight, self.class_weight, X, labels, classes)
            X, labels, weights = without_zeros(X, labels, weights)
            if weights is not None:
                classes = self.checked_classes(labels)
            check_memory(
                math.prod(X.shape),
                f"the bins of {X.shape[0]:,} rows and {X.shape[1]:,} features",
                "use fewer rows or features",
            )
            counts = UNWEIGHTED if weights is None else weights
            data = Data(X, encode(labels, classes), len(classes), counts)
            growth = self.growth(X.shape[1])
            growth.question(data.n_classes)  # raises an error if the measure is not for so many
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            members = np.bincount(data.labels, data.weights if len(data.weights) else None)
            self.classes_, self.class_prior_ = classes, members / members.sum()
            self._grow(data, Bins.of(X, int(self.max_bins)), growth, np.random.default_rng(seed))
        return self

    def _grow(self, data: Data, bins: Bins, growth: Growth, rng: np.random.Generator) -> None:
        """Set the nodes, the importances and the calibration."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def mean_posteriors(self, X: MatrixLike) -> np.ndarray:
        """Shares of the classes among the training rows in the leaf of each row, as a mean over the trees.

        They are not calibrated, unlike those of `predict_proba`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Shares.
        """
        check_is_fitted(self)
        return self.nodes_.mean_posteriors(self._rows(X))

    def _rows(self, X: MatrixLike) -> Any:
        return checked_rows(self, X, dtype=FLOATS, ensure_all_finite="allow-nan")

    def decision_function(self, X: MatrixLike) -> np.ndarray:
        """Scores of the classes, whose highest is predicted: logarithms of `mean_posteriors`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            The log-odds of the second of two classes, or a score for each of more classes.
        """
        return _scores_of(self.mean_posteriors(X))

    def predict(self, X: MatrixLike) -> np.ndarray:
        """Predict the label of each row: the class with the highest mean posterior over the trees.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels from `classes_`.
        """
        codes = predicted_codes(self.decision_function(X))
        return self.classes_[codes]

    def committee_scores(self, X: MatrixLike) -> np.ndarray:
        """Scores at equal prevalences, which `calibration_` takes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores: one for each row, or one for each row and class if there are more than two.
        """
        return _scores_of(self.mean_posteriors(X) / self.class_prior_)

    def predict_proba(self, X: MatrixLike) -> np.ndarray:
        """Posterior probabilities, calibrated on rows that did not grow the trees that score them.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities of the classes, in the order of `classes_`.
        """
        scores = self.committee_scores(X)
        return self.calibration_.probabilities(scores)

    def _calibrate(self, data: Data, rows: np.ndarray, posteriors: np.ndarray) -> None:
        """Calibrate the scores of these rows, by trees that have not grown on them."""
        weights = data.weights[rows] if len(data.weights) else None
        scores = _scores_of(posteriors / self.class_prior_)
        self.calibration_ = Calibration.of(scores, data.labels[rows], weights)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, as named arrays."""
        return {
            **super().to_arrays(),
            "importances": self.feature_importances_,
            "class_prior": self.class_prior_,
            **prefixed("nodes", self.nodes_.to_arrays()),
            **prefixed("calibration", self.calibration_.to_arrays()),
        }

    def from_arrays(self, arrays: Arrays) -> None:
        """Inverse of `to_arrays`; arrays of the wrong type or shape raise a ValueError."""
        super().from_arrays(arrays)
        self.growth(arrays.width)  # refuses parameters of the wrong type
        self.feature_importances_ = arrays.take("importances", arrays.width)
        self.class_prior_ = arrays.take("class_prior", arrays.n_classes)
        if not np.isfinite(self.feature_importances_).all():
            raise ValueError("its importances are not finite")
        if not ((self.class_prior_ > 0.0).all() and abs(self.class_prior_.sum() - 1.0) < 1e-6):
            raise ValueError("its shares of the classes are not positive, or do not add up to 1")
        part = arrays.part("nodes")
        self.nodes_ = Nodes.from_arrays(part)
        part.finish()
        part = arrays.part("calibration")
        self.calibration_ = Calibration.from_arrays(part)
        part.finish()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _scores_of(posteriors: np.ndarray) -> np.ndarray:
    """Log-odds of the second of two classes, or the logarithms for more."""
    logs = np.log(posteriors)
    return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs


def _normalised(importances: np.ndarray) -> np.ndarray:
    """Importances of the features of a tree, which add up to 1 if it has a split."""
    total = importances.sum()
    return importances / total if total > 0.0 else importances


def _in_parallel(work: Callable[[int], T], n_tasks: int, n_jobs: int) -> Iterator[T]:
    """The results of tasks, in order, by threads of which few are ahead of what is read."""
    n_jobs = min(n_jobs, n_tasks)
    if n_jobs == 1:
        yield from map(work, range(n_tasks))
        return
    with ThreadPoolExecutor(n_jobs) as pool:
        for part in gen_batches(n_tasks, _WAITING * n_jobs):
            yield from pool.map(work, range(n_tasks)[part])


class QuantificationTreeClassifier(TreeClassifier):
    """Decision tree whose splits balance false positives and false negatives (Milli et al., ICDM 2013).

    Counting predictions is exact if each class j has as many false positives as false negatives. A split of a node is
    chosen so that its two children, each labelled with its most frequent class, minimise ‖E‖₂, where

        E_j = |FP_j² − FN_j²| = |FN_j − FP_j|·(FN_j + FP_j)    (classification-quantification balance, "cqb"), or
        E_j = |FP_j − FN_j|                                    (classification error balance, "eb").

    The first also takes the number of errors into account. Any measure of recalls and counted prevalences can take the
    place of E. If no split changes E, for example because the children all have the same label, the purest split is
    taken (`ties`). Features are divided into at most 255 bins, and splits lie between bins. Each split learns to which
    side missing values go. If it has seen none in training, they go to the larger side.

    Parameters
    ----------
    measure : str or Measure, default="cqb"
        The measure that splits improve: "cqb", "eb", "gini" (the Gini impurity, as in ordinary trees), or a measure of
        this package, such as "q" or "bakld" (see `quapy_nemsis.get_measure`).
    scope : {"node", "tree"}, default="node"
        The rows whose errors a split balances: those of the node, or all rows in the tree that has grown so far. With
        "tree", errors of one node can make up for errors of another. The count of the training rows is then nearly
        right, but trees stay small and classify less well. With "node", nothing makes up for the errors of nodes that
        cannot be split.
    ties : {"gini", "stop"}, default="gini"
        What to do if no split of a node improves the measure: take the purest split that does not worsen it ("gini"),
        or make the node a leaf ("stop"). With "stop", a node whose children would all have one label is never split. If
        a class is rare, this may be the root.
    max_depth : int or None, default=None
        Maximum number of splits on the way to a leaf; None means no limit.
    min_samples_leaf : float, default=1
        Minimum total weight of the rows in a leaf. A row has weight 1 unless `sample_weight` or `class_weight` says
        otherwise. With 1, a leaf may hold a single row of any weight.
    max_features : int, float, "sqrt", "log2" or None, default=None
        Number of features that are drawn for each split, which is then chosen among them: a number, a share, √d, ⌊log₂
        d⌋ + 1 (as in the paper's forests), or all d. Features with one value in a node do not count.
    max_bins : int, default=255
        Maximum number of bins of a feature, at most 255. A feature with no more values than that has a bin for each
        value.
    class_weight : "balanced", dict or None, default=None
        Weights of the classes, which multiply the weights of the rows.
    random_state : int, RandomState or None, default=None
        Seed for drawing the features, and for the folds that the posteriors need.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    n_features_in_ : int
        Number of features.
    feature_importances_ : ndarray of shape (n_features,)
        By how much the splits of each feature lower the Gini impurity, as shares of the sum.
    class_prior_ : ndarray of shape (n_classes,)
        Shares of the classes among the training rows.
    nodes_ : Nodes
        The nodes of the tree.
    calibration_ : Calibration
        The calibration, which turns scores into posteriors. It is fitted to scores by up to five other trees, each of
        which is grown on four fifths of the rows and scores the other fifth.

    References
    ----------
    L. Milli, A. Monreale, G. Rossetti, F. Giannotti, D. Pedreschi, F. Sebastiani. Quantification trees. ICDM 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> tree = QuantificationTreeClassifier(min_samples_leaf=5, random_state=0).fit(X[:300], y[:300])
    >>> bool((tree.predict(X[300:]) == y[300:]).mean() > 0.9)
    True
    >>> tree.predict_proba(X[300:]).shape
    (269, 2)
    """

    def _grow(self, data: Data, bins: Bins, growth: Growth, rng: np.random.Generator) -> None:
        labels = data.labels.astype(np.int32)
        weights = data.weights if len(data.weights) else np.ones(len(labels))
        used, fifth = in_fifths(data.labels, len(labels), rng)
        n_folds = n_held_out_folds(data)
        seeds = rng.integers(2**63, size=1 + n_folds)
        self.nodes_, importances, _ = growth.tree(bins, labels, weights, data.n_classes, seeds[0])
        self.feature_importances_ = _normalised(importances)
        rows, posteriors = [], []
        for k in range(n_folds):
            kept = weights.copy()
            kept[used[fifth == k]] = 0.0
            if kept.any() and not kept.all():
                tree, _, leaves = growth.tree(bins, labels, kept, data.n_classes, seeds[1 + k])
                rows.append(np.flatnonzero(kept == 0.0))
                posteriors.append(tree.posteriors(1)[leaves])
        self._calibrate(data, np.concatenate(rows), np.concatenate(posteriors))


@dataclass(eq=False, repr=False)
class ForestParameters(TreeParameters):
    """Parameters of quantification forests, shared with the quantifier (see `QuantificationForestClassifier`)."""

    _: KW_ONLY
    n_estimators: int = 100
    max_features: float | str | None = "sqrt"
    n_jobs: int | None = None

    def growth(self, n_features: int = 1) -> Growth:
        """Check the parameters, and return them as a tree of so many features takes them."""
        check_integer("n_estimators", self.n_estimators)
        if self.n_estimators > _MOST_TREES:
            raise ValueError(
                f"n_estimators must be at most {_MOST_TREES:,}; got {reprlib.repr(self.n_estimators)}"
            )
        if self.n_jobs is not None:
            check_integer("n_jobs", self.n_jobs, least=-(2**31))
            if self.n_jobs == 0:
                raise ValueError("n_jobs must not be 0: give a number of threads, or -1 for all")
        return super().growth(n_features)


class QuantificationForestClassifier(ForestParameters, TreeClassifier):
    """Random forest of quantification trees (Milli et al., ICDM 2013).

    Each tree grows on a bootstrap sample of the rows, and chooses each split from some features (see
    `QuantificationTreeClassifier`). The rows that a tree has not seen are out of its bag. Its posteriors for these rows
    calibrate the posteriors of the forest, and its errors on these rows adjust its counts in `quapy_nemsis.QForest`.
    Each row is out of the bag of only about a third of the trees, so forests of a few dozen trees have posteriors that
    are too cautious. The result does not depend on `n_jobs`.

    Parameters
    ----------
    measure : str or Measure, default="cqb"
        The measure that splits improve: "cqb", "eb", "gini" (the Gini impurity, as in ordinary forests), or a measure
        of this package.
    scope : {"node", "tree"}, default="node"
        The rows whose errors a split balances: those of the node, or all rows in the tree that has grown so far.
    ties : {"gini", "stop"}, default="gini"
        What to do if no split of a node improves the measure: take the purest split that does not worsen it ("gini"),
        or make the node a leaf ("stop").
    max_depth : int or None, default=None
        Maximum number of splits on the way to a leaf; None means no limit.
    min_samples_leaf : float, default=1
        Minimum total weight of the rows in a leaf. The weight of a row is how often it was drawn.
    max_features : int, float, "sqrt", "log2" or None, default="sqrt"
        Number of features that are drawn for each split, which is then chosen among them. The paper's forests use
        "log2".
    max_bins : int, default=255
        Maximum number of bins of a feature, at most 255.
    class_weight : "balanced", dict or None, default=None
        Weights of the classes, which multiply the weights of the rows.
    random_state : int, RandomState or None, default=None
        Seed for drawing the bootstrap samples and the features.
    n_estimators : int, default=100
        Number of trees.
    n_jobs : int or None, default=None
        Number of trees that grow at the same time, in threads. None means 1, and −1 means all processors.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    n_features_in_ : int
        Number of features.
    feature_importances_ : ndarray of shape (n_features,)
        Mean over the trees of the importances of `QuantificationTreeClassifier`.
    class_prior_ : ndarray of shape (n_classes,)
        Shares of the classes among the training rows.
    confusions_ : ndarray of shape (n_estimators, n_classes, n_classes)
        For each tree, the weight of the rows out of its bag by predicted (first) and true class.
    nodes_ : Nodes
        The nodes of all trees.
    calibration_ : Calibration
        From scores to posteriors, fitted to scores out of bag.

    References
    ----------
    L. Milli, A. Monreale, G. Rossetti, F. Giannotti, D. Pedreschi, F. Sebastiani. Quantification trees. ICDM 2013.

    Examples
    --------
    >>> from quapy.method.aggregative import EMQ
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> forest = QuantificationForestClassifier(random_state=0)
    >>> estimate = EMQ(forest).fit(X[:300], y[:300]).predict(X[300:])
    >>> bool(abs(estimate[1] - y[300:].mean()) < 0.03)
    True
    """

    confusions_: np.ndarray

    def _grow(self, data: Data, bins: Bins, growth: Growth, rng: np.random.Generator) -> None:
        labels = data.labels.astype(np.int32)
        n_rows, n_classes = len(labels), data.n_classes
        weights = data.weights if len(data.weights) else np.ones(n_rows)
        seeds = rng.integers(2**63, size=int(self.n_estimators))

        def grown(t: int) -> tuple[Nodes, np.ndarray, np.ndarray, np.ndarray]:
            own = np.random.default_rng(seeds[t])
            drawn = np.bincount(own.integers(n_rows, size=n_rows), minlength=n_rows)
            seed = int(own.integers(2**63))
            tree, importances, leaves = growth.tree(bins, labels, drawn * weights, n_classes, seed)
            return tree, importances, np.flatnonzero(drawn == 0), leaves

        trees, importances = [], np.zeros(len(bins.codes))
        sums, times = np.zeros((n_rows, n_classes)), np.zeros(n_rows, dtype=np.int64)
        self.confusions_ = np.zeros((len(seeds), n_classes, n_classes))
        n_jobs = effective_n_jobs(self.n_jobs)
        for t, (tree, gains, outside, leaves) in enumerate(_in_parallel(grown, len(seeds), n_jobs)):
            trees.append(tree)
            importances += _normalised(gains)
            sums[outside] += tree.posteriors(len(seeds))[leaves]
            times[outside] += 1
            cells = tree.labels[leaves] * n_classes + labels[outside]
            found = np.bincount(cells, weights[outside], n_classes**2)
            self.confusions_[t] = found.reshape(n_classes, n_classes)
        self.nodes_ = Nodes.joined(trees)
        self.feature_importances_ = _normalised(importances)
        rows = np.flatnonzero(times)
        if len(rows):
            self._calibrate(data, rows, sums[rows] / times[rows, np.newaxis])
        else:  # a few rows that one tree has seen all of
            self._calibrate(data, np.arange(n_rows), self.nodes_.mean_posteriors(data.X))

    def votes(self, X: MatrixLike) -> np.ndarray:
        """The class that each tree predicts for each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_estimators)
            Positions in `classes_`.
        """
        check_is_fitted(self)
        return self.nodes_.votes(self._rows(X))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, as named arrays."""
        return {**super().to_arrays(), "confusions": self.confusions_}

    def from_arrays(self, arrays: Arrays) -> None:
        """Inverse of `to_arrays`; arrays of the wrong type or shape raise a ValueError."""
        super().from_arrays(arrays)
        n_classes = arrays.n_classes
        self.confusions_ = arrays.take("confusions", len(self.nodes_.roots), n_classes, n_classes)
        if not ((self.confusions_ >= 0.0).all() and np.isfinite(self.confusions_).all()):
            raise ValueError("its errors out of bag are negative or not finite")
