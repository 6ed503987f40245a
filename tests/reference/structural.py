"""Slow, plain reference of structural SVMs for quantification, for use in tests only.

Labels are boolean arrays (True = positive).  For a labelling ``ybar`` of rows labelled ``y``,
with signs ``Y`` and ``Ybar`` in {-1, +1} and scores ``f(x) = w.x + b``::

    H(ybar; w, b) = delta(ybar) - (1/n) sum_i (Y_i - Ybar_i) f(x_i)
    J(w, b)       = (|w|^2 + b^2) / (2 C) + max over all ybar of H(ybar; w, b)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, nnls

Loss = str | Callable[[int, int, int, int], float]

LOSSES = ("01", "f1", "ba", "kld", "nkld", "ae", "rae", "qrecall", "qacc", "qf1", "qgm")


def delta(loss: Loss, FN: int, FP: int, n_pos: int, n_neg: int) -> float:
    """Loss of a labelling with ``FN`` false negatives and ``FP`` false positives.

    ``loss`` is one of `LOSSES`, or a function of ``(FN, FP, n_pos, n_neg)``.  The named losses
    need both classes.
    """
    if callable(loss):
        return float(loss(FN, FP, n_pos, n_neg))
    if n_pos < 1 or n_neg < 1:
        raise ValueError("the named losses need both classes")
    n, d = n_pos + n_neg, FN - FP
    TP, TN = n_pos - FN, n_neg - FP
    recall, specificity = TP / n_pos, TN / n_neg
    accuracy = (TP + TN) / n
    f1 = 2 * TP / (2 * TP + FP + FN)

    if loss == "01":
        return (FN + FP) / n
    if loss == "f1":
        return 1 - f1
    if loss == "ba":
        return 1 - (recall + specificity) / 2
    if loss == "kld":
        return _kld(n_pos, TP + FP, n)
    if loss == "nkld":
        e = math.exp(_kld(n_pos, TP + FP, n))
        return 2 * e / (1 + e) - 1
    if loss == "ae":
        return abs(d) / n
    if loss == "rae":
        return (abs(d) / (n_pos + 0.5) + abs(d) / (n_neg + 0.5)) / 2
    if loss in ("qrecall", "qacc", "qf1", "qgm"):
        c = {
            "qrecall": recall,
            "qacc": accuracy,
            "qf1": f1,
            "qgm": math.sqrt(recall * specificity),
        }[loss]
        s = 1 - abs(d) / max(n_pos, n_neg)
        return 1.0 if c + s == 0 else 1 - 2 * c * s / (c + s)
    raise ValueError(f"unknown loss {loss!r}")


def _kld(n_true: int, n_predicted: int, n: int) -> float:
    """Smoothed Kullback-Leibler divergence of two prevalences given as counts out of ``n``."""
    eps = 1 / (2 * n)

    def smooth(v: float) -> float:
        return (v + eps) / (1 + 2 * eps)

    total = 0.0
    for p, p_hat in ((n_true / n, n_predicted / n), ((n - n_true) / n, (n - n_predicted) / n)):
        total += smooth(p) * math.log(smooth(p) / smooth(p_hat))
    return total


def _signs(y: np.ndarray) -> np.ndarray:
    """-1.0 or +1.0 for every label."""
    return np.where(np.asarray(y, dtype=bool), 1.0, -1.0)


def _delta_of_labelling(loss: Loss, y: np.ndarray, ybar: np.ndarray) -> float:
    """`delta` of the counts of a labelling."""
    FN = int(np.sum(y & ~ybar))
    FP = int(np.sum(~y & ybar))
    return delta(loss, FN, FP, int(np.sum(y)), int(np.sum(~y)))


def _all_labellings(n: int) -> Iterator[np.ndarray]:
    """All ``2^n`` boolean arrays of length ``n``."""
    for bits in itertools.product((False, True), repeat=n):
        yield np.array(bits, dtype=bool)


def most_violated_by_labellings(
    scores: np.ndarray, y: np.ndarray, loss: Loss
) -> tuple[float, np.ndarray]:
    """Maximum of H over all ``2^n`` labellings, by enumeration, and a labelling reaching it."""
    scores, y = np.asarray(scores, dtype=float), np.asarray(y, dtype=bool)
    best_value, best_ybar = -math.inf, y
    for ybar in _all_labellings(len(y)):
        value = _delta_of_labelling(loss, y, ybar) - np.mean((_signs(y) - _signs(ybar)) * scores)
        if value > best_value:
            best_value, best_ybar = float(value), ybar
    return best_value, best_ybar


def _flip_orders(scores: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the positives by rising and of the negatives by falling score.

    Rows of equal score stay in the given order.
    """
    positives, negatives = np.flatnonzero(y), np.flatnonzero(~y)
    positives = positives[np.argsort(scores[positives], kind="stable")]
    negatives = negatives[np.argsort(-scores[negatives], kind="stable")]
    return positives, negatives


