"""Cost of the environment by the hour: while no job runs, and with all nodes. It uses only the catalogue's prices and
lists items whose price is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from trainium_cdk.catalog.constants import GATEWAY_ENDPOINTS, HOURS_OF_A_MONTH
from trainium_cdk.checks.live.model import Finding, Found, Target, listed
from trainium_cdk.checks.live.quotas import addresses_wanted
from trainium_cdk.settings.environment import ENCRYPTION
from trainium_cdk.settings.observability import (
    ALARMS,
    CLUSTER_METRICS,
    NODE_ALARMS,
    NODE_METRICS,
    QUEUE_METRICS,
)


@dataclass(frozen=True)
class Item:
    """An item that is charged by the hour.

    Attributes:
        idle: USD an hour while no job runs; None if the price is not known.
        full: USD an hour with all nodes; None if the price is not known.
    """

    what: str
    idle: float | None
    full: float | None


def items(target: Target) -> list[Item]:
    """Every item of the stack that is charged by the hour or by provisioned capacity."""
    return [*_nodes(target), *_servers(target), *_network(target), *_storage(target), *_cluster(target)]


def _nodes(target: Target) -> Iterator[Item]:
    env = target.env
    for part in target.inventory.parts:
        if not (nodes := part.nodes):
            continue
        price, least, most = env.catalog.price(part.instance_type, env.region), part.count, part.most
        if nodes.queue.capacity_type == "capacity-block":
            what = f"{part.name}: {most} x {part.instance_type} (the block is paid for when it is bought)"
            yield Item(what, 0.0, 0.0)
            continue
        if nodes.resource.reservation:  # charged even if no instances use it
            least = most
        note = " (at the on-demand price; spot costs less)" if nodes.queue.capacity_type == "spot" else ""
        what = f"{part.name}: {least} to {most} x {part.instance_type}{note}"
        yield Item(what, _times(price, least), _times(price, most))
        each = _monthly(target, "", "ebs-gp3-gib-month", part.volume_gib).full
        yield Item(f"{part.name}: root volumes of {part.volume_gib} GiB", _times(each, least), _times(each, most))


def _servers(target: Target) -> Iterator[Item]:
    env = target.env
    for part in target.servers:
        price = env.catalog.price(part.instance_type, env.region)
        yield Item(f"{part.name}: {part.instance_type}", _times(price, part.count), _times(price, part.most))
        if part.volume_gib:
            each = _monthly(target, "", "ebs-gp3-gib-month", part.volume_gib).full
            what = f"root volumes of {part.volume_gib} GiB" if part.most > 1 else "root volume"
            yield Item(f"{part.name}: {what}", _times(each, part.count), _times(each, part.most))


def _network(target: Target) -> Iterator[Item]:
    network = target.env.network
    wanted = addresses_wanted(target)
    if count := wanted.get("NAT gateways", 0):
        yield _hourly(target, f"{count} x NAT gateway (without its traffic)", "nat-gateway-hour", count)
    if count := sum(wanted.values()):
        yield _hourly(target, f"{count} x public address", "public-address-hour", count)
    endpoints = set(network.interface_endpoints) - GATEWAY_ENDPOINTS
    if endpoints and not network.existing:
        count = len(endpoints) * len(target.zone_ids)
        yield _hourly(target, f"{count} x interface endpoint (without its traffic)", "interface-endpoint-hour", count)


def _storage(target: Target) -> Iterator[Item]:
    storage = target.env.storage
    efs, fsx = storage.efs, storage.fsx
    if efs and not efs.existing and efs.provisioned_mibps:
        yield _monthly(
            target,
            f"EFS: {efs.provisioned_mibps} MiB/s provisioned",
            "efs-provisioned-mibps-month",
            efs.provisioned_mibps,
        )
    if fsx and not fsx.existing:
        step = f"-{fsx.effective_throughput}" if fsx.effective_throughput else ""
        name = f"fsx-{fsx.deployment.lower().replace('_', '-')}{step}-gib-month"
        yield _monthly(target, f"FSx for Lustre: {fsx.capacity_gib:,} GiB {fsx.deployment}", name, fsx.capacity_gib)


def _cluster(target: Target) -> Iterator[Item]:
    for part in target.inventory.parts:
        if part.price:
            yield _hourly(target, f"{part.name}: {part.detail}" if part.detail else part.name, part.price, part.most)
    yield from _observability(target)
    if target.env.encryption in ENCRYPTION:
        yield _monthly(target, "encryption key", "kms-key-month", 1)


def _observability(target: Target) -> Iterator[Item]:
    """The dashboard, its alarms, and custom metrics: those of the cluster always, those of nodes while one runs."""
    if not target.env.observability or not target.inventory.counts_jobs:
        return
    parts = [part for part in target.inventory.parts if part.nodes]
    own = target.inventory.node_metrics == "nodes"
    yield _monthly(target, "dashboard", "cloudwatch-dashboard-month", 1)
    if target.env.observability.alarm_topic:
        count = ALARMS + (NODE_ALARMS if own else 0)
        yield _monthly(target, f"{count} x alarm", "cloudwatch-alarm-month", count)
    queues = len({part.nodes.queue.name for part in parts if part.nodes})
    least = CLUSTER_METRICS + QUEUE_METRICS * queues
    most = least + (NODE_METRICS * (1 + sum(part.most for part in parts)) if own else 0)
    idle, full = (_monthly(target, "", "cloudwatch-metric-month", n).full for n in (least, most))
    yield Item(f"{least} to {most} x metric" if most > least else f"{least} x metric", idle, full)


def _hourly(target: Target, what: str, name: str, count: int) -> Item:
    total = _times(target.env.catalog.service_price(name, target.env.region), count)
    return Item(what, total, total)


def _monthly(target: Target, what: str, name: str, count: int) -> Item:
    price = target.env.catalog.service_price(name, target.env.region)
    total = None if price is None else price * count / HOURS_OF_A_MONTH
    return Item(what, total, total)


def _times(price: float | None, count: int) -> float | None:
    return 0.0 if count == 0 else None if price is None else price * count


def cost(target: Target) -> dict[str, Any]:
    """The estimate: items, totals of the known prices, and the items whose price is unknown."""
    parts = items(target)
    return {
        "currency": "USD",
        "region": target.env.region,
        "items": [asdict(i) for i in parts],
        "idle_hour": round(sum(i.idle or 0.0 for i in parts), 4),
        "full_hour": round(sum(i.full or 0.0 for i in parts), 4),
        "unknown_idle": [i.what for i in parts if i.idle is None],
        "unknown_full": [i.what for i in parts if i.full is None],
        "not_counted": ["stored data", "traffic", "logs"],
    }


def findings(estimate: dict[str, Any]) -> Found:
    """The two totals as findings."""
    for name, title in (("idle", "cost while no job runs"), ("full", "cost with all nodes")):
        unknown = estimate[f"unknown_{name}"]
        hour = estimate[f"{name}_hour"]
        least = "at least " if unknown else ""
        rest = f". The bill is higher: the catalogue has no price of {listed(unknown)}" if unknown else ""
        yield Finding(
            "info",
            title,
            f"{least}{hour:,.2f} USD an hour",
            f"{hour * HOURS_OF_A_MONTH:,.0f} USD a month at {estimate['region']}'s list prices, without {listed(estimate['not_counted'])}"
            + rest,
            f"add prices under catalog.prices.{estimate['region']} or catalog.service_prices.{estimate['region']}"
            if unknown
            else "",
            check="cost",
        )
