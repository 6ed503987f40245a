"""What `track` prints for each window of a stream, and its page and metrics."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from datetime import datetime, timezone
from html import escape
from typing import Any

from quapy_nemsis.cli.rendering import (
    COLOURS,
    Metrics,
    axes,
    highest,
    page,
    percent,
    shown,
    svg,
    table_element,
)
from quapy_nemsis.tables.quantifying import TableQuantifier
from quapy_nemsis.tracking import Alarm, Track, Window

COLUMNS = ["begin", "end", "start", "class", "prevalence", "low", "high"]
COLUMNS += ["p_prevalence", "p_mixture", "alarms", "labelled", "true"]
# Windows in the table of a page, and numbers below its plot.
_LATEST, _TICKS = 100, 6


def as_record(model: TableQuantifier, window: Window, begun: Sequence[Alarm]) -> dict[str, Any]:
    """Return a window as plain values, for JSON; the sentences are those of alarms that begin."""
    names = ("class", "prevalence", "low", "high", "true")
    truth: Sequence[float | None] = window.truth or [None] * len(model.classes_)
    columns = (model.classes_, window.prevalence, window.low, window.high, truth)
    return {
        "begin": window.begin,
        "end": window.end,
        "start": None if window.start is None else _time(window.start),
        "classes": [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)],
        **{f"p_{kind}": None if math.isnan(p) else p for kind, p in window.p_values.items()},
        "alarms": window.alarms,
        "labelled": round(sum(window.labelled)),
        "sentences": [alarm.sentence for alarm in begun],
    }


def as_line(model: TableQuantifier, window: Window, begun: Sequence[Alarm]) -> str:
    """Return a window as a line for a terminal, and a line for each alarm that begins."""
    shares = [
        f"{model.classes_[k]} {percent(window.prevalence[k]):>7} "
        f"({percent(window.low[k])} to {percent(window.high[k])})"
        for k in shown(model.classes_)
    ]
    on = [f"alarm: {', '.join(window.alarms)}"] if window.alarms else []
    lines = ["  ".join([_label(window), *shares, *_true(model, window), *on])]
    return "\n".join([*lines, *(f"  {alarm.sentence}" for alarm in begun)])


def as_csv(model: TableQuantifier, window: Window) -> str:
    """Return a window as lines of CSV, one for each class."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
    record = as_record(model, window, ())
    for entry in record["classes"]:
        writer.writerow({**record, **entry, "alarms": " ".join(window.alarms)})
    return file.getvalue()


def as_prometheus(model: TableQuantifier, track: Track) -> str:
    """Return the latest window as metrics in the text format of Prometheus."""
    metrics = Metrics("quapy_nemsis_track_")
    metrics.add("rows", "Rows of the stream so far.", track.rows, {})
    for window in list(track.windows)[-1:]:
        record = as_record(model, window, ())
        training = model.training_shares.tolist()
        for entry, share in zip(record["classes"], training, strict=True):
            metrics.add_class({**entry, "training": share}, {"class": entry["class"]})
        for kind in window.p_values:
            test = {"test": kind}
            metrics.add("p_value", "p-value of a test of drift.", record[f"p_{kind}"], test)
            metrics.add("alarm", "Whether an alarm is on.", kind in window.alarms, test)
    return metrics.text()


def as_page(model: TableQuantifier, track: Track) -> str:
    """Return a page that needs no other file: a plot of the windows, the alarms and the latest windows."""
    windows, alarms = list(track.windows), list(track.alarms)
    answer = f"{len(alarms):,} alarms in {len(windows):,} windows, {track.rows:,} rows."
    labelled = any(window.truth for window in windows)
    rows = [
        [
            _label(window),
            *(
                f"{percent(window.prevalence[k])} ({percent(window.low[k])} to {percent(window.high[k])})"
                for k in shown(model.classes_)
            ),
            *("" if math.isnan(p) else f"{p:.2g}" for p in window.p_values.values()),
            ", ".join(window.alarms),
            *(_true(model, window) or [""] * labelled),
        ]
        for window in reversed(windows[-_LATEST:])
    ]
    heads = ["window", *(model.classes_[k] for k in shown(model.classes_))]
    heads += ["p, prevalence test", "p, mixture test", "alarms", *["labels"] * labelled]
    told = [f"rows up to {alarm.end:,}, {alarm.kind}: {alarm.sentence}" for alarm in alarms]
    drawn = _plot(model, windows) if windows else ""
    return page(answer, drawn, table_element(heads, rows), told, model)


