"""`--workdir`: one object in the S3 of the local AWS, sent once, and what a job finds of it, with the real AWS CLI."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from sandbox import LocalAws
from tests.credentials import session
from tests.runner.preparing import Cluster
from tests.runner.test_unpack import SYMLINK, packed
from tests.support import need
from trainium_cdk.client.jobs import fetching, workdir
from trainium_cdk.description.outputs.contract import CODE
from trainium_cdk.errors import JobError
from trainium_cdk.runner.prepare import fetching as archives
from trainium_cdk.runner.prepare.fetching import Damaged, unpack
from trainium_cdk.runner.spec import PrepareStep

BUCKET = "runner-code"
FILES = {"train.py": "import helper\n", "helper.py": "X = 1\n", "pkg/mod.py": "Y = 2\n", "a b/$x '\".txt": "three"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "run.sh").write_text("#!/bin/bash\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "pkg/link.py").symlink_to("../helper.py")
    return folder


@pytest.fixture
def bucket(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in local_aws.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    s3 = local_aws.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    yield BUCKET
    for found in s3.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        s3.delete_object(Bucket=BUCKET, Key=found["Key"])
    s3.delete_bucket(Bucket=BUCKET)


def send(project: Path, aws: LocalAws) -> workdir.Sent:
    return workdir.send_folder(workdir.read(project), BUCKET, aws.region)


@pytest.fixture
def cluster(tmp_path: Path, local_aws: LocalAws) -> Cluster:
    need(shutil.which("aws") is not None, "the AWS CLI is not installed")
    return Cluster(tmp_path / "shared", {"PATH": os.environ["PATH"], **local_aws.variables})


@pytest.mark.parametrize("by", ["node", "address"])
def test_a_job_has_the_same_files(by: str, bucket: str, project: Path, local_aws: LocalAws, cluster: Cluster) -> None:
    sent = workdir.read(project)
    assert workdir.send_folder(sent, bucket, local_aws.region)[0] == 6
    folder = cluster.write(fetching.code(sent, bucket).steps)
    if by == "node":
        assert cluster.prepare(folder, "check") == (3, "")  # without an address
        code, output = cluster.prepare(folder)
    else:
        given = workdir.folder_addresses(sent, bucket, local_aws.region)
        # a head node gives its own identity to nobody
        code, output = cluster.prepare(folder, "check", given, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    assert (code, output) == (0, f"trn: 6 files of the workdir are in {folder}/code\n")
    place = folder / "code"
    there = {str(f.relative_to(place)): f.read_text() for f in place.rglob("*") if f.is_file() and not f.is_symlink()}
    assert there == {**FILES, "run.sh": "#!/bin/bash\n"}
    assert (place / "pkg/link.py").readlink() == Path("../helper.py")
    assert [os.access(place / name, os.X_OK) for name in ("run.sh", "train.py")] == [True, False]
    assert not (folder / "code.part").exists()
    assert [cluster.prepare(folder, mode) for mode in ("check", "fetch")] == [
        (0, ""),
        (0, "trn: everything is already fetched\n"),
    ]
    assert not [f for f in cluster.root.rglob("*") if f.is_file() and b"X-Amz-Signature" in f.read_bytes()]


def test_the_same_files_are_sent_once(bucket: str, project: Path, local_aws: LocalAws, tmp_path: Path) -> None:
    assert [send(project, local_aws).files for _ in range(2)] == [6, 0]
    copied = tmp_path / "elsewhere"
    shutil.copytree(project, copied, symlinks=True)
    os.utime(copied / "train.py", (1, 1))
    assert send(copied, local_aws) == (0, 0)
    changes = [
        lambda: (copied / "helper.py").write_text("X = 2\n"),
        lambda: (copied / "helper.py").chmod(0o755),
        lambda: (copied / "helper.py").rename(copied / "helped.py"),
    ]
    for change in changes:
        change()
        assert send(copied, local_aws).files == 6  # whole
    found = boto3.client("s3", region_name=local_aws.region).list_objects_v2(Bucket=bucket)["Contents"]
    assert all(one["Key"].startswith(f"{CODE}/") for one in found)
    assert len(found) == 4


def test_what_the_bucket_deletes_soon_is_sent_again(
    bucket: str, project: Path, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [send(project, local_aws).files for _ in range(2)] == [6, 0]
    monkeypatch.setattr(workdir, "_SENT_AGAIN", dt.timedelta(0))  # as after 30 days
    assert send(project, local_aws).files == 6


def test_who_may_not_list_the_bucket_can_send(
    bucket: str, local_aws: LocalAws, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 does not tell them which objects are missing: nor a head node, whose permission to list has a condition on the prefix."""
    with session(local_aws, 900, "s3:GetObject", "s3:PutObject") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        with pytest.raises(ClientError, match="AccessDenied"):
            boto3.client("s3").get_object(Bucket=bucket, Key=f"{CODE}/missing")
        assert [send(project, local_aws).files for _ in range(2)] == [6, 0]
    monkeypatch.undo()


