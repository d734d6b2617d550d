"""`TrnPeering`: a peering connection with routes on both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from aws_cdk import Aws, CfnOutput, Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from trainium_cdk import settings as trn
from trainium_cdk._cdk.rules import refuse_tokens, unresolved
from trainium_cdk._cdk.types import AnyRole
from trainium_cdk.network.rules import check_peering
from trainium_cdk.settings.cdk_types import LIST_TOKEN


class RoutedNetwork(Protocol):
    """The parts of a `TrnNetwork` that a peering connection uses."""

    vpc: ec2.IVpc
    cidrs: Sequence[str]
    route_table_ids: dict[str, str]


class TrnPeering(Construct):
    """A peering connection to another VPC: requested, accepted, and routed on both sides.

    CloudFormation accepts the connection for a VPC of this account in any region, and of another account through a role there.
    The other side's route tables get a route only in the same account and region. For each remaining manual step, an output has
    the command.

    Example:
        TrnPeering(self, "Data", vpc=vpc, cidr="10.0.0.0/16", peer_vpc_id="vpc-0123456789abcdef0", peer_cidr="10.1.0.0/16")

    Args:
        vpc: The VPC on this side.
        cidr: Its IPv4 network, or several: the destinations of the other side's routes. Default: the primary one of `vpc`.
        route_table_ids: Its route tables by name; each gets a route to the other side. Default: those of the
            private subnets of `vpc`, or of the isolated ones if it has none.
        peer_vpc_id: The VPC on the other side.
        peer_cidr: Its IPv4 network, or several: the destinations of this side's routes.
        peer_account: Its owner. Default: this account.
        peer_region: Its region. Default: this region.
        peer_route_table_ids: Route tables on the other side that get a route back (same account and region; else see
            the outputs). Default: none.
        accepter_role: IAM role in the other account that lets CloudFormation accept the connection. Default: none.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        ValueError: the other VPC is in another account, and `accepter_role` is not given; or the network of an imported VPC is not known.
    """

    connection_id: str

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        peer_vpc_id: str,
        peer_cidr: str | Sequence[str],
        cidr: str | Sequence[str] | None = None,
        route_table_ids: Mapping[str, str] | None = None,
        peer_account: str | None = None,
        peer_region: str | None = None,
        peer_route_table_ids: Sequence[str] = (),
        accepter_role: AnyRole | str | None = None,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        refuse_tokens(self, peer_route_table_ids=[each for each in peer_route_table_ids if LIST_TOKEN in each])
        stack, ours, theirs = Stack.of(self), _several(cidr or _network(self, vpc)), _several(peer_cidr)
        if rules:
            check_peering(self, ours, theirs)
        if route_table_ids is None:
            route_table_ids = _private_tables(vpc)
        other_account, other_region = (
            _differs(peer_account, stack.account, Aws.ACCOUNT_ID),
            _differs(peer_region, stack.region, Aws.REGION),
        )
        if other_account and not accepter_role:
            raise ValueError(
                f"{self.node.path}: the VPC {peer_vpc_id} belongs to account {peer_account}, and CloudFormation fails without a role "
                "that accepts the peering: give accepter_role, an IAM role there that trusts this account with "
                "ec2:AcceptVpcPeeringConnection"
            )
        connection = ec2.CfnVPCPeeringConnection(
            self,
            "Resource",
            vpc_id=vpc.vpc_id,
            peer_vpc_id=peer_vpc_id,
            peer_owner_id=peer_account,
            peer_region=peer_region,
            peer_role_arn=accepter_role if isinstance(accepter_role, str | None) else accepter_role.role_arn,
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
        if other_account or other_region or not peer_route_table_ids:
            for i, table in enumerate(peer_route_table_ids or ("<THEIR_ROUTE_TABLE>",)):
                self._commands(
                    f"RouteBack{i or ''}",
                    f"Adds the route back to us on the side of {'the peer' if unresolved(peer_vpc_id) else peer_vpc_id}",
                    f"aws ec2 create-route --region {peer_region or stack.region} --route-table-id {table}",
                    ours,
                )
        else:
            for i, table in enumerate(peer_route_table_ids):
                self._routes(f"From{i if unresolved(table) else table}", table, ours)

    @classmethod
    def from_settings(cls, scope: Construct, id: str, settings: trn.Peering, *, network: RoutedNetwork) -> TrnPeering:
        """An entry of `network.peerings` of an environment."""
        return cls(
            scope,
            id,
            vpc=network.vpc,
            cidr=network.cidrs,
            route_table_ids=network.route_table_ids,
            peer_vpc_id=settings.vpc_id,
            peer_cidr=settings.cidr,
            peer_account=settings.account,
            peer_region=settings.region,
            peer_route_table_ids=settings.route_tables,
            accepter_role=settings.accepter_role,
            rules=False,  # the whole environment is already checked
        )

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
    """Whether an account or region is none of the stack's own names for it: its value, and the pseudo parameter. In an agnostic
    stack, plain text counts as another one."""
    return given is not None and given not in ours
