"""Single passes over rows: against width, nonzeros, number type and layout, and next to baselines."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.linear_model import SGDClassifier
from threadpoolctl import threadpool_limits

from experiments.bench.tables import BenchTable, best_of, compared
from quapy_nemsis import NEMSISClassifier, NestedConcave, QMeasure

#: One pass of one configuration, nothing chosen.
ONE: dict[str, Any] = {"eta0": 0.1, "radius": np.inf, "n_passes": 1, "random_state": 0}
WIDTHS = (5, 10, 20, 50, 100, 200, 500, 1000)
NONZEROS = (3, 10, 30, 100, 300)


def gaussian(n_rows: int, width: int = 54) -> tuple[np.ndarray, np.ndarray]:
    """Return dense rows, and labels that two of their features tell with some noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, width))
    return X, X[:, 0] + 0.5 * X[:, 1] + 0.5 * rng.normal(size=n_rows) > 0.5


def bags(n_rows: int, width: int, nonzeros: int) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """Return sparse rows, as bags of words are."""
    rng = np.random.default_rng(0)
    indices = np.sort(rng.integers(0, width, size=(n_rows, nonzeros)), axis=1).ravel()
    indptr = np.arange(0, n_rows * nonzeros + 1, nonzeros)
    data = rng.random(n_rows * nonzeros)
    X = scipy.sparse.csr_matrix((data, indices, indptr), shape=(n_rows, width))
    X.sum_duplicates()
    return X, X @ rng.normal(size=width) > 0.0


def gaussian_classes(n_rows: int, width: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return dense rows of several classes of unequal size, which a linear model tells with some noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, width))
    return X, _noisy_classes(X, n_classes, rng)


def bags_of_classes(n_rows: int, n_classes: int) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """Return sparse rows of several classes, as short texts are."""
    X, _ = bags(n_rows, 7_000, 10)
    return X, _noisy_classes(X, n_classes, np.random.default_rng(1))


def _noisy_classes(X: Any, n_classes: int, rng: np.random.Generator) -> np.ndarray:
    scores = X @ rng.normal(size=(X.shape[1], n_classes))
    scores = scores / scores.std() + 0.5 * rng.normal(size=scores.shape)
    return np.argmax(scores + np.log(np.arange(1, n_classes + 1)) / 2, axis=1)


def one_pass(X: Any, y: np.ndarray, measure: Any = "q", **options: Any) -> Callable[[], float]:
    """Return a task: a fully shuffled pass, timed inside the kernel, which is compiled beforehand."""
    learner = NEMSISClassifier(measure, **{**ONE, "record_every": len(y), **options})
    learner.fit(X[:1000], y[:1000])
    return lambda: learner.fit(X, y).history_["seconds"][-1]


def fitting(learner: Any, X: Any, y: np.ndarray) -> Callable[[], Any]:
    """Return a task: a whole fit, timed from outside."""
    return partial(learner.fit, X, y)


def with_threads(threads: int | None, task: Callable[[], Any]) -> Callable[[], None]:
    """Return a task: another one, with so many threads of BLAS (None for as many as it takes)."""

    def limited() -> None:
        with threadpool_limits(threads):
            task()

    return limited


def product(X: Any, threads: int | None = None, columns: int | None = None) -> Callable[[], None]:
    """Return a task: X @ w, for a vector w or a matrix of some columns."""
    w = np.ones(X.shape[1] if columns is None else (X.shape[1], columns), dtype=X.dtype)

    return with_threads(threads, lambda: X @ w)


def sgd(n_passes: int = 1) -> SGDClassifier:
    """Return the baseline: averaged stochastic gradient descent on the hinge loss."""
    return SGDClassifier(loss="hinge", average=True, max_iter=n_passes, tol=None, random_state=0)


def vowpal_wabbit(X: np.ndarray, y: np.ndarray) -> Callable[[], float]:
    """Return a task: one pass of Vowpal Wabbit over its own cache file of some of the rows, scaled up to all rows."""
    from vowpalwabbit import Workspace

    n = min(len(y), 50_000)
    folder = tempfile.mkdtemp()
    text, cached = f"{folder}/rows.txt", f"{folder}/rows.cache"
    with open(text, "w") as file:
        for row, label in zip(X[:n].tolist(), y[:n].tolist(), strict=True):
            entries = " ".join(f"{place}:{entry:.6g}" for place, entry in enumerate(row))
            file.write(f"{1 if label else -1} | {entries}\n")
    options = f"--loss_function hinge --quiet -d {text} --cache_file {cached}"
    Workspace(options).finish()  # which writes the cache

    def task() -> float:
        begin = time.perf_counter()
        model = Workspace(options)
        seconds = time.perf_counter() - begin
        if model.get_weighted_examples() != n:
            raise RuntimeError(f"Vowpal Wabbit learned {model.get_weighted_examples()} of {n} rows")
        model.finish()
        return seconds * len(y) / n

    return task


