"""`TrnNodeGroup`: the Trainium nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jsii
from aws_cdk import Names, Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct, IDependable

from trainium_cdk import settings as trn
from trainium_cdk._cdk.interfaces import Layout
from trainium_cdk._cdk.launch_templates import training_template
from trainium_cdk._cdk.rules import refuse_tokens
from trainium_cdk._cdk.subnets import offering_subnet, routes_of, selected
from trainium_cdk._cdk.types import AnyRole
from trainium_cdk.catalog import CapacityType, Catalog
from trainium_cdk.efa import TrnEfaSecurityGroup
from trainium_cdk.eks.groups import ExistingNodeGroup, NodeGroup
from trainium_cdk.eks.launch import Sizes, managed_group
from trainium_cdk.eks.node_role import TrnNodeRole
from trainium_cdk.eks.rules import check_group
from trainium_cdk.eks.user_data import Driver, user_data
from trainium_cdk.eks.view import AnyCluster, view_of
from trainium_cdk.outputs import Fleet
from trainium_cdk.outputs.eks import group_fleet
from trainium_cdk.settings import Environment
from trainium_cdk.settings.inventory import inventory
from trainium_cdk.storage import AnyStorage, TrnStorage
from trainium_cdk.storage.given import grant_root_access, storage_in

if TYPE_CHECKING:
    from aws_cdk import aws_eks as eks_v1

    from trainium_cdk.eks.cluster import TrnEksCluster
    from trainium_cdk.network import TrnNetwork

CAPACITY_TYPES: dict[CapacityType, eks.CapacityType] = {
    "on-demand": eks.CapacityType.ON_DEMAND,
    "spot": eks.CapacityType.SPOT,
    "capacity-block": eks.CapacityType.CAPACITY_BLOCK,
}
"""The environment's names -> the CDK's capacity types."""


@jsii.implements(ec2.IConnectable, iam.IGrantable)
class TrnNodeGroup(Construct):
    """A managed node group of one Trainium type in one subnet, with its EFA interfaces, on any EKS cluster.

    The instance type is in the launch template: the CDK's own `Nodegroup` rejects Trainium types with the Neuron image. An
    update removes nodes before it adds new ones, as capacity for additional nodes is rare. Nodes carry
    the labels `trainium-cdk/node-group` and `trainium-cdk/role`, and the taint `aws.amazon.com/neuron`. The cluster needs
    Neuron's and EFA's device plug-ins, and VPC CNI 1.18.5 or newer.

    Example:
        group = TrnNodeGroup(self, "Trn", cluster=cluster, instance_type="trn1.32xlarge", max_size=4)
        bucket.grant_read(group)

    Args:
        cluster: A `TrnEksCluster`, an `aws_eks_v2` cluster of any app, or an `aws_eks` one whose authentication mode includes API. An
            imported one needs the attributes `vpc` and `cluster_security_group_id`.
        instance_type: A Trainium type of the catalogue. Default: trn1.32xlarge.
        min_size: Minimum number of nodes, which always run and cost money. Default: 0.
        desired_size: Initial number of nodes; a later deployment does not undo a scaling. Default: `min_size`.
        max_size: Maximum number of nodes. Default: 2.
        capacity_type: Purchase option, of `aws_eks_v2` or `aws_eks`. Default: ON_DEMAND.
        capacity_reservation_id: Id of a capacity reservation (ODCR), or of the capacity block that was bought; or the ARN of a resource
            group of several reservations, for example `group.attr_arn` of a `CfnGroup`. Default: none.
        subnets: Candidates: EFA does not cross subnets, so one of them is chosen, in an availability zone that
            offers the type. Default: the private subnets of the cluster's VPC.
        efa: Whether the nodes have EFA interfaces. Default: if the instance type has them.
        efa_layout: Interfaces: `efa` on every card; `efa-only`: EFA with an address on card 0 and `efa-only` on the others; or
            `ena-and-efa-only`: plain ENA on card 0 and `efa-only` on all. Default: efa-only.
        efa_security_group: Shared by the node groups of one fleet. Default: a new `TrnEfaSecurityGroup`.
        placement_group: Whether the nodes are in a new cluster placement group; or a group, its name or its id, as for a reservation
            that was made in one. Default: a new one with EFA, but none with reserved capacity, which is outside a new group (the launch
            fails with InsufficientInstanceCapacity).
        security_groups: Additional groups of the nodes. Default: none; the cluster's own group is always added.
        node_role: Default: a `TrnNodeRole`.
        storage: Shared file systems that pods mount: a `TrnStorage`, or an EFS or FSx for Lustre file system of the CDK. The nodes
            become clients of them. Default: none.
        lustre: Whether the nodes install the Lustre client. Default: if `storage` has Lustre.
        root_volume_size: Default: 500 GiB.
        local_storage: The instance's NVMe disks as one RAID-0 volume for containers and scratch data. Default: True.
        lnc: Physical NeuronCores of one logical NeuronCore. Default: the instance type's own, 2 on trn2.
        neuron_driver: Version of aws-neuronx-dkms that nodes install before they join the cluster, for example 2.31.7.0; a node that
            cannot does not join. They need the internet, or a mirror (the catalogue's `repositories`). Default: the image's driver.
        startup_script: Your own script, which each node runs as root before it joins the cluster. It must not contain secrets.
            Default: none.
        image_id: Your own image, derived from the EKS AL2023 Neuron image. Default: EKS's image.
        service_cidr: The IPv4 network of the cluster's services, required by nodes with your own image. Default: that of a
            `TrnEksCluster`.
        release_version: AMI release version of EKS's image, for example 1.33.1-20260625. Default: EKS's newest.
        version: Kubernetes version of the nodes. Default: the cluster's.
        labels: Additional Kubernetes labels. Default: none.
        taints: Default: `aws.amazon.com/neuron`, NoSchedule, which keeps other pods away.
        name: The group's name in the label, and of its queue for `trn`. Default: from the construct's path.
        catalog: The catalogue with the instance types. Default: this release's.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        UnknownCatalogEntry: the catalogue does not have the instance type.
        ValueError: `image_id` is given without `service_cidr` or with `neuron_driver`, or a value is not one that the argument can have.
    """

    role: iam.IRole
    """The role of the nodes."""
    fleet: Fleet
    """The description of the nodes for jobs."""
    storage: TrnStorage | None
    """The file systems of which the nodes are clients."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: AnyCluster,
        instance_type: str | ec2.InstanceType = "trn1.32xlarge",
        min_size: int = 0,
        desired_size: int | None = None,
        max_size: int = 2,
        capacity_type: eks.CapacityType | eks_v1.CapacityType = eks.CapacityType.ON_DEMAND,
        capacity_reservation_id: str | None = None,
        subnets: ec2.SubnetSelection | None = None,
        efa: bool | None = None,
        efa_layout: Layout = "efa-only",
        efa_security_group: ec2.ISecurityGroup | None = None,
        placement_group: ec2.IPlacementGroup | str | bool | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] = (),
        node_role: AnyRole | None = None,
        storage: AnyStorage | None = None,
        lustre: bool | None = None,
        root_volume_size: Size | None = None,
        local_storage: bool = True,
        lnc: int | None = None,
        neuron_driver: str | None = None,
        startup_script: str | None = None,
        image_id: str | None = None,
        service_cidr: str | None = None,
        release_version: str | None = None,
        version: str | None = None,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[eks.TaintSpec] | None = None,
        name: str | None = None,
        catalog: Catalog | None = None,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        refuse_tokens(self, min_size=min_size, desired_size=desired_size, max_size=max_size, name=name, lnc=lnc)
        type_name = instance_type if isinstance(instance_type, str) else instance_type.to_string()
        refuse_tokens(self, instance_type=type_name)
        catalog = catalog or Catalog.load()
        kind, view = catalog.instance(type_name), view_of(cluster)
        service_cidr, version = service_cidr or view.service_cidr, version or view.version
        if image_id and not service_cidr:
            raise ValueError(
                f"{self.node.path}: image_id is given without service_cidr. Give the IPv4 network of the cluster's services "
                "(`aws eks describe-cluster`: kubernetesNetworkConfig), which nodes with your own image need"
            )
        if image_id and neuron_driver:
            raise ValueError(
                f"{self.node.path}: neuron_driver = {neuron_driver}, but image_id is given: your own image has its driver. Fix: remove one"
            )
        self.name = name = name or Names.unique_resource_name(self, max_length=40, separator="-").lower()
        """The value of the label `trainium-cdk/node-group` on its nodes."""
        desired_size = min_size if desired_size is None else desired_size
        capacity = _capacity_word(self, capacity_type)
        block = capacity == "capacity-block"
        efa_setting = _EFA[efa]
        has_efa = kind.efa_of(efa_setting) > 0
        # reserved nodes are outside a new placement group: together they fail with InsufficientInstanceCapacity (eksctl issue 7949)
        placement = has_efa and not (block or capacity_reservation_id) if placement_group is None else placement_group
        self.storage = storage = storage_in(self, view.vpc, storage) if storage else None
        self.fleet = group_fleet(kind, name=name, nodes=max_size, efa=efa_setting, lnc=lnc, capacity_type=capacity)
        if rules:
            check_group(
                self,
                catalog,
                {
                    "name": name,
                    "instance_type": type_name,
                    "min_nodes": min_size,
                    "nodes": desired_size,
                    "max_nodes": max_size,
                    "capacity_type": capacity,
                    "reservation": capacity_reservation_id,
                    "placement_group": _group_setting(placement),
                    "efa": efa_setting,
                    "efa_layout": efa_layout,
                    "labels": dict(labels or {}),
                    "lnc": lnc,
                    "user_data": startup_script,
                    "custom_ami": image_id,
                    "root_volume_gib": root_volume_size.to_gibibytes() if root_volume_size else None,
                },
            )
        self.role = node_role or TrnNodeRole(self, "Role").role
        if storage:
            grant_root_access(self, storage, self.role)
        groups = [view.security_group_id, *(group.security_group_id for group in security_groups)]
        if storage:
            groups.append(storage.client_security_group.security_group_id)
        if has_efa:
            efa_security_group = efa_security_group or TrnEfaSecurityGroup(self, "Efa", vpc=view.vpc).security_group
            groups.append(efa_security_group.security_group_id)
        self.efa_security_group = efa_security_group if has_efa else None
        """The security group of EFA traffic; None without EFA."""
        data = user_data(
            huge_pages=catalog.eks.hugepages_2mi if has_efa else "",
            locked_memory=has_efa,
            local_storage=local_storage and kind.nvme.count > 0,
            lustre=bool(storage and storage.has_lustre) if lustre is None else lustre,
            lnc=lnc,
            driver=_driver(self, neuron_driver, catalog) if neuron_driver else None,
            own=startup_script,
            cluster=view.api_server(service_cidr) if image_id and service_cidr else None,
        )
        template = training_template(
            self,
            kind=kind,
            layout=efa_layout if has_efa else None,
            security_group_ids=groups,
            root_gib=(root_volume_size or Size.gibibytes(500)).to_gibibytes(),
            name=f"{view.name}-{name}",
            rules=rules,
            user_data=data,
            image_id=image_id,
            placement_group=placement,
            reservation=capacity_reservation_id,
            capacity_block=block,
        )
        candidates = selected(view.vpc, subnets)
        subnet = offering_subnet(self, "Subnet", subnets=candidates, instance_types=[type_name])
        own_image = image_id is not None
        if taints is None:
            taints = (eks.TaintSpec(key=catalog.eks.taint, value="true", effect=eks.TaintEffect.NO_SCHEDULE),)
        self._resource, size = managed_group(
            self,
            view=view,
            name=name,
            purpose="training",
            sizes=Sizes(desired_size, min_size, max_size),
            template=template,
            labels=labels,
            cluster_name=view.name,
            node_role=self.role.role_arn,
            subnets=[subnet],
            ami_type=None if own_image else catalog.eks.ami_type,
            version=None if own_image else version,
            release_version=None if own_image else release_version,
            capacity_type=CAPACITY_TYPES[capacity].value,
            update_config=eks.CfnNodegroup.UpdateConfigProperty(
                max_unavailable_percentage=100, update_strategy="MINIMAL"
            ),
            taints=[
                eks.CfnNodegroup.TaintProperty(key=t.key, value=t.value, effect=t.effect.value if t.effect else None)
                for t in taints
            ],
        )
        # its size is read when it is the group's turn: the scaler may change it during a deployment
        self._first = size.node
        self._first.add_dependency(*view.before_nodes, *routes_of(candidates), *([storage.ready] if storage else []))
        self.nodegroup_name: str = self._resource.attr_nodegroup_name
        self.nodegroup_arn: str = self._resource.attr_arn
        self._connections: ec2.Connections | None = None

    @classmethod
    def from_settings(
        cls,
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
    ) -> TrnNodeGroup:
        """A node group of an environment.

        Args:
            environment: The group's environment.
            settings: One of `environment.eks.node_groups`.
            after: What must exist before the first node joins: add-ons.
        """
        image = environment.node_image
        zone = inventory(environment, "eks").zone_of(settings)
        group = cls(
            scope,
            id,
            cluster=cluster,
            instance_type=settings.instance_type,
            min_size=settings.min_nodes,
            desired_size=settings.nodes,
            max_size=settings.max_nodes,
            capacity_type=CAPACITY_TYPES[settings.capacity_type],
            capacity_reservation_id=settings.reservation,
            subnets=ec2.SubnetSelection(subnets=[network.private_subnet(zone)]),
            efa=_ON_OFF[settings.efa],
            efa_layout=settings.efa_layout,
            efa_security_group=efa_group,
            placement_group=settings.existing_group or _ON_OFF[settings.placement_group],
            node_role=role.role,
            storage=storage,
            root_volume_size=Size.gibibytes(settings.root_volume_gib),
            local_storage=settings.local_storage,
            lnc=settings.lnc,
            neuron_driver=None if settings.custom_ami else environment.node_driver,
            startup_script=settings.user_data,
            image_id=settings.custom_ami,
            release_version=image.version if image else None,
            labels=settings.labels,
            name=settings.name,
            catalog=environment.catalog,
            rules=False,  # the whole environment is already checked
        )
        group._first.add_dependency(network.internet_ready, *after)
        return group

    @classmethod
    def from_nodegroup_attributes(
        cls,
        *,
        cluster: AnyCluster,
        nodegroup_name: str,
        instance_type: str,
        max_size: int,
        name: str,
        efa: bool | None = None,
        lnc: int | None = None,
        storage: AnyStorage | None = None,
        catalog: Catalog | None = None,
    ) -> NodeGroup:
        """A node group that exists already, or one of the CDK, for `TrnPlugins`, `TrnScaler` and `TrnOutputs`.

        Nothing is created or changed. Its nodes must have the label `trainium-cdk/node-group` with the value `name`, by which jobs
        select them, Neuron's driver, and what `storage` needs for mounting.

        Args:
            cluster: Its cluster.
            nodegroup_name: Its name in EKS.
            instance_type: Its Trainium type.
            max_size: Its maximum number of nodes.
            name: The value of the label, and the name of its queue.
            efa: Whether its nodes have all EFA interfaces of the type. Default: if the instance type has them.
            lnc: Physical NeuronCores of one logical NeuronCore on its nodes. Default: the instance type's own.
            storage: The file systems that its nodes can mount. Default: none.
            catalog: The catalogue with the instance type. Default: this release's.
        """
        kind = (catalog or Catalog.load()).instance(instance_type)
        fleet = group_fleet(kind, name=name, nodes=max_size, efa=_EFA[efa], lnc=lnc)
        return ExistingNodeGroup(cluster, nodegroup_name, fleet, storage)

    @property
    def connections(self) -> ec2.Connections:
        """Rules of its EFA security group; a group without EFA has none of its own."""
        if self._connections is None:  # few groups have rules of their own
            groups = [self.efa_security_group] if self.efa_security_group else []
            self._connections = ec2.Connections(security_groups=groups)
        return self._connections

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The nodes' role. Pods have their own identities (EKS Pod Identity): grant permissions of jobs to those."""
        return self.role.grant_principal


