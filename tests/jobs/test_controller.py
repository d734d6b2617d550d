"""A controller that is being restarted, which takes a minute: commands wait for it, and none tells less than there is. On a real Slurm."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.processes import wait_until
from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster, with_program
from tests.jobs.test_slurm import script
from trainium_cdk.client.jobs import backend
from trainium_cdk.client.jobs.slurm.transport import Result
from trainium_cdk.errors import SubmitError, TransportError
from trainium_cdk.jobs import LocalTransport, SlurmBackend

AWAY = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
ATTEMPT_SECONDS = 20.0
"""For which each command of Slurm waits for the controller."""


class Restarting(LocalTransport):
    """A head node, and a clock, of which the controller answers from some second on.

    Attributes:
        away: variables of a shell in which Slurm's commands fail.
    """

    def __init__(self, slurm: LocalSlurm, folder: Path, back: float):
        super().__init__(env=slurm.node_env(), interval=0.2)
        for name in ("sbatch", "scancel", "scontrol", "sinfo", "squeue"):
            self.away = with_program(slurm, folder, name, AWAY)
        self.now, self.back = 0.0, back

    def ask(self, *args: Any, **options: Any) -> Result:
        if self.now >= self.back:
            return super().ask(*args, **options)
        self.now += ATTEMPT_SECONDS
        return self.away.ask(*args, **options)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def job(slurm: LocalSlurm, backend: SlurmBackend) -> Iterator[str]:
    """One that runs."""
    sent = backend.submit(script("sleep 600"))
    assert wait_until(lambda: backend.status(sent.id).state == "RUNNING", 120)
    yield sent.id
    backend.cancel(sent.id)
    slurm.run(["scancel", f"--user={slurm.node_env()['USER']}"])


def restarting(
    slurm: LocalSlurm, folder: Path, monkeypatch: pytest.MonkeyPatch, back: float
) -> tuple[SlurmBackend, Restarting]:
    transport = Restarting(slurm, folder, back)
    monkeypatch.setattr(backend, "time", types.SimpleNamespace(monotonic=lambda: transport.now, sleep=transport.sleep))
    return SlurmBackend(make_cluster(fleet(nodes=4)), transport, sleep=transport.sleep), transport


COMMANDS: dict[str, Callable[[SlurmBackend, str], object]] = {
    "status": lambda jobs, id: jobs.status(id).state == "RUNNING",
    "list": lambda jobs, id: id in [one.id for one in jobs.list()],
    "active": lambda jobs, id: id in [one.id for one in jobs.active()],
    "others": lambda jobs, _: jobs.others() == (),
    "nodes": lambda jobs, id: f"{id}:train" in [one.job for one in jobs.nodes()],
    "logs": lambda jobs, id: b"trn: train: Slurm job" in b"".join(one.data for one in jobs.logs(id)),
    "the last lines": lambda jobs, id: [*jobs.logs(id, tail=1)],
    "cancel": lambda jobs, id: jobs.cancel(id).state == "CANCELLED",
    "submit": lambda jobs, _: not jobs.submit(script("true")).existing,
    "submit what compiles": lambda jobs, _: len(jobs.submit(script("true", precompile=True)).stages) == 2,
    "submit again": lambda jobs, id: jobs.submit(script("sleep 600"), id.removeprefix("run-")).existing,
    "submit several": lambda jobs, _: len(jobs.submit_many([script("true"), script("false")])) == 2,
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_waits_for_a_controller_that_is_being_restarted(
    slurm: LocalSlurm, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    jobs, transport = restarting(slurm, tmp_path, monkeypatch, back=60)
    assert COMMANDS[command](jobs, job)
    assert transport.now >= transport.back


def test_a_controller_that_stays_away_is_reported(
    slurm: LocalSlurm, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, transport = restarting(slurm, tmp_path, monkeypatch, back=600)
    with pytest.raises(TransportError, match=r"Slurm on trn-slurm does not answer: .*Unable to contact"):
        jobs.status(job)
    assert backend.ONE_QUESTION < transport.now < 2 * backend.CONTROLLER


def test_nodes_are_not_without_a_job_where_the_queue_is_not_told(slurm: LocalSlurm, job: str, tmp_path: Path) -> None:
    """`trn nodes` would show them as idle."""
    fails_once = f"if [ ! -e {tmp_path}/failed ]; then : > {tmp_path}/failed; {AWAY}; fi"
    jobs = SlurmBackend(make_cluster(fleet(nodes=4)), with_program(slurm, tmp_path, "squeue", fails_once))
    assert [node.job for node in jobs.nodes() if node.job] == [f"{job}:train"]
    assert (tmp_path / "failed").exists()


def test_the_users_own_defaults_hide_nothing(slurm: LocalSlurm, job: str) -> None:
    own = {"SQUEUE_USERS": "daemon", "SQUEUE_PARTITION": "none", "SLURM_TIME_FORMAT": "relative"}
    cluster, transport = make_cluster(fleet(nodes=4)), LocalTransport(env={**slurm.node_env(), **own})
    nodes = SlurmBackend(cluster, transport).nodes()
    assert [node.job for node in nodes if node.job] == [f"{job}:train"]
    assert all(node.booted for node in nodes)
    stage = SlurmBackend(cluster, transport).status(job).current
    assert (stage.state, stage.reason, bool(stage.nodes), bool(stage.started)) == ("RUNNING", "", True, True)


def test_a_cluster_keeps_accounts_although_its_controller_does_not_answer(slurm: LocalSlurm, tmp_path: Path) -> None:
    """Only what it answers tells that there are none."""
    fails_once = f'if [ "$*" = "show config" ] && [ ! -e {tmp_path}/failed ]; then : > {tmp_path}/failed; {AWAY}; fi'
    pauses: list[float] = []
    jobs = SlurmBackend(
        make_cluster(fleet(nodes=4)), with_program(slurm, tmp_path, "scontrol", fails_once), sleep=pauses.append
    )
    with pytest.raises(SubmitError, match="this cluster keeps no accounts"):
        jobs.submit(script("true", account="vision"))
    assert len(pauses) == 1, "the first answer was none"
