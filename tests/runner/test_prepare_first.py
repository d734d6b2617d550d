"""A job that fetches first is two jobs of a real Slurm: the second waits for the first, also where one of them, a node or the controller dies."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import slurm
from tests.runner.asking import Head, job, paused
from tests.runner.test_submit import wait
from tests.support import begins_again, swept, until
from trainium_cdk.runner import records
from trainium_cdk.runner.records import State
from trainium_cdk.runner.requests import SubmitJobs

__all__ = ["paused", "slurm"]


@pytest.fixture(scope="module")
def head(slurm: LocalSlurm) -> Head:
    return Head(slurm)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is fetched in a tenth of a second."""
    place = tmp_path_factory.mktemp("repository")
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        own = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
        subprocess.run(["git", "-C", str(place), *own, *words], check=True)
    return place


def pausing(folder: Path) -> dict[str, str]:
    """A job's variables with which git waits for a file `go`."""
    folder.mkdir()
    git = f'#!/bin/sh\nuntil [ -e {folder}/go ]; do sleep 0.1; done\nexec {shutil.which("git")} "$@"\n'
    (folder / "git").write_text(git)
    (folder / "git").chmod(0o755)
    return {"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin"}


def names(id: str) -> list[str]:
    return [f"COMPLETED {id}:prepare", f"COMPLETED {id}:train"]


@pytest.mark.parametrize("precompile", swept([False, True], True))
def test_what_is_fetched_at_once_is_fetched_first(head: Head, repository: Path, precompile: bool) -> None:
    id = f"quick-{int(precompile)}"
    made = job(id, f"test -d ../../../src/{id}-HEAD", fetches=repository, precompile=precompile)
    [sent] = head.submit(made)
    assert len(set(sent.stages.values())) == 2
    wait(head, id, *["COMPLETED"] * (2 + precompile))
    assert head.rows(id) == names(id)
    assert head.submit(made) == [replace(sent, existing=True)]


def test_what_cannot_be_fetched_ends_the_job(head: Head, tmp_path: Path) -> None:
    made = job("fails-1", fetches=tmp_path / "none", precompile=True)
    [sent] = head.submit(made)
    wait(head, "fails-1", "FAILED", "CANCELLED", "CANCELLED")
    reasons = [one.reason for one in head.status("fails-1").stages]
    assert reasons == [
        "exit code 75",
        "did not run: prepare did not complete",
        "did not run: precompile did not complete",
    ]
    assert head.submit(made) == [replace(sent, existing=True)], "failed: nothing is submitted"


def test_a_node_that_dies_while_it_fetches(head: Head, slurm: LocalSlurm, repository: Path, tmp_path: Path) -> None:
    """Slurm starts `prepare` again, and the job goes on waiting for it."""
    made = job("dies-1", fetches=repository, variables=pausing(tmp_path / "bin"))
    [sent] = head.submit(made)
    number = sent.stages["prepare"]
    assert until(lambda: "fetching" in (head.jobs / "dies-1/logs/prepare.log").read_text(), 60)
    node = head.status("dies-1").stages[0].nodes
    slurm.kill_node(node)
    slurm.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=hardware"])
    slurm.replace_node(node)
    assert head.states("dies-1") == ["PENDING", "PENDING"]
    (tmp_path / "bin/go").touch()
    assert begins_again(slurm, number, lambda: head.states("dies-1")[0] == "COMPLETED"), head.status("dies-1")
    wait(head, "dies-1", "COMPLETED", "COMPLETED")
    assert head.rows("dies-1") == names("dies-1")


def test_slurm_has_forgotten_what_fetched(head: Head, slurm: LocalSlurm, repository: Path, tmp_path: Path) -> None:
    """As after MinJobAge: what its record says counts, and the job depends on no number."""
    made = job("forgot-1", 'until [ -e "$1" ]; do sleep 0.1; done', str(tmp_path / "go"), fetches=repository)
    [sent] = head.submit(made)
    assert until(lambda: head.states("forgot-1") == ["COMPLETED", "RUNNING"], 60), head.status("forgot-1")
    for number in sent.stages.values():  # Slurm's rows are of others now
        slurm.run(["scontrol", "update", f"JobId={number}", "JobName=other"])
    slurm.run(["scancel", "--name=other"])
    env = head.having(tmp_path, "sbatch", f'echo "$@" > {tmp_path}/words')
    [again] = head.submit(made, env=env)
    assert (again.existing, again.resubmitted) == (True, ("train",))
    assert again.stages["prepare"] == sent.stages["prepare"]
    assert "dependency" not in (tmp_path / "words").read_text()
    assert head.submit(made) == [replace(again, resubmitted=())]
    (tmp_path / "go").touch()
    wait(head, "forgot-1", "COMPLETED", "COMPLETED")


