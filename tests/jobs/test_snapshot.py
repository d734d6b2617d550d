"""The state of jobs, from three sources of information."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.conftest import make_cluster
from trainium_cdk.errors import TransportError
from trainium_cdk.jobs.slurm.snapshot import parse

CLUSTER = make_cluster()
JOB = f"trn-job j-1\ntrn-json {json.dumps({'kind': 'bert-large', 'queue': 'compute1', 'instance_type': 'trn1.32xlarge', 'nodes': 2})}\n"
CHAIN = JOB + "trn-stage precompile 7\ntrn-stage train 8\n"
T = "2026-11-20T10:00:00"
MARK = "0123456789abcdef01234567"


def marked(text: str, mark: str = MARK) -> str:
    """A response: its lines with their mark; Slurm's output on jobs 7 and 8 with their names."""
    lines = [f"trn-mark {mark}"]
    for line in text.splitlines():
        if (found := re.match(r"trn-(queue|sacct) ([78])\|", line)) and line.count("|") == 5:
            name = f"j-1:{ {'7': 'precompile', '8': 'train'}[found[2]] }"
            line += f"|{name}|trn:j-1" if found[1] == "queue" else f"|{name}"
        lines.append(re.sub("^trn-", f"{mark} ", line))
    return "\n".join(lines)


STATES = yaml.safe_load(Path(__file__).with_name("states.yaml").read_text("utf-8"))


@pytest.mark.parametrize("case", STATES)
def test_states(case: str) -> None:
    told = STATES[case]
    (job,) = parse(f"Welcome!\n{marked(CHAIN + told['answer'])}", CLUSTER).jobs
    for stage, (state, reason) in zip(job.stages, (told["precompile"], told["train"]), strict=True):
        assert stage.state == state
        assert reason is None or stage.reason == reason
        assert stage.nodes in ("", "n1", "n[1-2]")
    assert job.done is not any(s.state in ("PENDING", "RUNNING") for s in job.stages)
    assert job.ok is all(s.state == "COMPLETED" for s in job.stages)


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
def test_states_of_slurm(slurm: str, ours: str) -> None:
    (job,) = parse(marked(f"{JOB}trn-stage train 8\ntrn-queue 8|{slurm}|None|n1|{T}|{T}"), CLUSTER).jobs
    assert job.stages[0].state == ours


def test_only_lines_with_the_mark_count() -> None:
    """A user who writes lines into a job's files, name or comment cannot know it."""
    forged = f"trn-mark {'f' * 24}\n{'f' * 24} job ghost\n{MARK[:-1]} job ghost\n{MARK}  job ghost\ntrn-job ghost"
    assert [job.id for job in parse(f"{marked(CHAIN)}\n{forged}", CLUSTER).jobs] == ["j-1"]
    assert parse(forged.replace("trn-mark", "mark"), CLUSTER).jobs == ()


def test_active_jobs_are_those_of_the_queue() -> None:
    """Jobs of others, and jobs that only resemble ours, are ignored."""
    rows = [
        "alice|compute1|2|11|RUNNING|None|n1|N/A|N/A|a-1:train|trn:a-1",
        "alice|compute1|2|12|PENDING|Dependency||N/A|N/A|b-1:train|trn:b-1",
        "alice|compute1|2|10|PENDING|Resources||N/A|N/A|b-1:precompile|trn:b-1",
        "alice|compute1|2|13|RUNNING|None|n1|N/A|N/A|wrap|",
        "alice|compute1|2|14|RUNNING|None|n1|N/A|N/A|c-1:train|trn:a-1",
        "alice|compute1|2|15|RUNNING|None|n1|N/A|N/A|$(id):train|trn:$(id)",
    ]
    found = parse(marked("\n".join(f"trn-active {row}" for row in rows)), CLUSTER).jobs
    assert [(job.id, [s.number for s in job.stages]) for job in found] == [("a-1", ["11"]), ("b-1", ["12", "10"])]
    assert {(job.user, job.queue, job.nodes) for job in found} == {("alice", "compute1", 2)}


