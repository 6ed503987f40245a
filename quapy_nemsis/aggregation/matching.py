"""HDy and DyS: the mixture of two histograms that matches the histogram of a sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from quapy_nemsis._kernels import aggregation
from quapy_nemsis.aggregation.samples import CompiledAggregation, Samples, table_of
from quapy_nemsis.quantifiers._quapy import F, aggregative

_DIVERGENCES = {"HD": aggregation.HELLINGER, "topsoe": aggregation.TOPSOE}
#: numpy adds more numbers than these in another order than the kernels.
_MOST_BINS = 128


def _bins(n_bins: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Edges and widths of the bins that numpy divides 0 to 1 into, for values of a type."""
    edges = np.histogram_bin_edges(np.empty(0, dtype), bins=n_bins, range=(0, 1))
    return table_of(edges), table_of(np.diff(edges))


class _Matching(CompiledAggregation):
    """What HDy and DyS share."""

    pos_label: Any

    def _is_compiled(self) -> bool:
        # QuaPy takes the label of the positive class as the position of its column.
        return isinstance(self.pos_label, int | np.integer) and not isinstance(self.pos_label, bool)

    def _prepared(self, predictions: Any, n_jobs: int) -> tuple[np.ndarray, np.dtype]:
        scores = np.asarray(predictions)[:, self.pos_label]
        return table_of(scores), scores.dtype


class HDy(_Matching, aggregative.HDy):
    """Compiled version of QuaPy's HDy, which matches histograms of posteriors, for two classes.

    For 10, 20, … 110 bins, the share of positives is that of 100 from 0 to 1 whose mixture of the histograms of both
    classes has the least Hellinger distance to the histogram of the sample. The estimate is the median of these 11.
    It is QuaPy's to the last bit, including that QuaPy normalises the histograms of the classes to sum 1 and that of
    the sample to area 1. Parameters and attributes are those of `quapy.method.aggregative.HDy`.

    References
    ----------
    .. [1] González-Castro, V., Alaiz-Rodríguez, R. and Alegre, E. (2013). Class distribution estimation based on the
       Hellinger distance. Information Sciences 218.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> HDy().fit(scale(X), y).predict(scale(X)[:300]).round(1)
    array([0.5, 0.5])
    """

    bins: np.ndarray
    Pxy1_density: dict[Any, np.ndarray]
    Pxy0_density: dict[Any, np.ndarray]

    def _estimates(self, prepared: tuple[np.ndarray, np.dtype], samples: Samples) -> np.ndarray:
        scores, dtype = prepared
        candidates = table_of(F.prevalence_linspace(100, smooth_limits_epsilon=0.0))
        found = np.empty((len(self.bins), len(samples)))
        for n_bins, shares in zip(self.bins, found, strict=True):
            classes = table_of(self.Pxy1_density[n_bins]), table_of(self.Pxy0_density[n_bins])
            bins = _bins(n_bins, dtype)
            aggregation.match(scores, *samples.arrays, *bins, *classes, candidates, shares)
        return F.as_binary_prevalence(np.median(found, axis=0))


class DyS(_Matching, aggregative.DyS):
    """Compiled version of QuaPy's DyS, which matches histograms of scores, for two classes.

    A ternary search finds the share of positives whose mixture of the histograms of both classes has the least
    divergence from the histogram of the sample. With "HD", the estimate is QuaPy's to the last bit; with "topsoe",
    logarithms are rounded differently. Other divergences, and more than 128 bins, run QuaPy's own code. Parameters and
    attributes are those of `quapy.method.aggregative.DyS`.

    References
    ----------
    .. [1] Maletzke, A., dos Reis, D., Cherman, E. and Batista, G. (2019). DyS: a framework for mixture models in
       quantification. AAAI 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> DyS().fit(scale(X), y).predict(scale(X)[:300]).round(1)
    array([0.5, 0.5])
    """

    divergence: Any
    n_bins: int
    tol: float
    Pxy1_density: np.ndarray
    Pxy0_density: np.ndarray

    def _is_compiled(self) -> bool:
        known = isinstance(self.divergence, str) and self.divergence in _DIVERGENCES
        return known and self.n_bins <= _MOST_BINS and super()._is_compiled()

    def _estimates(self, prepared: tuple[np.ndarray, np.dtype], samples: Samples) -> np.ndarray:
        scores, dtype = prepared
        classes = table_of(self.Pxy1_density), table_of(self.Pxy0_density)
        kind, found = _DIVERGENCES[self.divergence], np.empty(len(samples))
        bins = _bins(self.n_bins, dtype)
        aggregation.search(scores, *samples.arrays, *bins, *classes, kind, float(self.tol), found)
        return F.as_binary_prevalence(found)
