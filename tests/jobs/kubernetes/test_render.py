"""What is sent: readable golden files, and objects that the official schemas take."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from sandbox.kubernetes import schemas
from tests.jobs.kubernetes.conftest import fleet, make_cluster
from tests.support import golden
from trainium_cdk.client.jobs.kubernetes import parts, render
from trainium_cdk.client.jobs.kubernetes.objects import objects, text
from trainium_cdk.client.jobs.kubernetes.parts import MAX_NAME, object_name
from trainium_cdk.client.jobs.models import Plan
from trainium_cdk.client.jobs.runner import settings_in
from trainium_cdk.description.outputs import EksCluster
from trainium_cdk.jobs import AnyJob, BertLarge, Gpt, JobError, Script, TorchTitan
from trainium_cdk.runner import spec

GOLDEN = Path(__file__).parent / "golden"
CLUSTER = make_cluster(fleet(nodes=16), neuron_release="2.28.1")
BOTH = make_cluster(
    neuron_release="2.28.1", mount_dirs=("/efs", "/fsx"), claims=("efs-claim", "fsx-claim"), shared_dir="/fsx"
)
SCRIPT = b'#!/bin/bash\ntorchrun --nnodes "$NNODES" --node_rank "$NODE_RANK" train.py "$@"\n'
JOBS: dict[str, AnyJob] = {
    "bert-large": BertLarge(nodes=2),
    "gpt-6.7b": Gpt(nodes=4),
    "script": Script(
        filename="run.sh", content=SCRIPT, nodes=2, args=("--name", "it's $(HOME) $HOME"), time_limit="90"
    ),
}
MORE: dict[str, AnyJob] = {
    "phase-2": BertLarge(nodes=2, phase=2, checkpoint="bert-large-20261120-4f3a9c", time_limit="2-00:00:00"),
    "phase-2-file": BertLarge(phase=2, checkpoint="/efs/it's/ckpt_28125.pt", data="s3://bucket/my data.tar"),
    "own-data": Gpt(nodes=2, data="/efs/corpus", precompile=False, env={"A": "x y\n$z"}),
    "python": Script(filename="train+1.py", content=b"print(1)", tasks_per_node=4, precompile=True, args=("a\nb", "")),
    "binary": Script(filename="tool", content=b"#!/bin/true\n\xff\x00", cache="My.Cache"),
    "image": BertLarge(image="111122223333.dkr.ecr.us-east-1.amazonaws.com/trn@sha256:" + "0" * 64),
}
REF = "0123456789abcdef0123456789abcdef01234567"
NATIVE = make_cluster(
    fleet("trn2.48xlarge", 16),
    neuron_release="2.33.0",
    neuron_driver="2.31.7.0",
    framework="torch-native",
    image="111122223333.dkr.ecr.us-east-1.amazonaws.com/torch-neuron:1",
)
NEWER: dict[str, tuple[AnyJob, EksCluster]] = {
    "torchtitan-qwen3-8b": (TorchTitan(nodes=2, ref=REF, preset="qwen3-8b"), NATIVE),
    "torchtitan-llama3.1-8b": (
        TorchTitan(
            nodes=2,
            ref=REF,
            preset="llama3.1-8b",
            assets="/efs/it's llama",
            data="/efs/it's text",
            override=("compile.enable", "training.seq_len=4 k"),
        ),
        NATIVE,
    ),
}
ALL = {**JOBS, **MORE, **{name: job for name, (job, _) in NEWER.items()}}


def home(name: str) -> EksCluster:
    """A cluster whose release and instance types the job runs on."""
    return NEWER[name][1] if name in NEWER else CLUSTER


def readable(rendered: Plan) -> str:
    """Without what changes with each version of the runner."""
    made = objects(rendered, CLUSTER)
    runner, digest = made.runner["metadata"]["name"], made.digest
    return text(rendered).replace(runner, "[runner]").replace(digest, "[SHA-256]")


@pytest.mark.parametrize("name", JOBS)
def test_golden(name: str) -> None:
    found = readable(render(JOBS[name], CLUSTER, "20261120-4f3a9c"))
    assert found == golden(GOLDEN / f"{name}.yaml", found)


def test_a_job_tells_its_settings_but_neither_its_variables_nor_a_scripts_content_and_arguments() -> None:
    made = Script(
        filename="run.sh", content=b"true secret", args=("secret",), env={"TOKEN": "secret"}, nodes=2, name="own"
    )
    record = objects(render(made, CLUSTER, "t"), CLUSTER).jobs[0]["metadata"]["annotations"][parts.DESCRIPTION]
    assert settings_in(record) == {"filename": "run.sh", "nodes": 2, "name": "own"}
    assert "secret" not in record
    assert [settings_in(damaged) for damaged in ("", "{}", "[]", '{"job": 1}', "[" * 10_000)] == [{}] * 5


@pytest.mark.parametrize("cluster", [CLUSTER, BOTH], ids=["efs", "efs and fsx"])
@pytest.mark.parametrize("name", ALL)
def test_objects_match_the_official_schemas_and_have_the_job_in_them(name: str, cluster: Any) -> None:
    on = cluster if ALL[name].nodes <= 2 and name not in NEWER else home(name)
    rendered = render(ALL[name], on, "t")
    made = objects(rendered, on)
    assert schemas.validate_all([made.runner, *made.all]) == []
    [secret] = [one["stringData"] for one in made.parts if one["kind"] == "Secret"]
    sent = spec.from_json(spec.JobSpec, json.loads(secret["job.json"]))
    assert spec.to_json(replace(sent, variables=rendered.spec.variables)) == spec.to_json(rendered.spec)
    assert json.loads(secret.get("env.json", "{}")) == rendered.spec.variables


@pytest.mark.parametrize("name", ALL)
def test_the_dry_run_shows_the_job_and_all_objects_but_no_value(name: str) -> None:
    job = ALL[name].model_copy(update={"env": {"TOKEN": "s3cret \n x"}})
    rendered = render(job, home(name), "t")
    printed = text(rendered)
    described, *others = YAML(typ="safe").load_all(printed)
    assert described["id"] == rendered.id
    assert described["variables"] == {"TOKEN": "[not shown]"}
    assert "s3cret" not in printed
    made = objects(rendered, home(name))
    every = [made.runner, *made.all]
    hidden = ("stringData", "binaryData")
    assert [{k: v for k, v in one.items() if k not in hidden} for one in others] == [
        {k: v for k, v in one.items() if k not in hidden} for one in every
    ]


def test_the_compiler_gets_the_lnc_of_the_node_group() -> None:
    other = make_cluster(fleet("trn2.48xlarge", cores=128, lnc=1))
    made = render(Script(filename="x.sh", content=b"true"), other, "t").spec
    [stage] = made.stages
    assert stage.program is not None
    assert made.environment.cores == 128
    assert stage.program.variables["NEURON_LOGICAL_NC_CONFIG"] == "1"
    assert stage.program.variables["NEURON_CC_FLAGS"] == "--logical-nc-config=1"
    assert "LOGICAL_NC" not in text(render(Script(filename="x.sh", content=b"true"), CLUSTER, "t"))


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("bert-large-t", "bert-large-t"),
        ("gpt-6.7b-t", "gpt-6-7b-t"),
        ("2.x-t", "job-2-x-t"),
        ("a" * MAX_NAME, "a" * MAX_NAME),
    ],
)
def test_names(id: str, name: str) -> None:
    assert object_name(id) == name


words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=30)
@given(
    st.binary(min_size=1, max_size=200),
    st.lists(words, max_size=4),
    st.dictionaries(st.from_regex(r"X_[A-Z]{1,8}", fullmatch=True), words, max_size=3),
)
def test_scripts_arguments_and_variables_arrive_as_they_are(
    content: bytes, args: list[str], env: dict[str, str]
) -> None:
    try:
        job = Script(filename="show", content=content, args=tuple(args), env=env)
    except JobError:
        return  # an empty script
    [secret] = [
        one["stringData"] for one in objects(render(job, CLUSTER, "t"), CLUSTER).parts if one["kind"] == "Secret"
    ]
    sent = spec.from_json(spec.JobSpec, json.loads(json.loads(json.dumps(secret["job.json"]))))
    [stage] = sent.stages
    assert stage.program is not None
    assert dict(sent.files) == {"show": content}
    assert list(stage.program.words[len(stage.program.words) - len(args) :]) == args
    assert json.loads(secret.get("env.json", "{}")) == env
