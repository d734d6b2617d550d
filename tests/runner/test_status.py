"""The status of jobs, from what Slurm's programs print and what jobs have recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.runner.world import CLUSTER, ME, World
from trainium_cdk.runner import head, layout, requests, slurm
from trainium_cdk.runner.errors import Theirs, Unknown
from trainium_cdk.runner.head import answers, stages
from trainium_cdk.runner.head.stages import Known
from trainium_cdk.runner.requests import Cluster
from trainium_cdk.runner.spec import to_json
from trainium_cdk.runner.status import JobStatus

CHAIN = "job j-1\nstage prepare 7\nstage train 8\n"
ONE = "job j-1\nstage precompile 8\nstage train 8\n"
T = "2026-11-20T10:00:00"
REASONS = yaml.safe_load(Path(__file__).with_name("slurm_reasons.yaml").read_text("utf-8"))
STATES = yaml.safe_load(Path(__file__).with_name("states.yaml").read_text("utf-8"))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def status(id: str = "j-1", cluster: Cluster = CLUSTER) -> JobStatus:
    return sent(requests.Status(id), answers.status(cluster, requests.Status(id)))  # type: ignore[no-any-return]


def sent(asked: Any, answer: Any) -> Any:
    """An answer, as its client reads it."""
    assert requests.read_answer(asked, json.loads(json.dumps(to_json(answer)))) == answer
    return answer


def listed(answer: Any) -> list[JobStatus]:
    return list(sent(requests.ListJobs(), tuple(answer)))


@pytest.mark.parametrize("case", STATES)
def test_states(case: str, world: World) -> None:
    told = STATES[case]
    world.tell(CHAIN + told["answer"])
    job = status()
    for stage, (state, reason) in zip(job.stages, (told["prepare"], told["train"]), strict=True):
        assert stage.state == state
        assert reason is None or stage.reason == re.sub(
            r"(; EC2 reported .*?): .*", r"\1", reason
        )  # what it means, the client adds
        assert stage.nodes in ("", "n1", "n[1-2]")
    assert job.done is not any(s.state in ("PENDING", "RUNNING") for s in job.stages)
    assert job.ok is all(s.state == "COMPLETED" for s in job.stages)


B = "2026-11-20T10:00:00"
AT, LATER = 1795168860, 1795168920  # 60 and 120 s after B


@pytest.mark.parametrize(
    ("told", "compiled", "trained"),
    [
        ("queue 8|PENDING|Resources||N/A|N/A", ("PENDING", "waits for nodes"), ("PENDING", "waits for precompile")),
        (f"queue 8|RUNNING|None|n1|{B}|N/A", ("RUNNING", ""), ("PENDING", "waits for precompile")),
        (f"state precompile running 8 0 {AT} n1\nqueue 8|RUNNING|None|n1|{B}|N/A", ("RUNNING", ""), ("PENDING", "waits for precompile")),
        (f"state precompile ended 8 0 {AT} n1\nqueue 8|RUNNING|None|n1|{B}|N/A", ("COMPLETED", ""), ("RUNNING", "")),
        (f"state precompile ended 8 0 {AT} n1\nstate train ended 8 0 {LATER} n1\nqueue 8|COMPLETED|None|n1|{B}|{B}", ("COMPLETED", ""), ("COMPLETED", "")),
        (f"state precompile ended 8 3 {AT} n1\nqueue 8|FAILED|NonZeroExitCode|n1|{B}|{B}", ("FAILED", "exit code 3"), ("CANCELLED", "did not run: precompile did not complete")),
        (f"state precompile ended 8 0 {AT} n1\nstate train ended 8 3 {LATER} n1\nqueue 8|FAILED|NonZeroExitCode|n1|{B}|{B}", ("COMPLETED", ""), ("FAILED", "exit code 3")),
        # a node was lost, and others compile again: what is recorded of the training is older
        (f"state precompile running 8 0 {LATER} n2\nstate train running 8 0 {AT} n1\nqueue 8|RUNNING|None|n2|{B}|N/A", ("RUNNING", ""), ("PENDING", "waits for precompile")),
        (f"state precompile ended 8 143 {LATER} n2 TIMEOUT\nstate train running 8 0 {AT} n1\nqueue 8|TIMEOUT|TimeLimit|n2|{B}|{B}", ("TIMEOUT", "reached its time limit"), ("CANCELLED", "did not run: precompile did not complete")),
        (f"state precompile ended 8 0 {AT} n1\nstate train running 8 0 {LATER} n1\nqueue 8|PENDING|BeginTime||N/A|N/A", ("COMPLETED", ""), ("PENDING", "starts again in a moment")),
        ("cancelled\nqueue 8|CANCELLED|Resources||N/A|N/A", ("CANCELLED", ""), ("CANCELLED", "")),
        # Slurm has forgotten it
        (f"state precompile ended 8 0 {AT} n1\nstate train ended 8 0 {LATER} n1", ("COMPLETED", ""), ("COMPLETED", "")),
        (f"state precompile ended 8 3 {AT} n1", ("FAILED", "exit code 3"), ("CANCELLED", "did not run: precompile did not complete")),
        (f"state precompile ended 8 0 {AT} n1", ("COMPLETED", ""), ("LOST", None)),
        ("", ("LOST", None), ("LOST", "lost with precompile")),
        (f"state precompile ended 8 0 {AT} n1\nstate train running 8 0 {LATER} n1\nsacct 8|TIMEOUT|0:0|n1|{B}|{B}", ("COMPLETED", ""), ("TIMEOUT", "")),
        (f"state precompile running 8 0 {AT} n1\nsacct 8|OUT_OF_MEMORY|0:125|n1|{B}|{B}", ("OUT_OF_MEMORY", ""), ("CANCELLED", "did not run: precompile did not complete")),
    ],
)  # fmt: skip
def test_two_stages_in_one_slurm_job(told: str, compiled: tuple[str, str], trained: tuple[str, str | None], world: World) -> None:  # fmt: skip
    world.tell(ONE + told)
    for stage, (state, reason) in zip(status().stages, (compiled, trained), strict=True):
        assert (stage.number, stage.state) == ("8", state)
        assert reason is None or stage.reason == reason


def test_when_the_second_stage_of_a_slurm_job_began(world: World) -> None:
    world.tell(f"{ONE}state precompile ended 8 0 {AT} n1\nqueue 8|RUNNING|None|n1|{B}|N/A")
    compiled, trained = status().stages
    assert (compiled.started, compiled.ended, trained.started) == (AT - 60, AT, AT)


def waiting(reason: str) -> str:
    row = slurm.Row(
        1000, "ml", "compute1", "2", "7", "", "PENDING", reason, "", "N/A", "N/A", "7", T, "j-1:train", "trn:j-1"
    )
    return stages.stage("train", "7", Known(row=row, inactive="the queue is inactive")).reason


@pytest.mark.parametrize(("reason", "text"), REASONS["said"].items())
def test_why_a_job_waits(reason: str, text: str) -> None:
    assert waiting(reason) == text


def test_every_reason_of_slurm_has_words() -> None:
    every = REASONS["every"].split()
    assert len(every) > 200
    assert [one for one in every if one != "None" and len(waiting(one).replace(one, "").split()) < 2] == []
    assert waiting("None") == ""


@pytest.mark.parametrize(
    ("slurm", "ours"),
    [
        ("COMPLETED", "COMPLETED"), ("FAILED", "FAILED"), ("OUT_OF_MEMORY", "OUT_OF_MEMORY"), ("CANCELLED", "CANCELLED"),
        ("TIMEOUT", "TIMEOUT"), ("DEADLINE", "TIMEOUT"),
        ("NODE_FAIL", "NODE_FAIL"), ("PREEMPTED", "NODE_FAIL"), ("BOOT_FAIL", "NODE_FAIL"),
        ("RUNNING", "RUNNING"), ("SUSPENDED", "RUNNING"), ("COMPLETING", "RUNNING"),
        ("PENDING", "PENDING"), ("REQUEUED", "PENDING"), ("CONFIGURING", "PENDING"),
    ],
)  # fmt: skip
def test_states_of_slurm(slurm: str, ours: str, world: World) -> None:
    world.tell(f"job j-1\nstage train 8\nqueue 8|{slurm}|None|n1|{T}|{T}")
    assert status().stages[0].state == ours


@pytest.mark.parametrize(
    ("log", "progress"),
    [
        ("step 11 loss 2.5\nstep 12/100 loss 2.31\nsaved\n", "step 12 of 100: loss 2.31"),
        ("".join(f"step {n} loss {'nan' if n > 7 else 2}\n" for n in range(5, 13)), "step 12: loss not a number since step 8"),
        ("step 7 loss 2\nstep 8 loss nan\nstep 9 loss 2\n", "step 9: loss 2"),
        ("x" * 100_000 + "\nstep 5 loss 2\n", "step 5: loss 2"),
        ("begin\n", ""),
    ],
)  # fmt: skip
def test_where_a_training_stands(log: str, progress: str, world: World) -> None:
    """Also once it has ended; its state is Slurm's."""
    world.tell(f"job j-1\nstage train 8\nqueue 8|RUNNING|None|n1|{T}|{T}")
    logs = CLUSTER.jobs / "j-1/logs"
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "train.log").write_text(log)
    assert (status().state, status().progress) == ("RUNNING", progress)
    (logs / "train.log").unlink()
    (logs / "train.log").symlink_to("/etc/passwd")
    assert status().progress == ""


