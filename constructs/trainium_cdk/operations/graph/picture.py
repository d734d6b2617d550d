"""An architecture as SVG: machines on the left, file systems beside them, the region's services on the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap
from xml.etree.ElementTree import Element

from trainium_cdk.drawing.chart import COLOURS
from trainium_cdk.drawing.chart import picture as svg_picture
from trainium_cdk.drawing.markup import element
from trainium_cdk.operations.graph.model import Architecture, Box

_BOX, _GAP, _LANE, _LINE, _PAD = 270, 18, 120, 17, 16
_MOST_LETTERS = 33
"""Of a box's title and its lines."""
_COLUMN = {"public": 0, "private": 0, "storage": 1, "region": 2}
_FILL = {"public": "#d55e00", "private": "#0072b2", "storage": "#009e73", "region": "#7f3c8d"}
_NAT = "NAT gateway"
_INK, _PAPER = "#1b1b1b", "#ffffff"


@dataclass
class _Place:
    """Where a box is: its left upper corner and its height."""

    x: float
    y: float
    height: float

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def picture(found: Architecture) -> Element:
    """The picture: a white page, whatever surrounds it."""
    left = _PAD * 2
    x = [left, left + _BOX + _LANE, left + 2 * (_BOX + _LANE) + _PAD * 2]
    top, places = 64.0, dict[str, _Place]()
    frames: list[Element] = []
    bottom = top
    for area in ("public", "private"):
        here = [b for b in found.boxes if b.area == area]
        beside = [b for b in found.boxes if b.area == "storage"] if area == "private" else []
        nats = [b for b in here if b.title == _NAT]
        columns = [[b for b in here if b not in nats], [*nats, *beside]]
        if not any(columns):
            continue
        ends = [_stack(column, x[i], bottom + 34, places) for i, column in enumerate(columns)]
        end = max(ends) + 4
        frames.append(_frame(left - 12, bottom, 2 * _BOX + _LANE + 24, end - bottom, found.subnets[area], _FILL[area]))
        bottom = end + _GAP
    regional = _stack([b for b in found.boxes if b.area == "region"], x[2], top, places)
    height = max(bottom, regional) + 8
    level = any(_column(found, f.source) == _column(found, f.target) for f in found.flows)
    width = x[2] + _BOX + _PAD + (110 if level else 0)
    parts = [
        element("rect", width=float(width), height=height + 46, fill=_PAPER),
        _text(found.name, left - 12, 24, 17, bold=True),
    ]
    if found.network:
        parts.append(_frame(_PAD / 2, 36, 2 * _BOX + _LANE + 40 + _PAD, bottom - 36, found.network, "#666666"))
    parts += frames
    curves, labels = _flows(found, places)
    parts += [*curves, *(_box(box, places[box.id]) for box in found.boxes), *labels]
    others = ", ".join(f"{count} {kind.removeprefix('AWS::')}" for kind, count in found.others)
    for i, line in enumerate(wrap(f"Not drawn: {others}" if others else "", int(width / 6.4))):
        parts.append(_text(line, left - 12, height + 12 + 14 * i, 11))
    height += 14 * len(wrap(others, int(width / 6.4)))
    parts[0].set("height", f"{height + 20:.0f}")
    return svg_picture(width, height + 20, f"Architecture of {found.name}", parts)


def _stack(boxes: Sequence[Box], x: float, y: float, places: dict[str, _Place]) -> float:
    """Put boxes below each other; where they end."""
    for box in boxes:
        places[box.id] = _Place(x, y, 30 + _LINE * len(box.lines))
        y += places[box.id].height + _GAP
    return y


def _frame(x: float, y: float, width: float, height: float, title: str, colour: str) -> Element:
    edge = element(
        "rect", x=float(x), y=float(y), width=float(width), height=float(height), rx=8, fill=colour, fill_opacity="0.05", stroke=colour, stroke_dasharray="6 4"
    )  # fmt: skip
    return element("g", edge, _text(title, x + 12, y + 20, 12, colour=colour))


def _box(box: Box, place: _Place) -> Element:
    colour = _FILL[box.area]
    edge = element(
        "rect", x=place.x, y=place.y, width=_BOX, height=place.height, rx=6, fill=_PAPER, stroke=colour, stroke_width=1.5
    )  # fmt: skip
    lines = [_text(_cut(line), place.x + 10, place.y + 38 + _LINE * i, 12) for i, line in enumerate(box.lines)]
    return element("g", edge, _text(_cut(box.title), place.x + 10, place.y + 20, 13, bold=True, colour=colour), *lines)


def _flows(found: Architecture, places: dict[str, _Place]) -> tuple[list[Element], list[Element]]:
    """Curves between the sides that face each other, each with an arrow; and their labels, at the arrows."""
    curves: list[Element] = []
    labels: list[Element] = []
    ends: dict[tuple[str, bool], int] = {}
    order = sorted(found.flows, key=lambda f: (f.target, places[f.source].y))
    for target, group in groupby(order, key=lambda f: f.target):
        several = list(group)
        told: set[tuple[str, bool]] = set()
        colour = COLOURS[[b.id for b in found.boxes].index(target) % len(COLOURS)]
        for flow in several:
            back = _column(found, flow.source) > _column(found, target)
            same = _column(found, flow.source) == _column(found, target)
            a, b = places[flow.source], places[target]
            x1 = a.x + (0 if back else _BOX)
            x2 = b.x + (_BOX if back or same else 0)
            out, into = (flow.source, back), (target, not back and not same)
            y1, y2 = _along(a, ends, out), _along(b, ends, into)
            bend = 60 if same else abs(x2 - x1) * 0.45
            c1, c2 = x1 + (-bend if back else bend), x2 + (bend if back or same else -bend)
            path = f"M{x1:.0f} {y1:.0f}C{c1:.0f} {y1:.0f} {c2:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
            tip = 7 if back or same else -7
            curves.append(element("path", d=path, fill="none", stroke=colour, stroke_width=1.6, stroke_opacity="0.85"))
            curves.append(element("path", d=f"M{x2:.0f} {y2:.0f}l{tip} -4v8z", fill=colour))
            if (flow.label, back or same) not in told:
                told.add((flow.label, back or same))
                anchor = "start" if back or same else "end"
                labels.append(_label(flow.label, x2 + tip * 1.6, y2 - 5, anchor, colour))
    return curves, labels


def _column(found: Architecture, id: str) -> int:
    box = next(b for b in found.boxes if b.id == id)
    return 1 if box.title == _NAT else _COLUMN[box.area]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"


def _along(place: _Place, ends: dict[tuple[str, bool], int], side: tuple[str, bool]) -> float:
    """Another height on one side of a box, from its upper part downwards."""
    ends[side] = count = ends.get(side, 0) + 1
    return place.y + min(place.height - 6, 10 + 11 * (count - 1))


def _label(text: str, x: float, y: float, anchor: str, colour: str) -> Element:
    width = 6.2 * len(text)
    back = element(
        "rect", x=float(x - (width if anchor == "end" else 0)), y=float(y - 10), width=width, height=12, fill=_PAPER, fill_opacity="0.8"
    )  # fmt: skip
    label = element("text", text, x=float(x), y=float(y), text_anchor=anchor, font_size=11, fill=colour)
    return element("g", back, label)


def _text(text: str, x: float, y: float, size: int, *, bold: bool = False, colour: str = _INK) -> Element:
    weight = 600 if bold else None
    return element("text", text, x=float(x), y=float(y), font_size=size, font_weight=weight, fill=colour)
