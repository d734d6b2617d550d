"""Python files that kinds send with their jobs, for what only a node can decide. They run there with the standard library alone (Python 3.9 or
newer), and import nothing of this package."""

from __future__ import annotations

from importlib import resources


def read(name: str) -> bytes:
    """The content of one of them, as a job sends it."""
    return (resources.files(__name__) / name).read_bytes()
