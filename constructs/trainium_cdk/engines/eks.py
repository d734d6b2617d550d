"""Kubernetes with Volcano, on Amazon EKS."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainium_cdk.engines.base import Engine, Image, Key, Nodes, Server

if TYPE_CHECKING:
    import datetime as dt

    from trainium_cdk.catalog import InstanceType, Need, Stack
    from trainium_cdk.jobs import Backend
    from trainium_cdk.outputs import ClusterOutputs
    from trainium_cdk.settings import Environment

CONTROL_PLANE_ADDRESSES = 6
"""The free addresses that EKS requires in each subnet of a control plane (EKS user guide, subnet requirements)."""


class EksEngine(Engine):
    name = "eks"
    title = "Kubernetes"
    section = "eks"
    stack = "TrnEksStack"
    stack_class = "stacks.eks:TrnEksStack"
    cluster_resource = "AWS::EKS::Cluster"
    queue_noun = "node group"
    own_tag = "eks:cluster-name"
    services = frozenset({"amazon-eks"})
    containers = True
    ordered_logs = False
    role_in_key_policy = "scaling"
    socket_interface = "eth0"  # the only one of a pod
    addresses_of_nodes = "for pods and network interfaces"
    version_fix = "Use an image with another runtime (--image), or deploy with another eks: {ami_release: ...}"

    def cluster_name(self, env: Environment) -> str:
        return env.eks_cluster_name

    def nodes(self, env: Environment) -> Iterator[Nodes]:
        for i, group in enumerate(env.eks.node_groups):
            at: Key = ("eks", "node_groups", i)
            yield Nodes(at, at, group, group)

    def zone_ids(self, env: Environment) -> tuple[str, ...]:
        """At least two, as the control plane needs them."""
        zones = super().zone_ids(env)
        if env.network.existing or env.network.zone_ids or len(zones) >= 2:
            return zones
        others = [z for z in env.catalog.eks.zone_ids.get(env.region, ()) if z not in zones]
        return (*zones, *others[: 2 - len(zones)]) if zones else ()

    def need(self, env: Environment, families: tuple[str, ...]) -> Need:
        from trainium_cdk.catalog import Need

        return Need(self.name, families, version=env.kubernetes_version, custom_ami=_custom(env))

    def versions(self, env: Environment, release: str, families: tuple[str, ...]) -> Stack | None:
        from trainium_cdk.catalog import Stack

        image = env.node_image
        return Stack.eks(
            env.catalog,
            families,
            release=release,
            framework=env.framework,
            version=env.kubernetes_version,
            ami=env.eks.ami_release or (image.version.rpartition("-")[2] if image else None),
            custom_ami=_custom(env),
        )

    def node_addresses(self, env: Environment, nodes: Nodes, kind: InstanceType, efa: bool) -> int:
        """It depends on the interface layout and the addresses that the CNI keeps for pods."""
        every_card = efa and getattr(nodes.resource, "efa_layout", "") == "efa"
        return (kind.efa_interfaces if every_card else 1) + _pod_addresses(env)

    def other_addresses(self, env: Environment, first: bool) -> dict[str, int]:
        bastion_host = env.eks.endpoint == "private" and env.eks.bastion_host is not None
        # the system nodes may all be in one zone
        return {
            "system nodes and their pods": env.eks.system.max_nodes * (1 + _pod_addresses(env)),
            "the control plane": CONTROL_PLANE_ADDRESSES,
            "the bastion host": int(first and bastion_host),
            "functions": 2,
        }

    def servers(self, env: Environment) -> Iterator[Server]:
        system, bastion = env.eks.system, env.eks.bastion_host
        at: Key = ("eks", "system", "instance_type")
        yield Server("system node", system.instance_type, system.max_nodes, at, system.nodes)
        if bastion and env.eks.endpoint == "private":
            yield Server("bastion host", bastion.instance_type, 1, ("eks", "bastion_host", "instance_type"), 1)

    def control_plane(self, env: Environment, today: dt.date) -> dict[str, str]:
        version = env.catalog.eks.versions.get(env.kubernetes_version)
        extended = "extended-support-" if version is not None and today > version.standard_support_until else ""
        return {f"EKS control plane, Kubernetes {env.kubernetes_version}": f"eks-{extended}cluster-hour"}

    def idle_nodes(self, nodes: Nodes) -> int:
        return int(getattr(nodes.resource, "nodes", nodes.resource.min_nodes))

    def service_roles(self, env: Environment) -> tuple[str, ...]:  # noqa: ARG002
        return ("eks", "nodes", "scaling")

    def data_buckets(self, env: Environment) -> dict[Key, str]:
        return {("eks", "data_buckets", i): name for i, name in enumerate(env.eks.data_buckets)}

    def images(self, env: Environment) -> list[Image]:
        groups = enumerate(env.eks.node_groups)
        return [
            Image(g.custom_ami, g.root_volume_gib, ("eks", "node_groups", i, "custom_ami"))
            for i, g in groups
            if g.custom_ami
        ]

    def public_parameters(self, env: Environment) -> list[str]:
        return [env.catalog.eks.ami_parameter.format(version=env.kubernetes_version)]

    def tags(self, cluster: str) -> dict[str, str]:
        return {
            f"kubernetes.io/cluster/{cluster}": "owned",
            self.own_tag: cluster,
            "aws:eks:cluster-name": cluster,
            "cluster.k8s.amazonaws.com/name": cluster,
            "elbv2.k8s.aws/cluster": cluster,
            "KubernetesCluster": cluster,
        }

    def log_groups(self, cluster: str) -> dict[str, str]:
        return {re.escape(f"/aws/eks/{cluster}/cluster"): "the log of the control plane"}

    def cluster(self, outputs: Mapping[str, str]) -> dict[str, Any]:
        from trainium_cdk.outputs.contract import fields
        from trainium_cdk.outputs.eks import EKS_KEYS

        data = fields(EKS_KEYS, outputs)
        data["claims"] = [c for c in data.get("claims", "").split(",") if c]
        return data

    def cluster_model(self) -> type[ClusterOutputs]:
        from trainium_cdk.outputs.eks import EksCluster

        return EksCluster

    def connect(
        self, cluster: ClusterOutputs, *, local: bool | None = None, say: Callable[[str], None] | None = None
    ) -> Backend[Any]:
        from trainium_cdk.jobs.kubernetes import connect
        from trainium_cdk.outputs.eks import EksCluster

        assert isinstance(cluster, EksCluster)  # noqa: S101  `engines.get` found this engine by its name
        return connect(cluster, local=local, say=say)


def _custom(env: Environment) -> bool:
    return all(group.custom_ami for group in env.eks.node_groups)


def _pod_addresses(env: Environment) -> int:
    """The maximum number of addresses that the CNI keeps on a node for its pods."""
    keep = env.catalog.eks.pod_addresses
    return keep.minimum + keep.warm
