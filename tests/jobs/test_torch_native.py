"""TorchNeuron's compile cache and NeuronCores: it has a variable for each, and passes NEURON_CC_FLAGS to the compiler unchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.jobs.conftest import fleet
from tests.jobs.conftest import make_cluster as slurm
from tests.jobs.kubernetes.conftest import make_cluster as eks
from trainium_cdk.client.jobs.job_spec import job_spec
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.jobs import AnyJob, Script, TorchTitan
from trainium_cdk.runner.work.places import StageNode, places
from trainium_cdk.runner.work.places import variables as places_variables

REF = "0123456789abcdef0123456789abcdef01234567"
LLAMA = {"module": "graph_trainer.llama3", "config": "llama3_8b", "assets": "/efs/llama"}
SCRIPT = Script(filename="run.sh", content=b"true", nodes=2)
NATIVE = {"neuron_release": "2.33.0", "neuron_driver": "2.31.7.0", "framework": "torch-native"}
IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/torch-neuron:1"


def variables(engine: str, job: AnyJob, lnc: int, **versions: str) -> dict[str, str]:
    """What a node's program gets on trn2.48xlarge, but what the node itself decides."""
    nodes = fleet("trn2.48xlarge", cores=128, lnc=1) if lnc == 1 else fleet("trn2.48xlarge", lnc=lnc)
    on = slurm(nodes, **versions) if engine == "slurm" else eks(nodes, **versions, image=IMAGE)
    made = job_spec("a", plan(job, on))
    program = made.stages[-1].program
    assert program is not None
    node = StageNode(Path("/efs/trn/jobs/a"), Path("/efs/trn/jobs/a"), host="node-0")
    without = replace(made, environment=replace(made.environment, venv="", venv_required=False, packages=False))
    at = places(node, without, made.stages[-1], made.variables)
    return places_variables(node, without, made.stages[-1], made.variables, at)


@pytest.mark.parametrize("lnc", [0, 1, 2])
@pytest.mark.parametrize("engine", ["slurm", "eks"])
@pytest.mark.parametrize(
    "job",
    [TorchTitan(ref=REF, nodes=2, preset="qwen3-8b"), TorchTitan(ref=REF, nodes=2, **LLAMA), SCRIPT],
    ids=["preset", "own", "script"],
)
def test_compiler_flags_are_unchanged(engine: str, job: AnyJob, lnc: int) -> None:
    found = variables(engine, job, lnc, **NATIVE)
    assert found["TORCH_NEURONX_NEFF_CACHE_DIR"] == f"/efs/trn/neuron_cache/{job.cache_set}/node-0"
    assert "NEURON_CC_FLAGS" not in found
    assert found.get("NEURON_LOGICAL_NC_CONFIG") == (str(lnc) if lnc else None)


@pytest.mark.parametrize("engine", ["slurm", "eks"])
def test_a_users_own_flags_arrive_unchanged(engine: str) -> None:
    own = {"NEURON_CC_FLAGS": "-O1", "TORCH_NEURONX_NEFF_CACHE_DIR": "/mine"}
    found = variables(engine, SCRIPT.model_copy(update={"env": own}), 1, **NATIVE)
    assert {name: found[name] for name in own} == own


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("-O1", "-O1 --logical-nc-config=1"),
        ("--logical-nc-config 1 -O1", "--logical-nc-config 1 -O1"),
        ("-lnc=2", "-lnc=2"),
    ],
)
@pytest.mark.parametrize("engine", ["slurm", "eks"])
def test_of_torch_xla_a_users_own_flags_keep_the_lnc(engine: str, given: str, wanted: str) -> None:
    """Without it, the compiler's is 2, and the runtime does not load what it has compiled."""
    found = variables(engine, SCRIPT.model_copy(update={"env": {"NEURON_CC_FLAGS": given}}), 1)
    assert found["NEURON_CC_FLAGS"] == f"--cache_dir=/efs/trn/neuron_cache/script-run/node-0 {wanted}"


@pytest.mark.parametrize("engine", ["slurm", "eks"])
def test_torch_xla_has_both_in_the_flags(engine: str) -> None:
    found = variables(engine, SCRIPT, 1)
    assert found["NEURON_CC_FLAGS"] == "--cache_dir=/efs/trn/neuron_cache/script-run/node-0 --logical-nc-config=1"
    assert "TORCH_NEURONX_NEFF_CACHE_DIR" not in found
