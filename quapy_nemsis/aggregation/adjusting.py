"""ACC and PACC: counts, adjusted for the errors of the classifier."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from quapy_nemsis._kernels import aggregation, simplex
from quapy_nemsis.aggregation.samples import (
    CompiledAggregation,
    Samples,
    class_codes,
    one_of_each,
    posteriors_of,
    table_of,
)
from quapy_nemsis.quantifiers._quapy import aggregative

if TYPE_CHECKING:
    from typing_extensions import Self


class _Adjusted(CompiledAggregation):
    """What ACC and PACC share."""

    solver: str
    method: str
    norm: str | None
    Pte_cond_estim_: np.ndarray

    def _is_compiled(self) -> bool:
        # "condsoftmax" changes those minima of QuaPy's solver that miss the simplex by 1e-8, and no exact minimum.
        return self.solver == "minimize" and self.norm != "condsoftmax"

    @abstractmethod
    def _shares(self, prepared: Any, samples: Samples) -> np.ndarray:
        """Mean predictions of samples."""

    def _estimates(self, prepared: Any, samples: Samples) -> np.ndarray:
        rates, shares = table_of(self.Pte_cond_estim_), self._shares(prepared, samples)
        if self.method == "invariant-ratio":
            rates = rates.copy()
            rates[-1], shares[:, -1] = 1.0, 1.0
        found = np.empty((len(samples), rates.shape[1]))
        simplex.adjust(rates, shares, found)
        return found


class ACC(_Adjusted, aggregative.ACC):
    r"""Compiled version of QuaPy's ACC, adjusted classify and count.

    The estimate is the prevalence vector p of the simplex that minimises ‖Mp − q‖, where q are the shares of the
    predicted classes and :math:`M_{ij}` is the rate at which rows of class j are predicted as i (Bunse 2022). An
    active-set method solves this least-squares problem exactly. QuaPy's generic minimiser stops when the norm changes
    by less than 1e-6, so its estimates can be less exact, but never better. Parameters and attributes are those of
    `quapy.method.aggregative.ACC`. The other solvers ("exact-raise", "exact-cc") and ``norm="condsoftmax"`` run QuaPy's
    own code.

    References
    ----------
    .. [1] Forman, G. (2008). Quantifying counts and costs via classification. Data Mining and Knowledge Discovery 17.
    .. [2] Bunse, M. (2022). On multi-class extensions of adjusted classify and count. LQ 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> quantifier = ACC(LogisticRegression(max_iter=1000)).fit(X, y)
    >>> quantifier.predict(X[20:]).round(1)  # 30 of 130 rows are of the first class
    array([0.2, 0.4, 0.4])
    >>> labels = quantifier.classify(X)
    >>> quantifier.aggregate_samples(labels, [range(50), range(40, 60)]).round(1)
    array([[1. , 0. , 0. ],
           [0.5, 0.5, 0. ]])
    """

    @classmethod
    def newInvariantRatioEstimation(cls, classifier: Any, **options: Any) -> Self:
        """Return the invariant ratio estimator of Vaz et al. (2019), as QuaPy's method of the same name does."""
        return cls(classifier, method="invariant-ratio", norm="mapsimplex", **options)

    def _prepared(self, predictions: Any, n_jobs: int) -> np.ndarray:
        return class_codes(one_of_each(predictions, "label"), self.classes_)

    def _shares(self, prepared: np.ndarray, samples: Samples) -> np.ndarray:
        return samples.shares(prepared, len(self.classes_))


class PACC(_Adjusted, aggregative.PACC):
    """Compiled version of QuaPy's PACC, probabilistic adjusted classify and count.

    This is `ACC` with mean posteriors in place of the shares of predicted classes. It is solved in the same way.
    Parameters and attributes are those of `quapy.method.aggregative.PACC`.

    References
    ----------
    .. [1] Bella, A., Ferri, C., Hernández-Orallo, J. and Ramírez-Quintana, M. J. (2010). Quantification via probability
       estimators. ICDM 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> PACC(LogisticRegression(max_iter=1000)).fit(X, y).predict(X[20:]).round(1)
    array([0.2, 0.4, 0.4])
    """

    def _prepared(self, predictions: Any, n_jobs: int) -> np.ndarray:
        return posteriors_of(predictions, len(self.Pte_cond_estim_))

    def _shares(self, prepared: np.ndarray, samples: Samples) -> np.ndarray:
        shares = np.empty((len(samples), prepared.shape[1]))
        aggregation.average(prepared, *samples.arrays, shares)
        return shares
