"""Connecting to a deployed stack, to run jobs on it; and the deployed clusters of an account."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainium_cdk.client.jobs.backend import Backend
from trainium_cdk.description import engines, outputs
from trainium_cdk.description.outputs.read import Deployed, deployed
from trainium_cdk.errors import OutputsError, TrnError

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.slurm.transport import Transport

DEFAULT_STACK = engines.DEFAULT


def connect(
    stack: str = DEFAULT_STACK,
    region: str | None = None,
    *,
    local: bool | None = None,
    cluster: outputs.Cluster | None = None,
    say: Callable[[str], None] | None = None,
) -> Backend:
    """The backend for jobs on a deployed stack, whichever scheduler it has.

    Args:
        stack: its name in CloudFormation.
        region: default: boto3's default region.
        local: run commands on this machine, which is the head node, instead of through SSM. Default: detected. Slurm only.
        cluster: its description, if already known; then the stack's outputs are not read.
        say: called with a line of text when AWS does not respond for a while. Slurm only.

    Raises:
        trainium_cdk.errors.OutputsError: the stack cannot be read.
        TransportError: no region, or no credentials.
        TrnError: `local` is True for a stack without a head node.
    """
    found = cluster or outputs.read(stack, region)
    return _CONNECT[found.engine](found, local, say)


_Say = Callable[[str], None] | None


def _slurm(cluster: outputs.SlurmCluster, local: bool | None, say: _Say) -> Backend:
    from trainium_cdk.client.jobs.slurm import transport
    from trainium_cdk.client.jobs.slurm.backend import SlurmBackend

    here = transport.is_head_node(cluster) if local is None else local
    if here:
        return SlurmBackend(transport.of_caller(cluster), transport.LocalTransport())

    def over_run_command() -> Transport:
        from trainium_cdk.client.jobs.slurm.ssm import SsmTransport  # with boto3

        return SsmTransport.of(cluster, say)

    return SlurmBackend(cluster, over_run_command)


def _eks(cluster: outputs.EksCluster, local: bool | None, say: _Say) -> Backend:
    from trainium_cdk.client.jobs.kubernetes.backend import connect as connect_to

    return connect_to(cluster, local=local, say=say)


def _pcs(cluster: outputs.PcsCluster, local: bool | None, say: _Say) -> Backend:
    """On a login node, `local` is given: it is not detected."""
    from trainium_cdk.client.jobs.slurm import transport
    from trainium_cdk.client.jobs.slurm.backend import SlurmBackend

    if local:
        return SlurmBackend(transport.of_caller(cluster), transport.LocalTransport())

    def over_run_command() -> Transport:
        from trainium_cdk.client.jobs.slurm.ssm import LoginNodeTransport

        return LoginNodeTransport(cluster, say)

    return SlurmBackend(cluster, over_run_command)


_CONNECT: Mapping[str, Callable[[Any, bool | None, _Say], Backend]] = {"slurm": _slurm, "eks": _eks, "pcs": _pcs}
"""Each loads only what its own engine needs."""


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
