"""Plot of tracked prevalences (needs matplotlib)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from quapy_nemsis._validation import MatrixLike
from quapy_nemsis.streaming.plotting import COLOURS
from quapy_nemsis.tracking.following import track as track_stream
from quapy_nemsis.tracking.records import Track

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from typing_extensions import Self

    from quapy_nemsis.quantifiers import Quantifier

_MARKERS = {"prevalence": "v", "mixture": "x"}


@dataclass(eq=False)
class TrackDisplay:
    """Tracked prevalences of a stream with their band, alarms, and the truth where labels have arrived.

    Parameters
    ----------
    track : Track
        Result of `track`, with at least one full window.

    Attributes
    ----------
    ax_ : Axes
        The axes of the prevalences.
    tests_ax_ : Axes or None
        The axes of the p-values; None if `plot` was given axes.
    figure_ : Figure
        Their figure.

    Examples
    --------
    >>> from quapy_nemsis import Quantifier
    >>> from quapy_nemsis.displays import TrackDisplay
    >>> rng = np.random.default_rng(0)
    >>> y = rng.random(2000) < 0.4
    >>> X = rng.normal(size=(2000, 2)) + np.outer(y, [3.0, 0.0])
    >>> quantifier = Quantifier(random_state=0).fit(X[:1000], y[:1000])
    >>> display = TrackDisplay.from_estimator(quantifier, X[1000:], window=200)
    >>> [ax.get_ylabel() for ax in display.figure_.axes]
    ['prevalence', 'p-value']
    """

    track: Track
    ax_: Axes = field(init=False, repr=False)
    tests_ax_: Axes | None = field(init=False, repr=False)
    figure_: Figure | SubFigure = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls,
        estimator: Quantifier,
        X: MatrixLike,
        *,
        ax: Axes | None = None,
        **options: Any,
    ) -> Self:
        """Track the prevalences of a stream and draw them.

        Parameters
        ----------
        estimator : Quantifier
            A fitted quantifier.
        X : matrix, iterable or Source
            The stream, as `track` takes it.
        ax : Axes, optional
            Axes to draw the prevalences on. By default, a new figure is made, which also shows the p-values.
        **options
            Options of `track`, such as ``window=500``.

        Returns
        -------
        TrackDisplay
            The display, drawn.
        """
        return cls(track_stream(estimator, X, **options)).plot(ax)

    @classmethod
    def from_predictions(cls, track: Track, *, ax: Axes | None = None) -> Self:
        """Draw a stream that has been tracked already.

        Parameters
        ----------
        track : Track
            Result of `track`, with at least one full window.
        ax : Axes, optional
            Axes to draw the prevalences on. By default, a new figure is made, which also shows the p-values.

        Returns
        -------
        TrackDisplay
            The display, drawn.
        """
        return cls(track).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the prevalences of each window, and, on a figure of its own, the p-values of the tests for drift.

        The prevalence is that of the second of two classes or, with more, of each class, up to the seven that are most
        frequent. Marks at the top of the p-values are alarms.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw the prevalences on. By default, a new figure is made, which also shows the p-values.

        Returns
        -------
        TrackDisplay
            The display.
        """
        windows = list(self.track.windows)
        if not windows:
            raise ValueError(
                f"there is no full window to plot: {self.track.rows:,} rows were read; give track a smaller window"
            )
        timed = windows[0].start is not None
        at = np.array([window.start if timed else window.end for window in windows])
        if timed:
            at = at.astype("datetime64[s]")
        self.tests_ax_ = None
        if ax is None:
            # Not of pyplot: a job that draws a page every night keeps no figure open.
            from matplotlib.figure import Figure

            figure = Figure(figsize=(7.0, 5.5), layout="constrained")
            ax, self.tests_ax_ = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
            figure.suptitle(f"{type(self.track.tracker).__name__}: prevalences of each window")
        self.ax_, self.figure_ = ax, ax.figure
        self._draw_prevalences(ax, at)
        if self.tests_ax_ is not None:
            self._draw_tests(self.tests_ax_, at)
        (self.tests_ax_ or ax).set_xlabel("time" if timed else "rows")
        return self

    def _draw_prevalences(self, ax: Axes, at: np.ndarray) -> None:
        windows = self.track.windows
        found, low, high = (
            np.array([getattr(window, name) for window in windows])
            for name in ("prevalence", "low", "high")
        )
        nothing = [np.nan] * found.shape[1]
        truth = np.array([window.truth or nothing for window in windows])
        names = [str(name) for name in self.track.quantifier.classes_]
        frequent = np.argsort(-found.mean(axis=0), kind="stable")[: len(COLOURS)]
        shown = [1] if len(names) == 2 else sorted(frequent)
        colours = [COLOURS[2]] if len(names) == 2 else COLOURS
        for colour, k in zip(colours, shown, strict=False):
            ax.fill_between(at, low[:, k], high[:, k], color=colour, alpha=0.2, lw=0)
            ax.plot(at, found[:, k], color=colour, marker="o", ms=3, label=names[k])
            if np.isfinite(truth[:, k]).any():
                dark = "black" if len(names) == 2 else colour
                label = "labels" if k == shown[0] else None
                ax.plot(at, truth[:, k], color=dark, ls="--", marker=".", ms=3, label=label)
        ax.set_ylabel("prevalence")
        ax.grid(alpha=0.3)
        ax.legend(loc="best")

    def _draw_tests(self, ax: Axes, at: np.ndarray) -> None:
        windows = self.track.windows
        for (kind, marker), colour in zip(_MARKERS.items(), (COLOURS[3], COLOURS[5]), strict=True):
            p_values = np.array([window.p_values[kind] for window in windows])
            ax.plot(at, np.maximum(p_values, 1e-16), color=colour, marker=".", ms=3, label=kind)
            on = [kind in window.alarms for window in windows]
            ax.plot(at[on], np.ones(sum(on)), color=colour, marker=marker, ls="", clip_on=False)
        ax.set_yscale("log")
        ax.set_ylabel("p-value")
        ax.grid(alpha=0.3)
        ax.legend(loc="best")


def plot_track(track: Track) -> Figure:
    """Plot the prevalences of a stream with their band, alarms, and the truth where labels have arrived.

    The top panel shows the prevalence of the second of two classes or, with more, of each class, up to the seven that
    are most frequent. The bottom panel shows the p-values of the tests for drift; marks at the top are alarms. The
    figure is that of a `quapy_nemsis.displays.TrackDisplay`.

    Parameters
    ----------
    track : Track
        Result of `track`, with at least one full window.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, which can be saved with ``savefig``.

    Examples
    --------
    >>> from quapy_nemsis import Quantifier
    >>> from quapy_nemsis.tracking import plot_track, track
    >>> rng = np.random.default_rng(0)
    >>> y = rng.random(2000) < 0.4
    >>> X = rng.normal(size=(2000, 2)) + np.outer(y, [3.0, 0.0])
    >>> quantifier = Quantifier(random_state=0).fit(X[:1000], y[:1000])
    >>> figure = plot_track(track(quantifier, X[1000:], window=200))
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['prevalence', 'p-value']
    """
    return TrackDisplay(track).plot().figure_  # type: ignore[return-value]
