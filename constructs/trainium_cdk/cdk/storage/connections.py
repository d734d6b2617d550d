"""The connections of several kinds of file servers, each with its own ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from aws_cdk import aws_ec2 as ec2

from trainium_cdk.cdk.helpers.groups import allow_both
from trainium_cdk.description.settings.storage import SERVER_PORTS


@cache
def ports_of(kind: str) -> Sequence[ec2.Port]:
    """The ports that clients of a type of file system need."""
    return [
        *(getattr(ec2.Port, protocol)(port) for protocol, port in SERVER_PORTS[kind]),
        *([ec2.Port.tcp_range(1018, 1023)] if kind == "fsx-lustre" else []),  # FSx user guide, 2026-11
    ]


@dataclass(frozen=True)
class Servers:
    """File servers, the ports they serve, and the protocol's name for the rules' descriptions."""

    connections: ec2.Connections
    ports: Sequence[ec2.Port]
    what: str


class ServerConnections(ec2.Connections):
    """Connections whose default port means every port of every server, in both directions.

    From the other side (`client.connections.allow_to_default_port(storage)`) the CDK takes a single port: with several, it raises an error.
    """

    def __init__(self, servers: Sequence[Servers]) -> None:
        groups = [group for each in servers for group in each.connections.security_groups]
        ports = [port for each in servers for port in each.ports]
        default = ports[0] if len(ports) == 1 else None
        super().__init__(security_groups=groups, default_port=default)
        self._servers_of_all = servers

    def allow_default_port_from(self, other: ec2.IConnectable, description: str | None = None) -> None:
        """Let `other` use the file systems."""
        # Both directions: Lustre's servers connect to their clients, and ParallelCluster rejects an EFS mount target whose group
        # does not also allow outgoing NFS to the nodes.
        for each in self._servers_of_all:
            for port in each.ports:
                allow_both(each.connections, other, port, description or each.what)

    def allow_clients(self, clients: ec2.IConnectable) -> None:
        """The same. Where the file systems are in another stack, the rules are in the clients' stack, which depends on it."""
        for each in self._servers_of_all:
            for port in each.ports:
                allow_both(clients, each.connections, port, each.what, out_first=True)

    def allow_default_port_from_any_ipv4(self, description: str | None = None) -> None:
        """Let every IPv4 address that reaches the subnets use the file systems."""
        self.allow_default_port_from(ec2.Peer.any_ipv4(), description)
