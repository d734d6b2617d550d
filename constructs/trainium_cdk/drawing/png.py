"""SVG as PNG, by resvg: the extra `png` of this package."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from trainium_cdk.drawing.markup import element, svg
from trainium_cdk.errors import TrnError


def png(picture: Element) -> bytes:
    """A picture on white, two pixels for each of its own.

    Raises:
        TrnError: the renderer is not installed, or the machine has no font.
    """
    try:
        import resvg_py
    except ModuleNotFoundError:
        raise TrnError(
            'PNG needs the package resvg-py. Install it (pip install "trainium-cdk[png]"), or write SVG'
        ) from None

    def render(one: Element, zoom: int) -> bytes:
        return bytes(resvg_py.svg_to_bytes(svg_string=svg(one), zoom=zoom, background="white"))

    letter = element("text", "m", y=16, font_family=picture.get("font-family"))
    blank, written = (
        element("svg", part, xmlns="http://www.w3.org/2000/svg", width=20, height=20) for part in (None, letter)
    )
    if render(blank, 1) == render(written, 1):
        raise TrnError(
            "this machine has no font, so the PNG would have no text. Install one (fonts-dejavu-core), or write SVG"
        )
    return render(picture, 2)
