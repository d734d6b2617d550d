"""CONTRIBUTING's recipes, followed with the texts that the page prints."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from sandbox.paths import HOME as ROOT
from tests.checks import tables
from tests.jobs.conftest import make_cluster
from tests.support import completed
from trainium_cdk import settings
from trainium_cdk.description import checks
from trainium_cdk.description.catalog.known_errors import KnownError

PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def section(title: str) -> dict[str, str]:
    """Language -> text of a section's blocks, of which each language has one."""
    text = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(dict(found)) == len(found) > 0
    return dict(found)


def test_a_kind_of_a_package(tmp_path: Path) -> None:
    recipe = section("A job kind")
    (tmp_path / "hello_kind.py").write_text(recipe["python"])
    info = tmp_path / "hello_kind-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hello-kind\nVersion: 1.0\n")
    [group, entry] = recipe["toml"].splitlines()
    name = group.removeprefix('[project.entry-points."').removesuffix('"]')
    (info / "entry_points.txt").write_text(f"[{name}]\n{entry.replace(chr(34), '')}\n")
    (tmp_path / "cluster.json").write_text(make_cluster().model_dump_json())
    submit = ["submit", "hello", "--greeting", "hey", "--nodes", "2", "--cluster", "cluster.json", "--dry-run"]
    done = completed(
        [sys.executable, "-c", "from trainium_cdk.client.cli.__main__ import main; main()", *submit],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    found = json.loads(done.stdout)["job"]["stages"][0]["program"]["words"]
    assert found == ["echo", "hey", ["from node ", {"place": "node"}]], done.stderr


def test_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = section("A rule")
    made: dict[str, object] = {}
    exec(compile(recipe["python"], "a rule", "exec", dont_inherit=True), made)  # noqa: S102
    monkeypatch.setattr(checks, "RULES", (*checks.RULES, *made["RULES"]))  # type: ignore[misc]
    [(environment, _, key, message)] = tables._CASE.findall(recipe["text"])
    [problem] = checks.check(settings.parse(environment))
    assert (problem.dotted, problem.level) == (key, "error")
    assert message in f"{problem.reason}. Fix: {problem.fix}"


def test_a_known_error() -> None:
    """At the end of the table, it is found in its own line."""
    table = (ROOT / "constructs/trainium_cdk/description/catalog/data/known_errors.yaml").read_text("utf-8")
    errors = [KnownError(**entry) for entry in yaml.safe_load(table + section("A known error")["text"])["errors"]]
    [line] = errors[-1].samples
    assert next(error for error in errors if error.is_in(line)) is errors[-1]
