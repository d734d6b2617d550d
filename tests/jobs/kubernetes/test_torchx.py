"""The TorchX component, rendered by the real TorchX in an environment of its own, and run by a real Volcano."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from sandbox.kubernetes import schemas
from sandbox.kubernetes.api import path_of
from sandbox.paths import HOME as ROOT
from tests.jobs.kubernetes.conftest import Running, fleet, make_cluster
from tests.support import completed, need, until
from trainium_cdk.jobs import Script
from trainium_cdk.jobs.kubernetes import KubernetesBackend, render, status
from trainium_cdk.jobs.kubernetes.torchx import component, run_line
from trainium_cdk.outputs import EksCluster

TORCHX = ROOT / ".venvs/torchx/bin/torchx"


def torchx(folder: Path, cluster: EksCluster, *arguments: str, good: bool = True) -> Any:
    """The Volcano Job that TorchX would submit; its message where it refuses."""
    need(TORCHX.exists(), f"TorchX is not installed ({TORCHX}): make .venvs/torchx/.done")
    file = folder / "trn_component.py"
    file.write_text(component(cluster))
    config = "queue=trn,namespace=training,service_account=trn-job"
    run = ["run", "--dryrun", "-s", "kubernetes", "--workspace=", "-cfg", config, f"{file}:train", *arguments]
    done = completed([str(TORCHX), *run], env={"HOME": str(folder), "PATH": "/usr/bin:/bin"}, cwd=folder, timeout=900)
    if not good:
        assert done.returncode != 0
        return done.stderr
    assert done.returncode == 0, done.stderr
    return YAML(typ="safe").load(done.stdout.partition("=== SCHEDULER REQUEST ===")[2])


def test_it_requests_the_same_resources_as_trn(tmp_path: Path) -> None:
    cluster = make_cluster(fleet("trn1n.32xlarge", 4))
    theirs = torchx(tmp_path, cluster, "--script", "train.py", "--nnodes", "2", "--cacheset", "bert")
    assert schemas.validate(theirs) == []
    ours = render(Script(filename="x.sh", content=b"true", nodes=2, cache="bert"), cluster, "t")
    mine = status.train_spec(ours.jobs[0])
    limits = mine["containers"][0]["resources"]["limits"]
    assert theirs["spec"]["queue"] == ours.plan.fleet.queue
    assert len(theirs["spec"]["tasks"]) == 2
    text = ours.files["node.sh"].decode()
    for index, one in enumerate(theirs["spec"]["tasks"]):
        spec = one["template"]["spec"]
        [main] = spec["containers"]
        for device in ("aws.amazon.com/neuron", "vpc.amazonaws.com/efa"):
            assert main["resources"]["limits"][device] == limits[device]
        assert main["resources"]["limits"]["cpu"] == f"{limits['cpu']}000m"
        assert spec["nodeSelector"].items() <= mine["nodeSelector"].items()
        assert main["image"] == mine["containers"][0]["image"]
        assert spec["serviceAccountName"] == mine["serviceAccountName"]
        claims = [v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"] if "persistentVolumeClaim" in v]
        assert claims == list(cluster.claims)
        env = {e["name"]: e["value"] for e in main["env"] if not e["name"].startswith("TORCHX_")}
        assert {f"export {k}={v}" for k, v in env.items()} <= set(text.splitlines())
        command = main["command"][2]
        assert f"cache=/efs/trn/neuron_cache/bert/node-{index}\n" in command
        # the image's `torchrun` would start the image's Python, without the packages that `prepare` installs
        assert f"python3 -m torch.distributed.run --nproc_per_node 32 --nnodes 2 --node_rank {index} " in command
        assert "torchrun" not in command
        assert f"NODE_RANK={index} NPROC_PER_NODE=32" in command
        assert "aws.amazon.com/neurondevice" not in str(one)


@pytest.mark.parametrize(
    ("framework", "line"),
    [
        ("torch-xla", 'NEURON_CC_FLAGS="--cache_dir=$cache${NEURON_CC_FLAGS:+ $NEURON_CC_FLAGS}"'),
        ("torch-native", "export TORCH_NEURONX_NEFF_CACHE_DIR=${TORCH_NEURONX_NEFF_CACHE_DIR:-$cache}"),
    ],
)
def test_the_compile_cache_is_where_the_framework_looks(tmp_path: Path, framework: str, line: str) -> None:
    made = torchx(tmp_path, make_cluster(fleet("trn2.48xlarge"), framework=framework), "--script", "train.py")
    [task] = made["spec"]["tasks"]
    command = task["template"]["spec"]["containers"][0]["command"][2]
    assert line in command.splitlines()
    assert ("NEURON_CC_FLAGS" in command) == (framework == "torch-xla")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--nnodes", "9"), "nnodes is 9, but this cluster has at most 2 of trn1.32xlarge"),
        (("--instance_type", "p5.48xlarge"), "this cluster has no p5.48xlarge; it has trn1.32xlarge"),
    ],
)
def test_it_refuses_invalid_jobs(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in torchx(tmp_path, make_cluster(), "--script", "x.py", *arguments, good=False)


def test_its_command_can_be_copied() -> None:
    assert " 'my component.py:train' --script train.py" in run_line(make_cluster(), "my component.py")
    assert " component.py:train --script train.py" in run_line(make_cluster(), "component.py")


def test_it_runs(backend: KubernetesBackend, running: Running, tmp_path: Path) -> None:
    """All or none, on tainted nodes: Volcano's admission makes it a gang, and the API server's tolerates the devices' taint."""
    running.shared.mkdir(parents=True, exist_ok=True)
    (running.shared / "train.py").write_text(
        "import os, sys\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], sys.argv[1:])\n"
    )
    script_args = """--word "it's $HOME" '$(HOME)'"""
    job = torchx(
        tmp_path,
        running.cluster,
        "--script",
        "/efs/train.py",
        "--script_args",
        script_args,
        "--nnodes",
        "2",
        "--precompile",
        "False",
    )
    name = job["metadata"]["name"]
    api, path = running.kubernetes.api(), path_of("batch.volcano.sh/v1alpha1", "Job", name, "training")
    made = api.create({**job, "metadata": {**job["metadata"], "namespace": "training"}})
    assert made["spec"]["minAvailable"] == 2
    assert until(lambda: api.get(path).get("status", {}).get("state", {}).get("phase") == "Completed"), api.get(path)
    for rank in (0, 1):
        output = b"".join(backend.api.log(f"{name}-train-{rank}-0", f"train-{rank}")).decode()
        assert f"rank {rank} of 2 ['--word', \"it's $HOME\", '$(HOME)']" in output
    nodes = {p["spec"]["nodeName"] for p in backend.api.list("Pod", labels=f"volcano.sh/job-name={name}")}
    assert len(nodes) == 2
    api.delete(path)
