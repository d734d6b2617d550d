"""Copies of checkpoints in S3, by the AWS CLI and the S3 of the local AWS: what is kept, what is called complete, and what a job continues from."""

from __future__ import annotations

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
from trainium_cdk.jobs.pyz import pyz
from trainium_cdk.runner import kept
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
    found = s3.list_objects_v2(Bucket=bucket, Prefix=f"{key}/").get("Contents", [])
    return {
        one["Key"].removeprefix(f"{key}/"): s3.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in found
    }


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


def whole(s3: Any, place: str) -> dict[str, dict[str, bytes]]:
    """The checkpoints that are called complete, each with its files; all of them are there."""
    there, found = objects(s3, place), {}
    for name in [one.removesuffix(kept.SUFFIX) for one in there if one.endswith(kept.SUFFIX)]:
        try:
            sizes = json.loads(there[name + kept.SUFFIX])["files"]
        except ValueError:  # which a killed AWS CLI has cut: it says nothing
            continue
        files = {rest.removeprefix("/"): there[name + rest] for rest in sizes}
        assert {rest: len(there[name + rest]) for rest in sizes} == sizes
        found[name.rpartition("/")[2]] = files
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
    assert line.startswith(f"kept: {name} in {place}/run-1/")
    assert whole(s3, place) == {name: of(job.folder / name)}
    assert job.look() == [], "there is nothing new"

    other = Cluster(tmp_path / "other", cluster.variables)
    for source in (place, f"{place}/run-1/", line.rpartition(" ")[2] + f"/{name}"):
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
    assert list(whole(s3, place)) == ["step-10", "step-100"]
    assert {name.split("/")[2] for name in objects(s3, place)} == {
        "step-10",
        "step-100",
        *(f"step-{n}.trn-complete" for n in (10, 100)),
    }

    again = step(job.folder, 100, "y")  # the job has started again from an earlier one
    write(again / "more", "z")
    job.keeper = job.again()
    assert job.look()[0].startswith("kept: step-100 in ")
    (again / "more").unlink()
    assert job.look(), "the same name, another content"
    assert whole(s3, place)["step-100"] == content(again)
    assert not any(name.endswith("more") for name in objects(s3, place))


