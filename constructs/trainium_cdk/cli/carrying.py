"""What goes with a job from one cluster to another, through this machine. Each step may be broken off, and is done again: what has arrived is
not copied again."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainium_cdk.cli.copy import told
from trainium_cdk.cli.output import say
from trainium_cdk.cli.progress import Progress
from trainium_cdk.jobs import checkpoints, quote
from trainium_cdk.jobs.kinds import kinds
from trainium_cdk.jobs.patience import FOLLOWING, Patience

if TYPE_CHECKING:
    from trainium_cdk.jobs import Backend

T = TypeVar("T")


def patiently(request: Callable[[], T]) -> T:
    """The response to a request, which is sent again while the cluster does not respond, for 15 minutes."""
    return Patience(FOLLOWING).ask(request)


def carry(id: str, source: Backend[Any], target: Backend[Any], folders: Sequence[str], here: Path) -> str:
    """Copy what a job that has ended needs to go on elsewhere.

    Args:
        folders: on the shared file system, of both clusters.
        here: folder of this machine for what is on its way, of this job and source alone.

    Returns:
        The folder on the target's shared file system with the job's newest checkpoint, for `--resume-from`; empty if it has none.
    """
    for number, folder in enumerate(folders):
        there = f"if [ -e {quote.shared(folder)} ]; then echo trn-there; fi"
        if "trn-there" not in patiently(lambda: source.run_shared(there)).splitlines():  # noqa: B023  called at once
            say(f"{folder} does not exist there: nothing of it goes with the job")
            continue
        _download(source, folder, here / str(number))
        _upload(target, here / str(number), folder)
    newest, directory = _newest(source, id)
    if not newest:
        return ""
    cluster = target.cluster
    into, on_the_way = f"{cluster.shared_dir}/{cluster.folder}/moved/{id}", here / "newest"
    if newest == directory:
        _download(source, directory, on_the_way)
    else:
        on_the_way.mkdir(parents=True, exist_ok=True)
        _download(source, newest, on_the_way / posixpath.basename(newest))
        if patiently(lambda: source.run_shared(checkpoints.described(directory))).strip():
            _download(source, f"{directory}/{checkpoints.DESCRIPTION}", on_the_way / checkpoints.DESCRIPTION)
    _upload(target, on_the_way, into)
    return into


def resumes_from(jobs: Backend[Any], id: str) -> str:
    """The --resume-from with which a job was submitted; empty without one."""
    return str(patiently(lambda: jobs.settings(id)).get("resume_from") or "")


def _newest(jobs: Backend[Any], id: str) -> tuple[str, str]:
    """A job's newest checkpoint that was written to its end, and its directory: its own, else what it was to go on from itself; empty if there
    is none, or its kind goes on from none."""
    status = patiently(lambda: jobs.status(id))
    kind = kinds().get(status.kind)
    made = kind.CHECKPOINTS if kind else None
    if made is None or made.refuses:
        say(f"{status.kind} goes on from no checkpoint{f': {made.refuses}' if made else ''}. It begins again")
        return "", ""
    before = resumes_from(jobs, id)
    if before and not before.startswith("/"):
        before = patiently(lambda: jobs.status(before)).checkpoints
    for directory in filter(None, (status.checkpoints, before)):
        script = checkpoints.search(made, directory)
        printed = patiently(lambda: jobs.run_shared(script, image=None))  # noqa: B023  called at once
        for line in printed.splitlines():
            if line.startswith(checkpoints.NEWEST):
                return line.removeprefix(checkpoints.NEWEST), directory
    return "", ""


def _download(jobs: Backend[Any], there: str, here: Path) -> None:
    patiently(lambda: _copy(jobs, here, there, down=True))


def _upload(jobs: Backend[Any], here: Path, there: str) -> None:
    patiently(lambda: _copy(jobs, here, there, down=False))


def _copy(jobs: Backend[Any], here: Path, there: str, *, down: bool) -> None:
    from trainium_cdk.jobs.copy import Copy

    bar = Progress("copying", unit="bytes")
    copy = Copy(jobs, progress=bar.add)
    here.parent.mkdir(parents=True, exist_ok=True)
    plan = copy.plan_download(there, here) if down else copy.plan_upload(here, there)
    told(plan)
    with bar(plan.todo):
        (copy.download if down else copy.upload)(plan)
