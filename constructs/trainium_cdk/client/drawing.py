"""Pages and charts from plain data: elements of HTML and SVG, lines over a common axis, and bars of time. All text is escaped by the standard library's
serializer, and has no control characters. A chart's text takes the page's colour; lines also differ by their dashes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, tostring

_FORBIDDEN = re.compile("[^\t\n\x20-\x7e\xa0-\u061b\u061d-\u200d\u2010-\u2027\u2030-\u2065\u206a-\ud7ff\uf900-\ufdcf\ufdf0-\ufefe\uff00-\ufff8\ufffd\U00010000-\U000dffff]")  # fmt: skip
"""Control characters, those that change the direction of text, surrogates, and what XML does not allow."""
WIDTH, HEIGHT = 480, 300
"""In pixels. Wide enough for a phone: there, text is not much smaller."""
FONT = 13
NAMED = 12
"""The most lines that are all in the legend."""
_LONGEST = 48
"""The most characters of a name that are shown."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#56b4e9", "#7f3c8d", "#666666")
"""Distinct also without red or green (after Okabe and Ito), and legible on white and black."""
_DASHES = (None, "7 3", "2 3", "9 3 2 3", "12 4", "4 4", "1 2", "14 3 3 3")
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 26, 34, 46


def element(tag: str, *children: Element | str | None, **attributes: object) -> Element:
    """An element with its attributes, and then its text and elements.

    Args:
        children: None is left out.
        attributes: `class_` is class, `font_size` is font-size; None is left out.

    >>> tostring(element("text", "a<b", class_="x", font_size=12), encoding="unicode")
    '<text class="x" font-size="12">a&lt;b</text>'
    """
    made = Element(
        tag, {k.rstrip("_").replace("_", "-"): cleaned(_attribute(v)) for k, v in attributes.items() if v is not None}
    )
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif child and len(made):
            made[-1].tail = (made[-1].tail or "") + cleaned(child)
        elif child:
            made.text = (made.text or "") + cleaned(child)
    return made


def cleaned(text: str) -> str:
    """Text without control characters: each becomes U+FFFD."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def html(page: Element) -> str:
    """A whole page."""
    return f"<!doctype html>\n{tostring(page, encoding='unicode', method='html')}\n"


def _attribute(value: object) -> str:
    """Numbers with at most a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class ChartLine:
    """One line of a chart: points (x, y) in the order in which they are joined.

    Attributes:
        marked: also draw each point.
    """

    name: str
    points: Sequence[tuple[float, float]]
    marked: bool = False


def chart(lines: Sequence[ChartLine], *, x: str, y: str, zero: bool = False) -> Element:
    """Lines over each other, with axes and a legend if there are several. If there are more than `NAMED`, the first stands out; others have tooltips.

    Args:
        lines: each has the colour of its place; those without a point are left out. x, y: what the axes show, with the unit.
        zero: the y axis begins at 0.

    Raises:
        ValueError: there is no point. Show a message instead of an empty chart.
    """
    points = [point for line in lines for point in line.points]
    if not points:
        raise ValueError("a chart needs a point")
    xs, ys = ticks([p[0] for p in points], whole=True), ticks([*(p[1] for p in points), *([0.0] if zero else [])])
    shown = [i for i, line in enumerate(lines) if line.points]
    named = shown if len(lines) <= NAMED else shown[:1]
    others = [(None, f"{len(shown) - 1} others")] if named != shown else []
    legend = [*((i, lines[i].name) for i in named), *others] if len(lines) > 1 else []
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return (
            _LEFT + (point[0] - xs[0]) / (xs[-1] - xs[0]) * (right - _LEFT),
            bottom - (point[1] - ys[0]) / (ys[-1] - ys[0]) * (bottom - _TOP),
        )

    parts = [_text(x, (_LEFT + right) / 2, HEIGHT - 6, "middle")]
    parts.append(element("text", y, x=2, y=16, font_weight=600, fill="currentColor"))
    for tick in ys:
        _, at = place((xs[0], tick))
        parts += [_rule(_LEFT, at, right, at), _text(number(tick, ys), _LEFT - 6, at + 4, "end")]
    for tick in xs:
        at, _ = place((tick, ys[0]))
        parts += [_rule(at, bottom, at, bottom + 4, 0.6), _text(number(tick, xs), at, bottom + 18, "middle")]
    for one in shown if named == shown else reversed(shown):  # of a few, dashes are above the first line
        parts += _drawn(one if one in named else None, lines[one], [place(p) for p in lines[one].points])
    for row, (i, name) in enumerate(legend):
        at = HEIGHT + 20.0 * row + 10
        parts += [_stroke(i, f"M{_LEFT} {at:.0f}h28"), _text(name[:_LONGEST], _LEFT + 36, at + 4, "start")]
    return picture(WIDTH, HEIGHT + 20 * len(legend), f"{y} over {x}", parts)


