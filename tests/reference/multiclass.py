"""Slow and obvious NEMSIS and SCAN for K classes, an independent check of faster implementations.

For two classes they are the learners of `tests.reference.nemsis` and `tests.reference.alternation`,
with ``w = W[1] - W[0]`` and ``b = b[1] - b[0]``.  Measures are functions of R, the mean reward of
each class, and of q, the share of the points that is predicted as each class.
"""

import math
from dataclasses import dataclass, field

import numpy as np

MEASURES = ("kld", "bakld", "q", "nss", "ba", "gmean", "hmean", "qmean")
RATIOS = ("cq", "bk")  # value = zeta1 / zeta2; their parameter is the level of the valuation
DEFAULT_PARAMETER = {"bakld": 0.5, "q": 1.0}
TINY = 1e-12


@dataclass
class Result:
    """Outcome of one run: the averaged model, the final running means and all iterates."""

    coef: np.ndarray
    intercept: np.ndarray
    R: np.ndarray
    q1q2: np.ndarray
    counted: np.ndarray
    t: int
    weights: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


@dataclass
class ScanResult:
    """Outcome of `scan`: the model, the level after each level phase, the learning iterates."""

    coef: np.ndarray
    intercept: np.ndarray
    levels: list[float]
    weights: list[tuple[np.ndarray, np.ndarray]]
    t: int


@dataclass
class Options:
    """What does not change during a run."""

    reward: str
    counts: bool
    monotone: bool
    eta0: float
    radius: float
    bound: float
    fit_intercept: bool


class State:
    """What a run remembers of the points it learned from."""

    def __init__(self, n_classes: int, n_features: int):
        self.W = np.zeros((n_classes, n_features))
        self.b = np.zeros(n_classes)
        self.rows = 0  # number of points
        self.T = 0.0  # their weight
        self.squares = 0.0  # weighted sum of their squared norms, at most 1 each
        self.m = np.zeros(n_classes)  # weight of each class
        self.r = np.zeros(n_classes)  # weighted sum of the rewards of each class
        self.u = np.zeros(n_classes)  # weight predicted as each class
        self.Q = np.zeros(2)  # weighted sums of the linearised zeta1 and zeta2
        self.weights: list[tuple[np.ndarray, np.ndarray]] = []


def kld_and_slopes(q: np.ndarray, p: np.ndarray, eps: float) -> tuple[float, np.ndarray]:
    """Smoothed KLD(p || q) and its gradient by q; q is first clipped to [0, 1]."""
    K = len(p)
    kld, slopes = 0.0, np.zeros(K)
    for j in range(K):
        q_j = min(max(float(q[j]), 0.0), 1.0)
        s_p = (float(p[j]) + eps) / (1.0 + K * eps)
        s_q = (q_j + eps) / (1.0 + K * eps)
        if s_p > 0.0:
            kld += s_p * math.log(s_p / s_q)
            slopes[j] = -s_p / (q_j + eps)  # d ln s(v) / dv = 1 / (v + eps)
    return kld, slopes


