"""A Slurm that hides the jobs of others (PrivateData): commands on one's own jobs work, and those that decide by the jobs of others say so."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from sandbox import LocalAws
from sandbox.processes import wait_until
from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import CONFIGURATION
from tests.jobs.test_slurm import log, script
from tests.jobs.test_users import As, backend_of, slurm_of_users
from trainium_cdk.client.cli import destroy
from trainium_cdk.client.jobs.slurm import fleet
from trainium_cdk.client.operations.teardown.occupants import occupants
from trainium_cdk.jobs import JobError, UnknownJob

__all__ = ["backend_of"]


@pytest.fixture(scope="module")
def slurm(local_aws: LocalAws) -> Iterator[LocalSlurm]:
    config = copy.deepcopy(CONFIGURATION)
    config["Scheduling"]["SlurmSettings"] = {"CustomSlurmSettings": [{"PrivateData": "jobs,usage,cloud"}]}
    with slurm_of_users(local_aws, config) as running:
        yield running


def test_each_sees_their_own_jobs_and_no_command_takes_that_for_all(
    slurm: LocalSlurm, backend_of: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = backend_of("alice"), backend_of("bob")
    hers = alice.submit(script("echo begun; sleep 300", user="alice"), "alice")
    assert wait_until(lambda: "begun" in log(alice, hers.id), 60, 0.2)
    assert slurm.run(["squeue", "-h", "-o", "%u"]).stdout == "alice\n", "root sees all"

    assert [job.id for job in alice.list()] == [hers.id]
    assert alice.status(hers.id).state == "RUNNING"
    assert {node.job for node in alice.nodes()} >= {f"{hers.id}:train"}
    assert bob.list() == ()
    assert [node.job for node in bob.nodes() if node.job] == []
    with pytest.raises(UnknownJob):
        bob.status(hers.id)

    hidden = r"Slurm shows each user only their own jobs here \(PrivateData=jobs\)"
    for ask in (bob.active, bob.others, lambda: occupants(bob, "bob"), lambda: fleet.change(bob, "STOPPED")):
        with pytest.raises(JobError, match=hidden):
            ask()
    monkeypatch.setattr("trainium_cdk.client.jobs.connection.connect", lambda *_, **__: bob)
    busy = destroy._busy(type("Owner", (), {"stack": "S", "cluster": "c"})(), None, "cancel", "bob")
    assert busy.unknown, "a `y` is not enough"
    assert alice.cancel(hers.id).state == "CANCELLED"
