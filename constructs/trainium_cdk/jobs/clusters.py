"""The deployed clusters of an account, and what each of them does now. Only read requests."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from trainium_cdk.catalog import Catalog
from trainium_cdk.errors import OutputsError, TrnError
from trainium_cdk.jobs.backend import Backend
from trainium_cdk.jobs.connect import connect
from trainium_cdk.jobs.submission import Submission
from trainium_cdk.outputs.read import Deployed, deployed

_AT_ONCE = 8


@dataclass(frozen=True)
class Overview:
    """A cluster; None and empty where it could not be asked.

    Attributes:
        state: of its stack, as CloudFormation names it.
        nodes: that are on; `busy`: those of them on which a job runs.
        running, waiting: jobs, of all users whose jobs can be seen.
        usd_per_hour: on-demand price of the nodes that are on, without storage, control plane and head node; None also where the
            catalogue has no price.
        note: why it could not be asked.
    """

    region: str
    stack: str
    engine: str
    state: str
    nodes: int | None = None
    busy: int | None = None
    running: int | None = None
    waiting: int | None = None
    usd_per_hour: float | None = None
    note: str = ""


def overviews(regions: Sequence[str]) -> tuple[list[Overview], list[str]]:
    """The clusters of several regions, by region and name, all asked at once; and why regions could not be read."""
    import boto3  # noqa: F401  before threads use it

    catalog, notes = Catalog.load(), []

    def found(region: str) -> list[Deployed] | OutputsError:
        try:
            return deployed(region)
        except OutputsError as e:
            return e

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        stacks: list[Deployed] = []
        for answer in pool.map(found, regions):
            if isinstance(answer, OutputsError):
                notes.append(str(answer))
            else:
                stacks += answer
        return list(pool.map(lambda stack: _overview(stack, catalog), sorted(stacks, key=lambda s: s[:2]))), notes


def _overview(stack: Deployed, catalog: Catalog) -> Overview:
    seen = Overview(stack.region, stack.name, stack.outputs.get("TrnEngine", ""), stack.status)
    try:
        return ask(connect(cluster=stack.cluster()), seen, catalog)
    except TrnError as e:
        return replace(seen, note=str(e))


def ask(jobs: Backend[Submission], seen: Overview, catalog: Catalog) -> Overview:
    """The overview with what the cluster says of its nodes and jobs.

    Raises:
        TransportError: it does not answer.
    """
    on = [node for node in jobs.nodes() if node.on]
    active = jobs.active()
    running = sum(job.state == "RUNNING" for job in active)
    prices = [catalog.price(node.instance_type, seen.region) for node in on]
    known = [price for price in prices if price is not None]
    return replace(
        seen,
        nodes=len(on),
        busy=sum(bool(node.job) for node in on),
        running=running,
        waiting=len(active) - running,
        usd_per_hour=round(sum(known), 2) if len(known) == len(prices) else None,
    )
