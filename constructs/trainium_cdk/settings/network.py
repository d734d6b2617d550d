"""The network: a VPC of our own, or one that exists."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainium_cdk.settings.base import (
    AccountId,
    Arn,
    Cidr,
    Days,
    Region,
    RouteTableId,
    Settings,
    SubnetId,
    VpcId,
    ZoneId,
)

InterfaceEndpoint = Literal[
    "ssm", "ssmmessages", "ec2messages", "ec2", "ecr.api", "ecr.dkr", "logs", "sts", "cloudformation", "dynamodb",
    "elasticfilesystem", "fsx", "eks", "monitoring", "secretsmanager", "autoscaling", "route53", "elasticloadbalancing",
    "eks-auth", "lambda",
]  # fmt: skip


class Peering(Settings):
    """A peering connection from this VPC to another one, with routes on both sides."""

    vpc_id: VpcId
    """The VPC on the other side."""
    cidr: Cidr
    """Its IPv4 network: where our routes lead."""
    account: AccountId | None = None
    """Its owner, where that is another account. Default: this account."""
    region: Region | None = None
    """Its region, where that is another one. Default: this region."""
    accepter_role: Arn | None = None
    """IAM role in the other account that lets CloudFormation accept the connection."""
    route_tables: tuple[RouteTableId, ...] = ()
    """Route tables on the other side that get a route back to us (same account and region; else see the outputs)."""


class ExistingSubnet(Settings):
    """A subnet that exists already."""

    id: SubnetId
    """As subnet-0123456789abcdef0."""
    zone_id: ZoneId
    """The availability zone id it lies in, as use1-az6."""
    cidr: Cidr | None = None
    """Given, so that its size can be checked against the fleet."""
    route_table: RouteTableId | None = None
    """Its route table. Given, so that it gets the routes of `peerings`."""


class ExistingVpc(Settings):
    """A VPC that exists already, with its subnets. It must have DNS support and DNS host names."""

    vpc_id: VpcId
    """As vpc-0123456789abcdef0."""
    cidr: Cidr
    """Its IPv4 network."""
    private_subnets: tuple[ExistingSubnet, ...] = Field(min_length=1)
    """For nodes and file systems; the fleet's first."""
    public_subnets: tuple[ExistingSubnet, ...] = ()
    """For what is given a public address."""
    internet: bool = True
    """Whether the private subnets reach the internet. Where they do not, they must reach AWS through endpoints, and the nodes
    install nothing: their image holds Neuron."""


class Network(Settings):
    """The VPC and what leads in and out of it."""

    cidr: Cidr = "10.0.0.0/16"
    """IPv4 network of the VPC."""
    zone_ids: tuple[ZoneId, ...] = ()
    """Availability zone ids, the fleet's first. Default: the first zone that offers every instance type asked for."""
    public_prefix: int = Field(24, ge=16, le=28)
    """Prefix length of each public subnet."""
    private_prefix: int = Field(20, ge=16, le=28)
    """Prefix length of each private subnet."""
    nat: Literal["one", "per-zone", "none"] = "one"
    """NAT gateways: one for all zones, one in each, or none (then give the interface endpoints nodes need)."""
    s3_endpoint: bool = True
    """Gateway endpoint for S3: free, and keeps data off the NAT gateway."""
    interface_endpoints: tuple[InterfaceEndpoint, ...] = ()
    """AWS services reached inside the VPC."""
    flow_logs: bool = True
    """Record the VPC's traffic in a log group that the stack owns."""
    flow_log_days: Days = 365
    """How long those records are kept, days."""
    peerings: tuple[Peering, ...] = ()
    """Connections to other VPCs."""
    existing: ExistingVpc | None = None
    """Use this VPC and make none: the other keys of `network` then do not apply (but for `peerings`)."""

    @property
    def reaches_internet(self) -> bool:
        """Whether nodes in private subnets reach the internet."""
        return self.existing.internet if self.existing else self.nat != "none"

    @property
    def vpc_cidr(self) -> str:
        """IPv4 network of the VPC, made or existing."""
        return self.existing.cidr if self.existing else self.cidr
