"""Blocks that a report is made of, and how they look in HTML and in Markdown."""

from __future__ import annotations

import base64
import html
import re
from dataclasses import dataclass

#: Characters from which on the text of a cell may break anywhere.
LONG = 40
STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --page: #fff; --line: #c8c8c8; --soft: #f3f3f3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --page: #161616; --line: #4a4a4a; --soft: #242424; }
}
body { margin: 0; font: 1rem/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--page); }
main { max-width: 70rem; margin: 0 auto; padding: 1rem; }
h1, h2, h3 { line-height: 1.2; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: 0.3rem 0.7rem; text-align: right; }
th { font-weight: 600; background: var(--soft); }
/* Names stay in sight; spaces and hyphens are where they break. */
th:first-child { position: sticky; left: 0; text-align: left; }
.words td, .words th { text-align: left; vertical-align: top; }
/* Sentences, commands and paths: only a word longer than this column breaks. */
.long { min-width: 14rem; overflow-wrap: anywhere; }
td strong { font-weight: 800; }
figure { margin: 1.5rem 0; }
figcaption { margin: 0.3rem 0; font-weight: 600; }
.picture { padding: 0.5rem; background: #fff; color: #1b1b1b;
  border: 1px solid var(--line); border-radius: 0.4rem; }
.picture figcaption { margin: 0.5rem 0 0; font-size: 0.9rem; font-weight: 400; }
/* Never so small that its text cannot be read: then it scrolls in its box. */
img { display: block; margin: 0 auto; height: auto;
  min-width: calc(0.55 * var(--width)); max-width: min(100%, 0.75 * var(--width)); }
