"""EC2's public data in the emulator: instance types, offerings, zones, official images.

The data is the copy of AWS's responses in moto's files. Two things are added: offerings from the project's
catalogue that moto lacks (file in SANDBOX_OFFERINGS, a JSON object instance type -> zone ids), and
ParallelCluster's official images for every requested version.
Zone names follow ministack's rule (letter n is zone n), because pcluster compares subnets by zone name.
"""

from __future__ import annotations

import fnmatch
import functools
import gzip
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ministack.core.responses import get_region
from ministack.services import ec2

from sandbox.emulator.query import ApiError, Response, ec2_response

_IMAGE_FLAVOURS = (
    ("amzn2023-hvm", "x86_64"), ("amzn2023-hvm", "arm64"),
    ("ubuntu-2204-lts-hvm", "x86_64"), ("ubuntu-2204-lts-hvm", "arm64"),
    ("ubuntu-2404-lts-hvm", "x86_64"), ("ubuntu-2404-lts-hvm", "arm64"),
    ("rhel8-hvm", "x86_64"), ("rhel8-hvm", "arm64"), ("rhel9-hvm", "x86_64"), ("rhel9-hvm", "arm64"),
)  # fmt: skip
_IMAGE_OWNER = "247102896272"  # AWS ParallelCluster's publishing account
_IMAGE_NAME = re.compile(r"aws-parallelcluster-(\d+\.\d+\.\d+)-")


@functools.cache
def _moto_data(name: str) -> Any:
    spec = importlib.util.find_spec("moto")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("moto is missing from the emulator's environment: run `make setup`")
    path = Path(spec.submodule_search_locations[0]) / "ec2/resources" / f"{name}.json.gz"
    return json.loads(gzip.decompress(path.read_bytes())) if path.exists() else None


@functools.cache
def _offered_zones(region: str) -> dict[str, frozenset[str]]:
    """Instance type -> zone ids that offer it in the region."""
    zones: dict[str, set[str]] = {}
    for entry in _moto_data(f"instance_type_offerings/availability-zone-id/{region}") or []:
        zones.setdefault(entry["InstanceType"], set()).add(entry["Location"])
    path = Path(os.environ.get("SANDBOX_OFFERINGS", ""))
    if path.is_file():
        prefix = ec2._az_id_prefix(region) + "-"
        for name, ids in json.loads(path.read_text()).items():
            zones.setdefault(name, set()).update(zone for zone in ids if zone.startswith(prefix))
    return {name: frozenset(ids) for name, ids in zones.items() if ids}


def offered(instance_type: str) -> bool:
    """Whether any zone of the current region offers the type."""
    return instance_type in _offered_zones(get_region()) and instance_type in _moto_data("instance_types")


@functools.cache
def zone_ids(region: str) -> tuple[str, ...]:
    """All zone ids of the region, in order; three if moto has no data for it."""
    found = {zone for ids in _offered_zones(region).values() for zone in ids}
    prefix = ec2._az_id_prefix(region)
    return tuple(sorted(found | {f"{prefix}-az{number}" for number in (1, 2, 3)}))


def zone_name(zone_id: str) -> str | None:
    """The name of a zone id in the current region, or None if the region lacks it."""
    if zone_id not in zone_ids(get_region()):
        return None
    return f"{get_region()}{chr(ord('a') + int(zone_id.rpartition('az')[2]) - 1)}"


def require_zone(zone_id: str) -> str:
    """The name of a zone id; EC2's ApiError if the region lacks it."""
    name = zone_name(zone_id)
    if name is None:
        raise ApiError(
            "InvalidParameterValue",
            f"Value ({zone_id}) for parameter availabilityZoneId is invalid. Subnets can currently only be "
            f"created in the following availability zones: {', '.join(zone_ids(get_region()))}.",
        )
    return name


def _filters(params: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = ec2._parse_filters(params)
    return found


def _matches(value: Any, patterns: Iterable[str]) -> bool:
    values = value if isinstance(value, list | tuple | set | frozenset) else [value]
    texts = [str(item).lower() if isinstance(item, bool) else str(item) for item in values]
    return any(fnmatch.fnmatchcase(text, pattern) for text in texts for pattern in patterns)


def describe_availability_zones(params: dict[str, Any]) -> Response:
    """Every zone of the region (ministack has three), filtered by name, id or state."""
    region = get_region()
    names = ec2._parse_member_list(params, "ZoneName")
    ids = ec2._parse_member_list(params, "ZoneId")
    zones = []
    for zone_id in zone_ids(region):
        zone = {
            "ZoneName": zone_name(zone_id), "ZoneId": zone_id, "RegionName": region, "State": "available",
            "OptInStatus": "opt-in-not-required", "ZoneType": "availability-zone",
            "GroupName": f"{region}-zg-1", "NetworkBorderGroup": region, "Messages": [],
        }  # fmt: skip
        fields = {"zone-name": zone["ZoneName"], "zone-id": zone_id, "state": "available",
                  "region-name": region, "zone-type": "availability-zone",
                  "opt-in-status": "opt-in-not-required"}  # fmt: skip
        selected = (not names or zone["ZoneName"] in names) and (not ids or zone_id in ids)
        if selected and all(_matches(fields.get(key, ""), values) for key, values in _filters(params).items()):
            zones.append(zone)
    return ec2_response("DescribeAvailabilityZones", {"AvailabilityZones": zones})


def describe_instance_type_offerings(params: dict[str, Any]) -> Response:
    """Offerings by region, zone name or zone id."""
    location_type = ec2._p(params, "LocationType") or "region"
    region = get_region()
    offerings = []
    for name, ids in sorted(_offered_zones(region).items()):
        locations = {
            "region": [region],
            "availability-zone-id": sorted(ids),
            "availability-zone": [zone_name(zone) for zone in sorted(ids)],
        }.get(location_type)
        if locations is None:
            raise ApiError("InvalidParameterValue", f"Value ({location_type}) for locationType is invalid.")
        for location in locations:
            fields = {"instance-type": name, "location": location}
            if all(_matches(fields.get(key, ""), values) for key, values in _filters(params).items()):
                offerings.append({"InstanceType": name, "LocationType": location_type, "Location": location})
    return ec2_response("DescribeInstanceTypeOfferings", {"InstanceTypeOfferings": offerings})


_TYPE_FILTERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "instance-type": lambda t: t["InstanceType"],
    "free-tier-eligible": lambda t: t.get("FreeTierEligible", False),
    "current-generation": lambda t: t.get("CurrentGeneration", True),
    "processor-info.supported-architecture": lambda t: t["ProcessorInfo"]["SupportedArchitectures"],
    "network-info.efa-supported": lambda t: t.get("NetworkInfo", {}).get("EfaSupported", False),
    "supported-usage-class": lambda t: t.get("SupportedUsageClasses", []),
    "bare-metal": lambda t: t.get("BareMetal", False),
    "hypervisor": lambda t: t.get("Hypervisor", ""),
}


