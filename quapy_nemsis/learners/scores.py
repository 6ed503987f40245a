"""The home of w·x + b, outside of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse


def linear_scores(X: Any, weights: np.ndarray, intercept: Any) -> np.ndarray:
    """Scores w·x + b of all rows, of one model or of one in each column of the weights."""
    return X @ weights + intercept


def quiet_scores(X: Any, weights: np.ndarray, intercept: float) -> np.ndarray:
    """Scores of one model without BLAS, whose threads go on spinning for a while: in a stream, on the reader's core."""
    if scipy.sparse.issparse(X):
        return linear_scores(X, weights, intercept)
    return np.einsum("ij,j->i", X, weights) + intercept
