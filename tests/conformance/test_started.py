"""What the runner starts for a job is what its rendered scripts start: words, folder and variables, for each kind, stage and engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from conformance import cases
from conformance.launched import Launched
from tests.conformance.started import described, started

JOBS = {**cases.JOBS, **cases.MORE}
CHECKPOINTS = {
    "bert-large": ["output/ckpt_10.pt"],
    "finetune": ["output/checkpoint-10/trainer_state.json"],
    "torchtitan": ["output/checkpoint/step-10/.metadata"],
    "gpt-6.7b": ["output/checkpoints/a-step=10.ckpt/done"],
}
GONE = {"TRN_CHECKPOINT", "TRN_PHASE1", "TRN_NODE_NAME"}
"""Variables of the scripts' own, which no program reads."""
WORK = {"finetune", "nccom"}
"""Kinds whose program was started wherever the script was: now it has a folder."""


def starts() -> Iterator[tuple[str, str, str, str]]:
    for name, job in JOBS.items():
        for engine in cases.ENGINES:
            for stage in ("precompile", "train") if job.precompile else ("train",):
                yield name, engine, stage, ""
            for checkpoint in CHECKPOINTS.get(job.kind, []):
                yield name, engine, "train", checkpoint


def as_now(start: Launched) -> Launched:
    """A start by the scripts, with what has another name now."""
    command = (word.replace("-t/script/", "-t/files/") for word in start.command)
    named = tuple(word.removesuffix("/*") if word.endswith("/snapshots/*") else word for word in command)
    variables = {name: value for name, value in start.environment.items() if name not in GONE}
    return replace(start, command=named, environment=variables)


@pytest.mark.parametrize(("name", "engine", "stage", "checkpoint"), [*starts()])
def test_the_same_start(name: str, engine: str, stage: str, checkpoint: str) -> None:
    job = JOBS[name]
    cluster = cases.cluster(engine, job)
    _, folder = described(job, cluster)
    files = [f"{folder}/{checkpoint}"] if checkpoint else []
    before = as_now(cases.start(engine, job, stage, *files))
    now = started(job, cluster, stage=stage, files=[*cases._named(job), *files])
    if job.kind in WORK:
        assert now.folder == f"{folder}/work"
        before = replace(before, folder=now.folder)
    if job.kind == "nccom":
        now = replace(now, command=tuple(word.replace("nccom.0-0", "nccom.0") for word in now.command))
    assert now == before


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start it as another user")


@as_root
@pytest.mark.parametrize("kind", cases.JOBS)
def test_as_the_pods_user_with_a_root_that_is_read_only(kind: str) -> None:
    """Every kind's containers run up to the program, although the instance metadata service does not answer; where they write, the pod has a
    volume."""
    job = cases.JOBS[kind]
    cluster = cases.cluster("kubernetes", job)
    for stage in ("precompile", "train") if job.precompile else ("train",):
        assert started(job, cluster, stage=stage, confined=True) == started(job, cluster, stage=stage)
