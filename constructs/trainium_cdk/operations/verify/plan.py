"""What a verification does, and what it costs at most. Nothing here asks AWS."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from trainium_cdk import engines
from trainium_cdk.catalog import Catalog
from trainium_cdk.catalog.files import read
from trainium_cdk.checks.live import Target
from trainium_cdk.checks.live.cost import items
from trainium_cdk.engines import Engine
from trainium_cdk.errors import TrnError
from trainium_cdk.settings import Environment, validate

Rate = Literal["nothing", "idle", "full"]
NAME = "verify"
"""Name of the environment: its stack is TrnPclusterStack-verify, TrnPcsStack-verify or TrnEksStack-verify."""
GRACE = 900
"""Seconds after the end of a step until AWS itself deletes the stack, if this program is gone."""
QUEUE = "compute1"
_OWN_IMAGE = "torch-native"
"""The framework whose training image has no published tag."""
_NOT_TRAINING = frozenset({"script", "nccom"})


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        usual: seconds that it is predicted to take.
        most: seconds after which it is ended.
        rate: what is charged while it runs.
        needs: the step that must have passed; empty for none.
    """

    name: str
    title: str
    rate: Rate
    usual: int
    most: int
    needs: str = ""


@dataclass(frozen=True)
class Block:
    """A capacity block that is paid for already.

    Attributes:
        id: cr-...
        instance_type, region, zone_id: of its instances.
        nodes: how many it has.
    """

    id: str
    instance_type: str
    region: str
    zone_id: str
    nodes: int


@dataclass(frozen=True)
class Plan:
    """A verification.

    Attributes:
        engine: slurm, pcs or eks.
        nodes: at once: 2 where nodes communicate through EFA and the budget is enough, else 1.
        kind: the kind of job that trains.
        options: its options.
        usd: USD an hour, by rate: list prices, and an assumed price of what has none.
        assumed: what has no known price.
        block: the id of the capacity block whose instances are used; empty for none.
        zone_id: its zone.
    """

    engine: str
    instance_type: str
    region: str
    nodes: int
    kind: str
    options: tuple[str, ...]
    usd: Mapping[Rate, float]
    assumed: tuple[str, ...] = ()
    block: str = ""
    zone_id: str = ""

    @property
    def of(self) -> Engine:
        return engines.get(self.engine)

    @property
    def stack(self) -> str:
        return f"{self.of.stack}-{NAME}"

    @cached_property
    def all(self) -> tuple[Step, ...]:
        return tuple(
            Step(name, s["title"], s["rate"], s["usual"][self.engine], s["most"][self.engine], s.get("needs", ""))
            for name, s in read("verify")["steps"].items()
        )

    def step(self, name: str) -> Step:
        return next(step for step in self.all if step.name == name)

    def price(self, rate: Rate, seconds: float) -> float:
        return self.usd[rate] * seconds / 3600

    @property
    def data(self) -> float:
        """USD for traffic and stored data of a whole run."""
        return float(read("verify")["assumed"]["data"])

    @property
    def reserve(self) -> float:
        """USD that the removal may cost. They are never spent on anything else."""
        return self.price("full", self.step("remove").most)

    def most(self, step: Step) -> float:
        """USD that a step may cost: also the time until AWS deletes the stack, if this program ends within the step."""
        return self.price(step.rate, step.most + (GRACE if step.rate != "nothing" else 0))

    @property
    def highest(self) -> float:
        """USD of the whole, if each step takes as long as it may."""
        return sum(self.price(step.rate, step.most) for step in self.all) + self.price("full", GRACE) + self.data

    @property
    def expected(self) -> float:
        """USD of the whole, if each step takes as long as usual."""
        return sum(self.price(step.rate, step.usual) for step in self.all) + self.data

    @property
    def least(self) -> float:
        """USD below which not even a cluster is deployed and tested."""
        return self.price("idle", self.step("deploy").most) + self.most(self.step("nccom")) + self.reserve + self.data


def make(
    engine: str, instance_type: str | None, region: str | None, max_usd: float | None, block: Block | None = None
) -> Plan:
    """The plan with as many nodes as are useful and the budget covers.

    Args:
        instance_type: default: the cheapest of the catalogue on which a kind of job trains, in `region` if that is given.
        region: default: the first of the catalogue's that offers the type at a known price.
        block: instances that are paid for already, in place of those that are charged by the hour.

    Raises:
        TrnError: there is no such type or region, no kind trains on it, or the budget is too small.
    """
    if block:
        instance_type, region = block.instance_type, block.region
    found = list(_possible(engine, instance_type, region, block))
    if not found:
        raise TrnError(_nothing(engine, instance_type, region))
    plan = min(found, key=lambda p: p.usd["full"])
    two = _priced(replace(plan, nodes=2))
    enough = block is None or block.nodes >= 2
    if (
        enough
        and Catalog.load().instance(plan.instance_type).efa_interfaces
        and (max_usd is None or two.highest <= max_usd)
    ):
        plan = two
    if max_usd is not None and plan.least > max_usd:
        raise TrnError(
            f"--max-usd is {max_usd:,.2f}: {plan.nodes} x {plan.instance_type} in {plan.region} need {plan.least:,.2f} "
            f"for a deployment, a test and the removal, and at most {plan.highest:,.2f} for all. "
            f"Give --max-usd {math.ceil(plan.highest)}, or a cheaper --instance-type"
        )
    return plan


