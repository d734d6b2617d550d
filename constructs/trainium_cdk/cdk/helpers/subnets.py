"""Subnets by the CDK's selection, the one of a fleet, and their routes as dependencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Annotations, CfnResource, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct, IConstruct, IDependable

from trainium_cdk.cdk.helpers.custom_resources import custom_resource, permissions_of
from trainium_cdk.cdk.helpers.permissions import allow
from trainium_cdk.cdk.helpers.stack_wide import once
from trainium_cdk.description.settings.slurm import SlurmQueue
from trainium_cdk.text import LIST_TOKEN

_KIND = "TrnSubnetChoice"
ONE_PER_ZONE = ec2.SubnetSelection(one_per_az=True)
"""One private subnet of each zone."""


def selected(vpc: ec2.IVpc, selection: ec2.SubnetSelection | None, *, nodes: bool = True) -> list[ec2.ISubnet]:
    """The subnets of a VPC by a selection.

    Args:
        selection: Default: the private subnets; isolated ones if there are none.
        nodes: Whether nodes or functions are for them, which must reach AWS. If they are isolated by default, a warning says so.

    Before the CDK's command line has looked up a VPC (`ec2.Vpc.from_lookup`), any of its subnets stand in for the subnets of a selection that
    is empty: a synthesis that fails would end before the lookup.

    Raises:
        ValueError: the selection is empty, or the subnets' ids are a list that is known at deployment.
    """
    wanted = selection or ec2.SubnetSelection()
    if wanted.subnets:  # as the CDK does, without eight calls of it for each node group
        return list(wanted.subnets)
    by_default = selection is None or selection is ONE_PER_ZONE
    if by_default and not (vpc.private_subnets or vpc.isolated_subnets):
        raise ValueError(
            f"{vpc.node.path} has no private subnets, and nodes get no public address: add private subnets with a NAT gateway, "
            "give private_subnet_ids to Vpc.from_vpc_attributes, or give a SubnetSelection"
        )
    result = vpc.select_subnets(
        availability_zones=wanted.availability_zones,
        one_per_az=wanted.one_per_az,
        subnet_filters=wanted.subnet_filters,
        subnet_group_name=wanted.subnet_group_name,
        subnet_type=wanted.subnet_type,
        subnets=wanted.subnets,
    )
    found = result.subnets
    if not found and (result.is_pending_lookup or vpc.select_subnets().is_pending_lookup):
        return [*vpc.private_subnets, *vpc.public_subnets][:2]
    if any(LIST_TOKEN in subnet.subnet_id for subnet in found):
        raise ValueError(
            f"{vpc.node.path}: its subnets are a list whose length is not known before the deployment: give Vpc.from_vpc_attributes "
            "plain ids, or one token for each subnet"
        )
    isolated = by_default and nodes and not vpc.private_subnets
    if isolated and not any(isinstance(each, ec2.InterfaceVpcEndpoint) for each in vpc.node.find_all()):
        text = "its subnets are isolated, and it has no interface endpoints: nodes and functions reach neither AWS nor the internet"
        fix = "add private subnets with a NAT gateway, or endpoints before the cluster; if it has them, acknowledge this warning"
        Annotations.of(vpc).add_warning_v2("trn:isolated-subnets", f"{text}. Fix: {fix}")
    if not found:
        zones = f" in {', '.join(wanted.availability_zones)}" if wanted.availability_zones else ""
        raise ValueError(
            f"{vpc.node.path} has no subnet{zones} that the selection allows: give another SubnetSelection"
        )
    return list(found)


def routes_of(subnets: Sequence[ec2.ISubnet]) -> list[IDependable]:
    """Return the constructs that must exist before resources in the subnets reach the internet or AWS's endpoints."""
    return [once(subnet, "internet_connectivity_established") for subnet in subnets]


def keep(construct: IConstruct) -> None:
    """Keep a VPC or subnet of this app when the stack is destroyed. Others are not changed."""
    resource = construct.node.default_child
    if isinstance(resource, CfnResource):
        resource.apply_removal_policy(RemovalPolicy.RETAIN)


def offering_subnet(scope: Construct, id: str, *, subnets: Sequence[ec2.ISubnet], instance_types: Sequence[str]) -> str:
    """The id of the first of the subnets in an availability zone that offers the instance types: one, as EFA does not cross subnets.

    With several subnets, AWS is queried during the deployment: the names of zones (`us-west-2a`) mean different zones in different
    accounts, so a template cannot determine which of them offers a type. The choice is kept in later deployments.
    """
    if len(subnets) == 1:
        subnet_id: str = once(subnets[0], "subnet_id")
        return subnet_id
    chosen = custom_resource(
        scope,
        id,
        kind=_KIND,
        properties={
            "InstanceTypes": list(dict.fromkeys(instance_types)),
            "SubnetIds": [once(subnet, "subnet_id") for subnet in subnets],
        },
        permissions=permissions_of(scope, _KIND).add(_KIND, _describe),
    )
    return chosen.get_att_string("SubnetId")


def queue_subnets(
    scope: Construct,
    subnets: Sequence[ec2.ISubnet],
    queues: Sequence[SlurmQueue],
    given: Mapping[str, ec2.ISubnet],
    cpu: str | None,
) -> dict[str, str]:
    """The subnet id of each queue of a Slurm cluster: the given subnet, else one that offers its instance types. That of the
    CPU queue (`cpu`, its name) is the first, if none is given.

    Raises:
        ValueError: `given` names something that is not a queue, or a queue names a zone, which is not known of a subnet.
    """
    if placed := next((queue for queue in queues if queue.zone_id and queue.name not in given), None):
        raise ValueError(
            f"{scope.node.path}: queue {placed.name} has zone_id {placed.zone_id}, and which subnet is there is not known. "
            f"Fix: give queue_subnets={{{placed.name!r}: subnet}}, and no zone_id"
        )
    known = [*(queue.name for queue in queues), *([cpu] if cpu else [])]
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(
            f"{scope.node.path}: queue_subnets names {unknown[0]!r}, which is not a queue; queues are {', '.join(known)}"
        )
    found = {}
    for queue in queues:
        types = [resource.instance_type for resource in queue.compute_resources]
        found[queue.name] = (
            once(given[queue.name], "subnet_id")
            if queue.name in given
            else offering_subnet(scope, f"Subnet{queue.name}", subnets=subnets, instance_types=types)
        )
    return found | ({cpu: once(given.get(cpu, subnets[0]), "subnet_id")} if cpu else {})


def _describe() -> list[iam.PolicyStatement]:
    # AWS accepts no narrower resource for these
    return [allow("*", "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeSubnets")]
