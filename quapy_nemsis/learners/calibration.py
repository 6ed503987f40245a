"""From scores to posterior probabilities."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from quapy_nemsis.learners.scores import quiet_scores
from quapy_nemsis.learners.state import MOST, Arrays, State
from quapy_nemsis.learners.tuning import Tuned
from quapy_nemsis.measures import Measure, NestedMeasure, PseudoMeasure, Valuation, get_measure
from quapy_nemsis.measures.formulas import smoothing

# How many scores of the latest points a stream keeps, and of each class `fit` looks at.
RECENT = 4096
_MOST_OF_A_CLASS = 50_000
# How many points the sigmoid counts for beside the labels, and up to how many it is all there is.
_SIGMOID_POINTS = 1000.0


def sample_of_classes(
    positive: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to calibrate on, all or 50,000 at random of each class, and how many rows each stands for.

    In random order: a stream that goes on from them keeps the last ones.
    """
    rows, weights = [], []
    for members in (np.flatnonzero(positive), np.flatnonzero(~positive)):
        taken = members
        if len(members) > _MOST_OF_A_CLASS:
            taken = rng.choice(members, _MOST_OF_A_CLASS, replace=False)
        rows.append(taken)
        weights.append(np.full(len(taken), len(members) / max(len(taken), 1)))
    order = rng.permutation(sum(map(len, rows)))
    return np.concatenate(rows)[order], np.concatenate(weights)[order]


def fit_platt(
    scores: np.ndarray,
    positive: np.ndarray,
    weights: np.ndarray | None = None,
    offset: float | None = None,
) -> tuple[float, float]:
    """Slope A > 0 and offset B of the sigmoid σ(A·score + B) of greatest likelihood (Platt 1999), by Newton's method.

    Targets are pulled from 0 and 1 to (n₊ + 1)/(n₊ + 2) and 1/(n₋ + 2), so that separable scores have an answer.

    Parameters
    ----------
    scores : ndarray of shape (n_samples,)
        Scores.
    positive : ndarray of bool of shape (n_samples,)
        Whether they belong to positives.
    weights : ndarray of shape (n_samples,), optional
        How many points each stands for.
    offset : float, optional
        B, if it is known.

    Returns
    -------
    tuple
        (A, B).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=100_000)
    >>> positive = rng.random(100_000) < 1 / (1 + np.exp(-(2 * scores - 1)))
    >>> [round(number, 1) for number in fit_platt(scores, positive)]
    [2.0, -1.0]
    """
    weights = np.ones(len(scores)) if weights is None else weights
    n_pos, n_neg = weights[positive].sum(), weights[~positive].sum()
    target = np.where(positive, (n_pos + 1.0) / (n_pos + 2.0), 1.0 / (n_neg + 2.0))
    scale = max(float(np.std(scores)), 1e-300)
    # Scores that are all the same, but for rounding, say nothing about the slope.
    differ = scale > 1e-12 * np.abs(scores).max(initial=0.0)
    # Of slope and offset, the part that is sought is called the model.
    design = (scores / scale if differ else np.zeros(len(scores)))[:, np.newaxis]
    base, model = 0.0 if offset is None else offset, np.zeros(1)
    if offset is None:
        design = np.column_stack([design, np.ones(len(scores))])
        model = np.array([0.0, math.log((n_pos + 1.0) / (n_neg + 1.0))])

    def loss(at: np.ndarray) -> float:
        logits = design @ at + base
        return float(weights @ (np.logaddexp(0.0, logits) - target * logits))

    for _ in range(100):
        share = expit(design @ model + base)
        gradient = design.T @ (weights * (share - target))
        curvature = (design * (weights * share * (1.0 - share))[:, np.newaxis]).T @ design
        step = np.linalg.solve(curvature + 1e-9 * np.eye(len(model)), gradient)
        # Halve steps that overshoot.
        before, length = loss(model), 1.0
        while loss(model - length * step) > before and length > 1e-10:
            length /= 2.0
        model = model - length * step
        if np.abs(length * step).max() < 1e-10:
            break
    return max(float(model[0] / scale), 1e-12), float(model[1]) if offset is None else offset


