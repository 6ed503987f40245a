"""Compiled code and its cache, in processes of their own: start-up state is what is tested."""

import ast
import os
import shutil
import subprocess
import sys
import time

import numba
import pytest

from quapy_nemsis import _jit
from quapy_nemsis._sources import source_digest
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


def copy_of_the_package(folder):
    ignored = shutil.ignore_patterns("__pycache__")
    return shutil.copytree(ROOT / "quapy_nemsis", folder / "quapy_nemsis", ignore=ignored)


def compiled_files(folder):
    """Every file of a cache and when it was written: compiling writes, loading does not."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.nb[ic]")}


def test_second_process_uses_the_cache_and_does_without_a_broken_one(tmp_path):
    cache = tmp_path / "cache"
    first = run(FIT, tmp_path, NUMBA_CACHE_DIR=str(cache))
    written = compiled_files(cache)
    second = run(FIT, tmp_path, NUMBA_CACHE_DIR=str(cache))
    assert compiled_files(cache) == written
    assert first[:2] == second[:2]
    assert first[1] == "[]"
    assert (first[2], second[2]) == ("0", "1")
    # One kernel serves both measures, and both were answered from the cache.
    assert len(list(cache.rglob("*_nemsis*.nbc"))) == 1
    for path in cache.rglob("*.nbi"):
        path.write_bytes(path.read_bytes()[:20])
    third = run(FIT, tmp_path, NUMBA_CACHE_DIR=str(cache))
    assert third[0] == first[0]
    assert len(ast.literal_eval(third[1])) <= 1


def test_switching_the_cache_off(tmp_path):
    cache = tmp_path / "cache"
    lines = run(FIT, tmp_path, NUMBA_CACHE_DIR=str(cache), QUAPY_NEMSIS_CACHE="0")
    assert lines[1] == "[]"
    assert not list(cache.rglob("*.nbi"))


def test_a_cache_that_cannot_be_written_costs_one_warning(tmp_path):
    """An installation without any directory that numba could write to (numba itself raises at import then)."""
    package = copy_of_the_package(tmp_path / "site")
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


EDITED = """
import numpy as np
from quapy_nemsis import NEMSISClassifier
X = np.random.default_rng(0).normal(size=(50, 3))
print(*NEMSISClassifier("bakld", eta0=0.1, random_state=0).fit(X, X[:, 0] > 0.5).coef_[0])
"""


def halve(package, name):
    """Have the function of that name, wherever it is, return half of what it does."""
    (path,) = (path for path in package.rglob("*.py") if f"\ndef {name}(" in path.read_text())
    source = path.read_bytes()
    (function,) = (node for node in ast.parse(source).body if getattr(node, "name", "") == name)
    lines = source.splitlines(keepends=True)
    for node in ast.walk(function):
        if isinstance(node, ast.Return):
            line = lines[node.lineno - 1]
            start = node.value.col_offset
            lines[node.lineno - 1] = line[:start] + b"0.5 * (" + line[start:].rstrip() + b")\n"
    path.write_bytes(b"".join(lines))


def test_edited_formulas_are_compiled_anew(tmp_path):
    """Also those in other files than the functions that numba keeps; in the package's own __pycache__."""
    package = copy_of_the_package(tmp_path)

    def fit():
        return run(EDITED, tmp_path, PYTHONPATH=str(tmp_path), NUMBA_CACHE_DIR="")[0]

    weights = fit()
    written = compiled_files(package)
    assert written
    assert fit() == weights
    assert compiled_files(package) == written

    seen = {weights}
    for name in ("neg_kld_slope", "_hinge_slope"):
        halve(package, name)
        seen.add(fit())
    assert len(seen) == 3
    folders = {
        path.relative_to(package / "__pycache__").parts[0] for path in compiled_files(package)
    }
    assert len(folders) == 3


def test_a_new_folder_replaces_forgotten_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    names = ("quapy-nemsis-0123456789ab", "quapy-nemsis-ba9876543210", "quapy-nemsis-other")
    young, *old = (tmp_path / name for name in names)
    month_ago = time.time() - 31 * 24 * 3600
    for folder in (young, *old):
        (folder / "inner").mkdir(parents=True)
    for folder in old:
        os.utime(folder, (month_ago, month_ago))

    folder = _jit._cache_folder()
    assert os.path.dirname(folder) == str(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        os.path.basename(folder),
        names[0],
        names[2],
    }

    # A folder that is there is marked as used, and then others stay as they are.
    os.utime(folder, (month_ago, month_ago))
    os.utime(young, (month_ago, month_ago))
    assert _jit._cache_folder() == folder
    assert os.path.getmtime(folder) > month_ago + 3600
    assert young.is_dir()


def test_the_folder_is_in_the_first_place_that_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("a file where a directory should be")
    nowhere = str(tmp_path / "file" / "below")
    places = [
        str(tmp_path / name) for name in ("given", "package/__pycache__", "user/quapy-nemsis")
    ]

    def place(given, package, user):
        monkeypatch.setattr(numba.config, "CACHE_DIR", given)
        monkeypatch.setattr(_jit, "__file__", os.path.join(package, "_jit.py"))
        monkeypatch.setenv("XDG_CACHE_HOME", user)
        return os.path.dirname(_jit._cache_folder())

    package, user = str(tmp_path / "package"), str(tmp_path / "user")
    assert place(places[0], package, user) == places[0]
    assert place("", package, user) == places[1]
    assert place(nowhere, package, user) == places[1]
    assert place("", nowhere, user) == places[2]
    with pytest.raises(OSError, match="file"):
        place("", nowhere, nowhere)


def test_numba_keeps_code_of_others_where_it_did(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    folders = []

    def build(cached):
        folders.append(numba.config.CACHE_DIR)
        if cached:
            raise OSError("no space left")
        return "compiled"

    monkeypatch.setattr(_jit, "_warned", True)
    assert _jit._with_cache(build) == "compiled"
    assert folders == [_jit._cache_folder(), str(tmp_path)]
    assert str(tmp_path) == numba.config.CACHE_DIR


def test_the_digest_is_of_names_and_contents(tmp_path):
    folder = tmp_path / "some"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.py").write_text("a")
    (folder / "inner" / "b.py").write_text("b")
    (folder / ".#a.py").symlink_to("nowhere")

    def digest(*paths):
        source_digest.cache_clear()
        return source_digest(*(paths or (folder,)))

    first = digest()
    assert len(first) == 64
    (folder / "notes.txt").write_text("not a source")
    assert digest() == first
    assert digest(shutil.copytree(folder, tmp_path / "copy" / "some", symlinks=True)) == first
    (folder / "inner" / "b.py").write_text("c")
    second = digest()
    (folder / "inner" / "b.py").rename(folder / "c.py")
    assert len({first, second, digest(), digest(folder / "a.py"), digest(folder, folder)}) == 5


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


VALUES = """
import numpy as np
from quapy_nemsis import get_loss
from quapy_nemsis.learners.separation import SeparationOracle
scores = np.random.default_rng(0).normal(size=60)
print(*(SeparationOracle(get_loss(name), scores > 0.3)(scores).value for name in NAMES))
"""


def test_code_of_one_process_is_not_mixed_up_with_that_of_another(tmp_path):
    """Compiled functions of one name are numbered anew in each process; here two measures get the same numbers."""

    def values(cache, *names):
        code = VALUES.replace("NAMES", repr(names))
        return run(
            code, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"), QUAPY_NEMSIS_CACHE=cache
        )

    (alone,) = values("1", "bk")
    found, expected = (values(cache, "gmean", "bk") for cache in "10")
    assert found == expected
    assert found[0].split()[1] == alone
