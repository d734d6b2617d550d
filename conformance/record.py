"""The last run of `make conformance`: its commit, its table, and digests of everything that it covers. `make test` fails when
one of these has changed since (tests/conformance/test_record.py). A run of some modules records their programs; the rest stays as it was.

Covered is what the vendors' programs get and what is read from them, not the text that brings it about: the words, folder and variables
of each start, the files that a job brings, what `prepare` fetches and installs, and the records of the vendors' log lines. Besides, the
files of this folder, which compare. How `prepare` fetches is not covered: tests/jobs/test_prepare.py runs it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from conformance import cases
from conformance.launched import described
from tests.jobs.log_lines import TITAN_VALIDATES, USUAL
from trainium_cdk.jobs import AnyJob, read_log
from trainium_cdk.runner.spec import to_json

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_name("recorded.yaml")
COMMAND = "make conformance RECORD=1"
FILES = "conformance/*.*"
"""What compares, without this file, what it writes, and the table that is printed."""
CHECKPOINTS = {"bert-large": "output/ckpt_10.pt", "finetune": "output/checkpoint-10/trainer_state.json"}
"""By kind, in the job's directory: a checkpoint with which its program is started in another way."""
ADVICE = {"fix": "", "says": ""}
"""Words for people among the arguments of a step of `prepare`."""
OF_SRUN = {"SLURM_OVERLAP"}
"""Variables that srun reads, and no vendor's program."""
_OUR_IMPORTS = re.compile(rb"^from trainium_cdk.*\n", re.MULTILINE)
STEPS = 4
"""Of each program's log."""

Row = tuple[str, str, str]
"""Our artefact, the original, and the verdict."""


def digests() -> dict[str, str]:
    """SHA-256 of everything that is covered, by file, part of a job, or log line."""
    jobs = {**cases.JOBS, **cases.MORE}
    of_jobs = (of_job(name, job, engine) for engine in cases.ENGINES for name, job in jobs.items())
    return {**files(), **{name: made for found in of_jobs for name, made in found.items()}, **logs()}


def files() -> dict[str, str]:
    """The digests of the files that compare, without the lines that say in which of our modules a name is."""
    compare = sorted(
        file for file in ROOT.glob(FILES) if file.name not in (FILE.name, Path(__file__).name, "conftest.py")
    )
    return {file.relative_to(ROOT).as_posix(): _digest(_OUR_IMPORTS.sub(b"", file.read_bytes())) for file in compare}


def of_job(name: str, job: AnyJob, engine: str) -> dict[str, str]:
    """The digests of what a job's program gets on an engine: its starts, its files, and what `prepare` fetches and installs."""
    made, folder = described(job, cases.cluster(engine, job))
    parts: dict[str, Any] = {
        "files": {name: content.hex() for name, content in made.files.items()},
        "prepare": [[step.do, to_json({**step.with_, **ADVICE})] for step in made.prepare],
        **{stage: _start(engine, job, stage) for stage in (["precompile", "train"] if job.precompile else ["train"])},
    }
    if job.kind in CHECKPOINTS:
        parts["restart"] = _start(engine, job, "train", f"{folder}/{CHECKPOINTS[job.kind]}")
    return {f"{name} on {engine}: {part}": _digest(_text(value)) for part, value in parts.items()}


def logs() -> dict[str, str]:
    """The digests of what is read from the vendors' log lines. A value that a line does not have changes nothing."""
    printed = {program: b"".join(map(line, range(STEPS))) for program, line in USUAL.items()}
    printed["titan's validation"] = TITAN_VALIDATES.encode()
    found = {}
    for program, log in printed.items():
        records = [(type(one).__name__, _given(one)) for one in read_log(log)]
        found[f"log of {program.strip()}"] = _digest(_text([log.decode(), records]))
    return found


def _start(engine: str, job: AnyJob, stage: str, *checkpoints: str) -> list[Any]:
    start = cases.start(engine, job, stage, *checkpoints)
    return [start.folder, start.command, {k: v for k, v in start.environment.items() if k not in OF_SRUN}]


def _given(record: Any) -> dict[str, Any]:
    values, defaults = record._asdict(), record._field_defaults
    return {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}


def _text(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


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


def _program(name: str) -> str:
    """The kind of job in the name of an artefact or a digest."""
    return re.split(r"[ ,:]", name)[0]


def merged(rows: Sequence[Row], modules: Iterable[str]) -> dict[str, Any]:
    """The record with the rows of these modules, and the digests of their programs and files; all else is as it was recorded."""
    before, now = load(), digests()
    programs = {_program(artefact) for artefact, _, _ in rows} | {f"conformance/{name}" for name in modules}
    ran = {(_program(artefact), original) for artefact, original, _ in rows}
    kept = [tuple(row) for row in before["rows"] if (_program(row[0]), row[1]) not in ran]
    old = {name: made for name, made in before["digests"].items() if _program(name) not in programs}
    return {
        "rows": [*kept, *rows],
        "digests": old | {name: made for name, made in now.items() if _program(name) in programs},
    }


def write(rows: Sequence[Row], modules: Iterable[str] = ()) -> None:
    """Record a run at the current commit: a complete one, or one of some modules."""
    found: dict[str, Any] = merged(rows, modules) if modules else {"rows": rows, "digests": digests()}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    made = {
        "commit": commit.stdout.strip(),
        "date": dt.datetime.now(dt.UTC).date(),
        "rows": [list(row) for row in sorted(found["rows"])],
        "digests": dict(sorted(found["digests"].items())) if modules else found["digests"],
    }
    writer = YAML()
    writer.width = 1000
    with FILE.open("w") as out:
        out.write(f"# Written by `{COMMAND}`.\n")
        writer.dump(made, out)
