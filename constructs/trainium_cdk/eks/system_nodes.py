"""`TrnSystemNodes`: nodes for everything but training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jsii
from aws_cdk import Fn, Names, Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct, IDependable

from trainium_cdk._cdk.launch_templates import launch_template
from trainium_cdk._cdk.rules import refuse_tokens
from trainium_cdk._cdk.subnets import routes_of, selected
from trainium_cdk._cdk.types import AnyRole
from trainium_cdk.eks.launch import Sizes, managed_group
from trainium_cdk.eks.node_role import TrnNodeRole
from trainium_cdk.eks.rules import check_service_nodes, refuse_name
from trainium_cdk.eks.user_data import user_data
from trainium_cdk.eks.view import AnyCluster, view_of
from trainium_cdk.network import TrnNetwork
from trainium_cdk.settings import Environment
from trainium_cdk.storage import AnyStorage, TrnStorage
from trainium_cdk.storage.given import grant_root_access, storage_in

if TYPE_CHECKING:
    from trainium_cdk.eks.cluster import TrnEksCluster

SYSTEM_AMI_TYPE = "AL2023_x86_64_STANDARD"
SYSTEM_ROOT_GIB = 80


@jsii.implements(iam.IGrantable)
class TrnSystemNodes(Construct):
    """A small managed node group for everything but training: DNS, controllers, drivers, TensorBoard. In every zone, without
    taints.

    Example:
        system = TrnSystemNodes(self, "System", cluster=cluster, storage=storage)
        TrnPlugins(self, "Plugins", cluster=cluster, node_groups=[group], system_nodes=[system])

    Args:
        cluster: A `TrnEksCluster`, or any cluster of `aws_eks_v2` or `aws_eks`, as for `TrnNodeGroup`.
        instance_type: A general-purpose x86_64 type. Default: r5.large.
        min_size: Minimum number of nodes. Default: 1.
        desired_size: Initial number of nodes; a later deployment does not undo a scaling. Default: 2.
        max_size: Maximum number of nodes. Default: 4.
        subnets: Subnets of the nodes. Default: the private subnets of the cluster's VPC.
        node_role: Default: a `TrnNodeRole`.
        storage: Shared file systems that pods mount, as for `TrnNodeGroup`. Default: none.
        root_volume_size: Default: 80 GiB.
        version: Kubernetes version of the nodes. Default: the cluster's.
        name: The value of the label `trainium-cdk/node-group` on its nodes, unique in the cluster. Default: from the construct's path.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        ValueError: the sizes are not in order or not known, or `name` cannot be the value of a label.
    """

    role: iam.IRole
    """The role of the nodes."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: AnyCluster,
        instance_type: str | ec2.InstanceType = "r5.large",
        min_size: int = 1,
        desired_size: int = 2,
        max_size: int = 4,
        subnets: ec2.SubnetSelection | None = None,
        node_role: AnyRole | None = None,
        storage: AnyStorage | None = None,
        root_volume_size: Size | None = None,
        version: str | None = None,
        name: str | None = None,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        refuse_tokens(self, min_size=min_size, desired_size=desired_size, max_size=max_size)
        if not min_size <= desired_size <= max_size:
            raise ValueError(
                f"{self.node.path}: min_size {min_size}, desired_size {desired_size} and max_size {max_size} are not in that order"
            )
        type_name = instance_type if isinstance(instance_type, str) else instance_type.to_string()
        if rules:
            check_service_nodes(self, "system", type_name)
        view = view_of(cluster)
        storage = storage_in(self, view.vpc, storage) if storage else None
        self.role = node_role or TrnNodeRole(self, "Role").role
        if storage:
            grant_root_access(self, storage, self.role)
        name = name or Names.unique_resource_name(self, max_length=40, separator="-").lower()
        refuse_name(self, name)
        data = user_data(lustre=bool(storage and storage.has_lustre))
        groups = [view.security_group_id]
        if storage:
            groups.append(storage.client_security_group.security_group_id)
        template = launch_template(
            self,
            instance_type=type_name,
            root_gib=(root_volume_size or Size.gibibytes(SYSTEM_ROOT_GIB)).to_gibibytes(),
            name=f"{view.name}-system",
            rules=rules,
            user_data=Fn.base64(data) if data else None,
            security_group_ids=groups,
        )
        chosen = selected(view.vpc, subnets)
        self._resource, _ = managed_group(
            self,
            view=view,
            name=name,
            purpose="system",
            sizes=Sizes(desired_size, min_size, max_size),
            template=template,
            cluster_name=view.reference,
            node_role=self.role.role_arn,
            subnets=[subnet.subnet_id for subnet in chosen],
            ami_type=SYSTEM_AMI_TYPE,
            version=version or view.version,
            update_config=eks.CfnNodegroup.UpdateConfigProperty(max_unavailable=1),
        )
        self._resource.node.add_dependency(*routes_of(chosen), *([storage.ready] if storage else []))

    @classmethod
    def from_settings(
        cls,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        cluster: TrnEksCluster,
        network: TrnNetwork,
        storage: TrnStorage,
        role: TrnNodeRole,
        after: Sequence[IDependable] = (),
    ) -> TrnSystemNodes:
        """The system nodes of an environment.

        Args:
            after: What must exist before the first node joins: add-ons.
        """
        settings = environment.eks.system
        nodes = cls(
            scope,
            id,
            cluster=cluster,
            instance_type=settings.instance_type,
            min_size=settings.min_nodes,
            desired_size=settings.nodes,
            max_size=settings.max_nodes,
            subnets=ec2.SubnetSelection(subnets=network.private_subnets),
            node_role=role.role,
            storage=storage,
            name="system",
            rules=False,  # the whole environment is already checked
        )
        nodes._resource.node.add_dependency(network.internet_ready, *after)
        return nodes

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The nodes' role. Pods have their own identities (EKS Pod Identity)."""
        return self.role.grant_principal
