"""Every kind on every engine is started up to its program, and shows what `prepare` fetches: readable golden files of both."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from pathlib import Path

import pytest

from conformance import cases
from conformance.launched import Launched, launched
from trainium_cdk.jobs import BertLarge, kinds

GOLDEN = Path(__file__).parent / "golden"
CHECKPOINT = "/efs/trn/jobs/bert-large-t/output/ckpt_10.pt"


def lines(start: Launched) -> list[str]:
    """An option with its values on each line."""
    launcher = ["-m torch.distributed.run", *options(start.launcher)] if start.launcher else []
    command = [f"cd {start.folder}", " ".join(["python3", *launcher[:1]]), *launcher[1:]]
    environment = [f"{name}={value}" for name, value in sorted(start.environment.items())]
    corrected = [f"corrected: {start.corrections}"] if start.corrections else []
    return [*command, *corrected, start.program, *options(start.arguments), *environment]


def options(words: tuple[str, ...]) -> list[str]:
    return [f"  {line}" for line in re.split(r" (?=--[a-z])", shlex.join(words)) if line]


def text(kind: str, engine: str) -> str:
    job = cases.JOBS[kind]
    fetched, train = cases.prepare(engine, job), lines(cases.start(engine, job))
    parts = [*(["# prepare", *fetched, ""] if fetched else []), "# train", *train]
    if job.precompile:
        changed = difflib.unified_diff(train, lines(cases.start(engine, job, "precompile")), n=0)
        parts += ["", "# precompile", *(line for line in changed if not line.startswith(("---", "+++", "@@")))]
    return "\n".join([*parts, ""])


def test_every_kind_has_a_case() -> None:
    assert set(cases.JOBS) == set(kinds())


@pytest.mark.parametrize("engine", cases.ENGINES)
@pytest.mark.parametrize("kind", cases.JOBS)
def test_golden(kind: str, engine: str) -> None:
    """TRN_UPDATE_GOLDEN=1 writes them again."""
    file = GOLDEN / f"{kind}.{engine}.txt"
    found = text(kind, engine)
    if os.environ.get("TRN_UPDATE_GOLDEN") == "1":
        file.write_text(found)
    assert found == file.read_text()


@pytest.mark.parametrize("engine", cases.ENGINES)
def test_a_restarted_job_starts_from_its_newest_checkpoint(engine: str) -> None:
    first = cases.start(engine, BertLarge(nodes=2))
    again = cases.start(engine, BertLarge(nodes=2), "train", CHECKPOINT)
    assert again.arguments == (*first.arguments, "--resume_ckpt", "--resume_ckpt_path", CHECKPOINT)


def test_a_script_that_fails_is_reported() -> None:
    job = BertLarge(phase=2, checkpoint="/efs/ckpt_1.pt")
    on = cases.cluster("kubernetes", job)
    with pytest.raises(
        RuntimeError, match=r"(?s)node\.sh of bert-large-t did not run to its end: .*there is no checkpoint"
    ):
        launched(job, on)
