"""examples/torchx_component.py, rendered by the real TorchX in an environment of its own, and run by a real Volcano."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from sandbox.kubernetes import schemas
from sandbox.kubernetes.api import ApiError, path_of
from sandbox.paths import HOME as ROOT
from tests.jobs.kubernetes.conftest import Running, fleet, make_cluster
from tests.support import completed, need, need_kubernetes, until
from trainium_cdk import outputs
from trainium_cdk.client.cli.app import app
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, render, status
from trainium_cdk.client.jobs.kubernetes.objects import objects
from trainium_cdk.description.outputs import EksCluster
from trainium_cdk.jobs import Script

TORCHX, COMPONENT = ROOT / ".venvs/torchx/bin/torchx", ROOT / "examples/torchx_component.py"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Writes cluster.json, as `trn show cluster` prints it."""

    def written(cluster: EksCluster) -> Path:
        monkeypatch.setattr(outputs, "read", lambda *_: cluster)
        app(["show", "cluster", "--stack", cluster.stack], standalone_mode=False)
        file = tmp_path / "cluster.json"
        file.write_text(capsys.readouterr().out)
        assert outputs.from_json(file.read_text()) == cluster, "other commands take it as --cluster"
        return file

    return written


def torchx(file: Path, *arguments: str, good: bool = True) -> Any:
    """The Volcano Job that TorchX would submit; its message where it refuses."""
    need(TORCHX.exists(), f"TorchX is not installed ({TORCHX}): make .venvs/torchx/.done")
    config = "queue=trn,namespace=training,service_account=trn-job"
    run = ["run", "--dryrun", "-s", "kubernetes", "--workspace", "", "-cfg", config, f"{COMPONENT}:train"]
    run += ["--cluster", str(file), *arguments]
    env = {"HOME": str(file.parent), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    done = completed([str(TORCHX), *run], env=env, cwd=file.parent, timeout=900)
    if not good:
        assert done.returncode != 0
        return done.stderr
    assert done.returncode == 0, done.stderr
    return YAML(typ="safe").load(done.stdout.partition("=== SCHEDULER REQUEST ===")[2])


def test_it_requests_the_same_resources_as_trn(write: Any) -> None:
    need_kubernetes(volcano=True)
    cluster = make_cluster(fleet("trn1n.32xlarge", 4))
    theirs = torchx(write(cluster), "--script", "train.py", "--nnodes", "2", "--cacheset", "bert")
    assert schemas.validate(theirs) == []
    ours = render(Script(filename="x.sh", content=b"true", nodes=2, cache="bert"), cluster, "t")
    mine = status.train_spec(objects(ours, cluster).jobs[0])
    limits = mine["containers"][0]["resources"]["limits"]
    assert theirs["spec"]["queue"] == ours.fleet.queue
    assert len(theirs["spec"]["tasks"]) == 2
    program = ours.spec.stages[-1].program
    assert program is not None
    for index, one in enumerate(theirs["spec"]["tasks"]):
        spec = one["template"]["spec"]
        [main] = spec["containers"]
        for device in ("aws.amazon.com/neuron", "vpc.amazonaws.com/efa"):
            assert main["resources"]["limits"][device] == limits[device]
        assert main["resources"]["limits"]["cpu"] == f"{limits['cpu']}000m"
        assert main["resources"]["limits"]["memory"] == f"{int(limits['memory'].removesuffix('Gi')) * 1024}M"
        assert spec["nodeSelector"].items() <= mine["nodeSelector"].items()
        assert main["image"] == mine["containers"][0]["image"]
        assert spec["serviceAccountName"] == mine["serviceAccountName"]
        claims = [v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"] if "persistentVolumeClaim" in v]
        assert claims == list(cluster.claims)
        env = {e["name"]: e["value"] for e in main["env"] if not e["name"].startswith("TORCHX_")}
        assert env.pop("NEURON_CC_FLAGS") == f"--cache_dir=/efs/torchx/bert/node-{index}"
        assert env.items() <= program.variables.items()
        assert {"FI_PROVIDER", "MASTER_PORT"} <= env.keys()
        command = main["command"][2]
        assert f"mkdir -p '/efs/torchx/bert/node-{index}';" in command
        assert f"python3 -m torch.distributed.run --nproc_per_node 32 --nnodes 2 --node_rank {index} " in command
        assert "aws.amazon.com/neurondevice" not in str(one)


CACHE = "/efs/torchx/default/node-0"


@pytest.mark.parametrize(
    ("framework", "options", "expected"),
    [
        ("torch-xla", (), {"NEURON_CC_FLAGS": f"--cache_dir={CACHE}"}),
        ("torch-xla", ("--env", "NEURON_CC_FLAGS=-O1"), {"NEURON_CC_FLAGS": f"--cache_dir={CACHE} -O1"}),
        ("torch-native", (), {"TORCH_NEURONX_NEFF_CACHE_DIR": CACHE}),
        ("torch-native", ("--env", "NEURON_CC_FLAGS=-O1"), {"TORCH_NEURONX_NEFF_CACHE_DIR": CACHE, "NEURON_CC_FLAGS": "-O1"}),
    ],
)  # fmt: skip
def test_the_compile_cache_is_where_the_framework_looks(
    write: Any, framework: str, options: tuple[str, ...], expected: dict[str, str]
) -> None:
    file = write(make_cluster(fleet("trn2.48xlarge"), framework=framework))
    [task] = torchx(file, "--script", "train.py", *options)["spec"]["tasks"]
    [main] = task["template"]["spec"]["containers"]
    found = {e["name"]: e["value"] for e in main["env"]}
    names = ("NEURON_CC_FLAGS", "TORCH_NEURONX_NEFF_CACHE_DIR")
    assert {name: found[name] for name in names if name in found} == expected
    assert main["command"][2].count("neuron_parallel_compile") == 0


def test_precompile_compiles_the_graphs(write: Any) -> None:
    [task] = torchx(write(make_cluster()), "--script", "train.py", "--precompile", "True")["spec"]["tasks"]
    command = task["template"]["spec"]["containers"][0]["command"][2]
    assert "; exec neuron_parallel_compile python3 -m torch.distributed.run " in command


@pytest.mark.parametrize(
    ("cluster", "arguments", "message"),
    [
        ({}, ("--nnodes", "9"), "nnodes is 9, but jobs of this cluster can have at most 2 of trn1.32xlarge"),
        ({}, ("--instance_type", "p5.48xlarge"), "this cluster has no p5.48xlarge; it has trn1.32xlarge"),
        ({"fleets": (fleet("trn1.2xlarge"),)}, ("--nnodes", "2"), "can have at most 1 of trn1.2xlarge"),
        ({"image": ""}, (), "no image. Give one as --image"),
        ({}, ("--name", "n" * 53), f"name has 53 characters, and TorchX makes it longer. Give at most 38: {'n' * 38}"),
        ({}, ("--name", "my job"), "name is 'my job'. Give letters, digits"),
        ({}, ("--name", "7b"), "name is '7b'. Give letters, digits"),
    ],
)
def test_it_refuses_invalid_jobs(write: Any, cluster: dict[str, Any], arguments: tuple[str, ...], message: str) -> None:
    assert message in torchx(write(make_cluster(**cluster)), "--script", "x.py", *arguments, good=False)


@pytest.mark.sweep
def test_it_runs(backend: KubernetesBackend, running: Running, write: Any) -> None:
    """All or none, on tainted nodes: Volcano's admission makes it a gang, and the API server's tolerates the devices' taint."""
    need_kubernetes(volcano=True)
    running.shared.mkdir(parents=True, exist_ok=True)
    running.shared.chmod(0o777)  # EFS takes any user for the one of the access point
    (running.shared / "train.py").write_text(
        "import os, sys\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], sys.argv[1:])\n"
    )
    script_args = """--word "it's $HOME" '$(HOME)'"""
    longest = "n" * 38
    job = torchx(
        write(running.cluster),
        "--name",
        longest,
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
    limit = name.ljust(64 - len("-train-1-1"), "x")
    with pytest.raises(ApiError, match="no more than 63 bytes"):
        api.create({**job, "metadata": {**job["metadata"], "namespace": "training", "name": limit}})
    made = api.create({**job, "metadata": {**job["metadata"], "namespace": "training"}})
    assert made["spec"]["minAvailable"] == 2
    assert until(lambda: api.get(path).get("status", {}).get("state", {}).get("phase") == "Completed"), api.get(path)
    for rank in (0, 1):
        output = b"".join(backend.api.log(f"{name}-train-{rank}-0", f"train-{rank}")).decode()
        assert f"rank {rank} of 2 ['--word', \"it's $HOME\", '$(HOME)']" in output
    nodes = {p["spec"]["nodeName"] for p in backend.api.list("Pod", labels=f"volcano.sh/job-name={name}")}
    assert len(nodes) == 2
    api.delete(path)
