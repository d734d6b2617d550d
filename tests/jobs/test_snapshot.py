"""The state of jobs, from three sources of information."""

from __future__ import annotations

import base64
import gzip
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.conftest import make_cluster
from trainium_cdk.errors import TransportError
from trainium_cdk.jobs.slurm.snapshot import inactive_queue, parse

CLUSTER = make_cluster()
JOB = f"trn-job j-1\ntrn-json {json.dumps({'kind': 'bert-large', 'queue': 'compute1', 'instance_type': 'trn1.32xlarge', 'nodes': 2})}\n"
CHAIN = JOB + "trn-stage precompile 7\ntrn-stage train 8\n"
BOTH = "trn-stage precompile 7\ntrn-stage train 8\n"
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


@pytest.mark.parametrize(
    ("answer", "precompile", "train"),
    [
        (  # waiting
            "trn-queue 7|PENDING|Resources||N/A|N/A\ntrn-queue 8|PENDING|Dependency||N/A|N/A\n",
            ("PENDING", "waits for nodes"),
            ("PENDING", "waits for precompile"),
        ),
        (  # EC2 has no capacity: the queue's own nodes count, and of those the ones that EC2 refused
            "trn-queue 7|PENDING|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions||N/A|N/A\n"
            "trn-queue 8|PENDING|Dependency||N/A|N/A\n"
            f"trn-down other|{T}|other-dy-trn-1|(Code:VcpuLimitExceeded)Failure when resuming nodes\n"
            f"trn-down compute1|{T}|compute1-dy-trn-9|Not responding\n"
            f"trn-down compute1|{T}|compute1-dy-trn-[1-2]|(Code:InsufficientInstanceCapacity)Failure when resuming nodes\n",
            (
                "PENDING",
                "waits for nodes; EC2 reported InsufficientInstanceCapacity for compute1-dy-trn-[1-2] at 10:00 UTC, and ParallelCluster "
                "tries again at 10:10 UTC: EC2 has no free instance of this type in this zone. Wait, as it is retried; ask for fewer "
                "nodes; reserve them (a capacity block, or an on-demand capacity reservation); or look in other regions (trn capacity "
                "--regions all)",
            ),
            ("PENDING", "waits for precompile"),
        ),
        (  # a code that is not of capacity is retried at once; a lost node has Slurm's reason
            "trn-queue 7|PENDING|Resources||N/A|N/A\ntrn-queue 8|PENDING|ReqNodeNotAvail, UnavailableNodes:n9||N/A|N/A\n"
            "trn-down compute1|N/A|n9|(Code:NewCode)Failure when resuming nodes\n",
            ("PENDING", "waits for nodes; EC2 reported NewCode for n9"),
            (
                "PENDING",
                "waits for the nodes that compiled: at least one is down or taken (ReqNodeNotAvail); EC2 reported NewCode for n9",
            ),
        ),
        (
            "trn-queue 7|PENDING|ReqNodeNotAvail, UnavailableNodes:n9||N/A|N/A\ntrn-queue 8|PENDING|PartitionDown||N/A|N/A\n"
            f"trn-down compute1|{T}|n9|Not responding\n",
            ("PENDING", "waits for nodes; n9 is down: Not responding"),
            (
                "PENDING",
                "the queue takes jobs, but starts none: its partition is DOWN. An administrator has set that (scontrol update "
                "partitionname=QUEUE state=up ends it)",
            ),
        ),
        (  # a maintenance reservation
            "trn-queue 7|PENDING|ReqNodeNotAvail, Reserved for maintenance||N/A|N/A\ntrn-queue 8|PENDING|Dependency||N/A|N/A\n",
            ("PENDING", "waits for nodes that are reserved (scontrol show reservation)"),
            ("PENDING", "waits for precompile"),
        ),
        (  # ParallelCluster has stopped the queue
            "trn-queue 7|PENDING|PartitionInactive||N/A|N/A\ntrn-queue 8|PENDING|Dependency||N/A|N/A\n",
            ("PENDING", inactive_queue(CLUSTER)),
            ("PENDING", "waits for precompile"),
        ),
        (  # a dynamic node boots
            "trn-queue 7|CONFIGURING|None|n1|N/A|N/A\ntrn-queue 8|PENDING|Dependency||N/A|N/A\n",
            ("PENDING", ""),
            ("PENDING", "waits for precompile"),
        ),
        (  # running
            f"trn-state precompile running 7 0 1700000000 n[1-2]\ntrn-queue 7|RUNNING|None|n[1-2]|{T}|N/A\ntrn-queue 8|PENDING|Dependency||N/A|N/A\n",
            ("RUNNING", ""),
            ("PENDING", "waits for precompile"),
        ),
        (  # failed, and Slurm still has the job
            f"trn-state precompile ended 7 3 1700000000 n1\ntrn-queue 7|FAILED|NonZeroExitCode|n1|{T}|{T}\n"
            f"trn-queue 8|CANCELLED|DependencyNeverSatisfied||{T}|{T}\n",
            ("FAILED", "exit code 3"),
            ("CANCELLED", "did not run: precompile did not complete"),
        ),
        (  # failed, and Slurm has forgotten
            "trn-state precompile ended 7 3 1700000000 n1\n",
            ("FAILED", "exit code 3"),
            ("CANCELLED", "did not run: precompile did not complete"),
        ),
        (  # completed, and forgotten
            "trn-state precompile ended 7 0 1700000000 n1\ntrn-state train ended 8 0 1700000100 n1\n",
            ("COMPLETED", ""),
            ("COMPLETED", ""),
        ),
        (  # half forgotten
            f"trn-state precompile ended 7 0 1700000000 n1\ntrn-queue 8|RUNNING|None|n1|{T}|N/A\n",
            ("COMPLETED", ""),
            ("RUNNING", ""),
        ),
        (  # waits for the nodes that compiled
            f"trn-queue 7|COMPLETED|None|n1|{T}|{T}\ntrn-queue 8|PENDING|ReqNodeNotAvail, UnavailableNodes:n1||N/A|N/A\n",
            ("COMPLETED", ""),
            ("PENDING", "waits for the nodes that compiled: at least one is down or taken (ReqNodeNotAvail)"),
        ),
        (  # killed without a message
            "trn-state precompile ended 7 0 1700000000 n1\ntrn-state train running 8 0 1700000100 n1\n",
            ("COMPLETED", ""),
            ("FAILED", "it ended before it could write its result: a kill, a node that failed, or a crash of Slurm's controller. Submit it again with the same token"),
        ),
        (  # the same, but accounting has it
            "trn-state precompile ended 7 0 1700000000 n1\ntrn-state train running 8 0 1700000100 n1\n"
            f"trn-sacct 8|TIMEOUT|0:0|n1|{T}|{T}\n",
            ("COMPLETED", ""),
            ("TIMEOUT", ""),
        ),
        (  # cancelled by `trn cancel`, and forgotten
            "trn-state precompile ended 7 143 1700000000 n1\ntrn-cancelled\n",
            ("CANCELLED", ""),
            ("CANCELLED", ""),
        ),
        (  # cancelled with scancel, or out of time, and forgotten
            "trn-state precompile ended 7 143 1700000000 n1 CANCELLED\n",
            ("CANCELLED", ""),
            ("CANCELLED", "did not run: precompile did not complete"),
        ),
        (
            "trn-state precompile ended 7 0 1700000000 n1\ntrn-state train ended 8 143 1700000000 n1 TIMEOUT\n",
            ("COMPLETED", ""),
            ("TIMEOUT", "reached its time limit"),
        ),
        (f"trn-sacct 7|CANCELLED by 1000|0:0|n1|{T}|{T}\n", ("CANCELLED", ""), ("CANCELLED", "did not run: precompile did not complete")),
        (  # Slurm does not have it, and it has not started
            "",
            ("LOST", "Slurm does not know it, and it has not begun: it was cancelled with scancel while it waited, or Slurm's controller crashed before it had saved it. Submit it again with the same token"),
            ("LOST", "lost with precompile"),
        ),
        (  # the controller crashed, and gave the numbers to another job
            f"trn-queue 7|RUNNING|None|n1|{T}|N/A|j-2:train|trn:j-2\ntrn-queue 8|COMPLETED|None|n1|{T}|{T}|wrap|\n",
            ("LOST", "Slurm's controller crashed before it had saved it, and number 7 is another job's now. Submit it again with the same token"),
            ("LOST", "lost with precompile"),
        ),
        (  # one that has the name but not the comment, or the comment but not the name
            f"trn-queue 7|RUNNING|None|n1|{T}|N/A|j-1:precompile|\ntrn-queue 8|RUNNING|None|n1|{T}|N/A|j-1:prepare|trn:j-1\n",
            ("LOST", None),
            ("LOST", None),
        ),
        (  # accounting, which has the job numbers of the previous cluster
            f"trn-sacct 7|COMPLETED|0:0|n1|{T}|{T}|j-0:precompile\ntrn-sacct 8|FAILED|1:0|n1|{T}|{T}|other\n",
            ("LOST", None),
            ("LOST", None),
        ),
        (  # it had started, and Slurm ended a job that it no longer had
            "trn-state precompile ended 7 143 1700000000 n1 LOST\n",
            ("LOST", "Slurm's controller crashed before it had saved it, and stopped it. Submit it again with the same token"),
            ("LOST", "lost with precompile"),
        ),
        (
            "trn-state precompile running 7 0 1700000000 n1\ntrn-queue 7|PENDING|None||N/A|N/A|x|\n",
            ("LOST", "Slurm's controller crashed before it had saved it, and stopped it. Submit it again with the same token"),
            ("LOST", "lost with precompile"),
        ),
        (  # of another cluster on the same file system: the numbers are meaningless here
            f"trn-cluster i-0fedcba9876543210\ntrn-queue 7|FAILED|NonZeroExitCode|n1|{T}|{T}\ntrn-queue 8|RUNNING|None|n1|{T}|N/A\n",
            ("UNKNOWN", "it was submitted on another cluster (head node i-0fedcba9876543210) of this file system. Use that one; if it is deleted, submit it again with a new token"),
            ("CANCELLED", None),
        ),
        (  # the same, but it has written how it ended
            "trn-cluster i-0fedcba9876543210\ntrn-state precompile ended 7 0 1700000000 n1\ntrn-state train ended 8 2 1700000000 n1\n",
            ("COMPLETED", ""),
            ("FAILED", "exit code 2"),
        ),
        (  # nothing could be written, not even that it began
            f"trn-free 0\ntrn-queue 7|FAILED|NonZeroExitCode|n1|{T}|{T}\n",
            ("FAILED", "it could not write its state: the shared file system /efs is full. Free space, then submit it again with the same token"),
            ("CANCELLED", None),
        ),
        (
            f"trn-free 12\ntrn-queue 7|FAILED|NonZeroExitCode|n1|{T}|{T}\n",
            ("FAILED", "it ended before it could write its state: the shared file system may have been full, or Slurm's controller crashed. Submit it again with the same token"),
            ("CANCELLED", None),
        ),
        (  # a recovered controller started it while its node still knew the job
            f"trn-queue 7|FAILED|JobLaunchFailure|n1|{T}|{T}\n",
            ("FAILED", "Slurm could not start it on n1 (JobLaunchFailure): its controller crashed at that moment, or slurmd's log there has the reason. Submit it again with the same token"),
            ("CANCELLED", None),
        ),
        (  # a recovered controller started it a second time, while it ran
            f"trn-state precompile running 7 0 1700000000 n1\ntrn-queue 7|FAILED|NonZeroExitCode|n1|{T}|{T}\n",
            ("FAILED", "it ended before it could write its result: a kill, a node that failed, or a crash of Slurm's controller. Submit it again with the same token"),
            ("CANCELLED", None),
        ),
        (  # it failed; a recovered controller had forgotten that, and it was cancelled there to end it
            f"trn-state precompile ended 7 3 1700000000 n1\ntrn-queue 7|CANCELLED|None|n1|2023-11-14T22:00:00|{T}\n",
            ("FAILED", "exit code 3"),
            ("CANCELLED", None),
        ),
        (
            f"trn-state precompile ended 7 143 1700000000 n1 LOST\ntrn-queue 7|CANCELLED|None|n1|2023-11-14T22:00:00|{T}\n",
            ("LOST", "Slurm's controller crashed before it had saved it, and stopped it. Submit it again with the same token"),
            ("LOST", "lost with precompile"),
        ),
        (
            f"trn-state precompile ended 7 143 1700000000 n1 CANCELLED\ntrn-queue 7|CANCELLED|None|n1|2023-11-14T22:00:00|{T}\n",
            ("CANCELLED", ""),
            ("CANCELLED", None),
        ),
        (  # it failed, and was cancelled while it waited to start again
            f"trn-state precompile ended 7 3 1700000000 n1\ntrn-queue 7|CANCELLED|None|n1|{T}|{T}\n",
            ("CANCELLED", ""),
            ("CANCELLED", None),
        ),
        (  # cancelled just as it completed; a recovered controller had forgotten that, and cancelled it when it was reminded
            f"trn-state precompile ended 7 0 1700000000 n1\ntrn-state train ended 8 0 1700000000 n1\ntrn-cancelled\ntrn-queue 8|CANCELLED|BeginTime||{T}|{T}\n",
            ("COMPLETED", ""),
            ("COMPLETED", ""),
        ),
        (  # both completed; a recovered controller had forgotten that, and could not start them again
            "trn-state precompile ended 7 0 1700000000 n1\ntrn-state train ended 8 0 1700000100 n1\n"
            f"trn-queue 7|FAILED|JobLaunchFailure|n1|{T}|{T}\ntrn-queue 8|FAILED|NonZeroExitCode|n1|{T}|{T}\n",
            ("COMPLETED", ""),
            ("COMPLETED", ""),
        ),
        (
            f"trn-state precompile ended 7 0 1700000000 n1\ntrn-sacct 7|NODE_FAIL|0:0|n1|{T}|{T}\n"
            f"trn-queue 8|CANCELLED|DependencyNeverSatisfied||{T}|{T}\n",
            ("COMPLETED", ""),
            ("LOST", "Slurm's controller crashed, forgot that precompile completed, and cancelled it. Submit it again with the same token"),
        ),
        (
            f"trn-cancelled\ntrn-queue 7|CANCELLED|Resources||{T}|{T}\ntrn-queue 8|CANCELLED|Dependency||{T}|{T}\n",
            ("CANCELLED", ""),
            ("CANCELLED", "did not run: precompile did not complete"),
        ),
        (
            f"trn-cancelled\ntrn-queue 7|CANCELLED|BeginTime||{T}|{T}\ntrn-queue 8|CANCELLED|Dependency||{T}|{T}\n",
            ("CANCELLED", ""),
            ("CANCELLED", "did not run: precompile did not complete"),
        ),
        (  # a state file of another Slurm job is ignored; a user holds the job
            "trn-state precompile ended 6 0 1700000000 n1\ntrn-queue 7|PENDING|JobHeldUser||N/A|N/A\ntrn-queue 8|PENDING|Dependency||N/A|N/A\n",
            ("PENDING", "held by its user: scontrol release 7"),
            ("PENDING", "waits for precompile"),
        ),
        (
            "trn-queue 7|PENDING|BeginTime||N/A|N/A\ntrn-queue 8|PENDING|Dependency||N/A|N/A\n",
            ("PENDING", "starts in a moment"),
            ("PENDING", "waits for precompile"),
        ),
        (  # requeued after a node failed: the state file is of the first run
            "trn-state precompile ended 7 143 1700000000 n1\ntrn-queue 7|PENDING|BeginTime||N/A|N/A\ntrn-queue 8|PENDING|Dependency||N/A|N/A\n",
            ("PENDING", "starts again in a moment"),
            ("PENDING", "waits for precompile"),
        ),
    ],
)  # fmt: skip
def test_states(answer: str, precompile: tuple[str, str | None], train: tuple[str, str | None]) -> None:
    (job,) = parse(f"Welcome!\n{marked(CHAIN + answer)}", CLUSTER).jobs
    for stage, (state, reason) in zip(job.stages, (precompile, train), strict=True):
        assert stage.state == state
        assert reason is None or stage.reason == reason
    assert job.done is not any(s.state in ("PENDING", "RUNNING") for s in job.stages)
    assert job.ok is all(s.state == "COMPLETED" for s in job.stages)


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
        "trn-stage train 8\ntrn-array 0-4,9%2\n"
        f"trn-task 8|0|RUNNING|None|n1|{T}|N/A|{ours}\n"
        f"trn-task 8|1|PENDING|JobArrayTaskLimit||N/A|N/A|{ours}\ntrn-gone 2\n"
        f"trn-task 8|3|RUNNING|None|n3|{T}|N/A|j-2:train|trn:j-2\n"
        f"trn-task 8|4|RUNNING|None|n4|{T}|N/A|{ours}x\ntrn-member 4 ended 8 3 1700000000 n4\n"
        f"trn-task 7|9|RUNNING|None|n9|{T}|N/A|{ours}\ntrn-member 9 ended 6 0 1700000000 n9\n"
    )
    (job,) = parse(marked(JOB + answer), CLUSTER).jobs
    assert [(m.name, m.number, m.state, m.nodes) for m in job.members] == [
        ("0", "8_0", "RUNNING", "n1"),
        ("1", "8_1", "PENDING", ""),
        ("2", "8_2", "CANCELLED", ""),
        ("3", "8_3", "LOST", ""),
        ("4", "8_4", "FAILED", "n4"),
        ("9", "8_9", "LOST", ""),
    ]
    assert [(s.name, s.number, s.state) for s in job.stages] == [("train", "8", "RUNNING")]


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
PIECES = ["x", "train", "7", "²", "9" * 5000, "ended", "running", "|", "||||||", "COMPLETED", "{", "{}", "[]", "null", "1e999", "NaN", '{"nodes": "two", "kind": [], "global_batch_size": {}}', '{"expected": {"sequences_per_second": [], "extrapolated": 1, "source": 2}}', "{reason}", "0001-01-01T00:00:00", "[" * 3000]  # fmt: skip


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
