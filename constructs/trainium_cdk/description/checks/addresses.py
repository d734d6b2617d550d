"""IPv4 addresses: whether the subnets fit the VPC, and the nodes fit the subnets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Network

from trainium_cdk.description.catalog.constants import GATEWAY_ENDPOINTS
from trainium_cdk.description.checks.rule import Rules, duplicates, error, inventories, join_words, warning
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.inventory import Inventory
from trainium_cdk.problems import KeyPath

RESERVED = 5
"""Addresses of each subnet that AWS reserves (VPC user guide, 2026-11)."""
VPC_PREFIXES = range(16, 29)
PRIVATE = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
"""Networks that are not routed on the internet (RFC 1918 and RFC 6598)."""


RULES = Rules()


@RULES.refuse("VPC user guide, vpc-cidr-blocks: from /16 to /28")
def vpc_size(env: Environment) -> Iterator[Problem]:
    if env.network.existing:
        return
    prefix = IPv4Network(env.network.cidr).prefixlen
    if prefix not in VPC_PREFIXES:
        yield error(
            ("network", "cidr"),
            f"a VPC has a prefix from /{VPC_PREFIXES[0]} to /{VPC_PREFIXES[-1]}, not /{prefix}",
            "write a network with such a prefix, for example 10.0.0.0/16",
        )


@RULES.refuse("VPC user guide, subnet-sizing: subnets are parts of the VPC, without overlap")
def subnet_size(env: Environment) -> Iterator[Problem]:
    network = env.network
    vpc = IPv4Network(network.cidr)
    if network.existing or vpc.prefixlen not in VPC_PREFIXES:
        return
    for cluster in inventories(env):
        zones = len(set(cluster.zone_ids))
        needed = zones * (_size(network.public_prefix) + _size(network.private_prefix))
        if needed > vpc.num_addresses:
            yield error(
                ("network", "cidr"),
                f"it has {vpc.num_addresses:,} addresses, but {zones} zone(s) with a public /{network.public_prefix} and "
                f"a private /{network.private_prefix} subnet each need {needed:,}",
                "write a larger network, for example 10.0.0.0/16, or smaller subnets (a larger public_prefix and private_prefix)",
                engine=cluster.engine.name,
            )


@RULES.add
def public_addresses(env: Environment) -> Iterator[Problem]:
    if env.network.existing:
        return
    if not any(IPv4Network(env.network.cidr).subnet_of(n) for n in PRIVATE):
        yield warning(
            ("network", "cidr"),
            "these are public addresses: nodes will not be able to reach their owners on the internet",
            f"use a network in {join_words(PRIVATE[:3], 'or')}",
        )


@RULES.refuse("VPC user guide, subnet-sizing: in the VPC; ParallelCluster, QueueSubnetsValidator: none twice")
def subnet_outside_vpc(env: Environment) -> Iterator[Problem]:
    existing = env.network.existing
    if not existing:
        return
    both = [("private_subnets", i, s) for i, s in enumerate(existing.private_subnets)]
    both += [("public_subnets", i, s) for i, s in enumerate(existing.public_subnets)]
    for name, i, subnet in both:
        if subnet.cidr and not any(IPv4Network(subnet.cidr).subnet_of(IPv4Network(own)) for own in existing.cidr):
            yield error(
                ("network", "existing", name, i, "cidr"),
                f"it is not inside the VPC's network {join_words(existing.cidr, 'or')}",
                "correct this cidr, or list every network of the VPC: network.existing.cidr: [<primary>, <secondary>]",
            )
    for place in duplicates(s.id for _, _, s in both):
        name, i, subnet = both[place]
        yield error(
            ("network", "existing", name, i, "id"),
            "this subnet is listed twice",
            "list each subnet once, as private or as public",
        )


@dataclass
class _Subnet:
    """The use of addresses in one subnet. always: addresses of nodes that always run."""

    size: int
    text: str
    at: KeyPath
    nodes: int = 0
    always: int = 0
    node_addresses: int = 0
    others: dict[str, int] = field(default_factory=dict)

    @property
    def needed(self) -> int:
        return self.node_addresses + sum(self.others.values())

    @property
    def usable(self) -> int:
        return self.size - RESERVED


@RULES.refuse("VPC user guide, subnet-sizing: AWS reserves five addresses of each")
def small_subnet(env: Environment) -> Iterator[Problem]:
    for cluster in inventories(env):
        for zone, subnet in _private_subnets(cluster).items():
            if subnet.needed > subnet.usable:
                yield _too_many(cluster, zone, subnet)


def _too_many(cluster: Inventory, zone: str, subnet: _Subnet) -> Problem:
    # the longest prefix with enough addresses: a power of two that covers the highest address
    prefix = 32 - (subnet.needed + RESERVED - 1).bit_length()
    more = subnet.node_addresses - subnet.nodes
    each = f" ({more:,} more addresses, {cluster.address_use})" if more else ""
    others = join_words(f"{n} for {what}" for what, n in subnet.others.items())
    own = cluster.env.network.existing is None
    level, when = (error, "") if subnet.always > subnet.usable else (warning, " if all run at once")
    return level(
        subnet.at,
        f"the private subnet of {zone} has {subnet.usable:,} addresses ({subnet.size:,}; AWS reserves {RESERVED} of them), "
        f"but {subnet.nodes:,} nodes{each} and {others} need {subnet.needed:,}{when}",
        (f"write private_prefix: {prefix}" if own and prefix >= 16 else "use a larger subnet") + ", or lower max_nodes",
        value=subnet.text,
        engine=cluster.engine.name,
    )


def _private_subnets(cluster: Inventory) -> dict[str, _Subnet]:
    """The private subnets of known size by zone, with the maximum number of addresses that each use needs there."""
    env, network = cluster.env, cluster.env.network
    subnets: dict[str, _Subnet] = {}
    if network.existing:
        for i, s in enumerate(network.existing.private_subnets):
            if s.cidr and s.zone_id not in subnets:
                at: KeyPath = ("network", "existing", "private_subnets", i, "cidr")
                subnets[s.zone_id] = _Subnet(IPv4Network(s.cidr).num_addresses, s.cidr, at)
    else:
        for zone in cluster.zone_ids:
            at = ("network", "private_prefix")
            subnets[zone] = _Subnet(_size(network.private_prefix), f"/{network.private_prefix}", at)
    for part in cluster.parts:
        if part.nodes and (subnet := subnets.get(part.zone or "")):
            subnet.nodes += part.most
            subnet.always += part.count * part.addresses
            subnet.node_addresses += part.most * part.addresses
    efs, fsx = env.storage.efs, env.storage.fsx
    interfaces = 0 if network.existing else len(set(network.interface_endpoints) - GATEWAY_ENDPOINTS)
    for zone, subnet in subnets.items():
        first = zone == cluster.zone_ids[0]
        others = {
            **{
                part.plural: part.most * part.addresses
                for part in cluster.parts
                if not part.nodes and (first or part.zones == "every")
            },
            "the EFS mount target": int(efs is not None and efs.existing is None),
            # its servers: one for metadata, and one for each 1200 GiB
            "FSx": 1 + fsx.capacity_gib // 1200 if first and fsx and not fsx.existing else 0,
            "interface endpoints": interfaces,
        }
        subnet.others = {what: n for what, n in others.items() if n}
    return subnets


def _size(prefix: int) -> int:
    return 1 << (32 - prefix)
