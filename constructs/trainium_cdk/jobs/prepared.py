"""The environments that `prepare` has made for jobs' packages, on a cluster of any engine: which there are, and removing them.
(What is in one: `packages`; how it is made: `runner.prepare.packages`.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from trainium_cdk.engines import EKS
from trainium_cdk.errors import JobError, TrnError
from trainium_cdk.jobs.connection import connect
from trainium_cdk.runner import requests

if TYPE_CHECKING:
    from trainium_cdk.jobs.backend import Backend
    from trainium_cdk.jobs.job_spec import Submission

UNUSED = "unused"


@dataclass(frozen=True)
class Prepared:
    """An environment on a cluster's shared file system.

    Attributes:
        name: of its folder in `trn/environments`.
        kind: of the job that it was made for.
        base: what it adds packages to: an image, or the path of the cluster's environment.
        python: version.
        requirements: as pip took them; of a requirements file its lines.
        megabytes: disk space.
        seconds: for which it was made.
        made: when, ISO 8601.
        jobs: ids of the jobs that run or wait, and use it.
    """

    name: str
    kind: str
    base: str
    python: str
    requirements: tuple[str, ...]
    megabytes: int
    seconds: int
    made: str
    jobs: tuple[str, ...] = ()


def prepared(backend: Backend[Submission]) -> tuple[Prepared, ...]:
    """The environments of a cluster, the oldest first.

    Raises:
        TransportError: the cluster cannot be reached.
    """
    return _list_prepared(backend)[0]


def _list_prepared(backend: Backend[Submission]) -> tuple[tuple[Prepared, ...], str]:
    """The environments, and why jobs that use them may be missing; empty if none is."""
    of_slurm = backend.cluster.engine != EKS.name
    answer = backend.ask(requests.ListEnvironments(active=of_slurm))
    active, unknown = (set(answer["active"]), "") if of_slurm else _active(backend)
    found = []
    for each in answer["environments"]:
        try:
            one = _RECORD.validate_python(each["record"])
        except ValidationError:
            continue  # damaged
        jobs = tuple(job for job, name in answer["used"].items() if name == each["name"] and job in active)
        of_file = tuple(map(str, each["requirements"]))
        found.append(replace(one, name=each["name"], requirements=of_file or one.requirements, jobs=jobs))
    return tuple(sorted(found, key=lambda one: one.made)), unknown


def remove(backend: Backend[Submission], names: Sequence[str]) -> list[Prepared]:
    """Remove environments. Jobs that run or wait keep theirs; a later job that needs a removed one makes it again.

    Args:
        names: `unused`: all that no such job uses.

    Raises:
        JobError: there is no such environment, or such a job uses it, or may do so as a team's jobs cannot be listed; then none is removed.
        TransportError: the cluster cannot be reached.
    """
    found, unknown = _list_prepared(backend)
    if unknown:
        raise JobError(
            f"the environments are those of all teams, and {unknown}. Remove them with credentials that may list the jobs of all teams"
        )
    there = {one.name: one for one in found}
    if UNUSED in names:
        names = [one.name for one in found if not one.jobs]
    for name in names:
        if name not in there:
            known = f"It has {', '.join(there)}" if there else "It has none"
            raise JobError(f"{backend.cluster.stack} has no environment {name[:80]!r}. {known}")
        if jobs := there[name].jobs:
            raise JobError(
                f"environment {name} is used by {', '.join(jobs)}. Wait until it has ended, or cancel it (trn cancel {jobs[0]})"
            )
    backend.ask(requests.RemoveEnvironments(tuple(names)))
    return [there[name] for name in names]


def _active(backend: Backend[Submission]) -> tuple[set[str], str]:
    """The ids of the jobs that run or wait, of all teams of the cluster where its file system is theirs together; and why some may be missing,
    empty if none is."""
    cluster = backend.cluster
    found = {job.id for job in backend.active()}
    if getattr(cluster, "own_folder", False):
        return found, ""
    if team := getattr(cluster, "team", ""):
        return found, f"team {team} sees its own jobs alone"
    for team, seen in cluster.of_teams().items():
        try:
            found |= {job.id for job in connect(cluster=seen).active()}
        except TrnError as e:
            return found, f"jobs of team {team} could not be listed: {e}"
    return found, ""


_RECORD = TypeAdapter(Prepared)
