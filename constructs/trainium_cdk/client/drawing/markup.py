"""Elements of HTML and SVG. All text is escaped by the standard library's serializer, and has no control characters."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, tostring

_FORBIDDEN = re.compile("[^\t\n\x20-\x7e\xa0-\u061b\u061d-\u200d\u2010-\u2027\u2030-\u2065\u206a-\ud7ff\uf900-\ufdcf\ufdf0-\ufefe\uff00-\ufff8\ufffd\U00010000-\U000dffff]")  # fmt: skip
"""Control characters, those that change the direction of text, surrogates, and what XML does not allow."""


def element(tag: str, *children: Element | str | None, **attributes: object) -> Element:
    """An element with its attributes, and then its text and elements.

    Args:
        children: None is left out.
        attributes: `class_` is class, `font_size` is font-size; None is left out.

    >>> tostring(element("text", "a<b", class_="x", font_size=12), encoding="unicode")
    '<text class="x" font-size="12">a&lt;b</text>'
    """
    made = Element(
        tag, {k.rstrip("_").replace("_", "-"): cleaned(_number(v)) for k, v in attributes.items() if v is not None}
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


def _number(value: object) -> str:
    """Numbers with at most a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
