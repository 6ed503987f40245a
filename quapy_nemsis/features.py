"""Random features, with which linear learners learn functions that are not linear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._validation import (
    AUTO,
    FLOATS,
    MatrixLike,
    check_integer,
    check_positive,
    check_seed,
    checked_rows,
)
from quapy_nemsis.learners.state import Arrays, Saved, check_parameters

if TYPE_CHECKING:
    from typing_extensions import Self

# Pairs of rows whose distances are looked at, and rows that are transformed together.
_PAIRS, _BLOCK = 1_000, 4_096


class FourierFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Rows with random Fourier features of a Gaussian kernel appended.

    The features of a row x are √(2/D)·cos(ωₖ·x) and √(2/D)·sin(ωₖ·x) for D/2 random directions ωₖ. The inner product
    of the features of x and z approximates exp(−‖x − z‖²/(2h²)) (Rahimi and Recht 2007). Directions are orthogonal in
    groups of as many as x has entries, which approximates better (Yu et al. 2016). The bandwidth h says at which
    distance rows stop being alike. All random features are multiplied by the root mean square length of the training
    rows, so that they weigh as much as the row itself.

    Features should be on similar scales (see scikit-learn's `StandardScaler`).

    Parameters
    ----------
    n_components : int, default=200
        Number D of random features. An odd number is rounded up.
    bandwidth : float or "auto", default="auto"
        Bandwidth h. "auto" is half the median distance between two training rows.
    random_state : int, RandomState or None, default=None
        Seed of the directions and of the rows whose distances are looked at.

    Attributes
    ----------
    bandwidth_ : float
        The bandwidth.
    directions_ : ndarray of shape (n_features_in_, D/2)
        Directions, divided by the bandwidth.
    scale_ : float
        Length of the random features of each row.

    Examples
    --------
    A circle within a ring is not linearly separable.

    >>> from sklearn.datasets import make_circles
    >>> from sklearn.pipeline import make_pipeline
    >>> from quapy_nemsis import NEMSISClassifier
    >>> X, y = make_circles(1000, noise=0.1, factor=0.5, random_state=0)
    >>> learner = NEMSISClassifier("ba", random_state=0)
    >>> bool(learner.fit(X, y).score(X, y) < 0.6)
    True
    >>> features = FourierFeatures(random_state=0)
    >>> bool(make_pipeline(features, learner).fit(X, y).score(X, y) > 0.95)
    True
    """

    bandwidth_: float
    directions_: np.ndarray
    scale_: float
    n_features_in_: int
    feature_names_in_: np.ndarray

    def __init__(
        self, n_components: int = 200, bandwidth: float | str = AUTO, random_state: Any = None
    ):
        self.n_components = n_components
        self.bandwidth = bandwidth
        self.random_state = random_state

    def fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Draw the directions, and find bandwidth and scale.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.

        Returns
        -------
        self
            The transformer.
        """
        check_integer("n_components", self.n_components, least=1)
        if self.bandwidth != AUTO:
            check_positive("bandwidth", self.bandwidth, finite=True)
        check_seed(self.random_state)
        X = checked_rows(self, X, reset=True, dtype=FLOATS)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        size = X.shape[1]
        pairs = rng.integers(X.shape[0], size=(2, _PAIRS))
        squares = _squares(X[pairs[0]] - X[pairs[1]])
        lengths = _squares(X[pairs[0]])
        distance = float(np.sqrt(np.median(squares[squares > 0.0]))) if squares.any() else 2.0
        self.bandwidth_ = 0.5 * distance if self.bandwidth == AUTO else float(self.bandwidth)
        self.scale_ = float(np.sqrt(lengths.mean())) or 1.0
        half = (int(self.n_components) + 1) // 2
        groups = [_orthogonal(size, min(size, half), rng) for _ in range(-(-half // size))]
        self.directions_ = np.ascontiguousarray(np.hstack(groups)[:, :half] / self.bandwidth_)
        return self

    def partial_fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Draw the directions in the first call; later calls check the rows and change nothing.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.

        Returns
        -------
        self
            The transformer.
        """
        if not hasattr(self, "directions_"):
            return self.fit(X)
        checked_rows(self, X, dtype=FLOATS)
        return self

    def transform(self, X: MatrixLike) -> np.ndarray:
        """Append the random features to rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_features + D)
            The rows, and then the cosines and the sines.
        """
        check_is_fitted(self)
        X = checked_rows(self, X, dtype=FLOATS)
        size, half = self.directions_.shape
        factor = self.scale_ / np.sqrt(half)
        found = np.empty((X.shape[0], size + 2 * half), dtype=X.dtype)
        for begin in range(0, len(found), _BLOCK):
            part, into = X[begin : begin + _BLOCK], found[begin : begin + _BLOCK]
            angles = part @ self.directions_
            into[:, :size] = part.toarray() if scipy.sparse.issparse(part) else part
            into[:, size : size + half] = factor * np.cos(angles)
            into[:, size + half :] = factor * np.sin(angles)
        return found

    def to_saved(self) -> Saved:
        """What a file holds of the transformer."""
        arrays: dict[str, np.ndarray] = {}
        if hasattr(self, "directions_"):
            numbers = {"bandwidth": np.array(self.bandwidth_), "scale": np.array(self.scale_)}
            arrays = {"directions": self.directions_, **numbers}
        if hasattr(self, "feature_names_in_"):
            arrays["feature_names"] = self.feature_names_in_
        return Saved(self.get_params(deep=False), {}, arrays)

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], parts: dict[str, Any], arrays: Arrays) -> Self:
        """Inverse of `to_saved`; what does not fit together raises a ValueError."""
        check_parameters(parameters, cls().get_params(), cls.__name__)
        found = cls(**parameters)
        if not arrays.arrays:
            return found
        found.directions_ = arrays.take("directions", None, None)
        found.bandwidth_, found.scale_ = arrays.real("bandwidth"), arrays.real("scale")
        found.n_features_in_ = len(found.directions_)
        finite = np.isfinite(found.directions_).all() and found.directions_.size
        if not finite or not found.bandwidth_ > 0.0 < found.scale_:
            raise ValueError("its directions, bandwidth or scale are not valid")
        if "feature_names" in arrays.arrays:
            names = arrays.take("feature_names", found.n_features_in_, types=(np.str_,))
            found.feature_names_in_ = names.astype(object)
        return found

    @property
    def _n_features_out(self) -> int:
        size, half = self.directions_.shape
        return int(size + 2 * half)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _squares(X: MatrixLike) -> np.ndarray:
    """Squared lengths of rows."""
    if scipy.sparse.issparse(X):
        return np.asarray(X.multiply(X).sum(axis=1), dtype=float).ravel()
    return np.einsum("ij,ij->i", X, X, dtype=float)


def _orthogonal(size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Orthogonal columns, each as long as a vector of independent standard normal numbers."""
    directions = np.linalg.qr(rng.normal(size=(size, count)))[0]
    return directions * np.sqrt(rng.chisquare(size, size=count))
