"""Blocks that a report is made of, and how they look in HTML and in Markdown."""

from __future__ import annotations

import base64
import html
import re
from dataclasses import dataclass

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --page: #fff; --line: #c8c8c8; --soft: #f3f3f3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --page: #161616; --line: #4a4a4a; --soft: #242424; }
}
body { margin: 0; font: 1rem/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--page); }
main { max-width: 70rem; margin: 0 auto; padding: 1rem; }
h1, h2, h3 { line-height: 1.2; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: 0.3rem 0; font-weight: 600; }
caption span { position: sticky; left: 0; display: inline-block; max-width: calc(100vw - 2rem); }
th, td { border-bottom: 1px solid var(--line); padding: 0.3rem 0.7rem; text-align: right; }
th { font-weight: 600; background: var(--soft); }
th[scope=row] { position: sticky; left: 0; text-align: left; }
.words td, .words th { text-align: left; overflow-wrap: anywhere; }
td strong { font-weight: 800; }
figure { margin: 1.5rem 0; padding: 0.5rem; background: #fff; color: #1b1b1b;
  border: 1px solid var(--line); border-radius: 0.4rem; }
img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figcaption { margin-top: 0.5rem; font-size: 0.9rem; }
pre, code { font-family: ui-monospace, monospace; font-size: 0.9rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
pre { padding: 0.7rem; background: var(--soft); border: 1px solid var(--line); }
@media print {
  :root { --ink: #000; --page: #fff; --line: #999; --soft: #fff; }
  main { max-width: none; padding: 0; }
  .scroll { overflow: visible; }
  table { font-size: 0.75rem; }
  th[scope=row], caption span { position: static; }
  figure, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
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


def html_grid(grid: Grid) -> str:
    """A table in a container of its own, in which it scrolls."""
    text = html.escape
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in grid.head)
    lines = []
    for i, (name, *values) in enumerate(grid.rows):
        shown = (
            f"<strong>{text(value)}</strong>" if (i, j) in grid.bold else text(value)
            for j, value in enumerate(values, start=1)
        )
        tail = "".join(f"<td>{value}</td>" for value in shown)
        lines.append(f'<tr><th scope="row">{text(name)}</th>{tail}</tr>')
    kind = ' class="words"' if grid.words else ""
    return "\n".join(
        [
            # Can be reached and scrolled by keyboard.
            f'<div class="scroll" tabindex="0" role="region" aria-label="{text(grid.caption)}">',
            f"<table{kind}>",
            f"<caption><span>{text(grid.caption)}</span></caption>",
            f"<thead><tr>{head}</tr></thead>",
            "<tbody>",
            *lines,
            "</tbody>",
            "</table>",
            "</div>",
        ]
    )


def html_picture(picture: Picture) -> str:
    """A figure with the image inside."""
    # The size is in the header of a PNG; with it a page does not jump while it loads.
    width, height = (int.from_bytes(picture.png[k : k + 4], "big") for k in (16, 20))
    source = f"data:image/png;base64,{base64.b64encode(picture.png).decode()}"
    return (
        f'<figure>\n<img src="{source}" width="{width}" height="{height}" '
        f'alt="{html.escape(picture.alt)}">\n'
        f"<figcaption>{html.escape(picture.caption)}</figcaption>\n</figure>"
    )


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