def test_active_jobs_are_those_of_the_queue(world: World) -> None:
    """Jobs that only resemble ours are others' work."""
    rows = [
        "alice|compute1|2|11|RUNNING|None|n1|N/A|N/A|a-1:train|trn:a-1",
        "alice|compute1|2|12|PENDING|Dependency||N/A|N/A|b-1:train|trn:b-1",
        "alice|compute1|2|10|PENDING|Resources||N/A|N/A|b-1:prepare|trn:b-1",
        "alice|compute1|2|13|RUNNING|None|n1|N/A|N/A|wrap|",
        "alice|compute1|2|14|RUNNING|None|n1|N/A|N/A|c-1:train|trn:a-1",
        "alice|compute1|2|15|RUNNING|None|n1|N/A|N/A|$(id):train|trn:$(id)",
        "bob|compute1|2|16|PENDING|Priority||N/A|N/A|a-1:train|trn:a-1",
    ]
    world.tell("\n".join(f"active {row}" for row in rows))
    found = listed(answers.active(CLUSTER, requests.Active()))
    assert [(job.id, job.user, [s.number for s in job.stages]) for job in found] == [
        ("a-1", "alice", ["11"]),
        ("b-1", "alice", ["12", "10"]),
        ("a-1", "bob", ["16"]),
    ]
    assert {(job.queue, job.nodes, job.submitted) for job in found} == {("compute1", 2, 1795165200)}


