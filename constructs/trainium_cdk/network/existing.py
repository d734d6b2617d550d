"""A VPC that exists, as the CDK's own constructs see it."""

from __future__ import annotations

from math import gcd

import jsii
from aws_cdk import IStableStringProducer, Lazy
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from trainium_cdk.settings import ExistingVpc


@jsii.implements(IStableStringProducer)
class _NoName:
    """Stands where the CDK wants a zone's name, which differs by account and cannot be told from its id at synth."""

    def produce(self) -> str:
        raise ValueError(
            "the name of an existing subnet's availability zone is not known (its id is): use a construct that takes the "
            "subnet alone, or give it an availability zone of its own"
        )


def import_vpc(scope: Construct, existing: ExistingVpc) -> ec2.IVpc:
    """The VPC, with its subnets in the order they are named."""
    private, public = existing.private_subnets, existing.public_subnets
    tables = {s.route_table for s in private}, {s.route_table for s in public}
    return ec2.Vpc.from_vpc_attributes(
        scope,
        "Vpc",
        vpc_id=existing.vpc_id,
        vpc_cidr_block=existing.cidr,
        # the CDK deals the subnets out to the zones in turn, and wants their number to divide both lists
        availability_zones=[Lazy.string(_NoName()) for _ in range(gcd(len(private), len(public)))],
        private_subnet_ids=[s.id for s in private],
        private_subnet_route_table_ids=None if None in tables[0] else [s.route_table or "" for s in private],
        public_subnet_ids=[s.id for s in public] or None,
        public_subnet_route_table_ids=None
        if not public or None in tables[1]
        else [s.route_table or "" for s in public],
    )
