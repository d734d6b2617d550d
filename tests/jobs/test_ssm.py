"""End to end: SSM Run Command of the local AWS to a real Slurm, whose nodes fetch code and data and train."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sandbox import LocalAws
from sandbox.datasets import seed_datasets
from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import CONFIGURATION, fleet, make_cluster
from tests.support import fetched, head_node, need, put_aside, table
from trainium_cdk.jobs import BertLarge, Script, SlurmBackend, SsmTransport, TransportError, job_log

CLUSTER = "jobs-over-ssm"
BUCKET = "trn-jobs-over-ssm"


@pytest.fixture(scope="module")
def remote(local_aws: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    """A real Slurm whose head node is an instance of the local AWS."""
    need(available() is None, str(available()))
    seed_datasets(local_aws.client("s3"))
    with LocalSlurm.start(tmp_path_factory.mktemp("ssm"), CONFIGURATION, environment=local_aws.variables) as running:
        yield running


@pytest.fixture(scope="module")
def head(local_aws: LocalAws, remote: LocalSlurm) -> Iterator[str]:
    folder = local_aws.directory / "clusters" / CLUSTER
    remote.attach(folder)
    local_aws.client("s3").create_bucket(Bucket=BUCKET)
    with head_node(local_aws, CLUSTER) as instance:
        yield instance
    (folder / "node.json").unlink()
    folder.rmdir()
    local_aws.client("s3").delete_bucket(Bucket=BUCKET)  # refuses a bucket in which a payload was left


def transport(aws: LocalAws, instance: str, **changes: Any) -> SsmTransport:
    return SsmTransport(aws.client("ssm"), instance, "ubuntu", **{"s3": aws.client("s3"), "bucket": BUCKET, **changes})


@pytest.fixture
def ssm(local_aws: LocalAws, head: str) -> SsmTransport:
    made = transport(local_aws, head)
    made.interval = 0.3
    return made


@pytest.fixture
def cloud(ssm: SsmTransport) -> SlurmBackend:
    return SlurmBackend(make_cluster(fleet(nodes=4), cluster_name=CLUSTER), ssm)


@pytest.fixture
def shared_dir(remote: LocalSlurm) -> Path:
    return Path(remote.node_env()["TRN_SHARED_ROOT"]) / "efs" / "trn"


def read(backend: SlurmBackend, id: str, **options: Any) -> str:
    return b"".join(c.data for c in backend.logs(id, **options)).decode()


def test_a_script_runs_as_the_user_and_returns_its_output(ssm: SsmTransport) -> None:
    done = ssm.run("echo out; echo err >&2; read -r x; echo \"<$x>\"; echo 'it''s' ä $HOME; exit 7")
    assert done.code == 7
    assert done.stdout.startswith("out\n<>\nits ä /")
    assert done.stderr == "err\n"


def test_what_needs_root_runs_as_root(cloud: SlurmBackend, ssm: SsmTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs' user may have no sudo; the agent of Run Command is root."""
    sent: list[str] = []
    invoke = SsmTransport._invoke
    monkeypatch.setattr(SsmTransport, "_invoke", lambda self, text, time: sent.append(text) or invoke(self, text, time))
    assert cloud.run_as_root("echo done") == "done\n"
    assert ssm.run("echo done").stdout == "done\n"
    assert ["trn root " in text for text in sent] == [True, False]


def test_long_responses_are_paged(ssm: SsmTransport) -> None:
    before = put_aside()
    done = ssm.run("head -c 60000 /dev/urandom | base64 -w 60")
    assert (len(done.stdout), done.code) == (81334, 0)
    fetched(before)


@pytest.mark.parametrize("bucket", [BUCKET, "no-such-bucket"])
def test_large_responses_come_through_the_bucket(bucket: str, local_aws: LocalAws, head: str) -> None:
    """Without access to it, page by page."""
    before, commands = put_aside(), 0

    class Counting:
        def __init__(self, ssm: Any) -> None:
            self._ssm = ssm

        def __getattr__(self, name: str) -> Any:
            return getattr(self._ssm, name)

        def send_command(self, **wanted: Any) -> Any:
            nonlocal commands
            commands += 1
            return self._ssm.send_command(**wanted)

    many = transport(local_aws, head, bucket=bucket)
    many._ssm = Counting(many._ssm)
    size = 30_000_000 if bucket == BUCKET else 200_000
    done = many.run(f"head -c {size} /dev/urandom | base64 -w 0")
    assert len(done.stdout) == -(-size // 3) * 4
    assert commands == 3 if bucket == BUCKET else commands > 10
    assert "Contents" not in local_aws.client("s3").list_objects_v2(Bucket=BUCKET)
    fetched(before)


def test_long_scripts_go_through_the_bucket(ssm: SsmTransport, local_aws: LocalAws) -> None:
    import secrets

    word = secrets.token_hex(60_000)
    done = ssm.run(f"cat <<'EOF'\n{word}\nEOF")
    assert done.stdout == word + "\n"
    assert "Contents" not in local_aws.client("s3").list_objects_v2(Bucket=BUCKET)


class ReplacingS3:
    """An S3 in which another payload takes the place of each one as soon as it is stored."""

    def __init__(self, s3: Any, other: bytes) -> None:
        self._s3, self._other = s3, other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._s3, name)

    def put_object(self, **wanted: Any) -> Any:
        stored = self._s3.put_object(**wanted)
        self._s3.put_object(**{**wanted, "Body": self._other})
        return stored


