"""Jobs on a real Slurm: every operation, and its failures."""

from __future__ import annotations

import errno
import json
import os
import pwd
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.slurm import LocalSlurm
from sandbox.slurm_packages import which
from tests.jobs.conftest import counting, fleet, make_cluster, with_program
from tests.support import ROOT, completed, need, until
from trainium_cdk.client.jobs.slurm.backend import seen_by_runner
from trainium_cdk.client.jobs.slurm.transport import LocalTransport, Result
from trainium_cdk.client.jobs.status import JobStatus
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs import (
    BertLarge,
    JobError,
    Script,
    SlurmBackend,
    SubmitError,
    TransportError,
    UnknownJob,
    job_log,
)
from trainium_cdk.runner.requests import Cancel, ListJobs, ReadLog, SubmitJobs, write_request
from trainium_cdk.runner.slurm import NO_RESPONSE


def script(body: str, **fields: object) -> Script:
    return Script(filename="run.sh", content=f"#!/bin/bash\n{body}\n".encode(), **fields)


def log(backend: SlurmBackend, id: str, **options: object) -> str:
    return b"".join(chunk.data for chunk in backend.logs(id, **options)).decode()  # type: ignore[arg-type]


def test_a_submission_of_one_stage_starts_no_needless_process(slurm: LocalSlurm, tmp_path: Path) -> None:
    """Each takes a millisecond or more, which a sweep of a thousand submissions multiplies; a request to Slurm takes several."""
    with counting(slurm, tmp_path) as (backend, used):
        sent = backend.submit(script("echo it\\'s done"))
        assert used.read_text().split() == ["sbatch"]
    assert backend.wait(sent.id, timeout=60).ok
    assert "it's done" in log(backend, sent.id)


NO_RESPONSES = (
    "Unexpected message received", "Message send failure", "Message receive failure", "Insane message length",
    "Communication connection failure", "Communication shutdown failure", "Unexpected missing socket error",
    "Unable to contact slurm controller (connect failure)", "Unable to contact slurm controller (send failure)",
    "Unable to contact slurm controller (receive failure)", "Unable to contact slurm controller (shutdown failure)",
    "Slurm backup controller in standby mode", "Header lengths are longer than data received",
    "Socket timed out on send/recv operation", "Zero Bytes were transmitted or received",
)  # fmt: skip
REJECTIONS = (
    "Invalid partition name specified", "Invalid node name specified", "Job dependency problem", "Access/permission denied",
    "Requested time limit is invalid (missing or exceeds some limit)", "Protocol authentication error",
    "System submissions disabled", "Requested node configuration is not available",
)  # fmt: skip


@pytest.mark.parametrize("message", [*NO_RESPONSES, *REJECTIONS])
def test_no_response_of_slurm_is_not_a_rejection(message: str) -> None:
    assert bool(NO_RESPONSE.search(f"sbatch: error: Batch job submission failed: {message}")) == (
        message in NO_RESPONSES
    )
    sbatch = which("sbatch")
    need(sbatch is not None, "Slurm is not installed: make slurm")
    library = next(Path(str(sbatch)).resolve().parents[1].glob("lib/*/slurm*/libslurmfull.so"))
    assert b"\0" + message.encode() + b"\0" in library.read_bytes()


@pytest.mark.parametrize("name", [
    "EAGAIN", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTDOWN", "EHOSTUNREACH", "EINPROGRESS", "EINTR", "ENETDOWN",
    "ENETRESET", "ENETUNREACH", "ENOBUFS", "ENOTCONN", "EPIPE", "ESHUTDOWN", "ETIMEDOUT",
])  # fmt: skip
def test_a_failed_connection_to_slurm_is_not_a_rejection(name: str) -> None:
    message = os.strerror(getattr(errno, name))
    assert NO_RESPONSE.search(f"sbatch: error: Batch job submission failed: {message}")


