"""The deployed clusters of an account, and what each of them does now. Only read requests."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from trainium_cdk._aws import client as aws_client
from trainium_cdk.catalog import Catalog
from trainium_cdk.catalog.plain import counted, join_words
from trainium_cdk.errors import ApiError, OutputsError, TrnError
from trainium_cdk.jobs.backend import Backend
from trainium_cdk.jobs.connection import connect
from trainium_cdk.jobs.report.cost import price
from trainium_cdk.jobs.report.run import Run
from trainium_cdk.jobs.status import ACTIVE, Activity, Foreign, JobStatus, Node
from trainium_cdk.outputs.read import Deployed, deployed

_AT_ONCE = 8
_LIMIT = 50
"""Jobs of a cluster that are described; more only if they run or wait."""
_RECENT = 86_400
"""Seconds for which a job that has ended is shown."""
_FORBIDDEN = 403
_NAMED = 3
"""Nodes or jobs that a sentence names."""
Alarms = tuple[str, ...] | None
"""See `Overview.alarms`."""
Backends = Mapping[str, Backend[Any]]
"""A cluster as each of its teams sees it, by namespace; empty: the one of all others."""


@dataclass(frozen=True)
class Work:
    """A job of anyone.

    Attributes:
        client: `trn`, else the kind of object, as of `Foreign.kind`.
        team: on EKS; empty without one. user: empty if that is not known.
        state, stage, reason: of the stage that it is at.
        nodes: that it has or asks for; None if that is not known.
        submitted, ended: seconds since 1970; None if that is not known, or not so.
        waiting: seconds for which it has waited, since it was submitted or its last stage ended; None if it does not wait.
        usd: of its nodes so far, on demand, for the last attempt of each stage; None if that is not known.
    """

    id: str
    client: str
    user: str
    team: str
    state: str
    stage: str = ""
    reason: str = ""
    nodes: int | None = None
    instance_type: str = ""
    queue: str = ""
    submitted: int | None = None
    ended: int | None = None
    waiting: float | None = None
    usd: float | None = None


@dataclass(frozen=True)
class Overview:
    """A cluster; None and empty where it could not be asked.

    Attributes:
        state: of its stack, as CloudFormation names it.
        nodes: that are on; of them, a job runs on `busy`, none on `idle`; on `failed` none can start, and `starting` are on their way.
        running, waiting: jobs, of all users whose jobs can be seen.
        longest_wait: seconds for which the oldest of those that wait has waited.
        usd_per_hour: on-demand price of the nodes that are on, without storage, control plane and head node; None also where the
            catalogue has no price. usd_per_hour_idle: of those for jobs on which none runs, failed ones too; None also where a team's jobs cannot be seen.
        alarms: of CloudWatch that are raised now, by their description; None where they cannot be read.
        problems: what else should be looked at, a sentence each.
        jobs: those that run, then those that wait, then those that ended within a day.
        answered: seconds since 1970, when all this was so.
        note: why it could not be asked.
    """

    region: str
    stack: str
    engine: str
    state: str
    nodes: int | None = None
    busy: int | None = None
    idle: int | None = None
    failed: int | None = None
    starting: int | None = None
    running: int | None = None
    waiting: int | None = None
    longest_wait: float | None = None
    usd_per_hour: float | None = None
    usd_per_hour_idle: float | None = None
    alarms: tuple[str, ...] | None = None
    problems: tuple[str, ...] = ()
    jobs: tuple[Work, ...] = ()
    answered: float | None = None
    note: str = ""

    @property
    def key(self) -> str:
        """Its name among all of an account."""
        return f"{self.region}/{self.stack}"


def overviews(regions: Sequence[str], catalog: Catalog | None = None) -> tuple[list[Overview], list[str]]:
    """The clusters of several regions, by region and name, all asked at once; and why regions could not be read."""
    import boto3  # noqa: F401  before threads use it

    catalog, notes = catalog or Catalog.load(), []

    def found(region: str) -> list[tuple[Deployed, Alarms]] | OutputsError:
        try:
            return with_alarms(deployed(region), region)
        except OutputsError as e:
            return e

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        stacks: list[tuple[Deployed, Alarms]] = []
        for answer in pool.map(found, regions):
            if isinstance(answer, OutputsError):
                notes.append(str(answer))
            else:
                stacks += answer
        stacks.sort(key=lambda each: each[0][:2])
        return list(pool.map(lambda each: _overview(each[0], each[1], catalog), stacks)), notes


def _overview(stack: Deployed, alarms: Alarms, catalog: Catalog) -> Overview:
    seen = unasked(stack, alarms)
    try:
        return ask(reach(stack), seen, catalog)
    except TrnError as e:
        return replace(seen, note=str(e))


def unasked(stack: Deployed, alarms: Alarms) -> Overview:
    """What CloudFormation and CloudWatch tell of a cluster."""
    return Overview(stack.region, stack.name, stack.outputs.get("TrnEngine", ""), stack.status, alarms=alarms)


def with_alarms(stacks: Sequence[Deployed], region: str) -> list[tuple[Deployed, Alarms]]:
    """The stacks of a region, each with its alarms that are raised: with one request for all."""
    from botocore.exceptions import BotoCoreError, ClientError

    if not stacks:
        return []
    raised: dict[str, list[str]] = {}
    try:
        pages = aws_client("cloudwatch", region).get_paginator("describe_alarms").paginate(StateValue="ALARM")
        for alarm in (one for page in pages for one in page["MetricAlarms"]):
            owners = [one.name for one in stacks if alarm["AlarmName"].startswith(f"{one.name}-")]
            if owners:  # a stack's name may begin with another's
                raised.setdefault(max(owners, key=len), []).append(alarm.get("AlarmDescription") or alarm["AlarmName"])
    except (ClientError, BotoCoreError):  # the rest is worth showing without them
        return [(one, None) for one in stacks]
    return [(one, tuple(raised.get(one.name, ()))) for one in stacks]


def reach(stack: Deployed) -> dict[str, Backend[Any]]:
    """The ways to a cluster's jobs.

    Raises:
        TrnError: it is not deployed, or cannot be reached.
    """
    cluster = stack.cluster()
    return {team: connect(cluster=seen) for team, seen in {"": cluster, **cluster.of_teams()}.items()}


def ask(jobs: Backends, seen: Overview, catalog: Catalog, now: float | None = None) -> Overview:
    """The overview with what the cluster says of its nodes and jobs.

    Raises:
        TransportError: it does not answer.
    """
    now = time.time() if now is None else now
    work: list[Work] = []
    hidden: list[str] = []
    nodes: dict[str, Node] = {}
    for team, view in jobs.items():
        try:
            activity = view.activity(_LIMIT)
        except ApiError as e:
            if not team or e.status != _FORBIDDEN:
                raise
            hidden.append(team)
            continue
        for node in activity.nodes:
            if node.name not in nodes or node.job:
                nodes[node.name] = node
        work += _work(activity, view, team, catalog, now)
    on = [node for node in nodes.values() if node.on]
    kinds = [node.condition(now) for node in on]
    useless = [node for node in on if node.queue and not node.job and node.condition(now) in ("idle", "failed")]
    waits = [one for one in work if one.state == "PENDING"]
    problems = [f"the jobs of team {join_words(hidden)} cannot be seen with these permissions"] if hidden else []
    return replace(
        seen,
        nodes=len(on),
        busy=kinds.count("busy"),
        idle=None if hidden else sum(node.condition(now) == "idle" for node in useless),
        failed=sum(node.condition(now) == "failed" for node in nodes.values()),
        starting=kinds.count("starting"),
        running=sum(one.state == "RUNNING" for one in work),
        waiting=len(waits),
        longest_wait=max((one.waiting for one in waits if one.waiting is not None), default=None),
        usd_per_hour=_together(on, seen.region, catalog),
        usd_per_hour_idle=None if hidden else _together(useless, seen.region, catalog),
        problems=(*_problems(nodes.values(), work, now), *problems),
        jobs=tuple(sorted(work, key=_order)),
        answered=now,
        note="",
    )


def _together(nodes: Sequence[Node], region: str, catalog: Catalog) -> float | None:
    prices = [catalog.price(node.instance_type, region) for node in nodes]
    known = [one for one in prices if one is not None]
    return round(sum(known), 2) if len(known) == len(prices) else None


def rank(one: Work) -> int:
    """Jobs that run come first, then those that wait."""
    return {"RUNNING": 0, "PENDING": 1}.get(one.state, 2)


def _order(one: Work) -> tuple[int, float]:
    """Those that run and have ended newest first; those that wait longest first."""
    at = float(one.ended or one.submitted or 0)
    return rank(one), at if one.state == "PENDING" else -at


def _work(activity: Activity, view: Backend[Any], team: str, catalog: Catalog, now: float) -> Iterator[Work]:
    for job in activity.jobs:
        ended = max((s.ended for s in job.stages if s.ended), default=None) if job.done else None
        if not job.done or now - (ended or job.submitted or 0) < _RECENT:
            yield _of_job(_placed(job, activity.nodes), view, team, catalog, now, ended)
    for one in activity.foreign:
        yield _of_foreign(one, team, now)


def _placed(job: JobStatus, nodes: Sequence[Node]) -> JobStatus:
    """A job of which only the queue tells, with the type of the nodes on which it runs."""
    kinds = {node.instance_type for node in nodes if node.job.partition(":")[0] == job.id}
    return replace(job, instance_type=kinds.pop()) if job.instance_type == "?" and len(kinds) == 1 else job


def _of_job(job: JobStatus, view: Backend[Any], team: str, catalog: Catalog, now: float, ended: int | None) -> Work:
    at, flat = job.current, replace(job, stages=(*job.stages[:-1], *job.members), members=()) if job.members else job
    waiting = None
    if job.state == "PENDING" and job.submitted:
        began = max([job.submitted, *(s.ended for s in job.stages if s.ended and s.state == "COMPLETED")])
        waiting = max(0.0, now - began)
    cost = Run(flat, price(job, view.cluster, catalog), now=now).cost
    kind = "" if job.instance_type == "?" else job.instance_type
    return Work(
        job.id, "trn", job.user, team, job.state, at.name, at.reason, job.nodes or None, kind, job.queue, job.submitted, ended,
        waiting, None if cost is None else round(cost, 2),
    )  # fmt: skip


def _of_foreign(one: Foreign, team: str, now: float) -> Work:
    waiting = max(0.0, now - one.submitted) if one.submitted and one.state == "PENDING" else None
    return Work(
        one.name,
        one.kind,
        one.user,
        team,
        one.state,
        nodes=one.nodes,
        queue=one.queue,
        submitted=one.submitted,
        waiting=waiting,
        reason=one.reason,
    )


def _problems(nodes: Iterable[Node], work: Sequence[Work], now: float) -> Iterator[str]:
    if failed := [node for node in nodes if node.condition(now) == "failed"]:
        why = next((f": {node.reason}" for node in failed if node.reason), "")
        yield f"{counted(len(failed), 'node')} failed ({_first([node.name for node in failed])}){why}"
    if lost := [one for one in work if one.state not in ACTIVE and one.state not in ("COMPLETED", "CANCELLED")]:
        why = next((f": {one.reason}" for one in lost if one.reason), "")
        yield f"{counted(len(lost), 'job')} failed within a day ({_first([one.id for one in lost])}){why}"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
