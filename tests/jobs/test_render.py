"""What is sent: a job as readable data, the same each time, without a secret where it is printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs.conftest import fleet, make_cluster
from tests.support import golden
from trainium_cdk.client.jobs.job_spec import render, text
from trainium_cdk.client.jobs.models import Plan
from trainium_cdk.jobs import AnyJob, BertLarge, Gpt, JobError, Script
from trainium_cdk.runner.head.submit import digest_of
from trainium_cdk.runner.spec import JobSpec, from_json, to_json

GOLDEN = Path(__file__).parent / "golden"
CLUSTER = make_cluster(neuron_release="2.28.1")
MIXED = make_cluster(
    fleet(nodes=2, resource="a"), fleet("trn2.48xlarge", 4, resource="b"), fleet("trn1.2xlarge", queue="cheap")
)
SCRIPT = b'#!/bin/bash\ntorchrun --nnodes "$NNODES" --node_rank "$NODE_RANK" train.py "$@"\n'
JOBS: dict[str, AnyJob] = {
    "bert-large": BertLarge(nodes=16),
    "gpt-6.7b": Gpt(nodes=16),
    "script": Script(filename="run.sh", content=SCRIPT, nodes=2, args=("--name", "it's $HOME"), env={"A": "s3cret"}),
}


@pytest.mark.parametrize("name", JOBS)
def test_golden(name: str) -> None:
    found = re.sub("[0-9a-f]{64}[.]pyz", "VERSION.pyz", text(render(JOBS[name], CLUSTER, "20261120-4f3a9c")))
    assert found == golden(GOLDEN / f"{name}.json", found)


def test_neither_variables_nor_files_are_shown() -> None:
    rendered = render(JOBS["script"], CLUSTER, "t")
    assert "s3cret" not in text(rendered)
    assert '"A": "(not shown)"' in text(rendered)
    assert f'"run.sh": "{len(SCRIPT)} bytes"' in text(rendered)
    assert "torchrun" not in repr(rendered)


def test_a_plan_is_printed_and_stored() -> None:
    rendered = render(BertLarge(nodes=16), CLUSTER, "t")
    assert rendered.describe() == [
        "16 nodes of trn1.32xlarge in queue compute1, 32 NeuronCores each",
        "global batch size 65536 = 16 sequences x 8 accumulation steps x 512 data-parallel",
        "own packages, on top of Neuron SDK 2.28.1 with Python 3.12: h5py==3.15.1, huggingface-hub==0.24.5, requests==2.31.0, "
        "tensorboard==2.21.0, transformers==4.44.0 (installed once in /efs, about 160 MB)",
        "prepare runs on one c5.2xlarge of queue cpu (0.34 USD an hour), unless nothing must be fetched",
    ]
    kept = rendered.spec.shown
    assert (kept["global_batch_size"], kept["workers"], kept["nodes"]) == (65536, 512, 16)
    assert rendered.directory == "/efs/trn/jobs/bert-large-t"


def options(rendered: Plan) -> dict[str, list[str]]:
    """What sbatch gets, by the last stage of each job of Slurm's."""
    jobs = json.loads(text(rendered))["slurm"]
    return {name.rpartition(":")[2]: words for words in (one["sbatch"] for one in jobs) for name in words[:1]}


@pytest.mark.parametrize(("restarts", "requeue"), [(None, "--requeue"), (0, "--no-requeue"), (5, "--requeue")])
def test_restarts(restarts: int | None, requeue: str) -> None:
    made = render(BertLarge(restarts=restarts), CLUSTER, "t")
    assert requeue in options(made)["train"]
    assert "--requeue" in options(made)["prepare"]
    assert made.spec.slurm
    assert made.spec.slurm.restarts == restarts


def test_a_queue_of_several_kinds_of_nodes_gets_those_of_the_job() -> None:
    made = options(render(BertLarge(instance_type="trn2.48xlarge", time_limit="2-00:00:00"), MIXED, "t"))
    assert "--constraint=b" in made["train"]
    assert "--partition=cheap" in made["prepare"]
    assert [stage for stage, words in made.items() if any(word.startswith("--time=") for word in words)] == ["train"]


def test_a_different_job_with_the_same_token_is_another_one() -> None:
    one, other = (render(BertLarge(nodes=n), CLUSTER, "t") for n in (1, 2))
    assert one.id == other.id
    assert digest_of(one.spec) != digest_of(other.spec)


words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=30)
@given(st.lists(words, max_size=4), st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), words, max_size=3), st.binary(min_size=1, max_size=200))  # fmt: skip
def test_rendering_any_input_gives_data_that_is_stable_and_read_again(
    args: list[str], env: dict[str, str], content: bytes
) -> None:
    try:
        job = Script(filename="run.sh", content=content, args=tuple(args), env=env)
    except JobError:
        return  # empty, or a name of Slurm's
    made = render(job, CLUSTER, "t")
    assert text(made) == text(render(job, CLUSTER, "t"))
    again = from_json(JobSpec, json.loads(json.dumps(to_json(made.spec))))
    assert digest_of(again) == digest_of(made.spec)
    assert again.variables == env
    assert not set(args) & {word for stage in options(made).values() for word in stage}