def zeta(
    measure: str, R: np.ndarray, q: np.ndarray, p: np.ndarray, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values and gradients of the inner functions zeta1 and zeta2 at (R, q).

    Parameters
    ----------
    measure : str
        One of `MEASURES` or `RATIOS`.
    R, q, p : ndarray of shape (K,)
        Mean reward, predicted share and true share of each class.
    eps : float
        Smoothing constant.

    Returns
    -------
    values : ndarray of shape (2,)
        (zeta1, zeta2).
    by_R, by_q : ndarray of shape (2, K)
        Row k is the gradient of zeta_k by R, or by q.
    """
    R, q, p = (np.asarray(v, dtype=np.float64) for v in (R, q, p))
    K = len(R)
    values, by_R, by_q = np.zeros(2), np.zeros((2, K)), np.zeros((2, K))

    ba, ba_by_R = float(np.sum(R)) / K, np.full(K, 1.0 / K)  # balanced accuracy
    distance = 0.5 * float(np.sum((p - q) ** 2))  # NSS = 1 - distance
    distance_by_q = q - p

    if measure == "kld":
        kld, slopes = kld_and_slopes(q, p, eps)
        values[0], by_q[0] = -kld, -slopes
    elif measure == "bakld":
        kld, slopes = kld_and_slopes(q, p, eps)
        values[0], by_R[0] = ba, ba_by_R
        values[1], by_q[1] = -kld, -slopes
    elif measure == "q":
        values[0], by_R[0] = ba, ba_by_R
        values[1], by_q[1] = 1.0 - distance, -distance_by_q
    elif measure == "nss":
        values[0], by_q[0] = 1.0 - distance, -distance_by_q
    elif measure == "ba":
        values[0], by_R[0] = ba, ba_by_R
    elif measure == "gmean":
        values[0] = np.prod(np.maximum(R, 0.0)) ** (1.0 / K)
        safe = np.maximum(R, max(eps, TINY))
        mean = np.prod(safe ** (1.0 / K))
        for j in range(K):
            by_R[0, j] = mean / (K * safe[j])
    elif measure == "hmean":
        values[0] = 0.0 if np.any(R <= 0.0) else K / np.sum(1.0 / R)
        safe = np.maximum(R, max(eps, TINY))
        mean = K / np.sum(1.0 / safe)
        for j in range(K):
            by_R[0, j] = mean**2 / (K * safe[j] ** 2)
    elif measure == "qmean":
        root = math.sqrt(float(np.sum((1.0 - R) ** 2)) / K)
        values[0] = 1.0 - root
        for j in range(K):
            by_R[0, j] = (1.0 - R[j]) / (K * max(root, TINY))
    elif measure == "cq":
        values[0], by_R[0] = ba, ba_by_R
        values[1], by_q[1] = 1.0 + distance, distance_by_q
    elif measure == "bk":
        kld, slopes = kld_and_slopes(q, p, eps)
        values[0], by_R[0] = ba, ba_by_R
        values[1], by_q[1] = 1.0 + kld, slopes
    else:
        raise ValueError(f"unknown measure {measure!r}")
    return values, by_R, by_q


def psi(measure: str, parameter: float | None, x: float, y: float) -> tuple[float, np.ndarray]:
    """Value and gradient of the outer function Psi at (x, y); of a ratio, the valuation."""
    number = DEFAULT_PARAMETER.get(measure, 0.0) if parameter is None else parameter
    if measure == "bakld":
        return number * x + (1.0 - number) * y, np.array([number, 1.0 - number])
    if measure == "q":
        b2 = number**2
        x, y = max(x, TINY), max(y, TINY)
        below = b2 * x + y
        gradient = np.array([(1.0 + b2) * (y / below) ** 2, (1.0 + b2) * b2 * (x / below) ** 2])
        return (1.0 + b2) * x * y / below, gradient
    if measure in RATIOS:
        return x - number * y, np.array([1.0, -number])
    return x, np.array([1.0, 0.0])


def value(
    measure: str,
    parameter: float | None,
    R: np.ndarray,
    q: np.ndarray,
    p: np.ndarray,
    eps: float,
) -> float:
    """Value of a measure at (R, q); of a ratio, the ratio, which has no parameter."""
    zetas, _, _ = zeta(measure, R, q, p, eps)
    if measure in RATIOS:
        return float(zetas[0] / zetas[1])
    return float(psi(measure, parameter, float(zetas[0]), float(zetas[1]))[0])


def rival(f: np.ndarray, i: int) -> int:
    """The class other than i of the highest score, the first of equals."""
    best = -1
    for j in range(len(f)):
        if j != i and (best < 0 or f[j] > f[best]):
            best = j
    return best


def softmax(f: np.ndarray) -> np.ndarray:
    """Softmax of scores, which never overflows."""
    powers = np.exp(f - np.max(f))
    return powers / np.sum(powers)


def reward_and_mass(
    f: np.ndarray, i: int, reward: str, counts: bool, bound: float
) -> tuple[float, np.ndarray]:
    """Reward of a point of class i with scores f, and where it counts as predicted (sum 1)."""
    K, j = len(f), rival(f, i)
    mass = np.zeros(K)
    if counts:
        rho = 1.0 if f[i] - f[j] > 0.0 else 0.0
        mass[j] = 1.0 - rho
    elif reward == "hinge":
        rho = max(min(1.0, float(f[i] - f[j])), -bound)
        mass[j] = 1.0 - rho
    elif reward == "logistic":
        highest = float(np.max(f))
        log_sum = highest + math.log(float(np.sum(np.exp(f - highest))))
        # ln(1 + sum exp(f_j - f_i)), in units in which equal scores have 1 - ln 2 for any K
        rho = max(1.0 - (log_sum - float(f[i])) * math.log(2.0) / math.log(len(f)), -bound)
        others = [j for j in range(K) if j != i]
        mass[others] = (1.0 - rho) * softmax(f[others])  # in proportion to the softmax of all
    else:
        raise ValueError(f"unknown reward {reward!r}")
    mass[i] = rho
    return rho, mass


def averaged(
    weights: list[tuple[np.ndarray, np.ndarray]], average: str
) -> tuple[np.ndarray, np.ndarray]:
    """The last iterate, or the mean of all or of the last ones."""
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
    return np.mean([W for W, _ in kept], axis=0), np.mean([b for _, b in kept], axis=0)


def class_means(r: np.ndarray, m: np.ndarray) -> np.ndarray:
    """Means from the sums r of classes of weight m; 0 for a class without points."""
    return np.array([r[j] / m[j] if m[j] > 0.0 else 0.0 for j in range(len(m))])


def learn(
    state: State,
    x: np.ndarray,
    i: int,
    c: float,
    measure: str,
    parameter: float | None,
    options: Options,
) -> None:
    """One step of NEMSIS, on a point x of class i and weight c."""
    K = len(state.m)

    # 1. The class means of the rewards before this point.
    R = class_means(state.r, state.m)

    # 2. The shares of the classes, this point included.
    T_old, T = state.T, state.T + c
    state.rows += 1
    state.m[i] += c
    p, eps = state.m / T, 1.0 / (2.0 * T)

    # 3. The predicted shares.  This point counts as its class did so far.
    expected = np.zeros(K)
    for j in range(K):
        expected[j] = R[i] if j == i else (1.0 - R[i]) / (K - 1)
    q = (state.u + c * expected) / T

    # 4. The gradients of the measure.
    Q = state.Q / T_old if T_old > 0.0 else np.zeros(2)
    zetas, by_R, by_q = zeta(measure, R, q, p, eps)
    _, gamma = psi(measure, parameter, float(Q[0]), float(Q[1]))
    alpha = gamma[0] * by_R[0] + gamma[1] * by_R[1]
    lam = gamma[0] * by_q[0] + gamma[1] * by_q[1]

    # 5. The scores before the step.
    f = state.W @ x + state.b
    state.squares += c * min(float(x @ x), 1.0)

    # 6. What it is worth to move this point from class j to its own.
    a = np.zeros(K)
    for j in range(K):
        if j != i:
            a[j] = alpha[i] / p[i] + lam[i] - lam[j]
            if options.monotone:
                a[j] = max(a[j], 0.0)

    # 7. The step; the very first point moves nothing.
    if state.rows > 1:
        h = options.eta0 / math.sqrt(T) * c
        factors = np.zeros(K)  # the other classes lose, class i gains
        if options.reward == "hinge":
            j = rival(f, i)
            if f[i] - f[j] < 1.0:
                factors[j] = -h * a[j] / 2.0
        elif options.reward == "logistic":
            s = softmax(f)
            for j in range(K):
                if j != i:
                    factors[j] = -h * a[j] * s[j] / 2.0
        else:
            raise ValueError(f"unknown reward {options.reward!r}")
        factors[i] = -np.sum(factors)
        for j in range(K):
            state.W[j] += factors[j] * x
            if options.fit_intercept:
                state.b[j] += factors[j] * state.squares / T
        norm = math.sqrt(2.0) * float(np.linalg.norm(state.W))
        if norm > options.radius:
            state.W *= options.radius / norm
    state.weights.append((state.W.copy(), state.b.copy()))

    # 8. The estimates, from the scores before the step.
    rho, mass = reward_and_mass(f, i, options.reward, options.counts, options.bound)

    # 9. zeta1 and zeta2, linearised at (R, q).
    S = np.zeros(K)
    S[i] = rho / p[i]
    for k in range(2):
        linear = zetas[k]
        for j in range(K):
            linear += by_R[k, j] * (S[j] - R[j])
            shift = ((1.0 if j == i else 0.0) - p[j]) / (K - 1)
            linear += by_q[k, j] * (mass[j] + shift - q[j])
        state.Q[k] += c * linear

    # 10. The sums.
    state.r[i] += c * rho
    state.u += c * mass
    state.T = T


def nemsis(
    X: np.ndarray,
    y: np.ndarray,
    n_classes: int,
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
    sample_weight: np.ndarray | None = None,
) -> Result:
    """Run NEMSIS once over the rows of X in the given order.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Points, at least one.
    y : ndarray of shape (n,)
        Their classes, from 0 to n_classes - 1.
    n_classes : int
        Number of classes, at least 2; not all need occur.
    measure : str
        One of `MEASURES` or `RATIOS`.
    parameter : float, optional
        C of "bakld" (default 0.5), beta of "q" (default 1), level of a ratio (default 0); the
        other measures ignore it.
    reward : {"hinge", "logistic"}
        Surrogate whose gradient the primal step follows: that of Crammer and Singer, or softmax.
    counts : bool
        Estimate R and q with 0-1 rewards (True) or with the clipped surrogate (False).
    monotone : bool
        Replace negative weights of a move between classes by zero.
    eta0, radius, bound : float
        Step size, radius of the ball for sqrt(2) W, lower clip (-bound) of the surrogate estimates.
    average : {"suffix", "all", "last"}
        Which iterates the returned model averages; each row has one, whatever its weight.
    fit_intercept : bool
        Learn intercepts, which are never projected.
    sample_weight : ndarray of shape (n,), optional
        Positive weights of the points, 1 by default.
    """
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y)
    if len(X) == 0:
        raise ValueError("no points")
    c = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    options = Options(reward, counts, monotone, eta0, radius, bound, fit_intercept)
    state = State(n_classes, X.shape[1])
    for row in range(len(X)):
        learn(state, X[row], int(y[row]), float(c[row]), measure, parameter, options)
    coef, intercept = averaged(state.weights, average)
    R = class_means(state.r, state.m)
    return Result(
        coef, intercept, R, state.Q / state.T, state.u / state.T, state.rows, state.weights
    )


def scan(
    X: np.ndarray,
    y: np.ndarray,
    n_classes: int,
    *,
    measure: str,
    first_epoch: float = 100,
    growth: float = 2.0,
    level_share: float = 0.25,
    reward: str = "hinge",
    counts: bool = True,
    monotone: bool = True,
    eta0: float = 0.1,
    radius: float = math.inf,
    bound: float = 1.0,
    average: str = "suffix",
    fit_intercept: bool = True,
    sample_weight: np.ndarray | None = None,
) -> ScanResult:
    """Run SCAN once over the rows of X in the given order.

    Parameters
    ----------
    X, y, n_classes, reward, counts, monotone, eta0, radius, bound, average, fit_intercept
        As in `nemsis`, and so is `sample_weight`.
    measure : {"cq", "bk"}
        Ratio measure.
    first_epoch, growth, level_share : float
        Epoch e learns from ``round(first_epoch * growth**e)`` rows, s say, and then estimates
        the level on ``max(1, round(level_share * s))`` rows; halves round to even.  A level
        phase that the end of the stream cuts short yields no level.
    """
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y)
    c = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    K = n_classes
    options = Options(reward, counts, monotone, eta0, radius, bound, fit_intercept)
    state = State(K, X.shape[1])
    v, levels = 0.0, []
    row = 0  # next row of the stream; the epoch is len(levels)

    while row < len(X):
        # Learning phase: NEMSIS on the valuation at level v.
        size = round(first_epoch * growth ** len(levels))
        for k in range(row, min(row + size, len(X))):
            learn(state, X[k], int(y[k]), float(c[k]), measure, v, options)
        row += size

        # Level phase: nothing is learned.
        wanted = max(1, round(level_share * size))
        if row + wanted > len(X):
            break
        coef, intercept = averaged(state.weights, average)
        weight, rewards, predicted = np.zeros(K), np.zeros(K), np.zeros(K)
        for k in range(row, row + wanted):
            i = int(y[k])
            rho, mass = reward_and_mass(coef @ X[k] + intercept, i, reward, counts, bound)
            weight[i] += c[k]
            rewards[i] += c[k] * rho
            predicted += c[k] * mass
        row += wanted
        # Of two classes both must occur; of more, those that do not occur keep their running recall.
        if np.all(weight > 0.0) or K > 2:
            running = class_means(state.r, state.m)
            R = np.array(
                [rewards[j] / weight[j] if weight[j] > 0.0 else running[j] for j in range(K)]
            )
            p, eps = state.m / state.T, 1.0 / (2.0 * state.T)
            p_phase = weight / np.sum(weight)
            q = predicted / np.sum(weight)  # with the shares of the phase: those of learning differ
            for j in range(K):
                for i in range(K):
                    share = R[i] if i == j else (1.0 - R[i]) / (K - 1)
                    q[j] += (p[i] - p_phase[i]) * share
            best = value(measure, None, np.ones(K), p, p, eps)
            v = min(max(value(measure, None, R, q, p, eps), 0.0), best)
        levels.append(v)

    coef, intercept = averaged(state.weights, average) if state.weights else (state.W, state.b)
    return ScanResult(coef, intercept, levels, state.weights, len(X))
