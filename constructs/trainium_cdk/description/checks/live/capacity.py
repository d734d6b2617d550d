"""What EC2 has for this account: availability zones, and which of them offer the instance types; capacity reservations and capacity blocks that the
environment names, and offerings if it needs a block but names none."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trainium_cdk.description.catalog.constants import BLOCK_STOPS_EARLY
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, Subject, counted, join_words
from trainium_cdk.description.settings.inventory import KnownNodes
from trainium_cdk.description.settings.reserved import is_group

Offered = dict[str, frozenset[str]]
"""Instance type -> zone ids."""


def evaluate_zones(target: CheckTarget, states: dict[str, str]) -> Found:
    for zone in target.zone_ids:
        state = states.get(zone)
        if state != "available":
            known = join_words(sorted(z for z, s in states.items() if s == "available"))
            reason = f"this account cannot use it in {target.env.region}"
            yield target.about(f"zone {zone}", "network").error(state or "none", reason, f"choose from {known}")
    if all(states.get(z) == "available" for z in target.zone_ids):
        yield target.about("zones").ok(join_words(target.zone_ids), f"available in {target.env.region}")


def fetch_zones(_: CheckTarget, aws: Aws) -> dict[str, str]:
    answer = aws("ec2:DescribeAvailabilityZones", Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}])
    return {z["ZoneId"]: z["State"] for z in answer["AvailabilityZones"]}


def evaluate_offering(target: CheckTarget, offered: Offered) -> Found:
    for nodes in target.nodes:
        zone, zones = target.inventory.zone_of(nodes.queue), offered.get(nodes.kind.name, frozenset())
        what = f"{nodes.kind.name} for {nodes.name}"
        if zone in zones:
            yield target.about(what).ok(zone, "offered in this zone")
        elif not zones:
            reason = f"no zone of {target.env.region} offers it to this account"
            fix = "choose another region or instance type"
            yield target.about(what, *nodes.at, "instance_type").error(zone, reason, fix)
        else:
            fix = f"write zone_id: {join_words(sorted(zones), 'or')}"
            where = target.about(what, *nodes.queue_at, "zone_id")
            yield where.error(zone, "this zone does not offer it to this account", fix)
    yield from _servers(target, offered)


def _servers(target: CheckTarget, offered: Offered) -> Found:
    """Some are in the first zone; EKS distributes its system nodes over all zones."""
    for server in target.servers:
        wanted = target.zone_ids if server.zones == "every" else target.zone_ids[:1]
        zones = offered.get(server.instance_type, frozenset())
        missing = [z for z in wanted if z not in zones]
        subject = target.about(f"{server.instance_type} for the {server.name}", *server.key)
        reason = "not offered there to this account"
        fix = "choose another ordinary type, for example r5.large or c5.4xlarge"
        if not missing:
            yield subject.ok(join_words(wanted), "offered in each zone")
        elif len(missing) < len(wanted):
            yield subject.warning(join_words(missing), f"{reason}, but in the other zones", fix)
        else:
            yield subject.error(join_words(missing), reason, fix)


def fetch_offering(target: CheckTarget, aws: Aws) -> Offered:
    types = {f.kind.name for f in target.nodes} | {s.instance_type for s in target.servers}
    answer = aws(
        "ec2:DescribeInstanceTypeOfferings",
        LocationType="availability-zone-id",
        Filters=[{"Name": "instance-type", "Values": sorted(types)}],
    )
    zones: dict[str, set[str]] = {}
    for entry in answer.get("InstanceTypeOfferings", []):
        zones.setdefault(entry["InstanceType"], set()).add(entry["Location"])
    return {name: frozenset(z) for name, z in zones.items()}


def evaluate_types(target: CheckTarget, types: dict[str, dict[str, Any]]) -> Found:
    for kind in {f.kind.name: f.kind for f in target.nodes}.values():
        if not (description := types.get(kind.name)):
            continue
        network = description.get("NetworkInfo", {})
        theirs = {
            "vcpus": description["VCpuInfo"]["DefaultVCpus"],
            "network_cards": network.get("MaximumNetworkCards", 1),
            "efa_interfaces": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        }
        for name, value in theirs.items():
            if getattr(kind, name) != value:
                fix = f"write catalog.instances.{kind.name}.{name}: {value}"
                yield target.about(f"{name} of {kind.name}").warning(getattr(kind, name), f"EC2 reports {value}", fix)


def fetch_types(target: CheckTarget, aws: Aws) -> dict[str, dict[str, Any]]:
    types = sorted({f.kind.name for f in target.nodes})
    answer = aws("ec2:DescribeInstanceTypes", Filters=[{"Name": "instance-type", "Values": types}])
    return {t["InstanceType"]: t for t in answer.get("InstanceTypes", [])}


# --- reservations and blocks ------------------------------------------------------------------------------------------

BLOCK = "capacity-block"
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Instances that a capacity block may have (EC2 user guide, 2026-11)."""
BLOCK_HOURS = 24
"""The shortest duration of a block, and the step up to `BLOCK_DAYS`; from then on it is a week (EC2 API reference, 2026-11)."""
BLOCK_DAYS, BLOCK_WEEK = 14 * 24, 7 * 24
AHEAD = dt.timedelta(weeks=8)
"""Longest time in advance to buy a block (EC2 user guide, 2026-11)."""
ENDS_EARLY = dt.timedelta(seconds=BLOCK_STOPS_EARLY)
SOON = dt.timedelta(hours=24)
COMING = frozenset({"pending", "scheduled", "payment-pending", "assessing", "delayed"})
Reservations = dict[str, dict[str, Any] | None]


