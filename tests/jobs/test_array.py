"""Arrays on a real Slurm: one submission, members with ids, states, logs and ends of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import make_cluster
from tests.jobs.test_slurm import log, script
from tests.support import begins_again, until
from trainium_cdk.client.cli import app as cli
from trainium_cdk.client.cli import follow
from trainium_cdk.client.jobs.job_spec import render
from trainium_cdk.client.jobs.report import collect_all, report
from trainium_cdk.client.jobs.report.run import Live
from trainium_cdk.client.jobs.status import JobStatus, LogChunk, Stage, of_members
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.jobs import JobError, SlurmBackend, SubmitError, UnknownJob

CATALOG = Catalog.load()
STATUS = JobStatus(
    "sweep-1", "script", "q", "trn1.32xlarge", 1, None, (Stage("train", "3", "RUNNING", "", "n-1", None, 1795161600),)
)
LINE = b"LOG Fri Nov 20 08:00:05 2026 - (0, %d) step_loss : %d.0 learning_rate : 2.80e-06 throughput : 100.25 \n"
WAITS = 'while [ ! -e "$GO" ]; do sleep 0.1; done'


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ("3-1", "the first of a range before its last"),
        ("3-1,5", "the first of a range before its last"),
        ("0-9%0", "is at least 1"),
        ("0-9:0", "is at least 1"),
        ("0-1000", "array is '0-1000': not in the right format. Write indices from 0 to 999: 0-99, or"),
        ("$(id)", "Write indices"),
    ],
)
def test_wrong_indices(array: str, message: str) -> None:
    with pytest.raises(JobError, match=message.replace("(", r"\(")):
        script("true", array=array)


def test_members_run_a_few_at_a_time_and_each_knows_its_index(
    slurm: LocalSlurm, backend: SlurmBackend, shared: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    env = {"GO": str(go)}
    body = f'{WAITS}\necho "I am $TRN_ARRAY_INDEX of $TRN_ARRAY_COUNT"\n[ "$TRN_ARRAY_INDEX" != 4 ]'
    sent = backend.submit(script(body, array="0-2,4%2", env=env))
    assert list(sent.stages) == ["train"]
    rows = slurm.run(["squeue", "-h", "-r", "-j", sent.stages["train"], "-o", "%K"]).stdout.split()
    assert sorted(rows) == ["0", "1", "2", "4"]  # one Slurm job
    assert until(lambda: [m.state for m in backend.status(sent.id).members].count("RUNNING") == 2)
    status = backend.status(sent.id)
    assert status.state == "RUNNING"
    assert "2 running, 2 pending" in status.current.reason
    assert [job.id for job in backend.list(1)] == [sent.id]
    assert backend.submit(script(body, array="0-2,4%2", env=env), sent.id.removeprefix("run-")).existing
    waiting = next(m.name for m in status.members if m.state == "PENDING" and m.name != "4")
    runs = next(m.name for m in status.members if m.state == "RUNNING" and m.name != "4")
    after_all, after_one = (
        backend.submit(script("true", name=name, after=after)).id
        for name, after in (("all", sent.id), ("one", f"{sent.id}/{runs}"))
    )
    for after, message in ((f"{sent.id}/3", "has no member 3"), (f"x{sent.id}/1", "there is no job")):
        with pytest.raises(SubmitError, match=message):
            backend.submit(script("true", after=after))
    assert backend.cancel(f"{sent.id}/{waiting}").state == "CANCELLED"
    go.touch()
    ended = backend.wait(sent.id, timeout=90)
    assert ended.done
    assert not ended.ok
    states = {m.name: m.state for m in ended.members}
    others = {"0", "1", "2"} - {waiting}
    assert states == {**dict.fromkeys(others, "COMPLETED"), waiting: "CANCELLED", "4": "FAILED"}
    assert backend.wait(after_one, timeout=90).ok
    assert backend.wait(after_all, timeout=90).state == "CANCELLED"
    assert backend.submit(script("true", after=f"{sent.id}/{runs}")).stages, "that one has completed already"
    with pytest.raises(SubmitError, match=f"{sent.id}/4 has not completed, and does not run"):
        backend.submit(script("true", after=f"{sent.id}/4"))
    for index in others:
        assert f"I am {index} of 4" in log(backend, f"{sent.id}/{index}")
    one = backend.status(f"{sent.id}/4")
    assert (one.id, one.state, one.current.exit_code) == (f"{sent.id}/4", "FAILED", 1)
    assert (shared / "trn/jobs" / sent.id / "4/logs/train.0.log").exists()
    for id, message in (
        (f"{sent.id}/3", "has no member 3"),
        (f"{sent.id}/x", "there is no job"),
        (f"{sent.id}/", "there is no job"),
    ):
        with pytest.raises(UnknownJob, match=message):
            backend.status(id)
    for fields, what in (({"node": 0}, "a node"), ({"offset": 3}, "an offset"), ({"stage": "precompile"}, "the stage")):
        with pytest.raises(JobError, match=f"is an array of 4, and {what}.* belongs to one member.*{sent.id}/0"):
            log(backend, sent.id, **fields)
    joined = list(backend.logs(sent.id))
    assert sorted({chunk.member for chunk in joined}) == sorted({*others, "4"})
    assert all(f"I am {c.member} of 4" in c.data.decode() for c in joined)
    again = backend.submit(script(body, array="0-2,4%2", env=env), sent.id.removeprefix("run-"))
    assert (again.existing, again.resubmitted) == (True, ())


@pytest.mark.sweep
def test_the_whole_array_is_cancelled_and_a_member_is_requeued(
    slurm: LocalSlurm, backend: SlurmBackend, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    sent = backend.submit(script(WAITS, array="0-2", env={"GO": str(go)}))
    assert until(lambda: any(m.state == "RUNNING" and m.nodes for m in backend.status(sent.id).members))
    running = next(m for m in backend.status(sent.id).members if m.state == "RUNNING")
    slurm.run(["scontrol", "requeue", running.number])
    assert until(lambda: backend.status(f"{sent.id}/{running.name}").state == "PENDING")
    begun = begins_again(
        slurm, running.number, lambda: log(backend, f"{sent.id}/{running.name}").count("Slurm job") == 2
    )
    assert begun
    assert backend.cancel(sent.id).state == "CANCELLED"
    assert {m.state for m in backend.status(sent.id).members} == {"CANCELLED"}


def test_members_are_compared(backend: SlurmBackend, tmp_path: Path) -> None:
    """By the page, live and of one moment."""
    go = tmp_path / "go"
    line = 'echo "LOG Fri Nov 20 08:00:05 2026 - (0, $n) step_loss : 1$n.$TRN_ARRAY_INDEX learning_rate : 2.80e-06 throughput : 100.25 "'
    sent = backend.submit(
        script(f"for n in 1 2; do {line}; done; {WAITS}; n=3; {line}", array="1-3%2", env={"GO": str(go)})
    )
    live = Live(backend, [sent.id], CATALOG)

    def losses(text: str) -> int:
        live.look()
        return sum("loss" in run.curves and run.curves.newest("loss").startswith(text) for run in live.runs)

    assert until(lambda: losses("12.") == 2)
    go.touch()
    assert until(lambda: losses("13.") == 3 and live.ended)
    runs = collect_all(backend, [sent.id], CATALOG)
    assert [one.curves["loss"].all() for one in runs] == [
        [(k, float(f"1{k}.{n}")) for k in (1, 2, 3)] for n in (1, 2, 3)
    ]
    page = report(runs * 5, backend.cluster, CATALOG, 0)  # as of many
    assert [f"<title>{sent.id}/{n}</title>" in page for n in (1, 2, 3)] == [True] * 3


@pytest.mark.parametrize(
    ("members", "state"),
    [
        (["COMPLETED", "COMPLETED"], "COMPLETED"),
        (["COMPLETED", "CANCELLED"], "COMPLETED"),
        (["CANCELLED", "CANCELLED"], "CANCELLED"),
        (["CANCELLED", "FAILED", "COMPLETED"], "FAILED"),
        (["CANCELLED", "FAILED", "RUNNING", "PENDING"], "RUNNING"),
        (["PENDING", "FAILED"], "PENDING"),
    ],
)
def test_the_state_of_an_array_is_the_worst_of_its_members(members: list[str], state: str) -> None:
    assert of_members("7", [Stage(str(i), "7", one) for i, one in enumerate(members)]).state == state


def test_the_status_of_an_array_that_failed(
    backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is known of the error is in the log of a member: the array itself has none."""
    sent = backend.submit(
        script('[ "$TRN_ARRAY_INDEX" = 0 ] || { echo No space left on device; exit 1; }', array="0-2")
    )
    assert backend.wait(sent.id, timeout=60).state == "FAILED"
    monkeypatch.setattr(follow, "backend", lambda *_: backend)
    assert not cli.app(["status", sent.id, f"{sent.id}/0"], standalone_mode=False)
    shown = capsys.readouterr()
    assert f"{sent.id}/2\tFAILED" in shown.out
    assert "A disk or file system is full" in shown.err
    assert f"{sent.id}/0: COMPLETED" in shown.err


