"""What a job would need with several numbers of nodes: batch, throughput, hours and cost. Pure; only published figures, nothing extrapolated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from trainium_cdk.catalog import Catalog
from trainium_cdk.catalog.prices import ASK, BLOCK
from trainium_cdk.errors import JobError
from trainium_cdk.jobs.models import Job
from trainium_cdk.jobs.places import Known, Place, places
from trainium_cdk.jobs.plan import Plan, expected, plan
from trainium_cdk.jobs.status import Expected
from trainium_cdk.outputs import Cluster


@dataclass(frozen=True)
class Forecast:
    """A job on one number of nodes.

    Attributes:
        refused: why it does not work; empty if it does. Then nothing else is known.
        hour_usd: what the nodes cost in an hour; None if the price is not known.
        price: the same in words, with how to learn it where it is not known.
        places: where the stages before the training run.
        hours: of the whole training; None if no throughput is published of this very job, or its steps are not known.
    """

    nodes: int
    refused: str = ""
    instance_type: str = ""
    cores: int = 0
    batch: str = ""
    global_batch_size: int | None = None
    steps: int | None = None
    expected: Expected | None = None
    hour_usd: float | None = None
    price: str = ""
    notes: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()

    @property
    def hours(self) -> float | None:
        if self.expected is None or not self.steps or not self.global_batch_size:
            return None
        return self.steps * self.global_batch_size / self.expected.sequences_per_second / 3600

    @property
    def usd(self) -> float | None:
        """Cost of the whole training; None if its hours or the price are not known."""
        return None if self.hours is None or self.hour_usd is None else self.hours * self.hour_usd

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for `--json`."""
        published = (
            {"sequences_per_second": e.sequences_per_second, "source": e.source} if (e := self.expected) else None
        )
        return {
            **self.__dict__,
            "expected": published,
            "notes": list(self.notes),
            "places": [asdict(p) for p in self.places],
            "hours": self.hours,
            "usd": self.usd,
        }


def forecast(
    job: Job, counts: Iterable[int], cluster: Cluster, catalog: Catalog, said: Known | None = None
) -> list[Forecast]:
    """A job, as it would run on each number of nodes. `said`: what its environment says, if there is one."""
    found = []
    for nodes in counts:
        try:
            found.append(_of(plan(job.model_copy(update={"nodes": nodes}), cluster), catalog, said))
        except JobError as e:
            found.append(Forecast(nodes, refused=str(e)))
    return found


def hour_usd(fitted: Plan, catalog: Catalog) -> float | None:
    """What a job's nodes cost in an hour, each member's where it is an array; None if the price is not known."""
    if fitted.fleet.capacity_type == "capacity-block":
        return None
    price = catalog.price(fitted.fleet.instance_type, fitted.cluster.region)
    return None if price is None else price * fitted.job.nodes


def price(fitted: Plan, catalog: Catalog) -> str:
    """`hour_usd` in words, with how to learn it where it is not known."""
    fleet, region, usd = fitted.fleet, fitted.cluster.region, hour_usd(fitted, catalog)
    if usd is not None:
        spot = ", without spot's discount" if fleet.capacity_type == "spot" else ""
        source = catalog.price_source(fleet.instance_type, region)
        kind = BLOCK if source and source.capacity_block else "the on-demand price"
        dated = f" of {source.date}" if source else ""
        return f"{usd:,.2f} USD an hour, at {kind}{dated}{spot}, nodes only: `trn cost` has the rest"
    if fleet.capacity_type == "capacity-block":
        return "price unknown: a capacity block is paid for when it is bought (`trn capacity` asks for offers)"
    return (
        f"price unknown: the catalogue has none of {fleet.instance_type} in {region}. {ASK}; or add it to the environment "
        f"file (catalog: {{prices: {{{region}: {{{fleet.instance_type}: USD}}}}}})"
    )


def _of(fitted: Plan, catalog: Catalog, said: Known | None) -> Forecast:
    job, fleet = fitted.job, fitted.fleet
    return Forecast(
        job.nodes, "", fleet.instance_type, fitted.workers if fitted.on_trainium else 0, str(fitted.batch or ""), fitted.batch.global_size if fitted.batch else None,
        job.total_steps, expected(fitted, catalog), hour_usd(fitted, catalog), price(fitted, catalog), fitted.notes, places(fitted, said),
    )  # fmt: skip