pre, code { font-family: ui-monospace, monospace; font-size: 0.9rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
pre { padding: 0.7rem; background: var(--soft); border: 1px solid var(--line); }
@media (max-width: 40rem) {
  table { font-size: 0.9rem; }
  th, td { padding: 0.3rem 0.5rem; }
  th:first-child { max-width: 9rem; overflow-wrap: break-word; }
  .long { min-width: 11rem; }
}
@media print {
  :root { --ink: #000; --page: #fff; --line: #999; --soft: #fff; }
  html { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  .scroll { overflow: visible; }
  table { font-size: 0.8rem; line-height: 1.25; }
  th, td { padding: 0.15rem 0.4rem; }
  /* Paper does not scroll. */
  table:not(.words) thead th { overflow-wrap: anywhere; }
  th:first-child { position: static; }
  .long { min-width: 8rem; }
  figure { margin: 0.8rem 0; }
  img { min-width: 0; max-width: min(100%, 0.48 * var(--width)); }
  thead { display: table-header-group; }
  .picture, tr, pre, table:not(:has(tr:nth-child(31))) { break-inside: avoid; }
  h2, h3, .table figcaption { break-after: avoid; }
  p { orphans: 3; widows: 3; }
}
"""


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title."""

    level: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    """Text without any markup."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list of things: what each is, and what it said."""

    items: list[tuple[str, str]]


@dataclass(frozen=True)
class Code:
    """Something to type."""

    text: str


@dataclass(frozen=True)
class Grid:
    """A table; the first entry of each row says what the row is, and some entries are bold."""

    caption: str
    head: list[str]
    rows: list[list[str]]
    bold: frozenset[tuple[int, int]] = frozenset()
    words: bool = False


@dataclass(frozen=True)
class Picture:
    """A figure with its file name, a caption, and words for those who cannot see it."""

    name: str
    png: bytes
    caption: str
    alt: str


Block = Heading | Paragraph | Items | Code | Grid | Picture


def html_cell(value: str, bold: bool) -> str:
    """An entry of a table; long text has a column wide enough to read."""
    kind = ' class="long"' if len(value) > LONG else ""
    inner = f"<strong>{html.escape(value)}</strong>" if bold else html.escape(value)
    return f"<td{kind}>{inner}</td>"


def html_box(label: str, content: str) -> str:
    """A container that scrolls sideways by itself, by keyboard too."""
    name = html.escape(label)
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">\n{content}\n</div>'


def html_grid(grid: Grid) -> str:
    """A table below its caption, in a container in which it scrolls."""
    text = html.escape
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in grid.head)
    lines = []
    for i, (name, *values) in enumerate(grid.rows):
        cells = (html_cell(v, (i, j) in grid.bold) for j, v in enumerate(values, start=1))
        lines.append(f'<tr><th scope="row">{text(name)}</th>{"".join(cells)}</tr>')
    kind = ' class="words"' if grid.words else ""
    table = "\n".join(
        [
            f'<table{kind} aria-label="{text(grid.caption)}">',
            f"<thead><tr>{head}</tr></thead>",
            "<tbody>",
            *lines,
            "</tbody>",
            "</table>",
        ]
    )
    # Not as a caption of the table, which would be no wider than the table.
    caption = f"<figcaption>{text(grid.caption)}</figcaption>"
    return f'<figure class="table">\n{caption}\n{html_box(grid.caption, table)}\n</figure>'


def html_picture(picture: Picture) -> str:
    """A figure with the image inside."""
    # The size is in the header of a PNG; with it a page does not jump while it loads.
    width, height = (int.from_bytes(picture.png[k : k + 4], "big") for k in (16, 20))
    source = f"data:image/png;base64,{base64.b64encode(picture.png).decode()}"
    image = (
        f'<img src="{source}" width="{width}" height="{height}" style="--width: {width}px" '
        f'alt="{html.escape(picture.alt)}">'
    )
    caption = f"<figcaption>{html.escape(picture.caption)}</figcaption>"
    return f'<figure class="picture">\n{html_box(picture.caption, image)}\n{caption}\n</figure>'


def html_items(items: Items) -> str:
    """A list."""
    lines = (
        f"<li>{html.escape(what)}: <code>{html.escape(said)}</code></li>"
        for what, said in items.items
    )
    return "\n".join(["<ul>", *lines, "</ul>"])


def html_block(block: Block) -> str:
    """A block as HTML, all its text escaped."""
    match block:
        case Heading(level, text):
            return f"<h{level}>{html.escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{html.escape(text)}</p>"
        case Items():
            return html_items(block)
        case Code(text):
            return f"<pre><code>{html.escape(text)}</code></pre>"
        case Grid():
            return html_grid(block)
        case Picture():
            return html_picture(block)


def as_html(title: str, blocks: list[Block]) -> str:
    """A whole page that needs nothing else."""
    # Whatever a name may contain, the page loads nothing and runs nothing.
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            *(html_block(block) for block in blocks),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def md(text: str) -> str:
    """Text on one line that Markdown shows as it is."""
    line = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*_|\[\]#~$])", r"\\\1", line)


def md_grid(grid: Grid) -> str:
    """A table below its caption."""
    lines = [grid.head, ["---"] + ["---" if grid.words else "---:"] * (len(grid.head) - 1)]
    lines[0] = [md(name) for name in grid.head]
    for i, row in enumerate(grid.rows):
        lines.append([f"**{md(v)}**" if (i, j) in grid.bold else md(v) for j, v in enumerate(row)])
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{md(grid.caption)}:\n\n{table}"


def md_block(block: Block) -> str:
    """A block as Markdown."""
    match block:
        case Heading(level, text):
            return f"{'#' * level} {md(text)}"
        case Paragraph(text):
            return md(text)
        case Items(items):
            return "\n".join(f"- {md(what)}: {md(said)}" for what, said in items)
        case Code(text):
            return "\n".join(f"    {line}" for line in text.splitlines())
        case Grid():
            return md_grid(block)
        case Picture(name, _, caption, alt):
            return f"![{md(alt)}](figures/{name}.png)\n\n{md(caption)}"


def as_markdown(blocks: list[Block]) -> str:
    """All blocks, with links to the figures."""
    return "\n\n".join(md_block(block) for block in blocks) + "\n"
