"""Reading templates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def values(node: Any, key: str) -> Iterator[Any]:
    """All values under a key, at any depth."""
    if isinstance(node, dict):
        for k, value in node.items():
            if k == key:
                yield value
            yield from values(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from values(value, key)


def plain(text: Any) -> str:
    """The text of a `Fn::Join`, with a placeholder for each value that CloudFormation fills in."""
    if isinstance(text, dict) and "Fn::Join" in text:
        separator, parts = text["Fn::Join"]
        return str(separator).join(plain(part) for part in parts)
    return text if isinstance(text, str) else "value"
