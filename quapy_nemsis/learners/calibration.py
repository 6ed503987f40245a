"""Calibration: turning scores into posterior probabilities."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax
from sklearn.isotonic import IsotonicRegression
from threadpoolctl import threadpool_limits

from quapy_nemsis.learners.scores import quiet_scores
from quapy_nemsis.learners.state import MOST, Arrays, Data, State
from quapy_nemsis.measures import Measure, NestedMeasure, PseudoMeasure, Valuation, get_measure
from quapy_nemsis.measures.formulas import smoothing

# How many of the latest scores a stream keeps, and how many rows of each class `fit` uses at most.
RECENT = 4096
_MOST_OF_A_CLASS = 50_000
# The weight of the sigmoid in points, next to the labels. With fewer points than this, the sigmoid is used alone.
_SIGMOID_POINTS = 1000.0
# For more than two classes: how many scores are used at most, to fit and to compare candidates, and the standard
# deviation of the prior of the corrections of offsets.
_MOST_SCORES, _MOST_TO_COMPARE, _SPREAD = 400_000, 50_000, 0.1


class Points(NamedTuple):
    """Scores of rows, their labels, and how many points each represents."""

    scores: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def sample_of_classes(data: Data, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Choose rows to calibrate on, at most 50,000 of each class, and count how many rows each one represents.

    The rows are in random order, because a stream that continues from them keeps only the last ones.
    """
    rows, weights = [], []
    for label in reversed(range(data.n_classes)):
        members = np.flatnonzero(data.labels == label)
        taken = members
        if len(members) > _MOST_OF_A_CLASS:
            taken = rng.choice(members, _MOST_OF_A_CLASS, replace=False)
        represented = np.full(len(taken), len(members) / max(len(taken), 1))
        rows.append(taken)
        weights.append(represented * data.weights[taken] if len(data.weights) else represented)
    order = rng.permutation(sum(map(len, rows)))
    return np.concatenate(rows)[order], np.concatenate(weights)[order]


