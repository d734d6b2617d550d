"""VPC endpoints: AWS services reached without leaving the VPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import Aws, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk._cdk.groups import ClosedGroup
from trainium_cdk._cdk.names import camel
from trainium_cdk._cdk.permissions import allow
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

    def endpoint(service: str, kind: str, name: str, **properties: Any) -> ec2.CfnVPCEndpoint:
        id = f"Endpoint{camel(service)}"
        return ec2.CfnVPCEndpoint(scope, id, vpc_id=vpc.vpc_id, vpc_endpoint_type=kind, service_name=name, **properties)

    region, tables = Stack.of(scope).region, list(route_tables)
    services = dict.fromkeys([*gateways, *(s for s in interfaces if s in GATEWAY_ENDPOINTS)])
    endpoints = [endpoint(s, "Gateway", f"com.amazonaws.{region}.{s}", route_table_ids=tables) for s in services]
    rest = [s for s in dict.fromkeys(interfaces) if s not in GATEWAY_ENDPOINTS]
    if not rest:
        return endpoints
    https = ec2.CfnSecurityGroup.IngressProperty(
        ip_protocol="tcp", from_port=443, to_port=443, cidr_ip=cidr, description="HTTPS from the VPC"
    )
    what = "HTTPS from the VPC to its interface endpoints"
    group = ClosedGroup(scope, "EndpointGroup", vpc_id=vpc.vpc_id, description=what, ingress=(https,)).group
    return endpoints + [
        endpoint(
            service,
            "Interface",
            _service_name(service),
            subnet_ids=[s.subnet_id for s in subnets],
            security_group_ids=[group.security_group_id],
            private_dns_enabled=True,
            policy_document=_own_principals() if service in OWN_PRINCIPALS_ONLY else None,
        )
        for service in rest
    ]


def _service_name(service: str) -> str:
    # Route 53 is a global service, also in its endpoint's name. The CDK knows which names differ in China
    return "com.amazonaws.route53" if service == "route53" else ec2.InterfaceVpcEndpointAwsService(service).name


def _own_principals() -> iam.PolicyDocument:
    """Only principals of this account: credentials of another one cannot carry data out through the endpoint."""
    own = {"StringEquals": {"aws:PrincipalAccount": Aws.ACCOUNT_ID}}
    return iam.PolicyDocument(statements=[allow("*", "*", to=iam.AnyPrincipal(), conditions=own)])
