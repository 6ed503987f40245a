"""What all linear classifiers here share: checking data and parameters, and predicting."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data


class LinearClassifier(ClassifierMixin, BaseEstimator):
    """A binary linear classifier with `coef_`, `intercept_` and `classes_`; subclasses learn them."""

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Scores w·x + b; a point is predicted positive if its score is above 0.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Scores.
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return safe_sparse_dot(X, self.coef_[0], dense_output=True) + self.intercept_[0]

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Labels of the rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels out of `classes_`.
        """
        scores = self.decision_function(X)
        return self.classes_[(scores > 0.0).astype(np.intp)]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags

    def _check_data(self, X: Any, y: Any, reset: bool, **options: Any) -> tuple[Any, np.ndarray]:
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            order="C",
            reset=reset,
            **options,
        )
        if scipy.sparse.issparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X, y

    def _two_classes(self, classes: np.ndarray) -> np.ndarray:
        check_classification_targets(classes)
        if len(classes) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{type_of_target(classes)}: {len(classes)} classes, {_some(classes)}. Wrap the learner "
                "in sklearn.multiclass.OneVsRestClassifier, the quantifier in quapy.method.base.newOneVsAll"
            )
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs two classes; the data holds one class, {classes.tolist()}"
                + (
                    ". In a stream, name both with partial_fit(X, y, classes=...)"
                    if hasattr(self, "partial_fit")
                    else ""
                )
            )
        return classes


def _some(labels: np.ndarray) -> str:
    """The first few labels, for a message."""
    return f"{labels[:5].tolist()}{' and more' if len(labels) > 5 else ''}"


def warn_of_scale(X: Any, stacklevel: int) -> None:
    """Warn if features live on scales so different that no step size suits them all.

    Compared are the root mean squares of the nonzero entries of each feature, over at most a million rows. A feature
    that is constant there says nothing about its scale: one of a rare category, standardised, is near 0 in most rows.
    """
    X = X[:: max(X.shape[0] // 1_000_000, 1)]
    with np.errstate(over="ignore"):
        if scipy.sparse.issparse(X):
            squares = np.bincount(X.indices, X.data.astype(np.float64) ** 2, X.shape[1])
            nonzero = np.bincount(X.indices, X.data != 0, X.shape[1])
        else:
            squares = np.einsum("ij,ij->j", X, X, dtype=np.float64)
            nonzero = np.count_nonzero(X, axis=0)
    used = np.flatnonzero(squares > 0)
    sizes = np.sqrt(squares[used] / nonzero[used])
    if len(used) < 2 or not np.isfinite(sizes).all():
        return
    high = int(np.argmax(sizes))
    small = np.flatnonzero(sizes[high] > 300.0 * sizes)
    if not scipy.sparse.issparse(X):
        small = small[np.ptp(X[:, used[small]], axis=0) > 0]
    if len(small):
        low = small[np.argmin(sizes[small])]
        warnings.warn(
            f"features are on very different scales: feature {used[high]} is about {sizes[high]:.3g} in size and "
            f"feature {used[low]} about {sizes[low]:.3g}, and no step size suits both. Standardise them first, with "
            "sklearn.preprocessing.StandardScaler or, if sparse, MaxAbsScaler",
            UserWarning,
            stacklevel=stacklevel,
        )


def distinct(y: np.ndarray) -> np.ndarray:
    """Sorted distinct labels; without sorting all of y where its beginning shows both of two classes."""
    classes = np.unique(y[:1000])
    if len(classes) == 2 and ((y == classes[0]) | (y == classes[1])).all():
        return classes
    return np.unique(y)


def check_integer(name: str, value: Any) -> None:
    """Refuse what is not an integer of at least 1."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1; got {value!r}")


def check_positive(name: str, value: Any, *, finite: bool = False, auto: bool = False) -> None:
    """Refuse what is not a positive number, or "auto" where that is allowed."""
    if auto and isinstance(value, str) and value == "auto":
        return
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        form = "a number or 'auto'" if auto else "a number"
        raise TypeError(f"{name} must be {form}; got {value!r}")
    if not value > 0.0:
        raise ValueError(f"{name} must be positive; got {value!r}")
    if finite and np.isinf(value):
        raise ValueError(f"{name} must be finite; got {value!r}")


def check_bool(name: str, value: Any) -> None:
    """Refuse what is not True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False; got {value!r}")


def check_option(name: str, value: Any, options: Any) -> None:
    """Refuse a name that is not one of the options."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string; got {value!r}")
    if value not in options:
        raise ValueError(f"{name} must be one of {sorted(options)}; got {value!r}")
