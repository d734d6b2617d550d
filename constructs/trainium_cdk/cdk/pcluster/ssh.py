"""SSH to the head node and the login nodes: the key pair, and the networks that may connect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from trainium_cdk.cdk.helpers.groups import ClosedGroup
from trainium_cdk.description.cluster_configuration import NO_ADDRESS
from trainium_cdk.description.settings import Environment


class SshAccess(NamedTuple):
    """Access to port 22: the one CIDR or prefix list that ParallelCluster takes, and a security group for all others."""

    source: str
    groups: tuple[str, ...]


def key_pair(scope: Construct, environment: Environment) -> ec2.CfnKeyPair | None:
    """A new key pair; None without SSH, or with an existing one."""
    ssh = environment.pcluster.head.ssh
    if ssh is None or ssh.key_name:
        return None
    return ec2.CfnKeyPair(scope, "Key", key_name=environment.cluster_name, key_type="ed25519")


def ssh_access(scope: Construct, environment: Environment, vpc: ec2.IVpc, peers: Sequence[ec2.IPeer]) -> SshAccess:
    """The networks and prefix lists of the environment, and any other peers."""
    ssh = environment.pcluster.head.ssh
    named = dict.fromkeys(ssh.from_cidrs if ssh else ())
    lists = [source for source in named if source.startswith("pl-")]
    networks = [source for source in named if source not in lists]
    if len(networks) > 1:
        networks = [_prefix_list(scope, environment.cluster_name, networks)]
    first, *others = [*networks, *lists] or [NO_ADDRESS]
    peers = [*map(ec2.Peer.prefix_list, others), *peers]
    return SshAccess(first, (_group(scope, vpc, peers),) if peers else ())


def _prefix_list(scope: Construct, name: str, networks: Sequence[str]) -> str:
    made = ec2.CfnPrefixList(
        scope,
        "SshSources",
        prefix_list_name=f"{name}-ssh",
        address_family="IPv4",
        # a multiple of ten: EC2 does not change the size and the entries in one update
        max_entries=-(-len(networks) // 10) * 10,
        entries=[ec2.CfnPrefixList.EntryProperty(cidr=cidr) for cidr in networks],
    )
    return made.attr_prefix_list_id


def _group(scope: Construct, vpc: ec2.IVpc, peers: Sequence[ec2.IPeer]) -> str:
    group = ClosedGroup(scope, "SshGroup", vpc_id=vpc.vpc_id, description="SSH to the head node and the login nodes")
    for peer in peers:
        group.group.add_ingress_rule(peer, ec2.Port.SSH, "SSH", False)
    return group.group.security_group_id
