"""The pages for users have short sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sandbox.paths import HOME as ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
AVERAGE, LONGEST = 20, 35
"""Words of the sentences of a page."""


def sentences(page: str) -> list[str]:
    """Those of paragraphs, items and cells; what is in backticks is one word."""
    text = re.sub(r"^( *)```.*?^ *```$|<!--.*?-->|^---\n.*?^---$|^#[^\n]*$", "", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]+`", "code", text))
    text = re.sub(r"^ *(?:[-*]|\d+\.) |\|", "\n\n", text, flags=re.MULTILINE)
    return [one for part in re.split(r"\n\s*\n|(?<=[.!?])\s+", text) if (one := " ".join(part.split()))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_sentences_are_short(page: Path) -> None:
    lengths = {one: len(re.findall(r"[\w'-]+", one)) for one in sentences(page.read_text("utf-8"))}
    whole = {one: words for one, words in lengths.items() if one.endswith((".", "!", "?", ":"))}
    assert [one for one, words in lengths.items() if words > LONGEST] == []
    assert sum(whole.values()) <= AVERAGE * len(whole)
