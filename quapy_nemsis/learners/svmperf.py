"""Structural SVMs for quantification losses, such as SVM(KLD): the classifier and its cutting planes."""

from __future__ import annotations

import time
import warnings
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from quapy_nemsis._kernels.simplex import minimise
from quapy_nemsis._validation import (
    MatrixLike,
    check_bool,
    check_integer,
    check_positive,
    check_verbose,
    checked_data,
    distinct,
    two_classes,
    unchanged_on_error,
    warn_of_scale,
)
from quapy_nemsis.learners.base import PosteriorClassifier
from quapy_nemsis.learners.calibration import check_posteriors
from quapy_nemsis.learners.scores import linear_scores
from quapy_nemsis.learners.separation import SeparationOracle
from quapy_nemsis.learners.state import Arrays, Data, columns_to_arrays, prefixed
from quapy_nemsis.measures import Loss, Measure, get_loss

if TYPE_CHECKING:
    from typing_extensions import Self

HISTORY = ("seconds", "gap", "primal", "dual", "loss")
# A cutting plane is dropped when it has been slack for this many iterations.
_IDLE = 50
# The next plane is sought on the way from the best weights so far to the lowest point of the planes, at this fraction
# of the distance (as in OCAS, Franc and Sonnenburg 2009: with a large C the lowest point jumps about, and planes there
# tell little about the minimum). If that plane does not cut off the second fraction of the gap at the lowest point, the
# next one is sought at the lowest point itself.
_TOWARDS, _LEAST_RISE = 0.3, 0.1
# The dual problem is solved to this fraction of the tolerance, in at most this many steps.
_INNER_SHARE, _INNER_STEPS = 0.01, 100_000
# Work is steps times planes. For each plane, a fixed amount per entry of the data is free, as finding the plane takes
# as long. From _WORK on, which scaled features do not come near, the gap must shrink to the fraction _CLOSING each time
# the work doubles, or the iteration stops. It also stops at _MOST_WORK, which takes some seconds.
_WORK_PER_ENTRY, _WORK, _MOST_WORK, _CLOSING = 10.0, 1e8, 1.5e9, 0.9
# After this many planes in a row without any change, stop: the rest of the gap is lost in rounding.
_NO_CHANGE = 10
# If (Σ α_j·‖g_j‖)² exceeds C times this, the dual's value computed from products is wrong by more than 1e-8.
_EXACT = 1e8


@dataclass(eq=False, repr=False)
class CuttingPlaneParameters:
    """Parameters that structural SVMs of all losses share (see `SVMPerfClassifier`)."""

    _: KW_ONLY
    C: float = 100.0
    tol: float = 1e-3
    max_iter: int = 1000
    fit_intercept: bool = True
    warm_start: bool = False
    verbose: int = 0


@dataclass(eq=False, repr=False)
class SVMPerfParameters(CuttingPlaneParameters):
    """Parameters of the structural SVM, shared by the classifier and the quantifier (see `SVMPerfClassifier`)."""

    loss: str | Measure = "kld"
    _: KW_ONLY
    posteriors: str | None = None


