"""A page is a list of blocks; the templates beside this module write it as HTML and as Markdown."""

from __future__ import annotations

import base64
import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import jinja2

from experiments.store import replacing


@dataclass(frozen=True)
class Text:
    """Text without any markup: a heading (h1 is the title), a paragraph (p), or something to type (pre)."""

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


@dataclass(frozen=True)
class Picture:
    """A figure with its file name, a caption, and words for those who cannot see it."""

    kind: ClassVar = "picture"
    name: str
    png: bytes
    caption: str
    alt: str

    @property
    def source(self) -> str:
        """The image itself, as an address."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"

    @property
    def width(self) -> int:
        """Its width in pixels, which is in the header of a PNG."""
        return int.from_bytes(self.png[16:20], "big")

    @property
    def height(self) -> int:
        """Its height in pixels."""
        return int.from_bytes(self.png[20:24], "big")


Block = Text | Items | Grid | Picture


def as_markdown(text: str) -> str:
    """Return text on one line that Markdown shows as it is."""
    line = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*_|\[\]#~$])", r"\\\1", line)


_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=jinja2.select_autoescape(["html.j2"]),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
)
_TEMPLATES.filters["md"] = as_markdown


def write_page(title: str, blocks: list[Block], folder: Path) -> Path:
    """Write report.html and report.md with its figures; return the path of the first, which needs no other file."""
    for block in blocks:
        if isinstance(block, Picture):
            with replacing(folder / "figures" / f"{block.name}.png", "wb") as file:
                file.write(block.png)
    for name in ("report.md", "report.html"):
        with replacing(folder / name) as file:
            file.write(_TEMPLATES.get_template(f"{name}.j2").render(title=title, blocks=blocks))
    return folder / "report.html"
