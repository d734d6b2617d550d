"""`TrnNetwork`: the VPC."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct, DependencyGroup, IDependable

from trainium_cdk import settings as trn
from trainium_cdk.network.endpoints import add_endpoints
from trainium_cdk.network.existing import import_vpc
from trainium_cdk.network.peering import TrnPeering
from trainium_cdk.network.subnets import Subnets
from trainium_cdk.removal import OnDestroy, removal_policy


class TrnNetwork(Construct):
    """A VPC with a public and a private subnet in each zone, or one that exists.

    Subnets are placed by zone id (`use1-az4`), which means the same place in every account; nothing is looked up at synth, so the
    stack may be environment-agnostic. Nothing gets a public address by itself: multi-card instances cannot have one.

    The VPC's default security group keeps its rules: CloudFormation cannot remove them without a Lambda. Nothing here uses it.

    Args:
        settings: The `network` part of an environment. Default: a /16 with one NAT gateway, S3 endpoint and flow logs.
        zone_ids: Availability zones, the fleet's first. Append only: a zone's place in the list decides its addresses. Not
            used with `settings.existing`, whose subnets say their zones.
        name: Prefix of the Name tags.
        on_destroy: What becomes of the flow logs on `cdk destroy`. Default: deleted.

    Raises:
        ValueError: the subnets do not fit the network (see `plan_subnets`).
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: trn.Network | None = None,
        zone_ids: Sequence[str] = (),
        name: str = "trn",
        on_destroy: OnDestroy = "delete",
    ) -> None:
        super().__init__(scope, id)
        settings = settings or trn.Network()
        self._ready = DependencyGroup()
        self._private: dict[str, ec2.ISubnet] = {}
        self._public: dict[str, ec2.ISubnet] = {}
        self._made: tuple[ec2.CfnVPC, Subnets] | None = None
        self.vpc: ec2.IVpc
        """The VPC, for any construct of the CDK. What must reach the internet also depends on `internet_ready`."""
        self.cidr: str
        """Its IPv4 network."""
        self.route_table_ids: dict[str, str]
        """Its route tables that are known here, by a name for each."""
        if settings.existing:
            self._import(settings.existing)
        else:
            self._create(settings, zone_ids, name, on_destroy)
        self.peerings = [
            TrnPeering(self, f"Peering{peer.vpc_id}", settings=peer, vpc_id=self.vpc.vpc_id, cidr=self.cidr,
                       route_table_ids=self.route_table_ids)
            for peer in settings.peerings
        ]  # fmt: skip

    def private_subnet(self, zone_id: str | None = None) -> ec2.ISubnet:
        """The private subnet of a zone; of the first zone where none is named.

        Raises:
            ValueError: the network has no such subnet.
        """
        return _of_zone(self._private, zone_id, "private", self.node.path)

    def public_subnet(self, zone_id: str | None = None) -> ec2.ISubnet:
        """The public subnet of a zone; of the first zone where none is named. Raises as `private_subnet` does."""
        return _of_zone(self._public, zone_id, "public", self.node.path)

    def keep_subnet(self, zone_id: str) -> None:
        """Keep the private subnet of a zone, and the VPC, on `cdk destroy`: what stays in a subnet does not let it go.

        The rest of the network goes. Does nothing in a VPC that exists.
        """
        if self._made:
            vpc, subnets = self._made
            for resource in (vpc, subnets.private[zone_id]):
                resource.apply_removal_policy(removal_policy("keep"))

    @property
    def zone_ids(self) -> list[str]:
        """The zones that have a private subnet, the fleet's first."""
        return list(self._private)

    @property
    def private_subnets(self) -> list[ec2.ISubnet]:
        """One private subnet of each zone."""
        return list(self._private.values())

    @property
    def public_subnets(self) -> list[ec2.ISubnet]:
        """One public subnet of each zone that has one."""
        return list(self._public.values())

    @property
    def internet_ready(self) -> IDependable:
        """Everything a node needs to reach the internet or the AWS endpoints: gateways, routes, associations.

        A resource that only needs the subnets (a control plane) does better without: it need not wait for the NAT gateway.
        """
        return self._ready

    def _import(self, existing: trn.ExistingVpc) -> None:
        self.cidr = existing.cidr
        self.vpc = import_vpc(self, existing)
        # the first subnet named of a zone is the zone's
        for found, given, imported in (
            (self._private, existing.private_subnets, self.vpc.private_subnets),
            (self._public, existing.public_subnets, self.vpc.public_subnets),
        ):
            for subnet, construct in zip(given, imported, strict=True):
                found.setdefault(subnet.zone_id, construct)
        tables = dict.fromkeys(
            s.route_table for s in (*existing.private_subnets, *existing.public_subnets) if s.route_table
        )
        self.route_table_ids = {table: table for table in tables}

    def _create(self, settings: trn.Network, zone_ids: Sequence[str], name: str, on_destroy: OnDestroy) -> None:
        planned = trn.plan_subnets(settings, zone_ids)
        vpc = ec2.CfnVPC(self, "Resource", cidr_block=settings.cidr, enable_dns_hostnames=True, enable_dns_support=True)
        Tags.of(vpc).add("Name", f"{name}-vpc")
        made = Subnets(self, "Subnets", vpc_id=vpc.ref, planned=planned, nat=settings.nat, name=name)
        self._made = vpc, made
        self._ready.add(made.internet_ready)
        self.cidr = settings.cidr
        self.route_table_ids = made.route_table_ids
        self.vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id=vpc.ref,
            vpc_cidr_block=settings.cidr,
            # the zones' names, which CloudFormation learns from the subnets as it makes them
            availability_zones=[s.attr_availability_zone for s in made.private.values()],
            private_subnet_ids=[s.ref for s in made.private.values()],
            private_subnet_route_table_ids=[made.route_table_ids[z] for z in made.private],
            public_subnet_ids=[s.ref for s in made.public.values()],
            public_subnet_route_table_ids=[made.route_table_ids["public"] for _ in made.public],
        )
        self._private = dict(zip(made.private, self.vpc.private_subnets, strict=True))
        self._public = dict(zip(made.public, self.vpc.public_subnets, strict=True))
        self._ready.add(
            *add_endpoints(
                self,
                settings,
                vpc=self.vpc,
                subnets=self.private_subnets,
                route_tables=list(made.route_table_ids.values()),
            )
        )
        if settings.flow_logs:
            self._record_traffic(settings.flow_log_days, on_destroy)

    def _record_traffic(self, days: int, on_destroy: OnDestroy) -> None:
        group = logs.CfnLogGroup(self, "FlowLogGroup", retention_in_days=days)
        group.apply_removal_policy(removal_policy(on_destroy))
        role = iam.Role(self, "FlowLogRole", assumed_by=iam.ServicePrincipal("vpc-flow-logs.amazonaws.com"))
        # no logs:CreateLogGroup: late records must not bring a deleted group back
        granted = iam.Grant.add_to_principal(
            grantee=role,
            actions=["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
            resource_arns=[group.attr_arn],
        )
        log = ec2.CfnFlowLog(
            self,
            "FlowLog",
            resource_id=self.vpc.vpc_id,
            resource_type="VPC",
            traffic_type="ALL",
            log_group_name=group.ref,
            deliver_logs_permission_arn=role.role_arn,
        )
        granted.apply_before(log)


def _of_zone(subnets: dict[str, ec2.ISubnet], zone_id: str | None, kind: str, path: str) -> ec2.ISubnet:
    zone_id = zone_id or next(iter(subnets), None)
    if zone_id not in subnets:
        known = ", ".join(subnets) or "none"
        raise ValueError(
            f"{path} has no {kind} subnet in zone {zone_id} (zones with one: {known}): "
            f"add {zone_id or 'a zone'} to network.zone_ids, or the subnet to network.existing.{kind}_subnets"
        )
    return subnets[zone_id]