def test_a_list_has_the_newest_jobs_and_those_of_others(world: World) -> None:
    world.tell(f"{CHAIN}queue 7|COMPLETED|None|n1|{T}|{T}\nqueue 8|RUNNING|None|n1|{T}|N/A\njob j-0\nstage train 9\n")
    world.tell(
        "active alice|compute1|2|11|RUNNING|None|n1|N/A|N/A|a-1:train|trn:a-1\nactive alice|c|1|12|RUNNING|None|n1|N/A|N/A|j-1:train|trn:j-1"
    )
    (world.jobs / "no-record").mkdir()
    (world.jobs / "..x").mkdir()
    own = answers.list_jobs(CLUSTER, requests.ListJobs())
    assert [(job.id, job.state) for job in listed(own)] == [("j-0", "LOST"), ("j-1", "RUNNING")]
    assert [job.id for job in listed(answers.list_jobs(CLUSTER, requests.ListJobs(1)))] == ["j-0"]
    every = listed(answers.list_jobs(CLUSTER, requests.ListJobs(others=True)))
    assert [(job.id, job.user) for job in every] == [("j-0", ""), ("j-1", ""), ("a-1", "alice"), ("j-1", "alice")]
    assert (
        len([words for words in world.calls if words[0] == "squeue"]) == 4
    )  # one for each list, and one for others' work


