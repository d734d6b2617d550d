"""What is said of each failure on each engine, in failures.yaml: a test that runs a scene gives the sentence it was told. With
TRN_UPDATE_GOLDEN set it is written there."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.support import golden_rows

TABLE = Path(__file__).with_name("failures.yaml")
_VARIES = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"), (r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "TIME"), (r"\d\d:\d\d UTC", "TIME"),
    (r"cr-[0-9a-f]{17}", "cr-ID"), (r"/tmp/[\w./-]+(?=/(?:efs|fsx))", ""),
)  # fmt: skip


def told(scene: str, engine: str, command: str, sentence: str) -> None:
    """Compare what a scene was told with the table."""
    for pattern, word in _VARIES:
        sentence = re.sub(pattern, word, sentence)
    found = {"failure": scene, "engine": engine, "command": f"`{command}`", "what it says": sentence.strip()}
    rows = yaml.safe_load(TABLE.read_text("utf-8"))
    rows = [found if (row["failure"], row["engine"]) == (scene, engine) else row for row in rows]
    assert found in golden_rows(TABLE, rows)
