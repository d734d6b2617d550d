"""One view of any cluster: of this library, or of the CDK, created by any construct, stack or tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from aws_cdk import Stack, Stage
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct, IDependable

from trainium_cdk.cdk.eks.user_data import ApiServer
from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.groups import ClosedGroup, https_out, own_ids
from trainium_cdk.cdk.helpers.rules import unresolved
from trainium_cdk.cdk.helpers.stack_wide import kept_with, once

if TYPE_CHECKING:
    from aws_cdk import aws_eks as eks_v1
    from aws_cdk import aws_eks_v2 as eks

T = TypeVar("T")

# A `Cluster` implements `ICluster`, but to a type checker it lacks members of it: jsii does not derive the one from the other
if TYPE_CHECKING:
    TheirCluster: TypeAlias = "eks.ICluster | eks.Cluster | eks_v1.ICluster | eks_v1.Cluster"
else:

    def _named(module: str, name: str) -> type:
        """A class of the CDK by its name, as its module takes time to import."""
        return type(name, (), {"__module__": f"aws_cdk.{module}", "__jsii_type__": f"aws-cdk-lib.{module}.{name}"})

    TheirCluster = _named("aws_eks_v2", "ICluster") | _named("aws_eks_v2", "Cluster") | _named("aws_eks", "ICluster")


@dataclass(frozen=True)
class ClusterView:
    """The values of a cluster that node groups, add-ons and plug-ins use.

    Attributes:
        cluster: The cluster, for the CDK's own constructs.
        name: Plain text if known at synthesis, for resources that need not wait for the cluster.
        reference: The name, for resources that must wait for the cluster.
        arn: Its ARN, from its name.
        connections: Those of the Kubernetes API.
        before_nodes: What nodes must wait for.
        clients: A security group whose members reach the API; None if none.
        subnets: Private ones that reach the API; none if unknown.
        version: Its Kubernetes version; None if unknown.
        service_cidr: IPv4 network of its services; None if unknown.
        namespace: Namespace of the jobs.
        endpoint: `private` where the Kubernetes API is reached only within the VPC, else `public`; None if unknown.
        access_role: The role that `trn` assumes to use the Kubernetes API; None for the caller's own credentials.
    """

    cluster: TheirCluster
    name: str
    reference: str
    arn: str
    connections: ec2.Connections
    before_nodes: Sequence[IDependable] = ()
    clients: ec2.ISecurityGroup | None = None
    subnets: Sequence[ec2.ISubnet] = ()
    version: str | None = None
    service_cidr: str | None = None
    namespace: str = "training"
    endpoint: Literal["private", "public"] | None = None
    access_role: iam.IRole | None = None

    @cached_property  # each reading is a message to the CDK's process
    def vpc(self) -> ec2.IVpc:
        vpc: ec2.IVpc = self._given("vpc", lambda cluster: once(cluster, "vpc"))
        return vpc

    @cached_property
    def security_group(self) -> ec2.ISecurityGroup:
        """The group that EKS creates for the cluster and all its nodes."""
        group: ec2.ISecurityGroup = self._given(
            "cluster_security_group_id", lambda cluster: once(cluster, "cluster_security_group")
        )
        return group

    def api_server(self, service_cidr: str) -> ApiServer:
        """Its API, for nodes with an image of the caller's own."""
        endpoint = self._given("cluster_endpoint", lambda cluster: cluster.cluster_endpoint)
        name = "cluster_certificate_authority_data"
        authority = self._given(name, lambda cluster: cluster.cluster_certificate_authority_data)
        return ApiServer(self.name, endpoint, authority, service_cidr)

    def _given(self, name: str, read: Callable[[TheirCluster], T]) -> T:
        """An attribute that an imported cluster may lack.

        Raises:
            ValueError: it lacks it.
        """
        try:
            return read(self.cluster)
        except RuntimeError:  # jsii's, for an attribute that is undefined
            raise ValueError(
                f"{self.cluster.node.path}: {name} of this imported cluster is not known, and is needed: give it to "
                "Cluster.from_cluster_attributes"
            ) from None


