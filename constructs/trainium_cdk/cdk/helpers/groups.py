"""Security groups that allow only the given traffic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from trainium_cdk.cdk.helpers.paths import below_stack, name_by
from trainium_cdk.cdk.helpers.stack_wide import StackPart, once, share

Egress = ec2.CfnSecurityGroup.EgressProperty
NO_EGRESS = Egress(
    ip_protocol="icmp", from_port=252, to_port=86, cidr_ip="255.255.255.255/32", description="No traffic"
)
"""Matches no traffic. A group without an egress rule would allow all egress."""


def https_out(description: str) -> tuple[Egress]:
    """Only HTTPS, to every address."""
    return (Egress(ip_protocol="tcp", from_port=443, to_port=443, cidr_ip="0.0.0.0/0", description=description),)


class ClosedGroup(StackPart):
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
        share(scope, self.group, "stack")


def allow_among(group: ec2.ISecurityGroup, port: ec2.Port, description: str) -> None:
    """Let members connect to each other: a rule in each direction."""
    with own_ids(group, group):
        once(group, "connections").allow_internally(port, description)


def allow_from(own: ec2.IConnectable, other: ec2.IConnectable, port: ec2.Port, description: str) -> None:
    """Let the other connect to one's own. The rules are in one's own stack."""
    _allow(["allow_from"], own, other, port, description)


def allow_both(
    own: ec2.IConnectable, other: ec2.IConnectable, port: ec2.Port, description: str, *, out_first: bool = False
) -> None:
    """Let both connect to each other. The rules are in one's own stack."""
    ways = ["allow_from", "allow_to"]
    _allow(ways[::-1] if out_first else ways, own, other, port, description)


def _allow(
    methods: Sequence[str], own: ec2.IConnectable, other: ec2.IConnectable, port: ec2.Port, description: str
) -> None:
    ours, theirs = (once(each, "connections") for each in (own, other))
    pairs = list(product(ours.security_groups, theirs.security_groups))
    for method in methods:
        for group, peer in pairs:
            with own_ids(group, peer):
                getattr(once(group, "connections"), method)(peer, port, description)
        getattr(ours, method)(other, port, description)  # addresses, and groups that are added later


@contextmanager
def own_ids(group: ec2.ISecurityGroup, peer: ec2.ISecurityGroup) -> Iterator[None]:
    """Give the rules that are made meanwhile logical ids of ours. The CDK's have the whole path of the other group: a stack that moves
    below a stage would create its rules again, which EC2 refuses."""
    pairs = [(group, peer)] if group is peer else [(group, peer), (peer, group)]
    nodes = [once(scope, "node") for scope, _ in pairs]
    before = [len(node.children) for node in nodes]
    yield
    for node, count, (scope, other) in zip(nodes, before, pairs, strict=True):
        for rule in node.children[count:]:  # the order is that of their creation
            if isinstance(rule, ec2.CfnSecurityGroupIngress | ec2.CfnSecurityGroupEgress):
                id = rule.node.id.replace(once(other, "unique_id"), below_stack(other))
                name_by(rule, below_stack(scope), id)