@pytest.fixture
def data(shared: Path) -> str:
    """A small data set that is there already."""
    folder = shared / "shards"
    folder.mkdir(exist_ok=True)
    for i in range(256):
        (folder / f"part_training_{i}.hdf5").write_bytes(os.urandom(512))
    return "/efs/shards"


def test_a_script_finds_the_other_nodes(backend: SlurmBackend) -> None:
    body = 'echo "node $NODE_RANK of $NNODES, $NPROC_PER_NODE workers, at $MASTER_ADDR:$MASTER_PORT, in $PWD"'
    job = backend.submit(script(body, nodes=3))
    assert backend.wait(job.id, 600).ok
    printed = log(backend, job.id)
    for rank in range(3):
        assert re.search(rf"{rank}: node {rank} of 3, 32 workers, at 127\.0\.0\.1:2022, in .*{job.id}/work", printed)
    assert "node 1 of 3" in log(backend, job.id, node=1)
    assert "node 0 of 3" not in log(backend, job.id, node=1)


def test_tasks_of_a_node_have_ranks(backend: SlurmBackend) -> None:
    job = backend.submit(script('echo "rank $RANK/$WORLD_SIZE local $LOCAL_RANK"', nodes=2, tasks_per_node=2))
    assert backend.wait(job.id, 600).ok
    found = set(re.findall(r"rank (\d)/4 local (\d)", log(backend, job.id)))
    assert found == {("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")}
    assert [backend.ask(ReadLog(job.id, rank=rank)).node for rank in range(4)] == [0, 0, 1, 1]
    with pytest.raises(JobError, match="has ranks 0 to 3, not 4"):
        backend.ask(ReadLog(job.id, rank=4))


def test_a_queue_that_parallelcluster_stopped_is_reported_with_the_fix(
    backend: SlurmBackend, slurm: LocalSlurm
) -> None:
    restart = f"trn nodes start --stack {backend.cluster.stack} --region us-east-1"
    slurm.run(["scontrol", "update", "partitionname=compute1", "state=INACTIVE"])
    try:
        with pytest.raises(SubmitError, match="Required partition not available") as refused:
            backend.submit(script("true"))
        assert restart in str(refused.value)
        assert "PROTECTED" in str(refused.value)
    finally:
        slurm.run(["scontrol", "update", "partitionname=compute1", "state=UP"])


WORD = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=15)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    args=st.lists(WORD | st.sampled_from(["$(id)", "'", "-n 9", "#SBATCH", "\n"]), min_size=1, max_size=5), value=WORD
)
def test_arguments_and_environment_arrive_unchanged(
    backend: SlurmBackend, shared: Path, args: list[str], value: str
) -> None:
    body = 'printf "%s\\0" "$VALUE" "$@" > printed'
    job = backend.submit(script(body, args=tuple(args), env={"VALUE": value}))
    assert backend.wait(job.id, 600).ok
    printed = (shared / "trn" / "jobs" / job.id / "work" / "printed").read_bytes()
    assert printed == b"".join(word.encode() + b"\0" for word in [value, *args])


