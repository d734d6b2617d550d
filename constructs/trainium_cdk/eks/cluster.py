"""`TrnEksCluster`: the control plane."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct, DependencyGroup, IDependable

from trainium_cdk._cdk.encryption import allow_logs
from trainium_cdk._cdk.groups import ClosedGroup, Egress
from trainium_cdk._cdk.removal import OnDestroy, removal_policy
from trainium_cdk._cdk.trust import service_of_account
from trainium_cdk.eks.access import GROUPS, chart_repositories, policy_arn
from trainium_cdk.eks.kubectl import KubectlProvider
from trainium_cdk.network import TrnNetwork
from trainium_cdk.settings import Environment
from trainium_cdk.settings.environment import SERVICE_NETWORKS

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
_HTTPS = ec2.Port.tcp(443)


class TrnEksCluster(Construct):
    """An EKS control plane: access entries only, secrets encrypted with a key of the stack, every log kept.

    It depends on its subnets, security group, role, key and log group, and on nothing else of the network: it need not wait for
    a NAT gateway. What talks to it (manifests, charts) and the nodes must, with `network.internet_ready`.

    Nobody is an administrator for having deployed it (that is a role of CloudFormation). `access_role` may be taken by
    whoever the account's own policies let, and `eks.access` names others.

    Args:
        environment: what the cluster is to be.
        network: where it lives; one private subnet of each of its zones, of which there are at least two.
        encryption_key: of the Kubernetes secrets. Default: one that is made here.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        network: TrnNetwork,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id)
        settings = environment.eks
        self.name = environment.eks_cluster_name
        self.service_cidr = environment.service_cidr or SERVICE_NETWORKS[0]  # without a free one: a check refuses that
        self._namespace, self._network = settings.namespace, network
        self._charts = chart_repositories(Stack.of(self).partition, settings.mirror.charts.values())
        self.control_group, self.client_group = self._groups(network)
        """The control plane's own security group, and the group whose members reach the API."""
        self.key: kms.IKey = encryption_key or self._own_key(environment.on_destroy)
        """The key of the Kubernetes secrets; its policy lets CloudWatch Logs use it."""
        role = iam.Role(
            self,
            "Role",
            assumed_by=service_of_account(self, "eks.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name("AmazonEKSClusterPolicy")],
        )
        public = settings.endpoint == "public"
        self.resource = eks.CfnCluster(
            self,
            "Resource",
            name=self.name,
            version=environment.kubernetes_version,
            role_arn=role.role_arn,
            bootstrap_self_managed_addons=False,  # they come as add-ons, pinned, before the nodes
            resources_vpc_config=eks.CfnCluster.ResourcesVpcConfigProperty(
                subnet_ids=[s.subnet_id for s in network.private_subnets],
                security_group_ids=[self.control_group.security_group_id],
                endpoint_private_access=True,
                endpoint_public_access=public,
                public_access_cidrs=list(settings.public_cidrs) if public else None,
            ),
            access_config=eks.CfnCluster.AccessConfigProperty(
                authentication_mode="API", bootstrap_cluster_creator_admin_permissions=False
            ),
            upgrade_policy=eks.CfnCluster.UpgradePolicyProperty(support_type=settings.support.upper())
            if settings.support
            else None,
            encryption_config=[
                eks.CfnCluster.EncryptionConfigProperty(
                    provider=eks.CfnCluster.ProviderProperty(key_arn=self.key.key_arn), resources=["secrets"]
                )
            ],
            kubernetes_network_config=eks.CfnCluster.KubernetesNetworkConfigProperty(
                ip_family="ipv4", service_ipv4_cidr=self.service_cidr
            ),
            logging=eks.CfnCluster.LoggingProperty(
                cluster_logging=eks.CfnCluster.ClusterLoggingProperty(
                    enabled_types=[eks.CfnCluster.LoggingTypeConfigProperty(type=kind) for kind in LOG_TYPES]
                )
            ),
        )
        # EKS would make this group itself, keep its records for ever, and leave it behind
        log = logs.CfnLogGroup(
            self, "Logs", log_group_name=f"/aws/eks/{self.name}/cluster", retention_in_days=settings.log_days
        )
        log.apply_removal_policy(removal_policy(environment.on_destroy))
        self.resource.add_resource_dependency(log)
        self.arn = Stack.of(self).format_arn(service="eks", resource="cluster", resource_name=self.name)
        """Its ARN, from its name: what only names the cluster need not wait for it."""
        self.cluster_security_group_id = self.resource.attr_cluster_security_group_id
        """The group that EKS makes: for every node and nothing else."""
        self._ready = DependencyGroup(self.resource)
        self.access_role = iam.Role(
            self,
            "AccessRole",
            description=f"Uses the Kubernetes API of {self.name}; has no permissions in AWS",
            assumed_by=_users(settings.users),
        )
        """A role that `trn` takes to use the cluster: nothing but an identity."""
        self._cluster = self._kubectl()
        self._grant("Access", self.access_role.role_arn, "edit")
        for i, access in enumerate(settings.access):
            self._grant(f"Access{i}", access.principal, access.policy)

    def _own_key(self, on_destroy: OnDestroy) -> kms.Key:
        key = kms.Key(
            self,
            "Key",
            description=f"Kubernetes secrets and logs of {self.name}",
            enable_key_rotation=True,
            removal_policy=removal_policy(on_destroy),  # logs that are kept can be read with it alone
        )
        allow_logs(key)
        return key

    @property
    def cluster(self) -> eks.ICluster:
        """The cluster, for any construct of the CDK. What is added to it with `add_manifest` or `add_helm_chart` must also
        depend on `ready`."""
        return self._cluster

    @property
    def ready(self) -> IDependable:
        """Everything that manifests and charts need: the cluster, the right to change it, and the way to it."""
        return self._ready

    def _groups(self, network: TrnNetwork) -> tuple[ec2.ISecurityGroup, ec2.ISecurityGroup]:
        vpc_id = network.vpc.vpc_id
        control = ClosedGroup(self, "ControlGroup", vpc_id=vpc_id, description="The Kubernetes API: HTTPS from clients")
        out = Egress(ip_protocol="tcp", from_port=443, to_port=443, cidr_ip="0.0.0.0/0", description="AWS, registries")
        clients = ClosedGroup(
            self,
            "ClientGroup",
            vpc_id=vpc_id,
            description="Members reach the Kubernetes API",
            egress=(out,),
        )
        control.group.connections.allow_from(clients.group, _HTTPS, "Kubernetes API")
        self._groups_ready = DependencyGroup(control, clients)
        return control.group, clients.group

    def _kubectl(self) -> eks.ICluster:
        attributes = {
            "cluster_name": self.name,
            "cluster_endpoint": self.resource.attr_endpoint,
            "cluster_certificate_authority_data": self.resource.attr_certificate_authority_data,
            "cluster_security_group_id": self.cluster_security_group_id,
            "vpc": self._network.vpc,
            "prune": False,
        }
        plain = eks.Cluster.from_cluster_attributes(self, "Plain", **attributes)  # type: ignore[arg-type]
        provider = KubectlProvider(
            self,
            "Kubectl",
            cluster=plain,
            subnets=self._network.private_subnets,
            security_group=self.client_group,
            charts=self._charts,
        )
        entry = self._grant("Deployer", provider.role.role_arn, "cluster-admin")
        self._ready.add(entry, provider, self._network.internet_ready, self._groups_ready)
        imported: eks.IKubectlProvider = eks.KubectlProvider.from_kubectl_provider_attributes(
            self, "KubectlProvider", service_token=provider.service_token, role=provider.role
        )
        return eks.Cluster.from_cluster_attributes(
            self,
            "Cluster",
            kubectl_provider=imported,
            **attributes,  # type: ignore[arg-type]
        )

    def _grant(self, id: str, principal: str, policy: str) -> eks.CfnAccessEntry:
        """One access entry. Policies of EKS know nothing of Volcano's jobs, so that each also stands for a Kubernetes group
        whose rights in the jobs' namespace the plug-ins bring along."""
        scope = (
            eks.CfnAccessEntry.AccessScopeProperty(type="cluster")
            if policy == "cluster-admin"
            else eks.CfnAccessEntry.AccessScopeProperty(type="namespace", namespaces=[self._namespace])
        )
        return eks.CfnAccessEntry(
            self,
            id,
            cluster_name=self.resource.ref,
            principal_arn=principal,
            type="STANDARD",
            kubernetes_groups=[GROUPS[policy]] if policy in GROUPS else None,
            access_policies=[
                eks.CfnAccessEntry.AccessPolicyProperty(
                    policy_arn=policy_arn(Stack.of(self).partition, policy), access_scope=scope
                )
            ],
        )


def _users(patterns: Sequence[str]) -> iam.IPrincipal:
    """Whoever of the account its own policies let; where the environment names users, those alone."""
    account = iam.AccountRootPrincipal()
    return account.with_conditions({"ArnLike": {"aws:PrincipalArn": list(patterns)}}) if patterns else account
