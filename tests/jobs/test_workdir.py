"""`--workdir`: what of a folder is sent, once, and what a job finds: with the S3 of the local AWS, the real AWS CLI and a real Slurm."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from sandbox import LocalAws
from sandbox.slurm import LocalSlurm
from tests.credentials import session
from tests.jobs.conftest import fleet, make_cluster
from tests.jobs.kubernetes.conftest import make_cluster as make_eks
from tests.support import completed
from trainium_cdk.client.cli import app as cli
from trainium_cdk.client.cli import follow
from trainium_cdk.client.jobs import workdir
from trainium_cdk.client.jobs.kubernetes.objects import render as render_eks
from trainium_cdk.description.outputs.contract import CODE
from trainium_cdk.errors import JobError, SubmitError
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend
from trainium_cdk.runner.spec import Place

BUCKET, UNLISTED = "trn-workdir", "trn-workdir-unlisted"
TRAIN = "import sys, helper, pkg.mod\nprint('found', helper.X, pkg.mod.Y, open('data.txt').read(), sys.argv[1:])\n"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "train.py": TRAIN,
        "helper.py": "X = 1\n",
        "pkg/__init__.py": "",
        "pkg/mod.py": "Y = 2\n",
        "data.txt": "three",
    }
    return write(tmp_path / "project", files)


@pytest.mark.parametrize(
    ("files", "sent"),
    [
        ({".gitignore": "*.log\n/top\n", "a.log": "", "top/x": "", "sub/top/x": ""}, "sub/top/x"),
        ({".gitignore": "*\n!keep*\n!.gitignore\n", "keep.py": "", "other.py": ""}, "keep.py"),
        ({"sub/.gitignore": "x\n", "sub/x": "", "x": ""}, "x"),
        ({".gitignore": "x\n", "sub/.gitignore": "!x\n", "sub/x": "", "x": ""}, "sub/x"),
        ({".gitignore": "x\n", ".trnignore": "!x\ny\n", "x": "", "y": ""}, "x"),
        ({".gitignore": "folder/\n", "folder/a": "", "file/folder": ""}, "file/folder"),
        ({".env": "", ".git/config": "", ".aws/credentials": "", "__pycache__/m.pyc": "", ".venv/x": "", "a": ""}, "a"),
    ],
)
def test_what_is_sent(tmp_path: Path, files: dict[str, str], sent: str) -> None:
    found = [entry.name for entry in workdir.read(write(tmp_path, files)).entries]
    assert [name for name in found if "ignore" not in name] == sent.split()


def test_a_single_file_is_counted_as_one(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("12")
    assert str(workdir.read(tmp_path)) == f"{tmp_path}: 1 file, 2 bytes"
    (tmp_path / "b.py").touch()
    assert str(workdir.read(tmp_path)) == f"{tmp_path}: 2 files, 2 bytes"


def test_ignore_files_agree_with_git(tmp_path: Path) -> None:
    names = [
        "a.py",
        "a.log",
        "build/x",
        "src/build/y",
        "src/keep.log",
        "docs/b.txt",
        "docs/deep/b.txt",
        "x y/#z",
        "!odd",
    ]
    rules = {".gitignore": "*.log\n!keep.log\n/build\ndocs/**/b.txt\n\\!odd\n", "src/.gitignore": "/build/\n"}
    write(tmp_path, {**dict.fromkeys(names, ""), **rules})
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    git = ["git", "-C", str(tmp_path), "ls-files", "-z", "--others", "--exclude-standard"]
    by_git = completed(git, check=True).stdout.split("\0")
    assert sorted(entry.name for entry in workdir.read(tmp_path).entries) == sorted(filter(None, by_git))
    below = [name.removeprefix("src/") for name in by_git if name.startswith("src/")]
    assert sorted(entry.name for entry in workdir.read(tmp_path / "src").entries) == sorted(below)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("true", "has no files that are sent"),
        ("ln -s /etc/passwd x", r"x is a link to /etc/passwd, which leads out of .*\.trnignore"),
        ("ln -s ../outside x; touch ../outside", "leads out of"),
        (
            "touch a; ln -s ../folder/a x",
            "x is a link to ../folder/a, which leads out of",
        ),  # where it runs, the folder has another name
        ("touch a b c d", r"has more than 4 bytes, or more than 3 files; most so far are in a \(0 bytes\)"),
        ("printf 12345 > big", "big has 5 bytes; 4 is the maximum"),
        ("printf '\\xff' > .gitignore", "cannot read .*gitignore: .*Save it as UTF-8"),
    ],
)
def test_what_is_refused(tmp_path: Path, made: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    subprocess.run(["bash", "-c", made], cwd=folder, check=True)
    monkeypatch.setattr(workdir, "MAX_BYTES", 4)
    monkeypatch.setattr(workdir, "MAX_FILES", 3)
    with pytest.raises(JobError, match=message):
        workdir.read(folder)


def test_the_script_is_in_the_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / ".gitignore").write_text("data.txt\nhidden.py\n")
    write(project, {"hidden.py": "1", "../elsewhere.py": "1"})
    monkeypatch.chdir(project / "pkg")
    for script in ("pkg/mod.py", "mod.py", str(project / "pkg/mod.py")):
        assert Script.from_workdir(project, script).inside == "pkg/mod.py"
    (project / "also").symlink_to("pkg")
    assert Script.from_workdir(project, "also/mod.py").inside == "pkg/mod.py"
    assert {e.name for e in workdir.read(project).entries if e.name.startswith("also")} == {"also"}, "a link stays one"
    (linked := project.parent / "linked").symlink_to(project)
    assert Script.from_workdir(linked, str(linked / "pkg/mod.py")).inside == "pkg/mod.py"
    for script, message in {
        "none.py": "there is no script none.py in",
        "../elsewhere.py": "there is no script",
        "hidden.py": "left out",
    }.items():
        with pytest.raises(JobError, match=message):
            Script.from_workdir(project, script)
    with pytest.raises(JobError, match="not a folder"):
        Script.from_workdir(project / "train.py", "train.py")


def on_head_node(slurm: LocalSlurm, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch, bucket: str) -> SlurmBackend:
    """The jobs as of a head node, with a new bucket in the S3 of the local AWS."""
    for name, value in local_aws.variables.items():
        monkeypatch.setenv(name, value)
    local_aws.client("s3").create_bucket(Bucket=bucket)
    path = f"{Path(sys.executable).parent}:{slurm.node_env()['PATH']}"
    transport = LocalTransport(env={**slurm.node_env(), **local_aws.variables, "PATH": path}, interval=0.2)
    return SlurmBackend(make_cluster(fleet(nodes=4), bucket=bucket, region=local_aws.region), transport)


@pytest.fixture
def backend(slurm: LocalSlurm, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmBackend]:
    yield on_head_node(slurm, local_aws, monkeypatch, BUCKET)
    s3 = local_aws.client("s3")
    for found in s3.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        s3.delete_object(Bucket=BUCKET, Key=found["Key"])
    s3.delete_bucket(Bucket=BUCKET)


def log(backend: SlurmBackend, id: str) -> str:
    done = backend.wait(id, timeout=300)
    text = b"".join(chunk.data for chunk in backend.logs(id)).decode()
    assert done.ok, text
    return text


def test_every_node_has_the_same_files_which_are_sent_once(backend: SlurmBackend, project: Path, shared: Path) -> None:
    (project / "run.sh").write_text("#!/bin/bash\npwd -P\n")
    (project / "run.sh").chmod(0o755)
    (project / "link.py").symlink_to("helper.py")
    sent = backend.submit(Script.from_workdir(project, "train.py", args=("a b", "$x"), nodes=2, cache="w"))
    assert sent.sent is not None
    assert sent.sent[0] == 7
    assert sent.stages.keys() == {"train"}, "the head node has fetched so few files itself"
    assert log(backend, sent.id).count("found 1 2 three ['a b', '$x']") == 2
    code = Path(str(shared.parent) + sent.directory) / "code"
    assert (code / "link.py").readlink() == Path("helper.py")
    assert os.access(code / "run.sh", os.X_OK)
    assert not os.access(code / "train.py", os.X_OK)

    again = backend.submit(Script.from_workdir(project, "run.sh", cache="w"))
    assert again.sent == (0, 0)
    assert again.directory in log(backend, again.id)

    (project / "helper.py").write_text("X = 10\n")
    changed = backend.submit(Script.from_workdir(project, "train.py", cache="w"))
    assert changed.sent is not None
    assert changed.sent[0] == 7
    assert "found 10 2 three []" in log(backend, changed.id)
    assert (code / "helper.py").read_text() == "X = 1\n", "the first job keeps its own"


SWEPT = """import os, pathlib, sys
own, index = pathlib.Path("result.txt"), os.environ["TRN_ARRAY_INDEX"]
print(sys.argv[1:], os.environ["TRN_SWEEP_LR"], os.environ["TRN_SWEEP_SEED"], open("data.txt").read(), own.read_text())
pathlib.Path("out").mkdir()
for file in (own, pathlib.Path("out/new.txt")):
    file.write_text(index)