def client_group(scope: Construct, view: ClusterView) -> ec2.ISecurityGroup:
    """A security group for a function that uses the Kubernetes API of a cluster which has no group for clients."""
    out, what = https_out("AWS, the API"), f"{scope.node.id}: HTTPS out, nothing in"
    group = ClosedGroup(scope, "Group", vpc_id=once(view.vpc, "vpc_id"), description=what, egress=out).group
    for api in view.connections.security_groups:
        with own_ids(group, api):  # remote: the rule is in this stack if the cluster is in another
            api.add_ingress_rule(group, ec2.Port.tcp(443), "Kubernetes API", True)
    return group


def _of_cluster(name: str) -> Any:
    """An attribute of the CDK's cluster, as an attribute of ours."""
    return property(lambda self: getattr(self.cluster, name))


class OwnCluster(Checked):
    """Base class of this library's cluster, so that others need not import the cluster construct, which loads kubectl.

    `TrnEksCluster` is an `eks.ICluster`: constructs of the CDK take it. What it does not know itself, `cluster` does.
    """

    view: ClusterView
    """Its view for the other constructs of this library."""
    cluster: eks.ICluster
    """The cluster, for any construct of the CDK. Objects added with `add_manifest` or `add_helm_chart` wait for everything that they
    need."""
    cluster_name = property(lambda self: self.view.reference)  # what has it waits for the cluster
    cluster_endpoint = _of_cluster("cluster_endpoint")
    cluster_certificate_authority_data = _of_cluster("cluster_certificate_authority_data")
    cluster_security_group = _of_cluster("cluster_security_group")
    cluster_encryption_config_key_arn = _of_cluster("cluster_encryption_config_key_arn")
    cluster_ref = _of_cluster("cluster_ref")
    eks_pod_identity_agent = _of_cluster("eks_pod_identity_agent")
    env = _of_cluster("env")
    ip_family = _of_cluster("ip_family")
    kubectl_provider = _of_cluster("kubectl_provider")
    kubectl_provider_options = _of_cluster("kubectl_provider_options")
    open_id_connect_provider = _of_cluster("open_id_connect_provider")
    prune = _of_cluster("prune")
    stack = _of_cluster("stack")
    vpc = _of_cluster("vpc")

    def add_manifest(self, id: str, *manifest: Mapping[str, Any]) -> eks.KubernetesManifest:
        """See `eks.ICluster`."""
        return self.cluster.add_manifest(id, *manifest)

    def add_helm_chart(self, id: str, **options: Any) -> eks.HelmChart:
        """See `eks.ICluster`."""
        return self.cluster.add_helm_chart(id, **options)

    def add_service_account(self, id: str, **options: Any) -> eks.ServiceAccount:
        """See `eks.ICluster`."""
        return self.cluster.add_service_account(id, **options)

    def add_cdk8s_chart(self, id: str, chart: Construct, **options: Any) -> eks.KubernetesManifest:
        """See `eks.ICluster`."""
        return self.cluster.add_cdk8s_chart(id, chart, **options)


AnyCluster: TypeAlias = TheirCluster | OwnCluster


def view_of(cluster: AnyCluster) -> ClusterView:
    """The view of a cluster."""
    if isinstance(cluster, OwnCluster):
        return cluster.view
    name = cluster.cluster_name
    return ClusterView(
        cluster=cluster, name=name, reference=name, arn=cluster.cluster_arn, connections=cluster.connections
    )


def created_version(cluster: AnyCluster) -> str | None:
    """The Kubernetes version with which an `aws_eks_v2` cluster is created; None if unknown. An update may change it."""
    version: str | None = getattr(cluster.node.default_child, "version", None)
    return None if unresolved(version) else version


def _first_of(construct: Construct, cluster: AnyCluster, what: str) -> Construct:
    """The construct that was the first to be this on the cluster: of one of this library, or of another one in the app, by its name, account
    and region."""
    if isinstance(cluster, OwnCluster):
        known, name = kept_with(cluster, "first"), what
    else:
        known, name = kept_with(construct.node.root, "first"), f"{what} {_identity(cluster)}"
    first: Construct = known.setdefault(name, construct)
    return first


