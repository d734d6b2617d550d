"""Rules for the whole repository, which no single module can test."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, completed

PACKAGE = ROOT / "constructs" / "trainium_cdk"
SLOW = ("aws_cdk", "jsii", "boto3", "botocore")
"""Start Node, or take a second: not at the start of a command."""


def tracked() -> list[Path]:
    """The files of the repository, new ones included; without git, those of the working tree."""
    done = completed(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    if done.returncode == 0:
        found = [ROOT / name for name in done.stdout.split("\0") if name]
    else:
        hidden = {".venv", ".venvs", "node_modules", "cdk.out", "dist"}
        found = [f for f in ROOT.rglob("*") if not hidden & set(f.relative_to(ROOT).parts)]
    return sorted(f for f in found if f.is_file())


def modules(*parts: str) -> list[str]:
    """Every module below these parts of the package."""
    found = []
    for part in parts:
        at = PACKAGE / part
        sources = sorted(at.rglob("*.py")) if at.is_dir() else [at.with_suffix(".py")]
        for source in sources:
            if source.exists():
                name = ".".join(source.relative_to(PACKAGE.parent).with_suffix("").parts)
                found.append(name.removesuffix(".__init__"))
    return found


def imported_by(code: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after running some code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = completed([sys.executable, "-c", script], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("part", ["description", "client", "runner", "jobs"])
def test_imports_run_one_way(part: str) -> None:
    """Each module of these parts, in an interpreter of its own kind, loads no CDK."""
    names = modules(part)
    assert names, f"there is no {part}"
    loaded = imported_by("\n".join(f"import {name}" for name in names))
    assert not loaded & {"aws_cdk", "jsii", "constructs"}


@pytest.mark.parametrize("part", ["catalog", "settings", "checks", "outputs"])
def test_a_description_loads_nothing_slow(part: str) -> None:
    assert not imported_by(f"import trainium_cdk.description.{part}") & set(SLOW)


def test_nothing_slow_at_the_start_of_a_command() -> None:
    assert not imported_by("import trainium_cdk.client.cli.app") & set(SLOW)


def test_examples_in_docstrings_are_true() -> None:
    """Of the parts that need neither AWS nor the CDK."""
    tried = 0
    for name in modules("description"):
        failed, ran = doctest.testmod(importlib.import_module(name))
        assert not failed, name
        tried += ran
    assert tried >= 6


def test_constructs_is_only_a_source_root() -> None:
    """An `__init__.py` there would hide the PyPI package of the same name, and aws_cdk would not import."""
    assert not (ROOT / "constructs" / "__init__.py").exists()
    loaded = completed([sys.executable, "-c", "import constructs; print(constructs.Construct.__module__)"], cwd=ROOT)
    assert loaded.stdout.startswith("constructs"), loaded.stderr


def test_files_stay_readable() -> None:
    sources = [f for f in tracked() if f.suffix in {".py", ".sh"}]
    assert len(sources) > 50
    long = {str(f.relative_to(ROOT)): n for f in sources if (n := len(f.read_text("utf-8").splitlines())) > 500}
    assert long == {}


def test_a_name_of_a_public_class_has_one_meaning() -> None:
    """In the whole package, but for programs in `client/jobs/sent`, which nothing imports."""
    homes: dict[str, set[Path]] = {}
    for file in [*PACKAGE.rglob("*.py"), *(PACKAGE / "stacks").glob("*.py")]:  # that folder is a link
        if file.parent != PACKAGE / "client/jobs/sent":
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, set()).add(file.relative_to(PACKAGE))
    assert len(homes) > 200
    assert {name: sorted(map(str, files)) for name, files in homes.items() if len(files) > 1} == {}


def test_each_line_of_the_scenes_names_tests() -> None:
    for line in (ROOT / "tests/scenes.txt").read_text("utf-8").splitlines():
        place, _, test = line.partition("::")
        if line and not line.startswith("#"):
            assert (ROOT / place).exists(), line
            assert not test or f"def {test}(" in (ROOT / place).read_text("utf-8"), line


# the system's, the nodes' and ParallelCluster's own paths are fine, and the jobs' folder in a shared /home; a user's home directory is not
_SOMEBODY = re.compile(r"(?<![\w.$}~/-])/(?:home|Users)/(?!ubuntu\b|ec2-user\b|trn\b|slurm\b)[a-z][\w.-]*/")


def test_no_path_of_one_machine() -> None:
    here = re.compile(rf"(?<![\w.-]){re.escape(str(ROOT))}(?![\w.-])") if len(ROOT.parts) > 2 else None
    found = []
    for file in tracked():
        try:
            text = file.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        for pattern in (_SOMEBODY, here):
            found += [f"{file.relative_to(ROOT)}: {m.group()}" for m in (pattern.finditer(text) if pattern else ())]
    assert found == []
