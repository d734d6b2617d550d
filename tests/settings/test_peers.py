"""Keys that people bring from files of other programs: the fix of each names the key that does it here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trainium_cdk import settings
from trainium_cdk.description.catalog.lookup import read
from trainium_cdk.description.settings.environment import Environment
from trainium_cdk.description.settings.keys import keys_at
from trainium_cdk.problems import Problem

MEASURED, MORE = (
    [tuple(part.strip() for part in line.split(" | ")) for line in text.splitlines() if line and line[0] != "#"]
    for text in Path(__file__).with_name("peers.txt").read_text("utf-8").split("\n## ")
)
ROWS = [*MEASURED, *MORE[1:]]
"""The first line of the second part is its heading."""


def problems_of(data: Any) -> tuple[Problem, ...]:
    try:
        settings.validate(data)
    except settings.SettingsError as e:
        return e.problems
    return ()


def problem_of(text: str) -> Problem:
    with pytest.raises(settings.SettingsError) as caught:
        settings.parse(text)
    [problem] = caught.value.problems
    assert problem.reason == "this key does not exist"
    return problem


def named(problem: Problem) -> str:
    """The key that a fix names, with its path, without numbers of items; empty without one."""
    found = re.match(r"(?:write|move it to) ([\w.\[\]]+)(?:$|,| \()", problem.fix)
    name = found[1] if found else ""
    if name in keys_at(Environment, problem.key[:-1]):
        name = f"{problem.dotted.rpartition('.')[0]}.{name}"
    return re.sub(r"\[\d*\]", "[]", name).strip(".")


@pytest.mark.parametrize(("program", "written", "right"), ROWS, ids=[row[1][:60] for row in ROWS])
def test_a_key_of_another_program_is_answered_with_ours(program: str, written: str, right: str) -> None:
    problem = problem_of(written)
    if " " in right:
        assert problem.fix.startswith(right)
        return
    assert named(problem) == right, f"{program}: {problem.fix}"
    # the advice, followed: the value may be wrong there, the key is not
    steps = [0 if step == "[]" else step for step in re.findall(r"\w+|\[\]", right)]
    moved: Any = problem.value
    for step in reversed(steps):
        moved = {step: moved} if step else [moved]
    assert tuple(steps) not in {p.key for p in problems_of(moved) if p.reason == problem.reason}


def test_forty_are_measured_and_all_are_right() -> None:
    assert len(MEASURED) == 40
    found = [(named(problem_of(written)), right) for _, written, right in MEASURED]
    assert sum(name == right for name, right in found) >= 36
    assert [(name, right) for name, right in found if name and name != right] == []


def test_each_word_leads_to_a_key_or_an_advice() -> None:
    words = read("words")
    schema = set(dotted_keys(Environment, ()))
    for key in words["keys"]:
        path = re.match(r"[\w.\[\]]+", key)
        assert path is not None
        assert any(f".{one}".endswith(f".{path[0]}") for one in schema), key
    assert all(len(text.split()) <= 20 for text in words["advice"])


def dotted_keys(model: Any, at: tuple[str | int, ...]) -> list[str]:
    """All keys of a model, dotted; items of lists as `[]`."""
    found = []
    for key in keys_at(model, at):
        path = (*at, key)
        found.append("".join("[]" if isinstance(step, int) else f".{step}" for step in path)[1:])
        if key != "catalog":
            found += dotted_keys(model, path) or dotted_keys(model, (*path, 0))
    return found