class SVMPerfClassifier(SVMPerfParameters, PosteriorClassifier):
    """Linear structural SVM for losses on the whole set of predictions (Joachims 2005), by 1-slack cutting planes.

    It minimises the convex bound of a loss Δ, where ȳ ranges over the labellings of all training rows:

        J(w) = ‖w‖²/(2C) + max_ȳ [ Δ(ȳ) − (1/|S|) Σ (y_i − ȳ_i) f(x_i) ],    y_i = ±1,  f(x) = w·x + b,

    This is the paper's ½‖w‖² + C·ξ divided by C, so that values and tolerances are in units of the loss for every C.
    Each iteration finds the most violated constraint exactly (see `quapy_nemsis.learners.separation`), at weights
    between the best so far and those of the dual. It adds this constraint and solves a small dual problem (Joachims,
    Finley, Yu 2009). The value of the dual is a lower bound, and J of the best weights so far is an upper bound. The
    iteration stops when the *duality gap* between them is at most `tol`. If positives are rare, the minimum of J can be
    at w = 0, which gives every row the same label; other weights that are as good within `tol` are then preferred.

    This classifier provides QuaPy's SVM(KLD), SVM(NKLD), SVM(AE), SVM(RAE) and SVM(Q) without the external program that
    QuaPy calls. That program measures rows in percent, so its C has another scale: C = 2500·C_perf for KLD (whose loss
    it does not rescale) and C = 25·C_perf for the losses that it also measures in percent. With loss "01" the result is
    the linear SVM: ``LinearSVC(loss="hinge", C=4 * C / n_samples)`` has twice the weights found here.

    Parameters
    ----------
    loss : str or Measure, default="kld"
        "kld", "nkld", "ae", "rae", "qrecall", "qacc", "qf1", "qgm", "01", "f1", "ba", or a measure of this package
        (see `quapy_nemsis.get_loss`).
    C : float, default=100
        Weight of the loss relative to ‖w‖².
    tol : float, default=1e-3
        Duality gap at which to stop, in units of the loss.
    max_iter : int, default=1000
        Maximum number of cutting planes.
    fit_intercept : bool, default=True
        Whether to learn an intercept, as the weight of a constant feature 1 (and so part of ‖w‖²).
    warm_start : bool, default=False
        Whether another `fit` on the same data starts from the cutting planes of the last one, which are valid for every
        C. On other data, `fit` starts from scratch.
    verbose : int, default=0
        If not 0, print a line every `verbose` cutting planes.
    posteriors : {"training", "balanced"} or None, default=None
        If given, `fit` trains up to five more learners, each on four fifths of the rows, and calibrates posteriors on
        their scores for the other rows, as in `NEMSISClassifier`. `predict_proba` then returns posteriors at the
        training prevalences or at equal prevalences. With None, there is no `predict_proba`, and `fit` needs no extra
        time.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels; the second one is the positive class.
    coef_ : ndarray of shape (1, n_features)
        Weights.
    intercept_ : ndarray of shape (1,)
        Intercept.
    n_features_in_ : int
        Number of features.
    n_iter_ : int
        Number of searches for the most violated constraint.
    gap_ : float
        Duality gap at the end.
    history_ : dict of lists
        One entry per iteration: ``seconds`` since the beginning, the duality ``gap``, ``primal`` (J of the best weights
        so far), ``dual``, and ``loss``, which is Δ on the training rows for the weights of this iteration.

    References
    ----------
    T. Joachims. A support vector method for multivariate performance measures. ICML 2005.

    T. Joachims, T. Finley, C.-N. Yu. Cutting-plane training of structural SVMs. Machine Learning 77, 2009.

    V. Franc, S. Sonnenburg. Optimized cutting plane algorithm for large-scale risk minimization. JMLR 10, 2009.

    A. Esuli, F. Sebastiani. Optimizing text quantifiers for multivariate loss functions. ACM TKDD 9, 2015.

    J. Barranquero, J. Díez, J. J. del Coz. Quantification-oriented learning based on reliable classifiers. Pattern
    Recognition 48, 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> learner = SVMPerfClassifier("kld", C=1000.0).fit(scale(X), y)
    >>> learner.gap_ <= 1e-3
    True
    >>> bool(abs(learner.predict(scale(X)).mean() - y.mean()) < 0.02)
    True
    """

    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Minimise the loss over all rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; other types than float64 are converted to it.
        y : array-like of shape (n_samples,)
            Labels of any type, with two classes.

        Returns
        -------
        self
            The fitted learner.
        """
        with unchanged_on_error(self):
            return self._fit(self._checked_loss(), X, y)

    def _checked_loss(self) -> Loss:
        """Check the parameters and return the loss."""
        check_positive("C", self.C, finite=True)
        check_positive("tol", self.tol, finite=True)
        check_integer("max_iter", self.max_iter)
        check_bool("fit_intercept", self.fit_intercept)
        check_bool("warm_start", self.warm_start)
        check_verbose(self.verbose)
        check_posteriors(self.posteriors)
        return get_loss(self.loss)

    def _fit(self, loss: Loss, X: Any, y: Any) -> Self:
        X, y = checked_data(self, X, y, reset=True, dtype=np.float64)
        classes = two_classes(distinct(y), self)
        positive = y == classes[1]
        warn_of_scale(X, stacklevel=4)

        planes = self._planes(X, positive, loss)
        planes.rescale(float(self.C))
        oracle = SeparationOracle(loss, positive)
        history: dict[str, list[float]] = {column: [] for column in HISTORY}
        centre = best = planes.weights()
        centre_value = best_value = gap = np.inf
        direct, unchanged = True, 0
        work, mark, gap_at_mark = 0.0, _WORK, np.inf
        begin = time.perf_counter()
        for iteration in range(1, int(self.max_iter) + 1):
            lowest, bound = planes.weights(), planes.value()
            weights = lowest if direct else centre + _TOWARDS * (lowest - centre)
            scores = linear_scores(X, weights[:-1], weights[-1])
            constraint = oracle(scores)
            value = weights @ weights / (2.0 * self.C) + max(constraint.value, 0.0)
            if value < centre_value:
                centre, centre_value = weights, value
            # If positives are rare, zero weights may be the optimum. They cannot classify, so prefer any other weights.
            if (not weights.any(), value) < (not best.any(), best_value):
                best, best_value = weights, value
            gap = best_value - bound
            row = time.perf_counter() - begin, gap, best_value, bound
            for column, entry in zip(HISTORY, (*row, oracle.prediction_loss(scores)), strict=True):
                history[column].append(float(entry))
            if self.verbose and iteration % int(self.verbose) == 0:
                print(
                    f"{type(self).__name__}: {iteration} cutting planes, {len(planes)} kept, primal "
                    f"{best_value:.6f}, gap {gap:.2g}, {history['seconds'][-1]:.2f} s"
                )
            if gap <= self.tol:
                break
            constant = constraint.weights.sum() if self.fit_intercept else 0.0
            with np.errstate(over="ignore", invalid="ignore"):
                normal = np.append(X.T @ constraint.weights, constant)
                planes.add(normal, constraint.loss)
            # Height of the new plane above the old ones at their lowest point.
            rise = constraint.loss - normal @ lowest + lowest @ lowest / (2.0 * self.C) - bound
            direct = not direct and rise < _LEAST_RISE * gap
            size = len(planes)
            steps = planes.solve(_INNER_SHARE * self.tol)
            work += steps * size - _WORK_PER_ENTRY * X.size
            unchanged = 0 if steps else unchanged + 1
            if unchanged == _NO_CHANGE or work > _MOST_WORK:
                break
            if work > mark:
                if gap > _CLOSING * gap_at_mark:
                    break
                mark, gap_at_mark = 2.0 * work, gap
        if gap > self.tol:
            slow = iteration < self.max_iter
            after = f"{iteration}" if slow else f"max_iter={iteration}"
            warnings.warn(
                f"the duality gap is {gap:.2g} after {after} cutting planes"
                f"{', and shrinks too slowly to continue' if slow else ''}; the features are up to "
                f"{abs(X).max():.3g} in size: scale them (sklearn.preprocessing.StandardScaler or, if sparse, "
                "MaxAbsScaler), lower C, or raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.classes_ = classes
        self.coef_, self.intercept_ = best[np.newaxis, :-1].copy(), best[-1:].copy()
        self.n_iter_, self.gap_, self.history_ = iteration, float(gap), history
        self.planes_ = planes if self.warm_start else None
        self._calibrate_batch(Data(X, positive, 2), warm_start=False)
        return self

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, as named arrays."""
        arrays = {
            **super().to_arrays(),
            "n_iter": np.array(self.n_iter_, dtype=np.int64),
            "gap": np.array(self.gap_),
            **prefixed("history", columns_to_arrays(self.history_)),
        }
        if self.planes_ is not None:
            arrays |= prefixed("planes", self.planes_.to_arrays())
        return arrays

    def from_arrays(self, arrays: Arrays) -> None:
        """Inverse of `to_arrays`; arrays of the wrong type or shape raise a ValueError."""
        super().from_arrays(arrays)
        self.n_iter_, self.gap_ = arrays.count("n_iter"), arrays.real("gap")
        self.history_ = arrays.part("history").columns(HISTORY)
        part = arrays.part("planes")
        self.planes_ = Planes.from_arrays(part) if part.arrays else None
        part.finish()
        self._checked_loss()

    def _planes(self, X: Any, positive: np.ndarray, loss: Any) -> Planes:
        if not self.warm_start:
            return Planes.start(X.shape[1] + 1)
        problem = joblib.hash((X, positive, loss, self.fit_intercept))
        kept = getattr(self, "planes_", None)
        if kept is not None and kept.problem == problem:
            return kept.copy()
        return Planes.start(X.shape[1] + 1, problem)


