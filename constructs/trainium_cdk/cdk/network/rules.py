"""The rules of `trn check` for the arguments of a `TrnNetwork` and a `TrnPeering`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from constructs import Construct

from trainium_cdk.cdk.helpers.described import Described
from trainium_cdk.cdk.helpers.rules import unresolved
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.checks import capacity, network
from trainium_cdk.description.checks.rule import warning
from trainium_cdk.description.settings import Environment, ExistingSubnet, Network, Peering, Problem


def closed_network(env: Environment) -> Iterator[Problem]:
    """A network of an environment has the rules of its engine."""
    if not env.network.existing and env.network.nat == "none" and not env.network.interface_endpoints:
        reason = "without interface endpoints nodes and functions in it reach neither AWS nor the internet"
        yield warning(("network", "nat"), reason, "add interface_endpoints, or write nat: one", value="none")


_RULES = (
    closed_network,
    network.public_addresses,
    network.subnet_outside_vpc,
    capacity.zone_of_another_region,
    capacity.settings_of_an_existing_vpc,
    network.overlapping_peer_networks,
    network.peer_of_itself,
)
_SOME_SUBNET = ExistingSubnet(id="subnet-00000000", zone_id="use1-az1")


def check_network(construct: Construct, settings: Network) -> None:
    """Register problems of a network.

    Raises:
        SettingsError: its size is none of a VPC, or a zone is given twice: the subnets cannot be planned.
    """
    catalog = Catalog.load()
    regions = [region for zone in settings.zone_ids if (region := catalog.region_of(zone))]
    described = Described(construct, {("network",): "network"})
    environment = described.environment(network=settings, regions=regions)
    described.require(environment, network.vpc_size, capacity.repeated_zone)
    described.check(environment, _RULES)


def check_peering(construct: Construct, cidrs: Sequence[str], peer: Peering) -> None:
    """Register problems of the networks on both sides of a `TrnPeering`. Those that are not known are not checked."""
    known = tuple(cidr for cidr in cidrs if not unresolved(cidr))
    if not known:
        return
    described = Described(construct, {("network", "peerings", 0): "peer", ("network", "existing", "cidr"): "cidr"})
    ours = {"vpc_id": "vpc-00000000", "cidr": known, "private_subnets": (_SOME_SUBNET,)}
    environment = described.environment(network={"existing": ours, "peerings": (peer,)})
    described.check(environment, (network.overlapping_peer_networks,))
