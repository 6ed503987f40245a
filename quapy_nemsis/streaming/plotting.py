"""Plot of the training curve of a stream (needs matplotlib)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from quapy_nemsis.streaming.learning import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, which colour-blind readers can tell apart.
_BLUE, _ORANGE, _GREEN = "#0072B2", "#D55E00", "#009E73"
COLOURS = ("#000000", "#E69F00", _BLUE, _GREEN, "#CC79A7", _ORANGE, "#56B4E9")


def new_axes(name: str) -> Axes:
    """Axes of a new figure of pyplot, for the display of this name."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(f"{name} draws with matplotlib: pip install matplotlib") from error
    return pyplot.subplots(layout="constrained")[1]


def plot_progress(progress: Progress) -> Figure:
    """Plot the evaluation of a learner on each window of a stream, before training on it, and the drift of the stream.

    The top panel shows the measure and BA. The middle panel shows KLD on a logarithmic scale. The bottom panel shows
    the true prevalence of each window and the learner's estimate (the share of rows it predicted to be in the class):
    of the second of two classes or, with more, of each class, up to the seven that are most frequent.

    Parameters
    ----------
    progress : Progress
        Result of `fit_stream`, with at least one full window.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, which can be saved with ``savefig``.

    Examples
    --------
    >>> import numpy as np
    >>> from quapy_nemsis import NEMSISClassifier
    >>> from quapy_nemsis.streaming import chunks_of, fit_stream, plot_progress
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 3))
    >>> y = X[:, 0] + rng.normal(size=5000) > 1
    >>> progress = fit_stream(
    ...     NEMSISClassifier("q"), chunks_of(X, y, rows=500), classes=[False, True], window=500
    ... )
    >>> figure = plot_progress(progress)
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['value', 'KLD', 'prevalence']
    """
    from matplotlib.figure import Figure

    curve = progress.curve
    if not curve["rows"]:
        raise ValueError(
            f"there is no full window to plot: {progress.rows:,} rows were read; give fit_stream a smaller window"
        )
    figure = Figure(figsize=(7.0, 7.0), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    measure = progress.online.settings().measure.name
    top.plot(curve["rows"], curve["value"], color=_BLUE, marker="o", ms=3, label=measure)
    top.plot(curve["rows"], curve["ba"], color=_GREEN, marker="s", ms=3, ls="--", label="BA")
    top.set_ylabel("value")
    floor = [max(kld, 1e-9) for kld in curve["kld"]]
    middle.plot(curve["rows"], floor, color=_ORANGE, marker="o", ms=3, label="KLD of the window")
    middle.set_yscale("log")
    middle.set_ylabel("KLD")
    dashed = {"marker": "o", "ms": 3, "ls": "--"}
    true, estimated = (np.array(curve[name]) for name in ("prevalence", "estimate"))
    if true.ndim == 1:
        bottom.plot(curve["rows"], true, color="black", label="true")
        bottom.plot(curve["rows"], estimated, color=_ORANGE, label="estimate", **dashed)
    else:
        frequent = np.argsort(-true.mean(axis=0), kind="stable")[: len(COLOURS)]
        for colour, k in zip(COLOURS, sorted(frequent), strict=False):
            label = str(progress.learner.classes_[k])
            bottom.plot(curve["rows"], true[:, k], color=colour, label=label)
            bottom.plot(curve["rows"], estimated[:, k], color=colour, **dashed)
        bottom.set_title("solid: true, dashed: estimate", fontsize="small")
    bottom.set_ylabel("prevalence")
    bottom.set_xlabel("rows learned")
    for ax in (top, middle, bottom):
        ax.grid(alpha=0.3)
        ax.legend(loc="best")
    figure.suptitle(f"{type(progress.online).__name__}: each window evaluated before it is learned")
    return figure