def _possible(engine: str, instance_type: str | None, region: str | None, block: Block | None) -> Iterator[Plan]:
    """A plan for one node of each type that fits."""
    catalog, training = Catalog.load(), read("verify")["training"]
    for name in catalog.instances:
        recommended = catalog.recommended(name)
        if instance_type not in (None, name) or recommended is None:
            continue
        kind = next((k for k in recommended.kinds if k not in _NOT_TRAINING), "")
        if kind not in training or (engine == "eks" and recommended.framework == _OWN_IMAGE):
            continue
        at = block.region if block else next(iter(regions(name, region)), "")
        if at:
            steps = ("--run-steps", str(training[kind]["steps"]))
            options = (*recommended.kinds[kind].split(), *training[kind]["options"], *steps)
            plan = Plan(engine, name, at, 1, kind, options, {})
            yield _priced(replace(plan, block=block.id, zone_id=block.zone_id) if block else plan)


def types(engine: str) -> list[Plan]:
    """A plan for one node of each type that can be used, the cheapest first."""
    return sorted(_possible(engine, None, None, None), key=lambda p: p.usd["full"])


def regions(name: str, region: str | None = None) -> list[str]:
    """Where the type has a price of an hour that can be bought for an hour: of a capacity block, a day is the least."""
    catalog = Catalog.load()
    known = [
        at
        for at, prices in catalog.prices.items()
        if name in prices and not catalog.price_sources[at][name].capacity_block
    ]
    return [at for at in sorted(known) if region in (None, at)]


def _nothing(engine: str, instance_type: str | None, region: str | None) -> str:
    catalog = Catalog.load()
    if instance_type and instance_type not in catalog.instances:
        return f"the catalogue has no instance type {instance_type!r}. `trn show catalog` lists them"
    if engine == "eks" and instance_type and (of := catalog.recommended(instance_type)) and of.framework == _OWN_IMAGE:
        return (
            f"{instance_type} on EKS needs an image of your own, which this does not build. Give --engine slurm or "
            "--engine pcs, or --instance-type trn1.2xlarge"
        )
    what = instance_type or "an instance type of the catalogue"
    return (
        f"no price by the hour is known for {what}{f' in {region}' if region else ''}: capacity blocks are sold by the day. "
        "Give --capacity-block with the id of one that you have, or another --instance-type or --region"
    )


def _priced(plan: Plan) -> Plan:
    """The plan with `usd` and `assumed`."""
    parts = items(Target(environment(plan), plan.engine))
    unknown = float(read("verify")["assumed"]["unknown"])
    usd: dict[Rate, float] = {
        "nothing": 0.0,
        "idle": sum(unknown if part.idle is None else part.idle for part in parts),
        "full": sum(unknown * (plan.nodes + 1) if part.full is None else part.full for part in parts),
    }
    return replace(plan, usd=usd, assumed=tuple(part.what for part in parts if part.full is None))


def environment(plan: Plan) -> Environment:
    """The environment of a plan."""
    return validate(described(plan))


def described(plan: Plan, *, updated: bool = False) -> dict[str, Any]:
    """The same, as data of an environment file; `updated`: with one more node at most, which nothing uses."""
    more = int(updated)
    resource: dict[str, Any] = {"name": "trn", "instance_type": plan.instance_type, "max_nodes": plan.nodes}
    block: dict[str, Any] = {"capacity_type": "capacity-block"} if plan.block else {}
    if plan.block:
        resource["reservation"] = plan.block
    if plan.engine == "eks":
        zone = {"zone_id": plan.zone_id} if plan.block else {}
        section: dict[str, Any] = {"node_groups": [{**resource, **block, **zone, "max_nodes": plan.nodes + more}]}
    else:
        always = {"min_nodes": plan.nodes} if plan.block else {}
        section = {
            "queues": [{"name": QUEUE, **block, "compute_resources": [{**resource, **always}]}],
            "cpu_queue": {"max_nodes": 1 + more},
        }
    return {
        "name": NAME,
        "region": plan.region,
        **({"network": {"zone_ids": [plan.zone_id]}} if plan.block and plan.engine != "eks" else {}),
        plan.of.section: section,
        "storage": {"efs": {"throughput": "bursting"}},  # elastic throughput is charged by the GB
    }
