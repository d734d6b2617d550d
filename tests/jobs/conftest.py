"""A cluster as the jobs see it, and a real Slurm to run them on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.slurm import LocalSlurm, available
from tests.support import need
from trainium_cdk import outputs, settings
from trainium_cdk.client.jobs.kinds import kinds
from trainium_cdk.description.outputs import Fleet, SlurmCluster
from trainium_cdk.jobs import Job, LocalTransport, Script, SlurmBackend

CONFIGURATION: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("slurm.yaml").read_text("utf-8"))
"""Four virtual trn1.32xlarge in queue compute1."""


def make_cluster(*fleets: Fleet, **changes: Any) -> SlurmCluster:
    """The default cluster: 16 trn1.32xlarge in queue compute1, two c5.2xlarge in cpu; with changes.

    With `fleets`, these alone: a cluster without CPU nodes, of `cpu_queue: null` or of an older release, which prepares on Trainium nodes.
    """
    stack_outputs = outputs.slurm_outputs(settings.load(), head_node_id="i-0123456789abcdef0", bucket="trn-bucket")
    made = outputs.parse("TrnPclusterStack", "us-east-1", {key: value for key, (value, _) in stack_outputs.items()})
    assert isinstance(made, SlurmCluster)
    return made.model_copy(update={**({"fleets": fleets, "cpu": None} if fleets else {}), **changes})


def fleet(kind: str = "trn1.32xlarge", nodes: int = 16, **changes: Any) -> Fleet:
    facts: dict[str, dict[str, Any]] = {
        "trn1.2xlarge": {"devices": 1, "cores": 2, "efa": 0, "family": "trn1"},
        "trn1.32xlarge": {"devices": 16, "cores": 32, "efa": 8, "family": "trn1"},
        "trn2.48xlarge": {"devices": 16, "cores": 64, "efa": 16, "family": "trn2"},
        "trn3.48xlarge": {"devices": 16, "cores": 64, "efa": 16, "family": "trn3"},
    }
    base = {"queue": "compute1", "resource": "trn", "instance_type": kind, "nodes": nodes, **facts[kind]}
    return Fleet(**{**base, **changes})


def described(kind: str, **fields: Any) -> Job:
    """A job of data, where the content of a script is text; without a script: hello.sh."""
    if kind == "script":
        fields = {"filename": "hello.sh", "content": "echo hello\n", **fields}
        fields["content"] = fields["content"].encode("latin-1")
    return kinds()[kind](**fields)


@pytest.fixture
def cluster() -> SlurmCluster:
    return make_cluster()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    """A real Slurm: four virtual trn1.32xlarge in queue compute1."""
    need(available() is None, str(available()))
    with LocalSlurm.start(tmp_path_factory.mktemp("slurm"), CONFIGURATION) as running:
        yield running


@pytest.fixture
def backend(slurm: LocalSlurm) -> SlurmBackend:
    """Jobs on that Slurm, as from its head node."""
    transport = LocalTransport(env=slurm.node_env(), interval=0.2)
    return SlurmBackend(make_cluster(fleet(nodes=4)), transport)


@pytest.fixture
def shared(slurm: LocalSlurm) -> Path:
    """The cluster's /efs."""
    return Path(slurm.node_env()["TRN_SHARED_ROOT"]) / "efs"


def with_program(slurm: LocalSlurm, folder: Path, name: str, script: str) -> LocalTransport:
    """A connection on whose PATH a bash script, for this command and in its jobs, comes before a program and ends with it; `$real`
    is the program."""
    real = slurm.run(["bash", "-c", f"type -p {name}"]).stdout.strip()
    (folder / name).write_text(f'#!/bin/bash\nreal={real}\n{script}\nexec {real} "$@"\n')
    (folder / name).chmod(0o755)
    env = slurm.node_env()
    return LocalTransport(env={**env, "PATH": f"{folder}:{env['PATH']}"}, interval=0.2)


@contextlib.contextmanager
def counting(slurm: LocalSlurm, folder: Path) -> Iterator[tuple[SlurmBackend, Path]]:
    """A connection to a cluster that starts no job, and the file of the names of programs that it starts."""
    used = folder / "used"
    for name in (
        "base64", "cat", "chmod", "flock", "grep", "head", "install", "mkdir", "mv", "rm", "rmdir", "sbatch", "scancel", "scontrol",
        "sed", "squeue", "stat",
    ):  # fmt: skip
        transport = with_program(slurm, folder, name, f"echo {name} >> {used}")
    backend = SlurmBackend(make_cluster(fleet(nodes=4)), transport)
    slurm.run(["scontrol", "update", "PartitionName=compute1", "State=DOWN"])  # the job's own processes come later
    try:
        # makes the folders of a new file system
        backend.submit(Script(filename="run.sh", content=b"#!/bin/bash\ntrue\n"))
        used.unlink()
        yield backend, used
    finally:
        slurm.run(["scontrol", "update", "PartitionName=compute1", "State=UP"])
