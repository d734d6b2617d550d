"""Whatever a job is called or reports: a picture stays XML, a page has no element of it, and no control character."""

from __future__ import annotations

import unicodedata
from html.parser import HTMLParser
from xml.etree.ElementTree import fromstring, tostring

from hypothesis import given
from hypothesis import strategies as st

from trainium_cdk.client.drawing import element, html


@given(st.text())
def test_any_text_is_text(text: str) -> None:
    made = tostring(element("text", text, element("tspan", text), text, label=text), encoding="unicode")
    again = fromstring(made)  # noqa: S314  ours
    assert [child.tag for child in again.iter()] == ["text", "tspan"]
    hidden = [c for c in made if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    turned = [c for c in made if c in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"]
    assert (hidden, turned) == ([], [])


@given(st.text(alphabet="<>/&\"'= abcscriptonload!-\x1b"))
def test_a_page_has_only_its_own_elements(text: str) -> None:
    tags: list[str] = []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, _: tags.append(tag)  # type: ignore[method-assign]
    reader.feed(html(element("html", element("body", element("p", text, title=text)))))
    assert tags == ["html", "body", "p"]
