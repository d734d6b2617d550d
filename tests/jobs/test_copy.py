"""`trn cp`: through the S3 of the local AWS and the real AWS CLI, to a real Slurm's head node and pods of a real Kubernetes."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from sandbox import LocalAws
from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import make_cluster
from tests.jobs.test_workdir import on_head_node, write
from trainium_cdk.client.cli import copy as command
from trainium_cdk.client.cli.app import app
from trainium_cdk.client.jobs import copy
from trainium_cdk.client.jobs.copy import BucketCopy, Copy, CopyPlan
from trainium_cdk.errors import JobError, TransportError
from trainium_cdk.jobs import SlurmBackend
from trainium_cdk.runner.errors import Refused
from trainium_cdk.runner.head import copying
from trainium_cdk.runner.requests import Entry, GiveFiles, TakeFiles

BUCKET = "trn-copies"
MIB = 2**20


@pytest.fixture
def backend(slurm: LocalSlurm, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmBackend]:
    yield on_head_node(slurm, local_aws, monkeypatch, BUCKET)
    s3 = local_aws.client("s3")
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET), "what has arrived is deleted"
    s3.delete_bucket(Bucket=BUCKET)


@contextlib.contextmanager
def bucket(aws: LocalAws, name: str) -> Iterator[str]:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=name)
    yield name
    for one in s3.list_objects_v2(Bucket=name).get("Contents", ()):
        s3.delete_object(Bucket=name, Key=one["Key"])
    s3.delete_bucket(Bucket=name)


def there_and_back(backend: Any, folder: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with names that shells would change, small and large files and a link; then only what has changed."""
    monkeypatch.setattr(copy, "_MOST_OBJECTS", 2)
    data = write(folder / "my data", {"a b/$(HOME)'\".txt": "x" * 2500, "empty": "", "run.sh": "#!/bin/sh\n"})
    (data / "run.sh").chmod(0o755)
    (data / "link").symlink_to("a b")
    (data / "out").symlink_to("/etc/passwd")
    os.mkfifo(data / "pipe")
    done: list[int] = []
    to = Copy(backend, progress=done.append)
    plan = to.plan_upload(data, "/efs/in/it's")
    assert (plan.size, plan.todo, plan.complete) == (2510, 2510, 0)
    assert plan.left_out == ("out (a link that leads out of the folder)", "pipe (no regular file)")
    to.upload(plan)
    assert sum(done) == 2510
    there = shared / "in/it's"
    assert (there / "a b/$(HOME)'\".txt").read_text() == "x" * 2500
    assert (there / "empty").read_text() == ""
    assert os.access(there / "run.sh", os.X_OK)
    assert (there / "link").readlink() == Path("a b")
    assert sorted(f.name for f in there.iterdir()) == ["a b", "empty", "link", "run.sh"], "no part is left"
    assert to.plan_upload(data, "/efs/in/it's").complete == 4

    (there / "new").write_text("new")
    back = folder / "back"
    plan = to.plan_download("/efs/in/it's", back)
    to.download(plan)
    assert (back / "a b/$(HOME)'\".txt").read_text() == "x" * 2500
    assert (back / "new").read_text() == "new"
    (back / "new").write_text("other")
    again = to.plan_download("/efs/in/it's", back)
    assert (again.complete, again.todo) == (4, 3)

    assert to.plan_upload(data / "run.sh", "/efs/in/").target == "/efs/in"
    to.upload(to.plan_upload(data / "run.sh", "/efs/in/named.sh"))
    to.download(to.plan_download("/efs/in/named.sh", folder / "one.sh"))
    assert (folder / "one.sh").read_text() == "#!/bin/sh\n"


