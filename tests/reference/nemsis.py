"""Slow and obvious NEMSIS, an independent check of faster implementations.

Kar, Li, Narasimhan, Chawla, Sebastiani, *Online Optimization Methods for the Quantification
Problem*, KDD 2016, Algorithm 1 ("the listing"; "line k" below is its k-th numbered line).

Departures from the print: the hinge reward is ``min(1, m)`` (the paper prints ``max``, which is
convex); the duals of lines 15-17 are exact gradients; ``r`` is the mean over the points of each
class; p, n and epsilon are estimated from the points seen so far.  Line 7/10 plus line 13 add
``alpha . s - zeta*(alpha)`` to the sum of q, and since ``zeta*(grad zeta(r)) = grad zeta(r) . r -
zeta(r)`` that is the linearisation ``zeta(r) + grad zeta(r) . (s - r)`` of zeta at r.
"""

import math
from dataclasses import dataclass, field

import numpy as np

MEASURES = ("kld", "bakld", "q", "nss", "ba", "gmean", "hmean", "qmean")
DEFAULT_PARAMETER = {"bakld": 0.5, "q": 1.0}
TINY = 1e-12


@dataclass
class Result:
    """Outcome of one run: the averaged model, the final running means and all iterates."""

    coef: np.ndarray
    intercept: float
    P: float
    N: float
    q: np.ndarray
    t: int
    weights: list[tuple[np.ndarray, float]] = field(default_factory=list)


def smooth(v: float, eps: float) -> float:
    """Additive smoothing of a share of a two-class population."""
    return (v + eps) / (1.0 + 2.0 * eps)


