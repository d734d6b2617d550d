"""`TrnEfaSecurityGroup`: the security group that EFA traffic needs."""

from __future__ import annotations

import jsii
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.groups import NO_EGRESS, ClosedGroup, Egress, allow_among
from trainium_cdk.cdk.helpers.stack_wide import once


@jsii.implements(ec2.IConnectable)
class TrnEfaSecurityGroup(Checked):
    """A security group that lets everything through between its members, lets them out to the internet, and lets nothing in from
    elsewhere.

    EFA needs a rule for all protocols from the group to itself in BOTH directions: one that allows all addresses out is not
    enough. (The CDK's own security group leaves the inner rule out when all outbound traffic is allowed; so it is not used.)

    Do not tag the group with `kubernetes.io/cluster/...`: a node may carry only one group with that tag.

    Example:
        efa = TrnEfaSecurityGroup(self, "Efa", vpc=vpc)
        efa.connections.allow_from(bastion, ec2.Port.tcp(22))

    Args:
        vpc: Where the nodes are.
        internet: Lets members out to every address. Default: True, as nodes fetch packages and images.
    """

    def __init__(self, scope: Construct, id: str, *, vpc: ec2.IVpc, internet: bool = True) -> None:
        super().__init__(scope, id)
        everywhere = Egress(ip_protocol="-1", cidr_ip="0.0.0.0/0", description="Packages, images and AWS services")
        group = ClosedGroup(
            self,
            "Group",
            vpc_id=once(vpc, "vpc_id"),
            description="EFA traffic between its members",
            egress=(everywhere if internet else NO_EGRESS,),
        ).group
        allow_among(group, ec2.Port.all_traffic(), "EFA between members")
        self.security_group = group
        """Attach it to every node of the fleet."""

    @property
    def connections(self) -> ec2.Connections:
        """Rules in addition to EFA's: `efa.connections.allow_from(...)`."""
        return self.security_group.connections
