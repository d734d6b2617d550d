"""Small faults in the code are found by the tests of their room: `make mutation` measures it, and a few are tried here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mutation.rooms import PACKAGE, ROOMS, ROOT, SEED, mirrored, modules
from tests.support import completed, need

PYTHON = ROOT / ".venvs/mutation/bin/python"


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_and_its_tests_exist(room: str) -> None:
    files = (*mirrored(room), *ROOMS[room].real.values(), PACKAGE / room)
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_recorded_faults_are_found() -> None:
    """The tests run on a copy of the checkout: this one does not change."""
    done = completed([sys.executable, "-m", "mutation", "--recorded"], cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "::" in done.stdout


def test_a_sample_is_the_same_each_time_and_of_code_that_runs() -> None:
    need(PYTHON.exists(), f"Cosmic Ray is not installed ({PYTHON}): make .venvs/mutation/.done")
    found = [
        json.loads(
            subprocess.check_output([PYTHON, "-m", "mutation.places", SEED, "12", *modules("deployment")], cwd=ROOT)
        )
        for _ in range(2)
    ]
    assert found[0] == found[1]
    assert len({(m["file"], m["code"]) for m in found[0]["mutants"]}) == 12
    for mutant in found[0]["mutants"]:
        compile(mutant["code"], mutant["file"], "exec")
        assert mutant["code"] != (ROOT / mutant["file"]).read_text("utf-8")