def _named(target: CheckTarget) -> list[KnownNodes]:
    return [f for f in target.nodes if f.resource.reservation and not is_group(f.resource.reservation)]


def evaluate_reservations(target: CheckTarget, reservations: Reservations) -> Found:
    for nodes in _named(target):
        name = str(nodes.resource.reservation)
        subject = target.about(f"reservation {name}", *nodes.at, "reservation")
        reservation = reservations.get(name)
        if reservation is None:
            yield subject.error(
                "none",
                f"it does not exist in {target.env.region}, in this account or shared with it",
                "correct the id or the region: aws ec2 describe-capacity-reservations",
            )
            continue
        problems = list(_problems(target, nodes, reservation, subject))
        yield from problems
        if not any(f.level == "error" for f in problems):
            size = counted(int(reservation["TotalInstanceCount"]), "instance")
            text = f"{size} of {reservation['InstanceType']} in {reservation.get('AvailabilityZoneId', '?')}"
            end = reservation.get("EndDate")
            yield subject.ok(
                reservation["State"], f"{text}, {f'until {moment(end)}' if end else 'without an end date'}"
            )


def _problems(target: CheckTarget, nodes: KnownNodes, reservation: dict[str, Any], subject: Subject) -> Found:
    kind = reservation.get("ReservationType", "default")
    if (kind == BLOCK) != (nodes.queue.capacity_type == BLOCK):
        is_block = kind == BLOCK
        yield subject.error(
            kind,
            f"it is {'a capacity block' if is_block else 'an on-demand reservation'}, but capacity_type is {nodes.queue.capacity_type}",
            f"write capacity_type: {BLOCK if is_block else 'on-demand'}",
        )
    if reservation["InstanceType"] != nodes.kind.name:
        yield subject.error(
            reservation["InstanceType"],
            f"it is not for {nodes.kind.name}, the instance type of {nodes.name}",
            f"write instance_type: {reservation['InstanceType']}, or use a reservation of {nodes.kind.name}",
        )
    zone, ours = reservation.get("AvailabilityZoneId"), target.inventory.zone_of(nodes.queue)
    if zone and zone != ours:
        yield subject.error(zone, f"it is not in the zone of {nodes.name} ({ours})", f"write zone_id: {zone}")
    yield from _placed(nodes, reservation, subject)
    yield from _size(nodes, reservation, subject)
    yield from _time(target, nodes, reservation, subject)