_ON_OFF = {"auto": None, "on": True, "off": False}
_EFA = {value: word for word, value in _ON_OFF.items()}


def _group_setting(placement: ec2.IPlacementGroup | str | bool) -> str:
    """A placement group as an environment writes it."""
    if isinstance(placement, bool):
        return "on" if placement else "off"
    return placement if isinstance(placement, str) else placement.placement_group_name


def _driver(construct: Construct, version: str, catalog: Catalog) -> Driver:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)+", version):
        raise ValueError(
            f"{construct.node.path}: neuron_driver = {version}: not a version. Fix: write that of aws-neuronx-dkms, for example 2.31.7.0"
        )
    return Driver(version, str(catalog.repositories.yum), str(catalog.repositories.key))


def _capacity_word(construct: Construct, given: object) -> CapacityType:
    """The environment's name of a capacity type, also of one of `aws_eks`, whose values are the same."""
    word = str(getattr(given, "value", given)).lower().replace("_", "-")
    for known in CAPACITY_TYPES:
        if word == known:
            return known
    choices = ", ".join(each.name for each in CAPACITY_TYPES.values())
    raise ValueError(
        f"{construct.node.path}: capacity_type = {given}: not a capacity type. Fix: write aws_eks_v2.CapacityType.ON_DEMAND; "
        f"the types are {choices}"
    )