print("step 1 loss", 4 - int(index), "lr 1", flush=True)
"""


def test_members_of_a_sweep_have_their_values_and_their_own_files(
    backend: SlurmBackend,
    project: Path,
    shared: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Their logs are read together, with one request in each round."""
    write(project, {"train.py": SWEPT, "result.txt": "of a trial"})
    sweep = ["lr=1e-4,3e-4", "seed=1,$(id)"]
    sent = backend.submit(Script.from_workdir(project, "train.py", args=("s={seed}",), sweep=sweep))
    requests = list[str]()
    ask = backend.ask
    monkeypatch.setattr(
        backend, "ask", lambda given, **more: requests.append(type(given).__name__) or ask(given, **more)
    )
    monkeypatch.setattr(follow, "backend", lambda _: backend)
    cli.app(["logs", sent.id, "-f"], standalone_mode=False)
    followed = capfd.readouterr()
    assert requests[0] == "Status"
    assert set(requests[1:]) == {"ReadLog"}
    values = [("1e-4", "1"), ("1e-4", "$(id)"), ("3e-4", "1"), ("3e-4", "$(id)")]
    place = shared / "trn/jobs" / sent.id
    for index, (lr, seed) in enumerate(values):
        assert f"[{index}] 0: ['s={seed}', '--lr={lr}'] {lr} {seed} three of a trial\n" in followed.out
        for name in ("result.txt", "out/new.txt"):
            assert (place / str(index) / "code" / name).read_text() == str(index)
    assert (place / "code/result.txt").read_text() == "of a trial"
    summed = [line for line in followed.err.splitlines() if "loss" in line]
    assert summed == [
        f"[{n}] lr={values[n][0]} seed={values[n][1]}: step 1: loss {4 - n}, from {4 - n}" for n in (3, 2, 1, 0)
    ]
    requests.clear()
    cli.app(["logs", sent.id, "--metrics", "--tail", "1"], standalone_mode=False)
    printed = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(one["member"], one["values"]["lr"], one["loss"]) for one in printed] == [
        (str(n), values[n][0], 4 - n) for n in range(4)
    ]
    assert requests == ["ReadLog"]
    cli.app(["status", sent.id], standalone_mode=False)
    shown = capfd.readouterr().out.splitlines()
    assert "4 completed" in shown[1] + shown[2] + shown[3]
    assert f"{sent.id}/1\t1e-4\t$(id)\tCOMPLETED" in "\n".join(shown)