def _placed(nodes: KnownNodes, reservation: dict[str, Any], subject: Subject) -> Found:
    """Nodes that name no group, though the reservation was made in one. Those that name one: `placement`."""
    if (group := its_placement_group(reservation)) and not nodes.queue.existing_group:
        yield subject.warning(
            group,
            f"it was made in this placement group, and {nodes.name} names none: a node outside the group has no place in it",
            f"write placement_group: {group}",
        )


def its_placement_group(reservation: dict[str, Any]) -> str:
    """The name of the placement group in which a reservation was made; empty if it was made in none."""
    return str(reservation.get("PlacementGroupArn") or "").rpartition("/")[2]


def _size(nodes: KnownNodes, reservation: dict[str, Any], subject: Subject) -> Found:
    total, free = int(reservation["TotalInstanceCount"]), int(reservation["AvailableInstanceCount"])
    wanted = nodes.resource.max_nodes
    if total < wanted:
        yield subject.error(
            counted(total, "instance"),
            f"{nodes.name} has up to {wanted:,} nodes: those beyond the reservation cannot start",
            f"write max_nodes: {total}, enlarge the reservation, or use a resource group of several",
        )
    elif free < wanted and reservation["State"] == "active":
        yield subject.warning(
            counted(free, "free instance"),
            f"{nodes.name} has up to {wanted:,} nodes, but other instances of the {total:,} are in use, possibly by this cluster",
            "list the instances that use them: aws ec2 describe-instances --filters Name=capacity-reservation-id,Values="
            f"{reservation['CapacityReservationId']}",
        )


def _time(target: CheckTarget, nodes: KnownNodes, reservation: dict[str, Any], subject: Subject) -> Found:
    state, start, end = reservation["State"], reservation.get("StartDate"), reservation.get("EndDate")
    if state in COMING:
        text = f"it starts {moment(start) if start else 'later'}: its nodes cannot start before that"
        kept, least = nodes.engine.name == "slurm" and nodes.queue.capacity_type == BLOCK, nodes.resource.min_nodes
        if kept:
            fix = "you can deploy now: ParallelCluster keeps the nodes of a future block in maintenance until it starts"
            yield subject.warning(state, text, fix)
        elif least and nodes.engine.name != "pcs":
            text += f", and the deployment waits for min_nodes: {least} of {nodes.name} and fails"
            yield subject.error(state, text, "write min_nodes: 0 until it starts, or deploy after it has started")
        else:
            yield subject.warning(state, text, "deploy now or later; submit jobs after it has started")
    elif state != "active":
        yield subject.error(state, "no instance can start in it any more", "use another reservation, or remove it")
        return
    if end is None:
        return
    left = end - target.now
    if left <= ENDS_EARLY:
        yield subject.error(
            moment(end), "it has ended, or its instances are being terminated", "use another reservation"
        )
    elif left <= SOON:
        yield subject.warning(
            moment(end),
            f"it ends in {left.total_seconds() / 3600:.0f} h; EC2 terminates the nodes of a block {ENDS_EARLY.seconds // 60} "
            "minutes before",
            "make sure that jobs write checkpoints, or extend the reservation",
        )


def fetch_reservations(target: CheckTarget, aws: Aws) -> Reservations:
    names = {str(f.resource.reservation) for f in _named(target)}
    asked, key = "ec2:DescribeCapacityReservations", "CapacityReservations"
    return {name: aws.first(asked, key, CapacityReservationIds=[name]) for name in sorted(names)}


@dataclass(frozen=True)
class Offering:
    """A capacity block that can currently be bought."""

    id: str
    instance_type: str
    nodes: int
    zone_id: str
    start: dt.datetime
    end: dt.datetime
    price: str
    currency: str

    @property
    def hourly(self) -> float:
        """Price of one instance for an hour."""
        return float(self.price) / self.nodes / max(1.0, (self.end - self.start).total_seconds() / 3600)

    @property
    def command(self) -> str:
        """With which it is bought. The full price is charged immediately."""
        return f"aws ec2 purchase-capacity-block --capacity-block-offering-id {self.id} --instance-platform Linux/UNIX"


