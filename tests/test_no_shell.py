"""No text of Python is a shell's: what runs on a cluster is words, and files of their own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT

ROOMS = [ROOT / "constructs/trainium_cdk" / room for room in ("client/jobs", "runner")]
SHELL = re.compile(
    r"^#!/bin/(ba)?sh|\bset -[eu]|; (then|do)\b|\besac\b|<<-?'?[A-Z]|\$\(|\$\{|\"\$[a-z]| \|\| | && |2>&1|> /dev/null",
    re.MULTILINE,
)
KNOWN = {
    "client/jobs/quote.py": "the only place that quotes for a shell",
    "client/jobs/scheduler_calls.py": "no shell's: what is looked for in a user's script, which is never run here",
    "client/jobs/slurm/fleet.py": "the text of a Run Command: the fleet of ParallelCluster's own program",
    "client/jobs/slurm/ssm.py": "the text of a Run Command",
    "client/jobs/slurm/transport.py": "the text of a Run Command: as which user, and how root places the runner",
    "runner/slurm.py": "the batch script: two lines, whose words are quoted",
    "runner/work/node.py": "no shell's: a field of dpkg-query",
}
"""Files that have some, and why. None is added: send words, or a Python file."""


def texts(file: Path) -> Iterator[str]:
    """The texts of a module, but not its docstrings."""
    tree = ast.parse(file.read_text("utf-8"))
    alone = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for one in ast.walk(tree):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in alone:
            yield one.value


def test_no_text_is_a_shells() -> None:
    found = {
        str(file.relative_to(ROOT / "constructs/trainium_cdk"))
        for room in ROOMS
        for file in room.rglob("*.py")
        if any(SHELL.search(text) for text in texts(file))
    }
    assert found == set(KNOWN)
