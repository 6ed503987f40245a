"""Quality on test rows against seconds of training."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from quapy_nemsis import SVMPerfClassifier, get_loss

#: The candidates for C, the weight of the loss of a structural SVM.
CS = tuple(10.0**k for k in range(5))
_MOST_ROWS = 50_000


def marks(n_rows: int, n_passes: int) -> list[int]:
    """Numbers of points at which a curve is looked at: 500, half as many more each time, and all of them."""
    found, total = [500], n_rows * n_passes
    while found[-1] < total:
        found.append(int(1.5 * found[-1]))
    return [*(mark for mark in found if mark <= total), total]


def online_curve(
    learner: Any, X: Any, y: np.ndarray, n_passes: int, seed: int
) -> Iterator[tuple[float, Any]]:
    """Yield an online learner at growing numbers of points, with the seconds of its `partial_fit` so far.

    Its step size and radius are chosen beforehand, on all rows: the time is that of the training alone.
    """
    chosen = clone(learner).set_params(random_state=seed).fit(X, y)
    learner = clone(learner).set_params(eta0=chosen.eta0_, radius=chosen.radius_)
    return partial_curve(learner, X, y, n_passes, seed)


def partial_curve(
    learner: Any, X: Any, y: np.ndarray, n_passes: int, seed: int
) -> Iterator[tuple[float, Any]]:
    """Yield a learner that has a `partial_fit`, at growing numbers of points, with the seconds of it so far."""
    rng = np.random.default_rng(seed)
    classes = np.unique(y)
    seconds, seen, places = 0.0, 0, iter(marks(len(y), n_passes))
    mark = next(places)
    for _ in range(n_passes):
        order = rng.permutation(len(y))
        done = 0
        while done < len(y):
            part = order[done : done + mark - seen]
            chunk = X[part], y[part]
            begin = time.perf_counter()
            learner.partial_fit(*chunk, classes=classes)
            seconds += time.perf_counter() - begin
            done, seen = done + len(part), seen + len(part)
            if seen == mark:
                yield seconds, learner
                mark = next(places, seen)


def choose_C(loss: str, X: Any, y: np.ndarray, seed: int) -> float:
    """Return the C of the least loss on held-out rows, a fifth of at most 50,000 rows."""
    if len(y) > _MOST_ROWS:
        X, _, y, _ = train_test_split(X, y, train_size=_MOST_ROWS, stratify=y, random_state=seed)
    X_fit, X_held, y_fit, y_held = train_test_split(
        X, y, test_size=0.2, stratify=y, random_state=seed
    )
    learner = SVMPerfClassifier(loss, tol=1e-2, warm_start=True)
    value = get_loss(loss).score
    losses = [value(y_held, learner.set_params(C=C).fit(X_fit, y_fit).predict(X_held)) for C in CS]
    return CS[int(np.argmin(losses))]


def structural_curve(
    learner: SVMPerfClassifier, X: Any, y: np.ndarray
) -> Iterator[tuple[float, SVMPerfClassifier]]:
    """Yield the learner after 1, 2, 3, 5, 8 … cutting planes, each from the beginning, with the seconds it took."""
    planes, last = 1, 1
    while True:
        stage = clone(learner).set_params(max_iter=planes)
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            stage.fit(X, y)
        yield time.perf_counter() - begin, stage
        if stage.gap_ <= stage.tol or planes >= learner.max_iter:
            return
        planes, last = min(planes + last, learner.max_iter), planes
