"""Slow and obvious solutions of the problems that aggregations solve, an independent check of faster code."""

from itertools import combinations

import numpy as np
from scipy.special import logsumexp


def least_squares(rates, shares):
    """The point p of the simplex with the least |rates @ p - shares|: the best of all sets of positive coordinates.

    On a set of coordinates, p is the minimum under the constraint that the sum is 1, if that is non-negative. For
    singular rates it is one of several.
    """
    n = rates.shape[1]
    best, least = None, np.inf
    for size in range(1, n + 1):
        for chosen in combinations(range(n), size):
            # p = e_last + N z: the sum stays 1, whatever z is.
            start, basis = np.zeros(n), np.zeros((n, size - 1))
            start[chosen[-1]] = 1.0
            for column, j in enumerate(chosen[:-1]):
                basis[j, column], basis[chosen[-1], column] = 1.0, -1.0
            z = np.linalg.lstsq(rates @ basis, shares - rates @ start, rcond=None)[0]
            p = start + basis @ z
            if p.min() >= -1e-12 and (value := np.linalg.norm(rates @ p - shares)) < least:
                best, least = p, value
    return best


def log_density(points, centres, bandwidth):
    """Logarithm of the mean of normal densities around the centres."""
    d = centres.shape[1]
    squares = ((points[:, np.newaxis] - centres) ** 2).sum(axis=2)
    normal = -squares / (2 * bandwidth**2) - d / 2 * np.log(2 * np.pi * bandwidth**2)
    return logsumexp(normal, axis=1) - np.log(len(centres))


def missing_likelihood(likelihoods, p):
    """How much the mean log-likelihood of p may be below its maximum over the simplex, at most.

    The function is concave, so that it lies below its tangent plane at p, whose maximum is at a corner.
    """
    slopes = (likelihoods / (likelihoods @ p)[:, np.newaxis]).mean(axis=0)
    return slopes.max() - slopes @ p
