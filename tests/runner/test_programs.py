"""What Slurm's programs get from our environment, and what is left of what they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainium_cdk.runner import slurm
from trainium_cdk.runner.errors import Later
from trainium_cdk.runner.head.submit import _send

OF_A_JOB = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK")
OWN_DEFAULTS = ("SBATCH_PARTITION", "SQUEUE_USERS", "SLURM_TIME_FORMAT")
OF_THE_CLUSTER = ("SLURM_CONF", "SLURM_JWT", "HOME", "HF_TOKEN")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose programs come first."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def program(place: Path, text: str) -> None:
    (place / "sbatch").write_text(f"#!/bin/sh\n{text}\n")
    (place / "sbatch").chmod(0o755)


def test_variables_of_another_job_reach_no_job(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm passes SLURM_ARRAY_JOB_ID and others on where it sets none: the job would take itself for another one."""
    for name in (*OF_A_JOB, *OWN_DEFAULTS, *OF_THE_CLUSTER):
        monkeypatch.setenv(name, "7")
    program(programs, "/usr/bin/env -0")
    given = dict(one.partition("=")[::2] for one in slurm.run("sbatch").split("\0") if one)
    assert not {*OF_A_JOB, *OWN_DEFAULTS} & set(given)
    assert set(OF_THE_CLUSTER) <= set(given)
    assert set(slurm.environment()) >= set(OF_THE_CLUSTER)


def test_a_program_that_is_ended_has_said_why(programs: Path) -> None:
    program(programs, "echo 'sbatch: error: Slurm job queue full, sleeping and retrying' >&2\nexec sleep 60")
    with pytest.raises(Later, match=r"^sbatch: error: Slurm job queue full, .* sbatch timed out after 3 s$"):
        slurm.run("sbatch", seconds=3)


@pytest.mark.parametrize(
    "said", ["temporarily unable to accept job, sleeping and retrying", "job queue full, sleeping"]
)
def test_a_full_queue_is_named(said: str, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs, f"echo 'sbatch: error: Slurm {said}' >&2\necho 'Resource temporarily unavailable' >&2\nexit 1")
    monkeypatch.setattr(slurm, "sbatch_options", lambda *_, **__: [])
    monkeypatch.setattr(slurm, "batch_script", lambda *_: "")
    with pytest.raises(Later, match="Slurm's queue is full: wait until jobs have ended, or raise MaxJobCount"):
        _send(None, programs, "", [], "", None)  # type: ignore[arg-type]
