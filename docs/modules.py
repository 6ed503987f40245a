"""Draw the imports between the parts of the package into docs/figures/modules.svg: ``python docs/modules.py``."""

from __future__ import annotations

import ast
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "modules", "font.size": 11})

from matplotlib.figure import Figure  # noqa: E402

PACKAGE = Path(__file__).resolve().parents[1] / "quapy_nemsis"
#: Old file formats are parts of persistence.
PART_OF = {f"_version{number}": "persistence" for number in range(1, 10)}


def part(module: str) -> str:
    """The part of the package that a module belongs to: the first of its names."""
    name = module.split(".")[0]
    return PART_OF.get(name, name)


def imports() -> dict[str, set[str]]:
    """The parts, and what each imports."""
    parts: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        inner = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if inner in ("__init__", "__main__"):
            continue
        found = parts.setdefault(part(inner), set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("quapy_nemsis"):
                name = (node.module or "").partition(".")[2]
                found.update([part(name)] if name else [part(each.name) for each in node.names])
    return {name: (found & parts.keys()) - {name} for name, found in parts.items()}


def depth(name: str, parts: dict[str, set[str]]) -> int:
    """How many parts there are below, on the longest way."""
    return 1 + max((depth(other, parts) for other in parts[name]), default=-1)


def below(name: str, parts: dict[str, set[str]]) -> set[str]:
    """All parts that a part needs, itself not included."""
    return parts[name].union(*(below(other, parts) for other in parts[name]))


def draw() -> Figure:
    """Draw parts as boxes in rows, with arrows that do not follow from others."""
    parts = imports()
    direct = {
        name: {o for o in found if not any(o in below(p, parts) for p in found if p != o)}
        for name, found in parts.items()
    }
    rows: dict[int, list[str]] = {}
    for name in parts:
        rows.setdefault(depth(name, parts), []).append(name)
    places: dict[str, tuple[float, float]] = {}
    for level in sorted(rows):
        # As far as possible above what they import.
        def wanted(name: str) -> float:
            found = [places[other][0] for other in direct[name]]
            return sum(found) / len(found) if found else 0.0

        names = sorted(rows[level], key=lambda name: (wanted(name), name))
        middle = sum(wanted(name) for name in names) / len(names)
        for i, name in enumerate(names):
            places[name] = (middle + 2.3 * (i - (len(names) - 1) / 2), float(level))
    figure = Figure(figsize=(8.5, 0.62 * len(rows) + 0.4), layout="constrained")
    ax = figure.subplots()
    ax.set_axis_off()
    for name, (x, y) in places.items():
        for other in direct[name]:
            ax.annotate(
                "",
                (places[other][0], places[other][1] + 0.24),
                (x, y - 0.24),
                arrowprops={
                    "arrowstyle": "->",
                    "color": "#667788",
                    "connectionstyle": f"arc3,rad={0.0 if y - places[other][1] < 2 else 0.3}",
                },
                zorder=1,
            )
        box = {"boxstyle": "round,pad=0.35", "fc": "#e8f1f6", "ec": "#0b5f8a"}
        style = {"ha": "center", "va": "center", "family": "monospace", "fontsize": 10}
        ax.text(x, y, name, bbox=box, zorder=2, **style)
    widths = [x for x, _ in places.values()]
    ax.set_xlim(min(widths) - 1.2, max(widths) + 1.2)
    ax.set_ylim(-0.5, max(rows) + 0.5)
    return figure


if __name__ == "__main__":
    target = Path(__file__).parent / "figures" / "modules.svg"
    target.parent.mkdir(exist_ok=True)
    draw().savefig(target, metadata={"Date": None})
    print(target)
