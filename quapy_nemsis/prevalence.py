"""Estimate class prevalences in a sample from the likelihoods of its rows in each class.

Only the prevalences may have changed since training, not the distribution of rows within a class (prior shift). Let Lᵢⱼ
be the likelihood of row i in class j, up to a factor of the row: a calibrated posterior divided by the prevalence of
training, or a posterior at equal prevalences. The log-likelihood of prevalences p is Σᵢ ln Σⱼ pⱼ·Lᵢⱼ. Expectation
maximisation finds its maximum (Saerens, Latinne and Decaestecker 2002). If the classes are hard to tell apart, this
maximum tends to the border of the simplex. Two things prevent that here.

* A prior for equal prevalences. The likelihoods were learned, from m rows in effect (see
  `Calibration.effective_size`). The more rows n a sample has compared to m, the more of what it seems to tell are
  errors of the likelihoods, unless these tell the classes apart without doubt. Let u be the share of the entropy of
  the classes that scores leave (see `Calibration.doubt`). Then ``prior``·u·n/m rows of each class are added. They
  vanish as training data grow, and where classes are easy to tell apart.
* With probability ``no_drift``, nothing has changed. Then the mean posterior at the training prevalences is the
  better estimate. The weight of either estimate is its posterior probability. The evidence for prevalences that have
  changed is that of Jeffreys' prior, a Dirichlet distribution with ½ in each class. It is approximated by Laplace's
  method, in log-odds (MacKay 1998). The likelihood counts m/(n + m): n rows tell no more than n·m/(n + m) rows would
  if their likelihoods were known.

Draws of prevalences, for intervals, start from Jeffreys' prior as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import helmert
from scipy.special import expit, gammaln, logit, softmax

from quapy_nemsis._kernels import mixture
from quapy_nemsis.learners.calibration import Calibration

# Likelihoods of a row are at least this share of their sum, so that each is positive.
_LEAST = 1e-12
_TOLERANCE, _MOST_STEPS = 1e-6, 5000
_JEFFREYS = 0.5
# For intervals, calibrations are drawn anew for at most so many rows, and prevalences need not be as exact.
_MOST_ROWS, _DRAW_TOLERANCE = 2_000, 1e-4


class Training(NamedTuple):
    """What is known of the data that likelihoods were learned from."""

    #: Prevalences of the classes.
    shares: np.ndarray
    #: Number of rows, and the number of rows with equal prevalences that tell as much.
    size: float
    effective_size: float
    #: Share of the entropy of the classes that scores leave.
    doubt: float = 1.0

    @staticmethod
    def of(calibration: Calibration) -> Training:
        """What is known of the points that a calibration was fitted to."""
        return Training(
            calibration.shares,
            float(calibration.members.sum()),
            calibration.effective_size,
            calibration.doubt,
        )


def likelihoods(log_odds: np.ndarray) -> np.ndarray:
    """Likelihoods of rows, up to a factor of each row, from log-odds of the classes at equal prevalences."""
    found = np.maximum(softmax(log_odds, axis=1), _LEAST)
    return np.ascontiguousarray(found, dtype=float)


def maximum(
    rows: np.ndarray,
    start: np.ndarray,
    pseudo: float,
    tolerance: float = _TOLERANCE,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Prevalences that maximise the likelihood of rows, with so many pseudo-rows of each class.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_classes)
        Likelihoods of the rows in each class, all positive.
    start : ndarray of shape (n_classes,)
        Prevalences to start from.
    pseudo : float
        Number of pseudo-rows of each class.
    tolerance : float, default=1e-6
        The largest change of a prevalence in the last step.
    weights : ndarray of shape (n_samples,), optional
        How many rows each counts as; 1 by default.

    Returns
    -------
    ndarray of shape (n_classes,)
        Prevalences.

    Examples
    --------
    >>> rows = np.array([[0.9, 0.1]] * 30 + [[0.1, 0.9]] * 10)
    >>> maximum(rows, np.array([0.5, 0.5]), 0.0).round(3)  # (30/40 - 0.1)/(0.9 - 0.1)
    array([0.812, 0.188])
    """
    p = np.array(start, dtype=float)
    counts = np.ones(len(rows)) if weights is None else weights
    mixture.maximise(rows, counts, p, pseudo, tolerance, _MOST_STEPS)
    return p


class _Curvature(NamedTuple):
    """Log-likelihood of prevalences, the mean posterior of the rows, and matrices that its derivatives consist of."""

    value: float
    #: Mean posterior of the rows.
    mean: np.ndarray
    #: Mean over the rows of diag(r) − rrᵀ, where r is the posterior of a row.
    within: np.ndarray
    #: diag(p) − ppᵀ.
    whole: np.ndarray

    def information(self, n_rows: float) -> np.ndarray:
        """Minus the second derivative, by the log-odds of p, of the log-posterior of that many such rows."""
        return n_rows * (self.whole - self.within) + _JEFFREYS * len(self.whole) * self.whole


