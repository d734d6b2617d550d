"""Templates for the audit's tests, synthesised once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from audit import subjects
from audit.findings import Subjects

Templates = dict[str, dict[str, Any]]


SHORT = ("default", "fsx-persistent-s3")
"""The environments that `make test` audits; `make trust` audits all of them."""
whole = pytest.mark.parametrize(
    "audited", [pytest.param((), marks=pytest.mark.sweep)], indirect=True, ids=["all environments"]
)
"""For a test over all environments."""


@pytest.fixture(
    scope="session",
    params=[SHORT, pytest.param((), marks=pytest.mark.sweep)],
    ids=["two environments", "all environments"],
)
def audited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subjects:
    made, _ = subjects.make(tmp_path_factory.mktemp("audit"), request.param)
    return made


@pytest.fixture(scope="session")
def templates(audited: Subjects) -> Templates:
    """Subject -> template."""
    return {subject: json.loads(Path(path).read_text()) for subject, path in audited.templates.items()}