def fit_platt(
    scores: np.ndarray,
    positive: np.ndarray,
    weights: np.ndarray | None = None,
    offset: float | None = None,
) -> tuple[float, float]:
    """Fit slope A > 0 and offset B of σ(A·score + B) by maximum likelihood (Platt 1999), with Newton's method.

    The targets are (n₊ + 1)/(n₊ + 2) and 1/(n₋ + 2) instead of 1 and 0, so that a solution exists even if the scores
    separate the classes.

    Parameters
    ----------
    scores : ndarray of shape (n_samples,)
        Scores.
    positive : ndarray of bool of shape (n_samples,)
        Whether each score belongs to a positive.
    weights : ndarray of shape (n_samples,), optional
        How many points each score represents; 1 by default.
    offset : float, optional
        B, if it is already known; then only A is fitted.

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
    # Scores that are equal up to rounding carry no information about the slope.
    differ = scale > 1e-12 * np.abs(scores).max(initial=0.0)
    # The model is what is fitted: the slope alone, or slope and offset.
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
    """Posteriors from scores; `of` chooses the kind for two classes or for more.

    Parameters
    ----------
    scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores: one for two classes, one for each of more classes.
    labels : ndarray of shape (n_samples,)
        Whether each score belongs to a positive, or the position of its class among more than two.
    weights : ndarray of shape (n_samples,), optional
        How many points each score represents; 1 by default.
    measure : Measure, optional
        The measure that the scores were learned for.
    """

    def __init__(
        self,
        scores: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray | None = None,
        measure: Measure | None = None,
    ):
        self.scores = scores
        self.labels = labels
        self.weights = np.ones(len(scores)) if weights is None else weights
        self.measure = measure

    @staticmethod
    def of(
        scores: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray | None = None,
        measure: Measure | None = None,
    ) -> Calibration:
        """Calibration for two classes, or for as many as there are columns of scores."""
        kind = TwoClassCalibration if scores.ndim == 1 else ClassCalibration
        return kind(scores, labels, weights, measure)

    def loss(self) -> float:
        """Mean cross-entropy of the labels of the points that the calibration is fitted to."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Posterior probabilities, with a row for each score and a column for each class."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The data that the calibration is fitted to, as arrays by name."""
        arrays = {"scores": self.scores, "labels": self.labels, "weights": self.weights}
        measure = self.measure
        if isinstance(measure, Valuation):
            arrays["level"], measure = np.array(measure.level), measure.measure
        return arrays if measure is None else {**arrays, "measure": np.array(measure.name)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Calibration:
        """Inverse of `to_arrays`; arrays of the wrong name, type or shape raise a ValueError."""
        measure: Measure | None = None
        if "measure" in arrays.arrays:
            measure = get_measure(str(arrays.any("measure")))
        if "level" in arrays.arrays:
            if not isinstance(measure, PseudoMeasure):
                raise ValueError(
                    f"{measure!r} cannot have a level; only pseudo-concave measures do"
                )
            measure = measure.valuation(arrays.real("level"))
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
        return cls.of(scores, labels, weights, measure)

    def __getstate__(self) -> dict[str, Any]:
        """The data without the fitted functions, which are fitted again when needed."""
        names = ("scores", "labels", "weights", "measure")
        return {name: getattr(self, name) for name in names}

    @staticmethod
    def latest(
        known: Calibration | None,
        scores: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        measure: Measure | None,
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
        return Calibration.of(*joined, measure)


class TwoClassCalibration(Calibration):
    """The share of positives as a nondecreasing function of the score.

    With fewer than 1,000 points, the function is a sigmoid. Its slope is fitted. Its offset follows from the measure if
    the class gradients a⁺ and a⁻ at perfect rates are both positive (as for BA and its mixtures with prevalence-only
    measures): score 0 is then the threshold for class weights a⁺/p and a⁻/n, so the posterior odds there are
    a⁻p/(a⁺n). Otherwise the offset is fitted too. A sigmoid suits the scores of a model that maximises likelihood. A
    model that maximises another measure may have posteriors of any shape, and the only safe assumption is that they
    increase with the score. From 1,000 points on, the function is therefore an isotonic regression on the labels and
    on the sigmoid, which has a total weight of 1,000 points. No posterior is exactly 0 or 1.

    The parameters are those of `Calibration`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=100_000)
    >>> positive = rng.random(100_000) < scores.clip(0.0, 1.0)
    >>> TwoClassCalibration(scores, positive).posterior(np.array([-1.0, 0.5, 2.0])).round(1)
    array([0. , 0.5, 1. ])
    """

    def _offset(self) -> float | None:
        """Log-odds of the posterior at score 0 if the measure determines them, otherwise None."""
        n_pos, n_neg = self.weights[self.labels].sum(), self.weights[~self.labels].sum()
        if not isinstance(self.measure, NestedMeasure) or min(n_pos, n_neg) == 0.0:
            return None
        total = n_pos + n_neg
        a_pos, a_neg = self.measure.class_gradients(1.0, 1.0, n_pos / total, smoothing(total))
        if min(a_pos, a_neg) <= 0.0:
            return None
        return math.log(a_neg * n_pos) - math.log(a_pos * n_neg)

    @cached_property
    def _platt(self) -> tuple[float, float]:
        return fit_platt(self.scores, self.labels, self.weights, self._offset())

    @cached_property
    def _curve(self) -> IsotonicRegression | None:
        total = self.weights.sum()
        if total < _SIGMOID_POINTS:
            return None
        slope, offset = self._platt
        share = _SIGMOID_POINTS / total
        target = (self.labels + share * expit(slope * self.scores + offset)) / (1.0 + share)
        curve = IsotonicRegression(out_of_bounds="clip")
        return curve.fit(self.scores, target, sample_weight=self.weights)

    def posterior(self, scores: np.ndarray) -> np.ndarray:
        """Probability of the positive class at each score."""
        if self._curve is not None:
            return self._curve.predict(scores)
        slope, offset = self._platt
        return expit(slope * scores + offset)

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Posterior probabilities, with a row for each score and a column for each class."""
        positive = self.posterior(scores)
        return np.column_stack([1.0 - positive, positive])


