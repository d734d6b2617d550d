"""The modules that a Python script imports from its own folder. They are not sent with the script alone. Pure but for looking at that folder."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path


def imported(folder: Path, content: bytes) -> str:
    """The first module that a script surely imports from its folder; empty if there is none, or it is no Python."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return next((name for name in _names(tree) if _is_there(folder, name)), "")


def _names(node: ast.AST) -> Iterator[str]:
    """Dotted names of what is imported. What is imported under a condition, or may fail, is left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (one.name for one in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield child.module
            yield from (f"{child.module}.{one.name}" for one in child.names)
        elif not isinstance(child, ast.If | ast.Try | ast.IfExp):
            yield from _names(child)


def _is_there(folder: Path, name: str) -> bool:
    """Return whether Python finds a module in a folder. A folder of data may have the name of an installed package: it counts by its modules."""
    top, *below = name.split(".")
    if top in sys.stdlib_module_names:
        return False
    files = [f"{top}.py", f"{top}/__init__.py"]
    if below:
        files += [f"{top}/{below[0]}.py", f"{top}/{below[0]}/__init__.py"]
    return any((folder / file).is_file() for file in files)