def _plot(model: TableQuantifier, windows: Sequence[Window]) -> str:
    """Return an SVG element: prevalences with their band, those of training dashed, and windows with alarms marked."""
    left, top, width, height = 60.0, 14.0, 900.0, 260.0
    classes = shown(model.classes_)
    training = model.training_shares.tolist()
    tops = [
        max(one.high[k], one.prevalence[k], one.truth[k] if one.truth else 0.0)
        for one in windows
        for k in classes
    ]
    y, parts = axes(left, top, width, height, highest(max(*tops, *(training[k] for k in classes))))
    at = [float(one.end) if one.start is None else one.start for one in windows]
    length = (at[-1] - at[0]) or 1.0
    x = [left + width * (0.5 if len(at) == 1 else (each - at[0]) / length) for each in at]
    for place, k in enumerate(classes):
        colour = COLOURS[place % len(COLOURS)]
        level = y(training[k])
        above = [f"{px:.1f},{y(one.high[k]):.1f}" for px, one in zip(x, windows, strict=True)]
        below = [f"{px:.1f},{y(one.low[k]):.1f}" for px, one in zip(x, windows, strict=True)]
        middle = [
            f"{px:.1f},{y(one.prevalence[k]):.1f}" for px, one in zip(x, windows, strict=True)
        ]
        parts += [
            f'<line x1="{left}" x2="{left + width}" y1="{level:.1f}" y2="{level:.1f}" stroke="{colour}" '
            'stroke-dasharray="4 4"/>',
            f'<polygon points="{" ".join(above + below[::-1])}" fill="{colour}" opacity="0.2"/>',
            f'<polyline points="{" ".join(middle)}" fill="none" stroke="{colour}" stroke-width="2"/>',
        ]
        if known := [
            f"{px:.1f},{y(one.truth[k]):.1f}"
            for px, one in zip(x, windows, strict=True)
            if one.truth is not None
        ]:
            dots = "".join(
                f'<circle cx="{at.split(",")[0]}" cy="{at.split(",")[1]}" r="3"/>' for at in known
            )
            parts.append(f'<g fill="none" stroke="{colour}" class="truth">{dots}</g>')
    for px, one in zip(x, windows, strict=True):
        if one.alarms:
            told = escape(f"{_label(one).strip()}: {', '.join(one.alarms)}")
            mark = f"M{px - 4:.1f} {top - 12}h8l-4 8z"
            parts.append(f'<path class="alarm" d="{mark}" fill="#d00"><title>{told}</title></path>')
    step = max(1, -(-len(windows) // _TICKS))
    for px, one in list(zip(x, windows, strict=True))[::step]:
        shown_at = f"{one.end:,}" if one.start is None else _time(one.start)
        parts.append(
            f'<text x="{px:.1f}" y="{top + height + 18}" text-anchor="middle">{shown_at}</text>'
        )
    names = [model.classes_[k] for k in classes]
    said = "with the band of each window; dashed: in training; marks: alarms"
    said += "; circles: labels" if any(one.truth for one in windows) else ""
    return svg(names, said, (left + width + 60, top + height + 30), parts)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _true(model: TableQuantifier, window: Window) -> list[str]:
    """Return what labels tell about a window, if there are some."""
    if window.truth is None:
        return []
    shares = (f"{model.classes_[k]} {percent(window.truth[k])}" for k in shown(model.classes_))
    return [f"labels: {', '.join(shares)} of {sum(window.labelled):,.0f} rows"]


def _label(window: Window) -> str:
    if window.start is not None:
        return f"{_time(window.start)}, {window.end - window.begin:>7,} rows"
    return f"rows {window.begin + 1:>9,} to {window.end:>9,}"
