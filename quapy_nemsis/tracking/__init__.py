"""The prevalences of a stream of rows without labels: trackers, bands, alarms and checkpoints.

Only the prevalences may change, not the distribution of rows within a class; an alarm says when more has changed.

Examples
--------
>>> import numpy as np
>>> from quapy_nemsis import Quantifier
>>> from quapy_nemsis.tracking import track
>>> rng = np.random.default_rng(0)
>>> y = rng.random(6000) < np.linspace(0.2, 0.8, 6000)  # the prevalence rises
>>> X = rng.normal(size=(6000, 2)) + np.outer(y, [2.0, 0.0])
>>> quantifier = Quantifier(random_state=0).fit(X[:1000], y[:1000])
>>> found = track(quantifier, X[1000:], window=1000, method="forgetting-em")
>>> bool((np.diff(found.prevalences[:, 1]) > 0).all())
True
"""

from quapy_nemsis.tracking.following import follow, track
from quapy_nemsis.tracking.plotting import plot_track
from quapy_nemsis.tracking.records import Alarm, Track, TrackError, Window
from quapy_nemsis.tracking.trackers import (
    ATLAS,
    FLHFTL,
    FTH,
    ROGD,
    TRACKERS,
    UOGD,
    ForgettingEM,
    Labelled,
    Tracker,
    WindowedEM,
)
from quapy_nemsis.tracking.windows import LateLabels, Rows, read_rows

__all__ = [
    "ATLAS",
    "FLHFTL",
    "FTH",
    "ROGD",
    "TRACKERS",
    "UOGD",
    "Alarm",
    "ForgettingEM",
    "Labelled",
    "LateLabels",
    "Rows",
    "Track",
    "TrackError",
    "Tracker",
    "Window",
    "WindowedEM",
    "follow",
    "plot_track",
    "read_rows",
    "track",
]
