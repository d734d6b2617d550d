"""A job is never confused with another one: Slurm assigns numbers again after a crash of its controller, and on a new cluster
on the same file system."""

from __future__ import annotations

import os
import shlex
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import CONFIGURATION, with_program
from tests.support import begins_again, need_slurm, swept, until
from tests.trust.histories import History, World
from trainium_cdk.client.operations.teardown.occupants import end
from trainium_cdk.jobs import Script, SlurmBackend, SubmitError

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
    for _ in range(5):
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