def test_the_members_of_an_array_are_told_apart(world: World) -> None:
    """Of each: Slurm's own line if it has the array's name and comment, else what the member wrote under the array's number."""
    ours = "j-1:train|trn:j-1"
    world.tell(
        "job j-1\nstage train 8\narray 0-5,9%2\n"
        f"task 8|0|RUNNING|None|n1|{T}|N/A|{ours}\n"
        f"task 8|1|PENDING|JobArrayTaskLimit||N/A|N/A|{ours}\ngone 2\n"
        f"task 8|3|RUNNING|None|n3|{T}|N/A|j-2:train|trn:j-2\n"
        f"task 8|4|RUNNING|None|n4|{T}|N/A|{ours}x\nmember 4 ended 8 3 1700000000 n4\n"
        f"task 8|5|PENDING|launch failed requeued held||N/A|N/A|{ours}\n"
        f"task 7|9|RUNNING|None|n9|{T}|N/A|{ours}\nmember 9 ended 6 0 1700000000 n9\n"
    )
    job = status()
    assert [(m.name, m.number, m.state, m.nodes) for m in job.members] == [
        ("0", "8_0", "RUNNING", "n1"),
        ("1", "8_1", "PENDING", ""),
        ("2", "8_2", "CANCELLED", ""),
        ("3", "8_3", "LOST", ""),
        ("4", "8_4", "FAILED", "n4"),
        ("5", "8_5", "PENDING", ""),
        ("9", "8_9", "LOST", ""),
    ]
    assert [(s.name, s.number, s.state) for s in job.stages] == [("train", "8", "RUNNING")]
    assert job.members[5].reason == "it could not be started on its nodes, and is held: scontrol release 8_5"
    assert job.members[3].reason.endswith("Submit it alone (--array 3) with a new token")
    assert status("j-1/3") == job.member("3")
    world.tell("job j-2\nstage train 18\narray 0-1\n")
    assert all(m.reason.endswith("Submit it again with the same token") for m in status("j-2").members)


def test_the_members_of_a_sweep_have_their_values(world: World) -> None:
    """Also of one that was cancelled before it ran, which has no start."""
    ours, cut = "j-1:train|trn:j-1", "2026-11-20T11:00:00"
    world.tell(
        "job j-1\nstage train 8\narray 0-3\nsweep "
        '{"names": ["lr", "seed"], "rows": [["1e-4", "1"], ["1e-4", "\\u001b[2J"], ["3e-4", "1"]]}\n'
        f"task 8|0|COMPLETED|None|n1|{T}|{cut}|{ours}\nmember 0 ended 8 0 1700000000 n1\n"
        f"task 8|1|FAILED|NonZeroExitCode|n1|{T}|{cut}|{ours}\nmember 1 ended 8 1 1700000000 n1\n"
        f"task 8|2|CANCELLED|None||{cut}|{cut}|{ours}\n"
        f"task 8|3|RUNNING|None|n3|{T}|N/A|{ours}\n"
    )
    job = status()
    assert [dict(m.values) for m in job.members] == [
        {"lr": "1e-4", "seed": "1"}, {"lr": "1e-4", "seed": " [2J"}, {"lr": "3e-4", "seed": "1"}, {},
    ]  # fmt: skip
    assert job.current.reason == "1 running, 1 completed, 1 cancelled, 1 failed (1: lr=1e-4 seed= [2J)"
    assert [m.started is not None for m in job.members] == [True, True, False, True]
    member = job.member("2")
    assert member
    assert member.values == {"lr": "3e-4", "seed": "1"}


@pytest.mark.parametrize(
    "damaged", ['"x"', "[]", "{}", '{"names": [1], "rows": []}', '{"names": ["a"], "rows": [["1"], 2]}']
)
def test_a_damaged_sweep_has_no_values(damaged: str, world: World) -> None:
    world.tell(f"job j-1\nstage train 8\narray 0-1\nsweep {damaged}\n")
    assert [dict(m.values) for m in status().members] == [{}, {}]


def test_a_damaged_record_is_told(world: World) -> None:
    """It hides no other job."""
    world.tell(f"job j-0\nstage train 6\n{CHAIN}")
    (world.jobs / "j-0/submitted.json").write_text("[")
    found = listed(answers.list_jobs(CLUSTER, requests.ListJobs()))
    assert {job.id: job.current.reason for job in found}[
        "j-0"
    ] == "its record on the cluster (submitted.json) is damaged"
    assert {len(job.stages) for job in found} == {1, 2}


