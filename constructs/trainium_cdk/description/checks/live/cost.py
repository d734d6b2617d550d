"""Cost of the environment by the hour, at the catalogue's prices: while no job runs, and with all nodes. An item whose price is unknown says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainium_cdk.description.catalog.constants import GATEWAY_ENDPOINTS, HOURS_OF_A_MONTH
from trainium_cdk.description.catalog.lookup import BLOCK, CALCULATOR, describe_sum
from trainium_cdk.description.checks.live.model import CheckTarget, Found, Subject, join_words
from trainium_cdk.description.checks.live.quotas import addresses_wanted
from trainium_cdk.description.settings.environment import ENCRYPTION
from trainium_cdk.description.settings.observability import (
    ALARMS,
    CLUSTER_METRICS,
    NODE_ALARMS,
    NODE_METRICS,
    QUEUE_METRICS,
)

TOTALS = ("idle", "full")
BLOCK_HOURS = 24
"""Hours of the shortest capacity block, about: AWS sells 1 to 14 days, then weeks up to 182 days, and takes the whole price at the purchase
(EC2 user guide, capacity-blocks-purchase, and API reference, CapacityBlockOffering; 2026-11)."""


@dataclass(frozen=True)
class Item:
    """An item that is charged by the hour.

    Attributes:
        price: key of its price: an instance type, or a name of the service prices.
        idle: USD an hour while no job runs; None if the price is not known.
        full: USD an hour with all nodes; None if the price is not known.
    """

    what: str
    price: str
    idle: float | None
    full: float | None


def items(target: CheckTarget) -> list[Item]:
    """Every item of the stack that is charged by the hour or by provisioned capacity."""
    return [*_nodes(target), *_servers(target), *_network(target), *_storage(target), *_cluster(target)]


def _nodes(target: CheckTarget) -> Iterator[Item]:
    for part in target.inventory.parts:
        if not (nodes := part.nodes):
            continue
        most = part.most
        quote = target.quote(part.instance_type)
        if nodes.queue.capacity_type == "capacity-block":
            hour = f", about {quote.usd:,.2f} USD an hour of each" if quote.usd and quote.capacity_block else ""
            what = f"{part.name}: {most} x {part.instance_type} (the block is paid for when it is bought{hour})"
            yield Item(what, part.instance_type, 0.0, 0.0)
        else:
            least = most if nodes.resource.reservation else part.count  # charged even if no instances use it
            note = f" ({BLOCK})" if quote.capacity_block else ""
            if nodes.queue.capacity_type == "spot" and not quote.capacity_block:
                note = " (at the on-demand price; spot costs less)"
            what = f"{part.name}: {least} to {most} x {part.instance_type}{note}"
            yield _item(target, what, part.instance_type, least, most)
        # there are volumes where an instance runs
        yield _volumes(target, f"{part.name}: root volumes of {part.volume_gib} GiB", part.volume_gib, part.count, most)


def _servers(target: CheckTarget) -> Iterator[Item]:
    for part in target.servers:
        yield _item(target, f"{part.name}: {part.instance_type}", part.instance_type, part.count, part.most)
        if part.volume_gib:
            what = f"root volumes of {part.volume_gib} GiB" if part.most > 1 else "root volume"
            yield _volumes(target, f"{part.name}: {what}", part.volume_gib, part.count, part.most)


def _network(target: CheckTarget) -> Iterator[Item]:
    network = target.env.network
    wanted = addresses_wanted(target)
    if count := wanted.get("NAT gateways", 0):
        yield _item(target, f"{count} x NAT gateway (without its traffic)", "nat-gateway-hour", count)
    if count := sum(wanted.values()):
        yield _item(target, f"{count} x public address", "public-address-hour", count)
    endpoints = set(network.interface_endpoints) - GATEWAY_ENDPOINTS
    if endpoints and not network.existing:
        count = len(endpoints) * len(target.zone_ids)
        what = f"{count} x interface endpoint (without its traffic)"
        yield _item(target, what, "interface-endpoint-hour", count)


def _storage(target: CheckTarget) -> Iterator[Item]:
    storage = target.env.storage
    efs, fsx = storage.efs, storage.fsx
    if efs and not efs.existing and efs.provisioned_mibps:
        what = f"EFS: {efs.provisioned_mibps} MiB/s provisioned"
        yield _item(target, what, "efs-provisioned-mibps-month", efs.provisioned_mibps)
    if fsx and not fsx.existing:
        step = f"-{fsx.effective_throughput}" if fsx.effective_throughput else ""
        name = f"fsx-{fsx.deployment.lower().replace('_', '-')}{step}-gib-month"
        yield _item(target, f"FSx for Lustre: {fsx.capacity_gib:,} GiB {fsx.deployment}", name, fsx.capacity_gib)
        if isinstance(fsx.metadata_iops, int) and fsx.metadata_iops:
            what = f"FSx for Lustre: at most {fsx.metadata_iops:,} metadata IOPS (its capacity includes some)"
            yield _item(target, what, "fsx-metadata-iops-month", fsx.metadata_iops)


def _cluster(target: CheckTarget) -> Iterator[Item]:
    for part in target.inventory.parts:
        if part.price:
            what = f"{part.name}: {part.detail}" if part.detail else part.name
            yield _item(target, what, part.price, part.count, part.most)
    yield from _observability(target)
    if target.env.encryption in ENCRYPTION:
        yield _item(target, "encryption key", "kms-key-month", 1)


def _observability(target: CheckTarget) -> Iterator[Item]:
    """The dashboard, its alarms, and custom metrics: the cluster's always, the nodes' while one runs."""
    if not target.env.observability or not target.inventory.counts_jobs:
        return
    parts = [part for part in target.inventory.parts if part.nodes]
    own = target.inventory.node_metrics == "nodes"
    yield _item(target, "dashboard", "cloudwatch-dashboard-month", 1)
    if target.env.observability.alarm_topic:
        count = ALARMS + (NODE_ALARMS if own else 0)
        yield _item(target, f"{count} x alarm", "cloudwatch-alarm-month", count)
    queues = len({part.nodes.queue.name for part in parts if part.nodes})
    least = CLUSTER_METRICS + QUEUE_METRICS * queues
    most = least + (NODE_METRICS * (1 + sum(part.most for part in parts)) if own else 0)
    what = f"{least} to {most} x metric" if most > least else f"{least} x metric"
    yield _item(target, what, "cloudwatch-metric-month", least, most)


def _item(target: CheckTarget, what: str, price: str, least: int, most: int | None = None) -> Item:
    """So many of what a price is for, while no job runs and at most (default: the same number)."""
    usd = target.quote(price).usd
    hour = usd / HOURS_OF_A_MONTH if usd is not None and price.endswith("-month") else usd
    return Item(what, price, _times(hour, least), _times(hour, least if most is None else most))


def _volumes(target: CheckTarget, what: str, gib: int, least: int, most: int) -> Item:
    return _item(target, what, "ebs-gp3-gib-month", gib * least, gib * most)


def _times(price: float | None, count: int) -> float | None:
    return 0.0 if count == 0 else None if price is None else price * count


def rates(target: CheckTarget, parts: Iterable[Item]) -> dict[str, str]:
    """List costs by use, which are not counted: name of the price of a unit -> description."""
    has = {part.price for part in parts}
    efs = target.env.storage.efs
    found = {
        "nat-gateway-gb": ("traffic of the NAT gateway, a GB", "nat-gateway-hour" in has),
        "interface-endpoint-gb": ("traffic of interface endpoints, a GB", "interface-endpoint-hour" in has),
        "efs-standard-gib-month": ("data on EFS, a GiB and month", efs is not None and not efs.existing),
        "pcs-accounting-gib-month": (
            "records of Slurm accounting, a GiB and month",
            any(name.startswith("pcs-") and name.endswith("-accounting-hour") for name in has),
        ),
    }
    return {name: what for name, (what, there) in found.items() if there}


def least(target: CheckTarget, idle: float, unknown: Sequence[str]) -> dict[str, Any]:
    """The least to pay for a job on the cheapest nodes: `usd`, None if it is not known; `text`, the sum in words; and `what` is paid.

    `idle` is USD an hour while no job runs, of what is known, and `unknown` the items without a price."""
    ways = list[tuple[float, Sequence[str], str]]()
    for part in target.inventory.parts:
        if not (nodes := part.nodes):
            continue
        kind, quote, queue = part.instance_type, target.quote(part.instance_type), nodes.queue.capacity_type
        paid = part.most if nodes.resource.reservation else part.count  # while no job runs
        usd, count = quote.usd, max(paid, 1)
        if quote.capacity_block or queue == "capacity-block":
            usd = usd if quote.capacity_block or quote.source == "environment file" else None
            what = f"a capacity block of {count} x {kind} for a day, paid in full"
            ways.append(((usd or 0.0) * BLOCK_HOURS * count, () if usd else (kind,), what))
        else:
            usd = 0.0 if paid else usd
            what = f"an hour of {count} x {kind}{' (spot costs less)' if queue == 'spot' else ''} and of the idle stack"
            ways.append((idle + (usd or 0.0), unknown if usd is not None else (*unknown, kind), what))
    usd, missing, what = min(
        ways or [(idle, unknown, "an hour of the idle stack")], key=lambda way: (bool(way[1]), way[0])
    )
    return {"usd": None if missing else round(usd, 2), "text": describe_sum(usd, missing, "USD"), "what": what}


def describe_least(estimate: Mapping[str, Any]) -> str:
    """The least to pay, as the first line about cost: `least to pay: 53.64 USD: a capacity block of ...`."""
    return f"least to pay: {estimate['least']['text']}: {estimate['least']['what']}"


def cost(target: CheckTarget) -> dict[str, Any]:
    """The estimate: the least to pay, items, totals (None if a part is unknown), totals of the known parts, the items whose price is unknown,
    and where each price comes from."""
    parts = items(target)
    by_use = rates(target, parts)
    known = {name: round(sum(getattr(i, name) or 0.0 for i in parts), 4) for name in TOTALS}
    unknown = {name: [i.what for i in parts if getattr(i, name) is None] for name in TOTALS}
    return {
        "currency": "USD",
        "region": target.env.region,
        "least": least(target, known["idle"], unknown["idle"]),
        "items": [asdict(i) for i in parts],
        **{f"{name}_hour": None if unknown[name] else known[name] for name in TOTALS},
        **{f"known_{name}_hour": known[name] for name in TOTALS},
        **{f"unknown_{name}": unknown[name] for name in TOTALS},
        "not_counted": ["stored data", "traffic", "logs"],
        "rates": by_use,
        "quotes": {name: asdict(target.quote(name)) for name in (*(part.price for part in parts), *by_use)},
    }


def total(estimate: Mapping[str, Any], name: str) -> str:
    """A total in words: `idle` or `full`."""
    return describe_sum(estimate[f"known_{name}_hour"], estimate[f"unknown_{name}"])


def findings(estimate: dict[str, Any]) -> Found:
    """The least to pay, and the two totals, as findings."""
    first = estimate["least"]
    yield replace(Subject("least to pay").info(first["text"], first["what"]), rule="cost")
    for name, title in (("idle", "cost while no job runs"), ("full", "cost with all nodes")):
        hour, region = estimate[f"{name}_hour"], estimate["region"]
        month = f"{hour * HOURS_OF_A_MONTH:,.0f} USD a month" if hour is not None else "counted"
        problem = Subject(title).info(
            total(estimate, name),
            f"{month} at {region}'s list prices, without {join_words(estimate['not_counted'])}",
            "" if hour is not None else f"{CALCULATOR}; prices of instance types can be under catalog.prices.{region}",
        )  # fmt: skip
        yield replace(problem, rule="cost")
