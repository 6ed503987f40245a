"""Slow and obvious SCAN and CAN, an independent check of faster implementations.

Kar, Li, Narasimhan, Chawla, Sebastiani, *Online Optimization Methods for the Quantification
Problem*, KDD 2016, Algorithms 2 (CAN) and 3 (SCAN).

Departures from the print: the level of a model is where its valuation is zero (line 5 of
Algorithm 2 prints ``V >= v``); BKReward divides by 1 + KLD (the table prints KLD); SCAN keeps the
weights it learned (line 11 of Algorithm 3 restores the old ones) and does not restart its step
counter; the rewards of a level phase are averaged per class (line 16 leaves them summed).
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from tests.reference.nemsis import averaged, psi, reward_and_slope, smooth, zeta

RATIOS = ("cq", "bk")  # value = P_class / P_quant; every other measure is nested concave


@dataclass
class ScanResult:
    """Outcome of `scan`: the model, the level after each level phase, the learning iterates."""

    coef: np.ndarray
    intercept: float
    levels: list[float]
    weights: list[tuple[np.ndarray, float]]
    t: int


@dataclass
class CanResult:
    """Outcome of `can`: the last model and the levels v_1, v_2, ... (v_0 is not listed)."""

    coef: np.ndarray
    intercept: float
    levels: list[float]


def class_and_quant(
    measure: str, P: float, N: float, p: float, eps: float
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """P_class and P_quant of a ratio measure, and their gradients by (P, N)."""
    n = 1.0 - p
    if measure == "cq":
        d = p * (1.0 - P) - n * (1.0 - N)  # dd/dP = -p, dd/dN = +n
        p_quant, grad_quant = 1.0 + d * d, 2.0 * d * np.array([-p, n])
    elif measure == "bk":
        p_hat = min(max(p * P + n * (1.0 - N), 0.0), 1.0)  # dp_hat/dP = p, dp_hat/dN = -n
        n_hat = 1.0 - p_hat
        sp, sn = smooth(p, eps), smooth(n, eps)
        kld = sp * math.log(sp / smooth(p_hat, eps)) + sn * math.log(sn / smooth(n_hat, eps))
        slope = -sp / (p_hat + eps) + sn / (n_hat + eps)  # dKLD / dp_hat, if nothing was clipped
        p_quant, grad_quant = 1.0 + kld, slope * np.array([p, -n])
    else:
        raise ValueError(f"unknown measure {measure!r}")
    return (P + N) / 2.0, p_quant, np.array([0.5, 0.5]), grad_quant


def valuation(
    measure: str, level: float, P: float, N: float, p: float, eps: float
) -> tuple[float, np.ndarray]:
    """Valuation of a ratio measure, or a nested measure itself; and its gradient (a+, a-)."""
    if measure in RATIOS:
        p_class, p_quant, grad_class, grad_quant = class_and_quant(measure, P, N, p, eps)
        return p_class - level * p_quant, grad_class - level * grad_quant
    zetas, gradients = zeta(measure, P, N, p, eps)
    outer, gamma = psi(measure, None, zetas[0], zetas[1], p, eps)
    return outer, gamma @ gradients


def value(measure: str, P: float, N: float, p: float, eps: float) -> float:
    """Value of a measure at (P, N)."""
    if measure in RATIOS:
        p_class, p_quant, _, _ = class_and_quant(measure, P, N, p, eps)
        return p_class / p_quant
    return valuation(measure, 0.0, P, N, p, eps)[0]


def scan(
    X: np.ndarray,
    y: np.ndarray,
    *,
    measure: str,
    reward: str = "hinge",
    counts: bool = True,
    monotone: bool = True,
    eta0: float = 0.1,
    radius: float = math.inf,
    bound: float = 1.0,
    average: str = "suffix",
    fit_intercept: bool = True,
    first_epoch: float = 100,
    growth: float = 2.0,
    level_share: float = 0.25,
) -> ScanResult:
    """Run SCAN once over the rows of X in the given order.

    Parameters
    ----------
    X, y, reward, counts, monotone, eta0, radius, bound, average, fit_intercept
        As in `tests.reference.nemsis.nemsis`.
    measure : {"cq", "bk"}
        Ratio measure.
    first_epoch, growth, level_share : float
        Epoch e learns from ``round(first_epoch * growth**e)`` points, s say, and then estimates
        the level on ``max(1, round(level_share * s))`` points; halves round to even.  A level
        phase that the end of the stream cuts short yields no level.
    """
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=bool)
    w, b, v = np.zeros(X.shape[1]), 0.0, 0.0
    t = 0  # learning points so far
    squares = 0.0  # of their norms, at most 1 each
    n_seen = {True: 0, False: 0}  # learning points of each class
    r_sum = {True: 0.0, False: 0.0}  # sums of their estimate-rewards
    weights: list[tuple[np.ndarray, float]] = []
    levels: list[float] = []
    row = 0  # next row of the stream; the epoch is len(levels)

    while row < len(X):
        # Learning phase: NEMSIS on V(., v).
        size = round(first_epoch * growth ** len(levels))
        for x, positive in zip(X[row : row + size], y[row : row + size].tolist(), strict=True):
            # The class means of the rewards before this point.
            P, N = (r_sum[k] / n_seen[k] if n_seen[k] else 0.0 for k in (True, False))
            t += 1
            squares += min(float(x @ x), 1.0)
            n_seen[positive] += 1
            p, eps = n_seen[True] / t, 1.0 / (2.0 * t)
            c, sign, p_y = (0, 1.0, p) if positive else (1, -1.0, 1.0 - p)
            m = sign * (float(w @ x) + b)
            surrogate, slope = reward_and_slope(reward, m)
            if t > 1:
                a = float(valuation(measure, v, P, N, p, eps)[1][c])
                a = max(a, 0.0) if monotone else a
                step = eta0 / math.sqrt(t) * (a / p_y) * slope * sign
                w = w + step * x
                b = b + step * squares / t if fit_intercept else b
                norm = float(np.linalg.norm(w))
                if norm > radius:
                    w = w * (radius / norm)
            weights.append((w.copy(), b))
            # The reward is that of the model before the step.
            r_sum[positive] += (1.0 if m > 0.0 else 0.0) if counts else max(surrogate, -bound)
        row += size

        # Level phase: nothing is learned.
        wanted = max(1, round(level_share * size))
        if row + wanted > len(X):
            break
        coef, intercept = averaged(weights, average)
        found: dict[bool, list[float]] = {True: [], False: []}
        for x, positive in zip(X[row : row + wanted], y[row : row + wanted].tolist(), strict=True):
            m = (1.0 if positive else -1.0) * (float(coef @ x) + intercept)
            surrogate, _ = reward_and_slope(reward, m)
            found[positive].append(float(m > 0.0) if counts else max(surrogate, -bound))
        row += wanted
        if found[True] and found[False]:
            p, eps = n_seen[True] / t, 1.0 / (2.0 * t)
            P, N = sum(found[True]) / len(found[True]), sum(found[False]) / len(found[False])
            v = min(max(value(measure, P, N, p, eps), 0.0), value(measure, 1.0, 1.0, p, eps))
        levels.append(v)

    coef, intercept = averaged(weights, average) if weights else (w, b)
    return ScanResult(coef, intercept, levels, weights, len(X))


def batch_rewards(Z: np.ndarray, y: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Mean logistic rewards over all rows: (P, N) in column 0, gradients by theta in the rest."""
    result = []
    for rows, sign in ((Z[y], 1.0), (Z[~y], -1.0)):
        m = sign * (rows @ theta)
        slopes = np.exp(-np.logaddexp(0.0, m))  # r'(m) = 1 / (1 + e^m)
        gradient = sign * np.mean(slopes[:, None] * rows, axis=0)
        result.append([np.mean(1.0 - np.logaddexp(0.0, -m)), *gradient])
    return np.array(result)