@dataclass
class Planes:
    """Cutting planes ξ ≥ Δ_j − w·g_j and their dual variables α_j ≥ 0, with Σ α_j = C; the first plane is ξ ≥ 0.

    The weights are w = Σ α_j·g_j, and the dual's value is (Σ α_j·Δ_j − ½‖w‖²)/C.
    """

    normals: np.ndarray
    losses: np.ndarray
    gram: np.ndarray
    alpha: np.ndarray
    #: For how many iterations each plane has been slack.
    idle: np.ndarray
    #: Hash of the data and loss that the planes belong to.
    problem: str | None = None

    @classmethod
    def start(cls, width: int, problem: str | None = None) -> Planes:
        """Start with the plane ξ ≥ 0 only."""
        one = np.zeros(1)
        return cls(np.zeros((1, width)), one, np.zeros((1, 1)), np.ones(1), one.copy(), problem)

    def copy(self) -> Planes:
        """Independent copy."""
        return Planes(
            self.normals.copy(),
            self.losses.copy(),
            self.gram.copy(),
            self.alpha.copy(),
            self.idle.copy(),
            self.problem,
        )

    def __len__(self) -> int:
        return len(self.losses)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name, and the hash of the problem."""
        names = ("normals", "losses", "gram", "alpha", "idle")
        arrays = {name: getattr(self, name) for name in names}
        return {**arrays, "problem": np.array(self.problem or "")}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Planes:
        """Inverse of `to_arrays`; arrays of the wrong name, type or shape raise a ValueError."""
        losses = arrays.take("losses", None)
        n = len(losses)
        normals, gram = arrays.take("normals", n, arrays.width + 1), arrays.take("gram", n, n)
        alpha, idle = arrays.take("alpha", n), arrays.take("idle", n)
        planes = cls(normals, losses, gram, alpha, idle, str(arrays.any("problem")))
        parts = (normals, losses, gram, alpha, idle)
        if not n or not all(np.isfinite(part).all() for part in parts):
            raise ValueError("its cutting planes are missing or not finite")
        if not (alpha.min() >= 0 < alpha.sum() < np.inf and idle.min() >= 0):
            raise ValueError("the dual variables of its cutting planes are negative or all 0")
        if not np.allclose(gram, normals @ normals.T):
            raise ValueError("the products of its cutting planes do not match the planes")
        return planes

    def rescale(self, C: float) -> None:
        """Rescale the dual variables so that they sum to C."""
        self.alpha *= C / self.alpha.sum()

    def weights(self) -> np.ndarray:
        """The weights w = Σ α_j·g_j, the intercept last."""
        return self.alpha @ self.normals

    def value(self) -> float:
        """Value of the dual, a lower bound of J."""
        curved = 0.5 * self.alpha @ self.gram @ self.alpha
        # If long normals cancel out, the products may be nothing but rounding error; use the weights instead.
        total = self.alpha @ np.sqrt(np.diag(self.gram))
        if total * total > _EXACT * self.alpha.sum():
            curved = 0.5 * self.weights() @ self.weights()
        return float((self.alpha @ self.losses - curved) / self.alpha.sum())

    def add(self, normal: np.ndarray, loss: float) -> None:
        """Add a constraint, with a dual variable of 0."""
        products = np.append(self.normals @ normal, normal @ normal)
        if not np.isfinite(products * self.alpha.sum() ** 2).all():
            raise ValueError(
                "the weights became infinite or NaN: scale the features (sklearn.preprocessing.StandardScaler or, if "
                "sparse, MaxAbsScaler)"
            )
        self.normals = np.vstack([self.normals, normal])
        self.losses = np.append(self.losses, loss)
        self.gram = np.pad(self.gram, (0, 1))
        self.gram[-1] = self.gram[:, -1] = products
        self.alpha, self.idle = np.append(self.alpha, 0.0), np.append(self.idle, 0.0)

    def solve(self, tolerance: float) -> int:
        """Find the best dual variables, drop planes that have long been slack, and return the number of steps."""
        steps = minimise(self.gram, self.losses, self.alpha, tolerance, _INNER_STEPS)
        self.idle = np.where(self.alpha > 0.0, 0.0, self.idle + 1.0)
        kept = np.flatnonzero(self.idle <= _IDLE)
        kept = np.union1d([0], kept)
        if len(kept) < len(self):
            self.normals, self.losses = self.normals[kept], self.losses[kept]
            self.gram = np.ascontiguousarray(self.gram[np.ix_(kept, kept)])
            self.alpha, self.idle = self.alpha[kept], self.idle[kept]
        return steps
