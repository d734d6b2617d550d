"""A sample of the small faults that can be made in some files: `python -m mutation.places SEED COUNT FILE...`, printed as JSON.

It runs in the environment `.venvs/mutation`, which has Cosmic Ray; nothing else here needs that.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

Position = tuple[tuple[int, int], tuple[int, int]]


NEVER_USED = {"frozen", "defer_build"}
"""Keywords for the type checker, and for a faster start: without them, every program does the same."""


class ReplaceString(Operator):  # type: ignore[misc]
    """Appends a letter to a key, name or value; strings with a space are sentences for readers."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if node.type == "string" and not any(c.isspace() for c in node.value) and '"""' not in node.value:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, _index: int) -> Any:
        node.value = f"{node.value[:-1]}x{node.value[-1]}"
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


class RemoveStatement(Operator):  # type: ignore[misc]
    """Removes a call, a `raise`, or the value of a `return`."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        inside = node.type == "simple_stmt" and node.parent.type != "file_input"
        if inside and node.children[0].type in ("atom_expr", "raise_stmt", "return_stmt"):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, _index: int) -> Any:
        first = node.children[0]
        with_what = "return None" if first.type == "return_stmt" else "pass"
        prefix = first.get_first_leaf().prefix
        node.children[0] = parso.parse(prefix + with_what) if first.get_code().strip() != with_what else first
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


def operators() -> dict[str, Operator]:
    """Cosmic Ray's own, but for those that need arguments, and ours."""
    theirs = {name.partition("/")[2]: get_operator(name) for name in operator_names()}
    found = {name: kind() for name, kind in theirs.items() if not kind.arguments()}
    return found | {kind.__name__: kind() for kind in (ReplaceString, RemoveStatement)}


def without_effect(source: str) -> list[Position]:
    """Parts that do nothing when the program runs: annotations, imports for them, docstrings, lists of exported names."""
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(source)):
        found += [k for k in getattr(node, "keywords", ()) if isinstance(k, ast.keyword) and k.arg in NEVER_USED]
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation:
            found.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            found += [node.returns] if node.returns else []
        elif (
            (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
            or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
            or (isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases))
        ):
            found.append(node)
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in found]  # type: ignore[attr-defined]


def only_slower(name: str, line: str) -> bool:
    """A function that no longer keeps its results."""
    return name == "RemoveDecorator" and "cache" in line


def places(file: str) -> Iterator[dict[str, Any]]:
    """The places where a fault can be made in a file, with the operators that can make one there."""
    source = Path(file).read_text("utf-8")
    lines, tree = source.splitlines(), get_ast(source)
    skipped = without_effect(source)
    at: dict[Position, list[tuple[str, int]]] = {}
    nodes = list(ast_nodes(tree))
    for name, operator in operators().items():
        positions = [position for node in nodes for position in operator.mutation_positions(node)]
        for occurrence, (start, end) in enumerate(positions):
            idle = any(first <= start and end <= last for first, last in skipped)
            if not idle and not only_slower(name, lines[start[0] - 1]):
                at.setdefault((start, end), []).append((name, occurrence))
    texts: dict[str, int] = {}
    functions = [f for f in ast.walk(ast.parse(source)) if isinstance(f, ast.FunctionDef)]
    for (start, _), ways in sorted(at.items()):
        line = lines[start[0] - 1].strip()
        texts[line] = texts.get(line, 0) + 1
        around = [f for f in functions if f.lineno <= start[0] <= (f.end_lineno or f.lineno)]
        function = max((min([f.lineno, *(d.lineno for d in f.decorator_list)]) for f in around), default=0)
        key = f"{file} {line} {texts[line]}"
        yield {"file": file, "line": start[0], "function": function, "ways": sorted(ways), "key": key}


def _compiles(code: str) -> bool:
    """Cosmic Ray takes the stars of `f(**x)` for operators."""
    try:
        compile(code, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def changed(before: str, after: str) -> str:
    """The lines that differ, without their indentation."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[2:]
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines if line[0] != "@")


def number(seed: str, key: str) -> int:
    """The same for the same place of a file, whatever changes around it: most of a sample stays as it was."""
    return int(hashlib.sha256(f"{seed} {key}".encode()).hexdigest(), 16)


def sample(seed: str, count: int, of: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One fault at each of `count` places of all, with the file's whole new text; a quarter of them at most in strings.

    Tables of names have more strings than a program has conditions.
    """
    every = sorted(of, key=lambda p: number(seed, p["key"]))
    chosen: list[dict[str, Any]] = []
    strings = 0
    for place in every:
        name, occurrence = place["ways"][number(seed + "way", place["key"]) % len(place["ways"])]
        if len(chosen) == count:
            break
        if name == "ReplaceString" and strings == count // 4:
            continue
        source = Path(place["file"]).read_text("utf-8")
        code = mutate_code(source, operators()[name], occurrence)
        if code is not None and code != source and _compiles(code):
            mutant = {key: place[key] for key in ("file", "line", "function")}
            chosen.append({**mutant, "operator": name, "change": changed(source, code), "code": code})
            strings += name == "ReplaceString"
    return chosen


if __name__ == "__main__":
    seed, count, *files = sys.argv[1:]
    every = [place for file in files for place in places(file)]
    json.dump({"mutants": sample(seed, int(count), every), "places": len(every)}, sys.stdout)
