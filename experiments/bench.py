"""Speed and memory of the learners, as ratios against peers in the same run.

Every time is the best of several, taken in turns so that a busy machine hits all alike; compiling is timed apart. Run
``make bench``.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse
from sklearn.linear_model import LogisticRegression, SGDClassifier
from threadpoolctl import threadpool_limits

from quapy_nemsis import NEMSISClassifier, NestedConcave, QMeasure
from quapy_nemsis._kernels.rows import as_rows
from quapy_nemsis._state import State

#: One pass of one configuration, nothing chosen.
ONE = {"eta0": 0.1, "radius": np.inf, "n_passes": 1, "random_state": 0}


def best_of(repeats: int, **tasks: Callable[[], float | None]) -> dict[str, float]:
    """Best time of each task; a task may return its own time instead of being timed from outside."""
    best = dict.fromkeys(tasks, np.inf)
    for _ in range(repeats):
        for name, task in tasks.items():
            begin = time.perf_counter()
            seconds = task()
            elapsed = time.perf_counter() - begin
            best[name] = min(best[name], elapsed if seconds is None else seconds)
    return best


def show(title: str, best: dict[str, float], *pairs: tuple[str, str]) -> None:
    """Print the times, and the ratios asked for."""
    print(f"\n{title}")
    for name, seconds in best.items():
        print(f"  {name:28} {1e3 * seconds:9.1f} ms")
    for name, peer in pairs:
        print(f"  {name} / {peer}: {best[name] / best[peer]:.2f}")


def pass_seconds(learner: NEMSISClassifier, X, y) -> float:
    """Seconds of the fit that were spent inside the kernel."""
    return learner.set_params(record_every=len(y)).fit(X, y).history_["seconds"][-1]


def dense(n_rows: int, repeats: int) -> None:
    """One fully shuffled pass over dense float64 rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 54))
    y = X[:, 0] + 0.5 * X[:, 1] + 0.5 * rng.normal(size=n_rows) > 0.5
    w = np.ones(54)

    def product() -> None:
        X @ w

    def product_one_thread() -> None:
        with threadpool_limits(1):
            X @ w

    tasks: dict[str, Callable] = {"X @ w": product, "X @ w, one thread": product_one_thread}
    for measure in ("ba", "kld", "bakld", "q"):
        learner = NEMSISClassifier(measure, **ONE).fit(X[:100], y[:100])
        tasks[f"pass, {measure}"] = lambda learner=learner: pass_seconds(learner, X, y)
    logistic = NEMSISClassifier("q", reward="logistic", **ONE)
    tasks["pass, q, logistic"] = lambda: pass_seconds(logistic, X, y)
    whole = NEMSISClassifier("q", **ONE)
    tasks["fit, q"] = lambda: whole.fit(X, y) and None
    sgd = SGDClassifier(loss="hinge", average=True, max_iter=1, tol=None, random_state=0)
    tasks["SGDClassifier.fit"] = lambda: sgd.fit(X, y) and None
    best = best_of(repeats, **tasks)
    passes = [name for name in tasks if name.startswith("pass")]
    show(
        f"Dense {n_rows:,} x 54 float64, one fully shuffled pass",
        best,
        *((name, "X @ w, one thread") for name in passes),
        *((name, "X @ w") for name in passes),
        ("pass, q", "SGDClassifier.fit"),
        ("fit, q", "SGDClassifier.fit"),
    )


