"""The cost of a job's nodes so far, at the catalogue's list prices. Nothing is guessed: the report says if a price is unknown."""

from __future__ import annotations

from dataclasses import dataclass

from trainium_cdk.client.jobs.status import JobStatus
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.lookup import CALCULATOR
from trainium_cdk.description.outputs import Cluster

NOT_COUNTED = (
    "not in it: storage, network, the head node or control plane, the stage prepare, and nodes while they start or idle"
)


@dataclass(frozen=True)
class Price:
    """The price of one node of a job.

    Attributes:
        hour: USD an hour; None if it is not known.
        note: what it is, or why it is not known.
    """

    hour: float | None
    note: str

    def of(self, node_hours: float | None) -> float | None:
        """USD for so many hours of one node."""
        return None if self.hour is None or node_hours is None else self.hour * node_hours


def price(status: JobStatus, cluster: Cluster, catalog: Catalog, devices: int | None = None) -> Price:
    """The price of one of a job's nodes, as its queue is paid for. `devices`: its part of a node; None: all."""
    kind = status.instance_type
    fleets = [f for f in cluster.fleets if (f.queue, f.instance_type) == (status.queue, kind)]
    capacity = fleets[0].capacity_type if fleets else "on-demand"
    if capacity == "capacity-block":
        return Price(None, "the capacity block was paid for when it was bought")
    hour = catalog.price(kind, cluster.region, devices)
    if hour is None:
        return Price(
            None,
            f"the catalogue has no price of {kind} in {cluster.region}; {CALCULATOR}; or add catalog.prices.{cluster.region}.{kind} to the environment file",
        )
    spot = "; spot nodes cost less" if capacity == "spot" else ""
    source = catalog.price_source(kind, cluster.region)
    dated = f", list price of {source.date}" if source else ""
    part = f"{devices} of the devices of a " if devices else ""
    return Price(hour, f"{part}{kind} in {cluster.region}: {catalog.describe_price(kind, cluster.region)}{dated}{spot}")
