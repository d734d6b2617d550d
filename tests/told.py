"""docs/guides/when-it-fails.md: what is said of each failure on each engine. A test that runs a scene gives the sentence it was told, and
it must be the table's; with TRN_UPDATE_GOLDEN set it is written there."""

from __future__ import annotations

import os
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/guides/when-it-fails.md"
_VARIES = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"), (r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "TIME"), (r"\d\d:\d\d UTC", "TIME"),
    (r"cr-[0-9a-f]{17}", "cr-ID"), (r"/tmp/[\w./-]+(?=/(?:efs|fsx))", ""),
)  # fmt: skip


def told(scene: str, engine: str, command: str, sentence: str) -> None:
    """Compare what a scene was told with the table."""
    for pattern, word in _VARIES:
        sentence = re.sub(pattern, word, sentence)
    row = f"| {scene} | {engine} | `{command}` | {sentence.strip().replace('|', '/')} |"
    text = PAGE.read_text("utf-8")
    if os.environ.get("TRN_UPDATE_GOLDEN"):
        begin = f"| {scene} | {engine} |"
        PAGE.write_text(
            "".join(row + "\n" if line.startswith(begin) else line for line in text.splitlines(keepends=True)), "utf-8"
        )
    else:
        assert row in text.splitlines(), f"docs/guides/when-it-fails.md has not this row:\n{row}"