def zeta(measure: str, P: float, N: float, p: float, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Values and gradients of the inner functions zeta1 and zeta2 at (P, N).

    Parameters
    ----------
    measure : str
        One of `MEASURES`.
    P, N : float
        Mean rewards on the positives and on the negatives.
    p, eps : float
        Share of positives and smoothing constant.

    Returns
    -------
    value : ndarray of shape (2,)
        (zeta1, zeta2).
    gradient : ndarray of shape (2, 2)
        Row i is (d zeta_i / dP, d zeta_i / dN): row 0 is alpha, row 1 is beta.
    """
    n = 1.0 - p
    zeta2, grad2 = 0.0, (0.0, 0.0)  # for the measures that need only zeta1
    ba, grad_ba = (P + N) / 2.0, (0.5, 0.5)  # balanced accuracy

    # NSS = 1 - d^2 with dd/dP = -p and dd/dN = +n.
    d = p * (1.0 - P) - n * (1.0 - N)
    nss, grad_nss = 1.0 - d * d, (2.0 * p * d, -2.0 * n * d)

    # Estimated prevalences, with dp_hat/dP = p, dp_hat/dN = -n, and the opposite for n_hat.
    p_hat = min(max(p * P + n * (1.0 - N), 0.0), 1.0)
    n_hat = 1.0 - p_hat

    if measure == "kld":
        # d ln s(v) / dv = 1 / (v + eps)
        zeta1, grad1 = math.log(smooth(p_hat, eps)), (p / (p_hat + eps), -n / (p_hat + eps))
        zeta2, grad2 = math.log(smooth(n_hat, eps)), (-p / (n_hat + eps), n / (n_hat + eps))
    elif measure == "bakld":
        zeta1, grad1 = ba, grad_ba
        sp, sn = smooth(p, eps), smooth(n, eps)
        sp_hat, sn_hat = smooth(p_hat, eps), smooth(n_hat, eps)
        zeta2 = -(sp * math.log(sp / sp_hat) + sn * math.log(sn / sn_hat))
        slope = sp / (p_hat + eps) - sn / (n_hat + eps)  # d(-KLD) / dp_hat
        grad2 = (p * slope, -n * slope)
    elif measure == "q":
        zeta1, grad1 = ba, grad_ba
        zeta2, grad2 = nss, grad_nss
    elif measure == "nss":
        zeta1, grad1 = nss, grad_nss
    elif measure == "ba":
        zeta1, grad1 = ba, grad_ba
    elif measure == "gmean":
        zeta1 = math.sqrt(max(P, 0.0) * max(N, 0.0))
        u, v = max(P, eps, TINY), max(N, eps, TINY)
        grad1 = (0.5 * math.sqrt(v / u), 0.5 * math.sqrt(u / v))
    elif measure == "hmean":
        u, v = max(P, 0.0), max(N, 0.0)
        zeta1 = 0.0 if u == 0.0 or v == 0.0 else 2.0 * u * v / (u + v)
        u, v = max(P, eps, TINY), max(N, eps, TINY)
        grad1 = (2.0 * v**2 / (u + v) ** 2, 2.0 * u**2 / (u + v) ** 2)
    elif measure == "qmean":
        root = math.sqrt(((1.0 - P) ** 2 + (1.0 - N) ** 2) / 2.0)
        zeta1 = 1.0 - root
        root = max(root, TINY)
        grad1 = ((1.0 - P) / (2.0 * root), (1.0 - N) / (2.0 * root))
    else:
        raise ValueError(f"unknown measure {measure!r}")
    return np.array([zeta1, zeta2]), np.array([grad1, grad2])


def psi(
    measure: str, parameter: float | None, x: float, y: float, p: float, eps: float
) -> tuple[float, np.ndarray]:
    """Value and gradient of the outer function Psi at (x, y); the gradient is gamma."""
    value = DEFAULT_PARAMETER.get(measure, 0.0) if parameter is None else parameter
    if measure == "kld":
        # -KLD(s(p) || s(p_hat)): the constant is the entropy of the smoothed (p, n).
        sp, sn = smooth(p, eps), smooth(1.0 - p, eps)
        return sp * (x - math.log(sp)) + sn * (y - math.log(sn)), np.array([sp, sn])
    if measure == "bakld":
        return value * x + (1.0 - value) * y, np.array([value, 1.0 - value])
    if measure == "q":
        b2 = value**2
        x, y = max(x, TINY), max(y, TINY)
        below = b2 * x + y
        gradient = np.array([(1.0 + b2) * (y / below) ** 2, (1.0 + b2) * b2 * (x / below) ** 2])
        return (1.0 + b2) * x * y / below, gradient
    return x, np.array([1.0, 0.0])


def reward_and_slope(reward: str, m: float) -> tuple[float, float]:
    """Surrogate reward r(m) at margin m and its derivative r'(m)."""
    if reward == "hinge":
        return min(1.0, m), 1.0 if m < 1.0 else 0.0
    if reward == "logistic":
        small = math.exp(-abs(m))  # never overflows
        if m >= 0.0:
            return 1.0 - math.log1p(small), small / (1.0 + small)
        return 1.0 + m - math.log1p(small), 1.0 / (1.0 + small)
    raise ValueError(f"unknown reward {reward!r}")


def averaged(weights: list[tuple[np.ndarray, float]], average: str) -> tuple[np.ndarray, float]:
    """Model returned on line 20: the last iterate, or the mean of all or of the last ones."""
    T = len(weights)
    if average == "last":
        first = T
    elif average == "all":
        first = 1
    elif average == "suffix":
        power = 1
        while 2 * power <= T:
            power *= 2
        first = max(power // 2, 1)
    else:
        raise ValueError(f"unknown average {average!r}")
    kept = weights[first - 1 :]  # iterates are numbered from 1
    return np.mean([w for w, _ in kept], axis=0), float(np.mean([b for _, b in kept]))


def nemsis(
    X: np.ndarray,
    y: np.ndarray,
    *,
    measure: str,
    parameter: float | None = None,
    reward: str = "hinge",
    counts: bool = True,
    monotone: bool = True,
    eta0: float = 0.1,
    radius: float = math.inf,
    bound: float = 1.0,
    average: str = "suffix",
    fit_intercept: bool = True,
) -> Result:
    """Run NEMSIS once over the rows of X in the given order.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Points, at least one.
    y : ndarray of shape (n,)
        True for the positives.
    measure : str
        One of `MEASURES`.
    parameter : float, optional
        C of "bakld" (default 0.5), beta of "q" (default 1); the other measures ignore it.
    reward : {"hinge", "logistic"}
        Surrogate whose gradient the primal step follows.
    counts : bool
        Estimate P and N with 0-1 rewards (True) or with the clipped surrogate (False).
    monotone : bool
        Replace negative class weights by zero.
    eta0, radius, bound : float
        Step size, radius of the ball for w, lower clip (-bound) of the surrogate estimates.
    average : {"suffix", "all", "last"}
        Which iterates the returned model averages.
    fit_intercept : bool
        Learn an intercept, which is never projected. Its step is that of a feature of value 1, times the mean of
        min(‖x‖², 1) over the points so far.
    """
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=bool)
    if len(X) == 0:
        raise ValueError("no points")
    # Line 1.
    w, b = np.zeros(X.shape[1]), 0.0
    n_seen = {True: 0, False: 0}  # points of each class
    r_sum = {True: 0.0, False: 0.0}  # sums of the estimate-rewards of each class
    r = np.zeros(2)  # (P, N)
    q_sum, q = np.zeros(2), np.zeros(2)
    weights: list[tuple[np.ndarray, float]] = []

    for t, (x, positive) in enumerate(
        zip(X, y.tolist(), strict=True), start=1
    ):  # lines 2, 3 and 18
        n_seen[positive] += 1
        p, eps = n_seen[True] / t, 1.0 / (2.0 * t)
        c, sign, p_y = (0, 1.0, p) if positive else (1, -1.0, 1.0 - p)

        # Lines 15-17 of the step before, with the p, n and eps of this one.
        zetas, (alpha, beta) = zeta(measure, r[0], r[1], p, eps)
        _, gamma = psi(measure, parameter, q[0], q[1], p, eps)

        m = sign * (float(w @ x) + b)
        surrogate, slope = reward_and_slope(reward, m)

        # Lines 6 and 9.  Line 1 starts from zero duals, so the first point moves nothing.
        if t > 1:
            a = gamma[0] * alpha[c] + gamma[1] * beta[c]
            if monotone:
                a = max(a, 0.0)
            step = eta0 / math.sqrt(t) * (a / p_y) * slope * sign
            w = w + step * x
            if fit_intercept:
                b += step * float(np.minimum(np.sum(X[:t] ** 2, axis=1), 1.0).mean())
            norm = float(np.linalg.norm(w))
            if norm > radius:
                w = w * (radius / norm)
        weights.append((w.copy(), b))

        # Lines 7, 10 and 13: the reward is that of the model before the step.
        e = (1.0 if m > 0.0 else 0.0) if counts else max(surrogate, -bound)
        s = np.zeros(2)
        s[c] = e / p_y
        q_sum = q_sum + zetas + np.array([alpha @ (s - r), beta @ (s - r)])
        q = q_sum / t

        # Line 12, as the mean over the points of the class.
        r_sum[positive] += e
        r[c] = r_sum[positive] / n_seen[positive]

    coef, intercept = averaged(weights, average)  # line 20
    return Result(coef, intercept, float(r[0]), float(r[1]), q, len(weights), weights)
