"""Capacity reservations and capacity blocks, for which ministack only returns an empty list.

Files in the sandbox's folder change the responses; they are read for each request. `capacity.json` limits the instances of a type,
running or reserved; `unreservable.json` is a list of types for which EC2 makes no reservations. `reservations.json` is an object
reservation id -> fields that replace DescribeCapacityReservations' own. `block-offerings.json` is the list of
offered blocks: `{"InstanceType", "InstanceCount", "AvailabilityZoneId", "StartInHours", "Hours", "UpfrontFee"}`.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import uuid
from pathlib import Path
from typing import Any

from ministack.core.responses import AccountRegionScopedDict, get_account_id, get_region
from ministack.services import ec2, resource_groups

from sandbox.emulator import service_model
from sandbox.emulator.ec2_catalogue import _offered_zones, require_zone, zone_ids
from sandbox.emulator.query import ApiError, Response, ec2_response

_reservations = AccountRegionScopedDict()
_tokens = AccountRegionScopedDict()
"""Client token -> the other parameters of its request, and the id of its reservation."""
_offerings = AccountRegionScopedDict()


def given(name: str, default: Any = None) -> Any:
    """The content of a file in the sandbox's folder, or the default if it does not exist."""
    path = Path(os.environ["SANDBOX_DIR"]) / name
    return json.loads(path.read_text()) if path.is_file() else default


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _stamp(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _reserve(instance_type: str, count: int, zone: str, *, block: bool, end: str | None, match: str) -> dict[str, Any]:
    reservation_id = "cr-0" + uuid.uuid4().hex[:16]
    zone_id = ec2._az_id_for_zone_name(zone)
    kind = "capacity-block" if block else "default"
    reservation = {
        "CapacityReservationId": reservation_id, "OwnerId": get_account_id(),
        "CapacityReservationArn": f"arn:aws:ec2:{get_region()}:{get_account_id()}:"
                                  f"capacity-reservation/{reservation_id}",
        "AvailabilityZone": zone, "AvailabilityZoneId": zone_id, "InstanceType": instance_type,
        "InstancePlatform": "Linux/UNIX", "Tenancy": "default", "TotalInstanceCount": count,
        "AvailableInstanceCount": count, "EbsOptimized": True, "State": "active", "StartDate": _stamp(_now()),
        "CreateDate": _stamp(_now()), "EndDateType": "limited" if end else "unlimited", "EndDate": end,
        "InstanceMatchCriteria": match, "ReservationType": kind, "Tags": [],
    }  # fmt: skip
    _reservations[reservation_id] = reservation
    return reservation


def create_capacity_reservation(params: dict[str, Any]) -> Response:
    """An on-demand capacity reservation (ODCR)."""
    zone_id, kind, count = (ec2._p(params, key) for key in ("AvailabilityZoneId", "InstanceType", "InstanceCount"))
    zone = require_zone(zone_id) if zone_id else ec2._p(params, "AvailabilityZone")
    if not zone:
        raise ApiError("MissingParameter", "AvailabilityZone or AvailabilityZoneId is required")
    if (ec2._p(params, "EndDateType") == "limited") != bool(ec2._p(params, "EndDate")):
        raise ApiError("InvalidParameterCombination", "EndDate is given if, and only if, EndDateType is limited")
    numbers = itertools.takewhile(lambda i: ec2._p(params, f"TagSpecifications.1.Tag.{i}.Key"), itertools.count(1))
    tags = [{part: ec2._p(params, f"TagSpecifications.1.Tag.{i}.{part}") for part in ("Key", "Value")} for i in numbers]
    token, wanted = ec2._p(params, "ClientToken"), {k: v for k, v in params.items() if k != "ClientToken"}
    if token in _tokens:
        before, reservation_id = _tokens[token]
        if before != wanted:
            text = f"Arguments on this idempotent request are inconsistent with arguments used in previous request(s): {token}"
            raise ApiError("IdempotentParameterMismatch", text)
        return ec2_response("CreateCapacityReservation", {"CapacityReservation": _reservations[reservation_id]})
    placement = ec2._p(params, "PlacementGroupArn")
    if placement and placement.rpartition("/")[2] not in ec2._placement_groups:
        raise ApiError("InvalidPlacementGroup.Unknown", f"The Placement Group '{placement}' is unknown.")
    if kind in (given("unreservable.json", [])):
        raise ApiError("Unsupported", f"The requested configuration is currently not supported for {kind}")
    if room(kind) < int(count):
        text = f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested ({zone})."
        raise ApiError("InsufficientInstanceCapacity", text, 500)
    reservation = _reserve(
        kind, int(count), zone,
        block=False, end=ec2._p(params, "EndDate") or None, match=ec2._p(params, "InstanceMatchCriteria") or "open",
    )  # fmt: skip
    reservation["Tags"] = tags
    if placement:
        reservation["PlacementGroupArn"] = placement
    if token:
        _tokens[token] = wanted, reservation["CapacityReservationId"]
    return ec2_response("CreateCapacityReservation", {"CapacityReservation": reservation})


def cancel_capacity_reservation(params: dict[str, Any]) -> Response:
    """Cancel an ODCR. A capacity block cannot be cancelled, as on AWS."""
    reservation = _known(ec2._p(params, "CapacityReservationId"))
    if reservation["ReservationType"] == "capacity-block":
        raise ApiError(
            "InvalidRequest", f"{reservation['CapacityReservationId']} is a Capacity Block and cannot be cancelled"
        )
    reservation["State"], reservation["AvailableInstanceCount"] = "cancelled", 0
    return ec2_response("CancelCapacityReservation", {"Return": True})


def describe_capacity_reservations(params: dict[str, Any]) -> Response:
    """Reservations by id or filter."""
    ids = ec2._parse_member_list(params, "CapacityReservationId")
    chosen = [_known(key) for key in ids] if ids else list(_reservations.values())
    keys = {"state": "State", "instance-type": "InstanceType", "availability-zone": "AvailabilityZone"}
    for name, values in ec2._parse_filters(params).items():
        if name.startswith("tag:"):
            tag = name.removeprefix("tag:")
            chosen = [e for e in chosen if any(t["Key"] == tag and t["Value"] in values for t in e["Tags"])]
            continue
        if name not in keys:
            raise ApiError("InvalidParameterValue", f"The filter '{name}' is invalid")
        chosen = [entry for entry in chosen if entry[keys[name]] in values]
    changed = given("reservations.json", {})
    shown = [{**entry, **changed.get(entry["CapacityReservationId"], {})} for entry in chosen]
    return ec2_response("DescribeCapacityReservations", {"CapacityReservations": shown})


def _known(reservation_id: str) -> dict[str, Any]:
    if reservation_id not in _reservations:
        raise ApiError(
            "InvalidCapacityReservationId.NotFound",
            f"The capacity reservation '{reservation_id}' does not exist",
        )
    found: dict[str, Any] = _reservations[reservation_id]
    return found


def describe_capacity_block_offerings(params: dict[str, Any]) -> Response:
    """One offering in each zone that offers the type, starting now, for any request; or the matching ones of the file."""
    request = service_model.of_query("DescribeCapacityBlockOfferings", params)
    if missing := [name for name in ("InstanceType", "InstanceCount") if name not in request]:
        raise ApiError("MissingParameter", f"The request must contain the parameter {missing[0]}")
    kind, count, hours = (request[name] for name in ("InstanceType", "InstanceCount", "CapacityDurationHours"))
    if not 1 <= count <= 64:
        raise ApiError("InvalidParameterValue", f"InstanceCount {count} is not within 1 to 64")
    if hours < 24 or hours % (24 if hours <= 14 * 24 else 7 * 24) or hours > 182 * 24:
        text = (
            f"CapacityDurationHours {hours}: in 1-day increments up to 14 days, and in 7-day increments up to 182 days"
        )
        raise ApiError("InvalidParameterValue", text)
    sold = given("block-offerings.json")
    if sold is None:
        plain = {"InstanceType": kind, "InstanceCount": count, "StartInHours": 0, "Hours": hours, "UpfrontFee": "0"}
        sold = [{**plain, "AvailabilityZoneId": zone} for zone in sorted(_offered_zones(get_region()).get(kind, ()))]
    offers = []
    for block in sold:
        if (block["InstanceType"], block["InstanceCount"], block["Hours"]) != (kind, count, hours):
            continue
        if block["AvailabilityZoneId"] not in zone_ids(get_region()):
            continue
        start = _now() + datetime.timedelta(hours=block["StartInHours"])
        identifier = "cb-0" + uuid.uuid4().hex[:16]
        offering = {
            "CapacityBlockOfferingId": identifier, "InstanceType": kind, "InstanceCount": count,
            "AvailabilityZone": require_zone(block["AvailabilityZoneId"]), "StartDate": _stamp(start),
            "EndDate": _stamp(start + datetime.timedelta(hours=hours)), "CapacityBlockDurationHours": hours,
            "UpfrontFee": str(block["UpfrontFee"]), "CurrencyCode": "USD", "Tenancy": "default",
        }  # fmt: skip
        _offerings[identifier] = offering
        offers.append(offering)
    return ec2_response("DescribeCapacityBlockOfferings", {"CapacityBlockOfferings": offers})


def purchase_capacity_block(params: dict[str, Any]) -> Response:
    """Buy an offering: creates an active reservation of type capacity-block."""
    identifier = ec2._p(params, "CapacityBlockOfferingId")
    if identifier not in _offerings:
        raise ApiError("InvalidCapacityBlockOfferingId.NotFound", f"The offering '{identifier}' does not exist")
    offer = _offerings[identifier]
    reservation = _reserve(
        offer["InstanceType"], offer["InstanceCount"], offer["AvailabilityZone"],
        block=True, end=offer["EndDate"], match="targeted",
    )  # fmt: skip
    return ec2_response("PurchaseCapacityBlock", {"CapacityReservation": reservation})


def room(kind: str) -> int:
    """How many more instances of a type can be launched or reserved."""
    bounds: dict[str, int] = given("capacity.json", {})
    there: int = sum(i["InstanceType"] == kind and i["State"]["Name"] == "running" for i in ec2._instances.values())
    return max(0, int(bounds.get(kind, 10**6)) - there - available(kind))


def available(kind: str) -> int:
    """How many instances of a type are reserved on demand and not launched yet."""
    return sum(int(entry["AvailableInstanceCount"]) for entry in _open(kind))


def take(kind: str, count: int) -> None:
    """Launch instances into open reservations."""
    for entry in _open(kind):
        used = min(count, entry["AvailableInstanceCount"])
        entry["AvailableInstanceCount"] -= used
        count -= used


def use(kind: str, count: int, template: dict[str, Any]) -> None:
    """Count instances that are to be launched, in the reservation or the group of a launch template (see `ec2_launch`), or wherever there
    is room; ApiError with EC2's code if there is none."""
    placement = template.get("_placement")
    if reservation := template.get("_reservation"):
        entry = {**_known(reservation), **given("reservations.json", {}).get(reservation, {})}
        if entry["State"] != "active" or entry["AvailableInstanceCount"] < count:
            raise ApiError("ReservationCapacityExceeded", f"The capacity of {reservation} has been exceeded")
        if placement and entry.get("PlacementGroupArn", "").rpartition("/")[2] != placement:
            raise ApiError("InsufficientInstanceCapacity", f"{reservation} has no capacity in {placement}", 500)
        return
    if group := template.get("_reservation_group"):
        count -= sum(_take(entry, count) for entry in _of_group(group, kind))
    if room(kind) + available(kind) < count:
        raise ApiError("InsufficientInstanceCapacity", f"We currently do not have sufficient {kind} capacity", 500)
    take(kind, count)


def _take(entry: dict[str, Any], most: int) -> int:
    used = min(most, int(entry["AvailableInstanceCount"]))
    entry["AvailableInstanceCount"] -= used
    return used


def _of_group(arn: str, kind: str) -> list[dict[str, Any]]:
    """The active reservations of a type in a resource group."""
    members = resource_groups._group_members.get(arn.rpartition(":group/")[2]) or []
    entries = [_reservations[id] for one in members if (id := one.rpartition("/")[2]) in _reservations]
    return [e for e in entries if (e["InstanceType"], e["State"]) == (kind, "active")]


def install() -> None:
    """Resource groups name the type of a reservation as AWS does."""
    name = resource_groups._resource_type_from_arn

    def type_of(arn: str) -> str:
        return "AWS::EC2::CapacityReservation" if ":capacity-reservation/" in arn else str(name(arn))

    resource_groups._resource_type_from_arn = type_of


def _open(kind: str) -> list[dict[str, Any]]:
    wanted = {"InstanceType": kind, "State": "active", "InstanceMatchCriteria": "open", "ReservationType": "default"}
    return [entry for entry in _reservations.values() if wanted.items() <= entry.items()]


ACTIONS = {
    "CreateCapacityReservation": create_capacity_reservation,
    "CancelCapacityReservation": cancel_capacity_reservation,
    "DescribeCapacityReservations": describe_capacity_reservations,
    "DescribeCapacityBlockOfferings": describe_capacity_block_offerings,
    "PurchaseCapacityBlock": purchase_capacity_block,
}
