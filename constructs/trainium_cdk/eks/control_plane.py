"""The control plane: its resource and role, and the security groups around the Kubernetes API."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct, DependencyGroup

from trainium_cdk._cdk.acknowledged import aws_policies
from trainium_cdk._cdk.groups import ClosedGroup, allow_from, https_out
from trainium_cdk._cdk.permissions import service_of_account

_LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
_Cluster = eks.CfnCluster


def control_plane_of(
    scope: Construct,
    *,
    name: str,
    version: str,
    subnets: Sequence[ec2.ISubnet],
    security_group: ec2.ISecurityGroup,
    key: kms.IKey,
    public_cidrs: Sequence[str],
    service_cidr: str | None,
    support: str | None,
) -> eks.CfnCluster:
    """Arguments as of `TrnEksCluster`."""
    role = iam.Role(
        scope,
        "Role",
        assumed_by=service_of_account(scope, "eks.amazonaws.com"),
        managed_policies=aws_policies(scope, "AmazonEKSClusterPolicy"),
    )
    return _Cluster(
        scope,
        "Resource",
        name=name,
        version=version,
        role_arn=role.role_arn,
        bootstrap_self_managed_addons=False,  # installed as pinned add-ons, before the nodes
        resources_vpc_config=_Cluster.ResourcesVpcConfigProperty(
            subnet_ids=[s.subnet_id for s in subnets],
            security_group_ids=[security_group.security_group_id],
            endpoint_private_access=True,
            endpoint_public_access=bool(public_cidrs),
            public_access_cidrs=list(dict.fromkeys(public_cidrs)) or None,
        ),
        access_config=_Cluster.AccessConfigProperty(
            authentication_mode="API", bootstrap_cluster_creator_admin_permissions=False
        ),
        upgrade_policy=_Cluster.UpgradePolicyProperty(support_type=support.upper()) if support else None,
        encryption_config=[
            _Cluster.EncryptionConfigProperty(
                provider=_Cluster.ProviderProperty(key_arn=key.key_arn), resources=["secrets"]
            )
        ],
        kubernetes_network_config=_Cluster.KubernetesNetworkConfigProperty(
            ip_family="ipv4", service_ipv4_cidr=service_cidr
        ),
        logging=_Cluster.LoggingProperty(
            cluster_logging=_Cluster.ClusterLoggingProperty(
                enabled_types=[_Cluster.LoggingTypeConfigProperty(type=each) for each in _LOG_TYPES]
            )
        ),
    )


class ApiGroups:
    """The control plane's group, and one whose members reach the API; both below `scope`.

    Attributes:
        control: The control plane's own.
        clients: Its members reach the API.
        ready: The groups with their rules.
    """

    def __init__(self, scope: Construct, vpc_id: str) -> None:
        what = "The Kubernetes API: HTTPS from clients"
        control = ClosedGroup(scope, "ControlGroup", vpc_id=vpc_id, description=what)
        out, what = https_out("AWS, registries"), "Members reach the Kubernetes API"
        clients = ClosedGroup(scope, "ClientGroup", vpc_id=vpc_id, description=what, egress=out)
        allow_from(control.group, clients.group, ec2.Port.tcp(443), "Kubernetes API")
        self.control, self.clients = control.group, clients.group
        self.ready = DependencyGroup(control, clients)
