"""What commands print and write: tables, JSON, CSV, metrics for Prometheus, and a page with a plot."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from html import escape
from itertools import cycle
from typing import Any

import numpy as np

from quapy_nemsis.cli.changes import Change
from quapy_nemsis.tables.quantifying import Estimate, TableQuantifier

Found = Sequence[tuple[Estimate, Change]]
# Colours of classes on a page, which are told apart in dark and light, and by most people.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7f7f7f")


def _shown(estimate: Estimate) -> range:
    """Classes that are shown to people: of two classes the second, as the first has the rest."""
    return range(1, 2) if len(estimate.classes) == 2 else range(len(estimate.classes))


def _percent(value: float) -> str:
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


def estimates_table(found: Found, alpha: float) -> str:
    """Return estimates as a table for a terminal."""
    level = f"{100 * found[0][0].level:g} % interval"
    rows = [["file", "rows", "class", "prevalence", level, "training", "changed"]]
    for one, result in found:
        for k in _shown(one):
            first = k == _shown(one)[0]
            rows.append(
                [
                    one.source if first else "",
                    f"{one.n_rows:,}" if first else "",
                    one.classes[k],
                    _percent(one.prevalences[k]),
                    f"{_percent(one.low[k])} to {_percent(one.high[k])}",
                    _percent(one.training[k]),
                    ("yes" if result.p_value < alpha else "no") if first else "",
                ]
            )
    return aligned(rows, right=(1, 3, 4, 5))


def checks_table(found: Sequence[Estimate]) -> str:
    """Return estimates and true prevalences as a table for a terminal."""
    level = f"{100 * found[0].level:g} % interval"
    rows = [["file", "rows", "class", "true", "prevalence", level, "inside"]]
    for one in found:
        record = as_checked(one)["classes"]
        for k in _shown(one):
            first = k == _shown(one)[0]
            rows.append(
                [
                    one.source if first else "",
                    f"{one.n_rows:,}" if first else "",
                    one.classes[k],
                    _percent(record[k]["true"]),
                    _percent(one.prevalences[k]),
                    f"{_percent(one.low[k])} to {_percent(one.high[k])}",
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


def as_record(one: Estimate, result: Change, alpha: float) -> dict[str, Any]:
    """Return an estimate as plain values, for JSON."""
    return {
        "file": one.source,
        "rows": one.n_rows,
        "interval": one.level,
        "classes": _classes(one),
        "changed": result.p_value < alpha,
        "p_value": result.p_value,
        "statistic": result.statistic,
        "sentence": result.sentence,
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


def as_csv(found: Found, alpha: float) -> str:
    """Return estimates as CSV: a line for each file and class."""
    file = io.StringIO()
    names = ["file", "rows", "class", "prevalence", "low", "high", "training", "p_value", "changed"]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    for one, result in found:
        record = as_record(one, result, alpha)
        for entry in record["classes"]:
            both = {**record, **entry}
            writer.writerow([both[name] for name in names])
    return file.getvalue()


def as_prometheus(found: Found, alpha: float) -> str:
    """Return estimates as metrics in the text format of Prometheus."""
    metrics: dict[str, tuple[str, list[str]]] = {
        "prevalence": ("Estimated prevalence of a class.", []),
        "prevalence_low": ("Lower end of the interval of a prevalence.", []),
        "prevalence_high": ("Upper end of the interval of a prevalence.", []),
        "prevalence_training": ("Prevalence in training.", []),
        "rows": ("Rows of the file.", []),
        "changed": ("Whether prevalences have changed since training.", []),
        "change_p_value": ("p-value of the test that nothing has changed.", []),
    }
    for one, result in found:
        record = as_record(one, result, alpha)
        file = _label("file", one.source)
        for entry in record["classes"]:
            labels = f"{{{file},{_label('class', entry['class'])}}}"
            for key in ("prevalence", "low", "high", "training"):
                name = key if key == "prevalence" else f"prevalence_{key}"
                metrics[name][1].append(f"quapy_nemsis_{name}{labels} {entry[key]:.9g}")
        values = {"rows": one.n_rows, "changed": int(record["changed"])}
        values["change_p_value"] = record["p_value"]
        for name, value in values.items():
            metrics[name][1].append(f"quapy_nemsis_{name}{{{file}}} {value:.9g}")
    lines = []
    for name, (described, samples) in metrics.items():
        if samples:
            full = f"quapy_nemsis_{name}"
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
        f"{name} {_percent(share)}" for name, share in zip(model.classes_, shares, strict=True)
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
                f"{100 * expected['mean absolute error']:.1f} percentage points, on average over "
                f"{expected['samples']} samples of {expected['sample size']} held-out rows at random prevalences",
            ],
            [
                "95 % intervals",
                f"contain the truth in {100 * expected['coverage']:.0f} % of them, and are "
                f"{100 * expected['mean width']:.1f} percentage points wide",
            ],
        ]
    else:
        rows += [["expected error", "not known; the rarest class has too few rows"]]
    text = aligned(rows)
    if columns and facts["columns"]:
        table = aligned([["column", "taken as", "gaps", "what is done"], *facts["columns"]], (2,))
        text += f"\n\n{table}"
    return text


# A page


def as_page(model: TableQuantifier, found: Found, alpha: float) -> str:
    """Return a page that needs no other file: a plot of the estimates and tables."""
    rows = []
    for one, result in found:
        for k in range(len(one.classes)):
            cells = (
                *(one.source, f"{one.n_rows:,}", one.classes[k], _percent(one.prevalences[k])),
                f"{_percent(one.low[k])} to {_percent(one.high[k])}",
                *(_percent(one.training[k]), "yes" if result.p_value < alpha else "no"),
            )
            rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    heads = ("file", "rows", "class", "prevalence", "interval", "training", "changed")
    head = "".join(f"<th>{name}</th>" for name in heads)
    told = [
        f"{one.source}: changed, {result.sentence}"
        for one, result in found
        if result.p_value < alpha
    ]
    told += [f"{one.source}: {note}" for one, _ in found for note in one.notes]
    notes = "".join(f"<li>{escape(line)}</li>" for line in told)
    answer = (
        f"{sum(result.p_value < alpha for _, result in found)} of {len(found)} files have changed."
    )
    return _PAGE.format(
        answer=answer,
        plot=_plot(found) if found else "",
        table=f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>",
        notes=f"<h2>Notes</h2><ul>{notes}</ul>" if notes else "",
        model=escape(model_text(model)),
    )


def _plot(found: Found) -> str:
    """Return an SVG element: prevalences with their intervals, file by file, and those of training as dashed lines."""
    left, top, height = 60.0, 10.0, 260.0
    step = min(120.0, max(28.0, 900.0 / len(found)))
    width = step * len(found)
    classes = [(k, found[0][0].classes[k]) for k in _shown(found[0][0])]
    top_share = max(
        float(max(one.high.take(_shown(one)).max(), one.training.take(_shown(one)).max()))
        for one, _ in found
    )
    most = min(1.0, 0.05 * np.ceil(1.1 * top_share / 0.05))

    def y(share: float) -> float:
        return top + height * (1.0 - share / most)

    parts = []
    for tick in np.linspace(0.0, most, 6):
        parts.append(
            f'<line x1="{left}" x2="{left + width:.1f}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" class="grid"/>'
            f'<text x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{100 * tick:.0f} %</text>'
        )
    for place, (k, name) in enumerate(classes):
        colour = _COLOURS[place % len(_COLOURS)]
        level = y(found[0][0].training[k])
        parts.append(
            f'<line x1="{left}" x2="{left + width:.1f}" y1="{level:.1f}" y2="{level:.1f}" stroke="{colour}" '
            'stroke-dasharray="4 4"/>'
        )
        for number, (one, _) in enumerate(found):
            x = left + step * (number + (place + 1) / (len(classes) + 1))
            told = f"{one.source}, {name}: {_percent(one.prevalences[k])}"
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
    keys = "".join(
        f'<svg width="14" height="14"><circle cx="7" cy="7" r="4" fill="{colour}"/></svg> {escape(name)} '
        for (_, name), colour in zip(classes, cycle(_COLOURS), strict=False)
    )
    box = f"0 0 {left + width + 100:.0f} {top + height + 120:.0f}"
    return (
        f"<p>{keys}with intervals; dashed: in training</p>"
        f'<svg viewBox="{box}" role="img" aria-label="prevalences">{"".join(parts)}</svg>'
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
