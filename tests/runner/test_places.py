"""What a program gets on its node: places and variables."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainium_cdk.runner import __main__ as runner
from trainium_cdk.runner.spec import Checkpoints, JobSpec, NodeEnvironment, Place, Program, Rule, StageSpec, Sweep
from trainium_cdk.runner.work import node
from trainium_cdk.runner.work.node import _has, copies_here
from trainium_cdk.runner.work.places import StageNode, find_checkpoint, places, variables, word
from trainium_cdk.runner.work.process import CannotStart

TRN = Path("/efs/trn")
PLAIN = NodeEnvironment(cores=32, cache="c")
NODE = StageNode(TRN / "jobs/run-1", TRN / "jobs/run-1", 1, 2, "n-2", "10.0.0.1", "41-0")


def made(
    environment: NodeEnvironment = PLAIN,
    node: StageNode = NODE,
    own: Mapping[str, str] = {},
    **given: Any,
) -> dict[str, str]:
    stage = StageSpec("train", 2, Program((), "/", variables=given))
    job = JobSpec("run-1", "script", (stage,), environment, array="0-3")
    return variables(node, job, stage, own, places(node, job, stage, own))


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NEURON_CC_FLAGS", "TORCH_NEURONX_NEFF_CACHE_DIR", "PYTHONPATH", "TRN_SHARED_ROOT"):
        monkeypatch.delenv(name, raising=False)


def test_places_of_a_node() -> None:
    stage = StageSpec("train", 2, Program((), "/"))
    job = JobSpec("run-1", "script", (stage,), NodeEnvironment(cores=32, cache="c"))
    assert places(NODE, job, stage, {}, "old driver") == {
        "job": "/efs/trn/jobs/run-1", "files": "/efs/trn/jobs/run-1/files", "trn": "/efs/trn", "root": "",
        "cache": "/efs/trn/neuron_cache/c/n-2", "nodes": "2", "node": "1", "processes": "32", "workers": "64", "master": "10.0.0.1",
        "port": "2022", "host": "n-2", "id": "run-1", "run": "41-0", "problem": "old driver",
    }  # fmt: skip


def test_places_of_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRN_SHARED_ROOT", "/sandbox")
    stage = StageSpec("train", program=Program((), "/", variables={"MASTER_PORT": "2022"}))
    root = Path("/efs/trn/jobs/run-1")
    node = StageNode(root, root / "7", index="7", checkpoint="/c")
    at = places(node, JobSpec("run-1", "script", (stage,)), stage, {"MASTER_PORT": "2023"})
    assert at["id"] == "run-1/7"
    chosen = ("job", "files", "trn", "root", "index", "checkpoint", "port", "processes")
    assert [at[name] for name in chosen] == [
        "/efs/trn/jobs/run-1/7", "/efs/trn/jobs/run-1/files", "/efs/trn", "/sandbox", "7", "/c", "2023", "1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "own", "name", "value"),
    [
        (NodeEnvironment(cache="c"), {}, "NEURON_CC_FLAGS", "--cache_dir=/efs/trn/neuron_cache/c/n-2"),
        (NodeEnvironment(cache="c"), {"NEURON_CC_FLAGS": "-O1 $x"}, "NEURON_CC_FLAGS", "--cache_dir=/efs/trn/neuron_cache/c/n-2 -O1 $x"),
        (NodeEnvironment(cache="c", framework="torch-native"), {}, "TORCH_NEURONX_NEFF_CACHE_DIR", "/efs/trn/neuron_cache/c/n-2"),
        (NodeEnvironment(framework="torch-native"), {"TORCH_NEURONX_NEFF_CACHE_DIR": "/own"}, "TORCH_NEURONX_NEFF_CACHE_DIR", "/own"),
        (NodeEnvironment(framework="torch-native"), {}, "NEURON_CC_FLAGS", None),
        (NodeEnvironment(cores=32, cache="c", framework="jax"), {}, "JAX_COMPILATION_CACHE_DIR", "/efs/trn/neuron_cache/c/jax"),
        (NodeEnvironment(cores=32, cache="c", framework="jax"), {}, "NEURON_CC_FLAGS", "--cache_dir=/efs/trn/neuron_cache/c/n-2"),
        (NodeEnvironment(cores=32, framework="jax"), {"JAX_COMPILATION_CACHE_DIR": "/own"}, "JAX_COMPILATION_CACHE_DIR", "/own"),
        (NodeEnvironment(framework="jax"), {}, "JAX_COMPILATION_CACHE_DIR", None),
        (NodeEnvironment(cores=32), {}, "NPROC_PER_NODE", "32"),
        (NodeEnvironment(), {"A": "of the user"}, "A", "of the user"),
    ],
)  # fmt: skip
def test_variables(environment: NodeEnvironment, own: dict[str, str], name: str, value: str | None) -> None:
    assert made(environment, own=own, A="of the kind").get(name) == value


def test_variables_of_a_member() -> None:
    found = made(node=StageNode(NODE.root, NODE.root / "7", index="7"))
    assert (found["TRN_ARRAY_INDEX"], found["TRN_ARRAY_COUNT"]) == ("7", "4")


def test_values_of_a_member() -> None:
    stage = StageSpec("train", program=Program((), "/", variables={"TRN_SWEEP_LR": (Place("sweep.lr"),)}))
    sweep = Sweep(("lr", "a.b"), (("1e-4", "x"), ("$(id)", "y")))
    job = JobSpec("run-1", "script", (stage,), PLAIN, array="0-1", sweep=sweep)
    node = StageNode(NODE.root, NODE.root / "1", index="1")
    at = places(node, job, stage, {})
    assert word(("--lr=", Place("sweep.lr"), Place("sweep.a.b")), at) == "--lr=$(id)y"
    assert variables(node, job, stage, {}, at)["TRN_SWEEP_LR"] == "$(id)"
    assert [sweep.of(index) for index in ("0", "2", "", "-1", "²")] == [{"lr": "1e-4", "a.b": "x"}, {}, {}, {}, {}]


def test_a_kinds_modules_come_before_a_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/node")
    kind = (Place("job"), "/code")
    assert made(PYTHONPATH=kind)["PYTHONPATH"] == "/efs/trn/jobs/run-1/code:/node"
    assert made(PYTHONPATH=kind, own={"PYTHONPATH": "/user"})["PYTHONPATH"] == "/efs/trn/jobs/run-1/code:/user"


KEY, URI = {"WANDB_API_KEY": "k"}, {"MLFLOW_TRACKING_URI": "http://h"}
RUN = {"WANDB_RUN_ID": "run-1", "WANDB_RESUME": "allow", "WANDB_NAME": "run-1"}
TAGS = {"mlflow.runName": "run-1", "trn.job": "run-1", "trn.stage": "train"}


@pytest.mark.parametrize(
    ("own", "given", "found"),
    [
        ({}, {}, {}),
        ({"A": "1"}, {"TRN_GIT_COMMIT": "abc"}, {}),
        (KEY, {}, RUN),
        (KEY, {"TRN_GIT_COMMIT": "abc"}, {**RUN, "WANDB_GIT_COMMIT": "abc"}),
        ({"WANDB_MODE": "offline", "WANDB_NAME": "own"}, {}, {**RUN, "WANDB_NAME": "own"}),
        ({**KEY, "WANDB_RUN_ID": ""}, {}, {"WANDB_RESUME": "allow", "WANDB_NAME": "run-1"}),
        (URI, {}, {"MLFLOW_RUN_CONTEXT": TAGS}),
        (URI, {"TRN_GIT_COMMIT": "abc"}, {"MLFLOW_RUN_CONTEXT": {**TAGS, "mlflow.source.git.commit": "abc"}}),
        ({**URI, "MLFLOW_RUN_CONTEXT": "{}"}, {}, {"MLFLOW_RUN_CONTEXT": {}}),
    ],
)
def test_trackers_know_the_job(own: dict[str, str], given: dict[str, str], found: dict[str, object]) -> None:
    told = {name: value for name, value in made(own=own, **given).items() if name.startswith(("WANDB_", "MLFLOW_"))}
    told = {name: value for name, value in told.items() if name not in own or name in found}
    shown = {name: json.loads(value) if name == "MLFLOW_RUN_CONTEXT" else value for name, value in told.items()}
    assert shown == found


def test_a_member_is_a_run_of_its_own_and_compiling_is_none() -> None:
    member = StageNode(NODE.root, NODE.root / "7", index="7")
    found = made(node=member, own=KEY)
    assert (found["WANDB_RUN_ID"], found["WANDB_RUN_GROUP"]) == ("run-1-7", "run-1")
    stage = StageSpec("precompile", 2, Program((), "/"))
    job = JobSpec("run-1", "script", (stage,), PLAIN)
    compiling = variables(NODE, job, stage, KEY, places(NODE, job, stage, KEY))
    assert (compiling["WANDB_MODE"], "WANDB_RUN_ID" in compiling) == ("disabled", False)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (NodeEnvironment(venv="/no/such", venv_required=True), "there is no virtual environment at /no/such"),
        (
            NodeEnvironment(venv="~nobody-at-all/x", venv_required=True),
            "its virtual environment was not found on this node",
        ),
        (NodeEnvironment(packages=True), "this job's packages were removed. Submit the job again"),
    ],
)
def test_an_environment_that_is_missing(environment: NodeEnvironment, message: str) -> None:
    with pytest.raises(CannotStart, match=message):
        made(environment)


def test_an_environment_that_need_not_be() -> None:
    assert "VIRTUAL_ENV" not in made(NodeEnvironment(venv="/no/such"))


def test_a_place_that_there_is_not() -> None:
    with pytest.raises(CannotStart, match="the job names a place 'checkpoint' that this node does not have"):
        word((Place("checkpoint"),), {})


def test_ranks_of_copies() -> None:
    assert copies_here(NODE, StageSpec("train")) == {0: {}}
    assert copies_here(NODE, StageSpec("train", processes=2)) == {
        0: {"RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4"},
        1: {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"},
    }


def test_one_node_forgets_checkpoints_for_all(tmp_path: Path) -> None:
    job = JobSpec("a", "k", (), checkpoints=Checkpoints("output", "deep", "step-*", "done", "others", {"kind": "k"}))
    assert find_checkpoint(JobSpec("a", "k", ()), tmp_path) == ""
    assert find_checkpoint(job, tmp_path, first=False) == ""
    for step in (1, 2):
        (tmp_path / f"output/deep/step-{step}").mkdir(parents=True)
        (tmp_path / f"output/deep/step-{step}/done").write_text("x")
    assert find_checkpoint(job, tmp_path, first=False) == f"{tmp_path}/output/deep/step-2"
    assert (tmp_path / "output/deep/step-1").exists()
    assert find_checkpoint(job, tmp_path) == f"{tmp_path}/output/deep/step-2"
    assert not (tmp_path / "output/deep/step-1").exists()
    assert (tmp_path / "output/trn-checkpoints").read_text() == "kind k\n"


RULES = [Rule(("", "2.27"), ("", ""), "too old"), Rule(("2.29", ""), ("2.3", "2.33"), "use another")]


@pytest.mark.parametrize(
    ("driver", "runtime", "problem"),
    [
        ("", "2.30", "the Neuron driver is not loaded"),
        ("2.26.10.0", "", ""),
        ("2.26.10.0", "2.1", "driver 2.26.10.0 and runtime 2.1 are not compatible: too old"),
        ("2.27", "2.30.51.0", ""),
        ("2.29.0.0", "2.30.51.0", "are not compatible: use another"),
        ("2.29.0.0", "2.33", ""),
        ("2.29.0.0", "2.4", "use another"),  # by numbers: 2.4 is before 2.33
        ("2.29.0.0", "2.2.9", ""),
        ("2.100", "2.30", "use another"),
    ],
)
def test_versions(driver: str, runtime: str, problem: str) -> None:
    found = node.find_problem(RULES, driver, runtime)
    assert (problem in found, bool(found)) == (True, bool(problem))


@pytest.mark.parametrize(
    ("dpkg", "rpm", "runtime"),
    [
        ("echo 2.30.51.0-abc", "false", "2.30.51.0"),
        ("exit 1", "echo 2.33.1", "2.33.1"),
        ("exit 1", "exit 1", ""),
        ("echo none", "true", ""),
    ],
)
def test_the_runtime_that_is_installed(
    dpkg: str, rpm: str, runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, script in (("dpkg-query", dpkg), ("rpm", rpm)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert node.find_runtime({}) == runtime


def test_the_driver_that_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRN_SYS_ROOT", str(tmp_path))
    assert node.find_driver() == ""
    (tmp_path / "sys/module/neuron").mkdir(parents=True)
    (tmp_path / "sys/module/neuron/version").write_bytes(b"\xff\n2.28.0.0-x\n")
    assert node.find_driver() == "2.28.0.0"


@pytest.mark.parametrize(
    ("ports", "has"),
    [("", False), ("48620\n", True), ("8080,48620", True), ("48600-48700", True), ("148620,4862", False), ("x", False)],
)
def test_a_reserved_port(ports: str, has: bool) -> None:
    assert _has(ports, 48_620) is has


@pytest.mark.parametrize(
    ("written", "region", "address"),
    [
        (
            b"AWS_REGION=eu-west-1\0AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1:418/\0",
            "eu-west-1",
            "http://127.0.0.1:418/",
        ),
        (None, "us-west-2", "old"),
        (b"\xff", "us-west-2", "old"),
    ],
)
def test_a_job_finds_its_role_by_the_variables_of_its_node(
    written: bytes | None, region: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it was submitted: that place may have others."""
    if written:
        (tmp_path / "of-the-node").write_bytes(written)
    monkeypatch.setenv("TRN_JOB_ENVIRONMENT", str(tmp_path / "of-the-node"))
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "old")
    runner._find_role()
    assert (os.environ["AWS_REGION"], os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"]) == (region, address)