def offerings(aws: Aws, instance_type: str, nodes: int, hours: int, now: dt.datetime) -> list[Offering]:
    """Blocks for at least this number of nodes and hours, the cheapest first, then the earliest."""
    step = BLOCK_HOURS if hours <= BLOCK_DAYS else BLOCK_WEEK
    hours = -(-hours // step) * step
    size = next((n for n in BLOCK_SIZES if n >= nodes), BLOCK_SIZES[-1])
    answer = aws(
        "ec2:DescribeCapacityBlockOfferings",
        InstanceType=instance_type,
        InstanceCount=size,
        CapacityDurationHours=hours,
        StartDateRange=now,
        EndDateRange=now + AHEAD + dt.timedelta(hours=hours),
    )
    zones = {z["ZoneName"]: z["ZoneId"] for z in aws("ec2:DescribeAvailabilityZones")["AvailabilityZones"]}
    blocks = [
        Offering(
            o["CapacityBlockOfferingId"],
            o["InstanceType"],
            int(o["InstanceCount"]),
            zones.get(o["AvailabilityZone"], o["AvailabilityZone"]),
            o["StartDate"],
            o["EndDate"],
            o["UpfrontFee"],
            o["CurrencyCode"],
        )
        for o in answer.get("CapacityBlockOfferings", [])
    ]
    return sorted(blocks, key=lambda o: (float(o.price), o.start))


def _blocks_wanted(target: CheckTarget) -> list[KnownNodes]:
    return [f for f in target.nodes if f.queue.capacity_type == BLOCK and not f.resource.reservation]


def evaluate_blocks(target: CheckTarget, available: dict[tuple[str, int], list[Offering]]) -> Found:
    for nodes in _blocks_wanted(target):
        offers = available[nodes.kind.name, nodes.resource.max_nodes]
        subject = target.about(f"capacity block for {nodes.name}", *nodes.at, "reservation")
        if not offers:
            yield subject.warning(
                "none",
                f"no block of {nodes.resource.max_nodes} x {nodes.kind.name} for {BLOCK_HOURS} h is currently offered in "
                f"{target.env.region}",
                "try other sizes: trn capacity --nodes N --hours H, or other regions: --regions all",
            )
        for offer in offers[:3]:
            yield subject.info(
                f"{offer.price} {offer.currency}",
                describe(offer),
                f"{offer.command} (the full price is charged immediately)",
            )


def describe(offer: Offering) -> str:
    return (
        f"{offer.nodes} x {offer.instance_type} in {offer.zone_id} from {moment(offer.start)} to {moment(offer.end)} "
        f"({offer.hourly:,.2f} {offer.currency} for an instance and hour)"
    )


def fetch_blocks(target: CheckTarget, aws: Aws) -> dict[tuple[str, int], list[Offering]]:
    wanted: Iterable[tuple[str, int]] = {(f.kind.name, f.resource.max_nodes) for f in _blocks_wanted(target)}
    return {(kind, n): offerings(aws, kind, n, BLOCK_HOURS, target.now) for kind, n in sorted(wanted)}


def moment(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")


BLOCK_ACTIONS = ("ec2:DescribeCapacityBlockOfferings", "ec2:DescribeAvailabilityZones")


CHECKS: tuple[Check[Any], ...] = (
    Check("zones", ("ec2:DescribeAvailabilityZones",), fetch_zones, evaluate_zones, lambda t: bool(t.zone_ids)),
    Check("offering", ("ec2:DescribeInstanceTypeOfferings",), fetch_offering, evaluate_offering),
    Check("instance-types", ("ec2:DescribeInstanceTypes",), fetch_types, evaluate_types, lambda t: bool(t.nodes)),
    Check(
        "reservations",
        ("ec2:DescribeCapacityReservations",),
        fetch_reservations,
        evaluate_reservations,
        lambda t: bool(_named(t)),
    ),
    Check("block-offerings", BLOCK_ACTIONS, fetch_blocks, evaluate_blocks, lambda t: bool(_blocks_wanted(t))),
)
