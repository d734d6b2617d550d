"""`trn launch --failover`: with a real Slurm for each of two environments, the bucket and EC2 of the local AWS; nothing is deployed."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from sandbox import LocalAws
from sandbox.slurm import LocalSlurm, available
from tests.cli.test_launch import run
from tests.jobs.conftest import CONFIGURATION, slurm  # noqa: F401  a fixture
from tests.jobs.test_resume import torch_file, write
from tests.jobs.test_workdir import on_head_node
from tests.support import need, until
from trainium_cdk.cli import failover
from trainium_cdk.cli.carrying import carry
from trainium_cdk.errors import JobError, SubmitError, UpdateError
from trainium_cdk.jobs import BertLarge, SlurmBackend, checkpoints, plan

FILE = """name: {name}
region: us-east-1
network: {{zone_ids: [use1-az{zone}]}}
pcluster:
  queues: [{{name: compute1, compute_resources: [{{name: trn, instance_type: trn1.32xlarge, max_nodes: 2}}]}}]
storage: {{efs: {{}}}}
"""
JOB = """set -e
folder=$TRN_SHARED_ROOT/efs/run7
mkdir -p "$folder"
done=$(ls "$TRN_CHECKPOINTS" | wc -l)
touch "$folder/$done.step" "$TRN_CHECKPOINTS/$done.step"
echo "steps from $done"
if [ "$1 $done" = 'wait 0' ]; then sleep 600; fi
exit "$(($1))"
"""
NO_CAPACITY = "(Code:InsufficientInstanceCapacity)Failure when resuming nodes"
STACKS = ("TrnPclusterStack-first", "TrnPclusterStack-second")
OPTIONS = ["--yes", "--patience", "0", "--checkpoints", "/efs/run7", "--failover", "second.yaml"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "cdk.json").write_text("{}")
    (tmp_path / "job.sh").write_text(JOB)
    for name in ("first", "second"):
        (tmp_path / f"{name}.yaml").write_text(FILE.format(name=name, zone=4))
    return tmp_path


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    need(available() is None, str(available()))
    with LocalSlurm.start(tmp_path_factory.mktemp("second"), CONFIGURATION) as running:
        yield running


def shared_files(of: LocalSlurm) -> Path:
    return Path(of.node_env()["TRN_SHARED_ROOT"]) / "efs"


@pytest.fixture
def clusters(
    slurm: LocalSlurm,  # noqa: F811
    second: LocalSlurm,
    local_aws: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[list[SlurmBackend]]:
    """Two deployed clusters."""
    made = {}
    for stack, of in zip(STACKS, (slurm, second), strict=True):
        backend = on_head_node(of, local_aws, monkeypatch, f"trn-{stack.lower()}")
        backend.cluster = backend.cluster.model_copy(update={"stack": stack})
        made[stack] = backend
    connect = import_module("trainium_cdk.jobs.connect")
    monkeypatch.setattr(connect, "connect", lambda cluster, **_: made[cluster.stack])
    monkeypatch.setattr("trainium_cdk.cli.options.deployed", lambda on: made[on.stack].cluster)
    monkeypatch.setattr(failover._Launch, "_state", lambda *_: "CREATE_COMPLETE")
    monkeypatch.setattr("trainium_cdk.operations.updates.live.deployed", lambda *_: {})
    yield list(made.values())
    s3 = local_aws.client("s3")
    for backend in made.values():
        for found in s3.list_objects_v2(Bucket=backend.cluster.bucket).get("Contents", []):
            s3.delete_object(Bucket=backend.cluster.bucket, Key=found["Key"])
        s3.delete_bucket(Bucket=backend.cluster.bucket)


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    real = failover.launching.trn
    monkeypatch.setattr(
        failover.launching, "trn", lambda *a: (calls.append(a[1]) or 0) if a[0] == "destroy" else real(*a)
    )
    return calls


def test_goes_on_where_there_is_capacity(
    folder: Path,
    clusters: list[SlurmBackend],
    removed: list[str],
    slurm: LocalSlurm,  # noqa: F811
    second: LocalSlurm,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """From its checkpoint, when its node is taken away and there is no other one. Run again, the command finds the job."""
    root, nodes = shared_files(slurm), ",".join(slurm.node_names)

    def take_nodes() -> None:
        assert until(lambda: list(root.glob("trn/jobs/*/checkpoints/0.step")))
        slurm.run(["scontrol", "update", f"nodename={nodes}", "state=down", f"reason={NO_CAPACITY}"])

    taking = threading.Thread(target=take_nodes)
    taking.start()
    try:
        assert run("first.yaml", "job.sh", *OPTIONS, "--remove", "--", "wait") == 0
    finally:
        taking.join()
        slurm.run(["scontrol", "update", f"nodename={nodes}", "state=resume"])
    out, err = capfd.readouterr()
    assert re.findall(r"steps from \d", out)[-1] == "steps from 1"
    assert re.search(f"leaves {STACKS[0]} in us-east-1: .*InsufficientInstanceCapacity", err)
    assert f"on {STACKS[1]} in us-east-1: completed" in err
    assert removed == list(STACKS)
    [left], [done] = clusters[0].list(), clusters[1].list()
    assert (left.id, left.state, done.state) == (done.id, "CANCELLED", "COMPLETED")
    assert sorted(file.name for file in (shared_files(second) / "run7").iterdir()) == ["0.step", "1.step"]
    assert list((folder / "state/trainium-cdk/launch").iterdir()) == [
        folder / f"state/trainium-cdk/launch/{left.id[4:]}.lock"
    ]

    assert run("first.yaml", "job.sh", *OPTIONS, "--", "wait") == 0
    assert "completed" in capfd.readouterr().err
    assert [len(cluster.list()) for cluster in clusters] == [1, 1]


def test_of_a_kind_the_newest_complete_checkpoint_goes_with_it(
    folder: Path,
    clusters: list[SlurmBackend],
    slurm: LocalSlurm,  # noqa: F811
    second: LocalSlurm,
) -> None:
    """As its directory names it; what another job must have in common with it, too. A job there goes on from it."""
    first, other = clusters
    places = [shared_files(slurm), shared_files(second)]
    for place in places:
        (place / "data").mkdir()
    bert = BertLarge(data="/efs/data", nodes=2)
    slurm.run(["scontrol", "update", "PartitionName=compute1", "State=DOWN"])
    try:
        id = first.submit(bert).id
        first.cancel(id)
    finally:
        slurm.run(["scontrol", "update", "PartitionName=compute1", "State=UP"])
    assert carry(id, first, other, (), folder / "here") == ""
    output = places[0] / "trn/jobs" / id / "output"
    for step in (9, 10, 100):
        torch_file(output / f"ckpt_{step}.pt", whole=step != 100)
    words = checkpoints.description(plan(bert, first.cluster))
    pairs = zip(words[::2], words[1::2], strict=True)
    write(output / "trn-checkpoints", "".join(f"{key} {value}\n" for key, value in pairs))
    into = carry(id, first, other, (), folder / "here")
    assert into == f"/efs/trn/moved/{id}"
    there = places[1] / into.removeprefix("/efs/")
    assert sorted(file.name for file in there.iterdir()) == ["ckpt_10.pt", "trn-checkpoints"]
    assert other.submit(bert.model_copy(update={"resume_from": into}), "goes-on").id == "bert-large-goes-on"
    other.cancel("bert-large-goes-on")
    with pytest.raises(SubmitError, match="has checkpoints of a job with phase 1"):
        other.submit(BertLarge(phase=2, checkpoint=f"{into}/ckpt_10.pt", data="/efs/data", nodes=2, resume_from=into))


def test_a_job_that_fails_by_itself_stays(
    folder: Path, clusters: list[SlurmBackend], removed: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("first.yaml", "job.sh", *OPTIONS, "--token", "fails", "--", "3") == 1
    assert f"job-fails on {STACKS[0]} in us-east-1: FAILED: exit code 3" in capfd.readouterr().err
    assert "job-fails" not in {job.id for job in clusters[1].list()}
    assert removed == []


def test_an_environment_in_which_nothing_can_start_is_passed_over(
    folder: Path, clusters: list[SlurmBackend], capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "first.yaml").write_text(FILE.format(name="first", zone=3))
    assert run("first.yaml", "job.sh", *OPTIONS, "--token", "over", "--", "0") == 0
    err = capfd.readouterr().err
    assert f"{STACKS[0]} in us-east-1 cannot be used now: trn1.32xlarge for compute1/trn = use1-az3: this zone" in err
    assert "job-over" not in {job.id for job in clusters[0].list()}
    assert f"job-over on {STACKS[1]} in us-east-1: completed" in err


def test_what_is_wrong_is_said_before_anything_begins(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "third.yaml").write_text(FILE.format(name="third", zone=4).replace("max_nodes: 2", "max_nodes: 1"))
    for words, message in (
        (["--nodes", "2", "--failover", "third.yaml"], r"third\.yaml: nodes is 2, but queue compute1 has at most 1"),
        (
            ["--failover", "first.yaml"],
            r"first\.yaml and first\.yaml both describe TrnPclusterStack-first in us-east-1",
        ),
        (["--failover", "second.yaml", "--patience", "long"], "--patience is 'long'. Write a number of minutes"),
        (
            ["--failover", "second.yaml", "--checkpoints", "/tmp/x"],
            "--checkpoints /tmp/x is not on a shared file system",
        ),
        (["--failover", "second.yaml", "--array", "0-3"], "--array: `trn launch` prints one log"),
        (["--failover", "second.yaml", "--team", "a"], "--team is not an option of .* Set TRN_TEAM instead"),
        (["--failover"], "--failover has no value"),
        (["--checkpoints", "/efs/x"], "Give one with --failover, too"),
    ):
        with pytest.raises(JobError, match=message):
            run("first.yaml", "job.sh", *words)
    (folder / "cdk.json").unlink()
    with pytest.raises(UpdateError, match="there is no CDK app"):
        run("first.yaml", "job.sh", "--failover", "second.yaml")


def test_a_second_run_of_the_same_launch_is_refused(folder: Path) -> None:
    with failover._alone("abc"), pytest.raises(JobError, match="the same launch runs on this machine already"):
        run("first.yaml", "job.sh", "--failover", "second.yaml", "--token", "abc")


def test_an_environment_of_another_engine_is_one_of_the_places(folder: Path) -> None:
    """Its job has the same id, so that it is found; on EKS the queue is the node group's."""
    (folder / "second.yaml").write_text(
        "name: second\nregion: us-east-2\neks: {node_groups: [{name: trn, instance_type: trn1.32xlarge, max_nodes: 2}]}\n"
    )
    files, words = [folder / "first.yaml", folder / "second.yaml"], ["job.sh", "--nodes", "2", "--", "x"]
    token, words = failover._token(files[0], words, None)
    found = list(failover._places(files, words, None, token))
    assert [(p.name, p.queue) for p in found] == [(STACKS[0], "compute1"), ("TrnEksStack-second", "trn")]
    assert {p.job for p in found} == {f"job-{token}"}
    assert failover._token(files[0], words, None) == (token, words), (
        "further environments do not make another job of it"
    )
    assert failover._token(files[1], words, None)[0] != token
