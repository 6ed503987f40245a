"""Scores w·x + b, computed outside the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse


def linear_scores(X: Any, weights: np.ndarray, intercept: Any) -> np.ndarray:
    """Scores w·x + b of all rows: a vector for a vector of weights, a column for each row of a matrix of weights."""
    return X @ weights.T + intercept


def quiet_scores(X: Any, weights: np.ndarray, intercept: Any) -> np.ndarray:
    """Scores of one model without BLAS: its threads spin for a while, and in a stream would slow down the reader."""
    if scipy.sparse.issparse(X):
        return linear_scores(X, weights, intercept)
    if weights.ndim == 2:
        return np.einsum("ij,kj->ik", X, weights) + intercept
    return np.einsum("ij,j->i", X, weights) + intercept


def scale_of(weights: np.ndarray) -> float:
    """Norm of weights of any size, by which their scores grow."""
    largest = float(np.abs(weights).max())
    return largest * float(np.linalg.norm(weights / largest)) if largest > 0.0 else 0.0


def predicted_codes(scores: np.ndarray) -> np.ndarray:
    """Positions of the predicted classes: of two by the sign of the score, of more the first with the highest score."""
    return np.argmax(scores, axis=1) if scores.ndim == 2 else (scores > 0.0).astype(np.intp)
