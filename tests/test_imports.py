"""Which module imports which: nothing runs in a circle or upwards, in the order that docs/design.md gives."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "constructs"
PACKAGE = "trainium_cdk"
Graph = dict[str, set[str]]


@cache
def graph() -> Graph:
    """Every module of the package -> the modules of the package that it imports, wherever in the file: also in functions, and for
    type checkers only."""
    linked = (SOURCES / PACKAGE / "stacks").glob("*.py")  # a link, which rglob does not follow
    files = {name_of(file): file for file in sorted({*(SOURCES / PACKAGE).rglob("*.py"), *linked})}
    assert len(files) > 200
    return {name: set(imports(name, file, files.keys())) - {name} for name, file in files.items()}


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")


def imports(name: str, file: Path, known: Collection[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # relative: code that also runs outside the package, in a Lambda function
            folder = (name if file.name == "__init__.py" else name.rpartition(".")[0]).split(".")
            above = folder[: len(folder) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            named = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for full in named:
            # `from package import name`: the module of that name, else the package that defines the name
            found = full if full in known else full.rpartition(".")[0]
            if found in known:
                yield found


def room(module: str) -> str:
    """The first name below the package; the package itself for its own file."""
    return module.removeprefix(f"{PACKAGE}.").split(".")[0]


def floors() -> list[list[str]]:
    """The rooms from the bottom to the top, as docs/design.md lists them from the top."""
    text = (ROOT / "docs/design.md").read_text("utf-8")
    match = re.search(r"^## Floors\n.*?^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert match, "docs/design.md has no list of floors"
    return [line.split(":")[0].split() for line in reversed(match[1].splitlines())]


def test_no_circle() -> None:
    try:
        TopologicalSorter({name: sorted(imported) for name, imported in graph().items()}).prepare()
    except CycleError as e:
        pytest.fail(" imports ".join(reversed(e.args[1])))


def test_every_import_runs_downwards(capsys: pytest.CaptureFixture[str]) -> None:
    """To a lower floor; rooms of one floor know nothing of each other."""
    height = {name: number for number, floor in enumerate(floors()) for name in floor}
    assert height.keys() == {room(module) for module in graph()}, "docs/design.md lists other rooms"
    upwards = sorted(
        f"{module} imports {other}"
        for module, imported in graph().items()
        for other in imported
        if room(module) != room(other) and height[room(module)] <= height[room(other)]
    )
    with capsys.disabled():
        print("".join(f"\n{number:>3}  {' '.join(floor)}" for number, floor in enumerate(floors())))
    assert upwards == []


def test_it_sees_imports_of_every_form(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(
        "from typing import TYPE_CHECKING\nimport p.a\nfrom p import b, name\n"
        "if TYPE_CHECKING:\n    from p.c import C\ndef f():\n    from p.d import e\n"
    )
    known = {"p", "p.a", "p.b", "p.c", "p.d", "p.d.e"}
    assert set(imports("m", file, known)) == {"p.a", "p.b", "p", "p.c", "p.d.e"}
    file.write_text("from .c import C\nfrom .. import b\n")
    assert set(imports("p.d.e", file, known | {"p.d.c"})) == {"p.d.c", "p.b"}
