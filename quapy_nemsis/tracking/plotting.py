"""Plot of tracked prevalences (needs matplotlib)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from quapy_nemsis.streaming.plotting import COLOURS
from quapy_nemsis.tracking.records import Track

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = {"prevalence": "v", "mixture": "x"}


def plot_track(track: Track) -> Figure:
    """Plot the prevalences of a stream with their band, alarms, and the truth where labels have arrived.

    The top panel shows the prevalence of the second of two classes or, with more, of each class, up to the seven that
    are most frequent. The bottom panel shows the p-values of the tests of drift; marks at the top are alarms.

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
    from matplotlib.figure import Figure

    windows = list(track.windows)
    if not windows:
        raise ValueError(
            f"there is no full window to plot: {track.rows:,} rows were read; give track a smaller window"
        )
    timed = windows[0].start is not None
    at = np.array([window.start if timed else window.end for window in windows])
    if timed:
        at = at.astype("datetime64[s]")
    figure = Figure(figsize=(7.0, 5.5), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    found, low, high = (
        np.array([getattr(window, name) for window in windows])
        for name in ("prevalence", "low", "high")
    )
    nothing = [np.nan] * found.shape[1]
    truth = np.array([window.truth or nothing for window in windows])
    names = [str(name) for name in track.quantifier.classes_]
    frequent = np.argsort(-found.mean(axis=0), kind="stable")[: len(COLOURS)]
    shown = [1] if len(names) == 2 else sorted(frequent)
    colours = [COLOURS[2]] if len(names) == 2 else COLOURS
    for colour, k in zip(colours, shown, strict=False):
        top.fill_between(at, low[:, k], high[:, k], color=colour, alpha=0.2, lw=0)
        top.plot(at, found[:, k], color=colour, marker="o", ms=3, label=names[k])
        if np.isfinite(truth[:, k]).any():
            dark = "black" if len(names) == 2 else colour
            label = "labels" if k == shown[0] else None
            top.plot(at, truth[:, k], color=dark, ls="--", marker=".", ms=3, label=label)
    top.set_ylabel("prevalence")
    for (kind, marker), colour in zip(_MARKERS.items(), (COLOURS[3], COLOURS[5]), strict=True):
        p_values = np.array([window.p_values[kind] for window in windows])
        bottom.plot(at, np.maximum(p_values, 1e-16), color=colour, marker=".", ms=3, label=kind)
        on = [kind in window.alarms for window in windows]
        bottom.plot(at[on], np.ones(sum(on)), color=colour, marker=marker, ls="", clip_on=False)
    bottom.set_yscale("log")
    bottom.set_ylabel("p-value")
    bottom.set_xlabel("time" if timed else "rows")
    for ax in (top, bottom):
        ax.grid(alpha=0.3)
        ax.legend(loc="best")
    figure.suptitle(f"{type(track.tracker).__name__}: prevalences of each window")
    return figure
