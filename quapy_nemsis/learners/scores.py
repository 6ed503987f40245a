"""Scores w·x + b, computed outside the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse


def linear_scores(X: Any, weights: np.ndarray, intercept: Any) -> np.ndarray:
    """Scores w·x + b of all rows, for one model or for several whose weights are the columns of a matrix."""
    return X @ weights + intercept


def quiet_scores(X: Any, weights: np.ndarray, intercept: float) -> np.ndarray:
    """Scores of one model without BLAS: its threads spin for a while, and in a stream would slow down the reader."""
    if scipy.sparse.issparse(X):
        return linear_scores(X, weights, intercept)
    return np.einsum("ij,j->i", X, weights) + intercept
