"""The security groups around the Kubernetes API."""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from constructs import Construct, DependencyGroup

from trainium_cdk._cdk.groups import ClosedGroup, Egress


class ApiGroups:
    """The control plane's group, and one whose members reach the API; both below `scope`.

    Attributes:
        control: The control plane's own.
        clients: Its members reach the API.
        ready: The groups with their rules.
    """

    def __init__(self, scope: Construct, vpc_id: str) -> None:
        control = ClosedGroup(
            scope, "ControlGroup", vpc_id=vpc_id, description="The Kubernetes API: HTTPS from clients"
        )
        out = Egress(ip_protocol="tcp", from_port=443, to_port=443, cidr_ip="0.0.0.0/0", description="AWS, registries")
        clients = ClosedGroup(
            scope, "ClientGroup", vpc_id=vpc_id, description="Members reach the Kubernetes API", egress=(out,)
        )
        control.group.connections.allow_from(clients.group, ec2.Port.tcp(443), "Kubernetes API")
        self.control, self.clients = control.group, clients.group
        self.ready = DependencyGroup(control, clients)
