"""`trn cp`, as with Slurm (tests/jobs/test_copy.py), in pods of a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import LocalAws
from tests.jobs.kubernetes.conftest import Running
from tests.jobs.test_copy import bucket, there_and_back, to_and_from_a_bucket
from trainium_cdk.jobs.kubernetes import KubernetesBackend


@pytest.fixture
def copying(backend: KubernetesBackend, local_aws: LocalAws) -> Iterator[KubernetesBackend]:
    with bucket(local_aws, "trn-copies-of-pods") as name:
        # as where the catalogue has no training image
        backend.cluster = backend.cluster.model_copy(update={"bucket": name, "image": ""})
        yield backend


def test_there_and_back(
    copying: KubernetesBackend, running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there_and_back(copying, tmp_path, running.shared, monkeypatch)


def test_to_and_from_a_bucket(
    copying: KubernetesBackend, running: Running, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bucket(local_aws, "trn-copies-own-of-pods") as own:
        to_and_from_a_bucket(copying, local_aws, running.shared, monkeypatch, own)
