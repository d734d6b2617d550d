"""How jobs are said to be, from what three witnesses know."""

from __future__ import annotations

import base64
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.conftest import make_cluster
from trainium_cdk.jobs.errors import TransportError
from trainium_cdk.jobs.snapshot import inactive_queue, parse

CLUSTER = make_cluster()
JOB = f"trn-job j-1\ntrn-json {json.dumps({'kind': 'bert-large', 'queue': 'compute1', 'instance_type': 'trn1.32xlarge', 'nodes': 2})}\n"
CHAIN = JOB + "trn-stage precompile 7\ntrn-stage train 8\n"
BOTH = "trn-stage precompile 7\ntrn-stage train 8\n"
T = "2026-11-20T10:00:00"


@pytest.mark.parametrize(
    ("answer", "precompile", "train"),
    [
        (  # waiting
            "trn-queue 7|PENDING|Resources||N/A|N/A\ntrn-queue 8|PENDING|Dependency||N/A|N/A\n",
            ("PENDING", "waits for nodes"),
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
        (  # failed, and Slurm still knows
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
        (  # killed without a word
            "trn-state precompile ended 7 0 1700000000 n1\ntrn-state train running 8 0 1700000100 n1\n",
            ("COMPLETED", ""),
            ("FAILED", "ended without a word: node failure, time limit or a kill"),
        ),
        (  # the same, but accounting knows
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
        ("", ("UNKNOWN", None), ("CANCELLED", None)),
        (  # a state file of an earlier life says nothing
            "trn-state precompile ended 6 0 1700000000 n1\ntrn-queue 7|PENDING|JobHeldUser||N/A|N/A\ntrn-queue 8|PENDING|Dependency||N/A|N/A\n",
            ("PENDING", "held: somebody holds it, or its submission broke off: run that again with the same token"),
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
    (job,) = parse(f"Welcome!\n{CHAIN}{answer}", CLUSTER).jobs
    for stage, (state, reason) in zip(job.stages, (precompile, train), strict=True):
        assert stage.state == state
        assert reason is None or stage.reason == reason
    assert job.done is not any(s.state in ("PENDING", "RUNNING") for s in job.stages)
    assert job.ok is all(s.state == "COMPLETED" for s in job.stages)


def test_the_state_of_a_job_is_that_of_its_first_unfinished_stage() -> None:
    (job,) = parse(
        CHAIN + f"trn-queue 7|COMPLETED|None|n1|{T}|{T}\ntrn-queue 8|RUNNING|None|n1|{T}|N/A\n", CLUSTER
    ).jobs
    assert (job.state, job.current.name, job.directory) == ("RUNNING", "train", "/efs/trn/jobs/j-1")
    assert job.stages[0].started == 1795168800


def test_any_bytes_of_a_log_survive() -> None:
    data = bytes(range(256)) * 20
    text = base64.b64encode(gzip.compress(data)).decode()
    found = parse(f"{CHAIN}trn-size 5120\ntrn-data {text}\n", CLUSTER)
    assert (found.size, found.data) == (5120, data)


KEYS = ["job", "json", "stage", "state", "queue", "data", "size", "sacct", "cancelled"]
PIECES = ["x", "train", "7", "²", "9" * 5000, "ended", "running", "|", "||||||", "COMPLETED", "{", "{}", "[]", "null", "1e999", "NaN", '{"nodes": "two", "kind": [], "global_batch_size": {}}', '{"expected": {"sequences_per_second": [], "extrapolated": 1, "source": 2}}', "{reason}", "0001-01-01T00:00:00", "[" * 3000]  # fmt: skip


@given(st.lists(st.builds(lambda key, rest: f"trn-{key} {rest}", st.sampled_from(KEYS), st.lists(st.sampled_from(PIECES) | st.text(max_size=9), max_size=8).flatmap(lambda words: st.sampled_from([" ", "|"]).map(lambda by: by.join(words)))) | st.text(max_size=30), max_size=12))  # fmt: skip
def test_any_answer_is_read_without_complaint(lines: list[str]) -> None:
    lines = [line for line in lines if not line.startswith("trn-data")]
    for job in parse("\n".join(lines), CLUSTER).jobs:
        assert job.stages
        assert job.to_dict()["state"]


@given(st.text(max_size=40) | st.binary(max_size=60).map(lambda b: base64.b64encode(b).decode()))
def test_a_log_that_came_in_pieces_is_whole_or_asked_for_again(text: str) -> None:
    """A hole would shift every offset after it."""
    whole = base64.b64encode(gzip.compress(b"step 1\n")).decode()
    assert parse(f"{CHAIN}trn-data {whole}", CLUSTER).data == b"step 1\n"
    try:
        assert parse(f"{CHAIN}trn-data {text.splitlines()[0] if text.splitlines() else ''}", CLUSTER).data == b""
    except TransportError as e:
        assert e.again  # noqa: PT017  either is right
