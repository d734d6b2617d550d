"""VPC endpoints: AWS services reached without leaving the VPC."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk._cdk.groups import ClosedGroup
from trainium_cdk.catalog.constants import GATEWAY_ENDPOINTS

# Services that nodes call only with their own role. Not: CloudFormation (nodes sign as the instance, not as a role), STS (web
# identities have no account) or ECR (its layers come from AWS's own bucket)
OWN_PRINCIPALS_ONLY = (
    "autoscaling",
    "ec2",
    "ec2messages",
    "logs",
    "monitoring",
    "secretsmanager",
    "ssm",
    "ssmmessages",
)


def add_endpoints(
    scope: Construct,
    *,
    gateways: Sequence[str],
    interfaces: Sequence[str],
    cidr: str,
    vpc: ec2.IVpc,
    subnets: Sequence[ec2.ISubnet],
    route_tables: Sequence[str],
) -> list[ec2.CfnVPCEndpoint]:
    """Endpoints for services: gateways on every route table, interfaces in every subnet given."""
    services = dict.fromkeys([*gateways, *(s for s in interfaces if s in GATEWAY_ENDPOINTS)])
    endpoints = [
        ec2.CfnVPCEndpoint(
            scope,
            f"Endpoint{_camel(service)}",
            vpc_id=vpc.vpc_id,
            vpc_endpoint_type="Gateway",
            service_name=f"com.amazonaws.{Stack.of(scope).region}.{service}",
            route_table_ids=list(route_tables),
        )
        for service in services
    ]
    rest = [s for s in dict.fromkeys(interfaces) if s not in GATEWAY_ENDPOINTS]
    if not rest:
        return endpoints
    https = ec2.CfnSecurityGroup.IngressProperty(
        ip_protocol="tcp", from_port=443, to_port=443, cidr_ip=cidr, description="HTTPS from the VPC"
    )
    group = ClosedGroup(
        scope,
        "EndpointGroup",
        vpc_id=vpc.vpc_id,
        description="HTTPS from the VPC to its interface endpoints",
        ingress=(https,),
    ).group
    endpoints += [
        ec2.CfnVPCEndpoint(
            scope,
            f"Endpoint{_camel(service)}",
            vpc_id=vpc.vpc_id,
            vpc_endpoint_type="Interface",
            service_name=_service_name(service),
            subnet_ids=[s.subnet_id for s in subnets],
            security_group_ids=[group.security_group_id],
            private_dns_enabled=True,
            policy_document=_own_principals() if service in OWN_PRINCIPALS_ONLY else None,
        )
        for service in rest
    ]
    return endpoints


def _service_name(service: str) -> str:
    # Route 53 is a global service, also in its endpoint's name. The CDK knows which names differ in China
    return "com.amazonaws.route53" if service == "route53" else ec2.InterfaceVpcEndpointAwsService(service).name


def _own_principals() -> iam.PolicyDocument:
    """Only principals of this account: credentials of another one cannot carry data out through the endpoint."""
    return iam.PolicyDocument(
        statements=[
            iam.PolicyStatement(
                principals=[iam.AnyPrincipal()],
                actions=["*"],
                resources=["*"],
                conditions={"StringEquals": {"aws:PrincipalAccount": Aws.ACCOUNT_ID}},
            )
        ]
    )


def _camel(service: str) -> str:
    return "".join(part.capitalize() for part in service.replace(".", "-").split("-"))
