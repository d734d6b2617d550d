"""`TrnNetwork`: the VPC."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import RemovalPolicy, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct, DependencyGroup

from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.permissions import service_of_account
from trainium_cdk.cdk.helpers.rules import refuse_tokens
from trainium_cdk.cdk.helpers.stack_wide import once
from trainium_cdk.cdk.network.endpoints import add_endpoints
from trainium_cdk.cdk.network.existing import Zoned, by_zone, import_subnets, import_vpc, of_zone
from trainium_cdk.cdk.network.peering import TrnPeering
from trainium_cdk.cdk.network.rules import check_network
from trainium_cdk.cdk.network.subnets import Subnets, default_zones, zone_of
from trainium_cdk.description.settings import ExistingVpc, Network, plan_subnets


class TrnNetwork(Checked):
    """A VPC with a public and a private subnet in each zone.

    Subnets are placed by zone id (`use1-az4`), which means the same zone in every account, if the stack's region is known and in
    the catalogue; nothing is looked up at synth. Public addresses are not assigned automatically: multi-card instances cannot
    have one. Resources that a construct of the CDK places in a subnet wait for its routes.

    The VPC's default security group keeps its rules: CloudFormation cannot remove them without a Lambda. Nothing here uses it.

    Example:
        network = TrnNetwork(self, "Net", network=settings.Network(nat="per-zone"))
        eks.Cluster(self, "Cluster", vpc=network.vpc, version=eks.KubernetesVersion.V1_33)

    Args:
        network: Its addresses, zones, ways out and peerings; or a VPC that exists, in which nothing is created. A zone's position
            decides its addresses: only append to `zone_ids`. Default: 10.0.0.0/16 with one NAT gateway.
        max_azs: Number of zones if `network.zone_ids` is empty: zones of the stack's region, those with the most Trainium types first;
            in a region without catalogue entry, or an agnostic stack, the first zones of the account. Default: 2.
        name: Prefix of the Name tags. Default: trn.
        log_retention: How long the flow logs are kept. Default: a year.
        removal_policy: For the flow logs on `cdk destroy`. Default: DESTROY.
        rules: Whether to check `network` with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        SettingsError: the size is none of a VPC, or a zone is given twice.
        ValueError: the subnets do not fit the network, or `max_azs` is less than one, or a token.
    """

    vpc: ec2.IVpc
    """The VPC, for any construct of the CDK."""
    cidrs: Sequence[str]
    """Its IPv4 networks, the primary one first."""
    route_table_ids: dict[str, str]
    """Its known route tables, by name."""
    internet_ready: DependencyGroup
    """Everything that a node needs to reach the internet or the AWS endpoints: gateways, routes, associations. Constructs of the
    CDK in a subnet wait for it; plain Cfn resources do not."""
    peerings: list[TrnPeering]
    """The connections to `network.peerings`."""
    _private: Zoned
    _public: Zoned

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        network: Network = Network.model_construct(),  # noqa: B008  frozen
        max_azs: int = 2,
        name: str = "trn",
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_YEAR,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        refuse_tokens(self, max_azs=max_azs)
        if rules:
            check_network(self, network)
        if network.existing:
            self._import(network.existing)
        else:
            self._create(network, max_azs, name)
            if network.flow_logs:
                _record_traffic(self, self.vpc, log_retention, removal_policy)
        self.peerings = [
            TrnPeering(
                self,
                f"Peering{peer.vpc_id}",
                vpc=self.vpc,
                peer=peer,
                cidr=self.cidrs,
                route_table_ids=self.route_table_ids,
                rules=False,
            )
            for peer in network.peerings
        ]

    def _create(self, settings: Network, max_azs: int, name: str) -> None:
        zones = [zone_of(zone) for zone in settings.zone_ids] or default_zones(self, max_azs)
        try:
            planned = plan_subnets(settings, [zone.key for zone in zones])
        except ValueError as e:
            raise ValueError(f"{self.node.path}: {e}") from None
        cidr = settings.cidr
        resource = ec2.CfnVPC(self, "Resource", cidr_block=cidr, enable_dns_hostnames=True, enable_dns_support=True)
        Tags.of(resource).add("Name", f"{name}-vpc")
        subnets = Subnets(
            self,
            "Subnets",
            vpc_id=once(resource, "ref"),
            zones=zones,
            planned=planned,
            nat_gateways={"none": 0, "one": 1, "per-zone": len(zones)}[settings.nat],
            name=name,
        )
        self.cidrs, self.route_table_ids = (cidr,), subnets.route_table_ids
        self.vpc, self._private, self._public = import_subnets(self, resource, subnets, cidr)
        endpoints = add_endpoints(
            self,
            gateways=["s3"] if settings.s3_endpoint else [],
            interfaces=tuple(dict.fromkeys(settings.interface_endpoints)),
            cidr=cidr,
            vpc=self.vpc,
            subnets=self.private_subnets,
            route_tables=list(subnets.route_table_ids.values()),
            closed=settings.nat == "none",
        )
        self.internet_ready = ready = DependencyGroup(subnets.internet_ready, *endpoints)
        for subnet in (*self.private_subnets, *self.public_subnets):
            established = once(subnet, "internet_connectivity_established")
            assert isinstance(established, DependencyGroup)  # noqa: S101  what the CDK's imported subnets have
            established.add(ready)

    def _import(self, existing: ExistingVpc) -> None:
        self.cidrs, self.internet_ready = existing.cidr, DependencyGroup()
        self.vpc = import_vpc(self, existing)
        # a zone's subnet is the first one given
        self._private = by_zone(existing.private_subnets, self.vpc.private_subnets)
        self._public = by_zone(existing.public_subnets, self.vpc.public_subnets)
        named = (*existing.private_subnets, *existing.public_subnets)
        self.route_table_ids = {s.route_table: s.route_table for s in named if s.route_table}

    def private_subnet(self, zone_id: str | None = None) -> ec2.ISubnet:
        """The private subnet of a zone; of the first zone by default.

        Raises:
            ValueError: the network has no such subnet.
        """
        return of_zone(self._private, zone_id, "private", self)

    def public_subnet(self, zone_id: str | None = None) -> ec2.ISubnet:
        """The public subnet of a zone; of the first zone by default. Raises as `private_subnet` does."""
        return of_zone(self._public, zone_id, "public", self)

    @property
    def cidr(self) -> str:
        """The VPC's primary IPv4 network."""
        return self.cidrs[0]

    @property
    def zone_ids(self) -> list[str]:
        """The zones that have a private subnet, the fleet's first; `zone1`, `zone2`... if their ids are not known."""
        return list(self._private)

    @property
    def private_subnets(self) -> list[ec2.ISubnet]:
        """One private subnet of each zone."""
        return list(self._private.values())

    @property
    def public_subnets(self) -> list[ec2.ISubnet]:
        """One public subnet of each zone that has one."""
        return list(self._public.values())


def _record_traffic(
    scope: Construct, vpc: ec2.IVpc, retention: logs.RetentionDays, removal_policy: RemovalPolicy
) -> None:
    """Record all traffic in a log group of the stack."""
    group = logs.LogGroup(scope, "FlowLogGroup", retention=retention, removal_policy=removal_policy)
    role = iam.Role(scope, "FlowLogRole", assumed_by=service_of_account(scope, "vpc-flow-logs.amazonaws.com"))
    # no logs:CreateLogGroup: late records must not create a deleted group again
    granted = iam.Grant.add_to_principal(
        grantee=role,
        actions=["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
        resource_arns=[group.log_group_arn],
    )
    log = ec2.CfnFlowLog(
        scope,
        "FlowLog",
        resource_id=once(vpc, "vpc_id"),
        resource_type="VPC",
        traffic_type="ALL",
        log_group_name=group.log_group_name,
        deliver_logs_permission_arn=role.role_arn,
    )
    granted.apply_before(log)