class ClassCalibration(Calibration):
    """Posteriors of K classes, softmax(T·f + offsets), from their scores f.

    At the optimum of a measure, equal scores mean equal α_j·η_j/p_j, where α_j is the derivative of the measure by the
    recall of class j. So the offsets are ln(p_j/α_j), with α at perfect rates (for built-in measures it is equal for
    all classes, or 0 and then left out), plus a correction. The temperature T and the corrections maximise the
    likelihood of the labels. The corrections have a Gaussian prior around 0, so a class with few points keeps the
    offset that follows from the measure. A point of class j has the weight 1/√p_j in the likelihood, and its posterior
    there is that at prevalences in proportion to √p_j: quantifiers use posteriors at other prevalences than p, and in
    the plain likelihood rare classes would hardly count.

    The parameters are those of `Calibration`.
    """

    @cached_property
    def _shares(self) -> np.ndarray:
        """Shares of the classes, with half a point more for each, so that none is 0."""
        members = np.bincount(self.labels, self.weights, self.scores.shape[1]) + 0.5
        return members / members.sum()

    def _prior(self) -> np.ndarray:
        """−ln α: the offsets that follow from the measure at equal prevalences."""
        p = self._shares
        if isinstance(self.measure, NestedMeasure):
            alpha, _ = self.measure.gradients(
                np.ones(len(p)), p, p, smoothing(self.weights.sum() or 1.0)
            )
            if alpha.min() > 0.0:
                return -np.log(alpha) + np.log(alpha).mean()
        return np.zeros(len(p))

    def _maximise(self, most: int, free: bool) -> tuple[float, np.ndarray, float]:
        """Temperature, offsets and mean loss of the best fit to at most so many scores.

        As in `fit_platt`, the target of a class of n points is (n + 1)/(n + 2), so that a best fit exists even if the
        scores separate the classes.
        """
        n_classes = self.scores.shape[1]
        every = max(len(self.labels) * n_classes // most, 1)
        labels, weights = self.labels[::every], self.weights[::every]
        scale = max(float(np.std(self.scores)), 1e-300)
        f = self.scores[::every] / scale
        members = np.bincount(labels, weights, n_classes)
        rest = 1.0 / (members[labels] + 2.0)
        target = np.repeat((rest / (n_classes - 1))[:, np.newaxis], n_classes, axis=1)
        target[np.arange(len(labels)), labels] = 1.0 - rest
        total = weights.sum()
        roots = np.sqrt(self._shares)
        weights = weights / roots[labels]
        weights = weights * (total / weights.sum())
        prior = self._prior() + np.log(roots)

        def loss(model: np.ndarray) -> tuple[float, np.ndarray]:
            temperature = math.exp(model[0])
            change = model[1:] if free else np.zeros(n_classes)
            logs = log_softmax(temperature * f + (prior + change), axis=1)
            value = -np.einsum("i,ij,ij->", weights, target, logs)
            wrong = (np.exp(logs) - target) * weights[:, np.newaxis]
            slope = np.array([temperature * np.vdot(wrong, f)])
            if free:
                value += 0.5 * change @ change / _SPREAD**2
                slope = np.concatenate([slope, wrong.sum(axis=0) + change / _SPREAD**2])
            return value / total, slope / total

        bounds = [(-12.0, 12.0), *[(None, None)] * (n_classes if free else 0)]
        start = np.zeros(len(bounds))
        with threadpool_limits(
            1, "blas"
        ):  # waking the threads of BLAS takes longer than these steps
            found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
        offsets = prior + np.log(roots) + (found.x[1:] if free else 0.0)
        return math.exp(found.x[0]) / scale, offsets, float(found.fun)

    @cached_property
    def _fitted(self) -> tuple[float, np.ndarray]:
        """Temperature and offsets."""
        return self._maximise(_MOST_SCORES, free=True)[:2]

    def loss(self) -> float:
        """Mean cross-entropy of the labels, with the best temperature and the offsets of the measure."""
        return self._maximise(_MOST_TO_COMPARE, free=False)[2]

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Posterior probabilities, with a row for each score and a column for each class."""
        temperature, offsets = self._fitted
        return softmax(temperature * scores + offsets, axis=1)


def calibrate(
    state: State[Any], data: Data, held: Points | None, rng: np.random.Generator
) -> Calibration:
    """Calibrate the scores of a state's model at the end of `fit`.

    The scores of held-out rows come from models other than the final one, and the scores of training rows come from
    the final model itself. For more than two classes, held-out rows are used wherever there are any. For two classes
    and many rows per feature, training rows give the better calibration. With few, their scores are too optimistic, so
    held-out rows are used.
    """
    X, measure = data.X, state.objective()
    if held is not None and (data.n_classes > 2 or X.shape[0] < 10 * X.shape[1]):
        return Calibration.of(*held, measure)
    sample, weights = sample_of_classes(data, rng)
    blocks = np.array_split(sample, len(sample) // 10_000 + 1)  # indexing copies rows
    model = state.model()
    scores = np.concatenate([quiet_scores(X[rows], *model) for rows in blocks])
    return Calibration.of(scores, data.labels[sample], weights, measure)
