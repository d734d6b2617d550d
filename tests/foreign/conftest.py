"""A foreign project's environment: the wheel, and nothing of this checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wheels import ROOT, build, fresh_environment, run


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the wheel, and with the command `trn` beside it."""
    folder = tmp_path_factory.mktemp("foreign")
    python = fresh_environment(folder, build(ROOT, tmp_path_factory.mktemp("dist")))
    place = run(python, "-c", "import trainium_cdk; print(trainium_cdk.__file__)", cwd=folder)
    assert Path(place).is_relative_to(folder)
    return python
