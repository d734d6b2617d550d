"""Offers of regions for nodes of an instance type: one row for each way of buying them."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from trainium_cdk.description.catalog import CapacityType, Catalog
from trainium_cdk.description.catalog.models import InstanceType
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.capacity import BLOCK_ACTIONS, Offering, offerings
from trainium_cdk.description.checks.live.quotas import QUOTA, TRN, applied, trn_vcpus
from trainium_cdk.errors import AwsError, Denied, NoCredentials

T = TypeVar("T")
ACTIONS = (
    *QUOTA, *BLOCK_ACTIONS, "ec2:DescribeInstances", "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeInstanceTypes",
    "ec2:DescribeRegions", "ec2:DescribeSpotPriceHistory", "ec2:GetSpotPlacementScores",
)  # fmt: skip
"""All of them only read, and are on `*`."""
SECONDS = 40.0
"""Time limit of a region, for all its calls together."""
SCORED = 10
"""Regions of one request for placement scores (botocore's model of EC2)."""
MINUTE = dt.timedelta(minutes=1)
NEVER = dt.datetime.max.replace(tzinfo=dt.UTC)


@dataclass(frozen=True)
class Way:
    """One way of having the nodes in one region.

    Attributes:
        start: when they can start at the earliest. EC2 tells only customers of one support plan whether it has instances: with a quota that is large
            enough, on-demand and Spot nodes may start now. None: they cannot.
        usd: price of an instance for an hour in USD; None if it is not known.
        zone_ids: the zones, the cheapest first.
        quota: vCPUs of the account's quota; None if it does not apply (capacity blocks), or is not known.
        used: vCPUs of it that are in use; None likewise.
        score: Spot placement score of the first zone, 1 to 10; None if EC2 gives none.
        offering: the capacity block.
        note: why the nodes cannot start, or what could not be asked.
    """

    capacity_type: CapacityType
    start: dt.datetime | None
    usd: float | None
    zone_ids: tuple[str, ...]
    quota: float | None = None
    used: int | None = None
    spot_prices: dict[str, float] = field(default_factory=dict)
    score: int | None = None
    offering: Offering | None = None
    note: str = ""


@dataclass(frozen=True)
class Supply:
    """Nodes that a region offers. `note`: why it has none, or which request failed."""

    region: str
    ways: tuple[Way, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Wanted:
    """The nodes.

    Attributes:
        hours: duration of a capacity block.
        prices: USD for an instance and hour on demand, by region; None where it is not known.
    """

    catalog: Catalog
    kind: InstanceType
    nodes: int
    hours: int
    now: dt.datetime
    prices: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def vcpus(self) -> int:
        return self.nodes * self.kind.vcpus


def ask(aws: Aws, wanted: Wanted, regions: Sequence[str], seconds: float = SECONDS) -> tuple[list[Supply], list[str]]:
    """Return each region's supply, and notes of failed requests. Regions whose nodes can start soonest come first, then the cheapest.

    A region that refuses, or does not respond in time, says so in its note.

    Args:
        aws: the connection. Its region is asked for what concerns all regions.
        seconds: time limit of a region.

    Raises:
        NoCredentials: AWS does not accept the credentials, or there are none.
    """
    notes: list[str] = []
    enabled, why = _tried(partial(_statuses, aws), but=NoCredentials)
    notes += [f"which regions are enabled is not known: {why}"] if why else []
    asked = [region for region in regions if not _closed(enabled, region)]
    scores: dict[str, int] = {}
    if "spot" in wanted.kind.capacity_types and asked:
        found, why = _tried(partial(_scores, aws, wanted, asked))
        scores = found or {}
        notes += [f"no Spot placement scores: {why}"] if why else []
    threads = [_Region(aws.in_region(region), wanted, scores) for region in asked]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    done = {t.aws.region: t.found or Supply(t.aws.region, note=f"no response within {seconds:.0f} s") for t in threads}
    supplies = [done.get(region) or Supply(region, note=_closed(enabled, region)) for region in regions]
    return sorted(supplies, key=lambda s: (min(map(_rank, s.ways), default=(NEVER, 1e9)), s.region)), notes


def ways(supplies: Iterable[Supply]) -> list[tuple[Supply, Way]]:
    """Each way in each region: what can start soonest first, then the cheapest."""
    return sorted(((s, w) for s in supplies for w in s.ways), key=lambda pair: (_rank(pair[1]), pair[0].region))


def _rank(way: Way) -> tuple[dt.datetime, float]:
    return way.start or NEVER, 1e6 if way.usd is None else way.usd


def _tried(call: Callable[[], T], but: type[AwsError] | tuple[()] = ()) -> tuple[T | None, str]:
    """The result, or None and why there is none. Errors of the kind `but` are raised."""
    try:
        return call(), ""
    except but:
        raise
    except Denied as e:
        return None, f"denied: {e.action}"
    except AwsError as e:
        return None, str(e)


def _statuses(aws: Aws) -> dict[str, str]:
    return {r["RegionName"]: r["OptInStatus"] for r in aws("ec2:DescribeRegions", AllRegions=True)["Regions"]}


def _closed(statuses: dict[str, str] | None, region: str) -> str:
    """Explain why a region cannot be used; empty if it can, or that is not known."""
    if statuses is None:
        return ""
    if region not in statuses:
        return "AWS names no such region to this account"
    if statuses[region] == "not-opted-in":
        return f"not enabled: aws account enable-region --region-name {region}"
    return ""


def _scores(aws: Aws, wanted: Wanted, regions: Sequence[str]) -> dict[str, int]:
    """Zone id -> placement score; EC2 gives the ten best zones. A fleet with EFA is in one zone."""
    found: dict[str, int] = {}
    for first in range(0, len(regions), SCORED):
        answer = aws(
            "ec2:GetSpotPlacementScores",
            InstanceTypes=[wanted.kind.name],
            TargetCapacity=wanted.nodes,
            SingleAvailabilityZone=True,
            RegionNames=list(regions[first : first + SCORED]),
        )
        found |= {one["AvailabilityZoneId"]: int(one["Score"]) for one in answer.get("SpotPlacementScores", [])}
    return found


class _Region(threading.Thread):
    """One region in a daemon thread: a call that hangs must not delay the end of the command."""

    def __init__(self, aws: Aws, wanted: Wanted, scores: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self.aws, self._wanted, self._scores = aws, wanted, scores
        self.found: Supply | None = None

    def run(self) -> None:
        region = self.aws.region
        try:
            zones, why = _tried(partial(_zones, self.aws, self._wanted.kind.name))
            if zones:
                self.found = Supply(region, tuple(_ways(self.aws, self._wanted, zones, self._scores)))
            else:
                self.found = Supply(region, note=why or "not offered to this account")
        except Exception as e:
            self.found = Supply(region, note=f"this is a bug in trn: {type(e).__name__}: {e}")


def _zones(aws: Aws, kind: str) -> tuple[str, ...]:
    """The zone ids that offer the type."""
    filters = [{"Name": "instance-type", "Values": [kind]}]
    answer = aws("ec2:DescribeInstanceTypeOfferings", LocationType="availability-zone-id", Filters=filters)
    return tuple(sorted(entry["Location"] for entry in answer.get("InstanceTypeOfferings", [])))


def _ways(aws: Aws, wanted: Wanted, zones: tuple[str, ...], scores: dict[str, int]) -> Iterator[Way]:
    for kind in wanted.kind.capacity_types:
        if kind == "capacity-block":
            yield from _blocks(aws, wanted, zones)
            continue
        limit, why = _tried(partial(applied, aws, TRN[kind]))
        used, why_not = _tried(partial(trn_vcpus, aws, wanted.catalog, spot=kind == "spot"))
        note = "; ".join(filter(None, (why, why_not)))
        start: dt.datetime | None = wanted.now
        if limit is not None and wanted.vcpus > (room := max(0, int(limit) - (used or 0))):
            start, note = (
                None,
                f"quota: {room:,} of {limit:,.0f} vCPUs are free, {wanted.vcpus:,} wanted ({TRN[kind].code})",
            )
        if kind == "spot":
            yield _spot(aws, wanted, scores, Way(kind, start, None, zones, limit, used, note=note))
        else:
            yield Way(kind, start, wanted.prices.get(aws.region), zones, limit, used, note=note)


def _spot(aws: Aws, wanted: Wanted, scores: dict[str, int], way: Way) -> Way:
    prices, why = _tried(partial(_spot_prices, aws, wanted))
    if prices == {}:
        return replace(way, start=None, note="EC2 has no Spot price")
    if not prices:
        return replace(way, note="; ".join(filter(None, (way.note, why))))
    by_price = tuple(sorted(prices, key=lambda zone: (prices[zone], zone)))
    cheapest = by_price[0]
    return replace(way, usd=prices[cheapest], zone_ids=by_price, spot_prices=prices, score=scores.get(cheapest))


def _spot_prices(aws: Aws, wanted: Wanted) -> dict[str, float]:
    """Zone id -> the present price in USD an hour."""
    answer = aws(
        "ec2:DescribeSpotPriceHistory",
        InstanceTypes=[wanted.kind.name],
        ProductDescriptions=["Linux/UNIX"],
        StartTime=wanted.now,  # with the price that applies at this time
    )
    newest: dict[str, Any] = {}
    for entry in sorted(answer.get("SpotPriceHistory", []), key=lambda e: e["Timestamp"]):
        newest[entry["AvailabilityZoneId"]] = float(entry["SpotPrice"])
    return newest


def _blocks(aws: Aws, wanted: Wanted, zones: tuple[str, ...]) -> Iterator[Way]:
    found, why = _tried(partial(offerings, aws, wanted.kind.name, wanted.nodes, wanted.hours, wanted.now))
    if not found:
        yield Way(
            "capacity-block", None, None, zones, note=why or f"no block of {wanted.nodes} x {wanted.hours} h is offered"
        )
    for offer in found or ():
        start = offer.start if offer.start - wanted.now > MINUTE else wanted.now
        yield Way("capacity-block", start, offer.hourly, (offer.zone_id,), offering=offer)
