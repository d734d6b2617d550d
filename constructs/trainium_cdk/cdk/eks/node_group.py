"""`TrnNodeGroup`: the Trainium nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import jsii
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct, IDependable

from trainium_cdk.cdk.efa import TrnEfaSecurityGroup
from trainium_cdk.cdk.eks.groups import ExistingNodeGroup, INodeGroup
from trainium_cdk.cdk.eks.launch import Sizes, managed_group
from trainium_cdk.cdk.eks.node_role import TrnNodeRole
from trainium_cdk.cdk.eks.rules import check_group, instance_of
from trainium_cdk.cdk.eks.user_data import Driver, user_data
from trainium_cdk.cdk.eks.view import AnyCluster, created_version, name_once, view_of
from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.launch_templates import training_template
from trainium_cdk.cdk.helpers.stack_wide import once
from trainium_cdk.cdk.helpers.subnets import offering_subnet, routes_of, selected
from trainium_cdk.cdk.helpers.types import AnyRole
from trainium_cdk.cdk.storage import AnyStorage, TrnStorage
from trainium_cdk.cdk.storage.given import grant_to_nodes, storage_in
from trainium_cdk.description import settings
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import Fleet
from trainium_cdk.description.outputs.eks import DEVICES_LABEL, fleet_of


@jsii.implements(ec2.IConnectable, iam.IGrantable)
class TrnNodeGroup(Checked):
    """A managed node group of one Trainium type in one subnet, with its EFA interfaces, on any EKS cluster.

    The instance type is in the launch template: the CDK's own `Nodegroup` rejects Trainium types with the Neuron image. An
    update removes nodes before it adds new ones, as capacity for additional nodes is rare. Nodes carry
    the labels `trainium-cdk/node-group` and `trainium-cdk/role`, and the taint `aws.amazon.com/neuron`. The cluster needs
    Neuron's and EFA's device plug-ins, and VPC CNI 1.18.5 or newer. With devices: claims in `nodes`, they also carry the label
    `trainium-cdk/devices`, and need Neuron's DRA driver in place of its plug-in, as `TrnPlugins` installs it.

    Example:
        nodes = settings.NodeGroup(instance_type="trn1.32xlarge", max_nodes=4)
        group = TrnNodeGroup(self, "Trn", cluster=cluster, nodes=nodes)
        repository.grant_pull(group)

    Args:
        cluster: A `TrnEksCluster`, an `aws_eks_v2` cluster of any app, or an `aws_eks` one whose authentication mode includes API. An
            imported one needs the attributes `vpc` and `cluster_security_group_id`.
        nodes: Their type, number, capacity, network interfaces, volumes and start script, as in an environment file. Without `devices`
            pods get them from the plug-in. Default: up to two trn1.32xlarge.
        vpc_subnets: Candidates: EFA does not cross subnets, so one of them is chosen, in an availability zone that
            offers the type. Default: the private subnets of the cluster's VPC.
        efa_security_group: Shared by the node groups of one fleet: a `TrnEfaSecurityGroup`'s, or one of yours with your own rules that
            allow all traffic from and to itself, both ways, without which jobs hang (EC2 user guide, EFA). Default: a new `TrnEfaSecurityGroup`.
        placement_group: One of the CDK's. Default: by `nodes`.
        security_groups: Additional groups of the nodes. Default: none; the cluster's own group is always added.
        node_role: Default: a `TrnNodeRole`.
        storage: Shared file systems that pods mount: a `TrnStorage`, or an EFS or FSx for Lustre file system of the CDK. The nodes
            become clients of them. On a new EFS of `TrnStorage` they may mount access points alone, as `TrnPlugins` makes them, unless
            you grant `node_role` more. Default: none.
        lustre: Whether the nodes install the Lustre client. Default: if `storage` has Lustre.
        neuron_driver: Version of aws-neuronx-dkms that nodes install before they join the cluster, for example 2.31.7.0; a node that
            cannot does not join. They need the internet, or a mirror (the catalogue's `repositories`). Default: the image's driver.
        service_cidr: The IPv4 network of the cluster's services, required by nodes with your own image. Default: the
            `TrnEksCluster`'s.
        release_version: AMI release version of EKS's image, for example 1.33.1-20260625. Default: EKS's newest.
        version: Kubernetes version of the nodes. Default: the cluster's.
        taints: Default: `aws.amazon.com/neuron`, NoSchedule, which keeps other pods away.
        catalog: The catalogue with the instance types. Default: this release's.
        rules: Whether to check `nodes` with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        UnknownCatalogEntry: the catalogue does not have the instance type.
        SettingsError: a value of `nodes` is wrong.
        ValueError: `nodes` has its own image without `service_cidr` or with `neuron_driver`, a zone without `vpc_subnets`, or the
            name of another group of the cluster.
    """

    role: iam.IRole
    """The role of the nodes."""
    fleet: Fleet
    """The description of the nodes for jobs."""
    storage: TrnStorage | None
    """The file systems that the nodes mount."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: AnyCluster,
        nodes: settings.NodeGroup = settings.NodeGroup.model_construct(),  # noqa: B008  frozen
        vpc_subnets: ec2.SubnetSelection | None = None,
        efa_security_group: ec2.ISecurityGroup | None = None,
        placement_group: ec2.IPlacementGroup | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] = (),
        node_role: AnyRole | None = None,
        storage: AnyStorage | None = None,
        lustre: bool | None = None,
        neuron_driver: str | None = None,
        service_cidr: str | None = None,
        release_version: str | None = None,
        version: str | None = None,
        taints: Sequence[eks.TaintSpec] | None = None,
        catalog: Catalog | None = None,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        catalog, view, name = catalog or Catalog.load(), view_of(cluster), nodes.name
        kind = instance_of(self, catalog, nodes)
        service_cidr, version = service_cidr or view.service_cidr, version or view.version
        _refuse_pairs(self, nodes, service_cidr, neuron_driver, vpc_subnets)
        if nodes.lnc and nodes.lnc not in kind.lnc:
            raise ValueError(
                f"{self.node.path}: nodes.lnc = {nodes.lnc}: {kind.name} does not support it. Fix: write lnc: {kind.default_lnc}, or remove it"
            )
        name_once(self, cluster, name)
        if rules:
            check_group(self, catalog, nodes, version or created_version(cluster))
        self.name = name
        """The value of the label `trainium-cdk/node-group` on its nodes."""
        has_efa, own_image = kind.efa_of(nodes.efa) > 0, nodes.custom_ami is not None
        self.storage = storage = storage_in(self, view.vpc, storage) if storage else None
        self.fleet = fleet_of(kind, nodes)
        self.role = node_role or TrnNodeRole(self, "Role").role
        if storage:
            grant_to_nodes(self, storage, self.role)
        groups = [
            once(view.security_group, "security_group_id"),
            *(group.security_group_id for group in security_groups),
        ]
        if storage:
            groups.append(once(storage.client_security_group, "security_group_id"))
        if has_efa:
            efa_security_group = efa_security_group or TrnEfaSecurityGroup(self, "Efa", vpc=view.vpc).security_group
            groups.append(once(efa_security_group, "security_group_id"))
        self.efa_security_group = efa_security_group if has_efa else None
        """The security group of EFA traffic; None without EFA."""
        data = user_data(
            huge_pages=catalog.eks.hugepages_2mi if has_efa else "",
            locked_memory=has_efa,
            local_storage=nodes.local_storage and kind.nvme.count > 0,
            lustre=bool(storage and storage.has_lustre) if lustre is None else lustre,
            lnc=nodes.lnc,
            driver=_driver(self, neuron_driver, catalog) if neuron_driver else None,
            own=nodes.user_data,
            cluster=view.api_server(service_cidr) if own_image and service_cidr else None,
        )
        template = training_template(
            self,
            kind=kind,
            layout=nodes.efa_layout if has_efa else None,
            security_group_ids=groups,
            root_gib=nodes.root_volume_gib,
            name=f"{view.name}-{name}",
            rules=rules,
            user_data=data,
            image_id=nodes.custom_ami,
            placement_group=placement_group or nodes.placement(efa=has_efa, reservation=nodes.reservation),
            reservation=nodes.reservation,
            capacity_block=nodes.capacity_type == "capacity-block",
        )
        candidates = selected(view.vpc, vpc_subnets)
        subnet = offering_subnet(self, "Subnet", subnets=candidates, instance_types=[kind.name])
        if taints is None:
            taints = (eks.TaintSpec(key=catalog.eks.taint, value="true", effect=eks.TaintEffect.NO_SCHEDULE),)
        self._resource, size = managed_group(
            self,
            view=view,
            name=name,
            purpose="training",
            sizes=Sizes(nodes.nodes, nodes.min_nodes, nodes.max_nodes),
            template=template,
            labels={**nodes.labels, **({DEVICES_LABEL: "claims"} if self.fleet.claims else {})},
            # new nodes: on running ones the other mechanism would give devices again that jobs have
            id="Claims" if self.fleet.claims else "Resource",
            cluster_name=view.name,
            node_role=once(self.role, "role_arn"),
            subnets=[subnet],
            ami_type=None if own_image else catalog.eks.ami_type,
            version=None if own_image else version,
            release_version=None if own_image else release_version,
            capacity_type=nodes.capacity_type.upper().replace("-", "_"),
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
        own = [self.efa_security_group] if self.efa_security_group else [*security_groups]
        self._connections = ec2.Connections(security_groups=own or [view.security_group])

    def wait_for(self, *others: IDependable) -> None:
        """Create the nodes after these, for example the add-ons that must be there when the first node joins."""
        self._first.add_dependency(*others)

    @classmethod
    def from_nodegroup_attributes(
        cls,
        *,
        cluster: AnyCluster,
        nodegroup_name: str,
        nodes: settings.NodeGroup,
        storage: AnyStorage | None = None,
        catalog: Catalog | None = None,
    ) -> INodeGroup:
        """A node group that exists already, or one of the CDK, for `TrnPlugins`, `TrnScaler` and `TrnOutputs`.

        Nothing is created or changed. Its nodes must have the label `trainium-cdk/node-group` with the name of `nodes` as its value, by
        which jobs select them, Neuron's driver, and what `storage` needs for mounting. With devices: claims in `nodes`, they must also have
        the label `trainium-cdk/devices` with the value claims.

        Args:
            cluster: Its cluster.
            nodegroup_name: Its name in EKS.
            nodes: Its type, largest number, EFA and logical cores. The name is the value of the label, and the name of its queue.
            storage: The file systems that its nodes can mount. Default: none.
            catalog: The catalogue with the instance type. Default: this release's.
        """
        kind = (catalog or Catalog.load()).instance(nodes.instance_type)
        return ExistingNodeGroup(cluster, nodegroup_name, fleet_of(kind, nodes), storage)

    @property
    def connections(self) -> ec2.Connections:
        """Rules of its EFA security group. A group without EFA has `security_groups`, else the cluster's own, which all
        nodes of the cluster share."""
        return self._connections

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The nodes' role. Pods have their own identities (EKS Pod Identity): grant permissions of jobs to those."""
        return self.role.grant_principal


def _refuse_pairs(
    construct: Construct,
    nodes: settings.NodeGroup,
    service_cidr: str | None,
    neuron_driver: str | None,
    vpc_subnets: ec2.SubnetSelection | None,
) -> None:
    """Raises ValueError for arguments that exclude each other."""
    if nodes.custom_ami and not service_cidr:
        raise ValueError(
            f"{construct.node.path}: nodes.custom_ami = {nodes.custom_ami}: nodes with your own image need the IPv4 network of the cluster's "
            "services. Fix: give service_cidr (`aws eks describe-cluster`: kubernetesNetworkConfig)"
        )
    if nodes.custom_ami and neuron_driver:
        raise ValueError(
            f"{construct.node.path}: neuron_driver = {neuron_driver}: nodes.custom_ami is given, and your own image has its driver. Fix: remove one"
        )
    if nodes.zone_id and vpc_subnets is None:
        raise ValueError(
            f"{construct.node.path}: nodes.zone_id = {nodes.zone_id}: the zones of the VPC's subnets are not known by their ids. Fix: give vpc_subnets "
            "with the subnet of that zone"
        )


def _driver(construct: Construct, version: str, catalog: Catalog) -> Driver:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)+", version):
        raise ValueError(
            f"{construct.node.path}: neuron_driver = {version}: not a version. Fix: write the version of aws-neuronx-dkms, for example 2.31.7.0"
        )
    return Driver(version, str(catalog.repositories.yum), str(catalog.repositories.key))
