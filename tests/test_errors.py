"""The tree of errors: drawn as it is, and complete."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import trainium_cdk
from trainium_cdk import errors

PACKAGE = Path(trainium_cdk.__file__).parent
ON_NODES = {"runner", "cdk/eks/scaler/function.py"}
"""The program on a cluster, a script and a Lambda function: they run without this package."""


def drawn() -> dict[str, str]:
    """Error -> its base, as the docstring draws them."""
    above: list[tuple[int, str]] = []
    found = {}
    for line in (errors.__doc__ or "").splitlines():
        if node := re.fullmatch(r"((?:[|' ]+-? )?)(\w+)(?: {2,}.*)?", line):
            depth = len(node[1])
            above = [(d, name) for d, name in above if d < depth]
            found[node[2]] = above[-1][1] if above else "Exception"
            above.append((depth, node[2]))
    return found


def test_the_tree_is_drawn_as_it_is() -> None:
    real = {
        name: error.__bases__[0].__name__
        for name, error in vars(errors).items()
        if inspect.isclass(error) and error.__module__ == errors.__name__
    }
    assert drawn() == real
    assert len(real) > 10


def test_no_other_module_defines_an_error() -> None:
    """So every error of this package is a TrnError, and `trn` catches that class alone."""
    known = {*drawn(), "Exception", "BaseException", "ValueError", "LookupError", "KeyError", "RuntimeError", "OSError"}
    elsewhere = [
        f"{file.relative_to(PACKAGE)}: {node.name}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if file.name != "errors.py" and not any(file.is_relative_to(PACKAGE / place) for place in ON_NODES)
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and {ast.unparse(base).rpartition(".")[2] for base in node.bases} & known
    ]
    assert elsewhere == []
