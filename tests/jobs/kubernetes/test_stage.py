"""Data sets that come onto the shared file system, from the local S3, by a real Job."""

from __future__ import annotations

import contextlib
import hashlib
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from tests.jobs.kubernetes.conftest import Running, make_cluster
from tests.jobs.test_copy import there_and_back
from tests.jobs.test_unpack import packed
from tests.support import swept
from trainium_cdk.errors import TransportError
from trainium_cdk.jobs import JobError
from trainium_cdk.jobs.kubernetes import KubernetesBackend, stage
from trainium_cdk.jobs.kubernetes.names import JOB_LABEL

BUCKET = "stage-test"


@pytest.fixture(scope="module")
def bucket(local_aws: LocalAws) -> None:
    s3 = local_aws.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    archive = packed(*((name, name) for name in ("set/a", "set/b $(HOME)")), mode="w:gz")
    s3.put_object(Bucket=BUCKET, Key="some/set.tar.gz", Body=archive)
    for i in range(3):
        s3.put_object(Bucket=BUCKET, Key=f"it's $(HOME)/part {i}", Body=b"%d" % i)


def staged(backend: KubernetesBackend, source: str, target: str, sha256: str = "") -> tuple[bool, str]:
    output = bytearray()
    [job] = stage.render(source, target, backend.cluster, sha256=sha256)
    return stage.run(backend.api, job, log=output.extend, say=lambda _: None), output.decode()


@contextlib.contextmanager
def kept(backend: KubernetesBackend, source: str, target: str) -> Iterator[None]:
    """The ended Job's pods stay, as they do until the garbage collector deletes them."""
    [job] = stage.render(source, target, backend.cluster)
    names = [p["metadata"]["name"] for p in backend.api.list("Pod", labels=f"{JOB_LABEL}={job['metadata']['name']}")]
    assert names
    for name in names:
        backend.api.patch("Pod", name, {"metadata": {"finalizers": ["trainium-cdk.test/kept"]}})
    try:
        yield
        assert {p["metadata"]["name"] for p in backend.api.list("Pod")} >= set(names)
    finally:
        for name in names:
            backend.api.patch("Pod", name, {"metadata": {"finalizers": None}})


def test_an_archive_is_unpacked_once(backend: KubernetesBackend, running: Running, bucket: None) -> None:
    good, output = staged(backend, f"s3://{BUCKET}/some/set.tar.gz", "/efs/corpus/one")
    assert good, output
    assert "trn: part 1 of 1\n" in output
    assert "trn: 2 entries, 18 bytes unpacked, " in output
    assert (running.shared / "corpus/one/set/b $(HOME)").read_bytes() == b"set/b $(HOME)"
    assert sorted(f.name for f in (running.shared / "corpus/one").iterdir()) == ["set"]
    with kept(backend, f"s3://{BUCKET}/some/set.tar.gz", "/efs/corpus/one"):
        good, output = staged(backend, f"s3://{BUCKET}/some/set.tar.gz", "/efs/corpus/one")
    assert good
    assert "is in /efs/corpus/one already" in output
    assert "fetching" not in output  # which the first one's pod has printed, and its log still exists


def test_an_object_with_another_checksum_is_refused(backend: KubernetesBackend, running: Running, bucket: None) -> None:
    wanted = hashlib.sha256(b"1").hexdigest()
    good, output = staged(backend, f"s3://{BUCKET}/it's $(HOME)/part 2", "/efs/checked", wanted)
    assert not good
    found = hashlib.sha256(b"2").hexdigest()
    assert f"part 2 has the SHA-256 {found}, and not {wanted}: it was replaced or damaged. It was deleted" in output
    assert list((running.shared / "checked").iterdir()) == []
    good, output = staged(backend, f"s3://{BUCKET}/it's $(HOME)/part 1", "/efs/checked", wanted)
    assert good, output
    assert [f.read_text() for f in (running.shared / "checked").iterdir()] == ["1"]
    good, output = staged(backend, f"s3://{BUCKET}/it's $(HOME)/", "/efs/checked", wanted)
    assert not good
    assert "a SHA-256 is that of one object, and " in output


