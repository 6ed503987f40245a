"""What the commands do, once their arguments are read."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from quapy_nemsis._files import replacing
from quapy_nemsis.cli import CHANGED, ERROR, FINE, rendering
from quapy_nemsis.cli.changes import Change, change
from quapy_nemsis.persistence import load, save
from quapy_nemsis.tables.quantifying import Estimate, TableQuantifier


def fit(options: argparse.Namespace) -> int:
    """Learn from a labelled file, print what was learned and what its unlabelled rows hold, and write the model."""
    folder = os.path.dirname(os.path.abspath(options.out))
    if not os.path.isdir(folder) or os.path.isdir(options.out):
        raise ValueError(f"--out {options.out}: give a file in a folder that there is")
    model = TableQuantifier(options.target, options.positive, random_state=options.seed)
    model.fit(options.labelled, reading=options.reading)
    if model.unlabelled_ is not None:
        found = model.unlabelled_
        print("rows without a label")
        print(rendering.estimates_table([(found, change(model, found))], 0.05))
        print()
    print(rendering.model_text(model))
    save(model, options.out)
    print(f"\nwritten to {options.out}")
    return FINE


def estimate(options: argparse.Namespace) -> int:
    """Estimate the prevalences in files. A file that cannot be read does not keep others from being estimated."""
    model = _model(options.model)
    alpha = 1.0 - options.interval if options.alpha is None else options.alpha
    found: list[tuple[Estimate, Change]] = []
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
        found.append((one, change(model, one)))
        if options.json:
            print(json.dumps(rendering.as_record(*found[-1], alpha)), flush=True)
    if options.csv:
        print(rendering.as_csv(found, alpha), end="")
    elif found and not options.json and options.prometheus != "-":
        print(rendering.estimates_table(found, alpha))
        for one, result in found:
            if result.p_value < alpha:
                print(f"{one.source}: changed, {result.sentence}")
    if not options.json and not options.csv:
        _print_notes([one for one, _ in found])
    if options.prometheus == "-":
        print(rendering.as_prometheus(found, alpha), end="")
    elif options.prometheus:
        _write(options.prometheus, rendering.as_prometheus(found, alpha))
    if options.html:
        _write(options.html, rendering.as_page(model, found, alpha))
    if failed:
        return ERROR
    return CHANGED if any(result.p_value < alpha for _, result in found) else FINE


def check(options: argparse.Namespace) -> int:
    """Compare estimates with labels."""
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


def show(options: argparse.Namespace) -> int:
    """Tell what is in a model."""
    model = _model(options.model)
    if options.json:
        known = {"classes": model.classes_, "target": model.target, "positive": model.positive}
        print(json.dumps({**known, **model.facts_}))
    else:
        print(rendering.model_text(model, columns=True))
    return FINE


def _model(path: str) -> TableQuantifier:
    found: Any = load(path)
    if not isinstance(found, TableQuantifier):
        kind = type(found).__name__
        raise ValueError(
            f"{path} holds a {kind}, which reads no files; quapy-nemsis fit writes models that do"
        )
    return found


def _print_notes(found: list[Estimate]) -> None:
    for one in found:
        for note in one.notes:
            print(f"{one.source}: {note}", file=sys.stderr)


def _write(path: str, text: str) -> None:
    with replacing(path, "w") as file:
        file.write(text)
