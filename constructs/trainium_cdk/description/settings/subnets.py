"""The addresses of each subnet of a network: arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from trainium_cdk.description.settings.network import Network


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
