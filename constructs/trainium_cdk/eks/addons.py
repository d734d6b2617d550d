"""`TrnAddons`: EKS's own add-ons, each at its pinned version, with a role of its own where it needs one."""

from __future__ import annotations

import json
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_logs as logs
from constructs import Construct, DependencyGroup, IDependable

from trainium_cdk._cdk.removal import removal_policy
from trainium_cdk.eks.cluster import TrnEksCluster
from trainium_cdk.eks.identities import PodRole, file_system_statements, observability_statements
from trainium_cdk.eks.observability import ADDON as OBSERVABILITY
from trainium_cdk.eks.observability import configuration, log_groups
from trainium_cdk.settings import Environment
from trainium_cdk.storage import TrnStorage

_CNI = "vpc-cni"
_CNI_POLICY = "AmazonEKS_CNI_Policy"


class TrnAddons(Construct):
    """The add-ons that nodes need to join (`before_nodes`), and those that need nodes to run on (`add_others`): an add-on whose
    pods find no node fails. Storage drivers are those of the file systems there are.

    Args:
        environment: whose catalogue pins the versions; `eks.addon_versions` overrides them.
    """

    def __init__(
        self, scope: Construct, id: str, *, environment: Environment, cluster: TrnEksCluster, storage: TrnStorage
    ) -> None:
        super().__init__(scope, id)
        self._environment, self._cluster, self._storage = environment, cluster, storage
        self._before = DependencyGroup()
        for name, addon in environment.eks_addons.items():
            if addon.before_nodes:
                self._before.add(self._add(name))

    @property
    def before_nodes(self) -> IDependable:
        """What every node group must wait for."""
        return self._before

    def add_others(self, *system_nodes: IDependable) -> None:
        """DNS, storage drivers and monitoring, after the nodes they run on."""
        for name, addon in self._environment.eks_addons.items():
            if not addon.before_nodes:
                self._add(name).node.add_dependency(*system_nodes)

    def _add(self, name: str) -> eks.CfnAddon:
        facts, settings = self._environment.catalog.eks.addons[name], self._environment.eks
        values = self._configuration(name)
        association = eks.CfnAddon.PodIdentityAssociationProperty
        return eks.CfnAddon(
            self,
            "".join(part.capitalize() for part in name.split("-")),
            cluster_name=self._cluster.resource.ref,
            addon_name=name,
            addon_version=settings.addon_versions.get(name, facts.versions.get(self._environment.kubernetes_version)),
            resolve_conflicts="OVERWRITE",
            configuration_values=json.dumps(values) if values else None,
            pod_identity_associations=[
                association(service_account=facts.service_account, role_arn=self._role(name).role.role_arn)
            ]
            if facts.service_account
            else None,
        )

    def _configuration(self, name: str) -> dict[str, Any] | None:
        keep, observability = self._environment.catalog.eks.pod_addresses, self._environment.eks.observability
        if name == _CNI:
            # without enableNetworkPolicy policies are kept, and nothing enforces them
            return {
                "env": {"MINIMUM_IP_TARGET": str(keep.minimum), "WARM_IP_TARGET": str(keep.warm)},
                "enableNetworkPolicy": "true",
            }
        return configuration(observability) if name == OBSERVABILITY and observability else None

    def _log_groups(self) -> list[str]:
        """ARNs of the log groups that the observability add-on writes to. The stack has them, so that they are kept no longer than
        wanted; the add-on's role may not create others."""
        settings = self._environment.eks.observability
        made = (
            [
                logs.CfnLogGroup(
                    self, f"Logs{kind.capitalize()}", log_group_name=name, retention_in_days=settings.log_days
                )
                for kind, name in log_groups(self._cluster.name, settings).items()
            ]
            if settings
            else []
        )
        for group in made:
            group.apply_removal_policy(removal_policy(self._environment.on_destroy))
        return [group.attr_arn for group in made]

    def _role(self, name: str) -> PodRole:
        kind = self._environment.catalog.eks.addons[name].file_system
        stack = Stack.of(self)
        services = {"efs": ("elasticfilesystem", "file-system"), "fsx": ("fsx", "file-system")}
        arns = [
            stack.format_arn(service=services[kind][0], resource=services[kind][1], resource_name=mounted.id)
            for mounted in self._storage.file_systems
            if kind and mounted.kind == kind
        ]
        statements = file_system_statements(kind, arns) if kind else []
        if name == OBSERVABILITY:
            statements = observability_statements(self._log_groups())
        return PodRole(
            self,
            "".join(part.capitalize() for part in name.split("-")) + "Identity",
            cluster_arn=self._cluster.arn,
            account=stack.account,
            statements=statements,
            managed=() if statements else (_CNI_POLICY,),
        )
