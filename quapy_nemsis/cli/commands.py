"""What the commands do, once their arguments are read."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from quapy_nemsis._files import replacing
from quapy_nemsis.cli import CHANGED, ERROR, FINE, rendering, windows
from quapy_nemsis.cli.changes import Changes, DriftTests, too_few_labelled
from quapy_nemsis.drift import LEAST_ROWS
from quapy_nemsis.persistence import load, save
from quapy_nemsis.tables.formats import known_suffix
from quapy_nemsis.tables.quantifying import Estimate, TableQuantifier
from quapy_nemsis.tracking import Alarm, LateLabels, Rows, TrackError, Window
from quapy_nemsis.tracking import track as track_rows
from quapy_nemsis.tracking.windows import seconds_of


def fit(options: argparse.Namespace) -> int:
    """Train a model on a labelled file, describe it, estimate the file's unlabelled rows, and write the model."""
    _check_writable(options, "out")
    model = TableQuantifier(options.target, options.positive, random_state=options.seed)
    model.fit(options.labelled, reading=options.reading)
    if model.unlabelled_ is not None:
        found = model.unlabelled_
        print("rows without a label")
        result = DriftTests(model, 0.05).of(found.scores)
        print(rendering.estimates_table([(found, result)]))
        print(*result.found, "", sep="\n")
    print(rendering.model_text(model))
    save(model, options.out)
    print(f"\nwritten to {options.out}")
    return FINE


def estimate(options: argparse.Namespace) -> int:
    """Estimate the prevalences in files. If one file cannot be read, the others are still estimated."""
    _check_writable(options, "html", "prometheus")
    model = _model(options.model)
    tests = DriftTests(model, options.alpha)
    found: list[tuple[Estimate, Changes]] = []
    failed = 0
    for name in options.files:
        try:
            one = model.estimate(name, options.interval, reading=options.reading)
        except (ValueError, OSError, ImportError) as error:
            failed += 1
            print(f"error: {error}", file=sys.stderr)
            if options.json:
                print(json.dumps({"file": name, "error": str(error)}), flush=True)
            continue
        found.append((one, tests.of(one.scores)))
        if options.json:
            print(json.dumps(rendering.as_record(*found[-1])), flush=True)
    if options.csv:
        print(rendering.as_csv(found), end="")
    elif found and not options.json and options.prometheus != "-":
        print(rendering.estimates_table(found))
        for one, result in found:
            for line in result.found:
                print(f"{one.source}: {line}")
    if not options.json and not options.csv:
        _print_notes([one for one, _ in found])
    if options.prometheus == "-":
        print(rendering.as_prometheus(found), end="")
    elif options.prometheus:
        _write(options.prometheus, rendering.as_prometheus(found))
    if options.html:
        _write(options.html, rendering.as_page(model, found))
    if failed:
        return ERROR
    rejected = any(result.changed or result.assumption_fails for _, result in found)
    return CHANGED if rejected else FINE


def check(options: argparse.Namespace) -> int:
    """Compare estimates with the labels in files."""
    model = _model(options.model)
    found = []
    for name in options.files:
        one = model.estimate(name, options.interval, reading=options.reading, labels=True)
        found.append(one)
        if options.json:
            print(json.dumps(rendering.as_checked(one)), flush=True)
    if not options.json:
        print(rendering.checks_table(found))
        _print_notes(found)
    return FINE if all(one.inside is not None and one.inside.all() for one in found) else CHANGED


def track(options: argparse.Namespace) -> int:
    """Follow the prevalences of files, window by window, in the order in which the files are named."""
    _check_writable(options, "checkpoint", "html", "prometheus")
    model = _model(options.model)
    _check_tracking(options, model)
    begun: list[Alarm] = []
    new: dict[int, bool] = {}  # whether there is an alarm in a window, by its end

    def tell(window: Window) -> None:
        if options.json:
            print(json.dumps(windows.as_record(model, window, begun)), flush=True)
        elif options.csv:
            print(windows.as_csv(model, window), end="", flush=True)
        else:
            print(windows.as_line(model, window, begun), flush=True)
        begun.clear()

    def meet(window: Window) -> None:
        new[window.end] = bool(window.alarms)
        tell(window)

    if isinstance(options.window, int) and options.window < LEAST_ROWS:
        print(f"windows of fewer than {LEAST_ROWS} rows are not tested", file=sys.stderr)
    if options.csv:
        print(",".join(windows.COLUMNS))
    try:
        found = track_rows(
            model.quantifier_,
            _rows(options, model),
            window=options.window,
            method=options.method,
            options=dict(options.option),
            confidence_level=options.interval,
            false_alarms=options.false_alarms,
            checkpoint=options.checkpoint,
            resume=options.resume,
            callback=meet,
            on_alarm=begun.append,
            random_state=model.random_state,
            names=model.classes_,
        )
    except TrackError as error:
        raise ValueError(str(error.__cause__)) from error
    again = [window for window in found.relabelled if window.end not in new]
    if again and not options.json and not options.csv:
        print("labels have arrived for")
    for window in again:
        tell(window)
    if not options.json and not options.csv:
        print(
            f"{found.rows:,} rows, {found.buffer.rows:,} of them in a window that is not full yet"
        )
    if options.prometheus:
        _write(options.prometheus, windows.as_prometheus(model, found))
    if options.html:
        _write(options.html, windows.as_page(model, found))
    return CHANGED if any(new.values()) else FINE


