"""A job is never confused with another one: Slurm assigns numbers again after a crash of its controller, and on a new cluster
on the same file system."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import CONFIGURATION, with_program
from tests.support import begins_again, need_slurm, swept, until
from tests.trust.histories import History, World
from trainium_cdk.jobs import Script, SlurmBackend, SubmitError
from trainium_cdk.operations.teardown.jobs import end
from trainium_cdk.runner.records import State, write_state

FEW, MANY, WORLDS = 3, 200, 6
BUSY_SECONDS = 30
"""A node of a busy machine may take so long to start a step. Slurm's own default is 120 seconds; what is requeued waits as long."""
LONG = b"#!/bin/bash\nsleep 3600\n"


@pytest.fixture(scope="module")
def slurm_to_crash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    """Separate from that of the other tests, whose jobs would be lost with it."""
    need_slurm()
    directory = tmp_path_factory.mktemp("identity")
    with LocalSlurm.start(directory, CONFIGURATION, credential_seconds=BUSY_SECONDS) as running:
        yield running


@pytest.fixture
def world(slurm_to_crash: LocalSlurm) -> World:
    """With the numbers from 1, and no job."""
    made = World(slurm_to_crash, int.from_bytes(os.urandom(3), "big"))
    made.renew()
    return made


def script(name: str, content: bytes = b"true\n", **fields: object) -> Script:
    return Script(filename="job.sh", content=content, name=name, **fields)


def jobs_dir(world: World) -> Path:
    return Path(world.slurm.node_env()["TRN_SHARED_ROOT"]) / "efs" / "trn" / "jobs"


def paused(world: World, on: bool) -> None:
    world.slurm.run(["scontrol", "update", "PartitionName=compute1", f"State={'DOWN' if on else 'UP'}"])


def until_running(world: World, id: str) -> None:
    world.until(lambda: world.backend.status(id).state != "PENDING")
    assert world.backend.status(id).state == "RUNNING"


def until_empty(world: World) -> None:
    """Until Slurm has no job any more that waits or runs."""
    world.until(lambda: world.slurm.run(["squeue", "-h", "-o", "%A"]).stdout == "")


@pytest.mark.parametrize("way", swept(["cancel", "destroy"], "cancel"))
def test_a_job_number_reassigned_to_another_job_is_ignored(world: World, way: str) -> None:
    """After a crash: status reports that the job is lost, cancel cancels nothing, and the same token submits it again."""
    backend, token = world.backend, f"crash-{way}-{world.number}"
    with world.unsaved():
        paused(world, True)
        submitted = backend.submit(script("ours", LONG), token)
    anothers = backend.submit(script("theirs", LONG), token)
    assert anothers.stages == submitted.stages
    ours, theirs = submitted.id, anothers.id
    until_running(world, theirs)
    lost = backend.status(ours)
    assert lost.state == "LOST"
    assert "number 1 is another job's now. Submit it again with the same token" in lost.current.reason
    if way == "cancel":
        assert backend.cancel(ours).state == "LOST"
        assert backend.status(theirs).state == "RUNNING"
    again = backend.submit(script("ours", LONG), token)
    assert (again.existing, again.resubmitted) == (True, ("train",))
    assert backend.status(ours).state in ("PENDING", "RUNNING")
    bare = world.bare(f"bare-{way}", "--hold")
    end(backend, "cancel", lambda _: None)
    assert {backend.status(id).state for id in (ours, theirs)} == {"CANCELLED"}
    assert world.slurm.run(["squeue", "-h", "-j", bare, "-o", "%T"]).stdout == "PENDING\n"


