"""`TrnAddons`: EKS's own add-ons, each at its pinned version, with a separate role if it needs one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aws_cdk import RemovalPolicy
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_logs as logs
from constructs import Construct, DependencyGroup, IDependable

from trainium_cdk.cdk.eks.identities import PodRole, file_system_statements, observability_statements
from trainium_cdk.cdk.eks.view import AnyCluster, install_once, view_of
from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.names import camel
from trainium_cdk.cdk.helpers.retention import days_of
from trainium_cdk.cdk.helpers.stack_wide import place_of, stack_of
from trainium_cdk.cdk.storage import AnyStorage
from trainium_cdk.cdk.storage.given import mounts
from trainium_cdk.description import settings
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.eks import Addon, PodAddresses

OBSERVABILITY = "amazon-cloudwatch-observability"
LOGS = ("application", "dataplane", "host")
"""Log groups of Fluent Bit: pods, Kubernetes' own programs, nodes."""
METRICS = ("performance",)
"""Log group of Container Insights, from which CloudWatch creates metrics."""
_CNI = "vpc-cni"
_CNI_POLICY = "AmazonEKS_CNI_Policy"


class TrnAddons(Checked):
    """The add-ons that a Trainium cluster needs: networking, DNS, pod identities, monitoring of nodes, and the storage drivers of the
    cluster's file systems.

    Some must exist when the first node joins (`before_nodes`). The others fail without a node to run on: declare
    those nodes with `run_on`. Self-managed add-ons of the same names are overwritten; one that is EKS's already
    fails the deployment.

    Example:
        addons = TrnAddons(self, "Addons", cluster=cluster, storage=storage)
        system = TrnSystemNodes(self, "System", cluster=cluster, storage=storage)
        system.node.add_dependency(addons.before_nodes)
        addons.run_on(system)

    Args:
        cluster: A `TrnEksCluster`, or any cluster of `aws_eks_v2` or `aws_eks`.
        storage: The file systems whose drivers are installed, as for `TrnNodeGroup`. Default: none.
        version: Kubernetes version, which determines the versions of add-ons. Default: the cluster's; if that is not known, EKS
            chooses.
        addon_versions: Other versions than the catalogue's, by the add-on's name. Default: none.
        plugins: Whether EKS's node monitoring agent is installed, which reports failed devices to EKS's node repair. Default: it is.
        observability: Logs of nodes and pods in CloudWatch, and metrics, charged by volume. Default: none.
        log_retention: How long those logs are kept. Default: a year.
        removal_policy: For those logs on `cdk destroy`. Default: DESTROY.
        catalog: The catalogue with the add-ons. Default: this release's.

    Raises:
        ValueError: `addon_versions` names an add-on that is not installed; or the cluster has IPv6 pods, or a `TrnAddons` already.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: AnyCluster,
        storage: AnyStorage | None = None,
        version: str | None = None,
        addon_versions: Mapping[str, str] | None = None,
        plugins: settings.Plugins = settings.Plugins.model_construct(),  # noqa: B008  frozen
        observability: settings.ContainerInsights | None = None,
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_YEAR,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        catalog: Catalog | None = None,
    ) -> None:
        super().__init__(scope, id)
        install_once(self, cluster)
        catalog = catalog or Catalog.load()
        self._view, self._mounts, self._addresses = view_of(cluster), mounts(self, storage), catalog.eks.pod_addresses
        self._observability, self._removal_policy = observability, removal_policy
        self._log_days = days_of(log_retention, self)
        self._version, self._versions = version or self._view.version, addon_versions or {}
        addons = catalog.eks.addons_for(
            {mount.kind for mount in self._mounts},
            node_monitoring=plugins.node_monitoring,
            observability=observability is not None,
        )
        if unknown := sorted(set(self._versions) - set(addons)):
            raise ValueError(f"{self.node.path}: addon_versions names {unknown[0]}; add-ons are {', '.join(addons)}")
        self._hosts = DependencyGroup()
        made = {name: self._add(name, addon) for name, addon in addons.items()}
        self._before = DependencyGroup(*(resource for name, resource in made.items() if addons[name].before_nodes))
        for name, resource in made.items():
            if not addons[name].before_nodes:
                resource.node.add_dependency(self._hosts)

    @property
    def before_nodes(self) -> IDependable:
        """The add-ons that every node group must wait for."""
        return self._before

    def run_on(self, *nodes: IDependable) -> None:
        """Let DNS, storage drivers and monitoring wait for the nodes that they run on."""
        self._hosts.add(*nodes)

    def _add(self, name: str, addon: Addon) -> eks.CfnAddon:
        metrics = self._observability is not None and self._observability.metrics
        values = addon_values(name, self._addresses, metrics=metrics)
        association = eks.CfnAddon.PodIdentityAssociationProperty
        account = addon.service_account
        return eks.CfnAddon(
            self,
            camel(name),
            cluster_name=self._view.reference,
            addon_name=name,
            addon_version=self._versions.get(name, addon.versions.get(self._version or "")),
            resolve_conflicts="OVERWRITE",
            configuration_values=json.dumps(values) if values else None,
            pod_identity_associations=[
                association(service_account=account, role_arn=self._role(name, addon).role.role_arn)
            ]
            if account
            else None,
        )

    def _role(self, name: str, addon: Addon) -> PodRole:
        stack, kind = stack_of(self), addon.file_system
        statements = []
        if kind:
            ids = [mount.id for mount in self._mounts if mount.kind == kind]
            statements = file_system_statements(stack, kind, ids)
        elif self._observability and name == OBSERVABILITY:
            statements = observability_statements(self._log_groups(self._observability))
        return PodRole(
            self,
            f"{camel(name)}Identity",
            cluster_arn=self._view.arn,
            account=place_of(self).account,
            statements=statements,
            managed=() if statements else (_CNI_POLICY,),
        )

    def _log_groups(self, wanted: settings.ContainerInsights) -> list[str]:
        """ARNs of the log groups that the observability add-on writes to. The stack creates them, so that their retention
        is set; the add-on's role may not create others."""
        groups = [
            logs.CfnLogGroup(self, f"Logs{kind.capitalize()}", log_group_name=name, retention_in_days=self._log_days)
            for kind, name in log_groups(self._view.name, metrics=wanted.metrics).items()
        ]
        for group in groups:
            group.apply_removal_policy(self._removal_policy)
        return [group.attr_arn for group in groups]


