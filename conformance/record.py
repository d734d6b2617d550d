"""The last complete run of `make conformance`: its commit, its table, and digests of everything that it covers. `make test` fails when
one of these has changed since (tests/conformance/test_record.py)."""

from __future__ import annotations

import datetime as dt
import hashlib
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from conformance import cases
from conformance.launched import rendered

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_name("recorded.yaml")
DOCUMENT = ROOT / "docs/conformance.md"
COMMAND = "make conformance RECORD=1"
BEGIN, END = f"<!-- `{COMMAND}` writes what follows -->", "<!-- and what follows is not written by it -->"
FILES = ("constructs/trainium_cdk/jobs/kinds/*.py", "constructs/trainium_cdk/jobs/metrics.py", "conformance/*.*")
"""Besides the rendered jobs: options, log readers, and all that compares."""

Row = tuple[str, str, str]
"""Our artefact, the original, and the verdict."""


def digests() -> dict[str, str]:
    """SHA-256, by file or rendered job."""
    found = {}
    for file in sorted(file for pattern in FILES for file in ROOT.glob(pattern) if file != FILE):
        found[file.relative_to(ROOT).as_posix()] = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    for engine in cases.ENGINES:
        for name, job in {**cases.JOBS, **cases.MORE}.items():
            files = rendered(job, cases.cluster(engine, job)).files
            text = b"".join(path.encode() + b"\0" + content + b"\0" for path, content in sorted(files.items()))
            found[f"{name} on {engine}"] = hashlib.sha256(text).hexdigest()[:16]
    return found


def load() -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load(FILE)
    return found


def changed(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What was added, removed or changed since the recorded run."""
    return sorted(name for name in {*recorded, *now} if recorded.get(name) != now.get(name))


def uncommitted() -> list[str]:
    """Files that differ from the commit: a run with them would not be one of the commit. An earlier record may be among them."""
    done = subprocess.run(
        ["git", "status", "--porcelain", "--", "conformance", f":!{FILE.relative_to(ROOT)}", "constructs", "sandbox", "tests"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [line[3:] for line in done.stdout.splitlines()]


def write(rows: Iterable[Row]) -> None:
    """Record a run at the current commit, in the data file and in the document."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    made = {
        "commit": commit.stdout.strip(),
        "date": dt.datetime.now(dt.UTC).date(),
        "rows": [list(row) for row in sorted(rows)],
        "digests": digests(),
    }
    writer = YAML()
    writer.width = 1000
    with FILE.open("w") as out:
        out.write(f"# Written by `{COMMAND}`.\n")
        writer.dump(made, out)
    DOCUMENT.write_text(document(DOCUMENT.read_text(), made))


def document(text: str, recorded: Mapping[str, Any]) -> str:
    """The document with the recorded run in its place; the interfaces of surfaces.yaml are one row."""
    rows = [tuple(row) for row in recorded["rows"]]
    accepted = sum(verdict == "accepted" for _, _, verdict in rows)
    interfaces = [row for row in rows if row[0].startswith("recorded: ")]
    lines = [
        BEGIN,
        f"Run on {recorded['date']} at {recorded['commit']}: {accepted} accepted, {len(rows) - accepted} cannot be checked.",
        "",
        "| artefact | original | verdict |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows if row not in interfaces),
        f"| {len(interfaces)} interfaces and launch scripts recorded in `conformance/surfaces.yaml` | their sources | accepted |",
        END,
    ]
    before, _, rest = text.partition(BEGIN)
    return before + "\n".join(lines) + rest.partition(END)[2]
