"""What differs between regions: which are enabled, Spot prices and placement scores.

botocore's model judges the requests. Files in the sandbox's folder change the responses: `regions.json` (an object region -> its
opt-in status, or null for a region that does not exist) and `spot.json` (a list of
`{"InstanceType", "AvailabilityZoneId", "SpotPrice", "Score"}`; each replaces the default of its zone).
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from ministack.core.responses import get_region
from ministack.services import ec2

from sandbox.emulator import ec2_catalogue as catalogue
from sandbox.emulator import service_model
from sandbox.emulator.ec2_reservations import given
from sandbox.emulator.query import ApiError, Response, ec2_response

USD_VCPU = 0.05
"""Invented: the Spot price of a vCPU."""
PRODUCTS = {"Linux/UNIX": 1.0, "SUSE Linux": 1.1, "Windows": 1.5}
"""Product descriptions, and how much dearer each is. Invented."""
CHANGES = (dt.timedelta(days=3), dt.timedelta(hours=30), dt.timedelta(hours=2))
"""How long ago the price changed; it was twice the present price, and 1.5 times."""
LOW = 3
"""The score of one or two instance types "will always be low" (API reference). The number is invented."""
MOST_SCORES = 10


def statuses() -> dict[str, str]:
    """Region -> opt-in status."""
    known = {**dict(ec2._AWS_REGIONS), **given("regions.json", {})}
    return {name: status for name, status in known.items() if status}


def require_enabled() -> None:
    """As EC2 answers in a region that the account has not enabled."""
    if statuses().get(get_region()) == "not-opted-in":
        text = "AWS was not able to validate the provided access credentials"
        raise ApiError("AuthFailure", text, 401)


def describe_regions(params: dict[str, Any]) -> Response:
    """Those that are enabled, those that are named, or all with AllRegions."""
    request = service_model.of_query("DescribeRegions", params)
    wanted = request.get("RegionNames", [])
    if unknown := sorted(set(wanted) - statuses().keys()):
        raise ApiError("InvalidParameterValue", f"Invalid region '{unknown[0]}' provided.")
    if "Filters" in request:
        raise ApiError("InvalidParameterValue", "the sandbox's DescribeRegions has no filters")
    every = bool(wanted) or request.get("AllRegions") == "true"
    found = [
        {"RegionName": name, "Endpoint": f"ec2.{name}.amazonaws.com", "OptInStatus": status}
        for name, status in statuses().items()
        if (not wanted or name in wanted) and (every or status != "not-opted-in")
    ]
    return ec2_response("DescribeRegions", {"Regions": found})


def _zones(kind: str, region: str) -> dict[str, dict[str, Any]]:
    """Zone id -> Spot price and score there, where the type is offered and sold as Spot."""
    known = catalogue._moto_data("instance_types").get(kind)
    if known and "spot" not in known["SupportedUsageClasses"]:
        return {}
    own = {one["AvailabilityZoneId"]: one for one in given("spot.json", []) if one["InstanceType"] == kind}
    price = f"{USD_VCPU * known['VCpuInfo']['DefaultVCpus']:.6f}" if known else "1.000000"
    zones = sorted(catalogue._offered_zones(region).get(kind, ()))
    return {zone: {"SpotPrice": price, "Score": LOW, **own.get(zone, {})} for zone in zones}


def describe_spot_price_history(params: dict[str, Any]) -> Response:
    """Each change since the start, and the price that applied at the start; without one, all changes. Newest first."""
    request = service_model.of_query("DescribeSpotPriceHistory", params)
    if unsupported := request.keys() - {"InstanceTypes", "ProductDescriptions", "StartTime"}:
        raise ApiError("InvalidParameterValue", f"the sandbox has no Spot prices by {', '.join(sorted(unsupported))}")
    now = dt.datetime.now(dt.UTC)
    since = dt.datetime.fromisoformat(request["StartTime"]) if "StartTime" in request else now - 9 * CHANGES[0]
    started = [now - ago for ago in CHANGES if now - ago <= since]
    shown = [(now - ago, factor) for ago, factor in zip(CHANGES, (2.0, 1.5, 1.0), strict=True)]
    shown = [(moment, factor) for moment, factor in shown if moment >= max(started, default=since)]
    history = [
        {
            "AvailabilityZone": catalogue.zone_name(zone), "AvailabilityZoneId": zone, "InstanceType": kind,
            "ProductDescription": product, "SpotPrice": f"{float(found['SpotPrice']) * factor * dearer:.6f}",
            "Timestamp": moment.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        }
        for kind in request.get("InstanceTypes") or sorted(catalogue._offered_zones(get_region()))
        for zone, found in _zones(kind, get_region()).items()
        for product, dearer in PRODUCTS.items() if product in request.get("ProductDescriptions", PRODUCTS)
        for moment, factor in reversed(shown)
    ]  # fmt: skip
    return ec2_response("DescribeSpotPriceHistory", {"SpotPriceHistory": history})


def get_spot_placement_scores(params: dict[str, Any]) -> Response:
    """The ten best regions, or zones, of those that are named (or all that are enabled)."""
    request = service_model.of_query("GetSpotPlacementScores", params)
    kinds = request.get("InstanceTypes", [])
    if bool(kinds) == ("InstanceRequirementsWithMetadata" in request):
        raise ApiError(
            "InvalidParameterCombination", "Specify either InstanceTypes or InstanceRequirementsWithMetadata"
        )
    enabled = [name for name, status in statuses().items() if status != "not-opted-in"]
    if unknown := sorted(set(request.get("RegionNames", [])) - set(enabled)):
        raise ApiError("InvalidParameterValue", f"Invalid region '{unknown[0]}' provided.")
    scores: dict[str, dict[str, int]] = {}
    for region in request.get("RegionNames") or enabled:
        for kind in kinds:
            for zone, found in _zones(kind, region).items():
                scores.setdefault(region, {})[zone] = max(found["Score"], scores.get(region, {}).get(zone, 0))
    if request.get("SingleAvailabilityZone") == "true":
        best = [
            {"Region": region, "AvailabilityZoneId": zone, "Score": score}
            for region, zones in scores.items()
            for zone, score in zones.items()
        ]
    else:
        best = [{"Region": region, "Score": max(zones.values())} for region, zones in scores.items()]
    best.sort(key=lambda one: -int(str(one["Score"])))
    return ec2_response("GetSpotPlacementScores", {"SpotPlacementScores": best[:MOST_SCORES]})


ACTIONS = {
    "DescribeRegions": describe_regions,
    "DescribeSpotPriceHistory": describe_spot_price_history,
    "GetSpotPlacementScores": get_spot_placement_scores,
}
