"""One real Slurm for all of these tests, as its own head node and as an instance of the local AWS."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import CONFIGURATION, fleet, make_cluster
from tests.support import head_node, need_slurm, put_aside
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.jobs import LocalTransport, SlurmBackend, SsmTransport

CLUSTER = "trust"
BUCKET = "trn-trust"


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    """What jobs and half submissions are left on it in the end is written down."""
    need_slurm()
    with LocalSlurm.start(tmp_path_factory.mktemp("trust"), CONFIGURATION) as running:
        yield running
        jobs = Path(running.node_env()["TRN_SHARED_ROOT"]) / "efs" / "trn" / "jobs"
        queued = [
            row for row in running.run(["squeue", "-h", "-a", "-o", "%T %k"]).stdout.splitlines() if "trn:" in row
        ]
        half = [job for job in jobs.glob("*") if job.name[0] != "." and not (job / "submitted.json").exists()]
    assert (queued, half) == ([], [])


@pytest.fixture(scope="session")
def cluster() -> SlurmCluster:
    return make_cluster(fleet(nodes=4), cluster_name=CLUSTER, bucket=BUCKET)


@pytest.fixture
def backend(slurm: LocalSlurm, cluster: SlurmCluster) -> SlurmBackend:
    """As on the head node."""
    return SlurmBackend(cluster, LocalTransport(env=slurm.node_env(), interval=0.2))


@pytest.fixture(scope="session")
def jobs_dir(slurm: LocalSlurm) -> Path:
    return Path(slurm.node_env()["TRN_SHARED_ROOT"]) / "efs" / "trn" / "jobs"


def older(folder: Path, seconds: float) -> bool:
    try:
        return folder.stat().st_mtime < time.time() - seconds
    except FileNotFoundError:  # another one's, fetched meanwhile
        return False


@pytest.fixture(scope="session")
def head(local_aws: LocalAws, slurm: LocalSlurm) -> Iterator[str]:
    """The head node's instance id."""
    s3 = local_aws.client("s3")
    with head_node(local_aws, CLUSTER) as head_id:
        folder = local_aws.directory / "clusters" / CLUSTER
        slurm.attach(folder)
        s3.create_bucket(Bucket=BUCKET)
        s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        before = put_aside()
        yield head_id
        # an hour later a command would remove them; those of this minute may belong to another test
        for answer in (answer for answer in put_aside() - before if older(answer, 20)):
            shutil.rmtree(answer, ignore_errors=True)
    (folder / "node.json").unlink()
    folder.rmdir()
    kept = s3.list_object_versions(Bucket=BUCKET)
    for found in [*kept.get("Versions", []), *kept.get("DeleteMarkers", [])]:
        s3.delete_object(Bucket=BUCKET, Key=found["Key"], VersionId=found["VersionId"])
    s3.delete_bucket(Bucket=BUCKET)


@pytest.fixture
def over_ssm(local_aws: LocalAws, head: str, cluster: SlurmCluster) -> Iterator[Callable[..., SlurmBackend]]:
    """Jobs through SSM; over another endpoint where one is given, with pauses cut short."""

    def make(endpoint: str | None = None, pause: float = 0.05) -> SlurmBackend:
        import boto3
        from botocore.config import Config

        def sleep(seconds: float) -> None:
            time.sleep(min(seconds, pause))

        config = Config(retries={"total_max_attempts": 1}, read_timeout=600, connect_timeout=600)
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": local_aws.region}
        at: dict[str, Any] = {**keys, "endpoint_url": endpoint or local_aws.endpoint, "config": config}
        ssm, s3 = boto3.client("ssm", **at), boto3.client("s3", **at)
        clients.extend((ssm, s3))
        transport = SsmTransport(ssm, head, "ubuntu", s3=s3, bucket=BUCKET, sleep=sleep)
        transport.interval = pause
        return SlurmBackend(cluster, transport, sleep=sleep)

    clients: list[Any] = []
    yield make
    for client in clients:
        client.close()
