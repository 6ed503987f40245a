"""What commands print and write: tables, JSON, CSV, metrics for Prometheus, and a page with a plot."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from html import escape
from itertools import cycle
from typing import Any

import numpy as np

from quapy_nemsis.cli.changes import FAILS, Changes
from quapy_nemsis.tables.quantifying import Estimate, TableQuantifier

Found = Sequence[tuple[Estimate, Changes]]
# Colours of classes on a page, which are told apart in dark and light, and by most people.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7f7f7f")


def shown(classes: Sequence[str]) -> range:
    """Classes that are shown to people: of two classes the second, as the first has the rest."""
    return range(1, 2) if len(classes) == 2 else range(len(classes))


def percent(value: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * value:.1f} %"


def aligned(rows: list[list[str]], right: Sequence[int] = ()) -> str:
    """Return rows of cells as lines, columns aligned; those in ``right`` to the right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = (
        "  ".join(
            cell.rjust(widths[k]) if k in right else cell.ljust(widths[k])
            for k, cell in enumerate(row)
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def _answer(value: bool | None) -> str:
    return "not tested" if value is None else "yes" if value else "no"


def estimates_table(found: Found) -> str:
    """Return estimates as a table for a terminal."""
    level = f"{100 * found[0][0].level:g} % interval"
    rows = [["file", "rows", "class", "prevalence", level, "training", "changed", "assumption"]]
    for one, result in found:
        fails = result.assumption_fails
        holds = "not tested" if fails is None else "fails" if fails else "not refuted"
        for k in shown(one.classes):
            first = k == shown(one.classes)[0]
            rows.append(
                [
                    one.source if first else "",
                    f"{one.n_rows:,}" if first else "",
                    one.classes[k],
                    percent(one.prevalences[k]),
                    f"{percent(one.low[k])} to {percent(one.high[k])}",
                    percent(one.training[k]),
                    _answer(result.changed) if first else "",
                    holds if first else "",
                ]
            )
    return aligned(rows, right=(1, 3, 4, 5))


def checks_table(found: Sequence[Estimate]) -> str:
    """Return estimates and true prevalences as a table for a terminal."""
    level = f"{100 * found[0].level:g} % interval"
    rows = [["file", "rows", "class", "true", "prevalence", level, "inside"]]
    for one in found:
        record = as_checked(one)["classes"]
        for k in shown(one.classes):
            first = k == shown(one.classes)[0]
            rows.append(
                [
                    one.source if first else "",
                    f"{one.n_rows:,}" if first else "",
                    one.classes[k],
                    percent(record[k]["true"]),
                    percent(one.prevalences[k]),
                    f"{percent(one.low[k])} to {percent(one.high[k])}",
                    "yes" if record[k]["inside"] else "no",
                ]
            )
    return aligned(rows, right=(1, 3, 4, 5))


def _classes(one: Estimate) -> list[dict[str, Any]]:
    columns = zip(
        one.classes,
        *(values.tolist() for values in (one.prevalences, one.low, one.high, one.training)),
        strict=True,
    )
    names = ("class", "prevalence", "low", "high", "training")
    return [dict(zip(names, row, strict=True)) for row in columns]


def as_record(one: Estimate, result: Changes) -> dict[str, Any]:
    """Return an estimate as plain values, for JSON."""
    return {
        "file": one.source,
        "rows": one.n_rows,
        "interval": one.level,
        "classes": _classes(one),
        "alpha": result.level,
        "changed": result.changed,
        "p_prevalence": None if result.prevalence is None else result.prevalence.p_value,
        "assumption_fails": result.assumption_fails,
        "p_mixture": None if result.mixture is None else result.mixture.p_value,
        "sentences": result.sentences,
        "notes": list(one.notes),
    }


def as_checked(one: Estimate) -> dict[str, Any]:
    """Return an estimate and the true prevalences as plain values, for JSON."""
    true = np.zeros(0) if one.true is None else one.true
    inside = np.zeros(0, dtype=bool) if one.inside is None else one.inside
    facts = zip(_classes(one), true.tolist(), inside.tolist(), strict=True)
    return {
        "file": one.source,
        "rows": one.n_rows,
        "interval": one.level,
        "classes": [{**entry, "true": share, "inside": is_in} for entry, share, is_in in facts],
        "inside": bool(inside.all()),
        "notes": list(one.notes),
    }


def as_csv(found: Found) -> str:
    """Return estimates as CSV: a line for each file and class."""
    file = io.StringIO()
    names = ["file", "rows", "class", "prevalence", "low", "high", "training"]
    names += ["changed", "p_prevalence", "assumption_fails", "p_mixture", "sentences"]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    for one, result in found:
        record = as_record(one, result)
        for entry in record["classes"]:
            both = {**record, **entry, "sentences": " ".join(record["sentences"])}
            writer.writerow([both[name] for name in names])
    return file.getvalue()


def as_prometheus(found: Found) -> str:
    """Return estimates as metrics in the text format of Prometheus. What was not tested has no value."""
    metrics = Metrics()
    for one, result in found:
        record, file = as_record(one, result), {"file": one.source}
        for entry in record["classes"]:
            metrics.add_class(entry, {**file, "class": entry["class"]})
        metrics.add("rows", "Rows of the file.", one.n_rows, file)
        metrics.add(
            *("changed", "Whether prevalences have changed since training."),
            *(record["changed"], file),
        )
        metrics.add(
            *("prevalence_p_value", "p-value of the test for changed prevalences."),
            *(record["p_prevalence"], file),
        )
        metrics.add(
            *("assumption_fails", "Whether more has changed than prevalences."),
            *(record["assumption_fails"], file),
        )
        metrics.add(
            *("mixture_p_value", "p-value of the test for changes other than in prevalences."),
            *(record["p_mixture"], file),
        )
    return metrics.text()


class Metrics:
    """Gauges in the text format of Prometheus; samples of a metric stand together."""

    def __init__(self, prefix: str = "quapy_nemsis_"):
        self.prefix = prefix
        self.found: dict[str, tuple[str, list[str]]] = {}

    def add(self, name: str, described: str, value: float | None, labels: dict[str, str]) -> None:
        """Add a sample, unless there is no value."""
        if value is None:
            return
        inside = ",".join(_label(*pair) for pair in labels.items())
        inside = f"{{{inside}}}" if inside else ""
        samples = self.found.setdefault(name, (described, []))[1]
        samples.append(f"{self.prefix}{name}{inside} {float(value):.9g}")

    def add_class(self, entry: dict[str, Any], labels: dict[str, str]) -> None:
        """Add the prevalence of a class, the ends of its interval, and what it was in training."""
        for key, name, described in (
            ("prevalence", "prevalence", "Estimated prevalence of a class."),
            ("low", "prevalence_low", "Lower end of the interval of a prevalence."),
            ("high", "prevalence_high", "Upper end of the interval of a prevalence."),
            ("training", "prevalence_training", "Prevalence in training."),
        ):
            self.add(name, described, entry[key], labels)

    def text(self) -> str:
        """Return all samples with what they are."""
        lines = []
        for name, (described, samples) in self.found.items():
            full = self.prefix + name
            lines += [f"# HELP {full} {described}", f"# TYPE {full} gauge", *samples]
        return "\n".join(lines) + "\n" if lines else ""


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{escaped}"'


def model_text(model: TableQuantifier, columns: bool = False) -> str:
    """Return what is in a model, as text."""
    facts, quantifier = model.facts_, model.quantifier_
    shares = np.asarray(facts["counts"]) / facts["rows"]
    classes = [
        f"{name} {percent(share)}" for name, share in zip(model.classes_, shares, strict=True)
    ]
    learner = type(quantifier.classifier).__name__
    features = "" if quantifier.features_ is None else ", with random Fourier features"
    digest = f" (sha256 {facts['sha256'][:12]})" if facts["sha256"] else ""
    rows = [
        ["trained on", f"{facts['source']}{digest}, {facts['trained']}"],
        ["rows", f"{facts['rows']:,} with a label, {facts['unlabelled rows']:,} without"],
        ["target", f"{model.target or 'y'}: {', '.join(classes)}"],
        ["learner", f"{learner} on {facts['features']:,} features{features}"],
    ]
    rows += [["read with", facts["dialect"]]] if facts["dialect"] else []
    expected = facts["expected"]
    if expected:
        rows += [
            [
                "expected error",
                f"{100 * expected['mean absolute error']:.1f} percentage points, averaged over "
                f"{expected['samples']} samples of {expected['sample size']} held-out rows at random prevalences",
            ],
            [
                "95 % intervals",
                f"contain the truth for {100 * expected['coverage']:.0f} % of these samples; their mean width is "
                f"{100 * expected['mean width']:.1f} percentage points",
            ],
        ]
    else:
        rows += [["expected error", "unknown, because the rarest class has too few rows"]]
    text = aligned(rows)
    if columns and facts["columns"]:
        table = aligned([["column", "type", "missing", "use"], *facts["columns"]], (2,))
        text += f"\n\n{table}"
    return text


# A page


def as_page(model: TableQuantifier, found: Found) -> str:
    """Return a page that needs no other file: a plot of the estimates and tables."""
    rows = []
    for one, result in found:
        p_values = (
            "" if test is None else f"{test.p_value:.2g}"
            for test in (result.prevalence, result.mixture)
        )
        tests = zip((result.changed, result.assumption_fails), p_values, strict=True)
        tested = [_answer(value) + (f" (p = {p})" if p else "") for value, p in tests]
        for k in range(len(one.classes)):
            rows.append(
                [
                    *(one.source, f"{one.n_rows:,}", one.classes[k], percent(one.prevalences[k])),
                    f"{percent(one.low[k])} to {percent(one.high[k])}",
                    *(percent(one.training[k]), *tested),
                ]
            )
    heads = ["file", "rows", "class", "prevalence", "interval", "training", "changed"]
    told = [f"{one.source}: {line}" for one, result in found for line in result.found]
    told += [f"{one.source}: {note}" for one, _ in found for note in one.notes]
    answer = (
        f"{sum(bool(result.changed) for _, result in found)} of {len(found)} files have changed."
    )
    failing = sum(bool(result.assumption_fails) for _, result in found)
    if failing:
        answer += f" In {failing} of {len(found)} files, {FAILS}, and estimates may be off."
    return page(
        answer,
        _plot(found) if found else "",
        table_element([*heads, "assumption fails"], rows),
        told,
        model,
    )


def table_element(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of a page."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def page(answer: str, plot: str, table: str, told: Sequence[str], model: TableQuantifier) -> str:
    """Return a page: the answer first, then a plot, a table, notes, and what is in the model."""
    notes = "".join(f"<li>{escape(line)}</li>" for line in told)
    return _PAGE.format(
        answer=escape(answer),
        plot=plot,
        table=table,
        notes=f"<h2>Notes</h2><ul>{notes}</ul>" if notes else "",
        model=escape(model_text(model)),
    )


def _plot(found: Found) -> str:
    """Return an SVG element: prevalences with their intervals, file by file, and those of training as dashed lines."""
    left, top, height = 60.0, 10.0, 260.0
    step = min(120.0, max(28.0, 900.0 / len(found)))
    width = step * len(found)
    classes = [(k, found[0][0].classes[k]) for k in shown(found[0][0].classes)]
    top_share = max(
        float(
            max(
                one.high.take(shown(one.classes)).max(), one.training.take(shown(one.classes)).max()
            )
        )
        for one, _ in found
    )
    most = highest(top_share)

    y, parts = axes(left, top, width, height, most)
    for place, (k, name) in enumerate(classes):
        colour = COLOURS[place % len(COLOURS)]
        level = y(found[0][0].training[k])
        parts.append(
            f'<line x1="{left}" x2="{left + width:.1f}" y1="{level:.1f}" y2="{level:.1f}" stroke="{colour}" '
            'stroke-dasharray="4 4"/>'
        )
        for number, (one, _) in enumerate(found):
            x = left + step * (number + (place + 1) / (len(classes) + 1))
            told = f"{one.source}, {name}: {percent(one.prevalences[k])}"
            parts.append(
                f'<g stroke="{colour}" fill="{colour}"><title>{escape(told)}</title>'
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y(one.low[k]):.1f}" y2="{y(one.high[k]):.1f}" stroke-width="2"/>'
                f'<circle cx="{x:.1f}" cy="{y(one.prevalences[k]):.1f}" r="4"/></g>'
            )
    for number, (one, _) in enumerate(found):
        x = left + step * (number + 0.5)
        short = one.source.replace("\\", "/").rpartition("/")[2]
        parts.append(
            f'<text transform="translate({x:.1f} {top + height + 14}) rotate(35)">{escape(short)}</text>'
        )
    names = [name for _, name in classes]
    box = (left + width + 100, top + height + 120)
    return svg(names, "with intervals; dashed: in training", box, parts)


def highest(share: float) -> float:
    """Return the top of a plot whose highest share this is."""
    return float(min(1.0, max(0.05, 0.05 * np.ceil(1.1 * share / 0.05))))


def axes(
    left: float, top: float, width: float, height: float, most: float
) -> tuple[Callable[[float], float], list[str]]:
    """Return where a share lies between the bottom and the top of a plot, and lines at some shares."""

    def y(share: float) -> float:
        return top + height * (1.0 - share / most)

    lines = [
        f'<line x1="{left}" x2="{left + width:.1f}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" class="grid"/>'
        f'<text x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{100 * tick:.0f} %</text>'
        for tick in np.linspace(0.0, most, 6)
    ]
    return y, lines


def svg(names: Sequence[str], said: str, box: tuple[float, float], parts: Sequence[str]) -> str:
    """Return a plot with a line of its colours above."""
    keys = "".join(
        f'<svg width="14" height="14"><circle cx="7" cy="7" r="4" fill="{colour}"/></svg> {escape(name)} '
        for name, colour in zip(names, cycle(COLOURS), strict=False)
    )
    size = f"0 0 {box[0]:.0f} {box[1]:.0f}"
    return (
        f"<p>{keys}{said}</p>"
        f'<svg viewBox="{size}" role="img" aria-label="prevalences">{"".join(parts)}</svg>'
    )


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Prevalences</title><style>
:root {{ color-scheme: light dark }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }}
table {{ border-collapse: collapse }} th, td {{ padding: .2em .8em; text-align: left; border-bottom: 1px solid #8884 }}
svg[role] {{ max-width: 100%; max-height: 30em }} svg text {{ font-size: 12px; fill: currentColor }}
.grid {{ stroke: #8884 }} pre {{ overflow-x: auto }}
</style></head><body>
<h1>Prevalences</h1><p><strong>{answer}</strong></p>
{plot}
{table}
{notes}
<h2>Model</h2><pre>{model}</pre>
</body></html>
"""
