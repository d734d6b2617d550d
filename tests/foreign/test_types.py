"""Type checkers over an app that has the wheel alone: `mypy --strict`, and pyright in its strict mode; and the app itself."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import trainium_cdk
from tests.foreign.test_examples import EXAMPLES as NAMES
from tests.support import ROOT, need
from tests.wheels import run

APP, EXAMPLES = ROOT / "tests/apps/every_export.py", ROOT / "examples"
PYRIGHT = ROOT / ".venvs/types/bin/basedpyright"


def test_the_app_uses_every_export() -> None:
    text = APP.read_text("utf-8")
    assert [name for name in trainium_cdk.__all__ if f"    {name},\n" not in text] == []


@pytest.mark.sweep
def test_mypy_strict_reports_nothing(installed: Path, tmp_path: Path) -> None:
    shutil.copy(APP, tmp_path / "app.py")
    strict = ("--strict", "--config-file=", "--python-executable", installed)
    run(sys.executable, "-m", "mypy", *strict, "app.py", cwd=tmp_path)


@pytest.mark.sweep
def test_pyright_reports_nothing(installed: Path, tmp_path: Path) -> None:
    need(PYRIGHT.exists(), f"pyright is not installed ({PYRIGHT}): make .venvs/types/.done")
    shutil.copy(APP, tmp_path / "app.py")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "include": ["app.py"]}))
    run(PYRIGHT, "--pythonpath", installed, cwd=tmp_path)


@pytest.mark.parametrize(
    "app",
    [APP, *(EXAMPLES / f"{name}.py" for name in NAMES)],
    ids=lambda app: app.stem,
)
@pytest.mark.sweep
def test_the_wheel_alone_synthesises_it(app: Path, installed: Path, tmp_path: Path) -> None:
    shutil.copy(app, tmp_path / "app.py")
    node = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run(installed, "app.py", cwd=tmp_path, PATH=node, CDK_OUTDIR=str(tmp_path / "out"), CDK_VALIDATION="false")
    assert list((tmp_path / "out").glob("*.template.json"))
