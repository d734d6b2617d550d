"""Templates for the audit's tests, synthesised once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.audit.render import render

Templates = dict[str, dict[str, Any]]


SHORT = ("default", "fsx-persistent-s3")
"""The environments that `make scenes` audits; `make trust` audits all of them."""
whole = pytest.mark.parametrize(
    "audited", [pytest.param((), marks=pytest.mark.sweep)], indirect=True, ids=["all environments"]
)
"""For a test over all environments."""


@pytest.fixture(
    scope="session",
    params=[SHORT, pytest.param((), marks=pytest.mark.sweep)],
    ids=["two environments", "all environments"],
)
def audited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the scanners read."""
    folder = tmp_path_factory.mktemp("audit")
    files = render(folder, request.param)
    (folder / "subjects.json").write_text(json.dumps({subject: str(file) for subject, file in files.items()}))
    return folder


@pytest.fixture(scope="session")
def templates(audited: Path) -> Templates:
    """`STACK/ENVIRONMENT` -> template."""
    files = json.loads((audited / "subjects.json").read_text())
    return {subject: json.loads(Path(file).read_text()) for subject, file in files.items()}