def test_bert_is_prepared_compiled_and_trained_on_the_same_nodes(
    backend: SlurmBackend, shared: Path, data: str
) -> None:
    first = backend.submit(BertLarge(nodes=2, optimizer="adamw", run_steps=12, data=data))
    assert list(first.stages) == ["prepare", "precompile", "train"]
    reader = job_log()
    stages, states, ends = list[str](), list[str](), list[int]()

    def changed(job: JobStatus) -> None:
        states.append(job.state)
        if job.done:
            ends.append(len(stages))

    for chunk in backend.logs(first.id, follow=True, changed=changed):
        stages.append(chunk.stage)
        reader.feed(chunk.stage, chunk.data)
    assert ends == [len(stages)]  # after the last line
    ended = backend.status(first.id)
    assert ended.ok, log(backend, first.id)
    assert (states[-1], "RUNNING" in states) == ("COMPLETED", True)
    assert list(dict.fromkeys(stages)) == ["prepare", "precompile", "train"]
    assert reader.last is not None
    assert reader.last.step == 12
    assert (reader.compiled["graphs"], reader.compiled["failed"]) == (12, 0)  # six graphs on each of two nodes
    assert ended.stages[1].nodes == ended.stages[2].nodes
    assert "Using a cached neff" in log(backend, first.id)
    output = shared / "trn" / "jobs" / first.id / "output"
    assert (output / "ckpt_12.pt").exists()
    assert not (shared / "trn" / "jobs" / first.id / "output.precompile" / "ckpt_10.pt").exists()
    # all is fetched now: the next job has nothing to prepare, and phase 2 starts from the checkpoint of the first
    second = backend.submit(BertLarge(nodes=2, phase=2, checkpoint=first.id, run_steps=2, data=data, precompile=False))
    assert list(second.stages) == ["train"]
    assert backend.wait(second.id, 600).ok, log(backend, second.id)
    assert "ckpt_12.pt at step 12" in log(backend, second.id)
    [environment] = (link for link in (shared / "trn/environments").iterdir() if link.is_symlink())
    shutil.rmtree(environment.resolve())
    environment.unlink()
    third = backend.submit(BertLarge(nodes=2, run_steps=1, data=data, precompile=False))
    assert list(third.stages) == ["prepare", "train"]
    assert backend.wait(third.id, 600).ok, log(backend, third.id)
    assert environment.is_dir()


def test_a_failed_precompile_ends_the_job(backend: SlurmBackend) -> None:
    job = backend.submit(script("exit 3", precompile=True))
    ended = backend.wait(job.id, 600)
    precompile, train = ended.stages
    assert (precompile.state, precompile.exit_code, precompile.reason) == ("FAILED", 3, "exit code 3")
    assert (train.state, train.reason) == ("CANCELLED", "did not run: precompile did not complete")
    assert (ended.state, ended.ok) == ("FAILED", False)


@pytest.mark.sweep
def test_graphs_that_do_not_compile_end_the_job(backend: SlurmBackend, shared: Path) -> None:
    job = backend.submit(
        script('echo "||NEURON_PARALLEL_COMPILE||: Total failed compilations: 2"', nodes=2, precompile=True)
    )
    assert backend.wait(job.id, 600).state == "FAILED"
    assert "graphs failed to compile on 2 node(s)" in log(backend, job.id, stage="precompile")


def test_a_log_is_followed_without_loss(backend: SlurmBackend) -> None:
    """Bytes that are no text, half lines and a follower that begins in the middle."""
    body = r"""for i in $(seq 300); do printf 'line %d \xff\xfe end\n' "$i"; if [ $((i % 60)) = 0 ]; then sleep 0.3; fi; done; printf 'no line end'"""
    job = backend.submit(script(body))
    chunks = list(backend.logs(job.id, stage="train", follow=True))
    whole = b"".join(c.data for c in chunks)
    assert whole == b"".join(c.data for c in backend.logs(job.id, stage="train"))
    assert re.findall(rb"line (\d+) \xff\xfe end\n", whole) == [str(i).encode() for i in range(1, 301)]
    assert whole.rstrip(b"\n").endswith(b"no line end")
    assert [c.offset for c in chunks[1:]] == [c.next_offset for c in chunks[:-1]]
    rest = b"".join(c.data for c in backend.logs(job.id, stage="train", offset=chunks[0].next_offset, follow=True))
    assert chunks[0].data + rest == whole
    [end] = backend.logs(job.id, stage="train", offset=len(whole) + 1)
    assert (end.offset, end.data) == (len(whole), b"")
    assert list(backend.logs(job.id, stage="train", offset=len(whole))) == []