def test_slurm_has_forgotten_that_what_fetched_has_completed(head: Head, slurm: LocalSlurm, paused: None) -> None:
    """It cannot start it again, and so cancels the job."""
    made = job("after-1", fetches="/none")
    [sent] = head.submit(made)
    first = sent.stages["prepare"]
    records.write_state(head.jobs / "after-1", "prepare", State("ended", first, code=0, at=time.time(), nodes="n"))
    slurm.run(["scancel", first])
    assert until(lambda: head.states("after-1") == ["COMPLETED", "LOST"], 60), head.status("after-1")
    assert head.submit(made)[0].resubmitted == ("train",)
    assert head.states("after-1") == ["COMPLETED", "PENDING"]
    head.cancel("after-1")


@pytest.mark.parametrize("dies_at", swept(["before sbatch 1", "sbatch 1", "before sbatch 2", "sbatch 2"], "sbatch 1"))
def test_an_interrupted_submission_is_completed_by_the_next(
    head: Head, repository: Path, tmp_path: Path, dies_at: str
) -> None:
    """The runner is killed, without a chance to clean up, just before or after it reaches Slurm."""
    when, _, count = dies_at.rpartition(" ")
    runs, ends = ("", "exit 1") if when.startswith("before") else ('"$real" "$@" > /dev/null; ', "sleep 1")
    dying = head.having(tmp_path, "sbatch", f"""echo x >> {tmp_path}/calls
if [ "$(wc -l < {tmp_path}/calls)" = {count} ]; then {runs}kill -9 "$PPID"; {ends}; fi""")  # fmt: skip
    made = job(f"dying-{dies_at.replace(' ', '-')}", fetches=repository)
    assert head.told(SubmitJobs((made,)), env=dying) is None
    assert not head.submit(made)[0].existing
    wait(head, made.id, "COMPLETED", "COMPLETED")
    assert head.rows(made.id) == names(made.id)


@pytest.fixture
def crash(head: Head, slurm: LocalSlurm, tmp_path: Path) -> Callable[..., Any]:
    """Submit a job whose controller is killed before, between or after the two calls of sbatch, and has forgotten all that it was told then."""
    state, kept = slurm.directory / "state", slurm.directory / "kept"

    def submit(made: Any, when: str) -> Any:
        call, answered = {"before": (1, ""), "between": (2, ""), "after": (2, '"$real" "$@" > "$0.said"; ')}[when]
        script = f"""echo x >> {tmp_path}/calls
if [ "$(wc -l < {tmp_path}/calls)" = {call} ]; then {answered}: > {tmp_path}/called
until [ -e {tmp_path}/restarted ]; do sleep 0.1; done
[ ! -e "$0.said" ] || {{ cat "$0.said"; exit; }}; fi"""
        env, found = head.having(tmp_path, "sbatch", script), list[Any]()
        slurm.kill_controller(save=True)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(state, kept)
        slurm.start_controller()
        asks = threading.Thread(target=lambda: found.extend(head.submit(made, env=env)))
        asks.start()
        assert until((tmp_path / "called").exists, 60)
        slurm.kill_controller()
        shutil.rmtree(state)
        kept.rename(state)
        slurm.start_controller()
        (tmp_path / "restarted").touch()
        asks.join()
        return found[0]

    return submit


@pytest.mark.parametrize("when", swept(["before", "between", "after"], "between"))
def test_a_controller_that_is_killed_around_the_two_calls(
    head: Head, slurm: LocalSlurm, repository: Path, crash: Callable[..., Any], when: str
) -> None:
    """What it has forgotten is lost, and the same request starts it once: never does the job run before what it waits for."""
    id = f"crash-{when}"
    made = job(id, f"test -d ../../../src/{id}-HEAD && echo ran", fetches=repository, precompile=True)
    sent = crash(made, when)
    if when == "between":
        # the controller gives the number of what it has forgotten to the second one, which waits for it
        assert sent.error.kind == "later", sent
        assert "Job dependency problem" in sent.error.message
    else:
        assert sent.error is None, sent

    def once_more() -> bool:
        [again] = head.submit(made)
        assert again.error is None, again
        return set(head.states(id)) == {"COMPLETED"}

    assert until(once_more, 240), head.status(id)
    assert "ran" in (head.jobs / id / "logs/train.log").read_text()
    ran = re.findall(r"^trn: train: ", (head.jobs / id / "logs/train.log").read_text(), re.MULTILINE)
    assert len(ran) == 1, "once"
