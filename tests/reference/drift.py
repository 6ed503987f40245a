"""Tests of drift, slowly and plainly."""

import numpy as np
from scipy.stats import f


def class_moments(values, labels, n_classes):
    own = [values[labels == k] for k in range(n_classes)]
    return (
        [rows.mean(axis=0) for rows in own],
        [np.atleast_2d(np.cov(rows.T)) for rows in own],
        [len(rows) for rows in own],
    )


def noise(moments, p, n_rows):
    """Covariance of the mean of rows of a mixture, minus the mean that labelled rows lead one to expect."""
    means, covariances, sizes = moments
    mean = sum(share * m for share, m in zip(p, means, strict=True))
    second = sum(
        share * (S + np.outer(m, m)) for share, m, S in zip(p, means, covariances, strict=True)
    )
    of_rows = (second - np.outer(mean, mean)) / n_rows
    return of_rows + sum(
        share**2 * S / m for share, S, m in zip(p, covariances, sizes, strict=True)
    )


def prevalence_statistic(new, labelled, labels, shares, total):
    """Squared distance of the mean posterior from that expected at the prevalences of training."""
    moments = class_moments(labelled[:, 1:], labels, len(shares))
    M = np.array(moments[0])
    expected = shares @ M
    V = noise(moments, shares, len(new))
    V = V + M.T @ (np.diag(shares) - np.outer(shares, shares)) @ M / total
    away = new[:, 1:].mean(axis=0) - expected
    statistic = away @ np.linalg.solve(V, away)
    return statistic, p_value(statistic, moments, shares, len(new), V, 0)


def mixture_statistic(new, labelled, labels, n_classes, start):
    """Least squared distance of the mean of indicators from a mixture, by least squares on whitened equations."""
    moments = class_moments(labelled, labels, n_classes)
    M, mean, p = np.array(moments[0]), new.mean(axis=0), start
    for _ in range(100):
        inside = np.maximum(p, 1e-9)
        inside = inside / inside.sum()
        V = noise(moments, inside, len(new))
        whiten = np.linalg.inv(np.linalg.cholesky(V))
        x = np.linalg.lstsq(whiten @ (M[1:] - M[0]).T, whiten @ (mean - M[0]), rcond=None)[0]
        p = np.concatenate([[1.0 - x.sum()], x])
    statistic = np.sum((whiten @ (mean - p @ M)) ** 2)
    return statistic, p_value(statistic, moments, inside, len(new), V, n_classes - 1)


def p_value(statistic, moments, p, n_rows, V, fitted):
    """Hotelling's distribution, with the degrees of freedom of Welch and Satterthwaite; V is the noise."""
    _, covariances, sizes = moments
    d = len(V)
    shares = [
        np.trace(np.linalg.solve(V, (share / n_rows + share**2 / m) * S)) / d
        for share, S, m in zip(p, covariances, sizes, strict=True)
    ]
    nu = 1.0 / sum(share**2 / (m - 1) for share, m in zip(shares, sizes, strict=True))
    q, left = d - fitted, nu - d + 1
    return f.sf(statistic * left / (nu * q), q, left)