def test_a_new_cluster_does_not_own_the_job_numbers_of_the_old_one(world: World) -> None:
    first = world.backend
    token = f"reused-{world.number}"
    old = first.submit(script("old", LONG), token)
    until_running(world, old.id)
    world.renew()
    backend = world.backend
    theirs = backend.submit(script("theirs", LONG), token)
    assert theirs.stages == old.stages
    until_running(world, theirs.id)
    for ask in (backend.status, backend.cancel):
        found = ask(old.id)
        assert found.done
        assert (
            "Submit it again with a new token" in found.current.reason
            or "submit it again with a new token" in found.current.reason
        )
    assert {job.id: job.state for job in backend.list()}[theirs.id] == "RUNNING"
    assert [job.id for job in backend.active()] == [theirs.id]
    with pytest.raises(
        SubmitError, match=r"is a job of another cluster on this file system \(head node i-.*Use a new token"
    ):
        backend.submit(script("old", LONG), token)
    assert backend.cancel(theirs.id).state == "CANCELLED"


@pytest.mark.parametrize("seconds", [0, 1.5, 3])
@pytest.mark.sweep
def test_a_job_is_not_held_after_a_crash(world: World, seconds: float) -> None:
    """A client that waits for it sees it run; if Slurm has lost it, that is reported, and the same token submits it again."""
    backend, token = world.backend, f"held-{world.number}-{seconds}".replace(".", "-")
    job = script("held", precompile=True)
    sent = backend.submit(job, token)
    world.crash(after=seconds)
    for _ in range(5):  # of two stages, Slurm may lose the one at once, and start the other to no effect
        ended = world.wait(sent.id)
        if ended.ok:
            break
        assert "Submit it again with the same token" in ended.current.reason, ended
        assert backend.submit(job, token).resubmitted
    assert ended.ok, ended


@pytest.mark.sweep
def test_a_stage_waits_for_a_controller_that_is_being_restarted(world: World, tmp_path: Path) -> None:
    """It queries Slurm for the address of its first node as it begins, and the controller dies just then."""
    asked, killed = tmp_path / "asked", tmp_path / "killed"
    waits = f'if [ "$1 $2" = "show node" ]; then : > {asked}; until [ -e {killed} ]; do sleep 0.1; done; fi'
    backend = SlurmBackend(world.backend.cluster, with_program(world.slurm, tmp_path, "scontrol", waits))
    sent = backend.submit(script("waits"), f"restarted-{world.number}")
    world.until(asked.exists)
    world.slurm.kill_controller(save=True)
    killed.touch()
    log = jobs_dir(world) / sent.id / "logs" / "train.log"
    assert until(lambda: "trn: Slurm's controller does not answer: " in log.read_text()), log.read_text()
    world.slurm.start_controller()
    assert world.wait(sent.id).ok


@pytest.mark.parametrize("helped", swept(["status", "list", "submit"], "status"))
def test_a_lost_release_is_sent_again(world: World, helped: str) -> None:
    """As after a crash between the two: Slurm has the job, but not that it may begin. Only jobs of several stages are released."""
    backend, token = world.backend, f"begin-{world.number}-{helped}"
    paused(world, True)
    job = script("waits", precompile=True)
    sent = backend.submit(job, token)
    world.slurm.run(["scontrol", "update", f"JobId={sent.stages['precompile']}", "StartTime=now+900"])
    paused(world, False)
    world.until(lambda: "BeginTime\n" in world.slurm.run(["squeue", "-h", "-o", "%r"]).stdout)
    asked: dict[str, Callable[[], object]] = {
        "status": lambda: backend.status(sent.id),
        "list": backend.list,
        "submit": lambda: backend.submit(job, token),
    }
    asked[helped]()
    until_empty(world)
    assert backend.status(sent.id).ok


def test_a_started_job_is_started_again(world: World) -> None:
    """As after a crash a moment later: its node has started it, and Slurm has no record of that."""
    backend = world.backend
    paused(world, True)
    sent = backend.submit(script("begun"), f"begun-{world.number}")
    number = sent.stages["train"]
    world.slurm.run(["scontrol", "update", f"JobId={number}", "StartTime=now+900"])
    write_state(jobs_dir(world) / sent.id, "train", State("running", number, at=time.time(), nodes="compute1-dy-trn-1"))
    paused(world, False)
    world.until(lambda: world.slurm.run(["squeue", "-h", "-o", "%r"]).stdout == "BeginTime\n")
    assert world.wait(sent.id).ok


