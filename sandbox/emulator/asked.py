"""What users of the local AWS ask for, one line of JSON each, in a file of the sandbox's folder: action, resource, and whether it was allowed."""

from __future__ import annotations

import json
import os
from pathlib import Path

ASKED = "asked.jsonl"


def note(action: str, resource: str, *, allowed: bool) -> None:
    with (Path(os.environ["SANDBOX_DIR"]) / ASKED).open("a") as file:
        print(json.dumps({"action": action, "resource": resource, "allowed": allowed}), file=file)
