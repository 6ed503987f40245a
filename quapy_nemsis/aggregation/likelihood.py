"""EMQ and KDEyML: prevalences of maximum likelihood."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from quapy_nemsis._kernels import aggregation, density, mixture
from quapy_nemsis.aggregation.samples import (
    CompiledAggregation,
    Samples,
    in_threads,
    posteriors_of,
    table_of,
)
from quapy_nemsis.quantifiers._quapy import aggregative

if TYPE_CHECKING:
    from typing_extensions import Self

# QuaPy adds this to densities before it takes their logarithm.
_EPSILON = 1e-12
# The mean log-likelihood is at most this far from its maximum (see `_kernels.mixture`).
_GAP, _MOST_STEPS = 1e-10, 200
# The likelihoods of so many rows are remembered.
_MOST_ROWS = 100_000


class EMQ(CompiledAggregation, aggregative.EMQ):
    """Compiled version of QuaPy's EMQ, which estimates prevalences by expectation-maximisation (also called SLD).

    The algorithm, its starting point and its stopping rule are QuaPy's: it stops after twelve steps or more, when the
    prevalences change by less than 1e-4 on average. Estimates are therefore QuaPy's up to rounding, and not the exact
    maximum of the likelihood. Parameters, calibrations and attributes are those of `quapy.method.aggregative.EMQ`.

    References
    ----------
    .. [1] Saerens, M., Latinne, P. and Decaestecker, C. (2002). Adjusting the outputs of a classifier to new a priori
       probabilities: a simple procedure. Neural Computation 14.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> EMQ(LogisticRegression(max_iter=1000)).fit(X, y).predict(X[20:]).round(1)
    array([0.2, 0.4, 0.4])
    """

    train_prevalence: np.ndarray

    @classmethod
    def EMQ_BCTS(cls, classifier: Any, val_split: Any = 5, **options: Any) -> Self:
        """Return EMQ with bias-corrected temperature scaling, as QuaPy's method of the same name does."""
        options = {"exact_train_prev": False, "calib": "bcts", **options}
        return cls(classifier, val_split=val_split, **options)

    def aggregate(
        self, classif_posteriors: np.ndarray, epsilon: float = aggregative.EMQ.EPSILON
    ) -> np.ndarray:
        """Estimate the prevalences of the classes in a sample.

        Parameters
        ----------
        classif_posteriors : ndarray of shape (n_rows, n_classes)
            Posteriors, as `classify` returns them.
        epsilon : float, default=1e-4
            The algorithm stops when the mean change of a prevalence is less than this.

        Returns
        -------
        ndarray of shape (n_classes,)
            Estimated prevalences, in the order of `classes_`.
        """
        samples = Samples.whole(len(classif_posteriors))
        return self._estimates(self._prepared(classif_posteriors, 1), samples, epsilon)[0]

    def _prepared(self, predictions: Any, n_jobs: int) -> np.ndarray:
        calibrated = self._calibrate_if_requested(np.asarray(predictions))
        return posteriors_of(calibrated, len(self.train_prevalence))

    def _estimates(
        self, prepared: np.ndarray, samples: Samples, epsilon: float = aggregative.EMQ.EPSILON
    ) -> np.ndarray:
        training = np.array(self.train_prevalence, dtype=float)
        if not training.all():  # QuaPy's smoothing
            training = training + epsilon
            training /= training.sum()
        found, converged = np.empty((len(samples), len(training))), np.empty(len(samples), bool)
        aggregation.expect(
            prepared,
            *samples.arrays,
            training,
            float(epsilon),
            int(self.MAX_ITER),
            found,
            converged,
        )
        if not converged.all():
            warnings.warn(
                f"EMQ has reached {self.MAX_ITER} steps on {np.sum(~converged)} of {len(samples)} samples, and may not "
                "have converged there",
                stacklevel=3,
            )
        return found


