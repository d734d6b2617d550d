"""`TrnAddons`: EKS's own add-ons, each at its pinned version, with a role of its own where it needs one."""

from __future__ import annotations

import json

from aws_cdk import Stack
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct, DependencyGroup, IDependable

from trainium_cdk.eks.cluster import TrnEksCluster
from trainium_cdk.eks.identities import PodRole, file_system_statements
from trainium_cdk.settings import Environment
from trainium_cdk.storage import TrnStorage

_DRIVERS = {"aws-fsx-csi-driver": "fsx", "aws-efs-csi-driver": "efs"}
_CNI = "vpc-cni"
_CNI_POLICY = "AmazonEKS_CNI_Policy"


class TrnAddons(Construct):
    """The add-ons that nodes need to join (`before_nodes`), and those that need nodes to run on (`add_drivers`): an add-on whose
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
        for name, addon in environment.catalog.eks.addons.items():
            if addon.before_nodes:
                self._before.add(self._add(name))

    @property
    def before_nodes(self) -> IDependable:
        """What every node group must wait for."""
        return self._before

    def add_drivers(self, *system_nodes: IDependable) -> None:
        """DNS and the storage drivers, after the nodes they run on."""
        kinds = {mounted.kind for mounted in self._storage.file_systems}
        for name, addon in self._environment.catalog.eks.addons.items():
            if not addon.before_nodes and _DRIVERS.get(name, name) in {*kinds, "coredns"}:
                self._add(name).node.add_dependency(*system_nodes)

    def _add(self, name: str) -> eks.CfnAddon:
        facts, settings = self._environment.catalog.eks.addons[name], self._environment.eks
        keep = self._environment.catalog.eks.pod_addresses
        configuration = (
            {"env": {"MINIMUM_IP_TARGET": str(keep.minimum), "WARM_IP_TARGET": str(keep.warm)}}
            if name == _CNI
            else None
        )
        association = eks.CfnAddon.PodIdentityAssociationProperty
        return eks.CfnAddon(
            self,
            "".join(part.capitalize() for part in name.split("-")),
            cluster_name=self._cluster.resource.ref,
            addon_name=name,
            addon_version=settings.addon_versions.get(name, facts.versions.get(self._environment.kubernetes_version)),
            resolve_conflicts="OVERWRITE",
            configuration_values=json.dumps(configuration) if configuration else None,
            pod_identity_associations=[
                association(service_account=facts.service_account, role_arn=self._role(name).role.role_arn)
            ]
            if facts.service_account
            else None,
        )

    def _role(self, name: str) -> PodRole:
        kind = _DRIVERS.get(name)
        stack = Stack.of(self)
        services = {"efs": ("elasticfilesystem", "file-system"), "fsx": ("fsx", "file-system")}
        arns = [
            stack.format_arn(service=services[kind][0], resource=services[kind][1], resource_name=mounted.id)
            for mounted in self._storage.file_systems
            if kind and mounted.kind == kind
        ]
        return PodRole(
            self,
            "".join(part.capitalize() for part in name.split("-")) + "Identity",
            cluster_arn=self._cluster.arn,
            account=stack.account,
            statements=file_system_statements(kind, arns) if kind else (),
            managed=() if kind else (_CNI_POLICY,),
        )