def log_groups(cluster: str, *, metrics: bool) -> dict[str, str]:
    """The names of the log groups that the observability add-on writes to, by their last part."""
    kinds = LOGS + (METRICS if metrics else ())
    return {kind: f"/aws/containerinsights/{cluster}/{kind}" for kind in kinds}


def addon_values(name: str, addresses: PodAddresses, *, metrics: bool) -> dict[str, Any] | None:
    """Return the configuration of an add-on, with Container Insights if `metrics`; None for an add-on without one."""
    if name == _CNI:
        # without enableNetworkPolicy, network policies are not enforced
        return {
            "env": {"MINIMUM_IP_TARGET": str(addresses.minimum), "WARM_IP_TARGET": str(addresses.warm)},
            "enableNetworkPolicy": "true",
        }
    return observability_values(metrics=metrics) if name == OBSERVABILITY else None


def observability_values(*, metrics: bool) -> dict[str, Any]:
    """Values of the observability add-on: logs, and Container Insights if `metrics`. Not Application Signals, which observes web
    services and changes their pods, nor parts for NVIDIA."""
    on = {
        "containerLogs": True,
        "containerInsights": metrics,
        "neuronMonitor": metrics,
        "applicationSignals": False,
        "dcgmExporter": False,
    }
    return {section: {"enabled": enabled} for section, enabled in on.items()}
