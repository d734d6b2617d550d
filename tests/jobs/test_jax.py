"""JAX on a real Slurm: the example loses a node, resumes, fails in one rank, and saves when it must end."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs import training_in_jax as jax
from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.jobs import LocalTransport, SlurmBackend


@pytest.fixture
def backend(slurm: LocalSlurm) -> SlurmBackend:
    """Nodes whose environment has JAX."""
    transport = LocalTransport(env=slurm.node_env(), interval=0.2)
    return SlurmBackend(make_cluster(fleet(nodes=4), venv=str(jax.JAX)), transport)


def test_a_lost_node(backend: SlurmBackend, slurm: LocalSlurm, shared: Path) -> None:
    def lose(id: str) -> None:
        node = backend.status(id).stages[-1].nodes.split(",")[0]
        slurm.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=test"])
        slurm.run(["scontrol", "update", f"nodename={node}", "state=resume"])

    jax.check_it_resumes(backend, shared, lose)


def test_a_rank_that_raises(backend: SlurmBackend) -> None:
    jax.check_a_rank_that_raises(backend)


def test_sigterm(backend: SlurmBackend, shared: Path) -> None:
    jax.check_sigterm_saves(backend, shared)