def test_a_job_held_by_its_user_stays_held(world: World) -> None:
    backend = world.backend
    paused(world, True)
    sent = backend.submit(script("kept"), f"hold-{world.number}")
    number = sent.stages["train"]
    world.slurm.run(["scontrol", "uhold", number])
    paused(world, False)
    assert backend.status(sent.id).current.reason == f"held by its user: scontrol release {number}"
    world.slurm.run(["scontrol", "release", number])
    assert world.wait(sent.id).ok


def test_a_cancelled_job_stays_cancelled_after_a_crash(world: World) -> None:
    """Slurm has forgotten it: the job is pending again, and ends before its script does anything."""
    backend = world.backend
    paused(world, True)
    sent = backend.submit(script("gone", b'echo ran > "$HOME/gone-ran"\n'), f"gone-{world.number}")
    with world.unsaved():
        assert backend.cancel(sent.id).state == "CANCELLED"
    assert world.slurm.run(["squeue", "-h", "-o", "%k"]).stdout == f"trn:{sent.id}\n"
    until_empty(world)
    assert backend.status(sent.id).state == "CANCELLED"
    assert not (Path(world.slurm.node_env()["HOME"]) / "gone-ran").exists()


@pytest.mark.sweep
def test_a_stage_that_has_completed_is_not_run_again_after_a_crash(world: World) -> None:
    """Slurm has forgotten that it ended, misses it on its node, and starts it again: in the second in which it ended, the node
    may refuse that (Job credential revoked), and Slurm reports that it failed."""
    backend = world.backend
    sent = backend.submit(script("done", b'echo ran >> "$HOME/done-ran"\n', precompile=True), f"done-{world.number}")
    assert world.wait(sent.id).ok
    number = sent.stages["train"]
    assert world.slurm.run(["scontrol", "requeue", number]).returncode == 0
    assert backend.status(sent.id).state in ("PENDING", "RUNNING", "COMPLETED")
    begins_again(world.slurm, number, lambda: not world.slurm.run(["squeue", "-h", "-o", "%A"]).stdout)
    found = backend.status(sent.id)
    assert found.ok, found.stages
    assert (Path(world.slurm.node_env()["HOME"]) / "done-ran").read_text() == "ran\n" * 2  # to compile, and to train


@pytest.mark.sweep
def test_a_stage_after_one_that_has_completed_is_submitted_again(world: World) -> None:
    """Slurm has forgotten that the first one completed, cannot start it again, and so cancels the next one."""
    backend, token = world.backend, f"after-{world.number}"
    job = script("after", b'echo ran >> "$HOME/after-ran"\n', precompile=True)
    paused(world, True)
    sent = backend.submit(job, token)
    first = sent.stages["precompile"]
    ended = State("ended", first, code=0, at=time.time(), nodes="compute1-dy-trn-1")
    write_state(jobs_dir(world) / sent.id, "precompile", ended)
    world.slurm.run(["scancel", first])
    world.until(lambda: backend.status(sent.id).state == "LOST")
    assert [stage.state for stage in backend.status(sent.id).stages] == ["COMPLETED", "LOST"]
    paused(world, False)
    assert backend.submit(job, token).resubmitted == ("train",)
    assert world.wait(sent.id).ok
    assert (Path(world.slurm.node_env()["HOME"]) / "after-ran").read_text() == "ran\n"


