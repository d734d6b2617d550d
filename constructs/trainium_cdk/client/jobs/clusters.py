"""The deployed clusters of an account. Only read requests."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from trainium_cdk.client.jobs.connection import connect
from trainium_cdk.description.outputs.read import Deployed, deployed
from trainium_cdk.errors import OutputsError, TrnError

_AT_ONCE = 8


@dataclass(frozen=True)
class ListedCluster:
    """A deployed cluster.

    Attributes:
        state: of its stack, as CloudFormation names it.
        nodes: number of running nodes for jobs; None if that is not known.
        note: why the number is not known.
    """

    region: str
    stack: str
    engine: str
    state: str
    nodes: int | None = None
    note: str = ""


def list_clusters(regions: Sequence[str]) -> tuple[list[ListedCluster], list[str]]:
    """The clusters of several regions, by region and name, all asked at once; and why regions could not be read."""
    import boto3  # noqa: F401  before threads use it

    stacks, notes = list[Deployed](), list[str]()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for answer in pool.map(_stacks, regions):
            if isinstance(answer, OutputsError):
                notes.append(str(answer))
            else:
                stacks += answer
        return list(pool.map(_listed, sorted(stacks, key=lambda stack: stack[:2]))), notes


def _stacks(region: str) -> list[Deployed] | OutputsError:
    try:
        return deployed(region)
    except OutputsError as e:
        return e


def _listed(stack: Deployed) -> ListedCluster:
    cluster = ListedCluster(stack.region, stack.name, stack.outputs.get("TrnEngine", ""), stack.status)
    try:
        nodes = connect(cluster=stack.cluster()).nodes()
    except TrnError as e:
        return replace(cluster, note=str(e))
    return replace(cluster, nodes=sum(node.on and bool(node.queue) for node in nodes))
