"""Shared fixtures. Kernels are cached under a key of the sources: numba itself looks at one file's date only."""

import hashlib
import os
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def _source_key() -> str:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "quapy_nemsis").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"quapy-nemsis-{_source_key()}")
)

import numpy as np  # noqa: E402  numba reads the variable when it is imported


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
