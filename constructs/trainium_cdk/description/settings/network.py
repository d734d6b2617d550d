"""The network: a new VPC with the addresses of each subnet, or one that already exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import Field

from trainium_cdk.description.settings.base import (
    AccountId,
    Arn,
    Cidr,
    Cidrs,
    MaybeToken,
    PeerCidrs,
    Region,
    RouteTableId,
    Settings,
    SubnetId,
    VpcId,
    ZoneId,
)
from trainium_cdk.text import is_placeholder

InterfaceEndpoint = Literal[
    "ssm", "ssmmessages", "ec2messages", "ec2", "ecr.api", "ecr.dkr", "logs", "sts", "cloudformation", "dynamodb",
    "elasticfilesystem", "fsx", "eks", "monitoring", "secretsmanager", "autoscaling", "route53", "elasticloadbalancing", "pcs",
    "eks-auth", "lambda",
]  # fmt: skip


class Peering(Settings):
    """A peering connection from this VPC to another one, with routes on both sides."""

    vpc_id: VpcId
    """The VPC on the other side."""
    cidr: PeerCidrs
    """Its IPv4 network, or several: the destinations of our routes."""
    account: AccountId | None = None
    """The account that owns it. Default: this account."""
    region: Annotated[Region, MaybeToken] | None = None
    """The region it is in. Default: this region."""
    accepter_role: Arn | None = None
    """IAM role in the other account that lets CloudFormation accept the connection."""
    route_tables: tuple[RouteTableId, ...] = ()
    """Route tables on the other side that get a route back to this VPC. Only in the same account and region; for others, the stack's
    outputs tell which routes to add."""

    @property
    def known_networks(self) -> list[IPv4Network]:
        """Its networks, but for tokens."""
        return [IPv4Network(cidr) for cidr in self.cidr if not is_placeholder(cidr)]


class ExistingSubnet(Settings):
    """A subnet that already exists."""

    id: SubnetId
    """Subnet id, for example subnet-0123456789abcdef0."""
    zone_id: ZoneId
    """Id of its availability zone, for example use1-az6."""
    cidr: Cidr | None = None
    """Its IPv4 network. With it, a check compares its size with the number of nodes."""
    route_table: RouteTableId | None = None
    """Its route table, which then gets the routes of `peerings`."""


class ExistingVpc(Settings):
    """A VPC that already exists, with its subnets. It must have DNS support and DNS host names enabled."""

    vpc_id: VpcId
    """VPC id, for example vpc-0123456789abcdef0."""
    cidr: Cidrs
    """Its IPv4 network. With secondary ones a list, the primary one first: [10.1.0.0/21, 100.64.0.0/16]."""
    private_subnets: tuple[ExistingSubnet, ...] = Field(min_length=1)
    """Subnets for nodes and file systems. The first is used for the Trainium nodes."""
    public_subnets: tuple[ExistingSubnet, ...] = ()
    """Subnets for resources with a public address."""
    internet: bool = True
    """Whether the private subnets have access to the internet. Without it, they must reach AWS through endpoints, and
    the nodes install nothing: their image must contain Neuron."""


class Network(Settings):
    """The VPC and its connections."""

    cidr: Cidr = "10.0.0.0/16"
    """IPv4 network of the VPC."""
    zone_ids: tuple[ZoneId, ...] = ()
    """Availability zone ids. The first is used for the Trainium nodes. Default: the first zone that offers every requested instance
    type."""
    public_prefix: int = Field(default=24, ge=16, le=28)
    """Prefix length of each public subnet."""
    private_prefix: int = Field(default=20, ge=16, le=28)
    """Prefix length of each private subnet."""
    nat: Literal["one", "per-zone", "none"] = "one"
    """NAT gateways: one for all zones, one in each zone, or none. With none, add the interface endpoints that nodes
    need."""
    s3_endpoint: bool = True
    """Gateway endpoint for S3. It is free, and S3 traffic then bypasses the NAT gateway."""
    interface_endpoints: tuple[InterfaceEndpoint, ...] = ()
    """AWS services that get an interface endpoint in the VPC."""
    flow_logs: bool = True
    """Record the VPC's traffic in a log group that the stack owns."""
    peerings: tuple[Peering, ...] = ()
    """Connections to other VPCs."""
    existing: ExistingVpc | None = None
    """Use this VPC instead of creating one. The other keys of `network`, except `peerings`, then have no effect."""

    @property
    def reaches_internet(self) -> bool:
        """True if nodes in private subnets have access to the internet."""
        return self.existing.internet if self.existing else self.nat != "none"

    @property
    def vpc_cidrs(self) -> tuple[str, ...]:
        """IPv4 networks of the VPC, new or existing; the primary one first."""
        return self.existing.cidr if self.existing else (self.cidr,)


@dataclass(frozen=True)
class ZoneSubnets:
    """The two subnets of one availability zone."""

    zone_id: str
    public: IPv4Network
    private: IPv4Network


def plan_subnets(network: Network, zone_ids: Sequence[str]) -> tuple[ZoneSubnets, ...]:
    """The subnets of a new VPC, in the order of `zone_ids`.

    Public subnets are allocated from the start of the VPC's network, private ones from its end. So the existing subnets do not change when
    zones are appended, and no addresses are wasted: a plan exists whenever the sizes add up.

    Raises:
        ValueError: no zone, a zone given twice, or more subnets than the network holds.
    """
    if not zone_ids:
        raise ValueError("no availability zone for the network: set network.zone_ids, for example [use1-az4]")
    if len(set(zone_ids)) != len(zone_ids):
        twice = next(z for z in zone_ids if list(zone_ids).count(z) > 1)
        raise ValueError(f"network.zone_ids contains {twice} twice: list each zone once")
    vpc = IPv4Network(network.cidr)
    if vpc.prefixlen < 16 or vpc.prefixlen > 28:
        raise ValueError(
            f"network.cidr {vpc} is not a valid size for a VPC: choose a prefix from /16 to /28, for example 10.0.0.0/16"
        )
    public, private = 2 ** (32 - network.public_prefix), 2 ** (32 - network.private_prefix)
    needed = len(zone_ids) * (public + private)
    if needed > vpc.num_addresses:
        room = vpc.num_addresses // (public + private)
        raise ValueError(
            f"network.cidr {vpc} has {vpc.num_addresses} addresses, but {len(zone_ids)} zone(s) with a "
            f"/{network.public_prefix} and a /{network.private_prefix} subnet each need {needed}; it has room for {room} "
            "zone(s): choose a larger network.cidr, fewer network.zone_ids, or smaller subnets (a longer prefix)"
        )
    bottom, top = int(vpc.network_address), int(vpc.broadcast_address) + 1
    return tuple(
        ZoneSubnets(
            zone,
            IPv4Network((bottom + i * public, network.public_prefix)),
            IPv4Network((top - (i + 1) * private, network.private_prefix)),
        )
        for i, zone in enumerate(zone_ids)
    )
