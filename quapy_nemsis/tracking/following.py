"""Following the prevalences of a stream without labels: windows, bands, alarms and checkpoints."""

from __future__ import annotations

import bisect
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from quapy_nemsis._validation import MatrixLike, check_integer, check_share, encode
from quapy_nemsis.drift import LEAST_ROWS, Background, DriftResult
from quapy_nemsis.tracking import checkpoints
from quapy_nemsis.tracking.records import Alarm, Track, TrackError, Window
from quapy_nemsis.tracking.trackers import Labelled, get_tracker
from quapy_nemsis.tracking.windows import (
    Buffer,
    LateLabels,
    Rows,
    items_of,
    periods_of,
    seconds_of,
)

if TYPE_CHECKING:
    from quapy_nemsis.quantifiers import Quantifier

KINDS = ("prevalence", "mixture")


def track(
    quantifier: Quantifier,
    source: Any,
    *,
    window: int | str = 1000,
    method: str = "em",
    options: dict[str, Any] | None = None,
    confidence_level: float = 0.95,
    false_alarms: float | None = 0.05,
    per_windows: int = 100,
    reference: tuple[MatrixLike, ArrayLike] | None = None,
    times: ArrayLike | None = None,
    checkpoint: str | Path | None = None,
    every_rows: int = 1_000_000,
    every_seconds: float = 60.0,
    resume: bool = False,
    max_rows: int | None = None,
    keep: int = 10_000,
    callback: Callable[[Window], bool | None] | None = None,
    on_alarm: Callable[[Alarm], Any] | None = None,
    random_state: int = 0,
    names: Sequence[str] | None = None,
) -> Track:
    """Track the prevalences of the classes in a stream of rows without labels, window by window.

    Memory is bounded: only the results of the latest windows and the scores of the current window are kept. Of a window
    with more than 100,000 rows, the scores of every second row are kept, or of every fourth and so on.

    Parameters
    ----------
    quantifier : Quantifier
        A fitted quantifier.
    source : matrix, iterable or Source
        Rows: a matrix; a source of `quapy_nemsis.streaming`; or an iterable of matrices, single rows, pairs (X, y),
        `Rows` and `LateLabels`, or a function that returns one. Labels are not used for the estimates; they are only
        counted, and shown as the truth.
    window : int or str, default=1000
        Number of rows in a window, or its length in time, such as "30min", "6h", "1d" or "1w". A length in time needs
        the times of the rows; these windows begin at multiples of their length since 1970 (UTC). A window is reported
        when it is full, or when a row of a later window arrives. The last window may therefore not be reported.
    method : {"em", "forgetting-em", "fth", "rogd", "uogd", "atlas", "flh-ftl"}, default="em"
        The tracker (see `quapy_nemsis.tracking.trackers`). "em" returns what `quantifier.predict` returns for each
        window.
    options : dict, optional
        Parameters of the tracker, such as ``{"forget": 0.7}``.
    confidence_level : float, default=0.95
        Probability that the band contains the prevalence of a class among the rows of a window. Whatever the method,
        the band is the interval of `quantifier.predict_conf`.
    false_alarms : float or None, default=0.05
        Probability of any false alarm in `per_windows` windows without drift. The two tests of a window together have
        the level ``false_alarms/per_windows``, with Holm's correction (see `quapy_nemsis.drift`). With None, there are
        no tests.
    per_windows : int, default=100
        Number of windows that `false_alarms` refers to.
    reference : tuple (X, y), optional
        Labelled rows for the tests for drift (see `quapy_nemsis.drift.prevalence_test`).
    times : array-like of shape (n_samples,), optional
        Times of the rows, if the source is a matrix: numpy dates, or seconds since 1970.
    checkpoint : str or Path, optional
        File for checkpoints. A failed write leaves no partial file. An existing file is an error unless `resume` is
        set.
    every_rows, every_seconds : default=1,000,000 and 60
        Write a checkpoint after this many rows or seconds, whichever comes first, when a chunk ends. A checkpoint is
        also written when the stream ends.
    resume : bool, default=False
        Continue from the checkpoint, if it exists. With the same source, the windows are the same as without the
        interruption. Rows that were already read are read again and skipped.
    max_rows : int, optional
        Stop after this many rows.
    keep : int, default=10,000
        How many of the latest windows and alarms are kept. Late labels of earlier windows are ignored.
    callback : callable, optional
        Called with each `Window`. If it returns True, tracking stops.
    on_alarm : callable, optional
        Called with each `Alarm` that begins. An alarm ends with the first window in which its test raises none.
    random_state : int, default=0
        Seed for the bands.
    names : sequence of str, optional
        Names of the classes in sentences. By default, these are the labels of the quantifier.

    Returns
    -------
    Track
        The windows, the alarms and the tracker.

    Raises
    ------
    TrackError
        If rows cannot be read or used. The message names the row. `track` and the checkpoint hold the state before
        these rows.
    OSError
        If a checkpoint cannot be written. The previous one is unchanged.

    Examples
    --------
    >>> from quapy_nemsis import Quantifier
    >>> from quapy_nemsis.tracking import track
    >>> rng = np.random.default_rng(0)
    >>> y = rng.random(5000) < np.repeat([0.3, 0.6], [3000, 2000])  # changes at row 3000
    >>> X = rng.normal(size=(5000, 2)) + np.outer(y, [2.0, 0.0])
    >>> quantifier = Quantifier(random_state=0).fit(X[:1000], y[:1000])
    >>> found = track(quantifier, X[1000:], window=1000)
    >>> bool(np.abs(found.prevalences[:, 1] - [0.3, 0.3, 0.6, 0.6]).max() < 0.05)
    True
    >>> [(alarm.kind, alarm.end) for alarm in found.alarms]
    [('prevalence', 3000)]
    """
    follower = _Follower(
        quantifier=quantifier,
        window=window,
        method=method,
        options=options or {},
        confidence_level=confidence_level,
        false_alarms=false_alarms,
        per_windows=per_windows,
        reference=reference,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        every_rows=every_rows,
        every_seconds=every_seconds,
        resume=resume,
        max_rows=max_rows,
        keep=keep,
        on_alarm=on_alarm,
        random_state=random_state,
        names=names,
    )
    for found in follower.run(source, times):
        if callback is not None and callback(found):
            follower.stop()
    return follower.track