def test_what_changes_while_it_is_copied_is_not_called_complete(
    cluster: Cluster, s3: Any, place: str, tmp_path: Path
) -> None:
    """Its program saves again over it, or deletes it, between two calls of the AWS CLI."""
    job = Kept(cluster, TITAN, place)
    made = step(job.folder, 10)
    aws = shutil.which("aws", path=cluster.variables["PATH"])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/aws").write_text(f'#!/bin/sh\n{aws} "$@" || exit\n[ "$2" != sync ] || sh {tmp_path}/after\n')
    (tmp_path / "bin/aws").chmod(0o755)
    os.environ["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"  # the fixture restores it
    for change in (
        f"echo more >> {made}/__0_0.distcp; touch {made}/.metadata",
        f"rm {made}/.metadata",
        f"rm -r {made}",
    ):
        if not (made / ".metadata").exists():
            step(job.folder, 10)
        (tmp_path / "after").write_text(change)
        job.look()
        assert whole(s3, place) == {}, change
    (tmp_path / "after").write_text("true")
    step(job.folder, 11)
    assert job.look()[-1].startswith("kept: step-11 in ")
    assert list(whole(s3, place)) == ["step-11"]
    assert not any("step-10" in name for name in objects(s3, place)), "a part of the first stays nowhere"


def test_a_bucket_that_refuses_is_told_once_and_tried_again(
    cluster: Cluster, s3: Any, place: str, local_aws: LocalAws
) -> None:
    name = f"late-{time.time_ns()}"
    job = Kept(cluster, TITAN, f"s3://{name}/x")
    [line] = job.look()
    assert line.startswith(f"kept: nothing in s3://{name}/x/run-1/"), "before there is a checkpoint"
    step(job.folder, 10)
    assert "; a checkpoint could not be copied, and is tried again: " in line
    assert "NoSuchBucket" in line
    job.lines.clear()
    job.keeper.look(last=False)
    assert job.lines == [], "not yet, and not told again"
    s3.create_bucket(Bucket=name)
    job.keeper.look(last=True)
    assert job.lines[-1].startswith(f"kept: step-10 in s3://{name}/x/run-1/")


def test_an_image_without_the_aws_cli_is_told_at_once(cluster: Cluster, place: str, tmp_path: Path) -> None:
    job = Kept(cluster, TITAN, place)
    os.environ["PATH"] = str(tmp_path)  # the fixture restores it
    [line] = job.look()
    assert line.endswith("there is no AWS CLI here, which reads and writes S3. Use an image that has it")


def test_two_clusters_jobs_of_one_id_share_a_prefix(cluster: Cluster, s3: Any, place: str, tmp_path: Path) -> None:
    first, second = Kept(cluster, TITAN, place), Kept(Cluster(tmp_path / "b", cluster.variables), TITAN, place)
    step(first.folder, 100, "a")
    first.look()
    step(second.folder, 10, "b")
    second.look()
    assert {name: len(files) for name, files in whole(s3, place).items()} == {"step-100": 2, "step-10": 2}
    assert len({name.split("/")[1] for name in objects(s3, place)}) == 2
    next = cluster.write(id="next", checkpoints=replace(TITAN, source=place))
    code, output = cluster.prepare(next)
    assert code == 0, output
    assert [one.name for one in (next / "output/checkpoint").iterdir()] == ["step-10"], "what was kept last"


def npz(file: Path) -> Path:
    import zipfile

    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data/0", "0" * 100)
    return file


@pytest.mark.parametrize(
    ("make", "last"),
    [
        (lambda folder: write(folder / "step_5/weights.safetensors").parent, "COMPLETE"),
        (lambda folder: write(folder / "step_5/__0_0.distcp").parent, ".metadata"),
        (lambda folder: write(folder / "checkpoint-5/model.safetensors").parent, "trainer_state.json"),
        (lambda folder: write(folder / "5/state/manifest.ocdbt").parents[1], "_CHECKPOINT_METADATA"),
    ],
)  # fmt: skip
def test_a_checkpoint_of_a_users_script_says_itself_that_it_is_whole(
    make: Callable[[Path], Path], last: str, tmp_path: Path
) -> None:
    made = make(tmp_path)
    assert list(checkpoints.complete(SCRIPT, tmp_path)) == []
    write(made / last, "")
    assert list(checkpoints.complete(SCRIPT, tmp_path)) == [made]
    made.rename(made.with_name("7.orbax-checkpoint-tmp-1"))
    assert list(checkpoints.complete(SCRIPT, tmp_path)) == []


def test_a_file_of_a_users_script_is_whole_as_an_archive(cluster: Cluster, s3: Any, place: str) -> None:
    job = Kept(cluster, SCRIPT, place)
    npz(job.folder / "1.pt")
    broken = npz(job.folder / "2.pt")
    broken.write_bytes(broken.read_bytes()[:-20])
    write(job.folder / "3.step")
    assert [one.name for one in checkpoints.complete(SCRIPT, job.folder)] == ["1.pt"]
    assert job.look()[0].startswith("kept: 1.pt in ")
    folder = cluster.write(id="next", checkpoints=replace(SCRIPT, source=place))
    code, output = cluster.prepare(folder)
    assert code == 0, output
    assert of(folder / "checkpoints") == {"1.pt": (job.folder / "1.pt").read_bytes()}


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


def test_what_cannot_be_continued_from_is_refused(cluster: Cluster, s3: Any, place: str, local_aws: LocalAws) -> None:
    same = {"kind": "torchtitan", "workers": "64"}
    job = Kept(cluster, replace(TITAN, same=same), place, kind="torchtitan")
    for number in (10, 11):
        step(job.folder, number)
        job.look()

    def prepare(kind: str = "torchtitan", source: str = place, **other: str) -> tuple[int, str]:
        made = replace(TITAN, source=source, same={**same, **other}, transfer={"eu-north-1": 20.0})
        return cluster.prepare(cluster.write(id=f"n{time.time_ns()}", kind=kind, checkpoints=made))

    assert prepare("finetune") == (64, f"trn: {job.keeper._to.removesuffix('/')}/step-11 is a checkpoint of torchtitan, which finetune does not read. Submit the same kind, or name another\n")  # fmt: skip
    code, output = prepare(workers="32")
    assert (code, "a job with workers 64, and this job has workers 32" in output, "fetching" in output) == (
        64,
        True,
        False,
    )
    assert prepare(source=f"s3://{BUCKET}/nothing")[0] == 64
    code, output = prepare(source="s3://no-such-bucket-1/x")
    assert (code, "s3://no-such-bucket-1/x could not be read: " in output) == (75, True)

    key = f"{job.keeper._to}/step-11/.metadata".removeprefix(f"s3://{BUCKET}/")
    s3.delete_object(Bucket=BUCKET, Key=key)
    code, output = prepare()
    assert (code, "/step-11 is not whole: the one before it is used" in output, "/step-10: " in output) == (
        0,
        True,
        True,
    )

    north = local_aws.client("s3", "eu-north-1")
    north.create_bucket(Bucket="north", CreateBucketConfiguration={"LocationConstraint": "eu-north-1"})
    for name, text in {"step-3/.metadata": "x", "step-3/a": "y" * 1_000_000, "step-4/a": "z", "trn-checkpoints": "kind torchtitan\nworkers 64\n"}.items():  # fmt: skip
        north.put_object(Bucket="north", Key=f"mine/{name}", Body=text.encode())
    code, output = prepare(source="s3://north/mine")
    assert code == 0, output
    assert "It is in eu-north-1: AWS charges about 0.02 USD for the transfer and the NAT gateway" in output
    code, output = prepare(source="s3://north/mine", workers="32")
    assert (code, "this job has workers 32" in output, "fetching" in output) == (64, True, False)


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
    """Twenty-one kills of the runner: before, in and after each of the AWS CLI's calls for a checkpoint that its program has just saved again."""
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
    for stop in range(1, 8):
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
    assert 1 <= complete < 21, "some were killed before the end, and some after it"
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
