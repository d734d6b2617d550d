"""VPCs and their subnets as constructs of the CDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import jsii
from aws_cdk import Aspects, IAspect, IStableStringProducer, Lazy, RemoveTag, Tag
from aws_cdk import aws_ec2 as ec2
from constructs import Construct, IConstruct

from trainium_cdk.cdk.helpers.stack_wide import once
from trainium_cdk.cdk.network.subnets import Subnets
from trainium_cdk.description.settings import ExistingSubnet, ExistingVpc

Zoned = dict[str, ec2.ISubnet]
"""Subnets by availability zone."""


@jsii.implements(IStableStringProducer)
class _NoName:
    """A placeholder for a zone's name, which the CDK requires, but which differs by account and is not known at synth."""

    def produce(self) -> str:
        raise ValueError(
            "the name of an existing subnet's availability zone is not known (its id is): use a construct that takes the "
            "subnet alone, or set the subnet's availability zone"
        )


def import_vpc(scope: Construct, existing: ExistingVpc) -> ec2.IVpc:
    """The VPC, with its subnets in the given order."""
    private, public = existing.private_subnets, existing.public_subnets
    tables = {s.route_table for s in private}, {s.route_table for s in public}
    return ec2.Vpc.from_vpc_attributes(
        scope,
        "Vpc",
        vpc_id=existing.vpc_id,
        vpc_cidr_block=existing.cidr[0],  # the CDK takes the primary one
        # the CDK assigns the subnets to the zones in turn, so their number must divide both lists
        availability_zones=[Lazy.string(_NoName()) for _ in range(gcd(len(private), len(public)))],
        private_subnet_ids=[s.id for s in private],
        private_subnet_route_table_ids=None if None in tables[0] else [s.route_table or "" for s in private],
        public_subnet_ids=[s.id for s in public] or None,
        public_subnet_route_table_ids=None
        if not public or None in tables[1]
        else [s.route_table or "" for s in public],
    )


@jsii.implements(IAspect)
class _ForwardTags:
    """`Tags.of(subnet)` and `Tags.of(vpc)` tag the resources, which are elsewhere in the tree: as with `ec2.Vpc`, a VPC's tags are also
    its subnets'."""

    def __init__(self, resources: Sequence[tuple[IConstruct, ec2.CfnVPC | ec2.CfnSubnet]]) -> None:
        self._resources = resources

    def visit(self, node: IConstruct) -> None:  # noqa: ARG002
        if not self._resources:  # the CDK visits the VPC first, and then all below it
            return
        (vpc, resource), *subnets = self._resources
        self._resources = ()
        tags = _tags_of(vpc)
        for construct, each in ((vpc, resource), *subnets):
            for tag in (*tags, *(_tags_of(construct) if construct is not vpc else ())):
                tag.visit(each)


def _tags_of(construct: IConstruct) -> list[Tag | RemoveTag]:
    return [aspect for aspect in Aspects.of(construct).all if isinstance(aspect, Tag | RemoveTag)]


def import_subnets(
    scope: Construct, resource: ec2.CfnVPC, subnets: Subnets, cidr: str
) -> tuple[ec2.IVpc, Zoned, Zoned]:
    """A VPC of this stack, with its private and public subnets by zone."""
    private, public = subnets.private, subnets.public
    vpc = ec2.Vpc.from_vpc_attributes(
        scope,
        "Vpc",
        vpc_id=once(resource, "ref"),
        vpc_cidr_block=cidr,
        # the zones' names, which CloudFormation knows when it has created the subnets
        availability_zones=[subnet.attr_availability_zone for subnet in private.values()],
        private_subnet_ids=[once(subnet, "ref") for subnet in private.values()],
        private_subnet_route_table_ids=[subnets.route_table_ids[zone] for zone in private],
        public_subnet_ids=[once(subnet, "ref") for subnet in public.values()],
        public_subnet_route_table_ids=[subnets.route_table_ids["public"] for _ in public],
    )
    once(vpc, "node").default_child = resource
    resources: list[tuple[IConstruct, ec2.CfnVPC | ec2.CfnSubnet]] = [(vpc, resource)]
    imports = once(vpc, "private_subnets"), once(vpc, "public_subnets")
    for created, imported in zip((private, public), imports, strict=True):
        for subnet, construct in zip(created.values(), imported, strict=True):
            once(construct, "node").default_child = subnet  # so that it can be retained
            resources.append((construct, subnet))
    Aspects.of(vpc).add(_ForwardTags(resources))
    return vpc, dict(zip(private, imports[0], strict=True)), dict(zip(public, imports[1], strict=True))


def by_zone(named: Sequence[ExistingSubnet], imported: Sequence[ec2.ISubnet]) -> Zoned:
    """The first given subnet of each zone."""
    found: Zoned = {}
    for subnet, construct in zip(named, imported, strict=True):
        found.setdefault(subnet.zone_id, construct)
    return found


def of_zone(subnets: Mapping[str, ec2.ISubnet], zone_id: str | None, kind: str, network: IConstruct) -> ec2.ISubnet:
    """The subnet of a zone; of the first zone by default.

    Raises:
        ValueError: the zone has none.
    """
    zone_id = zone_id or next(iter(subnets), None)
    if zone_id is None or zone_id not in subnets:
        known = ", ".join(subnets) or "none"
        raise ValueError(
            f"{network.node.path} has no {kind} subnet in zone {zone_id} (zones with one: {known}): "
            f"add {zone_id or 'a zone'} to network.zone_ids, or the subnet to network.existing.{kind}_subnets"
        )
    return subnets[zone_id]
