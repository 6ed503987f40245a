"""Shared fixtures."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of benchmark data sets, if this machine has it."""
    folder = Path(os.environ.get("QUAPY_NEMSIS_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "adult.npz").is_file():
        pytest.skip("the benchmark data sets are not here; set QUAPY_NEMSIS_DATA to their folder")
    return folder


def make_points(n=400, d=6, share=0.3, seed=0, noise=1.0):
    """Two Gaussian classes: X, boolean y."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < share
    X = rng.normal(size=(n, d))
    X[:, 0] += np.where(y, 1.0, -1.0) / noise
    return X, y


SHARES = (0.5, 0.3, 0.2)


def make_classes(n=400, d=6, shares=SHARES, seed=0, distance=1.5):
    """Gaussian classes, each at this distance from 0 along a feature of its own: X, y from 0 to K − 1 (each occurs)."""
    rng, K = np.random.default_rng(seed), len(shares)
    y = rng.choice(K, size=n, p=shares)
    y[:K] = np.arange(K)
    X = rng.normal(size=(n, d))
    X[np.arange(n), y % d] += distance
    return X, y


def true_posteriors(X, shares=SHARES, distance=1.5):
    """Posteriors of the classes of `make_classes`, of which there are no more than features."""
    return softmax(distance * X[:, : len(shares)] + np.log(shares), axis=1)
