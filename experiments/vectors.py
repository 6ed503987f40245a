"""Figures as vector graphics: files for a paper, and drawings that take on the colours of the page they stand in."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import matplotlib.style
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: The group of an artist with such an id belongs to a series, or is a panel; see `series` and `as_panel`.
SERIES, PANEL = "series-", "panel-"
#: Points to pixels of a page.
PIXELS = 4.0 / 3.0
#: Text stays text, which is small, can be searched, and has the colour of the page.
_SETTINGS = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "font.sans-serif": ["DejaVu Sans"],
    "axes.facecolor": "none",
    "legend.facecolor": "none",
    "legend.framealpha": 1.0,
}
# Importing QuaPy changes matplotlib's settings for everyone.
plain = matplotlib.style.context(["default", _SETTINGS])


@dataclass(frozen=True)
class Key:
    """An entry of a legend: the class of its series, its name, and a small drawing of its line."""

    series: str
    name: str
    swatch: Markup


@dataclass(frozen=True)
class Drawing:
    """A figure as the text of an SVG file, as a PDF file, and as parts of a page."""

    svg: str
    pdf: bytes
    #: SVG elements: one for each panel, without the legend, which the keys replace. It is one if some axes are no
    #: panels, or the legend has no series.
    parts: list[Markup]
    keys: list[Key]
    #: Of a part, in pixels.
    width: int


def series(number: int | str, where: str) -> dict[str, str]:
    """Return the option of an artist that makes it part of a series of its figure; no two have the same place."""
    return {"gid": f"{SERIES}{number}-{where}"}


def as_panel(ax: Axes, number: int) -> None:
    """Let a page move the axes freely: on a narrow screen panels stand below each other."""
    ax.set_gid(f"{PANEL}{number}")


def literally(text: str) -> str:
    """Return text as it was before matplotlib's markup was escaped and lines were broken."""
    return " ".join(text.replace(r"\$", "$").split())


@plain
def draw(figure: Figure, name: str) -> Drawing:
    """Draw a figure; its name tells its parts from those of other figures on a page."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    svg, pdf = io.StringIO(), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(svg, format="svg", facecolor="white", metadata={"Date": None})
        figure.savefig(pdf, format="pdf", facecolor="white", metadata={"CreationDate": None})
    root = ElementTree.fromstring(svg.getvalue())
    shared = [_for_page(element, name) for element in root if element.tag.endswith("}defs")][1:]
    (body,) = (_for_page(e, name) for e in root if e.get("id") == "figure_1")
    groups = {group.get("id"): group for group in body}
    for group in body.iter("g"):
        _name_series(group)
    keys = _keys(figure, body)
    size = figure.get_size_inches() * 72.0
    gids = [str(ax.get_gid()) for ax in figure.axes]
    if all(gid.startswith(PANEL) for gid in gids) and (keys or not figure.legends):
        boxes = _boxes(figure.axes, float(size[1]))
        parts = [
            _element([*shared * (k == 0), groups[gid]], box)
            for k, (gid, box) in enumerate(zip(gids, boxes, strict=True))
        ]
    else:
        boxes = np.array([[0.0, 0.0, *size]])
        # The first group is the white ground.
        parts = [_element([*shared, *list(body)[1:]], boxes[0])]
    return Drawing(svg.getvalue(), pdf.getvalue(), parts, keys, round(boxes[0, 2] * PIXELS))


def _boxes(axes: list[Axes], height: float) -> np.ndarray:
    """Return left, top, width and height of panels in points, with the same margins around each frame."""
    point = 72.0 / axes[0].figure.dpi
    frames = np.array([ax.get_window_extent().extents for ax in axes]) * point
    outer = np.array([ax.get_tightbbox().extents for ax in axes]) * point
    left, low = (frames - outer).max(axis=0)[:2] + 3.0
    right, top = (outer - frames).max(axis=0)[2:] + 3.0
    x, y = frames[:, 0] - left, height - frames[:, 3] - top
    width, tall = frames[:, 2] + right - x, frames[:, 3] - frames[:, 1] + low + top
    return np.stack([x, y, width, tall], axis=1)


def _element(children: list[Any], box: np.ndarray) -> Markup:
    view = " ".join(f"{value:.1f}" for value in box)
    text = "".join(ElementTree.tostring(child, encoding="unicode") for child in children)
    return Markup(f'<svg viewBox="{view}" aria-hidden="true">{text}</svg>')


def _for_page(element: Any, name: str) -> Any:
    """Return an element without namespaces and needless digits; ids begin with a name, and black is the page's ink."""
    found = ElementTree.Element(element.tag.partition("}")[2])
    found.text = (element.text or "").strip()
    for key, value in element.attrib.items():
        key = key.partition("}")[2] or key
        if key == "id" and found.tag != "g":
            value = f"{name}-{value}"
        elif key == "href":
            value = f"#{name}-{value[1:]}"
        elif key == "clip-path":
            value = value.replace("#", f"#{name}-")
        elif key == "style":
            value = value.replace("#000000", "currentColor")
            value = re.sub(r"font-family: [^;]*(; |$)", "", value)
        elif key == "transform" and value.startswith("rotate(-0 "):
            continue
        if key in ("d", "x", "y", "transform", "points", "width", "height"):
            value = re.sub(r"\d+\.\d+", lambda m: f"{float(m[0]):.2f}", " ".join(value.split()))
        found.set(key, value)
    found.extend(_for_page(child, name) for child in element)
    return found


def _name_series(group: Any) -> None:
    """Replace the id of a group, which need not be unique on a page, by the class of its series, if it has one."""
    gid = group.attrib.pop("id", "")
    if gid.startswith(SERIES):
        group.set("class", "-".join(gid.split("-")[:2]))


def _keys(figure: Figure, body: Any) -> list[Key]:
    """Return the legend, with each series once."""
    names = {}
    for line in (line for ax in figure.axes for line in ax.get_lines()):
        if (gid := line.get_gid() or "").startswith(SERIES):
            names.setdefault("-".join(gid.split("-")[:2]), literally(str(line.get_label())))
    keys = []
    for found, name in names.items():
        groups = [g for g in body.iter("g") if g.get("class") == found]
        keys.append(Key(found, name, _swatch(groups)))
    return keys


def _swatch(groups: list[Any]) -> Markup:
    """Return a short piece of the line of a series, with its marker."""
    for group in groups:
        # A band has no stroke, and a line without a number has no path.
        paths = [path for path in group.findall("path") if "stroke:" in path.get("style", "")]
        if paths:
            drawn = [ElementTree.Element("path", d="M-16 0H16", style=paths[0].get("style"))]
            for marker in [*group.iter("use")][:1]:
                place = {key: marker.get(key) for key in ("href", "style")}
                drawn.append(ElementTree.Element("use", place))
            return _element(drawn, np.array([-16.0, -6.0, 32.0, 12.0]))
    return Markup("")
