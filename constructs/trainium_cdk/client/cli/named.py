"""Jobs as users name them on the command line, and times as they read them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from trainium_cdk.client.cli.output import log
from trainium_cdk.errors import JobError, UnknownJob, meant_one_of

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.backend import Backend
    from trainium_cdk.client.jobs.status import JobStatus, Stage

LATEST = "latest"
_WHOLE = re.compile(r".+-\d{8}-[0-9a-f]{6}")
"""An id with a token that `trn` made: no other id begins with it."""
_MOST = 1000
_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def is_full_id(given: str) -> bool:
    """Return whether the text is a complete id, with a token that `trn` made. It is then no prefix of another id."""
    return _WHOLE.fullmatch(given) is not None


def is_of_job(given: str) -> bool:
    """Return whether the text can only name a job. No stack has such a name."""
    return given == LATEST or is_full_id(given) or ("/" in given and not given.startswith("arn:"))


def resolve_id(jobs: Backend, given: str) -> str:
    """The id of a job: by its id, by its first characters, if no other one of the newest 1000 jobs has them, or by `latest`.

    Raises:
        JobError: several jobs begin like that.
        UnknownJob: none does; the message has ids that are similar.
    """
    job, slash, member = given.partition("/")
    if slash:
        return f"{resolve_id(jobs, job)}/{member}"
    unknown = UnknownJob("there are no jobs on this cluster")
    if given != LATEST:
        if is_full_id(given):
            return given
        try:
            return jobs.status(given).id
        except UnknownJob as e:
            unknown = e
    return _by_beginning(jobs, given, unknown)


def as_given(jobs: Backend, given: str) -> str:
    """Return the id that a method of the backend takes, for a job named as in `resolve_id`. On Slurm each request resolves the text itself."""
    return given if jobs.names_jobs else resolve_id(jobs, given)


def full_id(jobs: Backend, given: str) -> str:
    """The id of a job that was asked for, for what is printed."""
    return jobs.full_id(given) if jobs.names_jobs else given


def status(jobs: Backend, given: str) -> JobStatus:
    """The status of a job, named as for `resolve_id`, with one request where the id itself is given. Raises as `resolve_id`."""
    if jobs.names_jobs or "/" in given or given == LATEST or is_full_id(given):
        return jobs.status(as_given(jobs, given), progress=True)
    try:
        return jobs.status(given, progress=True)
    except UnknownJob as e:
        return jobs.status(_by_beginning(jobs, given, e), progress=True)


def _by_beginning(jobs: Backend, given: str, unknown: UnknownJob) -> str:
    ids = jobs.ids(1 if given == LATEST else _MOST)
    found = list(ids) if given == LATEST else [id for id in ids if given and id.startswith(given)]
    if len(found) > 1:
        more = ", ..." if len(found) > 5 else ""
        raise JobError(f"{len(found)} jobs begin with {given}: {', '.join(found[:5])}{more}. Give more of the id")
    if not found:
        from trainium_cdk.runner.head.jobs import similar_ids

        raise UnknownJob(f"{unknown}{meant_one_of(similar_ids(given, ids))}") from None
    log(f"{given} is {found[0]}")
    return found[0]


def did_you_mean(given: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """The end of a sentence, with a question that has similar names; empty if there are none. See `end_of_sentence`."""
    import difflib

    return meant_one_of(difflib.get_close_matches(given, list(names), n=2, cutoff=cutoff))


def regions(given: str, known: Iterable[str]) -> list[str]:
    """The regions of --regions: names with commas between them, or `all` that are known.

    Raises:
        typer.BadParameter: it is empty, or names a region that is not known.
    """
    every = sorted(known)
    if given == "all":
        return every
    wanted = [name.strip() for name in given.split(",") if name.strip()]
    if not wanted:
        raise typer.BadParameter("it is empty. Give regions with commas between them, or all", param_hint="--regions")
    if unknown := next((name for name in wanted if name not in every), None):
        hint = end_of_sentence(did_you_mean(unknown, every))
        raise typer.BadParameter(
            f"{unknown[:80]!r} is not a region of the catalogue{hint} Use all, or {', '.join(every)}",
            param_hint="--regions",
        )
    return list(dict.fromkeys(wanted))


def end_of_sentence(hint: str) -> str:
    """A full stop where `did_you_mean` is empty.

    >>> end_of_sentence(""), end_of_sentence(". Did you mean a?")
    ('.', '. Did you mean a?')
    """
    return hint or "."


def unknown(what: str, given: str, names: Iterable[str]) -> str:
    """A message: there is nothing of a name, what is similar, and what there is.

    >>> unknown("the catalogue has no instance type", "trn1.2", ["trn1.2xlarge"])
    "the catalogue has no instance type 'trn1.2'. Did you mean trn1.2xlarge? Use trn1.2xlarge"
    """
    names = list(names)
    return f"{what} {given[:80]!r}{did_you_mean(given[:80], names) or '.'} Use {', '.join(names)}"


def length(seconds: float | None) -> str:
    """A duration in its two largest units; empty for None.

    >>> length(59), length(3 * 3600 + 120), length(90_061), length(None)
    ('59s', '3h 2m', '1d 1h', '')
    """
    if seconds is None:
        return ""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        if left >= size or (unit == "s" and not parts):
            parts.append(f"{left // size}{unit}")
            left %= size
    return " ".join(parts[:2])


def age(job: JobStatus) -> str:
    """Return the time since the job was submitted; empty if it is not known."""
    return length(time.time() - job.submitted) if job.submitted else ""


def duration(job: JobStatus) -> str:
    """Return the time from a job's start to the end of its last stage, or to now; empty if it is not known."""
    begun = [stage.started for stage in job.stages if stage.started]
    if not begun or (job.done and any(stage.started and not stage.ended for stage in job.stages)):
        return ""
    return length((max(stage.ended or 0 for stage in job.stages) if job.done else time.time()) - min(begun))


def took(stage: Stage, now: float) -> str:
    """Return the duration of a stage, up to now while it runs; empty if it is not known."""
    from trainium_cdk.client.jobs.status import ACTIVE

    end = now if stage.state in ACTIVE else stage.ended
    return length(end - stage.started) if stage.started and end else ""


def clock(seconds: float | None) -> str:
    """A time since 1970 in this machine's zone; empty if there is none."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(seconds)) if seconds else ""