def dense(n_rows: int, repeats: int) -> BenchTable:
    """Time one pass over dense rows, for several measures."""
    X, y = gaussian(n_rows)
    tasks: dict[str, Callable] = {"X @ w": product(X), "X @ w, one thread": product(X, 1)}
    for measure in ("ba", "kld", "bakld", "q"):
        tasks[f"pass, {measure}"] = one_pass(X, y, measure)
    tasks["pass, q, logistic"] = one_pass(X, y, "q", reward="logistic")
    tasks["fit, q"] = fitting(NEMSISClassifier("q", **ONE), X, y)
    tasks["SGDClassifier.fit"] = fitting(sgd(), X, y)
    if importlib.util.find_spec("vowpalwabbit"):
        tasks["Vowpal Wabbit"] = vowpal_wabbit(X, y)
    best = best_of(repeats, **tasks)
    return BenchTable(
        "dense",
        f"One fully shuffled pass, dense {n_rows:,} x 54 float64",
        compared(best, "X @ w, one thread", "X @ w", "SGDClassifier.fit"),
    )


def sparse(n_rows: int, repeats: int) -> BenchTable:
    """Time one pass over CSR rows as wide as a bag of words."""
    n_rows = n_rows // 20
    X, y = bags(n_rows, 27_272, 130)
    tasks: dict[str, Callable] = {f"pass, {m}": one_pass(X, y, m) for m in ("kld", "q")}
    tasks["fit, q"] = fitting(NEMSISClassifier("q", **ONE), X, y)
    tasks["SGDClassifier.fit"] = fitting(sgd(), X, y)
    return BenchTable(
        "sparse",
        f"One fully shuffled pass, CSR {n_rows:,} x 27,272, {X.nnz / n_rows:.0f} nonzeros a row",
        compared(best_of(repeats, **tasks), "SGDClassifier.fit"),
    )


