"""`TrnSystemNodes`: the nodes of what runs beside the training."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Fn
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct, IDependable

from trainium_cdk.eks.cluster import TrnEksCluster
from trainium_cdk.eks.launch import latest, launch_template, scaling
from trainium_cdk.eks.node_role import TrnNodeRole
from trainium_cdk.eks.user_data import user_data
from trainium_cdk.network import TrnNetwork
from trainium_cdk.outputs import GROUP_LABEL, ROLE_LABEL
from trainium_cdk.settings import Environment
from trainium_cdk.storage import TrnStorage

SYSTEM_AMI_TYPE = "AL2023_x86_64_STANDARD"
SYSTEM_ROOT_GIB = 80


class TrnSystemNodes(Construct):
    """A small managed node group for what runs beside the training: DNS, controllers, drivers, TensorBoard.

    In every zone of the network, without a taint. Arguments as of `TrnNodeGroup`.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        cluster: TrnEksCluster,
        network: TrnNetwork,
        storage: TrnStorage,
        role: TrnNodeRole,
        after: Sequence[IDependable] = (),
    ) -> None:
        super().__init__(scope, id)
        settings = environment.eks.system
        data = user_data(lustre=environment.storage.fsx is not None)
        template = launch_template(
            self,
            instance_type=settings.instance_type,
            root_gib=SYSTEM_ROOT_GIB,
            tags={**environment.tags, "Name": f"{environment.eks_cluster_name}-system"},
            user_data=Fn.base64(data) if data else None,
            security_group_ids=[
                cluster.cluster_security_group_id,
                storage.client_security_group.security_group_id,
            ],
        )
        self.resource = eks.CfnNodegroup(
            self,
            "Resource",
            cluster_name=cluster.resource.ref,
            node_role=role.role.role_arn,
            subnets=[s.subnet_id for s in network.private_subnets],
            ami_type=SYSTEM_AMI_TYPE,
            version=environment.kubernetes_version,
            launch_template=latest(template),
            scaling_config=scaling(
                self,
                cluster=cluster.name,
                group="system",
                nodes=settings.nodes,
                least=settings.min_nodes,
                most=settings.max_nodes,
            ),
            update_config=eks.CfnNodegroup.UpdateConfigProperty(max_unavailable=1),
            node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(enabled=True),
            labels={GROUP_LABEL: "system", ROLE_LABEL: "system"},
        )
        self.resource.node.add_dependency(network.internet_ready, storage.ready, *after)