def bars(rows: Sequence[tuple[str, Sequence[tuple[str, float, float]]]], *, x: str, unit: str, title: str) -> Element:
    """Bars of time: for each row its name, and its parts with name, begin and end.

    Args:
        x: title of the axis.
        unit: of begin and end. title: a line above them.

    Raises:
        ValueError: there is no part.
    """
    ends = [end for _, parts in rows for _, _, end in parts]
    if not ends:
        raise ValueError("bars need a part")
    xs = ticks([0.0, max(ends) or 1.0])
    names = list(dict.fromkeys(name for _, parts in rows for name, _, _ in parts))
    high, above, thick = (46, 22, 18) if len(rows) <= NAMED else (12, 2, 8)
    bottom = high * len(rows) + 4
    scale = (WIDTH - 10 - _RIGHT) / xs[-1]
    drawn = [_text(x, WIDTH / 2, bottom + 38, "middle")]
    for tick in xs:
        at = 10 + tick * scale
        drawn += [_rule(at, 0, at, bottom), _text(number(tick, xs), at, bottom + 18, "middle")]
    for i, (name, parts) in enumerate(rows):
        drawn += [_text(name[:_LONGEST], 10, high * i + 16, "start")] if len(rows) <= NAMED else []
        for part, begin, end in parts:
            tip = element("title", f"{name}, {part}: {number(end - begin)} {unit}")
            colour = COLOURS[names.index(part) % len(COLOURS)]
            width = max(1.5, (end - begin) * scale)
            drawn.append(
                element("rect", tip, x=10 + begin * scale, y=high * i + above, width=width, height=thick, fill=colour)
            )
    at = 10.0
    for i, name in enumerate(names):
        drawn += [element("rect", x=at, y=bottom + 50, width=12, height=12, fill=COLOURS[i % len(COLOURS)])]
        drawn += [_text(name, at + 18, bottom + 61, "start")]
        at += 40 + 8 * len(name)
    head = element("text", title, x=2, y=16, font_weight=600, fill="currentColor")
    body = element("g", *drawn, transform=f"translate(0 {_TOP - 8})")
    return picture(WIDTH, bottom + 62 + _TOP, f"{title} in {unit}", [head, body])


def picture(width: float, height: float, title: str, parts: Sequence[Element]) -> Element:
    """An SVG picture that shrinks with the page; `title` is for those who cannot see it."""
    return element(
        "svg", *parts, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:.0f} {height:.0f}", width=float(width), height=float(height),
        role="img", aria_label=title, font_size=FONT, font_family="system-ui, DejaVu Sans, Arial, sans-serif",
    )  # fmt: skip


def ticks(values: Sequence[float], *, whole: bool = False) -> list[float]:
    """Four to eight round numbers; the first and the last enclose the values.

    >>> ticks([0.2, 10.9])
    [0.0, 2.5, 5.0, 7.5, 10.0, 12.5]
    """
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # means of one value differ in their last digit
        room = abs(low) * 0.1 or 1.0
        low, high = (low - 1, high + 1) if whole else (low - room, high + room)
    rough = (high - low) / 5
    power = 10.0 ** _power(rough)
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    if whole:
        step = max(1.0, round(step))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 2 - _power(step)) for i in range(first, last + 1)]


def number(value: float, among: Sequence[float] = ()) -> str:
    """A number as axes and tables show it.

    Args:
        among: the ticks of its axis, which it has enough digits to differ from.

    >>> [number(v) for v in (0.0, 0.00028, 11.25, 6497.86, 1_250_000.0)]
    ['0', '0.00028', '11.25', '6,498', '1.25M']
    >>> [number(v, (2.345, 2.3452)) for v in (2.345, 2.3452)]
    ['2.345', '2.3452']
    """
    if value == 0:
        return "0"
    most = max([abs(value), *map(abs, among)])
    digits = 4 if abs(value) >= 1e-4 else 3
    if len(among) > 1:
        digits = max(digits, _power(value) - _power(among[1] - among[0]) + 2)
    if most >= 1e6:
        return f"{value / 1e6:.{digits}g}M"
    if most >= 1000:
        return f"{value:,.{max(digits, _power(most) + 1)}g}" if among else f"{value:,.0f}"
    return f"{value:.{digits}g}"


def _power(value: float) -> int:
    """Return the power of ten of a number's first digit."""
    return math.floor(math.log10(abs(value)))


def _drawn(i: int | None, line: ChartLine, places: Sequence[tuple[float, float]]) -> list[Element]:
    drawn = []
    if len(places) > 1:
        stroke = _stroke(i, "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places))
        stroke.append(element("title", line.name))
        drawn.append(stroke)
    if line.marked or len(places) == 1:
        colour = "currentColor" if i is None else COLOURS[i % len(COLOURS)]
        for (x, y), point in zip(places, line.points, strict=True):
            title = element("title", f"{line.name}: {number(point[1])} at {number(point[0])}")
            drawn.append(element("circle", title, cx=x, cy=y, r=3.5, fill=colour))
    return drawn


def _stroke(i: int | None, path: str) -> Element:
    """A line of the legend's place; faint without one."""
    if i is None:
        return element("path", d=path, fill="none", stroke="currentColor", stroke_width=1.0, stroke_opacity="0.35")
    i %= len(COLOURS)
    return element(
        "path", d=path, fill="none", stroke=COLOURS[i], stroke_width=2.0, stroke_linejoin="round", stroke_dasharray=_DASHES[i]
    )  # fmt: skip


def _rule(x1: float, y1: float, x2: float, y2: float, opacity: float = 0.18) -> Element:
    d = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
    return element("path", d=d, stroke="currentColor", stroke_opacity=f"{opacity}")


def _text(text: str, x: float, y: float, anchor: str) -> Element:
    return element("text", text, x=float(x), y=float(y), text_anchor=anchor, fill="currentColor")