def classes(n_rows: int, repeats: int) -> BenchTable:
    """Time one pass over rows of several classes, next to baselines."""
    table = BenchTable("classes", "One fully shuffled pass over rows of several classes")
    few = min(n_rows, 14_000)
    cases = {
        f"26 classes, dense {few:,} x 16": gaussian_classes(few, 16, 26),
        f"7 classes, dense {n_rows * 4 // 5:,} x 54": gaussian_classes(n_rows * 4 // 5, 54, 7),
        f"20 classes, CSR {n_rows // 5:,} x 7,000": bags_of_classes(n_rows // 5, 20),
    }
    for name, (X, y) in cases.items():
        n = int(y.max()) + 1
        tasks: dict[str, Callable] = {"X @ W, one thread": product(X, 1, n)}
        for measure, reward in (("q", "hinge"), ("kld", "hinge"), ("q", "logistic")):
            tasks[f"pass, {measure}, {reward}"] = one_pass(X, y, measure, reward=reward)
        tasks["SGDClassifier.fit"] = fitting(sgd(), X, y)
        best = best_of(max(repeats // 2, 1), **tasks)
        for row in compared(best, "X @ W, one thread", "SGDClassifier.fit"):
            table.rows.append({"data": name, **row})
    table.note = (
        "SGDClassifier makes one pass for each class against the rest, with all of its fit."
    )
    return table


def width(n_rows: int, repeats: int) -> BenchTable:
    """Measure nanoseconds a row against the number of features: float64, float32, CSR, and baselines."""
    table = BenchTable("width", "One shuffled pass against the number of features")
    for d in WIDTHS:
        n = max(min(20 * n_rows // d, n_rows), 200)
        X, y = gaussian(n, d)
        single, full = X.astype(np.float32), scipy.sparse.csr_matrix(X)
        tasks: dict[str, Callable] = {
            "NEMSIS, float64": one_pass(X, y),
            "NEMSIS, float32": one_pass(single, y),
            "NEMSIS, CSR": one_pass(full, y),
            "SGDClassifier": fitting(sgd(), X, y),
            "X @ w": product(X, 1),
        }
        best = best_of(repeats, **tasks)
        table.rows.append({"features": d, **{k: 1e9 * s / n for k, s in best.items()}})
    table.note = "Nanoseconds a row. All features are nonzero; X @ w on one thread; SGDClassifier with all of its fit."
    return table


def nonzeros(n_rows: int, repeats: int) -> BenchTable:
    """Measure nanoseconds a row against the number of nonzeros of CSR rows 100,000 wide."""
    table = BenchTable("nonzeros", "One shuffled pass over CSR rows 100,000 wide")
    for number in NONZEROS:
        n = max(min(3 * n_rows // number, n_rows // 5), 200)
        X, y = bags(n, 100_000, number)
        tasks: dict[str, Callable] = {"NEMSIS": one_pass(X, y), "X @ w": product(X, 1)}
        best = best_of(repeats, **tasks, SGDClassifier=fitting(sgd(), X, y))
        table.rows.append({"nonzeros": number, **{k: 1e9 * s / n for k, s in best.items()}})
    table.note = "Nanoseconds a row; few rows for many nonzeros, so that the widths cost alike."
    return table


def _psi(x, y, p, theta):
    b2 = theta[0] * theta[0]
    return (1.0 + b2) * x * y / (b2 * x + y) if x > 0.0 and y > 0.0 else 0.0


def _psi_gradient(x, y, p, theta):
    b2 = theta[0] * theta[0]
    x, y = max(x, 1e-12), max(y, 1e-12)
    inverse = 1.0 / (b2 * x + y)
    return (1.0 + b2) * (y * inverse) ** 2, (1.0 + b2) * b2 * (x * inverse) ** 2


def _ba(P, N, p, theta):
    return 0.5 * (P + N)


def _ba_gradient(P, N, p, theta):
    return 0.5, 0.5


def _nss(P, N, p, theta):
    return 1.0 - (p * (1.0 - P) - (1.0 - p) * (1.0 - N)) ** 2


def _nss_gradient(P, N, p, theta):
    d = p * (1.0 - P) - (1.0 - p) * (1.0 - N)
    return 2.0 * p * d, -2.0 * (1.0 - p) * d


def custom(n_rows: int, repeats: int) -> BenchTable:
    """Time a custom Q-measure against the built-in one, on rows so short that the measure is much of the work."""
    X, y = gaussian(n_rows, 10)
    gradients = (_psi_gradient, _ba_gradient, _nss_gradient)
    measures = {
        "built-in": QMeasure(1.0),
        "custom, with gradients": NestedConcave(_psi, _ba, _nss, [1.0], gradients=gradients),
        "custom, without": NestedConcave(_psi, _ba, _nss, [1.0]),
    }
    tasks = {name: one_pass(X, y, measure) for name, measure in measures.items()}
    return BenchTable(
        "custom",
        f"A custom measure: the Q-measure, one shuffled pass, dense {n_rows:,} x 10",
        compared(best_of(repeats, **tasks), "built-in"),
    )


def side_by_side(n_rows: int, repeats: int) -> BenchTable:
    """Time learners that take each row together, of different step sizes or of folds, against one learner alone."""
    # The only benchmark of something that users do not call by itself.
    from quapy_nemsis._kernels.rows import as_rows
    from quapy_nemsis.learners.nemsis import NemsisState

    several, texts = gaussian_classes(n_rows // 10, 54, 7), bags_of_classes(n_rows // 10, 7)
    cases = {
        "dense, hinge": (*gaussian(n_rows // 2), "q", "hinge"),
        "dense, logistic": (*gaussian(n_rows // 2), "ba", "logistic"),
        "CSR, logistic": (*bags(max(n_rows // 20, 1000), 27_272, 130), "ba", "logistic"),
        "7 classes, dense": (several[0], several[1].astype(np.int32), "ba", "logistic"),
        "7 classes, CSR": (texts[0], texts[1].astype(np.int32), "ba", "logistic"),
    }
    table = BenchTable("side by side", "Learners side by side, one shuffled pass")
    for case, (X, y, measure, reward) in cases.items():
        n_classes = 2 if y.dtype == bool else 7
        rows, rng = as_rows(X), np.random.default_rng(0)
        order, parts = rng.permutation(len(y)), rng.integers(0, 5, len(y)).astype(np.int8)

        def learn(
            number: int, folds: bool = False, of: tuple = (X, y, rows, order, parts, n_classes)
        ) -> None:
            X, y, rows, order, parts, n_classes = of
            steps = [0.1] if number == 1 else np.geomspace(1e-3, 1.0, number).tolist()
            learners = (
                NEMSISClassifier(measure, reward=reward, **{**ONE, "eta0": step})  # noqa: B023
                for step in steps
            )
            states = [
                NemsisState.start(X.shape[1], n_classes, learner.settings(n_classes))
                for learner in learners
            ]
            if folds:
                NemsisState.learn_parts(states, rows, y, order, parts)
            else:
                NemsisState.learn_together(states, rows, y, order)

        tasks: dict[str, Callable] = {
            str(number): partial(learn, number) for number in (1, 5, 10, 20, 40)
        }
        tasks["5 of folds"] = partial(learn, 5, True)
        learn(1)
        for name, seconds in (best := best_of(max(repeats // 2, 1), **tasks)).items():
            row = {"data": case, "learners": name, "ms": 1e3 * seconds}
            table.rows.append({**row, "/ one": seconds / best["1"]})
    return table
