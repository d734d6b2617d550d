"""What an allocation that compiles first may have beside the training's own time limit: tables of what Slurm and the blocks tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runner.asking import job, on_slurm
from tests.runner.test_blocks import block
from trainium_cdk.runner import blocks, slurm
from trainium_cdk.runner.errors import Later, Refused
from trainium_cdk.runner.head import submit
from trainium_cdk.runner.requests import Cluster
from trainium_cdk.runner.spec import StageSpec
from trainium_cdk.runner.work import tasks

HOUR = 3600
STAGES = (StageSpec("prepare"), StageSpec("precompile"), StageSpec("train", seconds=HOUR))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("TRN_SHARED_ROOT", str(tmp_path))
    return Cluster("/efs", "trn", "i-1", "trn-slurm")


def tells(monkeypatch: pytest.MonkeyPatch, **told: str) -> list[tuple[str, ...]]:
    """Slurm's programs print that, or refuse. Returns what was called."""
    calls: list[tuple[str, ...]] = []

    def run(*words: str) -> str:
        calls.append(words)
        if words[0] not in told:
            raise Refused("no accounting")
        return told[words[0]]

    monkeypatch.setattr(slurm, "run", run)
    return calls


@pytest.mark.parametrize(
    ("partition", "qos", "expected", "note"),
    [
        ("MaxTime=UNLIMITED QoS=N/A", None, None, ""),
        ("MaxTime=7-00:00:00 QoS=N/A", None, 7 * 24 * HOUR, ""),
        ("MaxTime=03:00:00 QoS=N/A", None, 3 * HOUR, ""),
        ("MaxTime=01:30:00 QoS=N/A", None, 1.5 * HOUR, "queue compute1 allows 1:30:00: compiling counts in the time limit of 1:00:00 after 0:30:00"),
        ("MaxTime=01:00:00 QoS=N/A", None, HOUR, "queue compute1 allows 1:00:00: compiling counts in the time limit of 1:00:00"),
        ("MaxTime=00:30:00 QoS=N/A", None, HOUR / 2, "queue compute1 allows 0:30:00: compiling counts in the time limit of 1:00:00"),
        ("MaxTime=UNLIMITED QoS=short", "02:00:00\n", 2 * HOUR, "QoS short allows 2:00:00: compiling counts in the time limit of 1:00:00 after 1:00:00"),
        ("MaxTime=01:30:00 QoS=short", "02:00:00\n", 1.5 * HOUR, "queue compute1 allows 1:30:00: compiling counts in the time limit of 1:00:00 after 0:30:00"),
        ("MaxTime=UNLIMITED QoS=short", "\n", None, ""),
        ("MaxTime=UNLIMITED QoS=short", None, None, ""),
    ],
)  # fmt: skip
def test_what_the_queue_and_its_qos_allow(
    partition: str, qos: str | None, expected: float | None, note: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    told = {"scontrol": f"PartitionName=compute1 {partition} State=UP\n", **({} if qos is None else {"sacctmgr": qos})}
    tells(monkeypatch, **told)
    assert submit.longest(cluster, job("j", stages=STAGES)) == (expected, note)


def test_what_the_qos_of_a_job_allows(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tells(monkeypatch, scontrol="MaxTime=UNLIMITED QoS=N/A", sacctmgr="1-00:00:00")
    made = job("j", stages=STAGES, slurm=on_slurm(qos="long"))
    assert submit.longest(cluster, made) == (24 * HOUR, "")
    assert calls[1][-2:] == ("name=long", "format=maxwall")


@pytest.mark.parametrize(
    "stages", [STAGES[2:], (StageSpec("precompile"), StageSpec("train"))], ids=["alone", "no limit"]
)
def test_slurm_is_not_asked_in_vain(
    stages: tuple[StageSpec, ...], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tells(monkeypatch)
    assert submit.longest(cluster, job("j", stages=stages)) == (None, "")
    assert calls == []


def test_a_controller_that_does_not_answer_is_asked_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: str) -> str:
        raise Later("Unable to contact slurm controller")

    monkeypatch.setattr(slurm, "run", away)
    with pytest.raises(Later):
        submit.longest(cluster, job("j", stages=STAGES))


def test_compiling_does_not_reach_behind_a_blocks_end(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several blocks the one that ends last; those that are over, or of another queue, count for nothing."""
    tells(monkeypatch, scontrol="MaxTime=UNLIMITED QoS=N/A")
    over, other = block(stops=-60, ends=-1), block(stops=60, queue="other")
    blocks.note(cluster.jobs, [over, other])
    assert submit.longest(cluster, job("j", stages=STAGES)) == (None, "")
    blocks.note(cluster.jobs, [over, other, block(stops=1800), block("cr-9", stops=2 * HOUR)])
    most, note = submit.longest(cluster, job("j", stages=STAGES))
    assert most is not None
    assert abs(most - 2 * HOUR) < 60
    assert note.startswith("capacity block cr-9 allows ")


@pytest.mark.parametrize(
    ("told", "changes"),
    [
        ("10:00 2:50:00", "TimeLimit=70"),
        ("10:01 2:50:00", "TimeLimit=71"),  # whole minutes, and never less than its own
        ("1-00:00:00 1-00:00:00", "TimeLimit=1500"),
        ("10:00 1:00:00", ""),
        ("10:00 50:00", ""),  # compiling counts
        ("10:00 UNLIMITED", ""),
    ],
)
def test_the_limit_of_a_training_that_begins(told: str, changes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    calls = tells(monkeypatch, squeue=told, scontrol="")
    tasks.lower_limit(HOUR)
    assert calls[1:] == ([("scontrol", "update", "JobId=7", changes)] if changes else [])


def test_a_limit_that_cannot_be_lowered_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    tells(monkeypatch)
    tasks.lower_limit(HOUR)
    assert capfd.readouterr().out == "trn: the time limit still counts compiling: no accounting\n"
