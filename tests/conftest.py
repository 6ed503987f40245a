"""Shared fixtures."""

import os
from pathlib import Path

import numpy as np
import pytest

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