def most_violated_by_counts(
    scores: np.ndarray, y: np.ndarray, loss: Loss
) -> tuple[float, int, int]:
    """Maximum of H over all counts ``(FN, FP)``, and counts reaching it.

    The best labelling of given counts flips the ``FN`` positives of lowest and the ``FP``
    negatives of highest score.  Of tied counts the first is kept (lowest FN, then lowest FP).
    """
    scores, y = np.asarray(scores, dtype=float), np.asarray(y, dtype=bool)
    positives, negatives = _flip_orders(scores, y)
    n, n_pos, n_neg = len(y), len(positives), len(negatives)
    lowest_pos = [float(np.sum(scores[positives[:k]])) for k in range(n_pos + 1)]
    highest_neg = [float(np.sum(scores[negatives[:k]])) for k in range(n_neg + 1)]
    best_value, best_FN, best_FP = -math.inf, 0, 0
    for FN in range(n_pos + 1):
        for FP in range(n_neg + 1):
            # Y - Ybar is +2 for a flipped positive and -2 for a flipped negative
            margin = 2 * (lowest_pos[FN] - highest_neg[FP]) / n
            value = delta(loss, FN, FP, n_pos, n_neg) - margin
            if value > best_value:
                best_value, best_FN, best_FP = value, FN, FP
    return best_value, best_FN, best_FP


def objective(X: np.ndarray, y: np.ndarray, w: np.ndarray, b: float, C: float, loss: Loss) -> float:
    """The objective ``J(w, b)``."""
    X, w = np.asarray(X, dtype=float), np.asarray(w, dtype=float)
    worst, _, _ = most_violated_by_counts(X @ w + b, y, loss)
    return float((w @ w + b * b) / (2 * C) + worst)


def solve(
    X: np.ndarray, y: np.ndarray, C: float, loss: Loss, fit_intercept: bool = True
) -> tuple[np.ndarray, float, float]:
    """Minimum of J for small ``n``: a QP with one constraint for each of the ``2^n`` labellings.

    Returns the minimiser ``w, b`` and ``J(w, b)``.
    """
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=bool)
    n, d = X.shape
    features = np.column_stack([X, np.ones(n)]) if fit_intercept else X
    deltas, psis = [], []  # H(ybar; u) = delta - psi . u  with  u = (w, b)
    for ybar in _all_labellings(n):
        deltas.append(_delta_of_labelling(loss, y, ybar))
        psis.append((_signs(y) - _signs(ybar)) @ features / n)
    u = _solve_qp(np.array(deltas), np.array(psis), C)
    w, b = u[:d], float(u[d]) if fit_intercept else 0.0
    return w, b, objective(X, y, w, b, C, loss)


