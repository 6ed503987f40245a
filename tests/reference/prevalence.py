"""Slow and obvious prevalence estimation and calibration, an independent check of faster code.

The prevalences of a sample are those of a mixture whose components' likelihoods are known, up to a
factor per row. Everything here is a function of prevalences handed to a generic optimiser, a
generic finite difference or a generic quadrature; nothing is iterated in closed form.
"""

from itertools import pairwise

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import betaln, expit, gammaln, log_softmax, logsumexp, softmax


def log_likelihood(rows, p):
    """Sum over the rows of the logarithm of the mixture of their likelihoods."""
    return sum(np.log(rows @ p))


def penalised(rows, p, pseudo):
    """What `maximum` maximises."""
    return log_likelihood(rows, p) + pseudo * np.sum(np.log(p))


def maximum(rows, pseudo):
    """Prevalences of greatest `penalised` value, searched as the softmax of unbounded numbers."""
    n_classes = rows.shape[1]

    def cost(x):
        p = softmax(x)
        slope_p = rows.T @ (1 / (rows @ p)) + pseudo / p
        value = np.sum(np.log(rows @ p)) + pseudo * np.sum(log_softmax(x))
        return -value, -p * (slope_p - slope_p @ p)

    found = minimize(
        cost,
        np.zeros(n_classes),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-8, "maxiter": 10_000},
    )
    return softmax(found.x)


def basis(n_classes):
    """Orthonormal rows that are orthogonal to the vector of ones (Helmert's), (K-1, K)."""
    rows = []
    for k in range(1, n_classes):
        row = np.zeros(n_classes)
        row[:k], row[k] = 1, -k
        rows.append(row / np.linalg.norm(row))
    return np.array(rows)


def hessian(function, x, step=1e-3):
    """Second derivatives by central differences."""
    d = len(x)
    unit = step * np.eye(d)
    second = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            second[i, j] = (
                function(x + unit[i] + unit[j])
                - function(x + unit[i] - unit[j])
                - function(x - unit[i] + unit[j])
                + function(x - unit[i] - unit[j])
            ) / (4 * step**2)
    return second


def jacobian_determinant(p, step=1e-5):
    """Volume of prevalences (their first K-1) per volume of coordinates b, by differences."""
    helmert = basis(len(p))
    at = helmert @ np.log(p)
    columns = []
    for move in step * np.eye(len(at)):
        up, down = softmax((at + move) @ helmert), softmax((at - move) @ helmert)
        columns.append((up - down)[:-1] / (2 * step))
    return abs(np.linalg.det(np.array(columns)))


def log_dirichlet(p, prior):
    """Logarithm of the symmetric Dirichlet density."""
    k = len(p)
    return gammaln(k * prior) - k * gammaln(prior) + (prior - 1) * np.sum(np.log(p))


def laplace_evidence(rows, p, weight, prior):
    """Logarithm of the evidence of changed prevalences, a Gaussian around `p` in log-odds."""
    k = len(p)
    helmert = basis(k)

    def exponent(b):
        q = softmax(b @ helmert)
        return weight * log_likelihood(rows, q) + prior * np.sum(np.log(q))

    at = helmert @ np.log(p)
    density = weight * log_likelihood(rows, p) + log_dirichlet(p, prior)
    density += np.log(jacobian_determinant(p))
    curvature = np.linalg.slogdet(-hessian(exponent, at))
    assert curvature.sign > 0
    return density + (k - 1) / 2 * np.log(2 * np.pi) - 0.5 * curvature.logabsdet


def exact_evidence(rows, weight, prior):
    """What `laplace_evidence` approximates, for two classes, by quadrature over (0, 1)."""
    top = weight * log_likelihood(rows, maximum(rows, prior / weight))

    def integrand(q):
        return np.exp(weight * np.sum(np.log(rows @ [1 - q, q])) - top)

    power = prior - 1
    area, _ = quad(integrand, 0, 1, weight="alg", wvar=(power, power), limit=500)
    return top + np.log(area) - betaln(prior, prior)


def posterior(rows, p):
    """Probability of each class for each row at prevalences `p`."""
    joint = rows * p
    return joint / joint.sum(axis=1, keepdims=True)


def unchanged(rows, training, no_drift, evidence):
    """Posterior probability that the prevalences are the training ones."""
    shares, size, *_ = training
    weight = 1 / (1 + len(rows) / size)
    same = np.log(no_drift) + weight * log_likelihood(rows, shares)
    other = np.log1p(-no_drift) + evidence
    return expit(same - other)