def test_a_follower_continues_after_its_connection_broke(backend: SlurmBackend) -> None:
    class Shaky(LocalTransport):
        calls = 0

        def ask(self, cluster: SlurmCluster, request: str, timeout: float = 120, private: bool = False) -> Result:
            Shaky.calls += 1
            if Shaky.calls % 3 == 0:
                raise TransportError("the network is away")
            return super().ask(cluster, request, timeout, private)

    job = backend.submit(script("for i in $(seq 20); do echo step $i; sleep 0.1; done"))
    shaky = Shaky(env=backend.transport._env, interval=0.05)  # type: ignore[attr-defined]
    printed = b"".join(c.data for c in SlurmBackend(backend.cluster, shaky).logs(job.id, stage="train", follow=True))
    assert re.findall(rb"step (\d+)", printed) == [str(i).encode() for i in range(1, 21)]


def test_cancel(backend: SlurmBackend) -> None:
    job = backend.submit(script("sleep 3600", precompile=True, nodes=2))
    assert until(lambda: backend.status(job.id).stages[0].state == "RUNNING")
    ended = backend.cancel(job.id)
    assert [s.state for s in ended.stages] == ["CANCELLED", "CANCELLED"]
    assert backend.cancel(job.id) == backend.status(job.id)  # once more changes nothing
    again = backend.submit(script("true"))
    assert backend.wait(again.id, 600).ok
    assert backend.cancel(again.id).ok


def test_a_job_whose_folder_was_deleted_is_cancelled(backend: SlurmBackend, slurm: LocalSlurm, shared: Path) -> None:
    """`trn nodes` shows it, and it costs money."""
    sent = backend.submit(script("echo began; sleep 600"))
    assert until(lambda: "began" in log(backend, sent.id))
    shutil.rmtree(shared / "trn/jobs" / sent.id)
    assert sent.id in [job.id for job in backend.active()]
    assert backend.cancel(sent.id).state == "CANCELLED"
    assert sent.id not in [job.id for job in backend.active()]
    assert not (shared / "trn/jobs" / sent.id / "cancelled").exists()


def test_an_unknown_job(backend: SlurmBackend) -> None:
    for ask in (backend.status, backend.cancel, lambda id: list(backend.logs(id))):
        for id in ("bert-large-20200101-000000", "", "../jobs", "$(reboot)", "x" * 200):
            with pytest.raises(UnknownJob, match=r"there is no job .* on trn-slurm"):
                ask(id)


def test_unknown_stages_and_nodes(backend: SlurmBackend) -> None:
    job = backend.submit(script("true"))
    with pytest.raises(JobError, match="no stage 'compile'; it has train"):
        list(backend.logs(job.id, stage="compile"))
    with pytest.raises(JobError, match="nodes 0 to 0, not 1"):
        list(backend.logs(job.id, node=1))
    backend.wait(job.id, 600)


def test_waiting_has_a_timeout(backend: SlurmBackend) -> None:
    job = backend.submit(script("sleep 3600"))
    with pytest.raises(TrnError, match=r"has not ended within 1 s; it is (PENDING|RUNNING)"):
        backend.wait(job.id, 1)
    backend.cancel(job.id)


