"""The subnets of a Slurm cluster's nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import aws_ec2 as ec2
from constructs import Construct, IDependable

from trainium_cdk._cdk.subnets import queue_subnets, routes_of, selected
from trainium_cdk.settings import HeadNode, Queue


@dataclass(frozen=True)
class ClusterSubnets:
    """The subnet ids of a cluster's nodes, and what must exist before the nodes reach the internet."""

    head: str
    login: str | None
    queues: Mapping[str, str]
    ready: Sequence[IDependable]


def chosen_subnets(
    scope: Construct,
    vpc: ec2.IVpc,
    candidates: ec2.SubnetSelection | None,
    *,
    queues: Sequence[Queue],
    given: Mapping[str, ec2.ISubnet],
    head_node: HeadNode,
    head: ec2.ISubnet | None,
    login: ec2.ISubnet | None,
    cpu: str | None,
) -> ClusterSubnets:
    """Arguments as of `TrnPcluster`, where `candidates` is `vpc_subnets` and `given` is `queue_subnets`; `cpu` is the CPU queue's name."""
    private = selected(vpc, candidates)
    of_head = private if head_node.subnet == "private" else vpc.public_subnets
    if not (head or of_head):
        raise ValueError(f"{scope.node.path}: the VPC has no subnet for the head node: give head_node_subnet")
    head = head or of_head[0]
    return ClusterSubnets(
        head=head.subnet_id,
        login=(login or head).subnet_id,
        queues=queue_subnets(scope, private, queues, given, cpu),
        ready=routes_of([head, *private, *given.values()]),
    )
