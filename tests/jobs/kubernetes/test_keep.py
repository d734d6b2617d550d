"""What outlives a cluster, on a real Kubernetes API: the scene of tests/jobs/test_keep.py. The other cluster is the same one, with an empty file system."""

from __future__ import annotations

import pytest

from tests.jobs.kubernetes.conftest import Running
from tests.jobs.test_keep import CACHE, KEEP, Site, killed, resumed, s3
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend

__all__ = ["s3"]
pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.usefixtures("s3")
def test_a_killed_training_continues_on_another_cluster(backend: KubernetesBackend, running: Running) -> None:
    backend.cluster = running.cluster.model_copy(update={"keep": KEEP, "cache": CACHE})
    site = Site(backend, running.shared)
    there, aside = running.shared / "trn", running.shared / "trn-before"
    if there.exists():
        there.rename(aside)
    left = killed(site, backend.cancel)
    there.rename(running.shared / "trn-of-the-first")
    resumed(site, *left)
