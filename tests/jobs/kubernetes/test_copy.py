"""`trn cp`, as with Slurm (tests/jobs/test_copy.py), in pods of a real API server."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import LocalAws
from sandbox.kubernetes.api import path_of
from tests.jobs.kubernetes.conftest import Running, script
from tests.jobs.test_copy import bucket, there_and_back, to_and_from_a_bucket
from trainium_cdk.client.cli import copy as command
from trainium_cdk.client.cli.app import app
from trainium_cdk.client.cli.destroy import only_there
from trainium_cdk.client.cli.options import Target
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, parts


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


def test_a_deletion_names_what_is_only_there_and_its_advice_keeps_it(
    copying: KubernetesBackend,
    running: Running,
    local_aws: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also of a job that Kubernetes has forgotten, whose files are there."""
    program = b'echo "$TRN_JOB_ID" > "$TRN_CHECKPOINTS/model.bin"'
    ids = []
    for token in ("first", "second"):
        ids.append(copying.submit(script(program, nodes=1, image="registry.example/train:1"), token).id)
        assert copying.wait(ids[-1], 120).ok
    running.kubernetes.api().delete(path_of(parts.JOBSET, "JobSet", ids[0], namespace="training"))
    with bucket(local_aws, "trn-copies-own-of-deleted") as own:
        copying.cluster = copying.cluster.model_copy(update={"keep": f"s3://{own}/kept"})
        lines = [
            line for line in only_there(copying, Target("S", implied=frozenset())) if any(id in line for id in ids)
        ]
        assert len(lines) == 2
        monkeypatch.setattr(command, "backend", lambda _: copying)
        for id in ids:
            [line] = (line for line in lines if id in line)
            assert f"only there: {id}: model.bin ({len(id) + 1} bytes). To keep it: trn cp cluster:" in line
            app(shlex.split(line.partition("To keep it: trn ")[2]), standalone_mode=False)
            assert f"s3://{own}/kept/{id}/ is complete" in capsys.readouterr().err
            if id == ids[1]:
                app(["cp", f"{id}:checkpoints", f"s3://{own}/kept/{id}"], standalone_mode=False)
                assert "1 complete already, 0 bytes left" in capsys.readouterr().err
            key = f"kept/{id}/model.bin"
            assert local_aws.client("s3").get_object(Bucket=own, Key=key)["Body"].read().decode() == f"{id}\n"