def to_and_from_a_bucket(backend: Any, aws: LocalAws, shared: Path, monkeypatch: pytest.MonkeyPatch, own: str) -> None:
    """Objects with names that shells would change; then only what has changed; and back, a large one in parts."""
    monkeypatch.setattr(copying, "SPAN", 6 * MIB)  # S3 has no smaller parts than 5 MiB
    monkeypatch.setattr(copy, "_MOST_BYTES", 13 * MIB)
    s3 = aws.client("s3")
    large = os.urandom(14 * MIB)
    for key, content in (
        ("set/it's $(HOME)/b", b"b"),
        ("set/empty", b""),
        ("set/large", large),
        ("set/folder/", b""),
        ("set2", b"2"),
    ):
        s3.put_object(Bucket=own, Key=key, Body=content)
    done: list[int] = []
    to = BucketCopy(backend, progress=done.append)
    plan = to.plan_fetch(f"s3://{own}/set", "/efs/fetched")
    assert (plan.source, sorted(plan.names)) == (f"s3://{own}/set/", ["empty", "it's $(HOME)/b", "large"])
    to.fetch(plan)
    assert sum(done) == plan.size == len(large) + 1
    there = shared / "fetched"
    assert (there / "large").read_bytes() == large
    assert (there / "it's $(HOME)/b").read_text() == "b"
    assert sorted(f.name for f in there.iterdir()) == ["empty", "it's $(HOME)", "large"], "no part is left"
    assert to.plan_fetch(f"s3://{own}/set/", "/efs/fetched").complete == 3
    s3.put_object(Bucket=own, Key="set/it's $(HOME)/b", Body=b"other")
    again = to.plan_fetch(f"s3://{own}/set/", "/efs/fetched")
    assert (again.complete, again.todo) == (2, 5)
    s3.put_object(Bucket=own, Key="set/it's $(HOME)/b", Body=b"third")
    with pytest.raises(JobError, match=r"PreconditionFailed|It changed while it was copied|412"):
        to.fetch(again)
    assert (there / "it's $(HOME)/b").read_text() == "b"
    to.fetch(to.plan_fetch(f"s3://{own}/set2", "/efs/ones/one.txt"))
    assert (shared / "ones/one.txt").read_text() == "2"

    (there / "link").symlink_to("large")
    plan = to.plan_store("/efs/fetched", f"s3://{own}/back/x")
    assert (plan.left_out, plan.todo) == (("link (a link)",), plan.size)
    to.store(plan)
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket=own, Prefix="back/")["Contents"]]
    assert keys == ["back/x/empty", "back/x/it's $(HOME)/b", "back/x/large"]
    assert s3.get_object(Bucket=own, Key="back/x/large")["Body"].read() == large
    assert not s3.list_multipart_uploads(Bucket=own).get("Uploads")
    assert to.plan_store("/efs/fetched", f"s3://{own}/back/x").complete == 3
    to.store(to.plan_store("/efs/ones/one.txt", f"s3://{own}/named"))
    assert s3.get_object(Bucket=own, Key="named")["Body"].read() == b"2"

    refused: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: to.plan_fetch(f"s3://{own}/none", "/efs/x"), JobError, "there is nothing at s3://.*/none"),
        (lambda: to.plan_fetch("s3://x/none", "/efs/x"), JobError, "is not an address in S3. Write s3://bucket/prefix"),
        (lambda: to.plan_fetch("s3://no-such-bucket-of-ours/x", "/efs/x"), TransportError, "no-such-bucket-of-ours"),
        (lambda: to.plan_fetch(f"s3://{own}/set", "/etc/x"), JobError, "is not on a shared file system"),
        (lambda: to.plan_fetch(f"s3://{own}/set", "/efs/trn/jobs/x"), JobError, "is among the jobs' own files"),
    ]
    for ask, error, message in refused:
        with pytest.raises(error, match=message):
            ask()