def _check_tracking(options: argparse.Namespace, model: TableQuantifier) -> None:
    """Refuse what cannot be tracked before a row is read."""
    for name in (*options.files, *options.labels):
        known_suffix(Path(name))
    if bool(options.labels) != (options.key is not None):
        raise ValueError(
            "--labels and --key go together: --labels names files, and --key the column that identifies a row"
        )
    timed = seconds_of(options.window) is not None
    if timed and options.time is None:
        raise ValueError(
            f"--window {options.window} is a length of time: name the column of times with --time"
        )
    if not timed and options.time is not None:
        raise ValueError("--time is for windows of time, such as --window 1d")
    if options.resume and options.checkpoint is None:
        raise ValueError("--resume needs a checkpoint to continue from: name it with --checkpoint")
    if options.checkpoint and os.path.exists(options.checkpoint) and not options.resume:
        raise ValueError(
            f"{options.checkpoint} already exists: continue from it with --resume, name another file, or delete it"
        )
    if scarce := too_few_labelled(model):
        raise ValueError(f"{options.model} cannot track: {scarce}; train with more rows")


def _rows(options: argparse.Namespace, model: TableQuantifier) -> Iterator[Rows | LateLabels]:
    """Yield the rows of all files, with labels where these are known, and all labels at the end.

    Rows that were tracked before are skipped by `track`, but labels of theirs may have arrived since.
    """
    told: set[str] = set()
    known: dict[str, int] = {}
    for name in options.labels:
        known |= model.labels(name, options.key, reading=options.reading)
    labels: list[np.ndarray] = []
    places: list[np.ndarray] = []
    n_rows, found = 0, set()
    for name in options.files:

        def tell(note: str, name: str = name) -> None:
            if note not in told:  # the same columns are odd in every file
                print(f"{name}: {note}", file=sys.stderr)
            told.add(note)

        parts = model.prepare(
            name,
            reading=options.reading,
            time=options.time,
            time_format=options.time_format,
            key=options.key,
            tell=tell,
        )
        for part in parts:
            codes = None
            if part.keys is not None:
                codes = np.array([known.get(key, np.nan) for key in part.keys])
                given = np.flatnonzero(~np.isnan(codes))
                found.update(part.keys[given].tolist())
                labels.append(codes[given])
                places.append(n_rows + given)
            n_rows += part.X.shape[0]
            yield Rows(part.X, labels=codes, times=part.times)
    if options.labels:
        if len(found) < len(known):
            print(
                f"{len(known) - len(found):,} of {len(known):,} labels do not belong to any row so far",
                file=sys.stderr,
            )
        yield LateLabels(np.concatenate(places), np.concatenate(labels), complete=True)


def show(options: argparse.Namespace) -> int:
    """Show what is in a model."""
    model = _model(options.model)
    if options.json:
        known = {"classes": model.classes_, "target": model.target, "positive": model.positive}
        print(json.dumps({**known, **model.facts_}))
    else:
        print(rendering.model_text(model, columns=True))
    return FINE


def _check_writable(options: argparse.Namespace, *names: str) -> None:
    """Refuse files that could not be written, before anything is done."""
    for name in names:
        path = getattr(options, name)
        if path and (
            not os.path.isdir(os.path.dirname(os.path.abspath(path))) or os.path.isdir(path)
        ):
            raise ValueError(f"--{name} {path}: give a file in a folder that exists")


def _model(path: str) -> TableQuantifier:
    found: Any = load(path)
    if not isinstance(found, TableQuantifier):
        kind = type(found).__name__
        raise ValueError(
            f"{path} holds a {kind}, which reads no files; write a model with quapy-nemsis fit"
        )
    return found


def _print_notes(found: list[Estimate]) -> None:
    for one in found:
        for note in one.notes:
            print(f"{one.source}: {note}", file=sys.stderr)


def _write(path: str, text: str) -> None:
    with replacing(path, "w") as file:
        file.write(text)
