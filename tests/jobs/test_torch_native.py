"""TorchNeuron's compile cache and NeuronCores: it has a variable for each, and passes NEURON_CC_FLAGS to the compiler unchanged."""

from __future__ import annotations

import pytest

from tests.jobs.conftest import fleet
from tests.jobs.conftest import make_cluster as slurm
from tests.jobs.kubernetes.conftest import make_cluster as eks
from trainium_cdk.jobs import AnyJob, Script, TorchTitan
from trainium_cdk.jobs.kubernetes import render as render_for_kubernetes
from trainium_cdk.jobs.slurm.render import render

REF = "0123456789abcdef0123456789abcdef01234567"
LLAMA = {"module": "graph_trainer.llama3", "config": "llama3_8b", "assets": "/efs/llama"}
SCRIPT = Script(filename="run.sh", content=b"true", nodes=2)
NATIVE = {"neuron_release": "2.33.0", "neuron_driver": "2.31.7.0", "framework": "torch-native"}
IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/torch-neuron:1"


def node_script(engine: str, job: AnyJob, lnc: int, **versions: str) -> list[str]:
    """Lines of what each node runs on trn2.48xlarge."""
    nodes = fleet("trn2.48xlarge", cores=128, lnc=1) if lnc == 1 else fleet("trn2.48xlarge", lnc=lnc)
    if engine == "slurm":
        files = render(job, slurm(nodes, **versions), "t").files
    else:
        files = render_for_kubernetes(job, eks(nodes, **versions, **({"image": IMAGE} if versions else {})), "t").files
    return files["node.sh"].decode().splitlines()


@pytest.mark.parametrize("lnc", [0, 1, 2])
@pytest.mark.parametrize("engine", ["slurm", "eks"])
@pytest.mark.parametrize(
    "job",
    [TorchTitan(ref=REF, nodes=2, preset="qwen3-8b"), TorchTitan(ref=REF, nodes=2, **LLAMA), SCRIPT],
    ids=["preset", "own", "script"],
)
def test_compiler_flags_are_unchanged(engine: str, job: AnyJob, lnc: int) -> None:
    lines = node_script(engine, job, lnc, **NATIVE)
    assert "export TORCH_NEURONX_NEFF_CACHE_DIR=${TORCH_NEURONX_NEFF_CACHE_DIR:-$cache}" in lines
    assert not [line for line in lines if "NEURON_CC_FLAGS" in line or "--cache_dir" in line]
    cores = [line for line in lines if "LOGICAL_NC" in line]
    assert cores == ([f"export NEURON_LOGICAL_NC_CONFIG={lnc}"] if lnc else [])


@pytest.mark.parametrize("engine", ["slurm", "eks"])
def test_a_users_own_flags_arrive_unchanged(engine: str) -> None:
    job = SCRIPT.model_copy(update={"env": {"NEURON_CC_FLAGS": "-O1"}})
    flags = [line for line in node_script(engine, job, 1, **NATIVE) if "NEURON_CC_FLAGS" in line]
    assert flags == ["export NEURON_CC_FLAGS=-O1"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("-O1", "'-O1 --logical-nc-config=1'"),
        ("--logical-nc-config 1 -O1", "'--logical-nc-config 1 -O1'"),
        ("-lnc=2", "-lnc=2"),
    ],
)
def test_of_torch_xla_a_users_own_flags_keep_the_lnc(given: str, wanted: str) -> None:
    """Without it, the compiler's is 2, and the runtime does not load what it has compiled."""
    lines = node_script("slurm", SCRIPT.model_copy(update={"env": {"NEURON_CC_FLAGS": given}}), 1)
    assert f"export NEURON_CC_FLAGS={wanted}" in lines


@pytest.mark.parametrize("engine", ["slurm", "eks"])
def test_torch_xla_has_both_in_the_flags(engine: str) -> None:
    lines = node_script(engine, SCRIPT, 1)
    assert "export NEURON_CC_FLAGS=--logical-nc-config=1" in lines
    assert 'NEURON_CC_FLAGS="--cache_dir=$cache${NEURON_CC_FLAGS:+ $NEURON_CC_FLAGS}"' in lines
    assert "TORCH_NEURONX_NEFF_CACHE_DIR" not in "\n".join(lines)
