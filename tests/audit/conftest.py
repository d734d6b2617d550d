"""The templates that are judged, made once for all tests of the audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from audit import subjects
from audit.findings import Subjects

Templates = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def judged_things(tmp_path_factory: pytest.TempPathFactory) -> Subjects:
    made, _ = subjects.make(tmp_path_factory.mktemp("audit"))
    return made


@pytest.fixture(scope="session")
def templates(judged_things: Subjects) -> Templates:
    """Subject -> template."""
    return {subject: json.loads(Path(path).read_text()) for subject, path in judged_things.templates.items()}
