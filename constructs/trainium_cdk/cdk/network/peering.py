"""`TrnPeering`: a peering connection with routes on both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Aws, CfnOutput, Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.rules import unresolved
from trainium_cdk.cdk.network.rules import check_peering
from trainium_cdk.description.settings import Peering


class TrnPeering(Checked):
    """A peering connection to another VPC: requested, accepted, and routed on both sides.

    CloudFormation accepts the connection for a VPC of this account in any region, and of another account through a role there.
    The other side's route tables get a route only in the same account and region. For each remaining manual step, an output has
    the command.

    Example:
        TrnPeering(self, "Data", vpc=vpc, peer=settings.Peering(vpc_id="vpc-0123456789abcdef0", cidr="10.1.0.0/16"))

    Args:
        vpc: The VPC on this side.
        peer: The VPC on the other side. `peer.accepter_role` may be the ARN of an `iam.IRole`.
        cidr: Its IPv4 network, or several: the destinations of the other side's routes. Default: the primary one of `vpc`.
        route_table_ids: Its route tables by name; each gets a route to the other side. Default: the tables
            of the private subnets of `vpc`, or of the isolated ones if it has none.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        ValueError: the other VPC is in another account, and `peer.accepter_role` is not given; or the network of an imported VPC is not known.
    """

    connection_id: str

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        peer: Peering,
        cidr: str | Sequence[str] | None = None,
        route_table_ids: Mapping[str, str] | None = None,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        stack, ours, theirs = Stack.of(self), _several(cidr or _network(self, vpc)), peer.cidr
        if rules:
            check_peering(self, ours, peer)
        if route_table_ids is None:
            route_table_ids = _private_tables(vpc)
        other_account, other_region = (
            _differs(peer.account, stack.account, Aws.ACCOUNT_ID),
            _differs(peer.region, stack.region, Aws.REGION),
        )
        if other_account and not peer.accepter_role:
            raise ValueError(
                f"{self.node.path}: the VPC {peer.vpc_id} belongs to account {peer.account}, and CloudFormation fails without a role "
                "that accepts the peering: give peer.accepter_role, the ARN of an IAM role there that trusts this account with "
                "ec2:AcceptVpcPeeringConnection"
            )
        connection = ec2.CfnVPCPeeringConnection(
            self,
            "Resource",
            vpc_id=vpc.vpc_id,
            peer_vpc_id=peer.vpc_id,
            peer_owner_id=peer.account,
            peer_region=peer.region,
            peer_role_arn=peer.accepter_role,
        )
        self.connection_id = connection.ref
        # a route table that subnets share gets one route
        for table, name in {table: name for name, table in reversed(list(route_table_ids.items()))}.items():
            self._routes(f"To{name}", table, theirs)
        if not route_table_ids:
            self._commands(
                "Routes",
                "Our route tables are not known: run this for each of them",
                f"aws ec2 create-route --region {stack.region} --route-table-id <OUR_ROUTE_TABLE>",
                theirs,
            )
        if other_account or other_region or not peer.route_tables:
            for i, table in enumerate(peer.route_tables or ("<THEIR_ROUTE_TABLE>",)):
                self._commands(
                    f"RouteBack{i or ''}",
                    f"Adds the route back to us on the side of {'the peer' if unresolved(peer.vpc_id) else peer.vpc_id}",
                    f"aws ec2 create-route --region {peer.region or stack.region} --route-table-id {table}",
                    ours,
                )
        else:
            for i, table in enumerate(peer.route_tables):
                self._routes(f"From{i if unresolved(table) else table}", table, ours)

    def _routes(self, id: str, table: str, to: Sequence[str]) -> None:
        for name, cidr in _named(id, to).items():
            ec2.CfnRoute(
                self,
                name,
                route_table_id=table,
                destination_cidr_block=cidr,
                vpc_peering_connection_id=self.connection_id,
            )

    def _commands(self, id: str, description: str, command: str, to: Sequence[str]) -> None:
        for name, cidr in _named(id, to).items():
            way = f"--destination-cidr-block {cidr} --vpc-peering-connection-id {self.connection_id}"
            CfnOutput(self, name, value=f"{command} {way}", description=description)


def _several(networks: str | Sequence[str]) -> Sequence[str]:
    return (networks,) if isinstance(networks, str) else networks


def _named(id: str, networks: Sequence[str]) -> dict[str, str]:
    """Networks by the id of what leads there: the first one has the given id, so that another one can join it."""
    return {f"{id}Network{i}" if i else id: cidr for i, cidr in enumerate(networks)}


def _network(construct: Construct, vpc: ec2.IVpc) -> str:
    try:
        return vpc.vpc_cidr_block
    except RuntimeError:  # jsii's, for an attribute that is undefined
        raise ValueError(
            f"{construct.node.path}: the network of {vpc.node.path}, an imported VPC, is not known: give cidr, or vpc_cidr_block of "
            "Vpc.from_vpc_attributes"
        ) from None


def _private_tables(vpc: ec2.IVpc) -> dict[str, str]:
    """Route tables of the private subnets by the subnets' ids, or of the isolated ones if there are none; empty if the VPC was
    imported without them."""
    try:
        subnets = vpc.private_subnets or vpc.isolated_subnets
        return {subnet.node.id: subnet.route_table.route_table_id for subnet in subnets}
    except RuntimeError:  # jsii's, for an attribute that is undefined
        return {}


def _differs(given: str | None, *ours: str) -> bool:
    """Return whether an account or region differs from the stack's own names for it: value and pseudo parameter. In an agnostic stack, plain text
    counts as another one."""
    return given is not None and given not in ours