@pytest.mark.sweep
def test_a_stage_that_slurm_shows_as_running_for_ever_ends(world: World) -> None:
    """A crash as it ends, and its node's last message comes after the crash: Slurm then has the job without a node, misses it nowhere,
    and lets the next stage wait for ever. Here a step that a user attached to it delays that message, by KillWait."""
    slurm, backend, home = world.slurm, world.backend, Path(world.slurm.node_env()["HOME"])
    content = b'until [ -e "$HOME/go" ]; do sleep 0.2; done; exit "$CODE"\n'
    good = backend.submit(script("good", content, env={"CODE": "0"}, precompile=True), f"good-{world.number}")
    bad = backend.submit(script("bad", content, env={"CODE": "3"}), f"bad-{world.number}")
    once = backend.submit(script("once", content, env={"CODE": "4"}, restarts=0), f"once-{world.number}")
    numbers = [good.stages["precompile"], bad.stages["train"], once.stages["train"]]

    def states(form: str) -> list[str]:
        return slurm.run(
            ["squeue", "-h", "-a", "-t", "all", "-j", ",".join(numbers), "-S", "i", "-o", form]
        ).stdout.split()

    world.until(lambda: states("%T") == ["RUNNING"] * 3)
    attached = ["srun", "--overlap", "bash", "-c", "trap '' TERM; for i in {1..60}; do sleep 1; done"]
    with ThreadPoolExecutor(3) as pool:
        for number in numbers:
            pool.submit(slurm.run, [*attached[:1], f"--jobid={number}", *attached[1:]])
        world.until(lambda: all(slurm.run(["squeue", "-h", "-s", "-j", n]).stdout.count("\n") >= 3 for n in numbers))
        with world.unsaved():
            (home / "go").touch()
            world.until(lambda: states("%T") == ["COMPLETING"] * 3)
    world.until(lambda: set(slurm.node_states().values()) == {"idle"})
    assert states("%T") == ["RUNNING"] * 3
    ends = {sent.id: world.wait(sent.id) for sent in (bad, once, good)}
    assert [(end.state, end.current.reason) for end in ends.values()] == [
        ("FAILED", "exit code 3"),
        ("FAILED", "exit code 4"),
        ("COMPLETED", ""),
    ]
    restarted = {n: " Restarts=1 " in slurm.run(["scontrol", "-o", "show", "job", n]).stdout for n in numbers}
    assert list(restarted.values()) == [True, True, False], "one must not run again"


@pytest.mark.sweep
def test_leftovers_of_an_interrupted_submission_do_not_run(world: World) -> None:
    """A Slurm job that the job's record does not name: for example because its cancellation was lost."""
    backend = world.backend
    sent = backend.submit(script("twice", b'echo ran >> "$HOME/twice-ran"\n'), f"twice-{world.number}")
    assert world.wait(sent.id).ok
    directory = jobs_dir(world) / sent.id
    (runner,) = (directory.parents[1] / "runner").iterdir()
    again = ["/usr/bin/python3", "-I", str(runner), "stage", str(directory), "train"]
    world.slurm.run(["sbatch", "-o", "/dev/null", f"--wrap={shlex.join(again)}"])
    until_empty(world)
    assert (Path(world.slurm.node_env()["HOME"]) / "twice-ran").read_text() == "ran\n"
    assert backend.status(sent.id).ok


@pytest.mark.parametrize("histories", [FEW, pytest.param(MANY, marks=pytest.mark.sweep)])
def test_histories(histories: int, slurm_to_crash: LocalSlurm, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of submissions, crashes, new clusters, cancellations and destructions: no action on another's job, none lost or held in
    silence; and no fewer survive than of bare `sbatch` under the same crashes."""
    with ExitStack() as stack:
        worlds = [World(slurm_to_crash, 1)]
        for i in range(2, min(WORLDS, histories // 4) + 1):
            directory = tmp_path_factory.mktemp(f"world-{i}")
            started = LocalSlurm.start(directory, CONFIGURATION, credential_seconds=BUSY_SECONDS)
            worlds.append(World(stack.enter_context(started), i))
        seeds, lock = iter(range(histories)), threading.Lock()

        def play(world: World) -> None:
            world.renew()
            while True:
                with lock:
                    seed = next(seeds, None)
                if seed is None:
                    return
                History(world, seed).run()

        with ThreadPoolExecutor(len(worlds)) as pool:
            list(pool.map(play, worlds))
    counts = sum((world.counts for world in worlds), Counter[str]())
    acted = [line for world in worlds for line in world.acted]
    silent = [line for world in worlds for line in world.silent]
    assert (acted, silent) == ([], [])
    assert counts["histories"] == histories
    assert counts["compared"] >= counts["histories"]
    assert counts["compared, ran"] >= counts["compared, bare ran"]
