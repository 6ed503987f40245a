"""The separation oracle of structural learners, which finds the constraint that a model violates most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quapy_nemsis._kernels.oracle import search, tabulate
from quapy_nemsis.measures import Loss, Rates
from quapy_nemsis.measures.compiled import (
    LOSS_THETA,
    loss_callback,
)


@dataclass
class Constraint:
    """The constraint of the labelling ȳ with the highest H = Δ(ȳ) − (1/|S|) Σ (y_i − ȳ_i) f(x_i)."""

    #: H.
    value: float
    #: Δ(ȳ).
    loss: float
    #: (y_i − ȳ_i)/|S| of each row: 0 where the labels agree, ±2/|S| where they differ.
    weights: np.ndarray


class SeparationOracle:
    """Finds the most violated constraint for any scores of the same labelled rows.

    For a prevalence-only loss, H is highest, for each number of predicted positives, if these have the highest scores.
    One sort and one scan find the maximum in O(n log n). Any other loss takes a sort of each class and a search over
    the numbers of misses and false alarms (see `quapy_nemsis._kernels.oracle`). This usually takes O(n log n) too, but
    O(n₊·n₋) for custom measures, whose shape is unknown.

    Parameters
    ----------
    loss : Loss
        The loss Δ.
    positive : ndarray of bool of shape (n_samples,)
        Whether each row is positive; both classes must occur.
    """

    def __init__(self, loss: Loss, positive: np.ndarray):
        self.loss = loss
        self.positive = positive
        self.pos, self.neg = np.flatnonzero(positive), np.flatnonzero(~positive)
        self.found = np.zeros(2, dtype=np.int64)
        theta = loss.theta
        self.callback = loss_callback(loss.function, len(theta))
        self.ask = np.zeros((1, LOSS_THETA + len(theta)))
        self.ask[0, LOSS_THETA:] = theta
        self.by_count = np.zeros(len(positive) + 1)
        if loss.prevalence_only:
            sizes = len(self.pos), len(self.neg)
            tabulate(self.callback.address, self.ask, *sizes, self.by_count)

    def __call__(self, scores: np.ndarray) -> Constraint:
        """Find the most violated constraint for scores f(x_i)."""
        return self._by_count(scores) if self.loss.prevalence_only else self._by_errors(scores)

    def prediction_loss(self, scores: np.ndarray) -> float:
        """Loss Δ of the labels that the scores predict."""
        hits_pos = int(np.count_nonzero(scores[self.pos] > 0.0))
        hits_neg = int(np.count_nonzero(scores[self.neg] <= 0.0))
        return self.loss.value(*Rates.of(hits_pos, len(self.pos), hits_neg, len(self.neg)))

    def _by_count(self, scores: np.ndarray) -> Constraint:
        total = len(scores)
        order = np.argsort(-scores, kind="stable")
        highest = np.concatenate([[0.0], np.cumsum(scores[order])])
        # Σ ȳ_i·f(x_i), for each number of predicted positives.
        sums = 2.0 * highest - highest[-1]
        truth = scores[self.pos].sum() - scores[self.neg].sum()
        values = self.by_count + (sums - truth) / total
        k = int(np.argmax(values))
        predicted = np.zeros(total, dtype=bool)
        predicted[order[:k]] = True
        weights = (self.positive.astype(float) - predicted) * (2.0 / total)
        return Constraint(float(values[k]), float(self.by_count[k]), weights)

    def _by_errors(self, scores: np.ndarray) -> Constraint:
        total = len(scores)
        lowest = self.pos[np.argsort(scores[self.pos], kind="stable")]
        highest = self.neg[np.argsort(-scores[self.neg], kind="stable")]
        gain_pos = np.concatenate([[0.0], np.cumsum(scores[lowest])]) * (-2.0 / total)
        gain_neg = np.concatenate([[0.0], np.cumsum(scores[highest])]) * (2.0 / total)
        value = search(
            self.callback.address, self.ask, gain_pos, gain_neg, self.loss.bounded, self.found
        )
        misses, alarms = self.found
        weights = np.zeros(total)
        weights[lowest[:misses]] = 2.0 / total
        weights[highest[:alarms]] = -2.0 / total
        return Constraint(value, value - gain_pos[misses] - gain_neg[alarms], weights)