def test_the_members_of_an_array_are_told_apart() -> None:
    """Of each: Slurm's own line if it has the array's name and comment, else what the member wrote under the array's number."""
    ours = "j-1:train|trn:j-1"
    answer = (
        "trn-stage train 8\ntrn-array 0-5,9%2\n"
        f"trn-task 8|0|RUNNING|None|n1|{T}|N/A|{ours}\n"
        f"trn-task 8|1|PENDING|JobArrayTaskLimit||N/A|N/A|{ours}\ntrn-gone 2\n"
        f"trn-task 8|3|RUNNING|None|n3|{T}|N/A|j-2:train|trn:j-2\n"
        f"trn-task 8|4|RUNNING|None|n4|{T}|N/A|{ours}x\ntrn-member 4 ended 8 3 1700000000 n4\n"
        f"trn-task 8|5|PENDING|launch failed requeued held||N/A|N/A|{ours}\n"
        f"trn-task 7|9|RUNNING|None|n9|{T}|N/A|{ours}\ntrn-member 9 ended 6 0 1700000000 n9\n"
    )
    (job,) = parse(marked(JOB + answer), CLUSTER).jobs
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
    held = "it could not be started on its nodes, and is held: scontrol release 8_5"
    assert job.members[5].reason == held
    assert job.members[3].reason.endswith("Submit it alone (--array 3) with a new token")
    (job,) = parse(marked(f"{JOB}trn-stage train 8\ntrn-array 0-1\n"), CLUSTER).jobs
    assert all(member.reason.endswith("Submit it again with the same token") for member in job.members)


def test_a_job_with_a_damaged_record_has_a_row_that_reports_it() -> None:
    damaged, whole = parse(marked("trn-job j-0\ntrn-json [\n" + CHAIN), CLUSTER).jobs
    assert (damaged.id, damaged.current.reason) == ("j-0", "its record on the cluster (stages) is damaged")
    assert [stage.name for stage in whole.stages] == ["precompile", "train"]


def test_the_state_of_a_job_is_that_of_its_first_unfinished_stage() -> None:
    now = f"trn-queue 7|COMPLETED|None|n1|{T}|{T}\ntrn-queue 8|RUNNING|None|n1|{T}|N/A\n"
    (job,) = parse(marked(CHAIN + now), CLUSTER).jobs
    assert (job.state, job.current.name, job.directory) == ("RUNNING", "train", "/efs/trn/jobs/j-1")
    assert job.stages[0].started == 1795168800


def test_any_bytes_of_a_log_survive() -> None:
    data = bytes(range(256)) * 20
    text = base64.b64encode(gzip.compress(data)).decode()
    found = parse(marked(f"{CHAIN}trn-size 5120\ntrn-data {text}\n"), CLUSTER)
    assert (found.size, found.data) == (5120, data)


KEYS = [
    "job",
    "json",
    "stage",
    "state",
    "queue",
    "active",
    "data",
    "size",
    "sacct",
    "cancelled",
    "cluster",
    "free",
    "no-file",
]
PIECES = ["x", "train", "7", "²", "9" * 5000, "ended", "running", "|", "||||||", "COMPLETED", "{", "{}", "[]", "null", "1e999", "NaN", '{"nodes": "two", "kind": [], "global_batch_size": {}}', "{reason}", "0001-01-01T00:00:00", "[" * 3000]  # fmt: skip


@given(st.lists(st.builds(lambda key, rest: f"trn-{key} {rest}", st.sampled_from(KEYS), st.lists(st.sampled_from(PIECES) | st.text(max_size=9), max_size=8).flatmap(lambda words: st.sampled_from([" ", "|"]).map(lambda by: by.join(words)))) | st.text(max_size=30), max_size=12))  # fmt: skip
def test_any_response_is_parsed_without_an_error(lines: list[str]) -> None:
    lines = [line for line in lines if not line.startswith("trn-data")]
    for job in parse(marked("\n".join(lines)), CLUSTER).jobs:
        assert job.stages
        assert job.to_dict()["state"]


@given(st.text(max_size=40) | st.binary(max_size=60).map(lambda b: base64.b64encode(b).decode()))
def test_a_log_in_pieces_is_complete_or_requested_again(text: str) -> None:
    """A hole would shift every offset after it."""
    whole = base64.b64encode(gzip.compress(b"step 1\n")).decode()
    assert parse(marked(f"{CHAIN}trn-data {whole}"), CLUSTER).data == b"step 1\n"
    try:
        assert (
            parse(marked(f"{CHAIN}trn-data {text.splitlines()[0] if text.splitlines() else ''}"), CLUSTER).data == b""
        )
    except TransportError as e:
        assert e.again  # noqa: PT017  either is right
