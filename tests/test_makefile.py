"""No target of the Makefile can rot: what `make test` does not run has a quick part among its tests."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from benchmarks import commands
from tests.support import ROOT, completed
from trainium_cdk import checks, settings

TEXT = (ROOT / "Makefile").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
TESTED = {
    "audit": "tests/audit",
    "bench": "tests/test_makefile.py tests/benchmarks",
    "clean": "tests/test_makefile.py",
    "conformance": "tests/conformance tests/jobs/kinds/test_upstream.py tests/eks/test_upstream.py tests/pcluster/test_upstream.py",
    "demo": "tests/sandbox/test_demo.py",
    "dist": "tests/test_packaging.py",
    "docs": "tests/reference",
    "lock": "tests/test_supply_chain.py",
    "mutation": "tests/trust/test_mutation.py",
    "pictures": "tests/jobs/report tests/reference/test_graph.py",
    "sbom": "tests/test_supply_chain.py",
    "schema": "tests/settings/test_schema.py",
    "test-pythons": "tests/test_makefile.py",
    "trust": "tests/trust tests/faults",
}
"""Target -> tests. The long cases of `trust` are marked `sweep`; of each kind, `make test` has some."""
ITS_OWN = {"help", "kubernetes", "lint", "setup", "slurm", "test", "test-system"}
"""What `make test` itself runs, or needs."""


def test_every_target_has_one() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", TEXT, re.MULTILINE)
    assert phony
    assert set(phony[1].split()) == TESTED.keys() | ITS_OWN
    assert [path for paths in TESTED.values() for path in paths.split() if not (ROOT / path).exists()] == []


def test_each_supported_python_is_tested_and_the_oldest_is_what_is_written_for() -> None:
    """`make lint` refuses newer syntax."""
    tested = re.search(r"^PYTHONS := (.*)$", TEXT, re.MULTILINE)
    assert tested
    oldest = tested[1].split()[0]
    assert PROJECT["project"]["requires-python"] == f">={oldest}"
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert PROJECT["tool"]["mypy"]["python_version"] == oldest


def test_clean_removes_only_what_git_ignores() -> None:
    printed = completed(["make", "-n", "clean"], cwd=ROOT, check=True).stdout
    _, _, *paths = printed.split()
    assert len(paths) >= 8
    tracked = completed(["git", "ls-files", "--", *paths], cwd=ROOT, check=True)
    assert tracked.stdout == ""


@pytest.mark.parametrize("name", ["trn --help", "trn validate", "cdk app: a naive Slurm stack"])
def test_a_command_is_measured(name: str, tmp_path: Path) -> None:
    run = commands.measure(next(case for case in commands.CASES if case.name == name), tmp_path, {})
    assert run.wall > 0
    assert run.cpu > 0


def test_what_is_measured_can_be_deployed() -> None:
    known = {case.name for case in commands.CASES}
    assert {case.floor for case in commands.CASES} <= known
    assert {name for case in commands.CASES if (name := case.context.get("env"))} == commands.ENVIRONMENTS.keys()
    for environment in commands.ENVIRONMENTS.values():
        assert checks.require(settings.parse(json.dumps(environment))) is not None
