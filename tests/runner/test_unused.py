"""Environments that `prepare` removes, and those that stay, where there is no Slurm."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

import pytest

from trainium_cdk.runner.prepare import Here, packages
from trainium_cdk.runner.prepare.packages import mark_used, remove_unused

DAY = 86_400.0
NAME = "0123456789ab"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """A file system with one environment, which was used 31 days ago."""
    monkeypatch.setenv("PATH", str(tmp_path))
    trn = tmp_path / "trn"
    (trn / "done").mkdir(parents=True)
    make(trn, NAME)
    return Here(trn / "jobs/now", trn, "", "python3", None, {})


def make(trn: Path, name: str, days: float = 31) -> None:
    folder = trn / "environments" / f".{name}.x"
    folder.mkdir(parents=True)
    (folder / "trn-environment.json").write_text(json.dumps({"megabytes": 7}))
    folder.with_name(name).symlink_to(folder.name)
    at = time.time() - days * DAY
    os.utime(folder / "trn-environment.json", (at, at))


def job(here: Here, id: str, *, trained: float | None, log: str = "logs/train.0.log") -> Path:
    """A job that names the environment, and wrote its log so many days ago. None: it has not begun to train."""
    folder = here.trn / "jobs" / id
    (folder / log).parent.mkdir(parents=True)
    (folder / "environment").write_text(f"{NAME}\n")
    if trained is not None:
        (folder / log).touch()
        at = time.time() - trained * DAY
        os.utime(folder / log, (at, at))
    return folder


def there(here: Here) -> list[str]:
    return sorted(one.name for one in (here.trn / "environments").iterdir())


def test_what_no_job_has_used_is_removed(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    make(here.trn, "f" * 12, days=29)
    (here.trn / "environments/of-a-person").mkdir()
    job(here, "old", trained=31)
    remove_unused(here)
    assert there(here) == [f".{'f' * 12}.x", "f" * 12, "of-a-person"]
    assert capsys.readouterr().err == f"trn: removed the packages {NAME} (7 MB), which no job has used for 30 days\n"


@pytest.mark.parametrize(
    ("trained", "log"), [(None, "logs/train.0.log"), (29, "logs/train.0.log"), (29, "3/logs/train.0.log")]
)
def test_what_a_waiting_or_running_job_uses_stays(trained: float | None, log: str, here: Here) -> None:
    job(here, "lately", trained=trained, log=log)
    job(here, "old", trained=31)
    remove_unused(here)
    assert there(here) == [f".{NAME}.x", NAME]


def test_a_cancelled_job_does_not_wait(here: Here) -> None:
    (job(here, "cancelled", trained=None) / "cancelled").touch()
    remove_unused(here)
    assert there(here) == []


def test_what_a_job_makes_now_stays(here: Here) -> None:
    with (here.trn / f"done/environment-{NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_unused(here)
        assert there(here) == [f".{NAME}.x", NAME]


def test_what_a_job_finds_meanwhile_comes_back(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks after the jobs are known, and before the name is gone."""
    real = packages._remove

    def remove(*given: object) -> None:
        mark_used(here.trn / "environments" / NAME)
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(packages, "_remove", remove)
    remove_unused(here)
    assert there(here) == [f".{NAME}.x", NAME]


def test_where_slurm_does_not_answer_all_stay(here: Here, tmp_path: Path) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n")
    squeue.chmod(0o755)
    remove_unused(here)
    assert there(here) == [f".{NAME}.x", NAME]
