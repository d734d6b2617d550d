"""Inventory of a cluster of AWS PCS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainium_cdk.problems import KeyPath
from trainium_cdk.settings.inventory.base import Part
from trainium_cdk.settings.inventory.slurm import AnySlurm


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
