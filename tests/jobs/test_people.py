"""Several people on one Slurm: accounts, and what one may see of another's job."""

from __future__ import annotations

import copy
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.processes import wait_until
from sandbox.slurm import LocalSlurm, available
from sandbox.slurm_accounting import unavailable as accounting_unavailable
from tests.jobs.conftest import CONFIGURATION, fleet, make_cluster
from tests.jobs.test_slurm import log, script
from tests.support import need
from trainium_cdk.client.jobs.slurm.transport import LocalTransport
from trainium_cdk.jobs import SlurmBackend, SubmitError

OWNER = pwd.getpwuid(os.getuid()).pw_name


PEOPLE = copy.deepcopy(CONFIGURATION)
PEOPLE["Scheduling"]["SlurmSettings"] = {
    "Database": {"Uri": "db:3306"},
    "CustomSlurmSettings": [
        {"PriorityType": "priority/multifactor"},
        {"PriorityWeightFairshare": 100000},
        {"PriorityWeightQOS": 1000},
        {"PriorityCalcPeriod": 1},
        {"AccountingStorageEnforce": "associations,limits,qos"},
    ],
}


@pytest.fixture(scope="module")
def accounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    """Slurm with slurmdbd and MariaDB: accounts nlp and vision, with nearly all shares; QoS high, one (a job of each user at a time)."""
    reason = available() or accounting_unavailable()
    need(reason is None, str(reason))
    with LocalSlurm.start(tmp_path_factory.mktemp("accounting"), PEOPLE) as running:
        for line in (
            "add qos high priority=10", "add qos one maxjobsperuser=1",
            "add account nlp fairshare=1 qos=normal,high,one", "add account vision fairshare=100 qos=normal grptres=cpu=128",
            f"add user {OWNER} account=nlp", f"add user {OWNER} account=vision",
        ):  # fmt: skip
            done = running.run(["sacctmgr", "-i", *line.split()])
            assert done.returncode == 0, done.stdout + done.stderr
        yield running


@pytest.fixture
def accounts(accounted: LocalSlurm) -> SlurmBackend:
    return SlurmBackend(make_cluster(fleet(nodes=4)), LocalTransport(env=accounted.node_env(), interval=0.2))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"account": "vision", "qos": "high"}, "may not use account vision qos high"),
        ({"qos": "urgent"}, r"qos urgent.*Allowed are: .*nlp with qos high,normal,one"),
        ({"account": "speech"}, "may not use account speech"),
    ],
)
def test_an_account_must_be_the_users(accounts: SlurmBackend, fields: dict[str, str], message: str) -> None:
    with pytest.raises(SubmitError, match=message):
        accounts.submit(script("true", **fields), "account")
    assert "account" not in {one.id for one in accounts.list()}


def test_accounts_without_accounting(backend: SlurmBackend) -> None:
    """Slurm itself takes every name then."""
    with pytest.raises(SubmitError, match="this cluster keeps no accounts, so that --account and --qos mean nothing"):
        backend.submit(script("true", account="vision"))


def until(backend: SlurmBackend, id: str, wanted: str) -> None:
    ready = lambda: wanted in f"{(now := backend.status(id)).state} {now.current.reason}"  # noqa: E731
    assert wait_until(ready, 120, 0.2), backend.status(id)


def test_limits_of_accounts_and_of_qos(accounted: LocalSlurm, accounts: SlurmBackend) -> None:
    """slurmctld applies the limits of the database; what holds a job is told in a sentence, and what has run is in the database."""
    for fields, reason in (
        ({"account": "nlp", "qos": "one"}, "running jobs of each user (QOSMaxJobsPerUserLimit; sacctmgr show qos)"),
        ({"account": "vision"}, "CPUs together (AssocGrpCpuLimit; sacctmgr show assoc)"),
    ):
        first, second = (accounts.submit(script("sleep 600", **fields)) for _ in range(2))
        until(accounts, first.id, "RUNNING")
        until(accounts, second.id, reason)
        assert reason in next(job.current.reason for job in accounts.list() if job.id == second.id)
        accounts.cancel(first.id)
        until(accounts, second.id, "RUNNING")
        accounts.cancel(second.id)
    recorded = ["sacct", "-n", "-P", "-X", "-j", first.stages["train"], "-o", "Account,QOS,State"]
    assert wait_until(lambda: accounted.run(recorded).stdout.startswith("vision|normal|CANCELLED"), 60, 0.2)


def test_fair_share_decides_who_is_next(accounted: LocalSlurm, accounts: SlurmBackend) -> None:
    """Who has used less of a share goes first, in any order of submission; a QoS weighs as well."""
    full = accounts.submit(script("sleep 600", account="nlp", nodes=4))
    until(accounts, full.id, "RUNNING")
    accounted.kill_controller(save=True)  # it counts what runs each minute, and when it starts
    accounted.start_controller()
    waiting = {name: accounts.submit(script("true", account=name)).stages["train"] for name in ("nlp", "vision")}
    preferred = accounts.submit(script("true", account="nlp", qos="high")).stages["train"]

    def priorities() -> tuple[int, ...]:
        numbers = (waiting["nlp"], preferred, waiting["vision"])
        return tuple(int(accounted.run(["squeue", "-h", "-j", n, "-o", "%Q"]).stdout or 0) for n in numbers)

    assert wait_until(lambda: list(priorities()) == sorted(set(priorities())), 150, 0.2), priorities()
    accounts.cancel(full.id)


def test_nobody_sees_anothers_variables(slurm: LocalSlurm, backend: SlurmBackend, shared: Path) -> None:
    """They are in files of the user alone: not in Slurm's record of the job, and not in the command line of a process."""
    sent = backend.submit(script('echo "size ${#SECRET}"; sleep 30', env={"SECRET": "s3cr3t-v4lue"}))
    assert wait_until(lambda: "size 12" in log(backend, sent.id), 60, 0.2)
    number = sent.stages["train"]
    asked = [
        slurm.run(["scontrol", "-dd", "show", "job", number]).stdout, slurm.run(["squeue", "-a", "-o", "%all"]).stdout,
        slurm.run(["bash", "-c", "cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\\0' ' '"]).stdout,
    ]  # fmt: skip
    assert sent.id in asked[0]
    assert "sleep 30" in asked[2]
    assert all("s3cr3t-v4lue" not in text for text in asked)
    folder = shared / "trn/jobs" / sent.id
    assert folder.stat().st_mode & 0o077 == 0
    backend.cancel(sent.id)