def _solve_qp(deltas: np.ndarray, psis: np.ndarray, C: float) -> np.ndarray:
    """Minimiser of ``|u|^2 / (2 C) + xi`` subject to ``xi >= deltas - psis @ u``.

    With ``u = sqrt(C) v`` and ``A = sqrt(C) psis``, proximal steps minimise
    ``|v|^2 / 2 + xi + (mu / 2) (xi - xi_old)^2``.  Each is a least distance problem,
    "min |z| subject to G z >= h" with ``z = (v, sqrt(mu) (xi - c))``, ``c = xi_old - 1/mu``,
    solved by NNLS (Lawson and Hanson, chapter 23).  However found, the answer is certified: any
    ``alpha >= 0`` of sum 1 gives the dual bound ``alpha.deltas - |alpha A|^2 / 2`` from below.
    """
    A, mu, xi = math.sqrt(C) * psis, 0.01, float(np.max(deltas))
    G = np.column_stack([A, np.full(len(A), 1 / math.sqrt(mu))])
    upper, lower, best_v = math.inf, -math.inf, np.zeros(A.shape[1])
    for _ in range(100):
        E = np.vstack([G.T, deltas - (xi - 1 / mu)])
        f = np.append(np.zeros(G.shape[1]), 1.0)
        multipliers, _ = nnls(E, f, maxiter=100 * len(A))
        r = E @ multipliers - f
        v = -r[:-2] / r[-1]
        xi = float(np.max(deltas - A @ v))
        if v @ v / 2 + xi < upper:
            upper, best_v = v @ v / 2 + xi, v
        alpha = multipliers / np.sum(multipliers)
        lower = max(lower, alpha @ deltas - np.sum((alpha @ A) ** 2) / 2)
        if upper - lower < 1e-14:
            break
    if (
        upper - lower > 1e-7
    ):  # older versions of nnls give up early: another method goes on from there
        best_v = _solve_primal(deltas, A, best_v)
    return math.sqrt(C) * best_v


def _solve_primal(deltas: np.ndarray, A: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Minimiser of ``|v|^2 / 2 + xi`` subject to ``xi >= deltas - A @ v``, by SLSQP."""
    found = minimize(
        lambda z: z[:-1] @ z[:-1] / 2 + z[-1],
        np.append(v, np.max(deltas - A @ v)),
        jac=lambda z: np.append(z[:-1], 1.0),
        constraints={
            "type": "ineq",
            "fun": lambda z: z[-1] - deltas + A @ z[:-1],
            "jac": lambda z: np.column_stack([A, np.ones(len(A))]),
        },
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return found.x[:-1]


@dataclass
class OnePass:
    """Model of `one_pass_mini_batch`, and ``(w, b)`` after each step."""

    coef: np.ndarray
    intercept: float
    iterates: list[tuple[np.ndarray, float]]


def one_pass_mini_batch(
    X: np.ndarray,
    y: np.ndarray,
    loss: Loss,
    eta0: float,
    radius: float,
    buffer_size: int,
    average: str = "all",
    fit_intercept: bool = True,
) -> OnePass:
    """One pass of projected subgradient steps, one for each full buffer of rows in order.

    ``average`` is "last", "all" or "suffix".  Rows left over at the end are not used.  Of tied
    counts the first is taken, as in `most_violated_by_counts`.
    """
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=bool)
    m = buffer_size
    w, b = np.zeros(X.shape[1]), 0.0
    iterates: list[tuple[np.ndarray, float]] = []
    T = len(y) // m
    for t in range(1, T + 1):
        X_t, y_t = X[(t - 1) * m : t * m], y[(t - 1) * m : t * m]
        if np.any(y_t) and np.any(~y_t):
            scores = X_t @ w + b
            _, FN, FP = most_violated_by_counts(scores, y_t, loss)
            positives, negatives = _flip_orders(scores, y_t)
            ybar = y_t.copy()
            ybar[positives[:FN]] = False
            ybar[negatives[:FP]] = True
            difference = _signs(y_t) - _signs(ybar)
            eta = eta0 / math.sqrt(t)
            w = w + eta * (difference @ X_t) / m
            norm = float(np.linalg.norm(w))
            if norm > radius:
                w = w * (radius / norm)
            if fit_intercept:
                b = b + eta * float(np.sum(difference)) / m
        iterates.append((w.copy(), b))

    if T == 0:
        return OnePass(w, b, iterates)
    suffix = max(2 ** (T.bit_length() - 1) // 2, 1)  # T.bit_length() - 1 = floor(log2 T)
    first = {"last": T, "all": 1, "suffix": suffix}[average]
    kept = iterates[first - 1 :]
    coef = np.mean([w_t for w_t, _ in kept], axis=0)
    intercept = float(np.mean([b_t for _, b_t in kept]))
    return OnePass(coef, intercept, iterates)
