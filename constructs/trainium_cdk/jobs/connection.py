"""Connecting to a deployed stack, to run jobs on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from trainium_cdk import engines, outputs
from trainium_cdk.jobs.backend import Backend

DEFAULT_STACK = engines.DEFAULT


class Connect(Protocol):
    """An engine's way to the jobs of a deployed cluster, named by its manifest (`jobs`)."""

    def __call__(
        self, cluster: Any, *, local: bool | None = None, say: Callable[[str], None] | None = None
    ) -> Backend[Any]: ...


def connect(
    stack: str = DEFAULT_STACK,
    region: str | None = None,
    *,
    local: bool | None = None,
    cluster: outputs.Cluster | None = None,
    say: Callable[[str], None] | None = None,
) -> Backend[Any]:
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
    connect_to: Connect = engines.load(engines.get(found.engine).jobs)
    return connect_to(found, local=local, say=say)