def valuation_optimum(
    Z: np.ndarray, y: np.ndarray, d: int, measure: str, level: float, radius: float
) -> np.ndarray:
    """Maximise the valuation (or a nested measure) with SLSQP over ||theta[:d]|| <= radius.

    The best of runs from zero and from six random points, as the problem need not be concave.
    Each run starts SLSQP again from where it stopped, with a fresh Hessian.
    """
    p, eps = float(np.mean(y)), 1.0 / (2.0 * len(y))

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        rewards = batch_rewards(Z, y, theta)
        result, a = valuation(measure, level, rewards[0, 0], rewards[1, 0], p, eps)
        return -result, -(a @ rewards[:, 1:])

    norm = (np.arange(Z.shape[1]) < d).astype(float)  # leaves the intercept out
    ball = {
        "type": "ineq",
        "fun": lambda theta: radius**2 - norm @ theta**2,
        "jac": lambda theta: -2.0 * norm * theta,
    }
    constraints = [ball] if math.isfinite(radius) else []
    options = {"ftol": 1e-15, "maxiter": 1000}
    best = np.zeros(Z.shape[1])
    for scale, noise in enumerate(np.random.default_rng(0).normal(size=(7, Z.shape[1]))):
        theta = noise * scale * min(1.0, radius) / (6.0 * math.sqrt(d))  # the first is zero
        for _ in range(5):
            theta = minimize(
                loss, theta, jac=True, method="SLSQP", constraints=constraints, options=options
            ).x
            theta[:d] *= min(1.0, radius / max(float(np.linalg.norm(theta[:d])), 1e-300))
        if loss(theta)[0] < loss(best)[0]:
            best = theta
    return best


def can(
    X: np.ndarray,
    y: np.ndarray,
    *,
    measure: str,
    radius: float = math.inf,
    fit_intercept: bool = True,
    tol: float = 1e-6,
    max_levels: int = 50,
) -> CanResult:
    """Run CAN with the logistic reward on all rows at once; both classes must occur.

    Parameters
    ----------
    X, y, radius, fit_intercept
        As in `tests.reference.nemsis.nemsis`.
    measure : str
        "cq", "bk", or a nested measure of `tests.reference.nemsis`, which needs one maximisation.
    tol, max_levels
        Stop when a level gains no more than `tol`, or after that many levels.
    """
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=bool)
    d, p, eps = X.shape[1], float(np.mean(y)), 1.0 / (2.0 * len(y))
    Z = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
    P, N = batch_rewards(Z, y, np.zeros(Z.shape[1]))[:, 0]
    v, levels = value(measure, P, N, p, eps), []
    while len(levels) < max_levels:
        theta = valuation_optimum(Z, y, d, measure, v, radius)
        P, N = batch_rewards(Z, y, theta)[:, 0]
        before, v = v, value(measure, P, N, p, eps)
        levels.append(float(v))
        if v - before <= tol or measure not in RATIOS:
            break
    return CanResult(theta[:d], float(theta[d]) if fit_intercept else 0.0, levels)
