"""Plots as objects, in the style of scikit-learn's displays (needs matplotlib).

A display holds the numbers that it draws. ``from_estimator`` computes them with a fitted quantifier or classifier,
``from_predictions`` takes estimates that are there already, and ``plot(ax=...)`` draws them (again, elsewhere). After
that, ``ax_`` and ``figure_`` are what was drawn on.

Examples
--------
>>> from quapy_nemsis.displays import DiagonalDisplay
>>> display = DiagonalDisplay.from_predictions([0.2, 0.8], [0.25, 0.7], name="CC")
>>> display.estimated.tolist()
[0.25, 0.7]
>>> display.ax_.get_ylabel()
'estimated prevalence'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from quapy_nemsis._validation import MatrixLike, check_integer, check_share
from quapy_nemsis.aggregation import prediction
from quapy_nemsis.streaming.plotting import COLOURS, new_axes
from quapy_nemsis.tracking.plotting import TrackDisplay

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from typing_extensions import Self

__all__ = [
    "DiagonalDisplay",
    "DriftErrorDisplay",
    "PrevalenceDisplay",
    "ReliabilityDisplay",
    "TrackDisplay",
]


def _shares(name: str, values: ArrayLike) -> np.ndarray:
    """Prevalences of samples, a row for each; of two classes, those of the second may be given alone."""
    found = np.asarray(values, dtype=float)
    if found.ndim == 1:
        found = np.column_stack([1.0 - found, found])
    if found.ndim != 2 or not len(found):
        raise ValueError(
            f"{name} must have a row of prevalences for each sample; got the shape {np.shape(values)}"
        )
    _check_range(name, found)
    return found


def _check_range(name: str, values: np.ndarray) -> None:
    """Refuse values outside of [0, 1], with a little room for rounding."""
    wrong = values[~((values >= -1e-9) & (values <= 1.0 + 1e-9))]
    if len(wrong):
        raise ValueError(f"{name} must lie between 0 and 1; got {wrong[0]}")


def _pairs(true: ArrayLike, estimated: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """True and estimated prevalences, of one shape."""
    both = _shares("true", true), _shares("estimated", estimated)
    if both[0].shape != both[1].shape:
        raise ValueError(
            "true and estimated must be prevalences of the same samples and classes; got the shapes "
            f"{np.shape(true)} and {np.shape(estimated)}"
        )
    return both


def _means(
    places: np.ndarray, *columns: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """Group entries by their place; sizes of the groups, and means and standard deviations of the columns in each."""
    _, codes, sizes = np.unique(places, return_inverse=True, return_counts=True)
    means = [np.bincount(codes, column) / sizes for column in columns]
    squares = [
        np.bincount(codes, (column - mean[codes]) ** 2) / sizes
        for column, mean in zip(columns, means, strict=True)
    ]
    return sizes, means, [np.sqrt(square) for square in squares]


@dataclass(eq=False)
class _Display:
    """What displays share: the axes and the figure that were drawn on."""

    ax_: Axes = field(init=False, repr=False)
    figure_: Figure | SubFigure = field(init=False, repr=False)

    def _on(self, ax: Axes | None) -> Axes:
        """Keep the axes, or new ones, and return them."""
        self.ax_ = new_axes(type(self).__name__) if ax is None else ax
        self.figure_ = self.ax_.figure
        return self.ax_

    @staticmethod
    def _finish(ax: Axes) -> None:
        """Grid and legend."""
        ax.grid(alpha=0.3)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="best")


@dataclass(eq=False)
class PrevalenceDisplay(_Display):
    """Prevalences of the classes in a sample, with their intervals.

    Parameters
    ----------
    prevalence : ndarray of shape (n_classes,)
        Estimated prevalences.
    low, high : ndarray of shape (n_classes,) or None
        Ends of the intervals, if there are any.
    classes : sequence
        The labels.
    truth : ndarray of shape (n_classes,) or None
        True prevalences, if they are known.
    training : ndarray of shape (n_classes,) or None
        Prevalences in training, if they are known.

    Attributes
    ----------
    ax_ : Axes
        The axes that were drawn on.
    figure_ : Figure
        Their figure.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import StandardScaler
    >>> from quapy_nemsis import Quantifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> scaler = StandardScaler().fit(X[:300])
    >>> quantifier = Quantifier(random_state=0).fit(scaler.transform(X[:300]), y[:300])
    >>> display = PrevalenceDisplay.from_estimator(quantifier, scaler.transform(X[300:]), y[300:])
    >>> bool((display.low < display.truth).all() and (display.truth < display.high).all())
    True
    """

    prevalence: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    classes: Sequence[Any]
    truth: np.ndarray | None = None
    training: np.ndarray | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: MatrixLike,
        y: ArrayLike | None = None,
        *,
        confidence_level: float = 0.95,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Estimate the prevalences in a sample and draw them.

        Parameters
        ----------
        estimator : quantifier
            A fitted quantifier. If it has `predict_conf`, intervals are drawn as well.
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows of the sample.
        y : array-like of shape (n_samples,), optional
            Their labels, if they are known. They are drawn as the truth.
        confidence_level : float, default=0.95
            Probability that an interval contains the prevalence of its class.
        ax : Axes, optional
            Axes to draw on. By default, a new figure is made.
        **kwargs
            Passed on to `plot`.

        Returns
        -------
        PrevalenceDisplay
            The display, drawn.
        """
        check_share("confidence_level", confidence_level)
        classes = np.asarray(estimator.classes_)
        low = high = None
        if hasattr(estimator, "predict_conf"):
            found, region = estimator.predict_conf(X, confidence_level)
            outside = (1.0 - confidence_level) / 2.0
            low, high = np.quantile(region.samples, [outside, 1.0 - outside], axis=0)
        else:
            found = estimator.predict(X)
        truth = None
        if y is not None:
            strange = np.setdiff1d(np.asarray(y), classes)
            if len(strange):
                raise ValueError(
                    f"y has labels that the quantifier has not seen in training: {strange.tolist()}"
                )
            truth = np.array([np.mean(np.asarray(y) == label) for label in classes])
        known = getattr(estimator, "training", None)
        training = None if known is None else np.asarray(known.shares)
        return cls.from_predictions(
            found,
            low,
            high,
            classes=classes,
            truth=truth,
            training=training,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        prevalence: ArrayLike,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
        truth: ArrayLike | None = None,
        training: ArrayLike | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw prevalences that have been estimated already.

        Parameters
        ----------
        prevalence : array-like of shape (n_classes,)
            Estimated prevalences.
        low, high : array-like of shape (n_classes,), optional
            Ends of their intervals: both, or neither.
        classes : array-like of shape (n_classes,), optional
            The labels; by default 0, 1 and so on.
        truth, training : array-like of shape (n_classes,), optional
            True prevalences, and training prevalences.
        ax : Axes, optional
            Axes to draw on. By default, a new figure is made.
        **kwargs
            Passed on to `plot`.

        Returns
        -------
        PrevalenceDisplay
            The display, drawn.
        """
        if (low is None) != (high is None):
            raise ValueError("give both ends of the intervals, low and high, or neither")
        given = {
            "prevalence": prevalence,
            "low": low,
            "high": high,
            "truth": truth,
            "training": training,
        }
        arrays = {
            name: None if values is None else np.asarray(values, dtype=float)
            for name, values in given.items()
        }
        names = np.arange(np.size(prevalence)) if classes is None else np.asarray(classes)
        for name, values in arrays.items():
            if values is None:
                continue
            if values.shape != names.shape:
                raise ValueError(
                    f"{name} must have an entry for each of the {len(names)} classes; got the shape {values.shape}"
                )
            _check_range(name, values)
        return cls(classes=names.tolist(), **arrays).plot(ax, **kwargs)  # type: ignore[arg-type]

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, color: str = COLOURS[2]
    ) -> Self:
        """Draw a point with its interval for each class.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw on. By default, a new figure is made.
        name : str, optional
            Name of the estimates in the legend.
        color : str, optional
            Colour of points and intervals.

        Returns
        -------
        PrevalenceDisplay
            The display.
        """
        ax = self._on(ax)
        at = np.arange(len(self.classes))
        if self.low is not None and self.high is not None:
            ax.vlines(at, self.low, self.high, color=color, lw=3, alpha=0.4, label="interval")
        ax.plot(at, self.prevalence, "o", color=color, label=name or "estimate")
        for values, marker, label in ((self.truth, "x", "truth"), (self.training, "_", "training")):
            if values is not None:
                grey = COLOURS[0] if label == "truth" else "grey"
                ax.plot(at, values, marker, color=grey, ms=10, mew=2, label=label)
        ax.set_xticks(at, [str(label) for label in self.classes])
        ax.set_xlim(-0.5, len(at) - 0.5)
        ax.set_ylim(bottom=0.0, auto=True)  # more may be drawn
        ax.set_xlabel("class")
        ax.set_ylabel("prevalence")
        self._finish(ax)
        return self


@dataclass(eq=False)
class DriftErrorDisplay(_Display):
    """Error of estimated prevalences, by how far samples have drifted from training.

    The drift of a sample is the mean absolute difference between its prevalences and the training prevalences. Its
    error is the mean absolute difference between the estimate and its prevalences. Samples are put into bins of equal
    width by drift.

    Parameters
    ----------
    drift, error, spread : ndarray of shape (n_bins,)
        Mean drift, mean error, and standard deviation of the error in each bin. Bins without samples are left out.
    counts : ndarray of shape (n_bins,)
        Number of samples in each bin.
    name : str or None
        Name of the method in the legend.

    Attributes
    ----------
    ax_ : Axes
        The axes that were drawn on.
    figure_ : Figure
        Their figure.

    Examples
    --------
    >>> display = DriftErrorDisplay.from_predictions([0.5, 0.9], [0.6, 0.6], 0.5, n_bins=2)
    >>> display.drift.round(1).tolist(), display.error.round(1).tolist()
    ([0.0, 0.4], [0.1, 0.3])
    """

    drift: np.ndarray
    error: np.ndarray
    spread: np.ndarray
    counts: np.ndarray
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        protocol: Any,
        training: ArrayLike | None = None,
        *,
        n_bins: int = 10,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Estimate the prevalences of all samples of a protocol, and draw the errors.

        Parameters
        ----------
        estimator : quantifier
            A fitted quantifier.
        protocol : protocol of QuaPy
            The protocol that draws the samples.
        training : float or array-like of shape (n_classes,), optional
            Training prevalences; for two classes, the prevalence of the second is enough. `Quantifier` knows them, so
            you need not give them.
        n_bins : int, default=10
            Number of bins.
        name : str, optional
            Name of the method in the legend. By default, this is the name of its class.
        ax : Axes, optional
            Axes to draw on. By default, a new figure is made.
        **kwargs
            Passed on to `plot`.

        Returns
        -------
        DriftErrorDisplay
            The display, drawn.
        """
        if training is None:
            known = getattr(estimator, "training", None)
            if known is None:
                raise ValueError(
                    f"{type(estimator).__name__} does not tell the prevalences of its training data: give them as "
                    "training=[...]"
                )
            training = known.shares
        true, estimated = prediction(estimator, protocol)
        name = name or type(estimator).__name__
        return cls.from_predictions(
            true, estimated, training, n_bins=n_bins, name=name, ax=ax, **kwargs
        )

    @classmethod
    def from_predictions(
        cls,
        true: ArrayLike,
        estimated: ArrayLike,
        training: ArrayLike,
        *,
        n_bins: int = 10,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the errors of prevalences that have been estimated already.

        Parameters
        ----------
        true, estimated : array-like of shape (n_samples, n_classes) or (n_samples,)
            Prevalences of the samples; for two classes, the prevalences of the second are enough.
        training : float or array-like of shape (n_classes,)
            Training prevalences; for two classes, the prevalence of the second is enough.
        n_bins : int, default=10
            Number of bins.
        name : str, optional
            Name of the method in the legend.
        ax : Axes, optional
            Axes to draw on. By default, a new figure is made.
        **kwargs
            Passed on to `plot`.

        Returns
        -------
        DriftErrorDisplay
            The display, drawn.
        """
        check_integer("n_bins", n_bins)
        true, estimated = _pairs(true, estimated)
        given = np.asarray(training, dtype=float)
        start = _shares("training", np.atleast_1d(given) if given.ndim == 0 else given[np.newaxis])
        if start.shape != (1, true.shape[1]):
            raise ValueError(
                f"training must have an entry for each of the {true.shape[1]} classes; got the shape "
                f"{np.shape(training)}"
            )
        drift = np.abs(true - start).mean(axis=1)
        error = np.abs(true - estimated).mean(axis=1)
        width = drift.max() / n_bins or 1.0
        bins = np.minimum((drift / width).astype(int), n_bins - 1)
        counts, (drifts, errors), (_, spread) = _means(bins, drift, error)
        return cls(drifts, errors, spread, counts, name).plot(ax, **kwargs)

    def plot(
        self, ax: Axes | None = None, *, band: bool = True, color: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw the mean error by drift.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw on. By default, a new figure is made.
        band : bool, default=True
            Whether to draw a band of one standard deviation.
        color : str, optional
            Colour; by default the next one of the axes.
        **kwargs
            Options of matplotlib's ``plot``.

        Returns
        -------
        DriftErrorDisplay
            The display.
        """
        ax = self._on(ax)
        style = {"marker": "o", "ms": 4, "color": color, "label": self.name, **kwargs}
        (line,) = ax.plot(self.drift, self.error, **style)
        if band:
            low = np.maximum(self.error - self.spread, 0.0)
            ax.fill_between(
                self.drift,
                low,
                self.error + self.spread,
                color=line.get_color(),
                alpha=0.15,
                lw=0,
            )
        ax.set_xlabel("drift from training")
        ax.set_ylabel("absolute error of the prevalence")
        ax.set_ylim(bottom=0.0, auto=True)  # more may be drawn
        self._finish(ax)
        return self


@dataclass(eq=False)
class DiagonalDisplay(_Display):
    """Estimated against true prevalences of a class. A perfect quantifier is on the diagonal.

    Samples are put into bins around 0, 1/(n_bins − 1), …, 1 by their true prevalence. If QuaPy's APP uses `n_bins`
    prevalences, each bin has the samples of one of them.

    Parameters
    ----------
    true, estimated, spread : ndarray of shape (n_bins,)
        Mean true prevalence, mean estimate, and standard deviation of the estimates in each bin. Bins without samples
        are left out.
    counts : ndarray of shape (n_bins,)
        Number of samples in each bin.
    name : str or None
        Name of the method in the legend.

    Attributes
    ----------
    ax_ : Axes
        The axes that were drawn on.
    figure_ : Figure
        Their figure.

    Examples
    --------
    >>> display = DiagonalDisplay.from_predictions([0.5, 0.5, 1.0], [0.4, 0.6, 0.9])
    >>> display.true.tolist(), display.estimated.tolist(), display.spread.round(2).tolist()
    ([0.5, 1.0], [0.5, 0.9], [0.1, 0.0])
    """

    true: np.ndarray
    estimated: np.ndarray
    spread: np.ndarray
    counts: np.ndarray
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        protocol: Any,
        *,
        label: Any = None,
        n_bins: int = 21,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Estimate the prevalences of all samples of a protocol, and draw them.

        Parameters
        ----------
        estimator : quantifier
            A fitted quantifier.
        protocol : protocol of QuaPy
            The protocol that draws the samples.
        label : label, optional
            The class whose prevalence is drawn; by default the last one.
        n_bins : int, default=21
            Number of bins.
        name : str, optional
            Name of the method in the legend. By default, this is the name of its class.
        ax : Axes, optional
            Axes to draw on. By default, a new figure is made.
        **kwargs
            Passed on to `plot`.

        Returns
        -------
        DiagonalDisplay
            The display, drawn.
        """
        k = _position(estimator.classes_, label)
        true, estimated = prediction(estimator, protocol)
        name = name or type(estimator).__name__
        return cls.from_predictions(
            true[:, k], estimated[:, k], n_bins=n_bins, name=name, ax=ax, **kwargs
        )

    @classmethod
    def from_predictions(
        cls,
        true: ArrayLike,
        estimated: ArrayLike,
        *,
        n_bins: int = 21,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw prevalences of one class that have been estimated already.

        Parameters
        ----------
        true, estimated : array-like of shape (n_samples,)
            Prevalences of the class in the samples.
        n_bins : int, default=21
            Number of bins.
        name : str, optional
            Name of the method in the legend.
        ax : Axes, optional
            Axes to draw on. By default, a new figure is made.
        **kwargs
            Passed on to `plot`.

        Returns
        -------
        DiagonalDisplay
            The display, drawn.
        """
        check_integer("n_bins", n_bins, least=2)
        if np.ndim(true) != 1 or np.ndim(estimated) != 1:
            raise ValueError(
                "true and estimated must be prevalences of one class, such as true[:, 1]; got the shapes "
                f"{np.shape(true)} and {np.shape(estimated)}"
            )
        first, second = (shares[:, 1] for shares in _pairs(true, estimated))
        counts, (at, found), (_, spread) = _means(np.rint(first * (n_bins - 1)), first, second)
        return cls(at, found, spread, counts, name).plot(ax, **kwargs)

    def plot(
        self, ax: Axes | None = None, *, band: bool = True, color: str | None = None, **kwargs: Any
    ) -> Self:
        """Draw the mean estimate by true prevalence, and the diagonal.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw on. By default, a new figure is made.
        band : bool, default=True
            Whether to draw a band of one standard deviation.
        color : str, optional
            Colour; by default the next one of the axes.
        **kwargs
            Options of matplotlib's ``plot``.

        Returns
        -------
        DiagonalDisplay
            The display.
        """
        ax = self._on(ax)
        _diagonal(ax)
        style = {"marker": "o", "ms": 4, "color": color, "label": self.name, **kwargs}
        (line,) = ax.plot(self.true, self.estimated, **style)
        if band:
            low, high = self.estimated - self.spread, self.estimated + self.spread
            ax.fill_between(self.true, low, high, color=line.get_color(), alpha=0.15, lw=0)
        ax.set_xlabel("true prevalence")
        ax.set_ylabel("estimated prevalence")
        self._finish(ax)
        return self


@dataclass(eq=False)
class ReliabilityDisplay(_Display):
    """Reliability curve: how often a class occurs among rows with a given posterior.

    Rows are put into bins of about equal size by the posterior of the class. If posteriors are calibrated, their mean
    in each bin equals the share of the class in it, up to noise. Bars are Wilson's 95 % intervals for that share.

    Parameters
    ----------
    posterior, observed : ndarray of shape (n_bins,)
        Mean posterior, and share of the class, in each bin.
    low, high : ndarray of shape (n_bins,)
        Ends of the interval of the share.
    counts : ndarray of shape (n_bins,)
        Number of rows in each bin.
    name : str or None
        Name of the classifier in the legend.

    Attributes
    ----------
    ax_ : Axes
        The axes that were drawn on.
    figure_ : Figure
        Their figure.

    Examples
    --------
    >>> display = ReliabilityDisplay.from_predictions([0, 1, 1, 1], [0.2, 0.2, 0.9, 0.9], n_bins=2)
    >>> display.posterior.tolist(), display.observed.tolist(), display.counts.tolist()
    ([0.2, 0.9], [0.5, 1.0], [2, 2])
    """

    posterior: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    counts: np.ndarray
    name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: MatrixLike,
        y: ArrayLike,
        *,
        label: Any = None,
        n_bins: int = 10,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Compute posteriors of rows that the classifier was not trained on, and draw their reliability.

        Parameters
        ----------
        estimator : classifier
            A fitted classifier with `predict_proba`, or a quantifier with `classify`.
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows, at the prevalences for which the posteriors are meant.
        y : array-like of shape (n_samples,)
            Their labels.
        label : label, optional
            The class whose posterior is drawn; by default the last one.
        n_bins : int, default=10
            Number of bins.
        name : str, optional
            What the legend calls the classifier; by default the name of its class.
        ax : Axes, optional
            Axes to draw on. By default, a new figure is made.
        **kwargs
            Passed on to `plot`.

        Returns
        -------
        ReliabilityDisplay
            The display, drawn.
        """
        k = _position(estimator.classes_, label)
        posteriors_of = (
            estimator.predict_proba if hasattr(estimator, "predict_proba") else estimator.classify
        )
        posteriors = np.asarray(posteriors_of(X))[:, k]
        is_class = np.asarray(y) == np.asarray(estimator.classes_)[k]
        name = name or type(estimator).__name__
        return cls.from_predictions(is_class, posteriors, n_bins=n_bins, name=name, ax=ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        posteriors: ArrayLike,
        *,
        n_bins: int = 10,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the reliability of posteriors that have been computed already.

        Parameters
        ----------
        y_true : array-like of bool of shape (n_samples,)
            Whether each row is in the class.
        posteriors : array-like of shape (n_samples,)
            Posteriors of the class.
        n_bins : int, default=10
            Number of bins. There are fewer if many posteriors are equal.
        name : str, optional
            Name of the classifier in the legend.
        ax : Axes, optional
            Axes to draw on. By default, a new figure is made.
        **kwargs
            Passed on to `plot`.

        Returns
        -------
        ReliabilityDisplay
            The display, drawn.
        """
        check_integer("n_bins", n_bins)
        found, labels = np.asarray(posteriors, dtype=float), np.asarray(y_true)
        if found.ndim != 1 or found.shape != labels.shape or not len(found):
            raise ValueError(
                "y_true and posteriors must have an entry for each row; got the shapes "
                f"{labels.shape} and {found.shape}"
            )
        if not np.isin(labels, (0, 1)).all():
            raise ValueError(
                "y_true must say for each row whether it is in the class, by 0 and 1 or False and True; got "
                f"{np.setdiff1d(labels, (0, 1)).tolist()[0]!r}"
            )
        _check_range("posteriors", found)
        edges = np.unique(np.quantile(found, np.linspace(0.0, 1.0, n_bins + 1)))
        bins = np.searchsorted(edges[1:-1], found, side="right")
        counts, (at, share), _ = _means(bins, found, labels.astype(float))
        low, high = _wilson(share, counts)
        return cls(at, share, low, high, counts, name).plot(ax, **kwargs)

    def plot(self, ax: Axes | None = None, *, color: str | None = None, **kwargs: Any) -> Self:
        """Draw the share of the class by its posterior, with intervals, and the diagonal.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw on. By default, a new figure is made.
        color : str, optional
            Colour; by default the next one of the axes.
        **kwargs
            Options of matplotlib's ``plot``.

        Returns
        -------
        ReliabilityDisplay
            The display.
        """
        ax = self._on(ax)
        _diagonal(ax)
        style = {"marker": "o", "ms": 4, "color": color, "label": self.name, **kwargs}
        (line,) = ax.plot(self.posterior, self.observed, **style)
        ax.vlines(self.posterior, self.low, self.high, color=line.get_color(), alpha=0.4)
        ax.set_xlabel("posterior")
        ax.set_ylabel("share of the class")
        self._finish(ax)
        return self


def _position(classes: ArrayLike, label: Any) -> int:
    """Position of a label among the classes; that of the last one if there is none."""
    known = np.asarray(classes).tolist()
    if label is None:
        return len(known) - 1
    if label not in known:
        raise ValueError(f"label must be one of the classes {known}; got {label!r}")
    return known.index(label)


def _diagonal(ax: Axes) -> None:
    """Draw the diagonal, once."""
    if not any(line.get_gid() == "diagonal" for line in ax.get_lines()):
        ax.plot([0.0, 1.0], [0.0, 1.0], color="grey", ls=":", lw=1, gid="diagonal")


def _wilson(share: np.ndarray, n: np.ndarray, z: float = 1.96) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval of a share among n rows: the shares that a score test does not reject."""
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return middle - half, middle + half
