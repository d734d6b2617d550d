"""The rules of `trn check` for the arguments of a `TrnNetwork`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from constructs import Construct

from trainium_cdk._cdk.rules import Arguments, refuse_lookups, refuse_tokens, region_of, unresolved
from trainium_cdk.catalog import Catalog
from trainium_cdk.checks import addresses, network, peering, zones

_NAMES = {"network": "vpc", "public_prefix": "public_cidr_mask", "private_prefix": "private_cidr_mask"}
_RULES = (
    addresses.vpc_size,
    addresses.public_addresses,
    network.repeated_endpoint,
    zones.zone_of_another_region,
    zones.repeated_zone,
)


def check_network(
    construct: Construct, cidr: str, sizes: Mapping[str, int], zone_ids: Sequence[str], endpoints: Sequence[str]
) -> None:
    """Register problems of the arguments of a `TrnNetwork`.

    Args:
        sizes: those of subnets, by the keys of `network`.

    Raises:
        ValueError: the network is a token: its subnets are planned at synthesis.
        SettingsError: it is no network.
    """
    refuse_tokens(construct, **{_NAMES[key]: size for key, size in sizes.items()})
    refuse_lookups(construct, cidr=cidr)
    if unresolved(cidr):
        raise ValueError(
            f"{construct.node.path}: cidr must be plain text, for example 10.0.0.0/16: subnets are planned at synthesis"
        )
    arguments = Arguments(construct, ("network",), _NAMES)
    arguments.validated({"network": {"cidr": cidr}})
    catalog = Catalog.load()
    regions = [region for zone in zone_ids if (region := catalog.region_of(zone))]
    lists = {"zone_ids": list(zone_ids), "interface_endpoints": list(endpoints)}
    data = {"region": region_of(construct, regions), "network": {"cidr": cidr, **sizes, **lists}}
    arguments.check(data, _RULES)


def check_peering(construct: Construct, cidrs: Sequence[str], peer_cidrs: Sequence[str]) -> None:
    """Register problems of the networks on both sides of a `TrnPeering`. Those that are not known are not checked."""
    theirs = [cidr for cidr in peer_cidrs if not unresolved(cidr)]
    if not theirs:
        return
    peer = {"vpc_id": "vpc-00000000", "cidr": theirs}  # no rule here looks at the id
    names = {"cidr": "peer_cidr", "network.cidr": "network of the VPC"}
    arguments = Arguments(construct, ("network", "peerings", 0), names)
    for cidr in cidrs:
        if not unresolved(cidr):
            arguments.check({"network": {"cidr": cidr, "peerings": [peer]}}, (peering.overlapping_peer_networks,))
