"""`TrnNetwork`: the VPC."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import RemovalPolicy, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct, DependencyGroup

from trainium_cdk import settings as trn
from trainium_cdk._cdk.permissions import service_of_account
from trainium_cdk._cdk.removal import OnDestroy
from trainium_cdk._cdk.removal import removal_policy as policy_of
from trainium_cdk._cdk.retention import RETENTION
from trainium_cdk._cdk.rules import refuse_tokens
from trainium_cdk.network.endpoints import add_endpoints
from trainium_cdk.network.existing import Zoned, by_zone, import_subnets, import_vpc, of_zone
from trainium_cdk.network.peering import TrnPeering
from trainium_cdk.network.rules import check_network
from trainium_cdk.network.subnets import Subnets, default_zones, zone_of


class TrnNetwork(Construct):
    """A VPC with a public and a private subnet in each zone.

    Subnets are placed by zone id (`use1-az4`), which means the same zone in every account, if the stack's region is known and in
    the catalogue; nothing is looked up at synth. Public addresses are not assigned automatically: multi-card instances cannot
    have one. Resources that a construct of the CDK places in a subnet wait for its routes.

    The VPC's default security group keeps its rules: CloudFormation cannot remove them without a Lambda. Nothing here uses it.

    Example:
        network = TrnNetwork(self, "Net")
        eks.Cluster(self, "Cluster", vpc=network.vpc, version=eks.KubernetesVersion.V1_33)

    Args:
        cidr: IPv4 network of the VPC, as plain text. Default: 10.0.0.0/16.
        zone_ids: Availability zones, the fleet's first. Only append to it: a zone's position decides its addresses.
            Default: `max_azs` zones of the stack's region, those with the most Trainium types first; in a region without
            catalogue entry, or an agnostic stack, the first zones of the account.
        max_azs: Number of zones if `zone_ids` is not given. Default: 2.
        public_cidr_mask: Prefix length of each public subnet. Default: 24.
        private_cidr_mask: Prefix length of each private subnet. Default: 20.
        nat_gateways: Number of NAT gateways; 0 for none (then give the interface endpoints that nodes need). Default: 1.
        s3_endpoint: Gateway endpoint for S3: free, and keeps data off the NAT gateway. Default: True.
        interface_endpoints: AWS services reached inside the VPC, for example "ssm" or "ecr.dkr". Default: none.
        flow_logs: Record the VPC's traffic in a log group of the stack. Default: True.
        flow_log_retention: Default: a year.
        name: Prefix of the Name tags. Default: trn.
        removal_policy: For the flow logs on `cdk destroy`. Default: DESTROY.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        ValueError: the subnets do not fit the network, a zone is given twice, or an argument that is needed now is a token.
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
    """The peering connections of an environment's network."""
    _private: Zoned
    _public: Zoned

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cidr: str = "10.0.0.0/16",
        zone_ids: Sequence[str] = (),
        max_azs: int = 2,
        public_cidr_mask: int = 24,
        private_cidr_mask: int = 20,
        nat_gateways: int = 1,
        s3_endpoint: bool = True,
        interface_endpoints: Sequence[str] = (),
        flow_logs: bool = True,
        flow_log_retention: logs.RetentionDays = logs.RetentionDays.ONE_YEAR,
        name: str = "trn",
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        refuse_tokens(self, zone_ids=zone_ids, max_azs=max_azs, nat_gateways=nat_gateways)
        refuse_tokens(self, interface_endpoints=interface_endpoints)
        if rules:
            sizes = {"public_prefix": public_cidr_mask, "private_prefix": private_cidr_mask}
            check_network(self, cidr, sizes, zone_ids, interface_endpoints)
        zones = [zone_of(zone) for zone in zone_ids] if zone_ids else default_zones(self, max_azs)
        planned = trn.plan_subnets(
            trn.Network.model_construct(cidr=cidr, public_prefix=public_cidr_mask, private_prefix=private_cidr_mask),
            [zone.key for zone in zones],
        )
        resource = ec2.CfnVPC(self, "Resource", cidr_block=cidr, enable_dns_hostnames=True, enable_dns_support=True)
        Tags.of(resource).add("Name", f"{name}-vpc")
        subnets = Subnets(
            self,
            "Subnets",
            vpc_id=resource.ref,
            zones=zones,
            planned=planned,
            nat_gateways=min(nat_gateways, len(zones)),
            name=name,
        )
        self.cidrs, self.route_table_ids, self.peerings = (cidr,), subnets.route_table_ids, []
        self.vpc, self._private, self._public = import_subnets(self, resource, subnets, cidr)
        endpoints = add_endpoints(
            self,
            gateways=["s3"] if s3_endpoint else [],
            interfaces=interface_endpoints,
            cidr=cidr,
            vpc=self.vpc,
            subnets=self.private_subnets,
            route_tables=list(subnets.route_table_ids.values()),
        )
        self.internet_ready = ready = DependencyGroup(subnets.internet_ready, *endpoints)
        for subnet in (*self.private_subnets, *self.public_subnets):
            established = subnet.internet_connectivity_established
            assert isinstance(established, DependencyGroup)  # noqa: S101  what the CDK's imported subnets have
            established.add(ready)
        if flow_logs:
            _record_traffic(self, self.vpc, flow_log_retention, removal_policy)

    @classmethod
    def from_settings(
        cls,
        scope: Construct,
        id: str,
        settings: trn.Network | None = None,
        *,
        zone_ids: Sequence[str] = (),
        name: str = "trn",
        on_destroy: OnDestroy = "delete",
    ) -> TrnNetwork:
        """The network of the `network` section of a checked environment: a new or an existing VPC.

        Args:
            zone_ids: Availability zones, the fleet's first. Not used with `settings.existing`, whose subnets have their own.
            on_destroy: For the flow logs on `cdk destroy`.
        """
        settings = settings or trn.Network()
        if settings.existing:
            network: TrnNetwork = ExistingNetwork(scope, id, existing=settings.existing)
        else:
            zone_ids = zone_ids or settings.zone_ids
            network = cls(
                scope,
                id,
                cidr=settings.cidr,
                zone_ids=zone_ids,
                public_cidr_mask=settings.public_prefix,
                private_cidr_mask=settings.private_prefix,
                nat_gateways={"none": 0, "one": 1, "per-zone": len(zone_ids)}[settings.nat],
                s3_endpoint=settings.s3_endpoint,
                interface_endpoints=settings.interface_endpoints,
                flow_logs=settings.flow_logs,
                flow_log_retention=RETENTION[settings.flow_log_days],
                name=name,
                removal_policy=policy_of(on_destroy),
                rules=False,
            )
        network.peerings = [
            TrnPeering.from_settings(network, f"Peering{peer.vpc_id}", peer, network=network)
            for peer in settings.peerings
        ]
        return network

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


class ExistingNetwork(TrnNetwork):
    """An existing VPC, with its subnets by zone id. Nothing is created."""

    def __init__(self, scope: Construct, id: str, *, existing: trn.ExistingVpc) -> None:
        Construct.__init__(self, scope, id)
        self.cidrs, self.peerings, self.internet_ready = existing.cidr, [], DependencyGroup()
        self.vpc = import_vpc(self, existing)
        # a zone's subnet is the first one given
        self._private = by_zone(existing.private_subnets, self.vpc.private_subnets)
        self._public = by_zone(existing.public_subnets, self.vpc.public_subnets)
        named = (*existing.private_subnets, *existing.public_subnets)
        self.route_table_ids = {s.route_table: s.route_table for s in named if s.route_table}


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
        resource_id=vpc.vpc_id,
        resource_type="VPC",
        traffic_type="ALL",
        log_group_name=group.log_group_name,
        deliver_logs_permission_arn=role.role_arn,
    )
    granted.apply_before(log)