def describe_instance_types(params: dict[str, Any]) -> Response:
    """The named types, or all that match the filters and are offered in the region."""
    known: dict[str, Any] = _moto_data("instance_types")
    offered = _offered_zones(get_region())
    requested = ec2._parse_member_list(params, "InstanceType")
    unknown = [name for name in requested if name not in known or name not in offered]
    if unknown:
        raise ApiError(
            "InvalidInstanceType", f"The following supplied instance types do not exist: [{', '.join(unknown)}]"
        )
    filters = _filters(params)
    unsupported = filters.keys() - _TYPE_FILTERS.keys()
    if unsupported:
        raise ApiError("InvalidParameterValue", f"The filter '{min(unsupported)}' is invalid")
    types = [
        known[name]
        for name in requested or sorted(known.keys() & offered.keys())
        if all(_matches(_TYPE_FILTERS[key](known[name]), values) for key, values in filters.items())
    ]
    return ec2_response("DescribeInstanceTypes", {"InstanceTypes": types})


def _image(version: str, flavour: str, architecture: str) -> dict[str, Any]:
    name = f"aws-parallelcluster-{version}-{flavour}-{architecture}-202602171200"
    digest = hashlib.sha256(f"{get_region()} {name}".encode()).hexdigest()[:17]
    image_id, snapshot = f"ami-{digest}", f"snap-{digest}"
    return {
        "ImageId": image_id, "Name": name, "Description": f"AWS ParallelCluster {version}", "State": "available",
        "OwnerId": _IMAGE_OWNER, "ImageOwnerAlias": "amazon", "Public": True, "Architecture": architecture,
        "ImageType": "machine", "RootDeviceType": "ebs", "RootDeviceName": "/dev/sda1", "EnaSupport": True,
        "VirtualizationType": "hvm", "Hypervisor": "xen", "CreationDate": "2026-02-17T12:00:00.000Z",
        "BlockDeviceMappings": [
            {"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": snapshot, "VolumeSize": 35, "VolumeType": "gp3", "Encrypted": False}}
        ],
        "ImdsSupport": "v2.0",
    }  # fmt: skip


_IMAGE_FILTERS = {
    "name": "Name", "image-id": "ImageId", "architecture": "Architecture", "state": "State",
    "owner-id": "OwnerId", "owner-alias": "ImageOwnerAlias", "root-device-type": "RootDeviceType",
    "virtualization-type": "VirtualizationType", "image-type": "ImageType",
}  # fmt: skip
_versions_seen: set[str] = set()


def _published(version: str) -> bool:
    """Whether the version can exist: not newer than the installed ParallelCluster (SANDBOX_PCLUSTER_VERSION)."""
    installed = os.environ.get("SANDBOX_PCLUSTER_VERSION", "")
    return not installed or tuple(map(int, version.split("."))) <= tuple(map(int, installed.split(".")))


def describe_images(params: dict[str, Any]) -> Response:
    """ParallelCluster's official images, if requested by name or id; otherwise ministack's response."""
    filters = _filters(params)
    ids = ec2._parse_member_list(params, "ImageId")
    for pattern in filters.get("name", []):
        named = _IMAGE_NAME.match(pattern)
        if named and _published(named[1]):
            _versions_seen.add(named[1])
    owners = set(ec2._parse_member_list(params, "Owner"))
    if owners and not owners & {"amazon", _IMAGE_OWNER}:
        return _ministack_describe_images(params)
    images = [
        image
        for version in sorted(_versions_seen)
        for image in (_image(version, *flavour) for flavour in _IMAGE_FLAVOURS)
        if (not ids or image["ImageId"] in ids)
        and all(
            key in _IMAGE_FILTERS and _matches(image[_IMAGE_FILTERS[key]], values) for key, values in filters.items()
        )
    ]
    if images and (ids or "name" in filters):
        return ec2_response("DescribeImages", {"Images": images})
    return _ministack_describe_images(params)


_ministack_describe_images: Callable[[dict[str, Any]], Response] = ec2._ACTION_MAP["DescribeImages"]

ACTIONS = {
    "DescribeAvailabilityZones": describe_availability_zones,
    "DescribeInstanceTypeOfferings": describe_instance_type_offerings,
    "DescribeInstanceTypes": describe_instance_types,
    "DescribeImages": describe_images,
}
