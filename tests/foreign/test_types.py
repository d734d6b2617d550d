"""Type checkers over an app that has the wheel alone: `mypy --strict`, and pyright in its strict mode; and the app itself."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import trainium_cdk
from tests.support import need
from tests.wheels import build, fresh_environment, run

ROOT = Path(__file__).parents[2]
APP = ROOT / "tests/apps/every_export.py"
PYRIGHT = ROOT / ".venvs/types/bin/basedpyright"
pytestmark = pytest.mark.sweep


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of the app, and the Python of its environment."""
    folder = tmp_path_factory.mktemp("typed")
    python = fresh_environment(folder, build(ROOT, tmp_path_factory.mktemp("dist")))
    shutil.copy(APP, folder / "app.py")
    return folder, python


def test_the_app_uses_every_export() -> None:
    text = APP.read_text("utf-8")
    assert [name for name in trainium_cdk.__all__ if f"    {name},\n" not in text] == []


def test_mypy_strict_reports_nothing(project: tuple[Path, Path]) -> None:
    folder, python = project
    run(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable", python, "app.py", cwd=folder)


def test_pyright_reports_nothing(project: tuple[Path, Path]) -> None:
    need(PYRIGHT.exists(), f"pyright is not installed ({PYRIGHT}): make .venvs/types/.done")
    folder, python = project
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "include": ["app.py"]}))
    run(PYRIGHT, "--pythonpath", python, cwd=folder)


@pytest.mark.parametrize("app", [APP, *sorted((ROOT / "examples").glob("*.py"))], ids=lambda app: app.stem)
def test_the_wheel_alone_synthesises_it(app: Path, project: tuple[Path, Path], tmp_path: Path) -> None:
    _, python = project
    shutil.copy(app, tmp_path / "app.py")
    node = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run(python, "app.py", cwd=tmp_path, PATH=node, CDK_OUTDIR=str(tmp_path / "out"), CDK_VALIDATION="false")
    assert list((tmp_path / "out").glob("*.template.json"))
