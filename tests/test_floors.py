"""The lowest versions that pyproject.toml allows work. They are downloaded: `make trust` does this."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support import ROOT
from tests.wheels import run

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TOOLS = ("hypothesis", "kubernetes-validate", "pytest", "pytest-timeout", "pytest-xdist")
"""What the tests below need, in the versions that are installed here."""
TESTS = (
    "tests/settings",
    "tests/test_requirements.py",
    "tests/checks",
    "tests/cli/test_exit_codes.py",
    "tests/cli/test_help.py",
    "tests/jobs/test_build_context.py",
    "tests/jobs/test_ssm.py",
    "tests/jobs/kubernetes/test_inside.py",
)
STACKS = """
import sys, aws_cdk as cdk
from trainium_cdk.stacks import TrnEksStack, TrnPclusterStack, TrnPcsStack
app = cdk.App(outdir=sys.argv[1])
for stack in (TrnEksStack, TrnPclusterStack, TrnPcsStack):
    stack(app, stack.__name__)
app.synth()
"""


def lowest(folder: Path, extras: str) -> Path:
    """The Python of an environment with the project as it is now, and the lowest versions of what it needs."""
    uv, python = Path(sys.executable).with_name("uv"), folder / "lowest/bin/python"
    run(uv, "venv", "--quiet", "--python", sys.executable, folder / "lowest", cwd=folder)
    install = (uv, "pip", "install", "--quiet", "--python", python)
    run(*install, "--refresh-package", "trainium-cdk", "--resolution", "lowest-direct", f"{ROOT}[{extras}]", cwd=folder)
    return python


def templates(python: Path | str, folder: Path) -> dict[str, object]:
    """Stack -> its template. The assets' hashes are left out: that of kubectl is another one in each release of the CDK's layer."""
    ours = {"PYTHONPATH": f"{ROOT / 'constructs'}:{ROOT}", "JSII_NODE": str(Path(sys.executable).with_name("node"))}
    run(python, "-c", STACKS, folder, cwd=ROOT, **ours, CDK_VALIDATION="false")
    found = {file.name: json.loads(file.read_text("utf-8")) for file in folder.glob("*.template.json")}
    return {name: without_assets(template) for name, template in found.items()}


def without_assets(node: object) -> object:
    if isinstance(node, dict):
        return {key: without_assets(value) for key, value in node.items() if key != "S3Key"}
    return [without_assets(value) for value in node] if isinstance(node, list) else node


def test_each_package_has_a_floor() -> None:
    """Without one, the lowest version would be the first that there ever was."""
    asked = [
        *PROJECT["dependencies"],
        *(line for extra in ("cdk", "jobs") for line in PROJECT["optional-dependencies"][extra]),
    ]
    assert [line for line in asked if not Requirement(line).specifier.contains(version(Requirement(line).name))] == []
    assert [line for line in asked if ">=" not in line] == []


@pytest.mark.sweep
def test_the_constructs_make_the_same_templates_with_the_lowest_versions(tmp_path: Path) -> None:
    old, new = templates(lowest(tmp_path, "cdk"), tmp_path / "old"), templates(sys.executable, tmp_path / "new")
    assert len(new) == 3
    assert old == new


@pytest.mark.sweep
def test_the_client_works_with_the_lowest_versions(tmp_path: Path) -> None:
    python = lowest(tmp_path, "cdk,jobs")
    tools = [f"{name}=={version(name)}" for name in TOOLS]
    run(Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--python", python, *tools, cwd=tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    node = str(Path(sys.executable).with_name("node"))
    run(python, "-m", "pytest", "-q", "-n2", "-p", "no:cacheprovider", *TESTS, cwd=ROOT, PATH=path, JSII_NODE=node)
