"""What a Python source offers and what it uses, read from its syntax tree: nothing of it is run. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator


def argparse_options(source: str) -> list[str]:
    """Every option (`--name`) that the source adds to an argparse parser, sorted."""
    found = set()
    for call in _calls(source, "add_argument"):
        found |= {str(a.value) for a in call.args if isinstance(a, ast.Constant) and str(a.value).startswith("--")}
    return sorted(found)


def dataclass_fields(source: str, *names: str) -> list[str]:
    """The fields of the named dataclasses, sorted: what HfArgumentParser makes options of."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name in names:
            found |= {
                item.target.id
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            }
    return sorted(found)


def attributes(source: str, package: str) -> dict[str, list[str]]:
    """The attributes that the source takes from modules of a package, by module."""
    tree = ast.parse(source)
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {a.asname: a.name for a in node.names if a.asname and a.name.split(".")[0] == package}
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            found.setdefault(aliases[node.value.id], set()).add(node.attr)
    return {module: sorted(names) for module, names in sorted(found.items())}


def top_level(source: str) -> list[str]:
    """The names that a module defines or imports at its top level, sorted."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(a.asname or a.name).split(".")[0] for a in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets: Iterable[ast.expr] = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {t.id for t in targets if isinstance(t, ast.Name)}
    return sorted(found)


def _calls(source: str, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
            yield node


def yaml_keys(source: str) -> list[str]:
    """The dotted keys of a YAML mapping, sorted; a list counts as a value."""
    from ruamel.yaml import YAML

    def walk(value: object, above: str) -> Iterator[str]:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                yield from walk(inner, f"{above}.{key}" if above else str(key))
        else:
            yield above

    return sorted(walk(YAML(typ="safe").load(source), ""))


def requirement_lines(source: str) -> list[str]:
    """The lines of a requirements file, without blanks and comments."""
    lines = (line.partition("#")[0].strip() for line in source.splitlines())
    return [line for line in lines if line]
