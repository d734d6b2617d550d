"""Peering with other VPCs: networks that do not overlap, and acceptance and routes on the other side."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from ipaddress import IPv4Network

from trainium_cdk.description.checks.rule import Rules, duplicates, error, warning
from trainium_cdk.description.settings import Environment, Peering, Problem
from trainium_cdk.problems import KeyPath

RULES = Rules()


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