def test_a_prefix_and_one_object_of_it(backend: KubernetesBackend, running: Running, bucket: None) -> None:
    good, output = staged(backend, f"s3://{BUCKET}/it's $(HOME)/", "/efs/it's/all of it")
    assert good, output
    assert sorted(f.name for f in (running.shared / "it's/all of it").iterdir()) == ["part 0", "part 1", "part 2"]
    good, output = staged(backend, f"s3://{BUCKET}/it's $(HOME)/part 1", "/efs/$(HOME) one")
    assert good, output
    assert [f.read_text() for f in (running.shared / "$(HOME) one").iterdir()] == ["1"]


@pytest.fixture
def victim(running: Running) -> Iterator[Path]:
    """The script of a user's job."""
    script = running.shared / "trn/jobs/theirs/node.sh"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("theirs")
    yield script
    assert script.read_text() == "theirs"
    script.unlink()
    script.parent.rmdir()


def test_a_hostile_archive_is_refused(
    backend: KubernetesBackend, running: Running, local_aws: LocalAws, bucket: None, victim: Path
) -> None:
    link = ("jobs", (tarfile.SYMTYPE, "../trn/jobs"))
    local_aws.client("s3").put_object(
        Bucket=BUCKET, Key="hostile.tar", Body=packed(link, ("jobs/theirs/node.sh", "mine"))
    )
    good, output = staged(backend, f"s3://{BUCKET}/hostile.tar", "/efs/hostile")
    assert not good
    assert "refused: 'jobs' is a link to '../trn/jobs', which is outside the folder" in output
    assert not [f for f in (running.shared / "hostile").iterdir() if ".parts-" not in f.name]


@pytest.mark.parametrize("source", swept(["links.tar", "links/", "file/theirs"], "links.tar"))
def test_links_in_the_target_are_not_followed(
    backend: KubernetesBackend, running: Running, local_aws: LocalAws, bucket: None, victim: Path, source: str
) -> None:
    s3 = local_aws.client("s3")
    s3.put_object(Bucket=BUCKET, Key="links.tar", Body=packed(("theirs/node.sh", "mine")))
    for key in ("links/theirs/node.sh", "file/theirs"):
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"mine")
    name = f"planted-{source.replace('/', '-')}"
    target = running.shared / name
    target.mkdir(mode=0o777)
    target.chmod(0o777)
    (target / "theirs").symlink_to("../trn/jobs/theirs")
    good, output = staged(backend, f"s3://{BUCKET}/{source}", f"/efs/{name}")
    if source == "file/theirs":  # a file takes the place of a link
        assert good, output
        assert (target / "theirs").read_text() == "mine"
    else:
        assert not good
        assert "refused: link 'theirs' already exists. Remove it, or choose another directory" in output


def test_a_target_behind_a_link(backend: KubernetesBackend, running: Running, bucket: None, victim: Path) -> None:
    (running.shared / "door").symlink_to("trn/jobs")
    good, output = staged(backend, f"s3://{BUCKET}/some/set.tar.gz", "/efs/door/theirs/new")
    assert not good
    assert "/efs/door/theirs/new is reached through a link. Give the directory itself" in output
    assert [f.name for f in victim.parent.iterdir()] == ["node.sh"]


