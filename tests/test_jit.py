"""Compiled code and its cache, in processes of their own: start-up state is what is tested."""

import ast
import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT

FIT = """
import warnings
import numpy as np
from quapy_nemsis import NEMSISClassifier
X = np.random.default_rng(0).normal(size=(50, 3))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    weights = [NEMSISClassifier(m, random_state=0).fit(X, X[:, 0] > 0).coef_ for m in ("q", "kld")]
print(*np.concatenate(weights).ravel())
print([str(w.message) for w in caught if "kernels" in str(w.message)])
from quapy_nemsis._kernels.nemsis import nemsis
(kernel,) = nemsis.compiled.values()
print(sum(kernel.stats.cache_hits.values()))
"""


def run(code, tmp_path, **environment):
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_second_process_uses_the_cache(tmp_path):
    first = run(FIT, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    second = run(FIT, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert first[:2] == second[:2]
    assert first[1] == "[]"
    assert (first[2], second[2]) == ("0", "1")
    # One kernel serves both measures, and both were answered from the cache.
    assert len(list((tmp_path / "cache").rglob("*_nemsis*.nbc"))) == 1


def test_switching_the_cache_off(tmp_path):
    cache = tmp_path / "cache"
    lines = run(FIT, tmp_path, NUMBA_CACHE_DIR=str(cache), QUAPY_NEMSIS_CACHE="0")
    assert lines[1] == "[]"
    assert not list(cache.rglob("*.nbi"))


def test_a_cache_that_cannot_be_written_costs_one_warning(tmp_path):
    """An installation without any directory that numba could write to (numba itself raises at import then)."""
    package = tmp_path / "site" / "quapy_nemsis"
    shutil.copytree(ROOT / "quapy_nemsis", package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (package, package / "_kernels"):
        (folder / "__pycache__").write_text("a file where the directory should be")
    nowhere = str(package / "__pycache__" / "cache")
    lines = run(
        FIT,
        tmp_path,
        PYTHONPATH=str(tmp_path / "site"),
        PYTHONDONTWRITEBYTECODE="1",
        NUMBA_CACHE_DIR="",
        XDG_CACHE_HOME=nowhere,
        HOME=nowhere,
    )
    warnings = ast.literal_eval(lines[1])
    assert len(warnings) == 1
    assert "cannot be kept on disk" in warnings[0]
    assert "NUMBA_CACHE_DIR" in warnings[0]
    assert lines[0] == run(FIT, tmp_path)[0]


def test_a_broken_cache_file_costs_one_warning(tmp_path):
    cache = tmp_path / "cache"
    expected = run(FIT, tmp_path, NUMBA_CACHE_DIR=str(cache))[0]
    for path in cache.rglob("*.nbi"):
        path.write_bytes(path.read_bytes()[:20])
    lines = run(FIT, tmp_path, NUMBA_CACHE_DIR=str(cache))
    assert lines[0] == expected
    assert len(ast.literal_eval(lines[1])) <= 1


def test_import_compiles_nothing_and_leaves_quapy_alone(tmp_path):
    code = """
import sys
import quapy_nemsis
from quapy_nemsis._kernels.nemsis import nemsis
assert not nemsis.compiled
quapy_nemsis.NEMSISClassifier().fit([[0.0], [1.0]], [0, 1])
assert "quapy" not in sys.modules
quapy_nemsis.NEMSIS
assert "quapy" in sys.modules
assert "NEMSIS" in dir(quapy_nemsis)
print("done")
"""
    assert run(code, tmp_path) == ["done"]


def test_threads_share_a_kernel(tmp_path):
    code = """
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from quapy_nemsis import NEMSISClassifier
X = np.random.default_rng(0).normal(size=(20000, 5))
y = X[:, 0] > 0
fit = lambda m: NEMSISClassifier(m, random_state=0).fit(X, y).coef_
measures = ["q", "kld", "bakld", "ba"] * 4
with ThreadPoolExecutor(4) as pool:
    together = list(pool.map(fit, measures))
print(all(np.array_equal(a, fit(m)) for a, m in zip(together, measures)))
"""
    assert run(code, tmp_path) == ["True"]


def test_unknown_names_are_attribute_errors():
    import quapy_nemsis

    with pytest.raises(AttributeError, match="has no attribute 'SVM'"):
        quapy_nemsis.SVM  # noqa: B018
