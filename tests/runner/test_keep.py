"""Copies of checkpoints in S3, by the AWS CLI and the S3 of the local AWS: what is kept, what is called complete, and what a job continues from."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from tests.runner.preparing import PYTHON, Cluster
from tests.runner.test_resume import MADE, SCRIPT, content, write
from tests.support import need, until
from tests.trust.proxy import Scissors
from trainium_cdk.client.jobs.runner import pyz
from trainium_cdk.runner.aws import SUFFIX
from trainium_cdk.runner.prepare import checkpoints
from trainium_cdk.runner.spec import Checkpoints, JobSpec
from trainium_cdk.runner.work.keep import Keeper

BUCKET = "kept"


@pytest.fixture(scope="module")
def s3(local_aws: LocalAws) -> Any:
    need(shutil.which("aws") is not None, "the AWS CLI is not installed")
    client = local_aws.client("s3")
    client.create_bucket(Bucket=BUCKET)
    return client


@pytest.fixture
def place(s3: Any, request: pytest.FixtureRequest) -> str:
    """An address of this test alone."""
    return f"s3://{BUCKET}/{request.node.name.partition('[')[0]}-{time.time_ns()}"


@pytest.fixture
def cluster(tmp_path: Path, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    variables = {"PATH": os.environ["PATH"], **local_aws.variables}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Cluster(tmp_path, variables)


def objects(s3: Any, place: str) -> dict[str, bytes]:
    bucket, _, key = place.removeprefix("s3://").partition("/")
    found = {}
    for one in s3.list_objects_v2(Bucket=bucket, Prefix=f"{key}/").get("Contents", []):
        with contextlib.suppress(s3.exceptions.NoSuchKey):  # just deleted
            found[one["Key"].removeprefix(f"{key}/")] = s3.get_object(Bucket=bucket, Key=one["Key"])["Body"].read()
    return found


class Kept:
    """A job, and what keeps its checkpoints."""

    def __init__(
        self, cluster: Cluster, made: Checkpoints, place: str, kind: str = "script", id: str = "run-1", index: str = ""
    ) -> None:
        self.made = replace(made, keep=f"{place}/{id}")
        self.root = cluster.write(id=id, kind=kind, checkpoints=self.made, array="0-1" if index else "")
        self.own = self.root / index
        (self.own / "state").mkdir(parents=True, exist_ok=True)
        self.folder = self.own / made.folder / made.place
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lines: list[str] = []
        self.index = index
        self.keeper = self.again()

    def again(self) -> Keeper:
        job = JobSpec(
            self.root.name, json.loads((self.root / "job.json").read_text())["kind"], (), checkpoints=self.made
        )
        return Keeper(job, self.root, self.index, self.lines.append)

    def look(self) -> list[str]:
        self.lines.clear()
        self.keeper.look()
        return self.lines


def marks(s3: Any, place: str) -> list[str]:
    """The addresses of the checkpoints that are called complete, the last one last."""
    bucket, _, key = place.removeprefix("s3://").partition("/")
    found = sorted(
        s3.list_objects_v2(Bucket=bucket, Prefix=f"{key}/").get("Contents", []), key=lambda one: one["LastModified"]
    )
    names = [one["Key"].removeprefix(f"{key}/") for one in found]
    return [one.removesuffix(SUFFIX) for one in names if one.endswith(SUFFIX)]


def whole(s3: Any, place: str) -> dict[str, dict[str, bytes]]:
    """The checkpoints that are called complete, each with its files, all of which are there; of two by the same name, the last one."""
    there, found = objects(s3, place), {}
    for name in marks(s3, place):
        try:
            sizes = json.loads(there[name + SUFFIX])["files"]
        except (ValueError, KeyError):  # which a killed AWS CLI has cut: it says nothing; or just deleted
            continue
        assert {rest: len(there[name + rest]) for rest in sizes} == sizes
        found[name.rpartition("/")[2]] = {rest.removeprefix("/"): there[name + rest] for rest in sizes}
    return found


def of(checkpoint: Path) -> dict[str, bytes]:
    return {"": checkpoint.read_bytes()} if checkpoint.is_file() else content(checkpoint)


@pytest.mark.parametrize("kind", MADE)
def test_the_newest_complete_checkpoint_is_kept_and_another_cluster_continues_from_it(
    kind: str, cluster: Cluster, s3: Any, place: str, tmp_path: Path
) -> None:
    made, make = MADE[kind]
    job = Kept(cluster, replace(made, same={"kind": kind, "workers": "64"}), place, kind)
    name = make(job.folder)
    [line] = job.look()
    assert line == f"kept: {name} in {place}/run-1"
    [digest] = {one.split("/")[1] for one in objects(s3, place)}
    assert whole(s3, place) == {name: of(job.folder / name)}
    assert job.look() == [], "there is nothing new"

    other = Cluster(tmp_path / "other", cluster.variables)
    for source in (place, f"{place}/run-1/", f"{place}/run-1/{digest}/{name}"):
        id = f"next-{len(source)}"
        folder = other.write(
            id=id, kind=kind, checkpoints=replace(made, source=source, same={"kind": kind, "workers": "64"})
        )
        assert other.prepare(folder, "check")[0] == 3
        code, output = other.prepare(folder)
        assert code == 0, output
        assert of(folder / made.folder / made.place / name) == of(job.folder / name)
        assert checkpoints.newest(made, folder / made.folder / made.place) == folder / made.folder / made.place / name
        assert not (folder / "resumed.s3").exists()


def step(folder: Path, number: int, text: str = "x") -> Path:
    write(folder / f"step-{number}/__0_0.distcp", text * 5000)
    return write(folder / f"step-{number}/.metadata", text).parent


TITAN = MADE["torchtitan"][0]


def test_the_newest_stay_and_another_one_by_the_same_name_replaces_the_first(
    cluster: Cluster, s3: Any, place: str
) -> None:
    job = Kept(cluster, replace(TITAN, keeps=2), place)
    for number in (9, 10, 100):
        step(job.folder, number)
        job.look()
    assert set(whole(s3, place)) == {"step-10", "step-100"}
    assert {name.split("/")[2] for name in objects(s3, place)} == {
        "step-10",
        "step-100",
        *(f"step-{n}.trn-complete" for n in (10, 100)),
    }

    again = step(job.folder, 100, "y")  # the job has started again from an earlier one
    write(again / "more", "z")
    job.keeper = job.again()
    assert job.look() == [f"kept: step-100 in {place}/run-1"]
    names = [one.rpartition("/")[2] for one in marks(s3, place)]
    assert names == ["step-100", "step-100"], "the older one of this name is there until it is one of the old ones"
    assert whole(s3, place)["step-100"] == content(again)


def changing(folder: Path) -> Path:
    """An AWS CLI after whose copy of files of this machine a script runs: that."""
    aws = shutil.which("aws")
    (folder / "bin").mkdir()
    (folder / "bin/aws").write_text(
        f'#!/bin/sh\n{aws} "$@" || exit\ncase "$2 $4" in sync*|"cp /"*) sh {folder}/after;; esac\n'
    )
    (folder / "bin/aws").chmod(0o755)
    os.environ["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"  # the fixture of the cluster restores it
    (folder / "after").write_text("true")
    return folder / "after"


def test_what_changes_while_it_is_copied_is_not_called_complete(
    cluster: Cluster, s3: Any, place: str, tmp_path: Path
) -> None:
    """Its program saves again over it, or deletes it, between two calls of the AWS CLI."""
    job, after = Kept(cluster, TITAN, place), changing(tmp_path)
    made = step(job.folder, 10)
    for change in (
        f"echo more >> {made}/__0_0.distcp; touch {made}/.metadata",
        f"rm {made}/.metadata",
        f"rm -r {made}",
    ):
        if not (made / ".metadata").exists():
            step(job.folder, 10)
        after.write_text(change)
        job.keeper = job.again()
        assert "could not be copied, and is tried again: " in job.look()[0]
        assert marks(s3, place) == [], change
    after.write_text("true")
    step(job.folder, 11)
    job.keeper.look(last=True)
    assert job.lines[-1] == f"kept: step-11 in {place}/run-1"
    assert list(whole(s3, place)) == ["step-11"]
    assert not any("step-10" in name for name in objects(s3, place)), "a part of the first stays nowhere"


def test_what_is_saved_again_in_the_same_place_is_there_until_the_next_one_is_whole(
    cluster: Cluster, s3: Any, place: str, tmp_path: Path
) -> None:
    job, after = Kept(cluster, replace(SCRIPT, keeps=1), place), changing(tmp_path)
    before = of(npz(job.folder / "ckpt.pt"))
    assert job.look() == [f"kept: ckpt.pt in {place}/run-1"]
    npz(job.folder / "ckpt.pt", "1")
    after.write_text(f"echo >> {job.folder}/ckpt.pt")
    [line] = job.look()
    assert (
        line
        == f"kept: ckpt.pt in {place}/run-1; a checkpoint could not be copied, and is tried again: ckpt.pt was changed while it was copied"
    )
    assert whole(s3, place) == {"ckpt.pt": before}
    job.keeper._said = -1000.0
    assert job.look() == [line], "the end of the log still has it after a while"
    after.write_text("true")
    npz(job.folder / "ckpt.pt", "2")
    job.keeper.look(last=True)
    assert job.lines[-1] == f"kept: ckpt.pt in {place}/run-1"
    assert whole(s3, place) == {"ckpt.pt": of(job.folder / "ckpt.pt")}
    assert len(objects(s3, place)) == 2, "neither the first nor a part of the second stays"


def test_a_bucket_that_refuses_is_told_once_and_tried_again(
    cluster: Cluster, s3: Any, place: str, local_aws: LocalAws
) -> None:
    name = f"late-{time.time_ns()}"
    job = Kept(cluster, TITAN, f"s3://{name}/x")
    [line] = job.look()
    assert line.startswith(f"kept: nothing in s3://{name}/x/run-1; "), "before there is a checkpoint"
    step(job.folder, 10)
    assert "; a checkpoint could not be copied, and is tried again: " in line
    assert "NoSuchBucket" in line
    job.lines.clear()
    job.keeper.look(last=False)
    assert job.lines == [], "not yet, and not told again"
    s3.create_bucket(Bucket=name)
    job.keeper.look(last=True)
    assert job.lines[-1] == f"kept: step-10 in s3://{name}/x/run-1"


def test_an_image_without_the_aws_cli_is_told_at_once(cluster: Cluster, place: str, tmp_path: Path) -> None:
    job = Kept(cluster, TITAN, place)
    os.environ["PATH"] = str(tmp_path)  # the fixture restores it
    [line] = job.look()
    assert line.endswith("there is no AWS CLI here, which reads and writes S3. Use an image that has it")


def npz(file: Path, content: str = "0") -> Path:
    import zipfile

    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data/0", content * 100)
    return file


@pytest.mark.parametrize(
    ("make", "last"),
    [
        (lambda folder: write(folder / "step_5/weights.safetensors").parent, "COMPLETE"),
        (lambda folder: write(folder / "step_5/__0_0.distcp").parent, ".metadata"),
        (lambda folder: write(folder / "checkpoint-5/model.safetensors").parent, "trainer_state.json"),
    ],
)  # fmt: skip
def test_a_checkpoint_of_a_users_script_says_itself_that_it_is_whole(
    make: Callable[[Path], Path], last: str, tmp_path: Path
) -> None:
    made = make(tmp_path)
    assert list(checkpoints.complete(SCRIPT, tmp_path)) == []
    write(made / last, "")
    assert list(checkpoints.complete(SCRIPT, tmp_path)) == [made]


def test_a_file_of_a_users_script_is_whole_as_an_archive_that_is_alone(cluster: Cluster, s3: Any, place: str) -> None:
    job = Kept(cluster, SCRIPT, place)
    alone = npz(job.folder / "1.pt")
    assert job.look() == [f"kept: 1.pt in {place}/run-1"]
    folder = cluster.write(id="next", checkpoints=replace(SCRIPT, source=place))
    code, output = cluster.prepare(folder)
    assert code == 0, output
    assert of(folder / "checkpoints") == {"1.pt": alone.read_bytes()}
    npz(job.folder / "optimizer.pt")
    assert list(checkpoints.complete(SCRIPT, job.folder)) == [], "they may be parts of the same"
    (job.folder / "optimizer.pt").unlink()
    alone.write_bytes(alone.read_bytes()[:-20])
    assert list(checkpoints.complete(SCRIPT, job.folder)) == []


def test_what_a_trainer_writes_at_its_end_is_no_checkpoint(tmp_path: Path) -> None:
    """`trainer.save_model()` writes files next to its checkpoints; others make links, and pipes."""
    for number in (100, 200):
        write(tmp_path / f"checkpoint-{number}/trainer_state.json", "{}")
        os.utime(tmp_path / f"checkpoint-{number}/trainer_state.json", (number, number))
    npz(tmp_path / "training_args.bin")
    write(tmp_path / "model.safetensors")
    (tmp_path / "latest").symlink_to("checkpoint-100")
    (tmp_path / "nowhere").symlink_to("/no/such/folder")
    os.mkfifo(tmp_path / "pipe")
    assert [one.name for one in checkpoints.complete(SCRIPT, tmp_path)] == ["checkpoint-200", "checkpoint-100"]


def test_a_link_in_a_checkpoint_is_told(cluster: Cluster, s3: Any, place: str) -> None:
    job = Kept(cluster, TITAN, place)
    (step(job.folder, 10) / "tokenizer").symlink_to("/usr")
    assert job.look()[0].endswith("step-10/tokenizer is a link, which S3 does not have. Save a copy in its place")
    assert marks(s3, place) == []


def test_a_script_whose_checkpoints_say_nothing_is_told_what_to_write(cluster: Cluster, s3: Any, place: str) -> None:
    job = Kept(cluster, SCRIPT, place)
    file = write(job.folder / "5/weights.bin")
    assert job.look() == [], "it may be written just now"
    os.utime(file.parent, (time.time() - 100, time.time() - 100))
    [line] = job.look()
    assert "nothing says that 5 is complete. Let your script write an empty file COMPLETE into its folder, last" in line
    write(file.parent / "COMPLETE", "")
    job.keeper.look(last=True)
    assert job.lines[-1].startswith("kept: 5 in ")


CALLS = """\
#!/bin/sh
calls=$(($(cat {folder}/calls) + 1))
echo $calls > {folder}/calls
[ $calls = $STOP ] || exec {aws} "$@"
[ $WHEN = before ] || {aws} "$@" <&0 &
[ $WHEN != after ] || wait
touch {folder}/now
sleep 600
"""


def test_a_kill_at_any_moment_calls_nothing_complete_that_is_not(
    cluster: Cluster, s3: Any, place: str, tmp_path: Path
) -> None:
    """Twenty-four kills of the runner: before, in and after each of the AWS CLI's calls for a checkpoint that its program has just saved again."""
    job = Kept(cluster, TITAN, place)
    record = json.loads((job.root / "job.json").read_text())
    (job.root / "job.json").write_text(json.dumps({**record, "health": {"every": 0.05}}))
    program = cluster.root / f"{pyz().name}.pyz"
    program.write_bytes(pyz().content)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/aws").write_text(
        CALLS.format(folder=tmp_path, aws=shutil.which("aws", path=cluster.variables["PATH"]))
    )
    (tmp_path / "bin/aws").chmod(0o755)
    words = [PYTHON, "-I", str(program), "keep", str(job.root), "", str(job.root / "log")]
    texts, complete = iter("abcdefghijklmnopqrstuvwxyz"), 0

    def save() -> Path:
        text = next(texts)
        made = step(job.folder, 10, text)
        for part in range(5):
            write(made / f"__{part}_1.distcp", text * (1 + part) * 100_000)
        write(made / ".metadata", text)
        return made

    def keep(stop: int, when: str) -> subprocess.Popen[str]:
        (tmp_path / "calls").write_text("0")
        (tmp_path / "now").unlink(missing_ok=True)
        variables = {**cluster.variables, "PATH": f"{tmp_path / 'bin'}:{cluster.variables['PATH']}"}
        given = {"STOP": str(stop), "WHEN": when}
        return subprocess.Popen(
            words, env={**variables, **given}, stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    save()
    with keep(0, "") as process:
        process.communicate(timeout=120)
    for stop in range(1, 9):
        for when in ("before", "in", "after"):
            made = save()
            with keep(stop, when) as process:
                try:
                    assert until(
                        lambda made=made: (tmp_path / "now").exists() or whole(s3, place) == {"step-10": of(made)}
                    )
                finally:
                    os.killpg(process.pid, signal.SIGKILL)
            if found := whole(s3, place):
                assert len({content[:1] for content in found["step-10"].values()}) == 1, "of one save, not of two"
                complete += found["step-10"] == of(made)
    assert 1 <= complete < 24, "some were killed before the end, and some after it"
    with keep(0, "") as process:
        process.communicate(timeout=120)
    assert whole(s3, place) == {"step-10": of(made)}


def test_a_network_that_breaks_in_the_middle_of_a_part(
    cluster: Cluster, s3: Any, place: str, local_aws: LocalAws
) -> None:
    """Files of three parts, of 8 MiB at most, over connections that are cut, until there were forty cuts."""
    job = Kept(cluster, TITAN, place)
    made = step(job.folder, 10)
    for number in (1, 2):
        (made / f"__{number}_0.distcp").write_bytes(os.urandom(18 * 2**20))
    (made / ".metadata").touch()
    with Scissors(int(local_aws.endpoint.rpartition(":")[2]), seconds=0.2, most=40, seed=7) as network:
        os.environ["AWS_ENDPOINT_URL"] = os.environ["AWS_ENDPOINT_URL_S3"] = (
            f"http://127.0.0.1:{network.port}"  # the fixture restores it
        )
        os.environ["AWS_MAX_ATTEMPTS"] = "1"
        for _ in range(20):
            job.keeper.look(last=True)
            if job.keeper._record.complete:
                break
            assert whole(s3, place) == {}
        assert network.cut > 5
    assert job.lines[-1].startswith("kept: step-10 in ")
    assert [line for line in job.lines if "is tried again" in line] == job.lines[:1], "it is told once"
    assert whole(s3, place) == {"step-10": content(made)}