def sparse(repeats: int) -> None:
    """One pass over CSR rows as wide as a bag of words."""
    rng = np.random.default_rng(0)
    n_rows, n_features, nonzeros = 25_000, 27_272, 130
    indices = np.sort(rng.integers(0, n_features, size=(n_rows, nonzeros)), axis=1).ravel()
    data = rng.random(n_rows * nonzeros)
    indptr = np.arange(0, n_rows * nonzeros + 1, nonzeros)
    X = scipy.sparse.csr_matrix((data, indices, indptr), shape=(n_rows, n_features))
    X.sum_duplicates()
    y = X @ rng.normal(size=n_features) > 0.0
    tasks: dict[str, Callable] = {}
    for measure in ("kld", "q"):
        learner = NEMSISClassifier(measure, **ONE).fit(X[:100], y[:100])
        tasks[f"pass, {measure}"] = lambda learner=learner: pass_seconds(learner, X, y)
    whole = NEMSISClassifier("q", **ONE)
    tasks["fit, q"] = lambda: whole.fit(X, y) and None
    sgd = SGDClassifier(loss="hinge", average=True, max_iter=1, tol=None, random_state=0)
    tasks["SGDClassifier.fit"] = lambda: sgd.fit(X, y) and None
    show(
        f"CSR {n_rows:,} x {n_features:,}, {X.nnz / n_rows:.0f} nonzeros a row, one shuffled pass",
        best_of(repeats, **tasks),
        ("pass, kld", "SGDClassifier.fit"),
        ("pass, q", "SGDClassifier.fit"),
        ("fit, q", "SGDClassifier.fit"),
    )


def _psi(x, y, p, theta):
    b2 = theta[0] * theta[0]
    return (1.0 + b2) * x * y / (b2 * x + y) if x > 0.0 and y > 0.0 else 0.0


def _psi_gradient(x, y, p, theta):
    b2 = theta[0] * theta[0]
    inverse = 1.0 / (b2 * max(x, 1e-12) + max(y, 1e-12))
    return (1.0 + b2) * (max(y, 1e-12) * inverse) ** 2, (1.0 + b2) * b2 * (
        max(x, 1e-12) * inverse
    ) ** 2


def _ba(P, N, p, theta):
    return 0.5 * (P + N)


def _ba_gradient(P, N, p, theta):
    return 0.5, 0.5


def _nss(P, N, p, theta):
    return 1.0 - (p * (1.0 - P) - (1.0 - p) * (1.0 - N)) ** 2


def _nss_gradient(P, N, p, theta):
    d = p * (1.0 - P) - (1.0 - p) * (1.0 - N)
    return 2.0 * p * d, -2.0 * (1.0 - p) * d


def custom(n_rows: int, repeats: int) -> None:
    """A user's own Q-measure against the built-in one, on rows so short that the measure is much of the work."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 10))
    y = X[:, 0] + rng.normal(size=n_rows) > 0.5
    gradients = (_psi_gradient, _ba_gradient, _nss_gradient)
    measures = {
        "built-in": QMeasure(1.0),
        "own, with gradients": NestedConcave(_psi, _ba, _nss, [1.0], gradients=gradients),
        "own, without": NestedConcave(_psi, _ba, _nss, [1.0]),
    }
    tasks: dict[str, Callable] = {}
    for name, measure in measures.items():
        learner = NEMSISClassifier(measure, **ONE).fit(X[:100], y[:100])
        tasks[name] = lambda learner=learner: pass_seconds(learner, X, y)
    show(
        f"Q-measure, dense {n_rows:,} x 10, one shuffled pass",
        best_of(repeats, **tasks),
        ("own, with gradients", "built-in"),
        ("own, without", "built-in"),
    )


def tuning(n_rows: int, repeats: int) -> None:
    """What choosing the step size and the radius costs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 54))
    y = X[:, 0] + 0.5 * X[:, 1] + 0.5 * rng.normal(size=n_rows) > 0.5
    given = NEMSISClassifier("q", **{**ONE, "n_passes": 5})
    chosen = NEMSISClassifier("q", random_state=0)
    logistic = LogisticRegression(max_iter=1000)
    tasks: dict[str, Callable] = {
        "fit, given": lambda: given.fit(X, y) and None,
        "fit, chosen": lambda: chosen.fit(X, y) and None,
        "LogisticRegression.fit": lambda: logistic.fit(X, y) and None,
    }
    show(
        f"Five passes over dense {n_rows:,} x 54, step size and radius given or chosen out of 16 pairs",
        best_of(repeats, **tasks),
        ("fit, chosen", "fit, given"),
        ("fit, chosen", "LogisticRegression.fit"),
    )


