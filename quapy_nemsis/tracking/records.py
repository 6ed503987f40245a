"""What tracking a stream finds: windows, alarms, and the track that holds them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from quapy_nemsis._validation import MatrixLike
from quapy_nemsis.tracking.trackers import Tracker
from quapy_nemsis.tracking.windows import Buffer

if TYPE_CHECKING:
    from quapy_nemsis.quantifiers import Quantifier


class TrackError(ValueError):
    """Rows could not be read or used; `track` is the state of the stream before them."""

    def __init__(self, message: str, track: Track):
        super().__init__(message)
        self.track = track


@dataclass
class Window:
    """The prevalences in a window of a stream.

    Attributes
    ----------
    begin, end : int
        Positions of its first row and of the row after its last, in the stream.
    start : float or None
        When a window of time begins, in seconds since 1970.
    prevalence : list of float
        Prevalences of the classes after this window, as estimated by the tracker.
    low, high : list of float
        Band: the interval of the prevalence of each class among the rows of this window.
    p_values : dict
        p-values of the tests for drift, "prevalence" and "mixture"; NaN if the window has fewer than 20 rows.
    alarms : list of str
        Tests whose alarm is on in this window.
    labelled : list of float
        Numbers of rows of each class, among the rows whose labels have arrived.

    Examples
    --------
    >>> window = Window(0, 10, None, [0.4, 0.6], [0.3, 0.5], [0.5, 0.7], {}, [], [2.0, 2.0])
    >>> window.truth
    [0.5, 0.5]
    """

    begin: int
    end: int
    start: float | None
    prevalence: list[float]
    low: list[float]
    high: list[float]
    p_values: dict[str, float]
    alarms: list[str]
    labelled: list[float]

    @property
    def truth(self) -> list[float] | None:
        """Prevalences among the rows whose labels have arrived, if any have."""
        total = sum(self.labelled)
        return [count / total for count in self.labelled] if total else None


@dataclass(frozen=True)
class Alarm:
    """An alarm that begins.

    Attributes
    ----------
    kind : {"prevalence", "mixture"}
        Which test raises it.
    end : int
        Number of rows of the stream up to the end of the window.
    p_value : float
        The p-value of the test.
    sentence : str
        The result in words.

    Examples
    --------
    >>> Alarm("mixture", 5000, 1e-6, "The rows are not a mixture.").kind
    'mixture'
    """

    kind: str
    end: int
    p_value: float
    sentence: str


@dataclass
class Track:
    """The tracked prevalences of a stream, and the state that is needed to continue.

    Attributes
    ----------
    quantifier : Quantifier
        The quantifier.
    tracker : Tracker
        The tracker, with the current prevalences in its `prevalence`.
    rows : int
        Number of rows so far, including the current window.
    windows : deque of Window
        The latest windows.
    alarms : deque of Alarm
        The latest alarms.
    stopped : bool
        Whether tracking stopped before the end of the source.
    relabelled : list of Window
        Windows that late labels have changed since tracking began or was resumed.
    """

    quantifier: Quantifier
    tracker: Tracker
    buffer: Buffer
    windows: deque[Window]
    alarms: deque[Alarm]
    rows: int = 0
    late: int = 0
    period: int | None = None
    counts: list[float] = field(default_factory=list)
    active: list[str] = field(default_factory=list)
    first_row: str = ""
    stopped: bool = False
    relabelled: list[Window] = field(default_factory=list)

    @property
    def prevalences(self) -> np.ndarray:
        """Prevalences of all windows, a row for each."""
        return np.array([window.prevalence for window in self.windows])

    def predict_proba(self, X: MatrixLike) -> np.ndarray:
        """Return posteriors of rows at the current prevalences, which are the posteriors of the adapted classifier."""
        return self.tracker.adapted(self.quantifier.classify(X))

    def predict(self, X: MatrixLike) -> np.ndarray:
        """The most probable class of each row at the current prevalences."""
        return np.asarray(self.quantifier.classes_)[self.predict_proba(X).argmax(axis=1)]

    def table(self) -> list[dict[str, Any]]:
        """A dictionary of plain values for each window, for a data frame or a CSV file."""
        found = []
        for window in self.windows:
            entry: dict[str, Any] = {"begin": window.begin, "end": window.end}
            if window.start is not None:
                entry["start"] = str(np.datetime64(round(window.start), "s"))
            for k, name in enumerate(self.quantifier.classes_):
                entry[f"prevalence {name}"] = window.prevalence[k]
                entry[f"low {name}"], entry[f"high {name}"] = window.low[k], window.high[k]
                if window.truth is not None:
                    entry[f"true {name}"] = window.truth[k]
            entry.update({f"p {kind}": value for kind, value in window.p_values.items()})
            found.append({**entry, "alarms": " ".join(window.alarms)})
        return found