class Calibration:
    """The share of positives as a nondecreasing function of the score.

    Fewer than 1,000 points get a sigmoid. If the scores were learned for a measure whose derivatives a⁺ and a⁻ at
    perfect rates are positive (BA and what mixes it with counts: both ½ times something), its offset follows from them:
    score 0 is a threshold for class weights a⁺/p and a⁻/n, so the posterior odds there are a⁻p/(a⁺n). Its slope is
    fitted. A sigmoid does for scores of a model that maximises likelihood; scores of one that maximises another measure
    can be bent anyhow, and all that is sure is that more is more positive. So more points get an isotonic regression,
    on the labels and, with the weight of 1,000 points in all, on the sigmoid: no posterior is 0 or 1.

    Parameters
    ----------
    scores : ndarray of shape (n_samples,)
        Scores.
    positive : ndarray of bool of shape (n_samples,)
        Whether they belong to positives.
    weights : ndarray of shape (n_samples,), optional
        How many points each stands for.
    measure : Measure, optional
        What the scores were learned for.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=100_000)
    >>> positive = rng.random(100_000) < scores.clip(0.0, 1.0)
    >>> Calibration(scores, positive).posterior(np.array([-1.0, 0.5, 2.0])).round(1)
    array([0. , 0.5, 1. ])
    """

    def __init__(
        self,
        scores: np.ndarray,
        positive: np.ndarray,
        weights: np.ndarray | None = None,
        measure: Measure | None = None,
    ):
        self.scores = scores
        self.positive = positive
        self.weights = np.ones(len(scores)) if weights is None else weights
        self.measure = measure

    @classmethod
    def of_nothing(cls) -> Calibration:
        """Calibration before the first point."""
        return cls(np.zeros(0), np.zeros(0, dtype=bool))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """What it is fitted to, by name."""
        arrays = {"scores": self.scores, "positive": self.positive, "weights": self.weights}
        measure = self.measure
        if isinstance(measure, Valuation):
            arrays["level"], measure = np.array(measure.level), measure.measure
        return arrays if measure is None else {**arrays, "measure": np.array(measure.name)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Calibration:
        """The inverse of `to_arrays`; refuses arrays of other names, types or shapes."""
        measure: Measure | None = None
        if "measure" in arrays.arrays:
            measure = get_measure(str(arrays.any("measure")))
        if "level" in arrays.arrays:
            if not isinstance(measure, PseudoMeasure):
                raise ValueError(f"{measure!r} has no level")
            measure = measure.valuation(arrays.real("level"))
        scores = arrays.take("scores", None)
        positive = arrays.take("positive", len(scores), types=(np.bool_,))
        weights = arrays.take("weights", len(scores))
        if not (len(scores) and np.isfinite(scores).all()):
            raise ValueError("it is calibrated on scores that are not finite, or on none")
        if not (weights.min() > 0 and weights.sum() < MOST):
            raise ValueError("the points that it is calibrated on count for nothing, or too much")
        return cls(scores, positive, weights, measure)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is fitted when it is needed."""
        names = ("scores", "positive", "weights", "measure")
        return {name: getattr(self, name) for name in names}

    def extended(
        self, scores: np.ndarray, positive: np.ndarray, measure: Measure | None
    ) -> Calibration:
        """Calibration on the latest 4,096 scores, these the newest."""
        last = slice(-RECENT, None)
        return Calibration(
            np.concatenate([self.scores[last], scores[last]])[last],
            np.concatenate([self.positive[last], positive[last]])[last],
            np.concatenate([self.weights[last], np.ones(len(scores))[last]])[last],
            measure,
        )

    def _offset(self) -> float | None:
        """Log-odds of the posterior where the score is 0, as far as the measure tells."""
        n_pos, n_neg = self.weights[self.positive].sum(), self.weights[~self.positive].sum()
        if not isinstance(self.measure, NestedMeasure) or min(n_pos, n_neg) == 0.0:
            return None
        total = n_pos + n_neg
        a_pos, a_neg = self.measure.class_gradients(1.0, 1.0, n_pos / total, smoothing(total))
        if min(a_pos, a_neg) <= 0.0:
            return None
        return math.log(a_neg * n_pos) - math.log(a_pos * n_neg)

    @cached_property
    def _platt(self) -> tuple[float, float]:
        return fit_platt(self.scores, self.positive, self.weights, self._offset())

    @cached_property
    def _curve(self) -> IsotonicRegression | None:
        total = self.weights.sum()
        if total < _SIGMOID_POINTS:
            return None
        slope, offset = self._platt
        share = _SIGMOID_POINTS / total
        target = (self.positive + share * expit(slope * self.scores + offset)) / (1.0 + share)
        curve = IsotonicRegression(out_of_bounds="clip")
        return curve.fit(self.scores, target, sample_weight=self.weights)

    def posterior(self, scores: np.ndarray) -> np.ndarray:
        """Probability of the positive class at each score."""
        if self._curve is not None:
            return self._curve.predict(scores)
        slope, offset = self._platt
        return expit(slope * scores + offset)


def calibrate(
    state: State[Any],
    X: Any,
    positive: np.ndarray,
    tuned: Tuned[Any] | None,
    rng: np.random.Generator,
) -> Calibration:
    """Calibration of the scores of a state's model, at the end of `fit`.

    Scores of held-out rows come from other models than the one kept, scores of training rows from this one. Where rows
    are many for each feature these are the better guide, where they are few they are too good to be true.
    """
    if tuned is not None and X.shape[0] < 10 * X.shape[1]:
        return Calibration(tuned.scores, tuned.positive, measure=state.objective())
    sample, weights = sample_of_classes(positive, rng)
    blocks = np.array_split(sample, len(sample) // 10_000 + 1)  # rows are copied
    model = state.model()
    scores = np.concatenate([quiet_scores(X[rows], *model) for rows in blocks])
    return Calibration(scores, positive[sample], weights, state.objective())
