"""VPC endpoints: AWS services reached without leaving the VPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import Aws, Fn
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk.cdk.helpers.groups import ClosedGroup
from trainium_cdk.cdk.helpers.names import camel
from trainium_cdk.cdk.helpers.permissions import allow
from trainium_cdk.cdk.helpers.stack_wide import once, place_of
from trainium_cdk.description.catalog.constants import AWS_BUCKETS, CLOUDFORMATION_BUCKETS, GATEWAY_ENDPOINTS

WITHOUT_POLICY = frozenset({"route53"})
"""Services whose endpoint may not take a policy; one that does not would fail the deployment."""


def add_endpoints(
    scope: Construct,
    *,
    gateways: Sequence[str],
    interfaces: Sequence[str],
    cidr: str,
    vpc: ec2.IVpc,
    subnets: Sequence[ec2.ISubnet],
    route_tables: Sequence[str],
    closed: bool,
) -> list[ec2.CfnVPCEndpoint]:
    """Endpoints for services: gateways on every route table, interfaces in every subnet given.

    Args:
        closed: the network has no other way out: then gateways have a policy, too. Elsewhere it would only stop the use of other accounts'
            buckets, as data can leave by the internet.
    """

    def endpoint(service: str, kind: str, name: str, **properties: Any) -> ec2.CfnVPCEndpoint:
        id = f"Endpoint{camel(service)}"
        return ec2.CfnVPCEndpoint(
            scope, id, vpc_id=once(vpc, "vpc_id"), vpc_endpoint_type=kind, service_name=name, **properties
        )

    region, tables = place_of(scope).region, list(route_tables)
    services = dict.fromkeys([*gateways, *(s for s in interfaces if s in GATEWAY_ENDPOINTS)])
    endpoints = [
        endpoint(
            service,
            "Gateway",
            f"com.amazonaws.{region}.{service}",
            route_table_ids=tables,
            policy_document=_policy(service) if closed else None,
        )
        for service in services
    ]
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
            policy_document=None if service in WITHOUT_POLICY else _policy(service),
        )
        for service in rest
    ]


def _service_name(service: str) -> str:
    # Route 53 is a global service, also in its endpoint's name. The CDK knows which names differ in China
    return "com.amazonaws.route53" if service == "route53" else ec2.InterfaceVpcEndpointAwsService(service).name


_WITHOUT_PRINCIPAL = {
    "cloudformation": ("cloudformation:*", "cloudformation:{region}:{account}:stack/*"),  # signed as the instance
    "sts": ("sts:AssumeRoleWithWebIdentity", "iam::{account}:role/*"),
}
"""Requests of nodes that have no principal: action, and the resources of this account."""


def _policy(service: str) -> iam.PolicyDocument:
    """Only principals of this account: credentials of another one cannot carry data out through the endpoint.

    In S3 are packages and image layers of AWS's own, which are read without a principal, and answers to CloudFormation.
    """
    anyone = iam.AnyPrincipal()
    statements = [allow("*", "*", to=anyone, conditions={"StringEquals": {"aws:PrincipalAccount": Aws.ACCOUNT_ID}})]
    if service in _WITHOUT_PRINCIPAL:
        action, resource = _WITHOUT_PRINCIPAL[service]
        own = resource.format(region=Aws.REGION, account=Aws.ACCOUNT_ID)
        statements.append(allow(f"arn:{Aws.PARTITION}:{own}", action, to=anyone))
    if service == "s3":
        statements += [
            allow(_objects(AWS_BUCKETS), "s3:GetObject", to=anyone),
            allow(_objects(CLOUDFORMATION_BUCKETS), "s3:PutObject", to=anyone),
        ]
    return iam.PolicyDocument(statements=statements)


def _objects(buckets: Sequence[str]) -> list[str]:
    names = {"region": Aws.REGION, "joined": Fn.join("", Fn.split("-", Aws.REGION))}
    return [f"arn:{Aws.PARTITION}:s3:::{bucket.format(**names)}/*" for bucket in buckets]