def test_the_log_of_a_member_that_begins_again_is_read_from_its_beginning() -> None:
    """On Kubernetes, a restarted pod has a log of its own."""
    now = replace(STATUS, members=(replace(STATUS.stages[0], name="0"),))
    jobs = Mock(cluster=make_cluster(), interval=0.1, ordered_logs=False)
    text = b"".join(LINE % (step, step) for step in range(1, 40))

    def logs(id: str, *, stage: str, offset: int = 0) -> Iterator[LogChunk]:
        begin = min(offset, len(text))
        if begin < offset or text[begin:]:
            yield LogChunk(stage, begin, text[begin:])

    jobs.logs = logs
    jobs.status, jobs.settings = lambda _, **__: now, lambda _: {}
    live = Live(jobs, ["sweep-1"], CATALOG)
    live.look()
    text = b"".join(LINE % (step, 100 + step) for step in range(30, 35))
    live.look()
    text += LINE % (35, 135)
    live.look()
    [run] = live.runs
    assert run.curves["loss"].all()[28:] == [(29, 29.0), *((step, 100.0 + step) for step in range(30, 36))]


def test_a_submission_names_what_an_array_costs() -> None:
    plan = render(script("true", array="0-9", nodes=2, precompile=True), make_cluster(), "t")
    assert plan.stages == ("train",)
    assert plan.describe()[0].startswith("10 times 2 nodes of trn1.32xlarge")
