"""Security groups that allow only the given traffic."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

Egress = ec2.CfnSecurityGroup.EgressProperty
NO_EGRESS = Egress(
    ip_protocol="icmp", from_port=252, to_port=86, cidr_ip="255.255.255.255/32", description="No traffic"
)
"""Matches no traffic. A group without an egress rule would allow all egress."""


def https_out(description: str) -> tuple[Egress]:
    """Only HTTPS, to every address."""
    return (Egress(ip_protocol="tcp", from_port=443, to_port=443, cidr_ip="0.0.0.0/0", description=description),)


class ClosedGroup(Construct):
    """A security group whose rules for other groups are separate resources, so that two groups may refer to each other.

    The CDK's own group removes its placeholder rule as soon as it has such a rule, and then depends on CloudFormation to remove
    EC2's allow-all rule. This one always has explicit rules.

    Args:
        egress: Allowed egress to addresses. Default: none.
        ingress: Allowed ingress from addresses. Default: none.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc_id: str,
        description: str,
        ingress: Sequence[ec2.CfnSecurityGroup.IngressProperty] = (),
        egress: Sequence[Egress] = (NO_EGRESS,),
    ) -> None:
        super().__init__(scope, id)
        self.resource = ec2.CfnSecurityGroup(
            self,
            "Resource",
            vpc_id=vpc_id,
            group_description=description,
            security_group_ingress=list(ingress) or None,
            security_group_egress=list(egress),
        )
        self.group = ec2.SecurityGroup.from_security_group_id(
            self, "Group", self.resource.attr_group_id, allow_all_outbound=False
        )
        """The group, for any construct of the CDK: rules added to it are resources below this construct."""