def estimate(rows, training, prior=1.0, no_drift=0.3):
    """Average of the unchanged and the changed prevalences, by their posterior probability."""
    shares, size, effective, doubt = training
    n = len(rows)
    p = maximum(rows, prior * doubt * n / effective)
    if no_drift == 0:
        return p
    jeffreys = 0.5
    mode = maximum(rows, jeffreys * (1 + n / effective))
    evidence = laplace_evidence(rows, mode, 1 / (1 + n / size), jeffreys)
    u = unchanged(rows, training, no_drift, evidence)
    return u * posterior(rows, shares).mean(axis=0) + (1 - u) * p


def count_distribution(rows, prior):
    """Exact probabilities of 0, 1, ..., n members of the second of two classes among the rows.

    The prevalence has a symmetric Beta prior; the sum over all labellings with the same count is a
    coefficient of the product of (first + second * x) over the rows.
    """
    n = len(rows)
    terms = np.array([0.0])  # logarithms of the coefficients
    for first, second in np.log(rows):
        terms = np.logaddexp(
            np.append(terms + first, -np.inf), np.insert(terms + second, 0, -np.inf)
        )
    counts = np.arange(n + 1)
    logs = terms + betaln(counts + prior, n - counts + prior)
    return np.exp(logs - logsumexp(logs))


KNOTS = 7  # of the piecewise linear log-odds of two classes
ROUGHNESS = 0.1  # price of squared differences of adjacent slopes
STEEPNESS = 0.001  # price of squared slopes
OFFSET_PRECISION = 0.25  # of the offsets of more than two classes


def balanced_weights(labels, n_classes):
    """Weights under which classes weigh the same, and their sum: the effective number of rows.

    Each class counts as if it had half a row more.
    """
    members = np.bincount(labels, minlength=n_classes) + 0.5
    total = n_classes**2 / np.sum(1 / members)
    weights = (1 / members)[labels]
    return weights * (total / weights.sum()), total


def two_class_log_odds(scores, labels, at):
    """Log-odds at equal prevalences, nondecreasing and piecewise linear in the score."""
    y = np.asarray(labels, int)
    weights, _ = balanced_weights(y, 2)
    order = np.argsort(scores)
    levels = np.cumsum(weights[order]) / weights.sum()
    knots = np.interp(np.arange(1, KNOTS + 1) / (KNOTS + 1), levels, scores[order])
    unit = max(knots[-1] - knots[0], np.std(scores))

    def design(s):
        columns = [np.ones_like(s), np.minimum(s - knots[0], 0) / unit]
        for low, high in pairwise(knots):
            columns.append((np.clip(s, low, high) - low) / unit)
        columns.append(np.maximum(s - knots[-1], 0) / unit)
        return np.stack(columns, axis=1)

    rows = design(scores)

    def cost(x):
        z = rows @ x
        bends = np.diff(x[1:])
        nll = weights @ (y * np.logaddexp(0, -z) + (1 - y) * np.logaddexp(0, z))
        slope = rows.T @ (weights * (expit(z) - y)) + STEEPNESS * np.append(0, x[1:])
        slope[1:-1] -= ROUGHNESS * bends
        slope[2:] += ROUGHNESS * bends
        return nll + 0.5 * (ROUGHNESS * bends @ bends + STEEPNESS * x[1:] @ x[1:]), slope

    start = np.append(0.0, np.ones(KNOTS + 1))
    found = minimize(
        cost,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None)] + [(0, None)] * (KNOTS + 1),
        options={"ftol": 1e-14, "gtol": 1e-9, "maxiter": 10_000, "maxfun": 50_000},
    )
    return design(np.asarray(at, float)) @ found.x


def class_log_odds(scores, labels, at):
    """Log-odds at equal prevalences of more than two classes: a temperature and offsets.

    The targets of n rows of K classes are 1 - 1/(n + K) and, for all other classes together,
    1/(n + K).
    """
    n_classes = scores.shape[1]
    weights, _ = balanced_weights(labels, n_classes)
    rest = 1 / (len(labels) + n_classes)
    targets = np.full(scores.shape, rest / (n_classes - 1))
    targets[np.arange(len(labels)), labels] = 1 - rest

    def cost(x):
        z = log_softmax(x[0] * scores + x[1:], axis=1)
        nll = -weights @ np.sum(targets * z, axis=1)
        return nll + 0.5 * OFFSET_PRECISION * x[1:] @ x[1:]

    start = np.append(1 / np.std(scores), np.zeros(n_classes))
    bounds = [(0, None)] + [(None, None)] * n_classes
    found = minimize(cost, start, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-14})
    return found.x[0] * at + found.x[1:]