def _curvature(rows: np.ndarray, p: np.ndarray) -> _Curvature:
    n_rows, n_classes = rows.shape
    first, second = np.zeros(n_classes), np.zeros((n_classes, n_classes))
    value = mixture.moments(rows, p, first, second)
    within = (np.diag(first) - second) / n_rows
    return _Curvature(value, first / n_rows, within, np.diag(p) - np.outer(p, p))


def estimate(
    rows: np.ndarray, training: Training, prior: float = 1.0, no_drift: float = 0.3
) -> np.ndarray:
    """Estimate the class prevalences in a sample of rows (see `quapy_nemsis.prevalence`).

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_classes)
        Likelihoods of the rows in each class, all positive.
    training : Training
        Prevalences and sizes of the data that the likelihoods were learned from.
    prior : float, default=1.0
        How many rows of each class are added, times u·n/m.
    no_drift : float, default=0.3
        Prior probability that prevalences are those of training, at least 0 and below 1.

    Returns
    -------
    ndarray of shape (n_classes,)
        Prevalences.
    """
    n_rows, n_classes = rows.shape
    ratio = n_rows / training.effective_size
    p = maximum(rows, training.shares, prior * training.doubt * ratio)
    if no_drift == 0.0:
        return p
    mode = maximum(rows, p, _JEFFREYS * (1.0 + ratio))
    unchanged, changed = _curvature(rows, training.shares), _curvature(rows, mode)
    # At the prevalences of training, all its rows tell how likely a row is.
    weight = 1.0 / (1.0 + n_rows / training.size)
    basis = helmert(n_classes)
    information = basis @ changed.information(weight * n_rows) @ basis.T
    evidence = (
        weight * changed.value
        + _JEFFREYS * np.log(mode).sum()
        + gammaln(n_classes * _JEFFREYS)
        - n_classes * gammaln(_JEFFREYS)
        + 0.5 * np.log(n_classes)
        + 0.5 * (n_classes - 1) * np.log(2.0 * np.pi)
        - 0.5 * np.linalg.slogdet(information)[1]
    )
    unlikely = expit(logit(no_drift) + weight * unchanged.value - evidence)
    return unlikely * unchanged.mean + (1.0 - unlikely) * p


def draws(
    rows: np.ndarray,
    recalibrated: Callable[[np.ndarray, np.ndarray], np.ndarray],
    parameters: np.ndarray,
    training: Training,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw prevalences of the classes in a sample of rows from their distribution.

    Each draw has its own calibration, which changes the likelihoods of the rows and with them the maximum p. Then come
    the log-odds of the prevalences of the population, normally distributed around those of p, and then the
    prevalences of the sample, the mean posterior of its rows, with the variance of labels drawn from the posteriors.
    All draws assume that prevalences may have changed.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_classes)
        Likelihoods of the rows in each class.
    recalibrated : callable
        From indices of rows and parameters of a calibration to likelihoods of these rows.
    parameters : ndarray of shape (n_draws, n_parameters)
        Parameters of a calibration for each draw.
    training : Training
        Prevalences and sizes of the data that the likelihoods were learned from.
    rng : Generator
        Source of random numbers.

    Returns
    -------
    ndarray of shape (n_draws, n_classes)
        Prevalences.
    """
    n_rows, n_classes = rows.shape
    centre = maximum(rows, training.shares, _JEFFREYS)
    chosen, start = np.arange(n_rows), centre
    if n_rows > _MOST_ROWS:
        # The effect of a calibration is that on some of the rows; the noise of the sample is that of all.
        chosen = rng.choice(n_rows, _MOST_ROWS, replace=False)
        start = maximum(rows[chosen], centre, _JEFFREYS)
    basis = helmert(n_classes)
    found = np.empty((len(parameters), n_classes))
    for drawn, one in zip(found, parameters, strict=True):
        part = recalibrated(chosen, one)
        p = maximum(part, start, _JEFFREYS, _DRAW_TOLERANCE)
        information = basis @ _curvature(part, p).information(n_rows) @ basis.T
        values, vectors = np.linalg.eigh(information)
        shift = vectors @ (rng.normal(size=n_classes - 1) / np.sqrt(np.maximum(values, 1e-3)))
        at = _curvature(part, softmax(np.log(p) + basis.T @ shift))
        values, vectors = np.linalg.eigh(basis @ at.within @ basis.T / n_rows)
        noise = vectors @ (rng.normal(size=n_classes - 1) * np.sqrt(np.maximum(values, 0.0)))
        drawn[:] = at.mean + basis.T @ noise + centre - start
    # These are prevalences among n rows, of which a whole number is of each class.
    found = np.round(np.clip(found, 0.0, 1.0) * n_rows)
    return found / found.sum(axis=1, keepdims=True)
