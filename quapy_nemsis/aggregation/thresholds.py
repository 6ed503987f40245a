"""MS: the median of adjusted counts over all thresholds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from quapy_nemsis._kernels import aggregation
from quapy_nemsis.aggregation.samples import CompiledAggregation, Samples, one_of_each, table_of
from quapy_nemsis.quantifiers._quapy import aggregative


class _Ranked(NamedTuple):
    """How many thresholds the score of each row reaches, and the rates at each threshold, in ascending order."""

    ranks: np.ndarray
    tprs: np.ndarray
    fprs: np.ndarray


class MS(CompiledAggregation, aggregative.MS):
    """Compiled version of QuaPy's MS, median sweep, for two classes.

    Each threshold of the score gives an adjusted count (c − fpr)/(tpr − fpr), clipped to [0, 1]; the estimate is their
    median. It is QuaPy's to the last bit. QuaPy compares all scores with all thresholds. Here rows are ranked among
    the thresholds once, and counted. Training is a sort, with the same rates and thresholds as QuaPy's. Parameters and
    attributes are those of `quapy.method.aggregative.MS`.

    References
    ----------
    .. [1] Forman, G. (2008). Quantifying counts and costs via classification. Data Mining and Knowledge Discovery 17.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> MS().fit(scale(X), y).predict(scale(X)[:300]).round(1)
    array([0.5, 0.5])
    """

    thresholds: np.ndarray
    tprs: np.ndarray
    fprs: np.ndarray

    def _eval_candidate_thresholds(self, decision_scores: ArrayLike, y: ArrayLike) -> np.ndarray:
        """Rates of true and false positives at each score as a threshold, and the threshold, (n, 3); best first."""
        labels = np.asarray(y)
        thresholds, places = np.unique(np.asarray(decision_scores), return_inverse=True)

        def reaching(label: Any) -> np.ndarray:
            """How many rows of a class reach each threshold."""
            counts = np.bincount(places[labels == label], minlength=len(thresholds))
            return np.cumsum(counts[::-1])[::-1]

        true, false = reaching(self.pos_label), reaching(self.neg_label)
        tprs = true / true[0] if true[0] else np.ones(len(true))
        fprs = false / false[0] if false[0] else np.zeros(len(false))
        rates = zip(tprs.tolist(), fprs.tolist(), thresholds.tolist(), strict=True)
        candidates = [rate for rate in rates if not self.discard(rate[0], rate[1])]
        if not candidates:
            candidates = [(1.0, 0.0, 0.0)]  # plain counting, as in QuaPy
        order = np.argsort([self.condition(tpr, fpr) for tpr, fpr, _ in candidates])
        return np.array(candidates)[order]

    def _prepared(self, predictions: Any, n_jobs: int) -> _Ranked:
        order, scores = np.argsort(self.thresholds), one_of_each(predictions, "score").astype(float)
        ranks = np.searchsorted(self.thresholds[order], scores, side="right")
        ranks[np.isnan(scores)] = 0  # they reach no threshold
        rates = (table_of(rates[order]) for rates in (self.tprs, self.fprs))
        return _Ranked(ranks.astype(np.int64), *rates)

    def _estimates(self, prepared: _Ranked, samples: Samples) -> np.ndarray:
        found = np.empty((len(samples), 2))
        aggregation.sweep(prepared.ranks, *samples.arrays, prepared.tprs, prepared.fprs, found)
        return found
