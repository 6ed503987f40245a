"""Seconds and memory of trees and forests, next to scikit-learn's."""

from __future__ import annotations

from experiments.bench.processes import run_python
from experiments.bench.tables import BenchTable

# Rows like those of covtype: ten numbers, and 44 columns of which most are 0; two classes, one of them rare. Each
# learner has a process of its own, in which it is compiled or loaded by a fit to a few rows first. Seconds are those of
# the processor, which other programs do not change much.
_FIT = """
import sys, time
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from quapy_nemsis import QuantificationForestClassifier, QuantificationTreeClassifier
def status(key):
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(key)) * 1024
rng = np.random.default_rng(0)
X = np.zeros((ROWS, 54), dtype=np.float32)
X[:, :10] = rng.normal(size=(ROWS, 10)).round(2)
X[np.arange(ROWS), 10 + rng.integers(4, size=ROWS)] = 1.0
X[np.arange(ROWS), 14 + rng.integers(40, size=ROWS)] = 1.0
y = X[:, 0] + X[:, 1] * X[:, 2] + X[:, 10] + 0.7 * rng.normal(size=ROWS) > 2.0
LEARNER.fit(X[:2000], y[:2000]).predict_proba(X[:100])
open("/proc/self/clear_refs", "w").write("5")
before, begin = status("VmRSS"), time.process_time()
learner = LEARNER.fit(X, y)
print(time.process_time() - begin, status("VmHWM") - before)
learner.predict_proba(X[:100])
begin = time.process_time()
learner.predict_proba(X)
print(time.process_time() - begin)
"""
_FOREST = "n_estimators=TREES, random_state=0, n_jobs=1"
LEARNERS = {
    "QuantificationTreeClassifier": "QuantificationTreeClassifier(min_samples_leaf=5, random_state=0)",
    "the same with Gini": 'QuantificationTreeClassifier("gini", min_samples_leaf=5, random_state=0)',
    "DecisionTreeClassifier": "DecisionTreeClassifier(min_samples_leaf=5, random_state=0)",
    "QuantificationForestClassifier": f"QuantificationForestClassifier(min_samples_leaf=5, {_FOREST})",
    "RandomForestClassifier": f"RandomForestClassifier(min_samples_leaf=5, {_FOREST})",
    "HistGradientBoostingClassifier": "HistGradientBoostingClassifier(random_state=0)",
}


def trees(n_rows: int, n_trees: int = 10) -> BenchTable:
    """Time fits of a tree and of a forest with one thread, and measure their peak of memory beyond X."""
    rows = []
    for name, code in LEARNERS.items():
        program = _FIT.replace("LEARNER", code).replace("ROWS", str(n_rows))
        program = program.replace("TREES", str(n_trees))
        fit, peak, predict = run_python(program, OMP_NUM_THREADS="1")
        rows.append({"learner": name, "fit": fit, "predict_proba": predict, "MB": peak / 2**20})
    return BenchTable(
        "trees",
        f"Trees, and forests of {n_trees}, {n_rows:,} x 54 float32, one thread",
        rows,
        "Seconds of the processor, of one run each, in a process of its own. Leaves of at least five rows; "
        "HistGradientBoostingClassifier has its defaults, 100 trees of 31 leaves. The fits of ours include scores for "
        "the calibration of posteriors: for a tree, up to five more trees of four fifths of the rows.",
    )
