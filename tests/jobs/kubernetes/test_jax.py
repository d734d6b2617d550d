"""JAX on the real Kubernetes API: the example loses a node, resumes, fails in one rank, and saves when it must end."""

from __future__ import annotations

import pytest

from tests.jobs import training_in_jax as jax
from tests.jobs.kubernetes.conftest import Running
from tests.support import until
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, status

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_lost_node(backend: KubernetesBackend, running: Running) -> None:
    def lose(id: str) -> None:
        pod = next(p["metadata"] for p in backend.seen(id).pods if status.index(p) == 1)
        backend.api.delete("Pod", pod["name"], uid=pod["uid"])
        assert until(lambda: backend.seen(id).job["status"]["restarts"])

    jax.check_it_resumes(backend, running.shared, lose)


def test_a_rank_that_raises(backend: KubernetesBackend) -> None:
    jax.check_a_rank_that_raises(backend)


def test_sigterm(backend: KubernetesBackend, running: Running) -> None:
    jax.check_sigterm_saves(backend, running.shared)
