"""Calibration: turning scores into posterior probabilities.

A calibration is a model of the balanced log-odds of the classes given the scores, fitted by maximum likelihood with
every class weighing the same. Quantifiers use posteriors at other prevalences than those of training. In the plain
likelihood, rare classes would hardly count. Posteriors at the prevalences p of training follow by adding ln p.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from quapy_nemsis._kernels import calibration as kernel
from quapy_nemsis._validation import check_option
from quapy_nemsis.learners.state import MOST, Arrays

#: How many of the latest scores a stream keeps.
RECENT = 4096
#: Prevalences at which learners return posteriors.
PRIORS = ("training", "balanced")
# How many scores are used at most, to fit and to compare candidates.
_MOST_SCORES, _MOST_TO_COMPARE = 400_000, 50_000
# The curve for two classes has a knot at each of these quantiles of the scores. The squared differences between slopes
# on both sides of a knot, and the squared slopes, are penalised by these factors.
_LEVELS = np.linspace(0.0, 1.0, 9)[1:-1]
_SMOOTHNESS, _RIDGE = 0.1, 0.001
# For more classes, this is the precision of the prior of offsets, which need not be small.
_PRECISION = 0.25
# This share of the noise of the numbers of points of each class, which are given, is no part of that of draws.
_GIVEN = 0.5
# Scores further away from the knots, in units, are as if they were so far away: their squares are finite.
_FAR = 1e100


def check_posteriors(value: Any) -> None:
    """Refuse a value of `posteriors` that is neither the name of prevalences nor None, for no posteriors."""
    if value is not None:
        check_option("posteriors", value, PRIORS)


class Points(NamedTuple):
    """Scores of rows, their labels, and how many points each represents."""

    scores: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


class _Fit(NamedTuple):
    """Parameters of a calibration, the curvature there, and the mean balanced cross-entropy of the labels."""

    parameters: np.ndarray
    curvature: np.ndarray
    loss: float


class Calibration:
    """Posteriors from scores; `of` chooses the kind for two classes or for more.

    Parameters
    ----------
    scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores: one for two classes, one for each of more classes.
    labels : ndarray of shape (n_samples,)
        Whether each score belongs to a positive, or the position of its class among more than two.
    weights : ndarray of shape (n_samples,), optional
        How many points each score represents; 1 by default.
    """

    def __init__(self, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None):
        self.scores = scores
        self.labels = labels
        self.weights = np.ones(len(scores)) if weights is None else weights

    @staticmethod
    def of(
        scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None
    ) -> Calibration:
        """Calibration for two classes, or for as many as there are columns of scores."""
        kind = TwoClassCalibration if scores.ndim == 1 else ClassCalibration
        return kind(scores, labels, weights)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return 2 if self.scores.ndim == 1 else self.scores.shape[1]

    @cached_property
    def members(self) -> np.ndarray:
        """Number (or weight) of the points of each class."""
        return np.bincount(self.labels, self.weights, self.n_classes)

    @cached_property
    def shares(self) -> np.ndarray:
        """Shares of the classes, with half a point more for each, so that none is 0."""
        members = self.members + 0.5
        return members / members.sum()

    @property
    def effective_size(self) -> float:
        """K²/Σ 1/n_j: how many points with equally many of each of the K classes tell as much as these."""
        return float(self.n_classes**2 / (1.0 / (self.members + 0.5)).sum())

    @property
    def doubt(self) -> float:
        """Share of the entropy of the classes that scores leave: the cross-entropy of the labels over ln K, at most 1.

        Each class weighs the same.
        """
        return min(self._fitted.loss / float(np.log(self.n_classes)), 1.0)

    def loss(self) -> float:
        """Mean cross-entropy of the labels of some of the points, each class weighing the same."""
        return self._maximise(_MOST_TO_COMPARE).loss

    def log_odds(self, scores: np.ndarray, parameters: np.ndarray | None = None) -> np.ndarray:
        """Log-odds of the classes at equal prevalences, up to a constant of each row.

        Parameters
        ----------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores.
        parameters : ndarray, optional
            Parameters as `draw` returns them; those of the best fit by default.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Log-odds.
        """
        raise TypeError(f"{type(self).__name__} is abstract")

    def probabilities(self, scores: np.ndarray, balanced: bool = False) -> np.ndarray:
        """Posteriors at the prevalences of the points, or at equal ones: a row per score, a column per class."""
        return softmax(self.log_odds(scores) + (0.0 if balanced else np.log(self.shares)), axis=1)

    def draw(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Draw parameters from their sampling distribution, one row for each draw.

        The distribution is normal around the best fit. Its covariance is H⁻¹JH⁻¹ − ½·Σⱼ vⱼvⱼᵀ/nⱼ. H is the curvature of
        the penalised balanced likelihood, and J is the variance of its gradient that the fit leads one to expect, if
        labels are drawn for the rows. This includes the noise of the number of rows of each class, which weights
        cancel: Σⱼ vⱼvⱼᵀ/nⱼ, where nⱼ rows are of class j, and vⱼ is the change of the fit by the logarithm of their
        weight (Prentice and Pyke 1979). Half of that is kept, for what a calibration of this form cannot express: with
        all of it, intervals of prevalences were too wide on some of 12 sets of data; with none, too narrow on others.
        """
        best = self._fitted.parameters
        values, vectors = np.linalg.eigh(self._covariance())
        normal = rng.normal(size=(n_draws, len(best)))
        drawn = best + normal @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        return self._allowed(drawn)

    def _allowed(self, parameters: np.ndarray) -> np.ndarray:
        """Parameters moved to where they make sense."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def _maximise(self, most: int) -> _Fit:
        """Best fit to at most so many scores."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def _covariance(self) -> np.ndarray:
        """Covariance of the parameters of the best fit."""
        raise TypeError(f"{type(self).__name__} is abstract")

    @cached_property
    def _fitted(self) -> _Fit:
        return self._maximise(_MOST_SCORES)

    def _some(self, most: int) -> Points:
        """Every nth of the points, so that there are at most so many scores."""
        part = slice(None, None, max(self.scores.size // most, 1))
        return Points(self.scores[part].astype(float), self.labels[part], self.weights[part])

    def _balanced(self, points: Points) -> np.ndarray:
        """Weights of points with which each class counts the same; they add up to the effective size."""
        weights = points.weights / self.shares[points.labels.astype(int)]
        return weights * (self.effective_size / weights.sum())

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The data that the calibration is fitted to, as arrays by name."""
        return {"scores": self.scores, "labels": self.labels, "weights": self.weights}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Calibration:
        """Inverse of `to_arrays`; arrays of the wrong name, type or shape raise a ValueError."""
        two = arrays.n_classes == 2
        scores = arrays.take("scores", *((None,) if two else (None, arrays.n_classes)))
        labels = arrays.take("labels", len(scores), types=(np.bool_ if two else np.int32,))
        weights = arrays.take("weights", len(scores))
        if not (len(scores) and np.isfinite(scores).all()):
            raise ValueError("its calibration has no scores, or scores that are not finite")
        if not (labels.min() >= 0 and labels.max() < arrays.n_classes):
            raise ValueError("its calibration has labels that are not among its classes")
        if not (weights.min() > 0 and weights.sum() < MOST):
            raise ValueError("the weights of its calibration points are not positive, or too large")
        return cls.of(scores, labels, weights)

    def __getstate__(self) -> dict[str, Any]:
        """The data without the fitted functions, which are fitted again when needed."""
        return {name: getattr(self, name) for name in ("scores", "labels", "weights")}

    @staticmethod
    def latest(
        known: Calibration | None, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray
    ) -> Calibration:
        """Calibration on the latest 4,096 scores, after adding these as the newest."""
        last = slice(-RECENT, None)
        parts = [(scores, labels, weights if len(weights) else np.ones(len(scores)))]
        if known is not None:
            parts.insert(0, (known.scores, known.labels, known.weights))
        columns = zip(*parts, strict=True)
        joined = Points(
            *(np.concatenate([part[last] for part in column])[last] for column in columns)
        )
        return Calibration.of(*joined)


def _spread(scores: np.ndarray) -> float:
    """Standard deviation of scores of any size, which is not much smaller than the scores."""
    largest = float(np.abs(scores).max(initial=0.0))
    return largest * max(float(np.std(scores / largest)), 1e-9) if largest > 0.0 else 1.0


def _inverse(curvature: np.ndarray) -> np.ndarray:
    """Pseudo-inverse of a curvature; scores that are too large for their squares make it infinite, and this zero."""
    if not np.isfinite(curvature).all():
        return np.zeros_like(curvature)
    return np.linalg.pinv(curvature, hermitian=True)


class TwoClassCalibration(Calibration):
    """Log-odds of the positive class as a nondecreasing, piecewise linear function of the score.

    The function has seven knots, at quantiles of the scores of both classes together, each class weighing the same. It
    maximises the balanced likelihood of the labels, less a penalty on the squared differences between the slopes of
    adjacent pieces. With few points the penalty wins, and the function is a straight line, as in Platt's method (1999).
    With many points it takes any nondecreasing shape. A small penalty on the squared slopes makes a best fit exist even
    if the scores separate the classes. Platt's targets (n₊ + 1)/(n₊ + 2) and 1/(n₋ + 2), which are for the same
    purpose, would make positive labels far more doubtful than negative ones where positive points are few.

    The parameters are those of `Calibration`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=100_000)
    >>> positive = rng.random(100_000) < scores.clip(0.0, 1.0)
    >>> calibration = TwoClassCalibration(scores, positive)
    >>> calibration.probabilities(np.array([-1.0, 0.5, 2.0]))[:, 1].round(1)
    array([0. , 0.5, 1. ])
    """

    @cached_property
    def _knots(self) -> tuple[np.ndarray, float]:
        """Positions of the knots, and the unit of scores."""
        points = self._some(_MOST_SCORES)
        order = np.argsort(points.scores)
        scores, weights = points.scores[order], self._balanced(points)[order]
        first = np.flatnonzero(np.diff(scores, prepend=np.nan) != 0.0)
        weights = np.add.reduceat(weights, first)
        reached = np.cumsum(weights) - 0.5 * weights
        knots = np.unique(np.interp(_LEVELS * weights.sum(), reached, scores[first]))
        # Not the standard deviation, which a single score could make large.
        unit = float(knots[-1] - knots[0]) or _spread(points.scores)
        return knots, unit

    def _design(self, scores: np.ndarray) -> np.ndarray:
        """A column of ones, and for each piece how much of it lies below a score (negative before the first knot)."""
        knots, unit = self._knots
        x, at = np.asarray(scores, dtype=float)[:, np.newaxis] / unit, knots / unit
        inner = np.clip(x - at[:-1], 0.0, np.diff(at))
        outer = [np.minimum(x - at[0], 0.0), inner, np.maximum(x - at[-1], 0.0)]
        return np.hstack([np.ones_like(x), *outer])

    def _by_piece(self, points: Points) -> tuple[Points, np.ndarray, np.ndarray]:
        """Points grouped by pieces, with distances to a knot for scores, as `kernel.fit_curve` takes them.

        With them come the places where the pieces begin and end, and the widths of the pieces between knots.
        """
        knots, unit = self._knots
        pieces = np.searchsorted(knots, points.scores).astype(np.uint8)
        order = np.argsort(pieces, kind="stable")
        pieces = pieces[order]
        distances = (points.scores[order] - knots[np.maximum(pieces, 1) - 1]) / unit
        grouped = Points(
            np.clip(distances, -_FAR, _FAR), points.labels[order], points.weights[order]
        )
        starts = np.searchsorted(pieces, np.arange(len(knots) + 2))
        return grouped, starts, np.diff(knots) / unit

    def _maximise(self, most: int) -> _Fit:
        points, starts, widths = self._by_piece(self._some(most))
        size = len(starts)
        # Differences of the slopes on both sides of a knot.
        differences = np.diff(np.eye(size)[1:], axis=0)
        penalty = _SMOOTHNESS * differences.T @ differences
        penalty[1:, 1:] += _RIDGE * np.eye(size - 1)
        best, curvature, weights = np.zeros(size), np.empty((size, size)), self._balanced(points)
        if self.members.min() == 0.0 or not np.ptp(self.scores) > 0.0:
            # One class, or one score: nothing is known but the shares of the classes.
            kernel.spread_of_curve(points.scores, weights, starts, widths, best, curvature)
            return _Fit(best, curvature + penalty, float(np.log(2.0)))
        best[1:] = 1.0
        labels = points.labels.astype(bool)
        loss = kernel.fit_curve(
            points.scores, labels, weights, starts, widths, penalty, best, curvature
        )
        return _Fit(best, curvature, loss / self.effective_size)

    def _covariance(self) -> np.ndarray:
        points, starts, widths = self._by_piece(self._some(_MOST_SCORES))
        best, curvature, _ = self._fitted
        # A point at p has weight w₊ with probability p·w₋/(p·w₋ + (1 − p)·w₊), otherwise w₋. The expected outer product
        # of its gradient is then w₊·w₋·p·(1 − p)·xxᵀ.
        both = np.prod(0.5 * self.effective_size / np.maximum(self.members, 0.5))
        kept = points.weights.sum() / self.members.sum()
        noise = np.empty_like(curvature)
        kernel.spread_of_curve(
            points.scores, points.weights * (both / kept), starts, widths, best, noise
        )
        inverse = _inverse(curvature)
        covariance = inverse @ noise @ inverse
        # A weight of the positive points moves the constant alone, which is not penalised.
        covariance[0, 0] -= _GIVEN * (1.0 / np.maximum(self.members, 0.5)).sum()
        return covariance

    def _allowed(self, parameters: np.ndarray) -> np.ndarray:
        return np.hstack([parameters[:, :1], np.maximum(parameters[:, 1:], 0.0)])

    def log_odds(self, scores: np.ndarray, parameters: np.ndarray | None = None) -> np.ndarray:
        """Log-odds of the classes at equal prevalences: 0, and that of the positive class (see `Calibration`)."""
        model = self._fitted.parameters if parameters is None else parameters
        positive = self._design(scores) @ model
        return np.column_stack([np.zeros(len(positive)), positive])


class ClassCalibration(Calibration):
    """Log-odds of K classes at equal prevalences, T·f + b, from their scores f.

    The temperature T > 0 and the offsets b maximise the balanced likelihood of the labels (bias-corrected temperature
    scaling, Alexandari et al. 2020, with every class weighing the same). The offsets have a wide normal prior, of
    standard deviation 2 around 0. The targets of n points are 1 − 1/(n + K) for their class and 1/(n + K) for the
    others together.

    The parameters are those of `Calibration`.
    """

    @cached_property
    def _unit(self) -> float:
        return _spread(self.scores)

    def _maximise(self, most: int) -> _Fit:
        points = self._some(most)
        n_classes, weights = self.n_classes, self._balanced(points)
        scores = self._standard(points.scores)
        labels, rest = points.labels.astype(np.int32), 1.0 / (self.members.sum() + n_classes)

        best, curvature = np.eye(1, 1 + n_classes)[0], np.empty((1 + n_classes, 1 + n_classes))
        loss = kernel.fit_offsets(scores, labels, weights, rest, _PRECISION, best, curvature)
        return _Fit(best, curvature, loss / self.effective_size)

    def _standard(self, scores: np.ndarray) -> np.ndarray:
        """Scores in units of their spread, less the highest of their row."""
        return np.ascontiguousarray(scores - scores.max(axis=1, keepdims=True)) / self._unit

    def _covariance(self) -> np.ndarray:
        points = self._some(_MOST_SCORES)
        best, curvature, _ = self._fitted
        scores = self._standard(points.scores)
        shares = softmax(best[0] * scores + best[1:], axis=1)
        # If points of class j have weight wⱼ, one with posteriors s at equal prevalences is of class j with probability
        # sⱼ/wⱼ, up to a factor, and then its gradient is wⱼ·h.
        weights = self.effective_size / (self.n_classes * np.maximum(self.members, 0.5))
        sizes = points.weights * (self.members.sum() / points.weights.sum())
        sizes /= shares @ (1.0 / weights)
        means, noise = (shares * scores).sum(axis=1), np.zeros_like(curvature)
        for j, weight in enumerate(weights):
            gradients = np.column_stack([means - scores[:, j], shares])
            gradients[:, 1 + j] -= 1.0
            noise += (gradients.T * (weight * sizes * shares[:, j])) @ gradients
        inverse = _inverse(curvature)
        # A weight of the points of a class moves its offset, and what is penalised with it.
        moved = np.eye(len(inverse))[:, 1:] - _PRECISION * inverse[:, 1:]
        numbers = moved / np.maximum(self.members, 0.5) @ moved.T
        return inverse @ noise @ inverse - _GIVEN * numbers

    def _allowed(self, parameters: np.ndarray) -> np.ndarray:
        return np.hstack([np.maximum(parameters[:, :1], 0.0), parameters[:, 1:]])

    def log_odds(self, scores: np.ndarray, parameters: np.ndarray | None = None) -> np.ndarray:
        """Log-odds of the classes at equal prevalences, up to a constant of each row (see `Calibration`)."""
        model = self._fitted.parameters if parameters is None else parameters
        return model[0] / self._unit * scores + model[1:]