class KDEyML(CompiledAggregation, aggregative.KDEyML):
    """Compiled version of QuaPy's KDEyML, maximum likelihood with kernel densities of posteriors.

    The density of each class is that of Gaussian kernels around the posteriors of its training rows, and the estimate
    maximises Σᵢ ln(Σⱼ pⱼ·Lᵢⱼ + 1e-12) over the simplex, where Lᵢⱼ is the density of class j at the posterior of row i.
    Newton's method finds this maximum up to 1e-10 a row. QuaPy's generic minimiser stops earlier, so its estimates can
    have a lower likelihood, but never a higher one. Densities are exact to 13 digits. QuaPy uses scikit-learn's
    `KernelDensity`, whose densities can be wrong by orders of magnitude if the bandwidth is small (0.01) and there are
    many classes (scikit-learn's issue 25799). Estimates then differ. Parameters and attributes are those of
    `quapy.method.aggregative.KDEyML`.

    References
    ----------
    .. [1] Moreo, A., González, P. and del Coz, J. J. (2025). Kernel density estimation for multiclass quantification.
       Machine Learning 114.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> KDEyML(LogisticRegression(max_iter=1000), bandwidth=0.05).fit(X, y).predict(X[20:]).round(1)
    array([0.2, 0.4, 0.4])
    """

    mix_densities: list[Any]

    def aggregation_fit(self, classif_predictions: Any, labels: Any) -> Self:
        """Take the posteriors of each class as centres of its kernels.

        Parameters
        ----------
        classif_predictions : ndarray of shape (n_rows, n_classes)
            Out-of-fold posteriors.
        labels : array-like of shape (n_rows,)
            Their labels.

        Returns
        -------
        self
            The quantifier.
        """
        super().aggregation_fit(classif_predictions, labels)
        self._forget()
        return self

    def _forget(self) -> None:
        self._centres: list[tuple[Any, ...]] = []
        self._remembered: dict[bytes, np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        # They are computed again when they are needed.
        return {**state, "_centres": [], "_remembered": {}}

    def pdf(self, kde: Any, X: ArrayLike, kernel: str, log_densities: bool = False) -> np.ndarray:
        """Density of a class.

        Parameters
        ----------
        kde : KernelDensity
            One of `mix_densities`.
        X : array-like of shape (n_rows, n_classes)
            Posteriors.
        kernel : str
            Kernel of the quantifier.
        log_densities : bool, default=False
            Whether to return logarithms.

        Returns
        -------
        ndarray of shape (n_rows,)
            Densities.
        """
        rows = posteriors_of(X, len(self.mix_densities))
        logs = _log_densities(_blocks(kde), table_of(self.transform_posteriors(rows, kernel)))
        return logs if log_densities else np.exp(logs)

    def _likelihoods(self, posteriors: np.ndarray, n_jobs: int = 1) -> np.ndarray:
        """Densities of all classes at each posterior, up to a factor for each of them."""
        if not getattr(self, "_centres", None):
            self._centres = [_blocks(kde) for kde in self.mix_densities]
        checked = posteriors_of(posteriors, len(self.mix_densities))
        points = table_of(self.transform_posteriors(checked, self.kernel))
        if not np.isfinite(points).all():
            raise ValueError("posteriors must be finite numbers; got NaN or infinity among them")

        def of_part(part: np.ndarray) -> np.ndarray:
            return np.column_stack([_log_densities(centres, part) for centres in self._centres])

        logs = in_threads(of_part, np.array_split(points, n_jobs))
        n_classes = logs.shape[1]
        # With more classes, QuaPy works with logarithms and adds nothing.
        if n_classes < (30 if self.kernel == "gaussian" else 20):
            logs = np.logaddexp(logs, np.log(_EPSILON))
        return np.exp(logs - logs.max(axis=1, keepdims=True))

    def aggregate(self, posteriors: np.ndarray) -> np.ndarray:
        """Estimate the prevalences of the classes in a sample.

        Likelihoods of rows are remembered, because samples of a protocol share them.

        Parameters
        ----------
        posteriors : ndarray of shape (n_rows, n_classes)
            Posteriors, as `classify` returns them.

        Returns
        -------
        ndarray of shape (n_classes,)
            Estimated prevalences, in the order of `classes_`.
        """
        samples = Samples.whole(len(posteriors))
        rows = posteriors_of(posteriors, len(self.mix_densities))
        keys = [row.tobytes() for row in rows]
        known = self._remembered
        new = {key: row for key, row in zip(keys, rows, strict=True) if key not in known}
        if new:
            if len(known) + len(new) > _MOST_ROWS:
                known = {key: known[key] for key in set(keys) - set(new)}
            found = self._likelihoods(np.array(list(new.values())))
            self._remembered = known = {**known, **dict(zip(new, found, strict=True))}
        return self._estimates(np.array([known[key] for key in keys]), samples)[0]

    def _prepared(self, predictions: Any, n_jobs: int) -> np.ndarray:
        return self._likelihoods(predictions, n_jobs)

    def _estimates(self, prepared: np.ndarray, samples: Samples) -> np.ndarray:
        n_classes = prepared.shape[1]
        found = np.full((len(samples), n_classes), 1.0 / n_classes)
        gap = mixture.maximise_samples(prepared, *samples.arrays, found, _GAP, _MOST_STEPS)
        if gap > 1e-6:
            warnings.warn(
                f"the mean log-likelihood of a sample may be {gap:.2g} below its maximum",
                stacklevel=3,
            )
        return found


def _blocks(kde: Any) -> tuple[Any, ...]:
    """Centres and bandwidth of scikit-learn's kernel density, in the order of its tree."""
    centres, order, *_ = (np.asarray(part) for part in kde.tree_.get_arrays())
    return *density.blocks(centres[order]), len(centres), float(kde.bandwidth_)


def _log_densities(centres: tuple[Any, ...], points: np.ndarray) -> np.ndarray:
    found = np.empty(len(points))
    density.log_densities(points, *centres, found)
    return found
