"""What each kind starts, fetches and needs, as data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance.launched import read_words
from tests.jobs.conftest import described, fleet, make_cluster
from trainium_cdk.client.jobs.kinds import kinds
from trainium_cdk.client.jobs.models import Job, Plan
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.runner.spec import Program

CASES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text("utf-8"))
NATIVE = {"neuron_release": "2.33.0", "neuron_driver": "2.31.7.0", "framework": "torch-native"}


def cluster(instance: str) -> SlurmCluster:
    """16 nodes: trn1 with PyTorch/XLA, trn2 with TorchNeuron."""
    if instance == "trn2":
        return make_cluster(fleet("trn2.48xlarge"), **NATIVE)
    return make_cluster(fleet(), neuron_release="2.28.1")


@pytest.mark.parametrize("case", CASES)
def test_what_a_job_is(case: str) -> None:
    told = dict(CASES[case])
    job = described(**told.pop("job"))
    assert shown(job, plan(job, cluster(told.pop("cluster")))) == told


def test_every_kind_is_told() -> None:
    assert {case["job"]["kind"] for case in CASES.values()} == set(kinds())


def shown(job: Job, planned: Plan) -> dict[str, Any]:
    """Its parts that are not empty, as a person reads them: a place is `<job>`."""
    program, compiled = job.program(planned), job.precompile_program(planned)
    made: dict[str, Any] = {"folder": read_words(program.folder), "train": line(program)}
    if compiled != replace(program, resume=()):
        made["precompile"] = line(compiled)
    rest = {
        "resume": " ".join(map(read_words, program.resume)),
        "variables": {name: read_words(word) for name, word in program.variables.items()},
        "folders": [read_words(word) for word in program.folders],
        "files": sorted(job.files(planned)),
        "prepare": [f"{step.do}: {read_words(step.with_)}" for step in job.prepare(planned)],
        "require": [read_words(word) for word in job.require(planned)],
    }
    return {**made, **{name: value for name, value in rest.items() if value}}


def line(program: Program) -> str:
    return " ".join(map(read_words, program.words))
