"""Data sets: the ones that ship with scikit-learn, and folders of npz files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler


def embedded(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Binary data that ships with scikit-learn: breast_cancer (malignant is 1), digits (8 against the rest)."""
    if name == "breast_cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return X, 1 - y
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X, (y == 8).astype(int)
    raise ValueError(f"unknown embedded data set {name!r}; known are breast_cancer, digits")


def from_npz(folder: Path, name: str) -> tuple[Any, np.ndarray]:
    """X and y of ``folder/name.npz``: dense ``X``, or CSR parts ``data, indices, indptr, shape``; labels ``y``."""
    path = Path(folder) / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(f"no data set {name!r}: {path} does not exist")
    with np.load(path) as parts:
        if "y" not in parts or not ("X" in parts or "indptr" in parts):
            raise ValueError(
                f"{path} must hold y and X, or y and the CSR parts data, indices, indptr, shape; "
                f"it holds {sorted(parts)}"
            )
        y = parts["y"]
        if "X" in parts:
            return np.ascontiguousarray(parts["X"], dtype=np.float32), y
        shape = tuple(int(side) for side in parts["shape"])
        X = scipy.sparse.csr_matrix((parts["data"], parts["indices"], parts["indptr"]), shape=shape)
        return X, y


def split(X: Any, y: np.ndarray, seed: int, test_size: float = 0.3) -> tuple:
    """Stratified, shuffled split with features standardised on the first part: X, y, X_test, y_test.

    Sparse data are made dense, because centring fills them anyway; they must be narrow enough for that.
    """
    if scipy.sparse.issparse(X):
        if X.shape[0] * X.shape[1] > 10**8:
            raise ValueError(f"a sparse matrix of shape {X.shape} is too large to standardise")
        X = X.toarray()
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=test_size, stratify=y, random_state=seed
    )
    scaler = StandardScaler().fit(X_train)
    return scaler.transform(X_train), y_train, scaler.transform(X_test), y_test