def test_what_the_bucket_deletes_soon_is_sent_again(
    backend: SlurmBackend, local_aws: LocalAws, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket counts from the day on which an object was written."""

    def send() -> int:
        return workdir.send_folder(workdir.read(project), BUCKET, local_aws.region).files

    assert (send(), send()) == (5, 0)
    with monkeypatch.context() as patch:
        patch.setattr(workdir, "_SENT_AGAIN", dt.timedelta(0))  # as after 30 days
        assert send() == 5
    assert log(backend, backend.submit(Script.from_workdir(project, "train.py")).id).count("found 1 2 three")
    (project / "helper.py").write_text("X = 10\n")
    assert (send(), send()) == (5, 0)


def test_who_may_not_list_the_bucket_can_send(
    local_aws: LocalAws, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 does not tell them which objects are missing: nor a head node, whose permission to list has a condition on the prefix."""
    s3 = local_aws.client("s3")
    s3.create_bucket(Bucket=UNLISTED)
    with session(local_aws, 900, "s3:GetObject", "s3:PutObject") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        with pytest.raises(ClientError, match="AccessDenied"):
            boto3.client("s3").get_object(Bucket=UNLISTED, Key=f"{CODE}/missing")
        sent = [workdir.send_folder(workdir.read(project), UNLISTED, local_aws.region).files for _ in range(2)]
    assert sent == [5, 0]
    for found in s3.list_objects_v2(Bucket=UNLISTED)["Contents"]:
        s3.delete_object(Bucket=UNLISTED, Key=found["Key"])
    s3.delete_bucket(Bucket=UNLISTED)


@pytest.mark.parametrize("packed", [True, False])
def test_content_that_was_replaced_is_refused(
    backend: SlurmBackend, local_aws: LocalAws, project: Path, packed: bool
) -> None:
    job, s3 = Script.from_workdir(project, "train.py"), local_aws.client("s3")
    backend.submit(job)
    [key] = [o["Key"] for o in s3.list_objects_v2(Bucket=BUCKET, Prefix=CODE)["Contents"]]
    body = gzip.decompress(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    other = gzip.compress(body.replace(b"X = 1", b"X = 2"))
    s3.put_object(Bucket=BUCKET, Key=key, Body=other if packed else b"x")
    with pytest.raises(SubmitError, match=r"not the one that was sent|another content than was sent"):
        backend.submit(job)


def test_kubernetes_fetches_it_in_prepare(project: Path) -> None:
    job = Script.from_workdir(project, "train.py", nodes=2)
    found = render_eks(job, make_eks(fleet(queue="trn")), "t")
    assert found.stages == ("prepare", "train")
    [step], program = found.spec.prepare, found.spec.stages[-1].program
    assert (step.do, step.with_["digest"]) == ("code", job.workdir.archive)
    assert program is not None
    assert program.folder == (Place("job"), "/code")


def test_a_large_folder_is_fetched_by_a_node(
    backend: SlurmBackend, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    padding = os.urandom(51_000_000)
    (project / "large.bin").write_bytes(padding)
    sent = backend.submit(Script.from_workdir(project, "train.py"))
    assert list(sent.stages) == ["prepare", "train"]
    assert "found 1 2 three" in log(backend, sent.id)


def test_a_file_that_changes_meanwhile(local_aws: LocalAws, backend: SlurmBackend, project: Path) -> None:
    job = Script.from_workdir(project, "train.py")
    (project / "helper.py").write_text("X = 5\n")
    with pytest.raises(JobError, match=r"helper.py changed while the workdir was sent. Submit again"):
        backend.submit(job)


def test_modules_on_a_real_slurm(backend: SlurmBackend, tmp_path: Path) -> None:
    """A module of the folder is started by its name; what no environment has is refused before a node is asked for."""
    code = write(
        tmp_path / "code",
        {"pkg/__init__.py": "", "pkg/run.py": "import sys\nprint(__name__, __package__, *sys.argv[1:])\n"},
    )
    for entry, token in (("pkg.run", "m1"), ("timeit", "m2")):
        folder, args = (code, ("--x", "a b")) if entry == "pkg.run" else (None, ("-n", "1", "print('timed')"))
        sent = backend.submit(Script.from_command(("python", "-m", entry, *args), folder), token)
        assert backend.wait(sent.id, timeout=120).ok
        log = b"".join(chunk.data for chunk in backend.logs(sent.id)).decode()
        assert ("__main__ pkg --x a b" if folder else "timed") in log
    absent = (
        (
            Script.from_command(("python", "-m", "no_such.train")),
            r"has no no_such. Send the folder that has it \(--workdir\)",
        ),
    )
    for job, message in absent:
        with pytest.raises(SubmitError, match=message):
            backend.submit(job, "absent")
