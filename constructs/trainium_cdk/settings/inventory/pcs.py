"""What a cluster of AWS PCS consists of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainium_cdk.catalog import Stack
from trainium_cdk.settings.inventory.base import Image, Inventory, KnownNodes, MetricsSource, Part
from trainium_cdk.settings.inventory.slurm import cpu_images, cpu_parts


class PcsInventory(Inventory):
    instance_tag = "trainium-cdk:cluster"
    key_policy_roles = ("pcs",)
    address_use = "because nodes without EFA need one for each network card"

    @property
    def cluster(self) -> str:
        return self.env.pcs_cluster_name

    @property
    def node_metrics(self) -> MetricsSource:
        return "nodes"

    def versions(self, release: str, families: tuple[str, ...]) -> Stack | None:
        env, os = self.env, self.env.pcs.os
        if os not in env.catalog.parallelcluster.operating_systems:
            return None
        return Stack.slurm(env.catalog, families, release=release, framework=env.framework, system=os)

    def node_addresses(self, nodes: KnownNodes) -> int:  # noqa: ARG002
        """One, on the first card: EFA-only interfaces have no address, and the template without EFA has one interface."""
        return 1

    def others(self) -> Iterator[Part]:
        p = self.env.pcs
        login = Part(
            name="login node",
            key=("pcs", "login", "instance_type"),
            instance_type=p.login.instance_type,
            addresses=1,
            volume_gib=p.login.root_volume_gib,
        )
        ordinary = (login, *cpu_parts("pcs", p.cpu_queues))
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

    def images(self) -> Sequence[Image]:
        p = self.env.pcs
        found = [
            Image(
                q.custom_ami or p.custom_ami or "",
                q.root_volume_gib,
                ("pcs", "queues", i, "custom_ami") if q.custom_ami else ("pcs", "custom_ami"),
            )
            for i, q in enumerate(p.queues)
        ]
        found.append(Image(p.custom_ami or "", p.login.root_volume_gib, ("pcs", "custom_ami")))
        return [*(image for image in found if image.id), *cpu_images("pcs", p.cpu_queues, p.custom_ami)]

    def public_parameters(self) -> Sequence[str]:
        parameter = self.env.catalog.pcs.images.get(self.env.pcs.os)
        return [parameter] if parameter and not self.env.pcs.custom_ami else []