def test_the_same_token_submits_once(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    job = script("true", name="once")
    found = []
    threads = [threading.Thread(target=lambda: found.append(backend.submit(job, "twice"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({str(f.stages) for f in found}) == 1
    assert sorted(f.existing for f in found) == [False, True, True]
    numbers = slurm.run(["squeue", "-h", "-a", "-t", "all", "-o", "%k"]).stdout.split().count("trn:once-twice")
    assert numbers == 1
    with pytest.raises(SubmitError, match=r"once-twice already exists as another job. Use a new token"):
        backend.submit(script("false", name="once"), "twice")
    assert backend.wait("once-twice", 600).ok


def test_a_submission_says_where_compiling_counts_in_the_time_limit(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    """The queue takes no longer job than the training's own limit."""
    said: list[str] = []
    backend.say = said.append  # type: ignore[method-assign, assignment]

    def limit(**fields: object) -> str:
        sent = backend.submit(script("true", precompile=True, time_limit="30m", **fields))
        return slurm.run(["squeue", "-h", "-t", "all", "-j", sent.stages["train"], "-o", "%l"]).stdout.strip()

    assert (limit(), said) == ("2:30:00", [])
    slurm.run(["scontrol", "update", "PartitionName=compute1", "MaxTime=30"])
    try:
        assert limit() == "30:00"
        assert said == ["queue compute1 allows 0:30:00: compiling counts in the time limit of 0:30:00"]
        slurm.run(["scontrol", "update", "PartitionName=compute1", "MaxTime=40"])
        assert limit() == "40:00"
        assert said[1:] == [
            "queue compute1 allows 0:40:00: compiling counts in the time limit of 0:30:00 after 0:10:00"
        ]
    finally:
        slurm.run(["scontrol", "update", "PartitionName=compute1", "MaxTime=INFINITE"])
        slurm.run(["scancel", f"--user={slurm.node_env()['USER']}"])
    assert until(lambda: not slurm.run(["squeue", "-h", "-a"]).stdout)


def test_training_is_started_again_if_srun_fails_before_it_begins(
    backend: SlurmBackend, slurm: LocalSlurm, tmp_path: Path
) -> None:
    """As if Slurm's controller had crashed while it created the step."""
    with_program(slurm, tmp_path, "sleep", "set -- 0.01")  # the stage waits a minute for what NFS may not show yet
    once = f"if [ ! -e {tmp_path}/failed ]; then : > {tmp_path}/failed; exit 1; fi"
    failing = SlurmBackend(backend.cluster, with_program(slurm, tmp_path, "srun", once))
    sent = failing.submit(script("echo trains", nodes=2))
    assert backend.wait(sent.id, 600).ok
    assert re.findall("no task of train began|trains", log(backend, sent.id)) == [
        "no task of train began",
        "trains",
        "trains",
    ]


def test_a_job_that_slurm_refuses_leaves_nothing(backend: SlurmBackend, slurm: LocalSlurm, shared: Path) -> None:
    other = make_cluster(fleet(queue="nowhere"))
    jobs = shared / "trn" / "jobs"
    before = sorted(p.name for p in jobs.iterdir()), slurm.run(["squeue", "-h", "-a"]).stdout
    with pytest.raises(SubmitError, match=r"invalid partition specified: nowhere.*Nothing of it is left"):
        SlurmBackend(other, backend.transport).submit(script("true", precompile=True))
    assert (sorted(p.name for p in jobs.iterdir()), slurm.run(["squeue", "-h", "-a"]).stdout) == before


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (BertLarge(nodes=2, data="/efs/no 'data'"), "there is no /efs/no 'data' on the cluster"),
        (BertLarge(phase=2, checkpoint="/efs/ckpt_7.pt"), "there is no /efs/ckpt_7.pt on the cluster"),
        (BertLarge(phase=2, checkpoint="bert-large-none"), "job bert-large-none has written no checkpoint yet"),
    ],
)
def test_missing_requirements_are_reported_before_nodes_are_requested(
    backend: SlurmBackend, job: BertLarge, message: str
) -> None:
    with pytest.raises(SubmitError, match=message):
        backend.submit(job, "missing")
    with pytest.raises(UnknownJob):
        backend.status("bert-large-missing")


def test_an_unfinished_bootstrap_is_reported(backend: SlurmBackend) -> None:
    early = backend.cluster.model_copy(update={"venv": "not_there_yet"})
    with pytest.raises(
        SubmitError, match=r"no virtual environment at .*/not_there_yet: the head node's bootstrap has not"
    ):
        SlurmBackend(early, backend.transport).submit(script("true"))


def test_a_file_system_that_is_not_mounted_is_reported(
    backend: SlurmBackend, slurm: LocalSlurm, tmp_path: Path
) -> None:
    """A plain folder in its place would be a disk that the compute nodes do not see."""
    env = {k: v for k, v in slurm.node_env().items() if k != "TRN_SHARED_ROOT"}
    there = backend.cluster.model_copy(update={"shared_dir": str(tmp_path)})
    with pytest.raises(SubmitError, match=rf"{tmp_path} is not mounted on this machine"):
        SlurmBackend(there, LocalTransport(env=env)).submit(script("true"))
    assert list(tmp_path.iterdir()) == []


def test_list(backend: SlurmBackend) -> None:
    jobs = [backend.submit(script("true", name=f"listed-{i}")).id for i in range(3)]
    for job in jobs:
        backend.wait(job, 600)
    found = [j.id for j in backend.list()]
    assert [j for j in found if j.startswith("listed-")] == jobs[::-1]
    assert len(backend.list(2)) == 2


def test_another_user_of_the_head_node_gets_the_owners_name(tmp_path: Path) -> None:
    jobs = tmp_path / "efs/trn/jobs"
    jobs.mkdir(parents=True)
    jobs.chmod(0o555)
    user = pwd.getpwuid(os.getuid()).pw_name
    plain = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []  # root may write anywhere
    cluster = make_cluster()
    asked = [
        ListJobs(5),
        Cancel("x"),
        SubmitJobs((SlurmBackend(cluster, LocalTransport()).render(script("true"), "t").spec,)),
    ]
    for one in asked:
        done = completed(
            [*plain, sys.executable, "-m", "trainium_cdk.runner", "ask"],
            input=json.dumps(write_request(seen_by_runner(cluster), one)),
            env={**os.environ, "TRN_SHARED_ROOT": str(tmp_path)},
        )
        assert json.loads(done.stdout)["error"] == {
            "kind": "theirs",
            "message": f"the jobs in {jobs} belong to {user}, and you are {user}. Run this as {user} (sudo -Hu {user} trn ...), or give --ssm. "
            f"If they are of an earlier version, an administrator can give them to {user} when they have ended: sudo chown -hR {user}: {jobs.parent}",
        }


@pytest.mark.sweep
def test_training_is_restarted_when_a_node_dies(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    """Training is requeued, on the node once it is back; the log continues in the same file."""
    job = backend.submit(
        script('echo "attempt ${SLURM_RESTART_COUNT:-0}"; if [ -z "${SLURM_RESTART_COUNT:-}" ]; then sleep 3600; fi')
    )
    assert until(lambda: "attempt 0" in log(backend, job.id))
    node = backend.status(job.id).stages[0].nodes
    slurm.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=test"])
    try:
        ended = backend.wait(job.id, 600)
    finally:
        slurm.run(["scontrol", "update", f"nodename={node}", "state=resume"])
    assert ended.ok
    printed = log(backend, job.id)
    assert printed.index("attempt 0") < printed.index("attempt 1")


def test_ten_lines_of_python(backend: SlurmBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/guides/python.md, as it is printed: the result, the same job again, and why a job failed."""
    page = (ROOT / "docs/guides/python.md").read_text("utf-8")
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len([line for line in program.splitlines() if line]) <= 10
    [result] = re.findall(r"returns `([^`]+)`", page)
    monkeypatch.setattr("trainium_cdk.jobs.connect", lambda _stack, **_: backend)
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {}
    exec(program, given)  # noqa: S102
    Path("train.py").write_text("import sys; assert sys.argv[2] == '1e-4'; print('step 400/400 loss 2.31')\n")
    assert given["train"]("1e-4", "2026-11-20") == result
    assert given["train"]("1e-4", "2026-11-20") == result
    assert [job.id for job in backend.list()].count("train-2026-11-20") == 1
    with pytest.raises(RuntimeError, match=r"train-2026-11-21: .*AssertionError"):
        given["train"]("1e-3", "2026-11-21")