def test_a_missing_source(backend: KubernetesBackend, running: Running, bucket: None) -> None:
    good, output = staged(backend, f"s3://{BUCKET}/no/such.tar", "/efs/none")
    assert not good
    assert f"cannot read s3://{BUCKET}/no/such.tar. Check that it exists" in output


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (
            "https://x/y",
            "/efs/x",
            r"the source is 'https://x/y'. Give s3://bucket/key, or one of the data sets bert-seqlen128",
        ),
        ("bert-seqlen128", "/efs/x", r"the source is 'bert-seqlen128'"),
        (
            "s3://b/x",
            "/efs/x",
            r"the bucket of the source 's3://b/x' is 'b'. Give the name of a bucket: 3 to 63 small letters",
        ),
        (
            "s3://My_Bucket",
            "/efs/x",
            r"the bucket of the source 's3://My_Bucket' is 'My_Bucket'. Give the name of a bucket",
        ),
        ("s3://bucket/x", "", r"the target is '', which is not on a shared file system. Give /efs/..."),
        ("s3://bucket/x", "/tmp/x", r"the target is '/tmp/x'"),
        ("s3://bucket/x", "/efs", r"the target is '/efs'"),
        ("s3://bucket/x", "/efs/../etc", r"the target is '/efs/../etc'"),
        ("s3://bucket/x", "/efs/a\nb", r"not on a shared file system"),
        ("s3://bucket/x", "/efs/.", r"the target is '/efs/.'"),
        (
            "s3://bucket/x",
            "/efs/trn",
            r"the target is '/efs/trn', and /efs/trn holds the jobs' own files. Give another of /efs/",
        ),
        ("s3://bucket/x", "/efs//trn/jobs/bert-1", r"the target is '/efs//trn/jobs/bert-1', and /efs/trn holds"),
        ("s3://bucket/x", "/efs/./trn/", r"the target is '/efs/./trn/', and /efs/trn holds"),
    ],
)
def test_is_refused(source: str, target: str, message: str) -> None:
    with pytest.raises(JobError, match=message):
        stage.render(source, target, make_cluster())


class Waiting:
    """A cluster in which the Job's pod waits for nodes, and then for an image that cannot be pulled."""

    def __init__(self) -> None:
        full = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
        pulls = {"name": "folder", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
        self.states = [{"conditions": [full]}, {"conditions": [full]}, {"initContainerStatuses": [pulls]}]
        self.deleted: list[str] = []

    def find(self, kind: str, name: str) -> None:
        return None

    def create(self, kind: str, body: Any) -> None:
        pass

    def get(self, kind: str, name: str) -> Any:
        return {"metadata": {"uid": "u"}}

    def list(self, kind: str, *, labels: str) -> list[Any]:
        assert labels == "batch.kubernetes.io/controller-uid=u"
        return [{"metadata": {"name": "p", "creationTimestamp": ""}, "status": self.states.pop(0)}]

    def delete(self, kind: str, name: str, *, uid: str) -> None:
        self.deleted.append(uid)


def test_why_it_does_not_start_is_told() -> None:
    api: Any = Waiting()
    said: list[str] = []
    job = {"metadata": {"name": "trn-data-1"}}
    with pytest.raises(TransportError, match="trn-data-1 does not start: ErrImagePull: not found"):
        stage.run(api, job, log=lambda _: None, say=said.append, sleep=lambda _: None)
    assert said == ["trn-data-1: waits for nodes: 0/2 nodes are available"]
    assert api.deleted == ["u"], "a call with another image would follow this Job"


def test_job_kinds_find_staged_data_by_name() -> None:
    jobs = stage.render("gpt2-wikipedia", "", make_cluster())
    arguments = [job["spec"]["template"]["spec"]["containers"][0]["command"][4:] for job in jobs]
    assert len(arguments) == 5
    assert {w[1] for w in arguments} == {"/efs/trn/data/gpt2-wikipedia"}
    assert arguments[0][3] == "data-gpt2-wikipedia-gpt2-vocab.json"
    assert len({job["metadata"]["name"] for job in jobs}) == 5
    [archive] = stage.render("bert-seqlen128", "", make_cluster())
    assert (archive["apiVersion"], archive["kind"], archive["metadata"]["namespace"]) == ("batch/v1", "Job", "training")
    assert archive["metadata"]["labels"] == archive["spec"]["template"]["metadata"]["labels"]
    assert archive["metadata"]["labels"][JOB_LABEL] == archive["metadata"]["name"]
    assert archive["spec"]["template"]["spec"]["containers"][0]["command"][6:] == [
        "--no-sign-request",
        "data-bert-seqlen128",
        "/efs",
        "",  # no checksum is known
    ]


def test_without_an_image() -> None:
    with pytest.raises(JobError, match=r"no container image.*--image"):
        stage.render("s3://bucket/x", "/efs/x", make_cluster(image=""))


def test_files_are_copied_there_and_back(
    backend: KubernetesBackend,
    running: Running,
    bucket: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`trn cp`, as with Slurm (tests/jobs/test_copy.py)."""
    backend.cluster = backend.cluster.model_copy(update={"bucket": BUCKET})
    there_and_back(backend, tmp_path, running.shared, monkeypatch)
