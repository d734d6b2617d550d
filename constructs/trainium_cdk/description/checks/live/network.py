"""Existing networks: the environment's own VPC, if it exists already, and peered VPCs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Network
from typing import Any

from trainium_cdk.description.checks import check
from trainium_cdk.description.checks.live.account import stack
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, join_words
from trainium_cdk.description.settings import ExistingSubnet, Peering
from trainium_cdk.problems import KeyPath

Subnets = dict[str, dict[str, Any] | None]
_ASSOCIATED = "associated"
_FLAGS = {"enableDnsSupport": "enable-dns-support", "enableDnsHostnames": "enable-dns-hostnames"}


@dataclass(frozen=True)
class Existing:
    """An existing VPC as AWS describes it.

    Attributes:
        dns: enableDnsSupport and enableDnsHostnames.
        tables: route table of each private subnet by subnet id: its own, or the VPC's main table.
        endpoints: the VPC's endpoints.
        deployed: whether the stack exists, so that its nodes may have some of the addresses.
    """

    vpc: dict[str, Any] | None = None
    subnets: Subnets = field(default_factory=dict)
    dns: dict[str, bool] = field(default_factory=dict)
    tables: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    endpoints: Sequence[dict[str, Any]] = ()
    deployed: bool = False


def evaluate_vpc(target: CheckTarget, state: Existing) -> Found:
    vpc, dns, tables = state.vpc, state.dns, state.tables
    existing = target.env.network.existing
    if existing is None:
        return
    at: KeyPath = ("network", "existing")
    what = f"VPC {existing.vpc_id}"
    if vpc is None:
        reason = f"this VPC does not exist in {target.env.region}"
        yield target.about(what, *at, "vpc_id").error("none", reason, "correct the id or the region")
        return
    subject, networks = target.about(what, *at, "cidr"), [str(n) for n in _networks(vpc)]
    own = f"the environment has cidr: {join_words(existing.cidr)}"
    fix = f"write network.existing.cidr: {_written(networks)}"
    if not set(existing.cidr) <= set(networks):
        yield subject.error(join_words(networks), own, fix)
    elif set(networks) - set(existing.cidr):
        yield subject.warning(join_words(networks), f"{own}: overlaps with the others are not checked", fix)
    else:
        yield subject.ok(join_words(existing.cidr), "matches the environment")
    for attribute, on in dns.items():
        if not on:
            fix = f"aws ec2 modify-vpc-attribute --vpc-id {existing.vpc_id} --{_FLAGS[attribute]}"
            reason = "nodes, file systems and endpoints need DNS in the VPC"
            yield target.about(what).error(f"{attribute}: false", reason, fix)
    for name in ("private_subnets", "public_subnets"):
        for i, subnet in enumerate(getattr(existing, name)):
            yield from _subnet(target, subnet, state, (*at, name, i))
    for i, subnet in enumerate(existing.private_subnets if existing.internet else ()):
        if subnet.id in tables:
            yield from _default_route(target, subnet, tables[subnet.id], (*at, "private_subnets", i))
    if tables and not existing.internet:
        yield from _endpoints(target, state, (*at, "internet"))


def _endpoints(target: CheckTarget, state: Existing, at: KeyPath) -> Found:
    """Judge the endpoints by the rules for a new network without a NAT gateway. A gateway endpoint must be in each route table."""
    tables = [table or {} for table in state.tables.values()]
    used = {table.get("RouteTableId") for table in tables}
    usable = [e for e in state.endpoints if e.get("PrivateDnsEnabled") or used <= set(e.get("RouteTableIds", ()))]
    names = sorted(e["ServiceName"].partition(f".{target.env.region}.")[2] for e in usable)
    given = {"existing": None, "nat": "none", "interface_endpoints": tuple(names), "s3_endpoint": "s3" in names}
    env = target.env.model_copy(update={"network": target.env.network.model_copy(update=given)})
    ways = {str(route.get("GatewayId", "other")).partition("-")[0] for t in tables for route in t.get("Routes", ())}
    subject, fix = target.about("VPC endpoints", *at), "create them in this VPC, with private DNS names"
    say = subject.error if ways <= {"local", "vpce"} else subject.warning  # other ways may lead to endpoints
    for problem in check(env, target.engine):
        if problem.level == "error" and problem.key[-1] in ("interface_endpoints", "s3_endpoint"):
            yield say(join_words(names), problem.reason, fix)


def _subnet(target: CheckTarget, ours: ExistingSubnet, state: Existing, at: KeyPath) -> Found:
    what, theirs = f"subnet {ours.id}", state.subnets[ours.id]
    table = (state.tables.get(ours.id) or {}).get("RouteTableId", ours.route_table)
    if theirs is None:
        yield target.about(what, *at, "id").error("none", "this subnet does not exist", "correct the id")
        return
    existing = target.env.network.existing
    pairs = (
        ("vpc_id", existing.vpc_id if existing else "", theirs["VpcId"]),
        ("zone_id", ours.zone_id, theirs["AvailabilityZoneId"]),
        ("cidr", ours.cidr or theirs["CidrBlock"], theirs["CidrBlock"]),
        ("route_table", ours.route_table or table, table),
    )
    different = [(name, mine, real) for name, mine, real in pairs if mine != real]
    for name, mine, real in different:
        reason, fix = f"the environment has {name}: {mine}", f"write {name}: {real}"
        yield target.about(what, *at, name).error(real, reason, fix)
    if different or existing is None or "private_subnets" not in at:
        return
    zone, free = ours.zone_id, int(theirs["AvailableIpAddressCount"])
    subject, value = target.about(what, *at), f"{free:,} free addresses"
    if ours.id != next(s.id for s in existing.private_subnets if s.zone_id == zone):
        yield subject.ok(value, f"in {zone}, whose nodes are in the first of its subnets")
        return
    # at least one address for each node; the offline rules count all other addresses
    nodes = sum(f.resource.max_nodes for f in target.nodes if target.inventory.zone_of(f.queue) == zone)
    if free < nodes:
        reason = f"up to {nodes:,} nodes need an address there, and other resources use the rest"
        fix = "use a subnet with more free addresses, or lower max_nodes"
        if state.deployed:
            yield subject.warning(value, f"{reason}; nodes of this stack that run now have theirs already", fix)
        else:
            yield subject.error(value, reason, fix)
    else:
        yield subject.ok(value, f"in {zone}, for up to {nodes:,} nodes")


def _default_route(target: CheckTarget, subnet: ExistingSubnet, table: dict[str, Any] | None, at: KeyPath) -> Found:
    """Check the default route of a private subnet with `internet: true`."""
    routes = [r for r in (table or {}).get("Routes", []) if r.get("DestinationCidrBlock") == "0.0.0.0/0"]
    usable = [r for r in routes if r.get("State") != "blackhole" and not str(r.get("GatewayId", "")).startswith("igw-")]
    if not usable:
        state = "its default route leads to an internet gateway, or is a blackhole" if routes else "no default route"
        yield target.about(f"subnet {subnet.id}", *at).error(
            state,
            "nodes without public addresses cannot reach the internet from there: the cluster's creation would time out",
            "route 0.0.0.0/0 to a NAT gateway, a transit gateway or a firewall, or write network.existing.internet: false",
        )


def _table(aws: Aws, vpc: str, subnet: str) -> dict[str, Any] | None:
    for name, value in (("association.subnet-id", subnet), ("association.main", "true")):
        filters = [{"Name": name, "Values": [value]}, {"Name": "vpc-id", "Values": [vpc]}]
        if tables := aws("ec2:DescribeRouteTables", Filters=filters)["RouteTables"]:
            table: dict[str, Any] = tables[0]
            return table
    return None


def fetch_vpc(target: CheckTarget, aws: Aws) -> Existing:
    existing = target.env.network.existing
    if existing is None:
        return Existing()
    every = (*existing.private_subnets, *existing.public_subnets)
    subnets = {s.id: aws.first("ec2:DescribeSubnets", "Subnets", SubnetIds=[s.id]) for s in every}
    vpc = _vpc(aws, existing.vpc_id, None)
    if vpc is None:
        return Existing(None, subnets)
    ask = partial(aws, "ec2:DescribeVpcAttribute", VpcId=existing.vpc_id)
    dns = {name: bool(ask(Attribute=name)[name[0].upper() + name[1:]]["Value"]) for name in _FLAGS}
    present = [s.id for s in existing.private_subnets if subnets[s.id]]
    tables = {name: _table(aws, existing.vpc_id, name) for name in present}
    of_vpc = [{"Name": "vpc-id", "Values": [existing.vpc_id]}]
    endpoints = aws("ec2:DescribeVpcEndpoints", Filters=of_vpc)["VpcEndpoints"]
    return Existing(vpc, subnets, dns, tables, endpoints, stack(target, aws) is not None)


@dataclass(frozen=True)
class Peer:
    """The other side of a peering as AWS describes it. `tables` has the route tables that the environment names."""

    vpc: dict[str, Any] | None
    tables: dict[str, dict[str, Any] | None]


def _reachable(target: CheckTarget) -> list[tuple[int, Peering]]:
    """The peers that these credentials can read: those in the same account."""
    ours = {None, target.env.account, target.account}
    return [(i, p) for i, p in enumerate(target.env.network.peerings) if p.account in ours]


def evaluate_peers(target: CheckTarget, peers: dict[int, Peer], exists: bool = False) -> Found:
    network = target.env.network
    ours = [IPv4Network(own) for own in network.vpc_cidrs]
    readable = dict(_reachable(target))
    for i, peer in enumerate(network.peerings):
        at: KeyPath = ("network", "peerings", i)
        what = f"peer {peer.vpc_id}"
        if i not in readable:
            reason = f"it is in account {peer.account}, which these credentials cannot read"
            yield target.about(what).info(join_words(peer.cidr), reason)
            continue
        answer = peers[i]
        if answer.vpc is None:
            reason = f"this VPC does not exist in {peer.region or target.env.region}"
            yield target.about(what, *at, "vpc_id").error("none", reason, "correct the id")
            continue
        problems = [*_overlaps(target, peer, answer, ours, at), *_tables(target, peer, answer, ours, at, exists)]
        yield from problems
        if not problems:
            yield target.about(what).ok(join_words(_networks(answer.vpc)), f"does not overlap with {join_words(ours)}")


def _overlaps(target: CheckTarget, peer: Peering, answer: Peer, ours: list[IPv4Network], at: KeyPath) -> Found:
    assert answer.vpc is not None  # noqa: S101  checked by the caller
    networks, subject = _networks(answer.vpc), target.about(f"peer {peer.vpc_id}", *at, "cidr")
    for network, own in itertools.product(networks, ours):
        if network.overlaps(own):
            reason = f"it overlaps with this environment's {own}: AWS rejects the peering"
            yield subject.error(network, reason, "write another network.cidr, for example 10.1.0.0/16")
    for cidr in peer.cidr:
        if not any(IPv4Network(cidr).subnet_of(n) for n in networks):
            reason = f"the environment has cidr: {cidr}, so that routes would not lead to this VPC"
            yield subject.error(join_words(networks), reason, f"write cidr: {_written(networks)}")


def _tables(
    target: CheckTarget, peer: Peering, answer: Peer, ours: list[IPv4Network], at: KeyPath, exists: bool
) -> Found:
    for i, name in enumerate(peer.route_tables):
        table, subject = answer.tables[name], target.about(f"route table {name}", *at, "route_tables", i)
        if table is None or table["VpcId"] != peer.vpc_id:
            reason = f"it is not a route table of {peer.vpc_id}"
            yield subject.error(table["VpcId"] if table else "none", reason, "use a route table of the other VPC")
            continue
        routed = {r.get("DestinationCidrBlock") for r in table.get("Routes", [])}
        for own in [own for own in map(str, ours) if own in routed and not exists]:
            yield subject.error(
                own,
                "it already has a route to this environment's network, left from another peering",
                f"aws ec2 delete-route --route-table-id {name} --destination-cidr-block {own}",
            )


def fetch_peers(target: CheckTarget, aws: Aws) -> tuple[dict[int, Peer], bool]:
    peers = {}
    for i, peer in _reachable(target):
        tables = {
            name: aws.first("ec2:DescribeRouteTables", "RouteTables", region=peer.region, RouteTableIds=[name])
            for name in peer.route_tables
        }
        peers[i] = Peer(_vpc(aws, peer.vpc_id, peer.region), tables)
    return peers, stack(target, aws) is not None


def _vpc(aws: Aws, name: str, region: str | None) -> dict[str, Any] | None:
    return aws.first("ec2:DescribeVpcs", "Vpcs", region=region, VpcIds=[name])


def _written(networks: Sequence[object]) -> str:
    """Networks as an environment file has them."""
    return str(networks[0]) if len(networks) == 1 else f"[{', '.join(map(str, networks))}]"


def _networks(vpc: dict[str, Any]) -> list[IPv4Network]:
    """Its networks, the primary one first; not those that are being removed."""
    associated = vpc.get("CidrBlockAssociationSet", [])
    blocks = [
        b["CidrBlock"] for b in associated if b.get("CidrBlockState", {}).get("State", _ASSOCIATED) == _ASSOCIATED
    ]
    return [IPv4Network(b) for b in dict.fromkeys((vpc["CidrBlock"], *blocks))]


_DESCRIBED = ("Vpcs", "VpcAttribute", "Subnets", "RouteTables", "VpcEndpoints")
CHECKS: tuple[Check[Any], ...] = (
    Check(
        "existing-vpc",
        (*(f"ec2:Describe{what}" for what in _DESCRIBED), "cloudformation:DescribeStacks"),
        fetch_vpc,
        evaluate_vpc,
        lambda t: t.env.network.existing is not None,
    ),
    Check(
        "peerings",
        ("ec2:DescribeVpcs", "ec2:DescribeRouteTables", "cloudformation:DescribeStacks"),
        fetch_peers,
        lambda target, answer: evaluate_peers(target, *answer),
        lambda t: bool(t.env.network.peerings),
    ),
)
