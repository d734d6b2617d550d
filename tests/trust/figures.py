"""Figures that the trust tests measure: each test writes its own, `python -m tests.trust.figures` prints them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "figures"
"""Not in the repository: they are of the last run on this machine."""


def record(name: str, **figures: Any) -> None:
    """Keep the figures of one test, in place of those of its last run."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    part = FOLDER / f"{name}.{os.getpid()}.part"
    part.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")
    part.replace(FOLDER / f"{name}.json")


def read() -> dict[str, dict[str, Any]]:
    """Name -> figures, of every test that has run."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}


def main() -> int:
    """Print them as one JSON document; the exit code."""
    found = read()
    print(json.dumps(found, indent=2))
    if not found:
        print("no test has run yet: python -m pytest tests/trust", file=sys.stderr)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