def side_by_side(n_rows: int, repeats: int) -> None:
    """Learners of different step sizes that take each row together, against one learner alone."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 54))
    y = X[:, 0] + 0.5 * X[:, 1] + 0.5 * rng.normal(size=n_rows) > 0.5
    order = rng.permutation(n_rows)

    def walk(measure: str, steps: np.ndarray) -> None:
        tries = [
            NEMSISClassifier(measure, **{**ONE, "eta0": float(eta0)})._settings() for eta0 in steps
        ]
        states = [State.start(54, settings) for settings in tries]
        State.walk_together(states, as_rows(X), y, order, tries)

    for measure in ("kld", "q"):
        tasks: dict[str, Callable] = {"one": lambda measure=measure: walk(measure, np.array([0.1]))}
        for number in (10, 40):
            steps = np.geomspace(1e-3, 10.0, number)
            tasks[str(number)] = lambda measure=measure, steps=steps: walk(measure, steps)
        show(
            f"Step sizes side by side, {measure}, one shuffled pass over dense {n_rows:,} x 54",
            best_of(repeats, **tasks),
            ("10", "one"),
            ("40", "one"),
        )


_MEMORY = """
import numpy as np
from quapy_nemsis import NEMSISClassifier
def status(key):
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(key)) * 1024
X = np.random.default_rng(0).random((ROWS, 54))
y = X[:, 0] > 0.5
NEMSISClassifier("q", eta0=0.1, radius=np.inf, n_passes=1).fit(X[:100], y[:100])
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
NEMSISClassifier("q", eta0=0.1, radius=np.inf, n_passes=2).fit(X, y)
print(status("VmHWM") - before, 16 * ROWS + 64 * 2**20)
"""

_START = """
import time
import numpy as np
from quapy_nemsis import NEMSISClassifier
X = np.random.default_rng(0).random((1000, 20))
y = X[:, 0] > 0.5
for _ in range(2):
    begin = time.perf_counter()
    NEMSISClassifier("kld", eta0=0.1, radius=np.inf).fit(X, y)
    print(time.perf_counter() - begin)
"""


def run_python(code: str, **environment: str) -> list[float]:
    """Numbers that a new Python process prints."""
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return [float(word) for word in process.stdout.split()]


def memory(n_rows: int) -> None:
    """Peak memory of `fit` beyond what is there before it, X included."""
    if not Path("/proc/self/clear_refs").exists():
        print("\nPeak memory of fit: needs Linux")
        return
    peak, limit = run_python(_MEMORY.replace("ROWS", str(n_rows)))
    print(
        f"\nPeak memory of fit beyond X, {n_rows:,} x 54 float64: {peak / 2**20:.1f} MB "
        f"({peak / n_rows:.0f} bytes a row; 16 bytes a row plus 64 MB would be {limit / 2**20:.1f} MB)"
    )


def start(repeats: int) -> None:
    """What the first fit in a new process costs beyond the second."""
    uncached = run_python(_START, QUAPY_NEMSIS_CACHE="0")
    warm = min(run_python(_START) for _ in range(repeats))
    print("\nFirst fit in a new process beyond the second")
    print(f"  compiling                    {uncached[0] - uncached[1]:9.2f} s")
    print(f"  kernels from the disk cache  {warm[0] - warm[1]:9.2f} s")


def main() -> None:
    """Run all benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000, help="rows of the dense benchmark")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    dense(options.rows, options.repeats)
    sparse(options.repeats)
    custom(options.rows, options.repeats)
    side_by_side(options.rows * 4 // 5, max(options.repeats // 2, 1))
    tuning(options.rows, max(options.repeats // 3, 1))
    memory(options.rows)
    start(max(options.repeats // 2, 1))


if __name__ == "__main__":
    main()
