"""`TrnEksCluster`: the control plane."""

from __future__ import annotations

from collections.abc import Sequence

import jsii
from aws_cdk import Names, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct, DependencyGroup, IDependable

from trainium_cdk.cdk.eks.access import Policy
from trainium_cdk.cdk.eks.access_entry import access_entry
from trainium_cdk.cdk.eks.kubectl import KubectlProvider
from trainium_cdk.cdk.eks.rules import check_cluster
from trainium_cdk.cdk.eks.view import ClusterView, OwnCluster
from trainium_cdk.cdk.helpers.acknowledged import aws_policies
from trainium_cdk.cdk.helpers.encryption import own_key
from trainium_cdk.cdk.helpers.groups import ClosedGroup, allow_from, https_out
from trainium_cdk.cdk.helpers.permissions import service_of_account
from trainium_cdk.cdk.helpers.retention import days_of
from trainium_cdk.cdk.helpers.stack_wide import once, share, stack_of
from trainium_cdk.cdk.helpers.subnets import ONE_PER_ZONE, routes_of, selected
from trainium_cdk.cdk.helpers.types import AnyKey, AnyPrincipal, AnyRole
from trainium_cdk.description import settings
from trainium_cdk.description.catalog import Catalog


@jsii.implements(eks.ICluster, ec2.IConnectable)
class TrnEksCluster(OwnCluster):
    """An EKS control plane: access entries only, secrets encrypted with a key of the stack, every log kept.

    It depends only on its subnets, security group, role, key and log group: it does not wait for a NAT gateway, but
    manifests, charts and nodes do. Deploying it gives no one administrator access (the creator is a role of CloudFormation):
    `users` may assume `access_role`, and `grant_access` gives access to others.

    Example:
        cluster = TrnEksCluster(self, "Cluster", vpc=vpc)
        cluster.grant_access("Platform", platform_role, "cluster-admin")
        cluster.connections.allow_default_port_from(bastion)

    Args:
        vpc: The VPC of the cluster.
        vpc_subnets: At least two, in different zones. Default: one private subnet of each zone.
        control_plane: Its version and name, who reaches it, and the jobs' namespace, to which `access_role` and all policies but
            cluster-admin apply. As in an environment file. Default: private, in the catalogue's version.
        secrets_encryption_key: Key of the Kubernetes secrets. Default: a new one.
        users: Principals that may assume `access_role`. Default: the principals of the account that its own policies allow.
        chart_repository_arns: ECR repositories that charts are pulled from. Default: none: charts come from public registries.
        log_retention: How long the control plane's logs are kept. Default: a year.
        removal_policy: For logs and key on `cdk destroy`. Default: DESTROY.
        rules: Whether to check `control_plane` with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        SettingsError: a value of `control_plane` is wrong.
        ValueError: fewer than two subnets.
    """

    name: str
    """Its name, as plain text."""
    control_group: ec2.ISecurityGroup
    """The control plane's own security group."""
    client_group: ec2.ISecurityGroup
    """Its members reach the Kubernetes API."""
    key: kms.IKey
    """The key of the Kubernetes secrets; the policy of a new one lets CloudWatch Logs use it."""
    access_role: iam.Role
    """A role that `trn` assumes to use the Kubernetes API: only an identity with the policy `edit`, without permissions in AWS."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        vpc_subnets: ec2.SubnetSelection | None = None,
        control_plane: settings.ControlPlane = settings.ControlPlane.model_construct(),  # noqa: B008  frozen
        secrets_encryption_key: AnyKey | None = None,
        users: AnyPrincipal | None = None,
        chart_repository_arns: Sequence[str] = (),
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_YEAR,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        self.name = name = control_plane.cluster_name or Names.unique_resource_name(self, max_length=100, separator="-")
        self.version = control_plane.version or Catalog.load().eks.default
        self.namespace, service_cidr = control_plane.namespace, control_plane.service_cidr
        if rules:
            check_cluster(self, control_plane)
        subnets = selected(vpc, vpc_subnets or ONE_PER_ZONE)
        if len(subnets) < 2:
            raise ValueError(
                f"{self.node.path}: EKS needs subnets in two zones, but got {len(subnets)}: give vpc_subnets"
            )
        groups = ApiGroups(self, once(vpc, "vpc_id"))
        self.control_group, self.client_group = groups.control, groups.clients
        self._connections = ec2.Connections(security_groups=[groups.control], default_port=ec2.Port.tcp(443))
        # it has the logs' removal policy: logs that are kept can be read only with it
        self.key = secrets_encryption_key or own_key(
            self, "Key", f"Kubernetes secrets and logs of {name}", removal_policy
        )
        self._resource = control_plane_of(
            self,
            name=name,
            version=self.version,
            subnets=subnets,
            security_group=groups.control,
            key=self.key,
            public_cidrs=control_plane.public_cidrs,
            service_cidr=service_cidr,
            support=control_plane.support,
        )
        # EKS would create this group itself, without expiry, and leave it behind
        log = logs.CfnLogGroup(
            self, "Logs", log_group_name=f"/aws/eks/{name}/cluster", retention_in_days=days_of(log_retention, self)
        )
        log.apply_removal_policy(removal_policy)
        self._resource.add_resource_dependency(log)
        self._ready = DependencyGroup(self._resource)
        self.access_role = iam.Role(
            self,
            "AccessRole",
            description=f"Uses the Kubernetes API of {name}; has no permissions in AWS",
            assumed_by=users or iam.AccountRootPrincipal(),
        )
        before = [*routes_of(subnets), groups.ready]
        self.cluster = self._with_kubectl(vpc, subnets, chart_repository_arns, before)
        share(self, self.cluster, "entries")  # what is granted by the plug-ins is of the same entries
        self.view = ClusterView(
            cluster=self.cluster,
            name=name,
            reference=once(self._resource, "ref"),
            arn=self.cluster_arn,
            connections=self._connections,
            before_nodes=[self._resource],
            clients=self.client_group,
            subnets=subnets,
            version=self.version,
            service_cidr=service_cidr,
            namespace=self.namespace,
            endpoint=control_plane.endpoint,
            access_role=self.access_role,
        )
        self.grant_access("Access", self.access_role, "edit")

    @property
    def cluster_arn(self) -> str:
        """Its ARN, from its name: resources that only need the ARN do not wait for the cluster."""
        return stack_of(self).format_arn(service="eks", resource="cluster", resource_name=self.name)

    @property
    def cluster_security_group_id(self) -> str:
        """The group that EKS creates, only for nodes."""
        return self._resource.attr_cluster_security_group_id

    @property
    def connections(self) -> ec2.Connections:
        """Connections of the Kubernetes API: `cluster.connections.allow_default_port_from(...)` lets a client reach it."""
        return self._connections

    @property
    def ready(self) -> IDependable:
        """Everything that manifests and charts need: the cluster, the permission to change it, and the route to it. Those added to
        `cluster` wait for it anyway."""
        return self._ready

    def grant_access(self, id: str, principal: AnyRole | str, policy: Policy, *, team: str | None = None) -> None:
        """Let a role or user (an ARN) use the Kubernetes API. A principal may be granted several policies and teams: they are one access entry,
        with the id of the first grant.

        Args:
            policy: `cluster-admin` for all of the cluster; `admin`, `edit` or `view` for the jobs' namespace, JobSets included.
            team: A team's namespace instead of the jobs' namespace. Default: none.
        """
        self._entry(id, principal, policy, team)

    def _entry(self, id: str, principal: AnyRole | str, policy: Policy, team: str | None = None) -> eks.CfnAccessEntry:
        return access_entry(
            self,
            self,
            id,
            cluster_name=once(self._resource, "ref"),
            principal=principal,
            policy=policy,
            namespace=self.namespace,
            team=None if team == self.namespace else team,
        )

    def _with_kubectl(
        self, vpc: ec2.IVpc, subnets: Sequence[ec2.ISubnet], charts: Sequence[str], before: Sequence[IDependable]
    ) -> eks.ICluster:
        attributes = {
            "cluster_name": self.name,
            "cluster_endpoint": self._resource.attr_endpoint,
            "cluster_certificate_authority_data": self._resource.attr_certificate_authority_data,
            "cluster_security_group_id": self.cluster_security_group_id,
            "vpc": vpc,
            "prune": False,
        }
        plain = eks.Cluster.from_cluster_attributes(self, "Plain", **attributes)  # type: ignore[arg-type]
        provider = KubectlProvider(
            self,
            "Kubectl",
            version=self.version,
            cluster=plain,
            subnets=subnets,
            security_group=self.client_group,
            charts=charts,
        )
        entry = self._entry("Deployer", provider.role.role_arn, "cluster-admin")
        provider.wait_for(self._resource, entry, *before)
        self._ready.add(entry, provider, *before)
        imported: eks.IKubectlProvider = eks.KubectlProvider.from_kubectl_provider_attributes(
            self, "KubectlProvider", service_token=provider.service_token, role=provider.role
        )
        return eks.Cluster.from_cluster_attributes(
            self,
            "Cluster",
            kubectl_provider=imported,
            **attributes,  # type: ignore[arg-type]
        )


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
            subnet_ids=[once(s, "subnet_id") for s in subnets],
            security_group_ids=[once(security_group, "security_group_id")],
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
                provider=_Cluster.ProviderProperty(key_arn=once(key, "key_arn")), resources=["secrets"]
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
