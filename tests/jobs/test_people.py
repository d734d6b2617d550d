"""Several people on one Slurm: accounts, and what one may see of another's job."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster, with_program
from tests.jobs.test_slurm import log, script
from trainium_cdk.jobs import SlurmBackend, SubmitError
from trainium_cdk.jobs.slurm.transport import LocalTransport


@pytest.mark.parametrize(
    ("rows", "fields", "message"),
    [
        (None, {"account": "vision"}, "this cluster keeps no accounts, so that --account and --qos mean nothing"),
        ("nlp|normal,high\nvision|normal", {"account": "vision", "qos": "high"}, "may not use account vision qos high"),
        (
            "nlp|normal,high\nvision|normal",
            {"qos": "urgent"},
            "qos urgent.*nlp with qos normal,high;vision with qos normal",
        ),
        ("", {"account": "vision"}, "Allowed are: nothing"),
        ("nlp|normal,high\nvision|normal", {"account": "nlp", "qos": "high"}, ""),
        ("nlp|normal,high\nvision|normal", {"account": "vision"}, ""),
    ],
)
def test_an_account_must_be_the_users(
    slurm: LocalSlurm, tmp_path: Path, rows: str | None, fields: dict[str, str], message: str
) -> None:
    """Without a database, a real Slurm takes every name. The answers of one with a database are sacctmgr's documented columns."""
    if rows is not None:
        (tmp_path / "rows").write_text(f"{rows}\n" if rows else "")
        with_program(slurm, tmp_path, "sacctmgr", f"exec cat {tmp_path}/rows")
        config = (
            'if [ "$*" = "show config" ]; then echo "AccountingStorageType   = accounting_storage/slurmdbd"; exit; fi'
        )
        backend = SlurmBackend(make_cluster(fleet(nodes=4)), with_program(slurm, tmp_path, "scontrol", config))
    else:
        backend = SlurmBackend(make_cluster(fleet(nodes=4)), LocalTransport(env=slurm.node_env()))
    job = script("true", **fields)
    if message:
        with pytest.raises(SubmitError, match=message):
            backend.submit(job, "account")
        assert "account" not in {one.id for one in backend.list()}
        return
    sent = backend.submit(job)
    shown = slurm.run(["scontrol", "show", "job", sent.stages["train"]]).stdout
    assert f"Account={fields['account']}" in shown
    asked = backend.render(job).files["train.sbatch"].decode()  # a Slurm without accounting shows no QoS
    assert all(f"#SBATCH --{name}={value}\n" in asked for name, value in fields.items())
    backend.cancel(sent.id)


def test_nobody_sees_anothers_variables(slurm: LocalSlurm, backend: SlurmBackend, shared: Path) -> None:
    """They are in files of the user alone: not in Slurm's record of the job, and not in the command line of a process."""
    sent = backend.submit(script('echo "size ${#SECRET}"; sleep 30', env={"SECRET": "s3cr3t-v4lue"}))
    end = time.monotonic() + 60
    while "size 12" not in log(backend, sent.id):
        assert time.monotonic() < end
        time.sleep(0.2)
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