def name_once(construct: Construct, cluster: AnyCluster, name: str) -> None:
    """Raises ValueError if another node group of the cluster has the name: nodes are found by it."""
    first = _first_of(construct, cluster, f"group {name}")
    if first is not construct:
        raise ValueError(
            f"{construct.node.path}: nodes.name = {name}: {first.node.path} of the same cluster has this name, and jobs find their nodes by "
            "it. Fix: write another name"
        )


def install_once(construct: Construct, cluster: AnyCluster) -> None:
    """Raises ValueError if the cluster cannot have what the construct installs: it has it already, or its addresses are IPv6."""
    kind = type(construct).__name__
    first = _first_of(construct, cluster, kind)
    if first is not construct:
        raise ValueError(
            f"{construct.node.path}: the cluster has a {kind} already, {first.node.path}, and both would install the same: give that "
            "one the arguments of both"
        )
    if not isinstance(cluster, OwnCluster) and getattr(cluster.ip_family, "name", "") == "IP_V6":
        raise ValueError(
            f"{construct.node.path}: the cluster's pods have IPv6 addresses, and what {kind} installs is for IPv4: give a cluster "
            "whose ip_family is IP_V4"
        )


def _identity(cluster: TheirCluster) -> str:
    """Return a key that constructs for one cluster share: name, account and region; its path if the name is unknown."""
    stack = Stack.of(cluster)
    if unresolved(cluster.cluster_name):
        return cluster.node.path
    found = f"{cluster.cluster_name} {stack.account} {stack.region}"
    stage = Stage.of(cluster)
    # where a stage without account or region is deployed is decided later, and for each stage by itself
    return f"{found} {stage.node.path}" if stage and unresolved(found) else found


def refuse_config_map(construct: Construct, cluster: AnyCluster) -> None:
    """Raises ValueError for a cluster of `aws_eks` that has no access entries, as is that module's default. For an imported cluster it is
    not known."""
    if not (hasattr(cluster, "kubectl_role") and hasattr(cluster, "add_nodegroup_capacity")):
        return  # not of aws_eks, or imported
    mode = getattr(getattr(cluster, "authentication_mode", None), "name", "CONFIG_MAP")
    if mode == "CONFIG_MAP":
        raise ValueError(
            f"{construct.node.path}: the cluster {cluster.node.path} takes its users from a ConfigMap alone (authentication_mode), and EKS "
            "refuses access entries for it. Give the cluster authentication_mode=AuthenticationMode.API_AND_CONFIG_MAP"
        )


def kubectl_of(construct: Construct, cluster: AnyCluster) -> tuple[Any, Any]:
    """Return the cluster for manifests and charts, and its module of the CDK: `aws_eks_v2` or `aws_eks`. The constructs of both take
    the same arguments.

    Raises:
        ValueError: it has no kubectl provider (`aws_eks_v2`), or no provider and no role or layer for one (`aws_eks`).
    """
    if isinstance(cluster, OwnCluster):
        return cluster.cluster, import_module("aws_cdk.aws_eks_v2")
    if hasattr(cluster, "kubectl_role"):  # only clusters of aws_eks have it
        # the CDK makes a function of both, without kubectl where there is no layer (aws-cdk issue 34759)
        provider = getattr(cluster, "kubectl_provider", None)  # only imported clusters have it
        if provider is None and None in (cluster.kubectl_role, getattr(cluster, "kubectl_layer", None)):
            lacks = "layer" if cluster.kubectl_role else "role"
            raise ValueError(
                f"{construct.node.path}: the cluster has no {lacks} for kubectl, which is needed to install anything in it. Give "
                "Cluster.from_cluster_attributes kubectl_role_arn and kubectl_layer"
            )
        return cluster, import_module("aws_cdk.aws_eks")  # imported only for them: it takes time
    if getattr(cluster, "kubectl_provider", None) is None:
        raise ValueError(
            f"{construct.node.path}: the cluster has no kubectl provider, which is needed to install anything in it. Give the "
            "cluster kubectl_provider_options with a kubectl_layer, or use TrnEksCluster"
        )
    return cluster, import_module("aws_cdk.aws_eks_v2")
