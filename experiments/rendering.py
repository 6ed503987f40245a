"""A page is a list of blocks; the templates beside this module write it as HTML, Markdown and LaTeX."""

from __future__ import annotations

import base64
import hashlib
import html
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import jinja2
from matplotlib.figure import Figure

from experiments.store import replacing
from experiments.vectors import Drawing, draw

#: A table on paper has at most so many columns beside its first; a wider one is split.
MOST_COLUMNS = 6


@dataclass(frozen=True)
class Text:
    """Text without any markup: a heading (h1 is the title), a paragraph (p), or something to type (pre).

    The kind "lead" is a paragraph too: what a reader should know first.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class Items:
    """A list of things: what each is, and what it said."""

    kind: ClassVar = "items"
    items: list[tuple[str, str]]


@dataclass(frozen=True)
class Grid:
    """A table; the first entry of each row says what the row is, and some entries are bold."""

    kind: ClassVar = "grid"
    caption: str
    head: list[str]
    rows: list[list[str]]
    bold: frozenset[tuple[int, int]] = frozenset()
    #: Whether the entries are words rather than numbers.
    words: bool = False
    #: What its marks mean.
    note: str = ""
    #: Whether a page shows it only to those who ask.
    folded: bool = False


@dataclass(frozen=True)
class Picture:
    """A figure with its file name, a caption, and words for those who cannot see it."""

    kind: ClassVar = "picture"
    name: str
    figure: Figure
    caption: str
    alt: str

    @cached_property
    def drawing(self) -> Drawing:
        """The figure as vector graphics."""
        return draw(self.figure, self.name)


Block = Text | Items | Grid | Picture


def as_markdown(text: str) -> str:
    """Return text on one line that Markdown shows as it is."""
    line = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*_|\[\]#~$])", r"\\\1", line)


_TEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    # At the beginning of a row they would belong to the end of the row before.
    **{"[": "{[}", "*": "{*}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\textasciigrave{}"},
    **{'"': r"\textquotedbl{}", "–": r"\textendash{}", "′": "$'$"},
    **{"±": r"$\pm$", "†": r"$^\dagger$", "‡": r"$^\ddagger$", "≥": r"$\ge$", "·": r"$\cdot$"},
}


def as_tex(text: str) -> str:
    r"""Return text on one line that LaTeX shows as it is; letters that its fonts lack are shown by their number.

    Examples
    --------
    >>> print(as_tex("50 % of a_b: 0.1 ± 0.2†"))
    50 \% of a\_b: 0.1 $\pm$ 0.2$^\dagger$
    """
    known = (
        _TEX.get(c, c if c.isprintable() and ord(c) < 0x180 else f"{{[}}U+{ord(c):04X}]")
        for c in " ".join(text.split())
    )
    # Two hyphens would become a dash.
    return re.sub("-(?=-)", "-{}", "".join(known))


_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=jinja2.select_autoescape(["html.j2"]),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
)
_TEMPLATES.filters["md"] = as_markdown
_TEMPLATES.filters["tex"] = as_tex
_TEMPLATES.filters["slug"] = lambda text: re.sub(r"\W+", "-", text.lower()).strip("-")


def parts(grid: Grid) -> Iterator[Grid]:
    """Yield a table in parts that are narrow enough for paper, as wide as each other as far as possible."""
    n_columns = len(grid.head) - 1
    n_parts = math.ceil(n_columns / MOST_COLUMNS)
    ends = [1 + n_columns * k // n_parts for k in range(n_parts + 1)]
    for part, (first, last) in enumerate(pairwise(ends), start=1):
        bold = {(i, j - first + 1) for i, j in grid.bold if first <= j < last}
        yield replace(
            grid,
            caption=grid.caption + (f" (part {part} of {n_parts})" if n_parts > 1 else ""),
            head=[grid.head[0], *grid.head[first:last]],
            rows=[[row[0], *row[first:last]] for row in grid.rows],
            bold=frozenset(bold),
        )


def as_latex(title: str, grids: list[Grid], setting: str) -> str:
    """Return tables as a LaTeX document, for use as it is or piece by piece; it needs the package booktabs.

    Parameters
    ----------
    title : str
        What the tables are about.
    grids : list of Grid
        The tables; wide ones are split.
    setting : str
        Sentences for each caption.
    """
    tables = [part for grid in grids for part in parts(grid)]
    template = _TEMPLATES.get_template("report.tex.j2")
    return template.render(title=title, grids=tables, setting=setting)


def write_page(
    title: str, blocks: list[Block], folder: Path, names: tuple[str, ...] = ("html", "md")
) -> Path:
    """Write report.html and report.md, or one of them, with figures as files; return the path of the first.

    The HTML page needs no other file.
    """
    for block in blocks:
        if isinstance(block, Picture):
            with replacing(folder / "figures" / f"{block.name}.svg") as file:
                file.write(block.drawing.svg)
            with replacing(folder / "figures" / f"{block.name}.pdf", "wb") as file:
                file.write(block.drawing.pdf)
    script = (Path(__file__).parent / "templates" / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    known = {"title": title, "blocks": blocks, "script": script, "digest": digest}
    for name in names:
        with replacing(folder / f"report.{name}") as file:
            file.write(_TEMPLATES.get_template(f"report.{name}.j2").render(known))
    return folder / f"report.{names[0]}"