def test_a_file_that_changes_meanwhile(bucket: str, project: Path, local_aws: LocalAws) -> None:
    sent = workdir.read(project)
    (project / "helper.py").write_text("X = 5\n")
    with pytest.raises(JobError, match=r"helper.py changed while the workdir was sent. Submit again"):
        workdir.send_folder(sent, bucket, local_aws.region)


def test_without_a_bucket(project: Path) -> None:
    with pytest.raises(JobError, match="the stack has no bucket to send the workdir through"):
        workdir.send_folder(workdir.read(project), "", "us-east-1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            gzip.compress(packed(("train.py", "other"))),
            "the workdir has another content than was sent. Submit the job again",
        ),
        (gzip.compress(packed(("../../x", "a"))), "'../../x' is outside the folder"),
        (gzip.compress(packed(("a", (SYMLINK, "/etc")))), "is a link to '/etc'"),
        (gzip.compress(packed(("a", "x" * 5000)))[:-20], "the workdir has another content than was sent: "),
        (b"no archive", "the workdir has another content than was sent: "),
        (b"", "the workdir has another content than was sent: "),
    ],
    ids=["another", "outside", "link", "cut", "no archive", "empty"],
)
@pytest.mark.parametrize("by", ["node", "address"])
def test_content_that_was_replaced_is_refused(
    content: bytes, message: str, by: str, bucket: str, project: Path, local_aws: LocalAws, cluster: Cluster
) -> None:
    sent = workdir.read(project)
    local_aws.client("s3").put_object(Bucket=bucket, Key=workdir.archive_key(sent.archive), Body=content)
    folder = cluster.write(fetching.code(sent, bucket).steps)
    given = workdir.folder_addresses(sent, bucket, local_aws.region)
    code, output = cluster.prepare(folder) if by == "node" else cluster.prepare(folder, "check", given)
    assert (code, message in output, output.count("\n")) == (64, True, 1), output
    assert not [f.name for f in folder.iterdir() if f.name.startswith("code")]


def test_what_the_head_node_does_not_fetch(bucket: str, project: Path, local_aws: LocalAws, cluster: Cluster) -> None:
    """A large folder, and one whose address does not answer: a node fetches it, in `prepare`."""
    sent = workdir.read(project)
    [step] = fetching.code(sent, bucket).steps
    large = cluster.write([PrepareStep("code", {**step.with_, "size": 50_000_001})])
    given = workdir.folder_addresses(sent, bucket, local_aws.region)
    assert cluster.prepare(large, "check", given) == (3, "")
    absent = cluster.write([step], "run-2")
    code, output = cluster.prepare(absent, "check", given)
    assert (code, output) == (3, "trn: the workdir is fetched on another node: HTTP Error 404: Not Found\n")
    code, output = cluster.prepare(absent)
    assert (code, "trn: the workdir could not be fetched: see what aws says above" in output) == (75, True), output
    assert not (absent / "code").exists()


def test_without_the_aws_cli(project: Path, cluster: Cluster) -> None:
    cluster.variables = {"PATH": str(project)}
    code, output = cluster.prepare(cluster.write(fetching.code(workdir.read(project), "b").steps))
    assert (code, output) == (
        64,
        "trn: the workdir cannot be fetched: there is no program aws here. Use an image that has it, as the examples of trn image build do\n",
    )


def test_the_step_is_plain_data(project: Path) -> None:
    [step] = fetching.code(workdir.read(project), "b").steps
    digest = step.with_["digest"]
    assert json.loads(json.dumps(step.with_)) == {"uri": f"s3://b/{CODE}/{digest}.tar.gz", "digest": digest, "size": 55}


@pytest.mark.parametrize(("files", "most"), [([4000], 3999), ([0] * 30, 100)], ids=["bytes", "entries"])
def test_an_object_with_more_than_was_sent_is_refused_while_it_is_read(
    files: list[int], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes to the bucket could fill the shared file system before the digest is known to be wrong."""
    monkeypatch.setattr(archives, "MOST_FILES", 20)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number, size in enumerate(files):
            member = tarfile.TarInfo(f"file{number}")
            member.size = size
            archive.addfile(member, io.BytesIO(bytes(size)))
    with pytest.raises(Damaged, match="it has more than was sent"):
        unpack(io.BytesIO(out.getvalue()), tmp_path / "to", most, most, archives.MOST_FILES)