def test_to_and_from_a_bucket(
    backend: SlurmBackend, local_aws: LocalAws, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bucket(local_aws, "trn-copies-own") as own:
        to_and_from_a_bucket(backend, local_aws, shared, monkeypatch, own)


@given(sizes=st.lists(st.integers(0, 50), max_size=12), most=st.integers(1, 60), begun=st.data())
def test_every_missing_file_is_copied_once(sizes: list[int], most: int, begun: st.DataObject) -> None:
    """In requests that are no larger than allowed; a larger file has one of its own."""
    missing = [n for n in range(len(sizes)) if begun.draw(st.booleans())]
    entries = [Entry(str(n), size, 0, 0, "") for n, size in enumerate(sizes)]
    plan = CopyPlan("", "", [*entries, Entry("link", 0, 0, 0, "0")], [], [*missing, len(sizes)], (), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy, "_MOST_BYTES", most)
        patch.setattr(copy, "_MOST_OBJECTS", 5)
        batches = list(plan.batches())
    assert [n for batch in batches for n in batch] == missing
    assert all(0 < len(batch) <= 5 for batch in batches)
    assert all(len(batch) == 1 or sum(sizes[n] for n in batch) <= most for batch in batches)
    assert plan.todo == sum(sizes[n] for n in missing)


@given(st.integers(0, 60 * 2**40))
def test_every_byte_is_in_one_span(size: int) -> None:
    """S3 has no parts of more than 5 GiB, and 10,000 of an object at most; of what is no larger than one span there are none."""
    spans = copying.spans(size)
    assert [offset for offset, _ in spans] == [0, *(offset + length for offset, length in spans[:-1])]
    assert sum(length for _, length in spans) == size
    assert all(length <= 5 * 2**30 for _, length in spans)
    assert len(spans) <= max(100, -(-size // (5 * 2**30)))
    assert (len(spans) == 1) == (size <= copying.SPAN)


def test_there_and_back(backend: SlurmBackend, tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there_and_back(backend, tmp_path, shared, monkeypatch)


def test_requests_that_are_too_large_for_a_command_line(
    backend: SlurmBackend, tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy, "_MOST_NAMES", 50)
    names = {f"{n:03}-{'n' * 90}": "" for n in range(120)}
    plan = Copy(backend).plan_upload(write(tmp_path / "many", names), "/efs/many")
    assert plan.missing == list(range(120))
    write(shared / "many", names)
    assert Copy(backend).plan_download("/efs/many", tmp_path / "many-back").names == sorted(names)


@pytest.mark.parametrize(
    ("way", "end"), [("upload", TransportError("lost", again=False)), ("download", KeyboardInterrupt())]
)
def test_an_interrupted_copy_goes_on(
    backend: SlurmBackend, tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, way: str, end: BaseException
) -> None:
    """With the files that are missing. In the bucket nothing is left."""
    monkeypatch.setattr(copy, "_MOST_OBJECTS", 2)
    here, there = tmp_path / "here", shared / f"there-{way}"
    for folder in (here, there):
        folder.mkdir()
    source, target = (here, there) if way == "upload" else (there, here)
    write(source, {name: name * 1000 for name in "abcde"})
    made = Copy(backend)

    def plan() -> CopyPlan:
        return (
            made.plan_upload(here, f"/efs/there-{way}")
            if way == "upload"
            else made.plan_download(f"/efs/there-{way}", here)
        )

    ask, asked = made._ask, iter(range(3))

    def lost(given: Any, **options: Any) -> Any:
        if isinstance(given, (TakeFiles, GiveFiles)) and next(asked, None) == 1:
            raise end
        return ask(given, **options)

    first = plan()
    monkeypatch.setattr(made, "_ask", lost)
    with pytest.raises(type(end)):
        getattr(made, way)(first)
    rest = plan()
    assert ([rest.names[n] for n in rest.missing], rest.todo) == (["c", "d", "e"], 3000)
    getattr(made, way)(rest)
    assert {file.name: file.read_text() for file in target.iterdir()} == {name: name * 1000 for name in "abcde"}


@pytest.mark.parametrize("way", ["upload", "download"])
def test_a_copy_that_outlives_the_callers_session_goes_on(
    backend: SlurmBackend, tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, way: str
) -> None:
    """The same command copies the rest, with new credentials; and says so."""
    monkeypatch.setattr(copy, "_MOST_OBJECTS", 2)
    monkeypatch.setattr(command, "backend", lambda _: backend)
    here, there = tmp_path / "here", shared / f"long-{way}"
    for folder in (here, there):
        folder.mkdir()
    source, target = (here, there) if way == "upload" else (there, here)
    write(source, {name: name * 1000 for name in "abcde"})
    words = (
        ["cp", str(here), f"cluster:/efs/long-{way}"]
        if way == "upload"
        else ["cp", f"cluster:/efs/long-{way}", str(here)]
    )
    moved, kept = iter(range(9)), Copy._moved

    def ended(self: Copy, count: int) -> None:
        if next(moved) == 3:
            refusal = {"Error": {"Code": "ExpiredToken", "Message": "The provided token has expired."}}
            raise ClientError(refusal, "PutObject")  # type: ignore[arg-type]
        kept(self, count)

    with monkeypatch.context() as patch:
        patch.setattr(Copy, "_moved", ended)
        with pytest.raises(TransportError, match=r"have expired or are not valid: .* Renew them"):
            app(words, standalone_mode=False)
    assert f"what has arrived stays there. To copy the rest: trn {' '.join(words)}" in capsys.readouterr().err
    arrived = {file.name for file in target.iterdir()}
    assert {"a", "b"} <= arrived < set("abcde")
    app(words, standalone_mode=False)
    assert f"{len(arrived)} complete already" in capsys.readouterr().err
    assert {file.name: file.read_text() for file in target.iterdir()} == {name: name * 1000 for name in "abcde"}


def test_what_was_replaced_in_the_bucket_is_refused(
    backend: SlurmBackend, tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, local_aws: LocalAws
) -> None:
    s3 = local_aws.client("s3")
    file = write(tmp_path, {"file": "good"}) / "file"
    made = Copy(backend)
    plan, put = made.plan_upload(file, "/efs/replaced"), made._put

    def replaced(root: Path, entry: Entry, at: Any) -> str:
        digest = put(root, entry, at)
        s3.put_object(Bucket=BUCKET, Key=at.key, Body=b"evil")
        return digest

    monkeypatch.setattr(made, "_put", replaced)
    with pytest.raises(JobError, match="is not what was sent: it was replaced or damaged on its way"):
        made.upload(plan)
    assert not (shared / "replaced").exists()


def test_a_file_goes_into_the_folder_that_a_slash_names(backend: SlurmBackend, tmp_path: Path, shared: Path) -> None:
    """Else the second of two files replaces the first, as `out`."""
    made, out = Copy(backend), tmp_path / "out"
    write(shared / "logs", {"a.log": "a", "b.log": "b"})
    for name in ("a", "b"):
        made.download(made.plan_download(f"/efs/logs/{name}.log", f"{out}/"))
    assert {file.name: file.read_text() for file in out.iterdir()} == {"a.log": "a", "b.log": "b"}


def test_an_empty_folder_is_copied_already(backend: SlurmBackend, tmp_path: Path) -> None:
    plan = Copy(backend).plan_upload(tmp_path, "/efs/none")
    assert (plan.complete, plan.missing, plan.left_out) == (0, [], ())


def test_what_cannot_be_copied(backend: SlurmBackend, tmp_path: Path, shared: Path) -> None:
    made, file = Copy(backend), write(tmp_path, {"file": "x", "changed": "x"}) / "file"
    (shared / "away").symlink_to("/etc")
    (shared / "a-file").write_text("x")
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: made.plan_upload(file, "/etc/x"), r"/etc/x is not on a shared file system of .*cluster:/efs/\.\.\."),
        (lambda: made.plan_upload(file, "/efs/../etc/x"), "is not on a shared file system"),
        (lambda: made.plan_upload(file, "relative"), "is not on a shared file system"),
        (lambda: made.plan_download("/efs/away/passwd", tmp_path), "leads to /etc/passwd, which is not on a shared"),
        (lambda: made.plan_upload(file, "/efs/away/x"), "leads to /etc/x, which is not on a shared"),
        (lambda: made.plan_upload(file, "/efs/trn/jobs/x/y"), "is among the jobs' own files"),
        (lambda: made.plan_upload(tmp_path, "/efs/a-file"), "a-file is a file. Choose another folder"),
        (lambda: made.plan_download("/efs/none", tmp_path), "there is no file or folder"),
        (lambda: made.plan_upload(tmp_path / "none", "/efs/x"), "there is no file or folder"),
        (lambda: made.plan_download("/efs/a-file", file / "x"), "file is a file. Give a folder"),
        (lambda: Copy(SlurmBackend(make_cluster(bucket=""), backend.transport)), "has no bucket to copy through"),
    ]
    for ask, message in cases:
        with pytest.raises(JobError, match=message):
            ask()
    changed = made.plan_upload(tmp_path / "changed", "/efs/changed")
    (tmp_path / "changed").write_text("longer")
    with pytest.raises(JobError, match="changed while it was copied"):
        made.upload(changed)


def test_links_are_made_once_and_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("other")
    links = [Entry("below/link", 0, 0, 0, "../file"), Entry("other", 0, 0, 0, "file")]
    (tmp_path / "other").symlink_to("below")
    for link in links:
        copying.link(tmp_path, link)
    made = (tmp_path / "below/link").lstat()
    assert [(tmp_path / name).readlink().as_posix() for name in ("below/link", "other")] == ["../file", "file"]
    for link in links:
        copying.link(tmp_path, link)
    assert (tmp_path / "below/link").lstat() == made
    assert (tmp_path / "file").read_text() == "other"
    assert sorted(f.name for f in tmp_path.iterdir()) == ["below", "file", "other"]


@pytest.mark.parametrize("name", ["../up", "/etc/x", "a/../../b", "", "a//b", "out/x", f"{copying.PART}x", "nul\0"])
def test_a_cluster_cannot_write_elsewhere(tmp_path: Path, name: str) -> None:
    """The list of files comes from the cluster."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    with pytest.raises(Refused), copying.arriving(folder, Entry(name, 1, 0, 0o644, "")) as out:
        out.write(b"x")
    with pytest.raises(Refused, match="leads out of"):
        copying.link(folder, Entry("l", 0, 0, 0, "../x"))
    assert [f.name for f in tmp_path.iterdir()] == ["folder"]


def test_paths_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    from trainium_cdk.client.cli.copy import _remote

    texts = (
        "cluster:/efs/x",
        "latest:a:b",
        "job-1:",
        "./a:b",
        "a/b:c",
        "/a:b",
        "plain",
        ":x",
        "sweep-1/12:x",
        "a/1/2:x",
        "./1:x",
        "s3://bucket/x",
    )
    assert [_remote(text) for text in texts] == [
        ("cluster", "/efs/x"),
        ("latest", "a:b"),
        ("job-1", ""),
        *[None] * 5,
        ("sweep-1/12", "x"),
        *[None] * 3,
    ]


def test_the_command_that_copies_the_rest_has_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainium_cdk.client.cli import copy as command
    from trainium_cdk.client.cli.options import Target

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    plan = CopyPlan(str(tmp_path), "/efs/x", [Entry("a", 1, 0, 0o644, "")], ["a"], [0], (), 100)
    monkeypatch.setattr(command, "backend", lambda _: None)
    monkeypatch.setattr(copy.Copy, "__init__", lambda *_, **__: None)
    monkeypatch.setattr(copy.Copy, "plan_upload", lambda *_: plan)
    monkeypatch.setattr(copy.Copy, "upload", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command.cp(Target("S"), "my data", "cluster:/efs/x", dry_run=False, image="aws:2")
    again = "To copy the rest: trn cp 'my data' cluster:/efs/x --image aws:2 --stack S"
    assert again in capsys.readouterr().err


def test_checkpoints_are_of_each_kind_where_its_program_writes_them() -> None:
    """Of a job of an earlier version, whose record names none, and of a kind without any, the folder of that name."""
    from trainium_cdk.client.cli.copy import _path
    from trainium_cdk.jobs import JobStatus, Stage

    class Jobs:
        names_jobs = False

        def __init__(self, checkpoints: str) -> None:
            self.checkpoints = checkpoints

        def status(self, id: str, *, progress: bool = False) -> JobStatus:
            stages = (Stage("train", "1", "COMPLETED"),)
            return JobStatus(id, "k", "q", "t", 1, None, stages, "/efs/trn/jobs/j-1", checkpoints=self.checkpoints)

    for folder, path, found in (
        ("output/checkpoints", "checkpoints", "output/checkpoints"),
        ("output", "checkpoints/ckpt_9.pt", "output/ckpt_9.pt"),
        ("output", "logs/train.0.log", "logs/train.0.log"),
        ("", "checkpoints", "checkpoints"),
    ):
        there = Jobs(f"/efs/trn/jobs/j-1/{folder}" if folder else "")
        assert _path(there, "j-20261124-4f3a9c", path) == f"/efs/trn/jobs/j-1/{found}"  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"open/a": "a", "open/closed/b": "b"})
    scandir = os.scandir

    def refused(path: str) -> Any:
        if path.endswith("closed"):  # root may read all
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    found = copying.entries_of(tmp_path, 10)
    assert [entry.name for entry in found.entries] == ["open/a"]
    assert found.left_out == ("open/closed/ (Permission denied)",)
