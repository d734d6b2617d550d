"""The rules of `trn validate` for the arguments of a `TrnNetwork`."""

from __future__ import annotations

from collections.abc import Sequence

from constructs import Construct

import trainium_cdk.checks.addresses as addresses
import trainium_cdk.checks.network as network
import trainium_cdk.checks.zones as zones
from trainium_cdk._cdk.rules import known, refuse_lookups, region_of, report, unresolved
from trainium_cdk.catalog import Catalog

_RULES = (
    addresses.vpc_size_is_allowed,
    addresses.addresses_are_private,
    network.endpoints_are_listed_once,
    zones.zones_are_of_the_region,
    zones.zones_are_listed_once,
)


def check_network(construct: Construct, cidr: str, zone_ids: Sequence[str], endpoints: Sequence[str]) -> None:
    """Register problems of the arguments of a `TrnNetwork`.

    Raises:
        ValueError: the network is a token: its subnets are planned at synthesis.
    """
    refuse_lookups(construct, cidr=cidr)
    if unresolved(cidr):
        raise ValueError(
            f"{construct.node.path}: cidr must be plain text, for example 10.0.0.0/16: subnets are planned at synthesis"
        )
    catalog = Catalog.load()
    regions = [region for zone in zone_ids if (region := catalog.region_of(zone))]
    data = {
        "region": region_of(construct, regions),
        "network": known({"cidr": cidr, "zone_ids": list(zone_ids), "interface_endpoints": list(endpoints)}),
    }
    report(construct, data, at=("network",), rules=_RULES, names={"network": "vpc"})
