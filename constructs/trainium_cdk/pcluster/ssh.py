"""SSH to the head node and the login nodes: the key pair, and the networks that may connect."""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from trainium_cdk.cluster_configuration.config import NO_ADDRESS
from trainium_cdk.settings import Environment


def key_pair(scope: Construct, environment: Environment) -> ec2.CfnKeyPair | None:
    """A new key pair; None without SSH, or with an existing one."""
    ssh = environment.pcluster.head.ssh
    if ssh is None or ssh.key_name:
        return None
    return ec2.CfnKeyPair(scope, "Key", key_name=environment.cluster_name, key_type="ed25519")


def ssh_source(scope: Construct, environment: Environment) -> str:
    """The CIDR, or a new prefix list for several, that may connect."""
    ssh = environment.pcluster.head.ssh
    if ssh is None:
        return NO_ADDRESS
    if len(ssh.from_cidrs) == 1:
        return ssh.from_cidrs[0]
    networks = ec2.CfnPrefixList(
        scope,
        "SshSources",
        prefix_list_name=f"{environment.cluster_name}-ssh",
        address_family="IPv4",
        # a multiple of ten: EC2 does not change the size and the entries in one update
        max_entries=-(-len(ssh.from_cidrs) // 10) * 10,
        entries=[ec2.CfnPrefixList.EntryProperty(cidr=cidr) for cidr in ssh.from_cidrs],
    )
    return networks.attr_prefix_list_id
