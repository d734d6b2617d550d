"""Inventory of a cluster with Slurm, on ParallelCluster and on AWS PCS."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from trainium_cdk.description.catalog import Stack
from trainium_cdk.description.settings.environment import ENCRYPTION
from trainium_cdk.description.settings.inventory.base import Inventory, KnownNodes, MachineImage, MetricsSource, Part
from trainium_cdk.description.settings.slurm import SlurmSection
from trainium_cdk.problems import KeyPath


class AnySlurm(Inventory):
    """Common inventory of clusters with Slurm."""

    address_use = "because nodes without EFA need one for each network card"

    @property
    def section(self) -> SlurmSection:
        return self.env.slurm_sections[self.engine.name]

    @property
    @abstractmethod
    def main_node(self) -> tuple[str | None, int, KeyPath]:
        """The node that users connect to: its own image, its root volume in GiB, and its key in the section."""

    @property
    def node_metrics(self) -> MetricsSource:
        return "nodes"

    def versions(self, release: str, families: tuple[str, ...]) -> Stack | None:
        env, os = self.env, self.section.os
        if os not in env.catalog.parallelcluster.operating_systems:
            return None
        return Stack.slurm(env.catalog, families, release=release, framework=env.framework, system=os)

    def others(self) -> Iterator[Part]:
        for queue in self.section.cpu_queues:
            yield Part(
                name=f"{queue.name} node",
                key=(self.engine.section, "cpu_queue", "instance_type"),
                count=queue.min_nodes,
                most=queue.max_nodes,
                instance_type=queue.instance_type,
                addresses=1,
                volume_gib=queue.root_volume_gib,
            )

    def images(self) -> Sequence[MachineImage]:
        at, shared = self.engine.section, self.section.custom_ami
        nodes: list[tuple[str | None, int, KeyPath]] = [
            *((q.custom_ami, q.root_volume_gib, ("queues", i)) for i, q in enumerate(self.section.queues)),
            self.main_node,
            *((q.custom_ami, q.root_volume_gib, ("cpu_queue",)) for q in self.section.cpu_queues),
        ]
        return [
            MachineImage(image, gib, (at, *(key if own else ()), "custom_ami"))
            for own, gib, key in nodes
            if (image := own or shared)
        ]


class SlurmInventory(AnySlurm):
    instance_tag = "parallelcluster:cluster-name"
    takes_groups_of_blocks = False
    deployment_waits_for_nodes = True

    @property
    def cluster(self) -> str:
        return self.env.cluster_name

    @property
    def main_node(self) -> tuple[str | None, int, KeyPath]:
        head = self.env.pcluster.head
        return head.custom_ami, head.root_volume_gib, ("head",)

    def node_addresses(self, nodes: KnownNodes) -> int:
        """With EFA one ENA interface and EFA-only ones, which have no address; without it one interface for each network card."""
        return 1 if nodes.efa else nodes.kind.network_cards

    def others(self) -> Iterator[Part]:
        head, login = self.env.pcluster.head, self.env.pcluster.login_nodes
        yield Part(
            name="head node",
            key=("pcluster", "head", "instance_type"),
            instance_type=head.instance_type,
            addresses=int(head.subnet == "private"),
            public_addresses=int(head.subnet == "public" and not head.elastic_ip),
            volume_gib=head.root_volume_gib,
        )
        yield from super().others()
        if login:
            private = int(login.subnet == "private")
            yield Part(
                name="login node",
                key=("pcluster", "login_nodes", "instance_type"),
                count=login.count,
                most=login.count,
                instance_type=login.instance_type,
                addresses=private,
            )
            yield Part(name="load balancer of the login nodes", price="network-load-balancer-hour", addresses=private)

    def linked_roles(self) -> tuple[str, ...]:
        return ("scaling", "balancer") if self.env.pcluster.login_nodes else ()

    def volume_roles(self) -> tuple[str, ...]:
        spot = any(queue.capacity_type == "spot" for queue in self.env.pcluster.queues)
        return ("scaling",) * (self.env.pcluster.login_nodes is not None) + ("spot",) * spot

    def volume_keys(self) -> tuple[str, ...]:
        own = () if self.env.encryption in ENCRYPTION else (self.env.encryption,)
        return (*self.env.pcluster.volume_keys, *own)

    def own_stacks(self) -> Sequence[str]:
        return (self.cluster,)


class PcsInventory(AnySlurm):
    """A node has one address, on the first card: EFA-only interfaces have none, and the template without EFA has one interface."""

    instance_tag = "trainium-cdk:cluster"

    @property
    def cluster(self) -> str:
        return self.env.pcs_cluster_name

    @property
    def main_node(self) -> tuple[str | None, int, KeyPath]:
        return None, self.env.pcs.login.root_volume_gib, ("login",)

    def others(self) -> Iterator[Part]:
        p = self.env.pcs
        login = Part(
            name="login node",
            key=("pcs", "login", "instance_type"),
            instance_type=p.login.instance_type,
            addresses=1,
            volume_gib=p.login.root_volume_gib,
        )
        ordinary = (login, *super().others())
        yield from ordinary
        yield Part(name="Slurm controller", detail=p.size, price=f"pcs-{p.size}-controller-hour", addresses=1)
        if p.accounting:
            yield Part(name="Slurm accounting", price=f"pcs-{p.size}-accounting-hour")
        managed = (*self._training(), *ordinary)
        least, most = sum(part.count for part in managed), sum(part.most for part in managed)
        yield Part(
            name="node management", detail=f"{least} to {most} nodes", count=least, most=most, price="pcs-node-hour"
        )

    def linked_roles(self) -> tuple[str, ...]:
        return ("pcs",)

    def volume_roles(self) -> tuple[str, ...]:
        return ("pcs",)

    def public_parameters(self) -> Sequence[str]:
        parameter = self.env.catalog.pcs.images.get(self.env.pcs.os)
        return [parameter] if parameter and not self.env.pcs.custom_ami else []
