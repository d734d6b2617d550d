"""Every bad environment gives one paragraph that names file and line, key, value, reason and fix."""

from __future__ import annotations

import pytest

from tests.checks.tables import REFUSED, SHAPE
from trainium_cdk import settings
from trainium_cdk.description import checks

ALL = [*REFUSED, *SHAPE]


@pytest.mark.parametrize(("text", "key", "message"), ALL, ids=[f"{key}: {m[:40]}" for _, key, m in ALL])
def test_refused(text: str, key: str, message: str) -> None:
    with pytest.raises(settings.SettingsError) as caught:
        checks.require(settings.parse(text, "environment.yaml"))
    key, _, value = key.partition(" = ")
    # one mistake is reported once, and nothing else is reported
    assert [p.dotted for p in caught.value.problems] == [key]
    paragraph = str(caught.value)
    assert message in paragraph
    assert "\n" not in paragraph
    marked = [i for i, line in enumerate(text.splitlines(), 1) if line.endswith("# <-")]
    where = f"environment.yaml:{marked[0]}: error: " if marked else "environment.yaml"
    assert paragraph.startswith(where)
    assert f"{key} = {value}: " in paragraph if value else f"{key} = " in paragraph
    assert ". Fix: " in paragraph
    assert len(paragraph) < 700