def follow(quantifier: Quantifier, source: Any, **parameters: Any) -> Iterator[Window]:
    """Yield each `Window` of a stream as soon as it is full; this is `track` for endless streams.

    Parameters
    ----------
    quantifier : Quantifier
        A fitted quantifier.
    source : matrix, iterable or Source
        Rows, as for `track`.
    **parameters
        Other parameters of `track`, except `callback`.

    Yields
    ------
    Window
        The windows in order.

    Examples
    --------
    >>> from quapy_nemsis import Quantifier
    >>> from quapy_nemsis.tracking import follow
    >>> rng = np.random.default_rng(0)
    >>> y = rng.random(1000) < 0.4
    >>> X = rng.normal(size=(1000, 2)) + np.outer(y, [3.0, 0.0])
    >>> quantifier = Quantifier(random_state=0).fit(X, y)
    >>> endless = (rng.normal(size=2) for _ in iter(int, 1))  # single rows, all of one class
    >>> window = next(follow(quantifier, endless, window=100))
    >>> window.end, window.prevalence[1] < 0.1
    (100, True)
    """
    times = parameters.pop("times", None)
    defaults = dict(track.__kwdefaults__ or {})
    unknown = sorted(parameters.keys() - (defaults.keys() - {"callback"}))
    if unknown:
        raise TypeError(f"track has no parameter {unknown[0]!r} that follow could use")
    chosen = {**defaults, **parameters}
    chosen.pop("callback")
    chosen.pop("times")
    path = chosen["checkpoint"]
    chosen["checkpoint"] = None if path is None else Path(path)
    chosen["options"] = chosen["options"] or {}
    return _Follower(quantifier=quantifier, **chosen).run(source, times)


