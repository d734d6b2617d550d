"""The network: IPv4 addresses of the VPC, its subnets and nodes, the nodes' access to AWS and the internet, and peering with other VPCs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Network

from trainium_cdk.description.catalog.constants import GATEWAY_ENDPOINTS
from trainium_cdk.description.checks.rule import (
    Rules,
    duplicates,
    error,
    info,
    inventories,
    join_words,
    queues,
    warning,
)
from trainium_cdk.description.settings import Environment, Peering, Problem
from trainium_cdk.description.settings.inventory import Inventory
from trainium_cdk.problems import KeyPath
from trainium_cdk.text import is_placeholder

RESERVED = 5
"""Addresses of each subnet that AWS reserves (VPC user guide, 2026-11)."""
VPC_PREFIXES = range(16, 29)
PRIVATE = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
"""Networks that are not routed on the internet (RFC 1918 and RFC 6598)."""
WIDEST_SSH = 8
"""Shortest prefix that may connect to port 22. No user owns a wider network."""

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


def missing_endpoints(env: Environment, needed: Iterable[str], *, engine: str, who: str = "nodes") -> Iterator[Problem]:
    """Find the endpoints that a cluster needs and a new network without a NAT gateway lacks."""
    if env.network.existing or env.network.nat != "none":
        return
    if missing := sorted(set(needed) - set(env.network.interface_endpoints)):
        reason = f"without a NAT gateway {who} cannot reach {join_words(missing)}"
        fix = f"add {join_words(missing)}, or write nat: one"
        yield error(("network", "interface_endpoints"), reason, fix, engine=engine)


def missing_s3_endpoint(env: Environment, *, engine: str) -> Iterator[Problem]:
    """The nodes of Slurm clusters start with scripts in S3."""
    if not (env.network.existing or env.network.nat != "none" or env.network.s3_endpoint):
        reason = "without a NAT gateway nodes need the S3 endpoint, because their start scripts are in S3"
        yield error(("network", "s3_endpoint"), reason, "write s3_endpoint: true, or nat: one", engine=engine)


@RULES.refuse("ParallelCluster user guide, aws-parallelcluster-in-a-single-public-subnet-no-internet-v3: its endpoints")
def nodes_without_aws(env: Environment) -> Iterator[Problem]:
    network, facts = env.network, env.catalog.parallelcluster
    needed = {
        *facts.endpoints,
        *(facts.endpoints_with_accounting if env.pcluster.accounting or env.pcluster.directory else ()),
        *(facts.endpoints_with_login_nodes if env.pcluster.login_nodes else ()),
    }
    yield from missing_endpoints(env, needed, engine="slurm")
    if not network.existing and network.nat == "none" and "monitoring" not in network.interface_endpoints:
        yield info(
            ("network", "interface_endpoints"),
            "without a NAT gateway nodes cannot send metrics to CloudWatch: the head node's memory and disk use is not shown",
            "add monitoring to see it",
            engine="slurm",
        )
    yield from missing_s3_endpoint(env, engine="slurm")


def _without_internet(env: Environment) -> str:
    return "without access to the internet" if env.network.existing else "without a NAT gateway"


@RULES.refuse("stack: the node script ends where it cannot reach Neuron's repositories")
def packages_without_nat(env: Environment) -> Iterator[Problem]:
    if env.network.reaches_internet or env.pcluster.custom_ami:
        return
    allow = "network.existing.internet: true" if env.network.existing else "nat: one"
    for at, queue in queues(env):
        if not queue.custom_ami:
            yield error(
                (*at, "custom_ami"),
                f"{_without_internet(env)} nodes cannot install Neuron, and ParallelCluster's own images do not contain it",
                f"give an image that contains Neuron (`trn image bake`), here or as pcluster.custom_ami for all nodes, or write {allow}",
            )


@RULES.add
def framework_without_nat(env: Environment) -> Iterator[Problem]:
    if env.network.reaches_internet or env.framework == "none":
        return
    yield warning(
        ("bootstrap", "framework"),
        f"{_without_internet(env)} no framework is installed: jobs can only use what the image contains at bootstrap.venv",
        "write framework: none, or make sure that the image contains the framework",
        value=env.framework,
        engine="slurm",
    )


@RULES.refuse("promise: no open SSH")
def open_ssh(env: Environment) -> Iterator[Problem]:
    head = env.pcluster.head
    if not head.ssh:
        if head.subnet == "public":
            yield info(
                ("pcluster", "head", "ssh"),
                "the head node has a public address, but no network may connect to it: SSM Session Manager does not need one",
                "write subnet: private, or set ssh.from_cidrs",
            )
        return
    cidrs = head.ssh.from_cidrs
    if not cidrs:
        yield info(
            ("pcluster", "head", "ssh"),
            "no network may connect: SSH only passes through Session Manager",
            "add ssh.from_cidrs if networks of yours shall connect",
        )
    for i, cidr in enumerate(cidrs):
        if "/" in cidr and not is_placeholder(cidr) and int(cidr.split("/")[1]) < WIDEST_SSH:
            yield error(
                ("pcluster", "head", "ssh", "from_cidrs", i),
                "this opens SSH to a large part of the internet",
                "give your own network, for example 203.0.113.0/24, or use SSM",
            )


@RULES.refuse("VPC peering guide, vpc-peering-basics: no overlap; EC2 API, CreateRoute: one for a network")
def overlapping_peer_networks(env: Environment) -> Iterator[Problem]:
    taken = [("this VPC", IPv4Network(own)) for own in env.network.vpc_cidrs]
    own = "peer another VPC" if env.network.existing else "write another network.cidr, for example 10.1.0.0/16"
    for at, peer in _peers(env):
        theirs = peer.known_networks
        found = ((owner, network) for owner, network in taken if any(network.overlaps(each) for each in theirs))
        for owner, network in itertools.islice(found, 1):
            fix = own if owner == "this VPC" else "route to one of the two"
            if owner == "this VPC" or network in theirs:
                yield error(
                    (*at, "cidr"), f"it overlaps with {network} of {owner}: routes cannot distinguish them", fix
                )
            else:
                text = f"it overlaps with {network} of {owner}: addresses of both go to the one with the longer prefix"
                yield warning((*at, "cidr"), text, f"{fix}, or ignore this")
        taken += [(f"the peering with {peer.vpc_id}", each) for each in theirs]


@RULES.refuse("VPC peering guide, vpc-peering-basics: one connection between two VPCs")
def peer_of_itself(env: Environment) -> Iterator[Problem]:
    existing = env.network.existing
    for at, peer in _peers(env):
        if existing and peer.vpc_id == existing.vpc_id:
            yield error((*at, "vpc_id"), "this is the VPC of this environment", "give the VPC on the other side")
    ids = [p.vpc_id for p in env.network.peerings]
    for i in duplicates(ids):
        yield error(
            ("network", "peerings", i, "vpc_id"),
            "this VPC is listed twice: AWS allows one connection between two VPCs",
            "remove one of the two",
        )


@RULES.refuse("CloudFormation, aws-resource-ec2-vpcpeeringconnection: PeerRoleArn for another account")
def peering_acceptance(env: Environment) -> Iterator[Problem]:
    for at, peer in _peers(env):
        role = peer.accepter_role
        if _other_account(env, peer):
            if not role:
                yield error(
                    (*at, "accepter_role"),
                    f"the VPC belongs to account {peer.account}, and no role can accept the connection there",
                    "give an IAM role of that account that trusts this one with ec2:AcceptVpcPeeringConnection",
                )
            elif _account_of(role) != peer.account:
                yield error(
                    (*at, "accepter_role"),
                    f"the role is in account {_account_of(role)}, but the VPC is in {peer.account}",
                    "give a role of the VPC's account",
                )
        elif role:
            yield warning(
                (*at, "accepter_role"), "within one account the connection is accepted automatically", "remove it"
            )
        if role and ":role/" not in role:
            yield error((*at, "accepter_role"), "this is not an IAM role", "write arn:aws:iam::<account>:role/<name>")


@RULES.refuse("VPC peering guide, vpc-peering-routing: who owns a VPC adds its routes, each once")
def unreachable_route_tables(env: Environment) -> Iterator[Problem]:
    for at, peer in _peers(env):
        elsewhere = [
            f"account {peer.account}" if _other_account(env, peer) else "",
            f"region {peer.region}" if peer.region not in (None, env.region) else "",
        ]
        where = " and ".join(w for w in elsewhere if w)
        if where and peer.route_tables:
            yield error(
                (*at, "route_tables"),
                f"they are in {where}: this stack cannot add routes there",
                "remove them; the stack's outputs give the command that adds each route",
            )
        elif not where and not peer.route_tables:
            yield warning(
                (*at, "route_tables"),
                "the other VPC gets no route back, so it cannot answer",
                "set its route tables, or add the routes with the commands in the stack's outputs",
            )
        for i in duplicates(peer.route_tables):
            yield error((*at, "route_tables", i), "this route table is listed twice", "remove it")


def _peers(env: Environment) -> Iterator[tuple[KeyPath, Peering]]:
    for i, peer in enumerate(env.network.peerings):
        yield ("network", "peerings", i), peer


def _other_account(env: Environment, peer: Peering) -> bool:
    """Return whether the peer is in another account. If the environment has no account, an account of the peer counts as another one."""
    return peer.account is not None and peer.account != env.account


def _account_of(arn: str) -> str:
    return arn.split(":")[4]
