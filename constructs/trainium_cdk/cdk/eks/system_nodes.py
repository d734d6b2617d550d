"""`TrnSystemNodes`: nodes for everything but training."""

from __future__ import annotations

import jsii
from aws_cdk import Fn
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct, IDependable

from trainium_cdk.cdk.eks.launch import Sizes, managed_group
from trainium_cdk.cdk.eks.node_role import TrnNodeRole
from trainium_cdk.cdk.eks.rules import check_service_nodes
from trainium_cdk.cdk.eks.user_data import user_data
from trainium_cdk.cdk.eks.view import AnyCluster, name_once, view_of
from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.launch_templates import launch_template
from trainium_cdk.cdk.helpers.stack_wide import once
from trainium_cdk.cdk.helpers.subnets import routes_of, selected
from trainium_cdk.cdk.helpers.types import AnyRole
from trainium_cdk.cdk.storage import AnyStorage
from trainium_cdk.cdk.storage.given import grant_to_nodes, storage_in
from trainium_cdk.description import settings

SYSTEM_AMI_TYPE = "AL2023_x86_64_STANDARD"


@jsii.implements(iam.IGrantable)
class TrnSystemNodes(Checked):
    """A small managed node group for everything but training: DNS, controllers, drivers, TensorBoard. In every zone, without
    taints.

    Example:
        system = TrnSystemNodes(self, "System", cluster=cluster, storage=storage)
        TrnPlugins(self, "Plugins", cluster=cluster, node_groups=[group], system_nodes=[system])

    Args:
        cluster: A `TrnEksCluster`, or any cluster of `aws_eks_v2` or `aws_eks`, as for `TrnNodeGroup`.
        nodes: Their type, number and volumes, as in an environment file. Default: two r5.large.
        vpc_subnets: Subnets of the nodes. Default: the private subnets of the cluster's VPC.
        node_role: Default: a `TrnNodeRole`.
        storage: Shared file systems that pods mount, as for `TrnNodeGroup`. Default: none.
        version: Kubernetes version of the nodes. Default: the cluster's.
        name: The value of the label `trainium-cdk/node-group` on its nodes, unique in the cluster. Default: system.
        rules: Whether to check `nodes` with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        SettingsError: a value of `nodes` is wrong.
        ValueError: another node group of the cluster has the name.
    """

    role: iam.IRole
    """The role of the nodes."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: AnyCluster,
        nodes: settings.SystemNodes = settings.SystemNodes.model_construct(),  # noqa: B008  frozen
        vpc_subnets: ec2.SubnetSelection | None = None,
        node_role: AnyRole | None = None,
        storage: AnyStorage | None = None,
        version: str | None = None,
        name: str = "system",
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        if rules:
            check_service_nodes(self, "system", "nodes", nodes)
        name_once(self, cluster, name)
        view = view_of(cluster)
        storage = storage_in(self, view.vpc, storage) if storage else None
        self.role = node_role or TrnNodeRole(self, "Role").role
        if storage:
            grant_to_nodes(self, storage, self.role)
        data = user_data(lustre=bool(storage and storage.has_lustre))
        groups = [once(view.security_group, "security_group_id")]
        if storage:
            groups.append(once(storage.client_security_group, "security_group_id"))
        template = launch_template(
            self,
            instance_type=nodes.instance_type,
            root_gib=nodes.root_volume_gib,
            name=f"{view.name}-system",
            rules=rules,
            user_data=Fn.base64(data) if data else None,
            security_group_ids=groups,
        )
        chosen = selected(view.vpc, vpc_subnets)
        self._resource, _ = managed_group(
            self,
            view=view,
            name=name,
            purpose="system",
            sizes=Sizes(nodes.nodes, nodes.min_nodes, nodes.max_nodes),
            template=template,
            cluster_name=view.reference,
            node_role=once(self.role, "role_arn"),
            subnets=[once(subnet, "subnet_id") for subnet in chosen],
            ami_type=SYSTEM_AMI_TYPE,
            version=version or view.version,
            update_config=eks.CfnNodegroup.UpdateConfigProperty(max_unavailable=1),
        )
        once(self._resource, "node").add_dependency(*routes_of(chosen), *([storage.ready] if storage else []))

    def wait_for(self, *others: IDependable) -> None:
        """Create the nodes after these, for example the add-ons that must be there when the first node joins."""
        once(self._resource, "node").add_dependency(*others)

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The nodes' role. Pods have their own identities (EKS Pod Identity)."""
        return self.role.grant_principal
