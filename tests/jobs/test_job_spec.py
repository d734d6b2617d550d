"""From a job that fits its cluster to the data that the runner carries out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.jobs.conftest import described, fleet, make_cluster
from tests.jobs.kubernetes import conftest as kubernetes
from trainium_cdk.client.jobs.job_spec import job_spec
from trainium_cdk.client.jobs.kubernetes.parts import object_name
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.errors import JobError
from trainium_cdk.jobs import BertLarge, Finetune, Script
from trainium_cdk.runner import spec
from trainium_cdk.runner.spec import Budget, Checkpoints, HealthRules, Place, Slurm

BERT = make_cluster(neuron_release="2.28.1")


def of(job: Any, cluster: Any = BERT, **options: Any) -> spec.JobSpec:
    return job_spec(f"{job.label}-t", plan(job, cluster), **options)


def script(**fields: Any) -> Any:
    return described("script", **fields)


@pytest.mark.parametrize("engine", ["slurm", "kubernetes"])
def test_a_job_is_the_same_json_there_and_back(engine: str) -> None:
    cluster = BERT if engine == "slurm" else kubernetes.make_cluster(neuron_release="2.28.1")
    job = BertLarge(nodes=2, env={"A": "1"}, time_limit="2:00:00")
    text = json.dumps(spec.to_json(of(job, cluster)))
    assert text == json.dumps(spec.to_json(of(job, cluster)))
    assert json.dumps(spec.to_json(spec.from_json(spec.JobSpec, json.loads(text)))) == text


def test_stages_and_what_they_run() -> None:
    made = of(BertLarge(nodes=2, time_limit="2:00:00"))
    prepare, precompile, train = made.stages
    assert (prepare.name, prepare.nodes, prepare.program) == ("prepare", 1, None)
    assert precompile.program is not None
    assert precompile.program.words[:3] == ("neuron_parallel_compile", "python3", "-m")
    assert (precompile.seconds, train.seconds) == (None, 7200)
    assert train.program is not None
    assert train.program.words[:2] == ("python3", "-m")
    assert (train.again, of(script()).stages[-1].again) == (True, False)
    # one that does not say what it compiles: what it trains, but from the start
    [compiles] = [stage for stage in of(script(precompile=True)).stages if stage.name == "precompile"]
    assert compiles.program is not None
    assert compiles.program.words == ("neuron_parallel_compile", "bash", (Place("files"), "/hello.sh"))


def test_copies_on_a_node() -> None:
    [train] = of(script(tasks_per_node=4, nodes=2)).stages
    assert (train.nodes, train.processes) == (2, 4)


def test_variables_of_the_user_stand_apart() -> None:
    """And win: those of the launch environment with the same names are left out."""
    made = of(script(env={"HF_TOKEN": "secret", "MASTER_PORT": "2040"}))
    assert made.variables == {"HF_TOKEN": "secret", "MASTER_PORT": "2040"}
    [train] = made.stages
    assert train.program is not None
    assert {"HF_TOKEN", "MASTER_PORT"} & set(train.program.variables) == set()
    without = json.dumps(spec.to_json({**vars(made), "variables": {}}))
    assert "secret" not in without
    assert "secret" not in repr(made)


@pytest.mark.parametrize(("given", "got"), [({}, None), ({"NEURON_CC_FLAGS": "-O1"}, "-O1 --logical-nc-config=2")])
def test_flags_of_the_compiler_are_added_to_those_of_the_user(given: dict[str, str], got: str | None) -> None:
    cluster = make_cluster(fleet("trn2.48xlarge", lnc=2), neuron_release="2.28.1")
    made = of(script(env=given), cluster)
    assert made.variables.get("NEURON_CC_FLAGS") == got
    program = made.stages[-1].program
    assert program is not None
    assert program.variables.get("NEURON_CC_FLAGS") == (None if given else "--logical-nc-config=2")


@pytest.mark.parametrize(
    ("cluster", "venv", "required"),
    [
        (make_cluster(venv="aws_neuron_venv"), "~/aws_neuron_venv", True),
        (make_cluster(venv="~ubuntu/venv"), "~ubuntu/venv", True),
        (make_cluster(venv="/opt/venv"), "/opt/venv", True),
        (make_cluster(venv="/efs/venv"), (Place("root"), "/efs/venv"), True),
        (make_cluster(venv="/efs-2/venv"), "/efs-2/venv", True),
        (make_cluster(venv="venv", framework="none"), "~/venv", False),
        (kubernetes.make_cluster(), "", False),
    ],
)
def test_the_environment_of_python(cluster: Any, venv: spec.Word, required: bool) -> None:
    made = of(script(), cluster).environment
    assert (made.venv, made.venv_required) == (venv, required)


@pytest.mark.parametrize(
    ("job", "cluster", "checks"),
    [
        (script(), make_cluster(), "refuse"),
        (script(), make_cluster(framework="none"), "report"),
        (script(queue="cpu"), make_cluster(), ""),
        (described("nccom"), make_cluster(), ""),
        (described("nccom"), kubernetes.make_cluster(), ""),
        (script(), kubernetes.make_cluster(), "refuse"),
    ],
)
def test_drivers_and_runtimes(job: Any, cluster: Any, checks: str) -> None:
    made = of(job, cluster).environment
    assert made.checks == checks
    assert all(cluster.version_fix in rule.words for rule in made.rules)
    assert {(rule.driver, rule.runtime) for rule in made.rules} >= {(("", "2.27"), ("2.32", ""))}


@pytest.mark.parametrize(
    ("fields", "cluster", "expected"),
    [
        ({}, make_cluster(), Slurm("compute1", "cpu", "i-0123456789abcdef0")),
        (
            {"account": "research", "qos": "high", "after": "a-1/3", "restarts": 0, "sbatch": ("--exclude=node-3",)},
            make_cluster(),
            Slurm("compute1", "cpu", "i-0123456789abcdef0", ("--exclude=node-3",), "a-1/3", "research", "high", 0),
        ),
        (
            {"nodes": 2},
            make_cluster(fleet(nodes=2), fleet(nodes=4, resource="other", efa=0)),
            Slurm("compute1", "compute1", "i-0123456789abcdef0", ("--constraint=trn",)),
        ),
    ],
)
def test_what_slurm_is_told(fields: dict[str, Any], cluster: SlurmCluster, expected: Slurm) -> None:
    assert of(script(**fields), cluster).slurm == expected


def test_kubernetes_is_told_nothing_of_slurm() -> None:
    cluster = kubernetes.make_cluster()
    assert of(script(), cluster).slurm is None
    with pytest.raises(JobError, match=r"sbatch is --exclude=a, but .* runs Kubernetes, and no Slurm. Remove it"):
        of(script(sbatch=("--exclude=a",)), cluster)
    with pytest.raises(
        JobError, match=r"past_block_end is set, but .* runs Kubernetes, where EKS itself ends the nodes"
    ):
        of(script(past_block_end=True), cluster)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--nodes=4", "but trn sets --nodes itself. Remove it, and use --nodes of trn submit"),
        ("--exclusive", "which trn does not pass to sbatch: a job has its nodes to itself. Remove it"),
        ("--wrap=id", "a job's program is its script"),
        ("--exc=x", r"which sbatch may read as --exclusive. Write the option in full"),
        ("--out=/x", r"may read as --output"),
        ("-N4", "not in the right format.*an option in full, --NAME or --NAME=VALUE"),
        ("exclude", "not in the right format"),
        ("--exclude=a\nb", "not in the right format"),
    ],
)
def test_options_that_are_not_passed_on(option: str, message: str) -> None:
    with pytest.raises(JobError, match=f"(?s){message}"):
        script(sbatch=(option,))


@pytest.mark.parametrize(
    "option",
    ["--reservation=weekly", "--exclude=node-3", "--nodelist=a,b", "--begin=now+1hour", "--gres=disk:1", "--dependency=afterany:12", "--nice", "--switches=1@60"],
)  # fmt: skip
def test_options_that_are_passed_on(option: str) -> None:
    made = of(script(sbatch=(option,))).slurm
    assert made is not None
    assert made.options == (option,)


def test_checkpoints_and_another_job() -> None:
    assert of(described("nccom", nodes=2)).checkpoints is None
    assert of(script()).checkpoints == Checkpoints("checkpoints")
    made = of(BertLarge(resume_from="bert-large-1"))
    same = {"kind": "bert-large", "phase": "1", "optimizer": "lamb"}
    assert made.checkpoints == Checkpoints("output", "", "ckpt_*.pt", "zip", "others", same, "bert-large-1")
    on = kubernetes.make_cluster(kubernetes.fleet("trn2.48xlarge"), **_native())
    member = of(Finetune(resume_from="my.run-1/3"), on, folder_of=object_name)
    assert member.checkpoints is not None
    assert member.checkpoints.source == "my-run-1/3"
    folder = of(script(resume_from="/efs/run 7")).checkpoints
    assert folder is not None
    assert folder.source == "/efs/run 7"


def _native() -> dict[str, Any]:
    return {
        "neuron_release": "2.33.0",
        "neuron_driver": "2.31.7.0",
        "framework": "torch-native",
        "image": "111122223333.dkr.ecr.us-east-1.amazonaws.com/torch-neuron:1",
    }


def test_what_is_shown() -> None:
    made = of(BertLarge(nodes=2, user="alice", array="0-3"))
    assert made.array == "0-3"
    assert made.shown == {
        "kind": "bert-large",
        "queue": "compute1",
        "prepare_queue": "cpu",
        "instance_type": "trn1.32xlarge",
        "nodes": 2,
        "workers": 64,
        "ranks_per_node": 32,
        "global_batch_size": 65536,
        "user": "alice",
        "checkpoints": "output",
    }
    assert made.settings == {"nodes": 2, "user": "alice", "array": "0-3"}


def test_a_script_alone_and_its_content() -> None:
    made = of(Script(filename="run.sh", content=b"#!/bin/bash\ntrue\n", args=("a b",)))
    assert made.files == {"run.sh": b"#!/bin/bash\ntrue\n"}
    assert "content" not in made.settings
    assert made.prepare == ()


@pytest.mark.parametrize(
    ("actions", "made"),
    [
        ("", HealthRules()),
        ("hang=restart", HealthRules("restart")),
        ("hang=restart nan=stop", HealthRules("restart", "stop")),
        ("nan=stop moon=land", HealthRules(nan="stop")),  # of a later release
    ],
)
@pytest.mark.parametrize("make", [make_cluster, kubernetes.make_cluster])
def test_what_is_done_about_a_training_that_does_not_go_on(make: Any, actions: str, made: HealthRules) -> None:
    assert of(script(), make(health=actions, image="a/b:c")).health == made


def test_what_a_job_may_cost() -> None:
    """As time of one node, whatever their number: trn1.32xlarge costs 21.50 USD an hour."""
    for nodes in (1, 4):
        assert of(script(nodes=nodes, max_usd=43.0)).budget == Budget(43.0, 7200)
    assert of(script()).budget is None
    block = make_cluster(fleet(capacity_type="capacity-block"))
    with pytest.raises(
        JobError,
        match=r"^max_usd is 43, but a capacity block is paid for when it is bought\. Remove it, and give --time-limit$",
    ):
        of(script(max_usd=43.0), block)
    elsewhere = make_cluster(region="xx-moon-1")
    with pytest.raises(JobError, match=r"but the catalogue has no price of trn1\.32xlarge in xx-moon-1"):
        of(script(max_usd=43.0), elsewhere)
