"""Availability zones, and which of them offer the instance types to this account."""

from __future__ import annotations

from typing import Any

from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, join_words

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


CHECKS: tuple[Check[Any], ...] = (
    Check("zones", ("ec2:DescribeAvailabilityZones",), fetch_zones, evaluate_zones, lambda t: bool(t.zone_ids)),
    Check("offering", ("ec2:DescribeInstanceTypeOfferings",), fetch_offering, evaluate_offering),
    Check("instance-types", ("ec2:DescribeInstanceTypes",), fetch_types, evaluate_types, lambda t: bool(t.nodes)),
)
