"""Inventory of an EKS cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from trainium_cdk.description.catalog import Stack
from trainium_cdk.description.settings.inventory.base import Inventory, KnownNodes, MachineImage, MetricsSource, Part
from trainium_cdk.problems import KeyPath

CONTROL_PLANE_ADDRESSES = 6
"""The free addresses that EKS requires in each subnet of a control plane (EKS user guide, subnet requirements)."""


class EksInventory(Inventory):
    instance_tag = "eks:cluster-name"
    address_use = "for pods and network interfaces"

    @property
    def cluster(self) -> str:
        return self.env.eks_cluster_name

    @property
    def counts_jobs(self) -> bool:
        return self.env.eks.plugins.autoscaler  # its function counts them

    @property
    def node_metrics(self) -> MetricsSource | None:
        of = self.env.eks.observability
        return "container-insights" if of and of.metrics else None

    @cached_property
    def zone_ids(self) -> tuple[str, ...]:
        """At least two, as the control plane needs them."""
        env, zones = self.env, super().zone_ids
        if env.network.existing or env.network.zone_ids or len(zones) >= 2:
            return zones
        others = [z for z in env.catalog.eks.zone_ids.get(env.region, ()) if z not in zones]
        return (*zones, *others[: 2 - len(zones)]) if zones else ()

    def versions(self, release: str, families: tuple[str, ...]) -> Stack | None:
        env = self.env
        return Stack.eks(
            env.catalog,
            families,
            release=release,
            framework=env.framework,
            version=env.kubernetes_version,
            ami=env.eks.ami_release,
            custom_ami=env.eks.has_own_images,
        )

    def node_addresses(self, nodes: KnownNodes) -> int:
        """It depends on the interface layout and the addresses that the CNI keeps for pods."""
        every_card = nodes.efa and getattr(nodes.resource, "efa_layout", "") == "efa"
        return (nodes.kind.efa_interfaces if every_card else 1) + self._pod_addresses

    @property
    def _pod_addresses(self) -> int:
        """The maximum number of addresses that the CNI keeps on a node for its pods."""
        keep = self.env.catalog.eks.pod_addresses
        return keep.minimum + keep.warm

    def others(self) -> Iterator[Part]:
        env, eks = self.env, self.env.eks
        yield Part(
            name="system node",
            key=("eks", "system", "instance_type"),
            count=eks.system.nodes,
            most=eks.system.max_nodes,
            instance_type=eks.system.instance_type,
            addresses=1 + self._pod_addresses,
            address_use=self.address_use,
            zones="every",  # they may all be in one
        )
        version = env.catalog.eks.versions.get(env.kubernetes_version)
        extended = "extended-support-" if version is not None and self.today > version.standard_support_until else ""
        yield Part(
            name="EKS control plane",
            detail=f"Kubernetes {env.kubernetes_version}",
            price=f"eks-{extended}cluster-hour",
            addresses=CONTROL_PLANE_ADDRESSES,
            zones="every",
        )
        if eks.bastion_host and eks.endpoint == "private":
            yield Part(
                name="bastion host",
                key=("eks", "bastion_host", "instance_type"),
                instance_type=eks.bastion_host.instance_type,
                addresses=1,
            )
        yield Part(name="function", count=2, most=2, addresses=1, zones="every")

    def linked_roles(self) -> tuple[str, ...]:
        return ("eks", "nodes", "scaling")

    def volume_roles(self) -> tuple[str, ...]:
        return ("scaling",)

    def principals(self) -> Mapping[KeyPath, str]:
        eks = self.env.eks
        named: dict[KeyPath, str] = {("eks", "access", i, "principal"): a.principal for i, a in enumerate(eks.access)}
        return named | {("eks", "users", i): user for i, user in enumerate(eks.users) if not set(user) & set("*?")}

    def data_buckets(self) -> Mapping[KeyPath, str]:
        return {("eks", "data_buckets", i): name for i, name in enumerate(self.env.eks.data_buckets)}

    def images(self) -> Sequence[MachineImage]:
        return [
            MachineImage(g.custom_ami, g.root_volume_gib, ("eks", "node_groups", i, "custom_ami"))
            for i, g in enumerate(self.env.eks.node_groups)
            if g.custom_ami
        ]

    def public_parameters(self) -> Sequence[str]:
        return [self.env.catalog.eks.ami_parameter.format(version=self.env.kubernetes_version)]
