"""What a ParallelCluster cluster consists of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainium_cdk.catalog import Stack
from trainium_cdk.problems import KeyPath
from trainium_cdk.settings import CpuQueue
from trainium_cdk.settings.inventory.base import Image, Inventory, KnownNodes, MetricsSource, Part


def cpu_parts(section: str, queues: Sequence[CpuQueue]) -> Iterator[Part]:
    """The nodes of a Slurm cluster's CPU queue."""
    for queue in queues:
        yield Part(
            name=f"{queue.name} node",
            key=(section, "cpu_queue", "instance_type"),
            count=queue.min_nodes,
            most=queue.max_nodes,
            instance_type=queue.instance_type,
            addresses=1,
            volume_gib=queue.root_volume_gib,
        )


def cpu_images(section: str, queues: Sequence[CpuQueue], default: str | None) -> list[Image]:
    """The images of those nodes that the environment names."""
    own: KeyPath = (section, "cpu_queue", "custom_ami")
    found = [
        (q.custom_ami or default, q.root_volume_gib, own if q.custom_ami else (section, "custom_ami")) for q in queues
    ]
    return [Image(id, gib, key) for id, gib, key in found if id]


class SlurmInventory(Inventory):
    instance_tag = "parallelcluster:cluster-name"
    address_use = "because nodes without EFA need one for each network card"
    deployment_waits_for_nodes = True

    @property
    def cluster(self) -> str:
        return self.env.cluster_name

    @property
    def node_metrics(self) -> MetricsSource:
        return "nodes"

    def versions(self, release: str, families: tuple[str, ...]) -> Stack | None:
        env, os = self.env, self.env.pcluster.os
        if os not in env.catalog.parallelcluster.operating_systems:
            return None
        return Stack.slurm(env.catalog, families, release=release, framework=env.framework, system=os)

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
            public_addresses=int(head.subnet == "public"),
            volume_gib=head.root_volume_gib,
        )
        yield from cpu_parts("pcluster", self.env.pcluster.cpu_queues)
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
            yield Part(name="load balancer of the login nodes", addresses=private)

    def linked_roles(self) -> tuple[str, ...]:
        return ("scaling", "balancer") if self.env.pcluster.login_nodes else ()

    def images(self) -> Sequence[Image]:
        p = self.env.pcluster
        shared: KeyPath = ("pcluster", "custom_ami")
        found = [
            Image(
                q.custom_ami or p.custom_ami or "",
                q.root_volume_gib,
                ("pcluster", "queues", i, "custom_ami") if q.custom_ami else shared,
            )
            for i, q in enumerate(p.queues)
        ]
        at = ("pcluster", "head", "custom_ami") if p.head.custom_ami else shared
        found.append(Image(p.head.custom_ami or p.custom_ami or "", p.head.root_volume_gib, at))
        return [*(image for image in found if image.id), *cpu_images("pcluster", p.cpu_queues, p.custom_ami)]

    def own_stacks(self) -> Sequence[str]:
        return (self.cluster,)
