"""What a ParallelCluster cluster consists of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainium_cdk.catalog import Stack
from trainium_cdk.problems import KeyPath
from trainium_cdk.settings.inventory.base import Image, Inventory, KnownNodes, MetricsSource, Part


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
        return [image for image in found if image.id]

    def own_stacks(self) -> Sequence[str]:
        return (self.cluster,)
