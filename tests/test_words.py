"""Pages, docstrings and messages avoid the phrases in `words.yaml`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.support import ROOT

COVERED = {
    "pages": (
        "CONTRIBUTING.md",
        "PACKAGE.md",
        "SECURITY.md",
        "internals/*.md",
        "bootstrap/*.md",
        "sandbox/**/*.md",
        "README.md",
        "docs/**/*.md",
    ),
    "code": (
        "app.py",
        "stacks/*.py",
        "bootstrap/**/*.py",
        "constructs/**/*.py",
        "examples/**/*.py",
        "sandbox/**/*.py",
        "tools/**/*.py",
    ),
    "data": ("constructs/trainium_cdk/description/catalog/data/*.yaml",),
}
LEFT_OUT = (
    "sandbox/tests/",
    "constructs/trainium_cdk/client/jobs/sent/",
)
"""Tests; and files that jobs get, whose bytes the record of `make conformance` covers."""
OTHERS = {"pattern", "samples", "source", "sources"}
"""Keys of the data whose texts others wrote."""
PHRASES = [(re.compile(r["phrase"]), r["like"], r["write"]) for r in YAML(typ="safe").load(ROOT / "tests/words.yaml")]


def page(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each paragraph, item, row and title, without blocks of code."""
    fence = re.compile(r"^( *)(```|~~~).*?^\1\2", re.DOTALL | re.MULTILINE)
    line = 1
    for part in re.split(r"\n(?=\s*(?:\n|[-*|#]|\d+\.\s))", fence.sub(lambda code: "\n" * code[0].count("\n"), text)):
        yield line, part
        line += part.count("\n") + 1


def code(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each string: docstrings, help, messages."""
    inner: set[int] = set()
    nodes = list(ast.walk(ast.parse(text)))
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in ast.walk(node) if isinstance(part, ast.Constant)}
            yield node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.lineno, node.value


def data(value: object) -> Iterator[tuple[int, str]]:
    """Each text that is ours; its line is not known."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from () if key in OTHERS else data(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from data(inner)
    elif isinstance(value, str):
        yield 0, value


def texts(file: Path) -> Iterator[tuple[int, str]]:
    text = file.read_text("utf-8")
    return (
        page(text)
        if file.suffix == ".md"
        else code(text)
        if file.suffix == ".py"
        else data(YAML(typ="safe").load(text))
    )


def found(text: str) -> Iterator[tuple[str, str]]:
    """(the phrase with the words around it, what to write) of each phrase in a text."""
    words = " ".join(re.sub(r"``?[^`]+``?", "`x`", text).split())
    for phrase, _, write in PHRASES:
        for match in phrase.finditer(words):
            yield words[max(0, match.start() - 40) : match.end() + 30], write


@pytest.mark.parametrize("globs", COVERED.values(), ids=COVERED)
def test_texts_avoid_the_phrases(globs: tuple[str, ...]) -> None:
    names = sorted({file.relative_to(ROOT).as_posix() for glob in globs for file in ROOT.glob(glob)})
    covered = [name for name in names if not name.startswith(LEFT_OUT) and "node_modules" not in name]
    assert len(covered) > 5
    wrong = [
        f"{name}:{line}: ...{words}... Write {write}"
        for name in covered
        for line, text in texts(ROOT / name)
        for words, write in found(text)
    ]
    assert wrong == []


def test_each_phrase_is_found_where_it_is() -> None:
    """In a page, a docstring, a message in pieces, and data; not in code, nor in words of others."""
    for _, like, write in PHRASES:
        for seen in (
            page(f"# A title\n\nOne. Two;\n{like.replace(' ', chr(10), 1) if like[0].islower() else like}"),
            code(f'def one():\n    """{like}"""'),
            code(f"print(f'{{one}}' '{{two}}. ' f'{like}')"),
            data({"rules": [{"fix": like}]}),
        ):
            assert write in {right for _, text in seen for _, right in found(text)}, like
        for unseen in (
            page(f"A\n\n```\n{like}\n```\n"),
            page(f"Give `{like}`"),
            data({"samples": [like]}),
            code(f"# {like}"),
        ):
            assert [text for _, text in unseen if list(found(text))] == []
