"""From a stack's name to a back end that runs jobs on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainium_cdk import engines, outputs
from trainium_cdk.jobs.backend import Backend

DEFAULT_STACK = engines.DEFAULT


def connect(
    stack: str = DEFAULT_STACK,
    region: str | None = None,
    *,
    local: bool | None = None,
    cluster: outputs.Cluster | None = None,
    tell: Callable[[str], None] | None = None,
) -> Backend[Any]:
    """The jobs of a deployed stack, by whichever scheduler it has.

    Args:
        stack: its name in CloudFormation.
        region: default: boto3's usual one.
        local: run commands on this machine, which is the head node, instead of through SSM. Default: found out. Slurm only.
        cluster: its description, where it is known already; the stack's outputs are not read then.
        tell: is given a line where AWS does not answer for a while. Slurm only.

    Raises:
        trainium_cdk.errors.OutputsError: the stack cannot be read.
        TransportError: no region, or no credentials.
        TrnError: `local` is given for a stack without a head node.
    """
    found = cluster or outputs.read(stack, region)
    return engines.get(found.engine).connect(found, local=local, tell=tell)