@pytest.mark.parametrize("versions", [False, True])
def test_a_replaced_payload_is_not_run(versions: bool, local_aws: LocalAws, head: str, tmp_path: Path) -> None:
    """It is refused by its hash; in a bucket that keeps versions, the version that was sent is run."""
    s3, bucket, mark = local_aws.client("s3"), f"{BUCKET}-{versions}".lower(), tmp_path / "mark"
    s3.create_bucket(Bucket=bucket)
    if versions:
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    through = transport(local_aws, head, bucket=bucket, s3=ReplacingS3(s3, gzip.compress(f"touch {mark}".encode())))
    if versions:
        assert through.run("echo mine", private=True).stdout == "mine\n"
    else:
        with pytest.raises(TransportError, match="the payload in the bucket is not the one that was sent"):
            through.run("echo mine", private=True)
    assert not mark.exists()
    found = s3.list_object_versions(Bucket=bucket)
    for version in [*found.get("Versions", []), *found.get("DeleteMarkers", [])]:
        s3.delete_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])
    s3.delete_bucket(Bucket=bucket)


def test_long_scripts_without_a_bucket(local_aws: LocalAws, head: str) -> None:
    import secrets

    with pytest.raises(TransportError, match=r"too large for one SSM command.*no bucket"):
        transport(local_aws, head, bucket="").run(f"echo {secrets.token_hex(60_000)}")


def test_a_script_that_takes_too_long(ssm: SsmTransport) -> None:
    before = put_aside()
    with pytest.raises(TransportError, match=r"took too long and was stopped"):
        ssm.run("sleep 60", timeout=1)
    fetched(before)


def test_a_missing_head_node(local_aws: LocalAws) -> None:
    with pytest.raises(
        TransportError, match=r"SSM does not manage the head node i-0123456789abcdef0.*stopped, deleted"
    ):
        transport(local_aws, "i-0123456789abcdef0").run("true")


@pytest.mark.parametrize(
    ("status", "details", "said"),
    table(__file__, "final states"),
)
def test_the_final_state_of_a_command_is_reported(
    ssm: SsmTransport, local_aws: LocalAws, status: str, details: str, said: str
) -> None:
    """Each state in which SSM ends a command without success; a retry may help."""
    local_aws.set_answers("run-command", {"Status": status, "StatusDetails": details})
    try:
        with pytest.raises(TransportError, match=said) as caught:
            ssm.run("true")
    finally:
        local_aws.set_answers("run-command", None)
    assert caught.value.again
    assert ssm.run("echo back").stdout == "back\n"


def test_access_denied_is_reported(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not you"}}, "SendCommand")

    class Denied:
        def send_command(self, **_: Any) -> Any:
            raise denied

    with pytest.raises(
        TransportError, match=r"may not call ssm:SendCommand on i-1: not you. Request the permissions ssm:SendCommand"
    ):
        SsmTransport(Denied(), "i-1", "ubuntu").run("true")  # type: ignore[arg-type]


@pytest.mark.sweep
def test_bert_from_public_data(cloud: SlurmBackend, shared_dir: Path) -> None:
    job = cloud.submit(BertLarge(nodes=2, run_steps=3))
    assert list(job.stages) == ["prepare", "precompile", "train"]
    reader = job_log()
    for chunk in cloud.logs(job.id, follow=True):
        reader.feed(chunk.stage, chunk.data)
    ended = cloud.status(job.id)
    assert ended.ok, read(cloud, job.id)
    assert ended.global_batch_size == 65536
    assert reader.last is not None
    assert reader.last.step == 3
    said = read(cloud, job.id, stage="prepare")
    parts = shared_dir / "data"
    assert "bytes in 9 parts" in said or "parts" in said
    assert [p.name for p in parts.iterdir()] == ["bert-seqlen128"]  # no part is left
    # twice is once: nothing is fetched, and nothing waits for it
    again = cloud.submit(BertLarge(nodes=2, run_steps=1, precompile=False))
    assert list(again.stages) == ["train"]
    assert cloud.cancel(again.id).done


def test_missing_data_is_reported(cloud: SlurmBackend) -> None:
    job = cloud.submit(BertLarge(nodes=2, data=f"s3://{BUCKET}/nothing.tar"))
    ended = cloud.wait(job.id, 600)
    assert [s.state for s in ended.stages] == ["FAILED", "CANCELLED", "CANCELLED"]
    assert ended.stages[2].reason == "did not run: precompile did not complete"
    told = read(cloud, job.id, stage="prepare")
    assert re.search(rf"cannot read s3://{BUCKET}/nothing.tar: .*Check that it exists and may be read from here", told)


@pytest.mark.sweep
def test_two_jobs_fetch_once(cloud: SlurmBackend, local_aws: LocalAws, shared_dir: Path) -> None:
    s3 = local_aws.client("s3")
    keys = [f"corpus/x_training_{i}.hdf5" for i in range(32)]
    for key in keys:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"text " * 100)
    try:
        jobs = [
            cloud.submit(
                BertLarge(
                    run_steps=1,
                    precompile=False,
                    data=f"s3://{BUCKET}/corpus/",
                    name=f"both-{i}",
                    env={"MASTER_PORT": str(2100 + i)},
                )
            )
            for i in range(2)
        ]
        assert all(cloud.wait(job.id, 600).ok for job in jobs), [read(cloud, j.id) for j in jobs]
        said = [read(cloud, job.id, stage="prepare") for job in jobs if "prepare" in job.stages]
        assert sum(f"fetching s3://{BUCKET}/corpus" in text for text in said) == 1
    finally:
        s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})


def test_a_large_script_is_submitted_through_the_bucket(cloud: SlurmBackend) -> None:
    import random

    noise = random.Random(1).randbytes(80_000)  # noqa: S311  the same each time
    job = cloud.submit(Script(filename="tool", content=b'#!/bin/bash\nwc -c "$0"; exit 0\n' + noise))
    assert cloud.wait(job.id, 600).ok
    assert " 80031 " in read(cloud, job.id).replace("0:", " ")