@dataclass
class _Follower:
    """What `track` does, with its parameters."""

    quantifier: Quantifier
    window: int | str
    method: str
    options: dict[str, Any]
    confidence_level: float
    false_alarms: float | None
    per_windows: int
    reference: tuple[MatrixLike, ArrayLike] | None
    checkpoint: Path | None
    every_rows: int
    every_seconds: float
    resume: bool
    max_rows: int | None
    keep: int
    on_alarm: Callable[[Alarm], Any] | None
    random_state: int
    names: Sequence[str] | None

    def __post_init__(self) -> None:
        self._check()
        self.seconds = seconds_of(self.window)
        self.background = Background.of(self.quantifier, self.reference, self.names)
        self.classes = np.asarray(self.quantifier.classes_)
        if self.method == "em":
            own = {name: getattr(self.quantifier, name) for name in ("prior", "no_drift")}
            self.options = {**own, **self.options}
        tracker = get_tracker(self.method, Labelled.of(self.background), self.options)
        self.track = Track(
            self.quantifier,
            tracker,
            Buffer.empty(len(self.classes)),
            deque(maxlen=self.keep),
            deque(maxlen=self.keep),
            counts=[0.0] * len(self.classes),
        )
        self.saved_rows = 0
        if self.checkpoint is not None and self.checkpoint.exists():
            if not self.resume:
                raise FileExistsError(
                    f"{self.checkpoint} already exists: continue from it with resume=True, name another file, or "
                    "delete it"
                )
            self._restore(self.checkpoint)
        self.saved_at = time.perf_counter()

    def _check(self) -> None:
        if not hasattr(self.quantifier, "calibration_"):
            raise ValueError("the quantifier is not fitted: call fit(X, y) first")
        if not 0.0 < self.confidence_level < 1.0:
            raise ValueError(
                f"confidence_level must lie between 0 and 1, such as 0.95; got {self.confidence_level!r}"
            )
        if self.false_alarms is not None:
            check_share("false_alarms", self.false_alarms)
        for name in ("per_windows", "every_rows", "keep"):
            check_integer(name, getattr(self, name))
        check_integer("random_state", self.random_state, least=0)
        if self.max_rows is not None:
            check_integer("max_rows", self.max_rows)
        if self.resume and self.checkpoint is None:
            raise ValueError("resume needs a checkpoint: name its file with checkpoint=")

    def stop(self) -> None:
        """Stop after this window."""
        self.track.stopped = True

    def run(self, source: Any, times: ArrayLike | None) -> Iterator[Window]:
        """Yield the windows of a source."""
        name, items = items_of(source, times, max(self._step(), 1))
        try:
            for item in self._unread(items):
                if isinstance(item, LateLabels):
                    self._late(item)
                else:
                    yield from self._take(item)
                if self.track.stopped:
                    break
                self._save_if_due()
        except ValueError as error:
            self._save()
            raise TrackError(f"{name}: {error}", self.track) from error
        except GeneratorExit:  # who follows wants no more windows
            self._save()
            raise
        self._save()

    def _step(self) -> int:
        """Rows of a chunk of a matrix."""
        return 10_000 if isinstance(self.window, str) else min(max(self.window, 1000), 10_000)

    def _unread(self, items: Any) -> Iterator[Rows | LateLabels]:
        """Items without rows and late labels that were already taken, and without rows beyond `max_rows`."""
        track, seen, late = self.track, 0, 0
        rows_before, late_before = track.rows, track.late
        for item in items:
            if isinstance(item, LateLabels):
                late += not item.complete
                if item.complete or late > late_before:
                    yield item
                continue
            n_rows = np.shape(item.X)[0]
            if not seen and n_rows:
                self._check_first(item)
            begin, seen = max(rows_before - seen, 0), seen + n_rows
            end = n_rows
            if self.max_rows is not None:
                end = min(n_rows, max(begin, begin + self.max_rows - track.rows))
            if begin < end:
                yield _part(item, begin, end)
            if self.max_rows is not None and track.rows >= self.max_rows:
                track.stopped = True
                return
        if seen < rows_before:
            raise ValueError(
                f"the checkpoint is at row {rows_before:,}, but the source ends at row {seen:,}: resume with the same "
                "source"
            )
        if not track.rows:
            raise ValueError("there are no rows")

    def _check_first(self, item: Rows) -> None:
        """Refuse to resume with a source whose first row differs."""
        first = _part(item, 0, 1).X
        row = first.toarray() if scipy.sparse.issparse(first) else np.asarray(first)
        found = checkpoints.digest(None, {"row": np.asarray(row, dtype=float)})
        if self.track.first_row and found != self.track.first_row:
            raise ValueError(
                "the first row differs from that of the checkpoint's source; resume with the same source"
            )
        self.track.first_row = found

    def _take(self, item: Rows) -> Iterator[Window]:
        """Score rows, and close the windows that they fill."""
        track, n_rows = self.track, np.shape(item.X)[0]
        named = f"rows {track.rows + 1:,} to {track.rows + n_rows:,}"
        try:
            scored = self.quantifier.scores(item.X, track.rows)
        except Exception as error:
            raise ValueError(f"{named}: {error}") from error
        codes = None if item.labels is None else self._codes(item.labels, n_rows, named)
        for begin, end, period in self._cuts(item, n_rows):
            if begin == end:  # the window ended before these rows
                yield self._close()
                track.period = period
                continue
            track.period = period
            track.buffer.add(scored.values[begin:end], scored.of_folds[begin:end])
            track.rows += end - begin
            if codes is not None:
                own = codes[begin:end]
                known = np.bincount(own[own >= 0], minlength=len(self.classes))
                track.counts = (np.array(track.counts) + known).tolist()
            if not isinstance(self.window, str) and track.buffer.rows == self.window:
                yield self._close()
            if track.stopped:
                return

    def _cuts(self, item: Rows, n_rows: int) -> Iterator[tuple[int, int, int | None]]:
        """Parts of a chunk that belong to one window; an empty part ends the window before it."""
        if self.seconds is None:
            begin = 0
            while begin < n_rows:
                left = int(self.window) - self.track.buffer.rows
                end = min(begin + left, n_rows)
                yield begin, end, None
                begin = end
            return
        row = self.track.rows
        periods = periods_of(item.times, self.seconds, n_rows, row)
        before = periods[0] if self.track.period is None else self.track.period
        back = np.diff(periods, prepend=before) < 0
        if back.any():
            raise ValueError(
                f"row {row + 1 + int(np.argmax(back)):,} is earlier than the window of the row before it: sort rows by "
                "time"
            )
        borders = [0, *(np.flatnonzero(np.diff(periods)) + 1).tolist(), n_rows]
        for begin, end in pairwise(borders):
            period = int(periods[begin])
            if period != before and self.track.buffer.rows:
                yield begin, begin, period
            yield begin, end, period
            before = period

    def _codes(self, labels: ArrayLike, n_rows: int, named: str) -> np.ndarray:
        """Positions of labels among the classes, −1 where a label is not known."""
        y = np.asarray(labels)
        if y.shape != (n_rows,):
            raise ValueError(f"{named} have labels of shape {y.shape}: give one for each row")
        codes = np.full(n_rows, -1, dtype=np.intp)
        given = np.array([label is not None and label == label for label in y.tolist()], dtype=bool)
        y = y[given] if y.dtype != object else np.array(y[given].tolist())
        if not len(y):
            return codes
        known = np.isin(y, self.classes)
        if not known.all():
            bad = y[int(np.argmin(known)) :].tolist()[0]
            raise ValueError(
                f"{named}: the label {bad!r} is not among the classes {self.classes.tolist()}"
            )
        codes[given] = encode(y, self.classes)
        return codes

    def _late(self, item: LateLabels) -> None:
        """Count labels of earlier rows."""
        track = self.track
        rows = np.asarray(item.rows)
        codes = self._codes(item.labels, len(rows), f"late labels of {len(rows):,} rows")
        if rows.dtype.kind not in "iu" or (
            len(rows) and not (rows.min() >= 0 and rows.max() < track.rows)
        ):
            raise ValueError(
                f"late labels must name rows by position, from 0 to {track.rows - 1:,}; got {item.rows!r}"
            )
        windows = list(track.windows)
        ends = [window.end for window in windows]
        begin = windows[0].begin if windows else track.rows - track.buffer.rows
        before = [*(window.labelled for window in windows), track.counts]
        counted = [[0.0] * len(self.classes) if item.complete else [*each] for each in before]
        for row, code in zip(rows.tolist(), codes.tolist(), strict=True):
            if row >= begin and code >= 0:
                counted[bisect.bisect_right(ends, row)][code] += 1.0
        track.counts = counted.pop()
        for window, counts in zip(windows, counted, strict=True):
            if counts != window.labelled:
                window.labelled = counts
                if not any(window is other for other in track.relabelled):
                    track.relabelled.append(window)
        track.late += not item.complete

    def _close(self) -> Window:
        """Estimate the prevalences of the full window, test it, and begin another one."""
        track, buffer = self.track, self.track.buffer
        begin = track.rows - buffer.rows
        posteriors = self.quantifier.calibration_.probabilities(buffer.scores)
        estimate = track.tracker.update(posteriors)
        rng = np.random.default_rng([self.random_state, begin])
        drawn = self.quantifier.draw_given(buffer.scores, rng)
        tail = 0.5 * (1.0 - self.confidence_level)
        low, high = np.quantile(drawn, [tail, 1.0 - tail], axis=0)
        results = self._tests(buffer.of_folds)
        on = [kind for kind, result in results.items() if result.rejects]
        for kind in on:
            if kind not in track.active:
                alarm = Alarm(kind, track.rows, results[kind].p_value, results[kind].sentence)
                track.alarms.append(alarm)
                if self.on_alarm is not None:
                    self.on_alarm(alarm)
        found = Window(
            begin,
            track.rows,
            None if self.seconds is None else float(track.period or 0) * self.seconds,
            estimate.tolist(),
            low.tolist(),
            high.tolist(),
            {kind: results[kind].p_value if kind in results else math.nan for kind in KINDS},
            on,
            track.counts,
        )
        track.windows.append(found)
        track.active = on
        track.counts = [0.0] * len(self.classes)
        track.buffer = Buffer.empty(len(self.classes))
        return found

    def _tests(self, scores: np.ndarray) -> dict[str, DriftResult]:
        if self.false_alarms is None or len(scores) < LEAST_ROWS:
            return {}
        both = self.background.tests(scores, self.false_alarms / self.per_windows)
        return {result.test: result for result in both}

    # ------------------------------------------------------------- checkpoints

    def _identity(self) -> dict[str, Any]:
        """What must be the same when tracking is resumed."""
        names = (
            *("window", "method", "options", "confidence_level", "false_alarms", "per_windows"),
            *("keep", "random_state"),
        )
        known = self.quantifier.calibration_.to_arrays()
        return {
            **{name: getattr(self, name) for name in names},
            "classes": self.classes.tolist(),
            "calibration": checkpoints.digest(None, known),
            "reference": checkpoints.digest(
                None, {"scores": self.background.scores, "labels": self.background.labels}
            ),
        }

    def _save_if_due(self) -> None:
        enough = self.track.rows - self.saved_rows >= self.every_rows
        if enough or time.perf_counter() - self.saved_at >= self.every_seconds:
            self._save()

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        track = self.track
        content = {
            "identity": self._identity(),
            "windows": [asdict(window) for window in track.windows],
            "alarms": [asdict(alarm) for alarm in track.alarms],
            "buffer": [track.buffer.rows, track.buffer.stride],
            **{name: getattr(track, name) for name in _PLAIN},
        }
        arrays = {f"tracker.{name}": array for name, array in track.tracker.to_arrays().items()}
        arrays["scores"], arrays["of_folds"] = track.buffer.scores, track.buffer.of_folds
        checkpoints.write(self.checkpoint, content, arrays)
        self.saved_rows, self.saved_at = track.rows, time.perf_counter()

    def _restore(self, path: Path) -> None:
        content, arrays = checkpoints.read(path)
        written = content["identity"]
        if written.get("method") == "forgetting-em" and "prior" in written["options"]:
            # The name of this option in versions up to 0.1.
            written["options"]["pseudo_rows"] = written["options"].pop("prior")
        for name, value in checkpoints.plain(self._identity()).items():
            if written.get(name) != value:
                raise ValueError(
                    f"{path} was written with another {name}: {written.get(name)!r}, not {value!r}; name another file"
                )
        track = self.track
        prefix = "tracker."
        track.tracker.from_arrays(
            {
                name.removeprefix(prefix): array
                for name, array in arrays.items()
                if name.startswith(prefix)
            }
        )
        track.buffer = Buffer(arrays["scores"], arrays["of_folds"], *content["buffer"])
        track.windows.extend(Window(**entry) for entry in content["windows"])
        track.alarms.extend(Alarm(**entry) for entry in content["alarms"])
        for name in _PLAIN:
            setattr(track, name, content[name])
        self.saved_rows = track.rows


_PLAIN = ("rows", "late", "period", "counts", "active", "first_row")


def _part(item: Rows, begin: int, end: int) -> Rows:
    """Some of the rows of an item."""
    if begin == 0 and end == np.shape(item.X)[0]:
        return item
    X = item.X
    if hasattr(X, "iloc"):
        X = X.iloc[begin:end]
    else:
        X = (X.tocsr() if scipy.sparse.issparse(X) else np.asarray(X))[begin:end]
    labels, times = (
        None if values is None else np.asarray(values)[begin:end]
        for values in (item.labels, item.times)
    )
    return Rows(X, labels, times)
