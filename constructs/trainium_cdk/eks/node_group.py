"""`TrnNodeGroup`: the Trainium nodes."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Fn
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct, IDependable

from trainium_cdk import settings as trn
from trainium_cdk.eks.cluster import TrnEksCluster
from trainium_cdk.eks.interfaces import interfaces
from trainium_cdk.eks.launch import latest, launch_template, scaling
from trainium_cdk.eks.node_role import TrnNodeRole
from trainium_cdk.eks.user_data import ApiServer, user_data
from trainium_cdk.network import TrnNetwork
from trainium_cdk.outputs import GROUP_LABEL, ROLE_LABEL
from trainium_cdk.settings import Environment
from trainium_cdk.storage import TrnStorage

_Data = ec2.CfnLaunchTemplate
_CAPACITY = {"on-demand": "ON_DEMAND", "spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}


class TrnNodeGroup(Construct):
    """A managed node group of one Trainium type in one subnet, with its EFA interfaces.

    The instance type is in the launch template: the CDK's own `Nodegroup` refuses Trainium types with the Neuron image. An
    update takes nodes away before it brings new ones, as there is rarely capacity for more of them than there are.

    Args:
        environment: what the group belongs to.
        settings: the group.
        role: of its nodes.
        efa_group: the security group of EFA traffic (`TrnEfaSecurityGroup`). It must not carry a `kubernetes.io/cluster/` tag.
        after: what must be there before the first node joins: add-ons.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        settings: trn.NodeGroup,
        cluster: TrnEksCluster,
        network: TrnNetwork,
        storage: TrnStorage,
        role: TrnNodeRole,
        efa_group: ec2.ISecurityGroup,
        after: Sequence[IDependable] = (),
    ) -> None:
        super().__init__(scope, id)
        kind = environment.catalog.instance(settings.instance_type)
        efa = settings.efa != "off" and kind.efa_interfaces > 0
        reserved = settings.reservation is not None or settings.purchase == "capacity-block"
        # together they fail with InsufficientInstanceCapacity: reserved nodes have their place already (eksctl issue 7949)
        close = settings.placement_group == "on" or (settings.placement_group == "auto" and efa and not reserved)
        placement = ec2.CfnPlacementGroup(self, "Placement", strategy="cluster") if close else None
        groups = [cluster.cluster_security_group_id, storage.client_security_group.security_group_id]
        data = user_data(
            huge_pages=environment.catalog.eks.hugepages_2mi if efa else "",
            scratch=settings.scratch and kind.nvme.count > 0,
            lustre=environment.storage.fsx is not None,
            cluster=_api_server(cluster) if settings.custom_ami else None,
        )
        template = launch_template(
            self,
            instance_type=settings.instance_type,
            root_gib=settings.root_volume_gib,
            tags={**environment.tags, "Name": f"{environment.eks_cluster_name}-{settings.name}"},
            image_id=settings.custom_ami,
            user_data=Fn.base64(data) if data else None,
            security_group_ids=None if efa else groups,
            network_interfaces=[
                _Data.NetworkInterfaceProperty(
                    network_card_index=i.card,
                    device_index=i.device,
                    interface_type=i.kind,
                    groups=[*groups, efa_group.security_group_id],
                    delete_on_termination=True,
                )
                for i in interfaces(kind, settings.efa_layout)
            ]
            if efa
            else None,
            placement=_Data.PlacementProperty(group_name=placement.ref) if placement else None,
            capacity_reservation_specification=_reservation(settings),
            instance_market_options=_Data.InstanceMarketOptionsProperty(market_type="capacity-block")
            if settings.purchase == "capacity-block"
            else None,
        )
        # its lists of the types of each region are late for new ones; ours is checked before, against the catalogue
        template.add_metadata("cfn-lint", {"config": {"ignore_checks": ["E3628"]}})
        zone = environment.zone_of_group(settings)
        facts, image = environment.catalog.eks, environment.node_image
        self.resource = eks.CfnNodegroup(
            self,
            "Resource",
            cluster_name=cluster.resource.ref,
            node_role=role.role.role_arn,
            subnets=[network.private_subnet(zone).subnet_id],  # EFA does not cross subnets
            ami_type=None if settings.custom_ami else facts.ami_type,
            version=None if settings.custom_ami else environment.kubernetes_version,
            release_version=image.version if image and not settings.custom_ami else None,
            capacity_type=_CAPACITY[settings.purchase],
            launch_template=latest(template),
            scaling_config=scaling(self, environment, settings.name, settings),
            update_config=eks.CfnNodegroup.UpdateConfigProperty(
                max_unavailable_percentage=100, update_strategy="MINIMAL"
            ),
            node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(enabled=True),
            labels={**settings.labels, GROUP_LABEL: settings.name, ROLE_LABEL: "training"},
            taints=[eks.CfnNodegroup.TaintProperty(key=facts.taint, value="true", effect="NO_SCHEDULE")],
        )
        self.resource.node.add_dependency(network.internet_ready, storage.ready, *after)


def _reservation(settings: trn.NodeGroup) -> _Data.CapacityReservationSpecificationProperty | None:
    if not settings.reservation:
        return None
    return _Data.CapacityReservationSpecificationProperty(
        capacity_reservation_target=_Data.CapacityReservationTargetProperty(
            capacity_reservation_id=settings.reservation
        )
    )


def _api_server(cluster: TrnEksCluster) -> ApiServer:
    return ApiServer(
        name=cluster.name,
        endpoint=cluster.resource.attr_endpoint,
        authority=cluster.resource.attr_certificate_authority_data,
        cidr=cluster.service_cidr,
    )
