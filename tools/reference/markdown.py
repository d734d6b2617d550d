"""Pieces of Markdown."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Text of one cell of a table."""
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def code(text: str) -> str:
    """Text as code, whatever is in it."""
    text = " ".join(text.split())
    if "|" in text:  # in a table a pipe ends the cell, and stays escaped in backticks
        return f"<code>{html.escape(text).replace('|', '&#124;')}</code>"
    return f"`` {text} ``" if "`" in text else f"`{text}`" if text else ""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def plain(text: str) -> str:
    """Text of a docstring or a message: angle brackets are no HTML, stars no emphasis."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        p if p.startswith("`") else re.sub(r"([*_\[\]])", r"\\\1", html.escape(p, quote=False)) for p in parts
    )


def message(text: str) -> str:
    """A message as a heading; a long one is cut there, and follows as it is printed."""
    text = " ".join(text.split())
    short = textwrap.shorten(text, 100, placeholder=" ...", break_on_hyphens=False)
    return f"### {plain(short)}\n" + (f"\n{code(text)}\n" if short != text else "")
