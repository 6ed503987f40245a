"""Random features, with which linear learners can learn non-linear functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

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
from quapy_nemsis.learners.state import Arrays, Saved, check_parameters, prefixed

if TYPE_CHECKING:
    from typing_extensions import Self

# Pairs of rows whose distances are looked at, rows of a stream that are kept, and rows that are transformed together.
_PAIRS, _KEPT, _BLOCK = 1_000, 1_000, 4_096
# Eigenvalues of a kernel matrix below this share of the largest are taken for rounding errors.
_SMALLEST = 1e-10


@dataclass(frozen=True)
class Reservoir:
    """A uniform sample of the rows of a stream, which does not depend on how the stream is divided into parts.

    Row number t of the stream has a random key, which is number t of a sequence. The rows with the smallest keys are
    kept.
    """

    #: Seed of the sequence.
    seed: int
    #: Number of rows seen.
    seen: int
    #: Keys of the rows that are kept, in ascending order.
    keys: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, seed: int, n_features: int) -> Reservoir:
        """A reservoir without rows."""
        return cls(seed, 0, np.zeros(0), np.zeros((0, n_features)))

    def with_rows(self, X: MatrixLike, size: int) -> Reservoir:
        """The reservoir after more rows of the stream, with so many rows at most."""
        bits = np.random.PCG64([self.seed, 1])
        bits.advance(self.seen)
        keys = np.concatenate([self.keys, np.random.Generator(bits).random(X.shape[0])])
        kept = np.argsort(keys)[:size]
        n_old = len(self.keys)
        new = X[kept[kept >= n_old] - n_old]
        rows = np.empty((len(kept), X.shape[1]))
        rows[kept < n_old] = self.rows[kept[kept < n_old]]
        rows[kept >= n_old] = new.toarray() if scipy.sparse.issparse(new) else new
        return Reservoir(self.seed, self.seen + X.shape[0], keys[kept], rows)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything that a file holds of the reservoir."""
        numbers = {"seed": np.array(self.seed), "seen": np.array(self.seen)}
        return {**numbers, "keys": self.keys, "rows": self.rows}

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_features: int) -> Reservoir:
        """Inverse of `to_arrays`; arrays of the wrong type or shape raise a ValueError."""
        keys = arrays.take("keys", None)
        rows = arrays.take("rows", len(keys), n_features)
        found = cls(arrays.count("seed"), arrays.count("seen"), keys, rows)
        arrays.finish()
        sorted_keys = len(keys) and keys[0] >= 0.0 and keys[-1] < 1.0 and (np.diff(keys) > 0).all()
        if not sorted_keys or not np.isfinite(rows).all() or found.seen < len(keys):
            raise ValueError("its reservoir is not valid")
        return found


class RandomFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Rows with features of a Gaussian kernel appended; subclasses say which features."""

    #: Names of the attributes, without the underscore, that determine the features together with bandwidth and scale.
    _drawn: ClassVar[tuple[str, ...]]

    bandwidth_: float
    scale_: float
    reservoir_: Reservoir | None = None
    n_features_in_: int
    feature_names_in_: np.ndarray

    def __init__(
        self, n_components: int = 200, bandwidth: float | str = AUTO, random_state: Any = None
    ):
        self.n_components = n_components
        self.bandwidth = bandwidth
        self.random_state = random_state

    @abstractmethod
    def _draw(self, X: MatrixLike, rng: np.random.Generator) -> None:
        """Draw what is random, when the bandwidth is known."""

    @abstractmethod
    def _append(self, X: MatrixLike, into: np.ndarray) -> None:
        """Write the features of checked rows."""

    @abstractmethod
    def _take(self, arrays: Arrays) -> None:
        """Take what was drawn from a file."""

    @property
    @abstractmethod
    def _shape(self) -> tuple[int, int]:
        """Numbers of original and of new features, from what was drawn."""

    def fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Find the bandwidth and the scale, and draw the features.

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
        self._check_parameters()
        self._prepare(checked_rows(self, X, reset=True, dtype=FLOATS), self._seed())
        self.reservoir_ = None
        return self

    def partial_fit(self, X: MatrixLike, y: Any = None) -> Self:
        """Fit the transformer to the rows of a stream so far; it keeps a random sample of them, the reservoir.

        The first `transform` fixes the features, because the weights that a learner fits to them must keep their
        meaning. From then on, `partial_fit` checks the rows but changes nothing. If the first part of a stream is
        small, or unlike the others, give more parts before the first `transform`; with a pipeline,
        `quapy_nemsis.streaming.fit_stream` does this.

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
        first = not hasattr(self, "bandwidth_")
        self._check_parameters()
        X = checked_rows(self, X, reset=first, dtype=FLOATS)
        known = Reservoir.of(self._seed(), X.shape[1]) if first else self.reservoir_
        if known is not None:
            known = known.with_rows(X, max(_KEPT, int(self.n_components)))
            self._prepare(known.rows, known.seed)
            self.reservoir_ = known
        return self

    def _check_parameters(self) -> None:
        check_integer("n_components", self.n_components, least=1)
        if self.bandwidth != AUTO:
            check_positive("bandwidth", self.bandwidth, finite=True)
        check_seed(self.random_state)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _prepare(self, X: MatrixLike, seed: int) -> None:
        """Find bandwidth and scale, and draw what is random, with checked rows."""
        rng = np.random.default_rng(seed)
        pairs = rng.integers(X.shape[0], size=(2, _PAIRS))
        squares = _squares(X[pairs[0]] - X[pairs[1]])
        lengths = _squares(X[pairs[0]])
        distance = float(np.sqrt(np.median(squares[squares > 0.0]))) if squares.any() else 2.0
        self.bandwidth_ = 0.5 * distance if self.bandwidth == AUTO else float(self.bandwidth)
        self.scale_ = float(np.sqrt(lengths.mean())) or 1.0
        self._draw(X, rng)

    def transform(self, X: MatrixLike) -> np.ndarray:
        """Append the random features to rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_features + D)
            The rows, and then their features.
        """
        check_is_fitted(self)
        X = checked_rows(self, X, dtype=FLOATS)
        self.reservoir_ = None
        size = X.shape[1]
        found = np.empty((X.shape[0], self._n_features_out), dtype=X.dtype)
        for begin in range(0, len(found), _BLOCK):
            part, into = X[begin : begin + _BLOCK], found[begin : begin + _BLOCK]
            into[:, :size] = part.toarray() if scipy.sparse.issparse(part) else part
            self._append(part, into[:, size:])
        return found

    def to_saved(self) -> Saved:
        """What a file holds of the transformer."""
        arrays: dict[str, np.ndarray] = {}
        if hasattr(self, "bandwidth_"):
            numbers = {"bandwidth": np.array(self.bandwidth_), "scale": np.array(self.scale_)}
            arrays = {name: getattr(self, f"{name}_") for name in self._drawn} | numbers
        if self.reservoir_ is not None:
            arrays |= prefixed("reservoir", self.reservoir_.to_arrays())
        if hasattr(self, "feature_names_in_"):
            arrays["feature_names"] = self.feature_names_in_
        return Saved(self.get_params(deep=False), {}, arrays)

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], parts: dict[str, Any], arrays: Arrays) -> Self:
        """Inverse of `to_saved`; parts that do not fit together raise a ValueError."""
        check_parameters(parameters, cls().get_params(), cls.__name__)
        found = cls(**parameters)
        if parts:
            raise ValueError(f"a {cls.__name__} consists of no other objects")
        if not arrays.arrays:
            return found
        found._take(arrays)
        found.bandwidth_, found.scale_ = arrays.real("bandwidth"), arrays.real("scale")
        drawn = [getattr(found, f"{name}_") for name in cls._drawn]
        finite = all(array.size and np.isfinite(array).all() for array in drawn)
        if not finite or not found.bandwidth_ > 0.0 < found.scale_:
            raise ValueError(f"its {', '.join(cls._drawn)}, bandwidth or scale are not valid")
        found.n_features_in_ = found._shape[0]
        inner = arrays.part("reservoir")
        if inner.arrays:
            found.reservoir_ = Reservoir.from_arrays(inner, found.n_features_in_)
        if "feature_names" in arrays.arrays:
            names = arrays.take("feature_names", found.n_features_in_, types=(np.str_,))
            found.feature_names_in_ = names.astype(object)
        return found

    @property
    def _n_features_out(self) -> int:
        return sum(self._shape)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class FourierFeatures(RandomFeatures):
    """Rows with random Fourier features of a Gaussian kernel appended.

    The features of a row x are √(2/D)·cos(ωₖ·x) and √(2/D)·sin(ωₖ·x) for D/2 random directions ωₖ. The inner product of
    the features of x and z approximates exp(−‖x − z‖²/(2h²)) (Rahimi and Recht 2007). The directions are orthogonal in
    groups of as many as x has entries, which makes the approximation better (Yu et al. 2016). The bandwidth h is the
    distance at which rows stop being similar. All random features are multiplied by the root mean square length of the
    training rows, so that they weigh as much as the row itself.

    Features should be on similar scales (see scikit-learn's `StandardScaler`).

    Parameters
    ----------
    n_components : int, default=200
        Number D of random features. An odd number is rounded up.
    bandwidth : float or "auto", default="auto"
        Bandwidth h. "auto" is half the median distance between two training rows.
    random_state : int, RandomState or None, default=None
        Seed for drawing the directions, and the pairs of rows that the bandwidth is computed from.

    Attributes
    ----------
    bandwidth_ : float
        The bandwidth.
    directions_ : ndarray of shape (n_features_in_, D/2)
        Directions, divided by the bandwidth.
    scale_ : float
        Length of the random features of each row.
    reservoir_ : Reservoir or None
        The sample of a stream that `partial_fit` keeps until the first `transform`.

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

    _drawn = ("directions",)

    directions_: np.ndarray

    def _draw(self, X: MatrixLike, rng: np.random.Generator) -> None:
        size, half = X.shape[1], (int(self.n_components) + 1) // 2
        groups = [_orthogonal(size, min(size, half), rng) for _ in range(-(-half // size))]
        self.directions_ = np.ascontiguousarray(np.hstack(groups)[:, :half] / self.bandwidth_)

    def _take(self, arrays: Arrays) -> None:
        self.directions_ = arrays.take("directions", None, None)

    def _append(self, X: MatrixLike, into: np.ndarray) -> None:
        half = self.directions_.shape[1]
        factor, angles = self.scale_ / np.sqrt(half), X @ self.directions_
        into[:, :half] = factor * np.cos(angles)
        into[:, half:] = factor * np.sin(angles)

    @property
    def _shape(self) -> tuple[int, int]:
        size, half = self.directions_.shape
        return size, 2 * half


class NystromFeatures(RandomFeatures):
    """Rows with Nyström features of a Gaussian kernel appended.

    Let k(x, z) = exp(−‖x − z‖²/(2h²)), and z₁ … z_D be random rows of the training data, the landmarks. The features of
    a row x are K^(−1/2)·(k(x, z₁), …, k(x, z_D)), where K has the entries k(zᵢ, zⱼ). The inner product of the features
    of x and z approximates k(x, z), and is exact if one of them is a landmark (Williams and Seeger 2001). Unlike
    `FourierFeatures`, these features adapt to where the rows are. You may need fewer of them, but each takes longer to
    compute. All are multiplied by the root mean square length of the training rows.

    Features should be on similar scales (see scikit-learn's `StandardScaler`).

    Parameters
    ----------
    n_components : int, default=200
        Number D of landmarks. If there are fewer rows, all of them are landmarks.
    bandwidth : float or "auto", default="auto"
        Bandwidth h. "auto" is half the median distance between two training rows.
    random_state : int, RandomState or None, default=None
        Seed for drawing the landmarks, and the pairs of rows that the bandwidth is computed from.

    Attributes
    ----------
    bandwidth_ : float
        The bandwidth.
    landmarks_ : ndarray of shape (D, n_features_in_)
        The landmarks.
    projection_ : ndarray of shape (D, D)
        K^(−1/2).
    scale_ : float
        Length of the features of a landmark.
    reservoir_ : Reservoir or None
        The sample of a stream that `partial_fit` keeps until the first `transform`.

    References
    ----------
    C. Williams, M. Seeger. Using the Nyström Method to Speed Up Kernel Machines. NIPS 2001.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from sklearn.pipeline import make_pipeline
    >>> from quapy_nemsis import NEMSISClassifier
    >>> X, y = make_circles(1000, noise=0.1, factor=0.5, random_state=0)
    >>> learner = make_pipeline(NystromFeatures(20, random_state=0), NEMSISClassifier("ba", random_state=0))
    >>> bool(learner.fit(X, y).score(X, y) > 0.95)
    True
    """

    _drawn = ("landmarks", "projection")

    landmarks_: np.ndarray
    projection_: np.ndarray

    def _draw(self, X: MatrixLike, rng: np.random.Generator) -> None:
        chosen = X[rng.permutation(X.shape[0])[: int(self.n_components)]]
        chosen = chosen.toarray() if scipy.sparse.issparse(chosen) else chosen
        self.landmarks_ = np.array(chosen, dtype=np.float64)
        values, vectors = np.linalg.eigh(self._kernel(self.landmarks_))
        # Landmarks that are equal, or nearly so, give eigenvalues of 0.
        large = values > _SMALLEST * values[-1]
        roots = np.sqrt(values, where=large, out=np.full(len(values), np.inf))
        self.projection_ = (vectors / roots) @ vectors.T

    def _take(self, arrays: Arrays) -> None:
        self.landmarks_ = arrays.take("landmarks", None, None)
        self.projection_ = arrays.take("projection", *2 * self.landmarks_.shape[:1])

    def _kernel(self, X: MatrixLike) -> np.ndarray:
        """Kernel of rows and landmarks."""
        products = X @ self.landmarks_.T
        squares = _squares(X)[:, np.newaxis] + _squares(self.landmarks_) - 2.0 * products
        return np.exp(np.maximum(squares, 0.0) / (-2.0 * self.bandwidth_**2))

    def _append(self, X: MatrixLike, into: np.ndarray) -> None:
        into[:] = self.scale_ * (self._kernel(X) @ self.projection_)

    @property
    def _shape(self) -> tuple[int, int]:
        n_landmarks, size = self.landmarks_.shape
        return size, n_landmarks


def _squares(X: MatrixLike) -> np.ndarray:
    """Squared lengths of rows."""
    if scipy.sparse.issparse(X):
        return np.asarray(X.multiply(X).sum(axis=1), dtype=float).ravel()
    return np.einsum("ij,ij->i", X, X, dtype=float)


def _orthogonal(size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Orthogonal columns, each as long as a vector of independent standard normal numbers."""
    directions = np.linalg.qr(rng.normal(size=(size, count)))[0]
    return directions * np.sqrt(rng.chisquare(size, size=count))