def test_the_state_of_a_job_is_that_of_its_first_unfinished_stage(world: World) -> None:
    world.tell(f"{CHAIN}queue 7|COMPLETED|None|n1|{T}|{T}\nqueue 8|RUNNING|None|n1|{T}|N/A\n")
    job = status()
    assert (job.state, job.current.name, job.directory) == ("RUNNING", "train", "/efs/trn/jobs/j-1")
    assert (job.stages[0].started, job.submitted) == (1795168800, 1700000000)


@pytest.mark.parametrize(
    ("id", "several", "message"),
    [
        ("../x", False, "no job"),
        ("j-1/x", False, "no job"),
        ("a" * 99, True, "no job"),
        ("j-9", True, "no job"),
        ("", True, "no job"),
    ],
)
def test_a_job_that_is_not_there(id: str, several: bool, message: str, world: World) -> None:
    with pytest.raises(Unknown, match=message):
        answers.status(Cluster("/efs", "trn", "i", "n", multi_user=several), requests.Status(id))


def test_of_another_user_slurms_queue_is_told_and_nothing_else(world: World) -> None:
    several = Cluster("/efs", "trn", "i", "n", multi_user=True)
    world.tell("active alice|compute1|2|11|RUNNING|None|n1|N/A|N/A|a-1:train|trn:a-1")
    job = status("a-1", several)
    assert (job.user, job.state, job.current.nodes) == ("alice", "RUNNING", "n1")
    with pytest.raises(Theirs, match=f"a-1 is a job of alice, and you are {ME}: only alice can read its log"):
        answers.own_job(several, "a-1/0", "read its log")


PIECES = ["x", '{"numbers": {"../X": "8", "train": "$(x)", "prepare": "7"}, "cluster": "\\u001b"}', "7", "²", "9" * 5000, "ended", "running", "{", "[]", "null", "1e999", "NaN", '{"nodes": "two", "kind": [], "global_batch_size": {}}', '{"shown": {"nodes": 1e400, "kind": "\\u001b[2J", "queue": "{reason}"}, "array": "0-5"}', '{"numbers": {"train": "8", "x": "{}"}, "digest": 5}', '{"numbers": {"train": "8"}, "cluster": "i-0123456789abcdef0", "at": 1e308}', '{"numbers": {"train": "8"}, "cluster": "i-0123456789abcdef0"}', '{"state": "ended", "number": "8", "code": -5, "at": -1e11, "nodes": "\\u0000", "why": "TIMEOUT"}', '{"state": "ended", "number": "8", "code": true}', "[" * 90000]  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(
    {
        "submitted.json": '{"numbers": {"train": "8"}}',
        "job.json": "x",
        "state/train.json": '{"state": "ended", "number": "8", "code": -5, "at": -1e11}',
    }
)
@given(st.fixed_dictionaries({name: st.sampled_from(PIECES) | st.text(max_size=9) for name in ("submitted.json", "job.json", "state/train.json")}))  # fmt: skip
def test_any_record_is_read_without_an_error(world: World, written: dict[str, str]) -> None:
    for name, text in written.items():
        (world.jobs / "j-1/state").mkdir(parents=True, exist_ok=True)
        (world.jobs / "j-1" / name).write_text(text, errors="replace")
    for asked in (requests.ListJobs(), requests.Status("j-1"), requests.ReadLog("j-1"), requests.JobSettings("j-1")):
        told = json.dumps(head.answer(json.dumps(requests.write_request(CLUSTER, asked))))
        assert told.startswith('{"answer"') or '"kind": "unknown"' in told or "has no stage" in told
        assert "\\u001b" not in told or isinstance(asked, requests.JobSettings)
    for job in listed(answers.list_jobs(CLUSTER, requests.ListJobs())):
        assert job.stages
        assert job.to_dict()["state"]


def test_ids(world: World) -> None:
    assert (layout.split("a-1"), layout.split("a-1/12")) == (("a-1", ""), ("a-1", "12"))
