"""`TrnPeering`: a peering connection with routes on both sides."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import CfnOutput, Stack, Token
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from trainium_cdk import settings as trn


class TrnPeering(Construct):
    """A peering connection to another VPC: requested, accepted, and routed on both sides.

    CloudFormation accepts for a VPC of this account in any region, and for another account's through a role there. The other side's route tables get their route here only in the same account and region. What is left for a person is an
    output with the command that does it.

    Args:
        settings: An entry of `network.peerings`.
        vpc_id: Our VPC.
        cidr: Its IPv4 network: where the other side's routes lead.
        route_table_ids: Our route tables by a name for each; every one gets a route to the other side.

    Raises:
        ValueError: the other VPC is in another account, and no role accepts for it.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: trn.Peering,
        vpc_id: str,
        cidr: str,
        route_table_ids: Mapping[str, str],
    ) -> None:
        super().__init__(scope, id)
        self._settings, self._stack = settings, Stack.of(self)
        if self._other_account and not settings.accepter_role:
            raise ValueError(
                f"the VPC {settings.vpc_id} of a peering belongs to account {settings.account}, and CloudFormation fails where "
                "nobody accepts for it: give network.peerings[].accepter_role, an IAM role there that trusts this account "
                "with ec2:AcceptVpcPeeringConnection"
            )
        self.connection = ec2.CfnVPCPeeringConnection(
            self,
            "Resource",
            vpc_id=vpc_id,
            peer_vpc_id=settings.vpc_id,
            peer_owner_id=settings.account,
            peer_region=settings.region,
            peer_role_arn=settings.accepter_role,
        )
        for name, table in route_table_ids.items():
            self._route(f"To{name}", table, settings.cidr)
        if not route_table_ids:
            self._command(
                "Routes",
                "Our route tables are not known: run this for each of them",
                f"aws ec2 create-route --region {self._stack.region} --route-table-id <OUR_ROUTE_TABLE> "
                f"--destination-cidr-block {settings.cidr} --vpc-peering-connection-id {self.connection.ref}",
            )
        if self._other_account or self._other_region or not settings.route_tables:
            tables = settings.route_tables or ("<THEIR_ROUTE_TABLE>",)
            for i, table in enumerate(tables):
                self._command(
                    f"RouteBack{i or ''}",
                    f"Adds the route back to us on the side of {settings.vpc_id}",
                    f"aws ec2 create-route --region {self._peer_region} --route-table-id {table} "
                    f"--destination-cidr-block {cidr} --vpc-peering-connection-id {self.connection.ref}",
                )
        else:
            for table in settings.route_tables:
                self._route(f"From{table}", table, cidr)

    @property
    def _other_account(self) -> bool:
        return _differs(self._settings.account, self._stack.account)

    @property
    def _other_region(self) -> bool:
        return _differs(self._settings.region, self._stack.region)

    @property
    def _peer_region(self) -> str:
        return self._settings.region or self._stack.region

    def _route(self, id: str, table: str, to: str) -> None:
        ec2.CfnRoute(
            self,
            id,
            route_table_id=table,
            destination_cidr_block=to,
            vpc_peering_connection_id=self.connection.ref,
        )

    def _command(self, id: str, description: str, command: str) -> None:
        CfnOutput(self, id, value=command, description=description)


def _differs(given: str | None, ours: str) -> bool:
    """Whether a given account or region is another than the stack's; one given to an agnostic stack is taken to be."""
    return given is not None and (Token.is_unresolved(ours) or given != ours)
