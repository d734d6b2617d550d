"""DescribeInstanceTopology, which ministack does not have.

Facts: EC2's API reference and user guide (instance topology, prerequisites, 2026-11), and botocore's model. The file `topology.json` in
the sandbox's folder is a list of network nodes as `["nn-1", "nn-2", "nn-3"]`, which instances are given in turn, in the order in which
they are seen; without it four instances each are below a network node of layer 3, and two of those below one of layer 2.
"""

from __future__ import annotations

import fnmatch
import re
from typing import Any

from ministack.core.responses import AccountRegionScopedDict
from ministack.services import ec2

from sandbox.emulator.ec2_reservations import given
from sandbox.emulator.query import ApiError, Response, ec2_response

SUPPORTED = ("trn1.2xlarge", "trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge", "trn2u.48xlarge")
"""Trainium's types with a topology; instances of all others are left out."""
_MOST = 100
_ID = re.compile(r"i-([0-9a-f]{8}|[0-9a-f]{17})")
_KEYS = {"availability-zone": "AvailabilityZone", "instance-type": "InstanceType", "zone-id": "ZoneId"}
_placed = AccountRegionScopedDict()


def describe_instance_topology(params: dict[str, Any]) -> Response:
    """The network nodes of running instances of supported types."""
    ids, groups = ec2._parse_member_list(params, "InstanceId"), ec2._parse_member_list(params, "GroupName")
    wanted, start = ec2._p(params, "MaxResults"), ec2._p(params, "NextToken") or "0"
    if ids and wanted:
        raise ApiError("InvalidParameterCombination", "The parameter MaxResults cannot be used with instance IDs")
    if max(len(ids), len(groups)) > _MOST:
        raise ApiError("InvalidParameterValue", f"At most {_MOST} instance IDs or group names can be specified")
    if wanted and not 1 <= int(wanted) <= _MOST:
        raise ApiError("InvalidParameterValue", f"Value ({wanted}) for parameter maxResults is invalid.")
    if not start.isdigit():
        raise ApiError("InvalidParameterValue", "The NextToken is invalid")
    for id in ids:
        if not _ID.fullmatch(id):
            raise ApiError("InvalidInstanceID.Malformed", f'Invalid id: "{id}"')
        if id not in ec2._instances:
            raise ApiError("InvalidInstanceID.NotFound", f"The instance ID '{id}' does not exist")
    found = [
        _topology(i)
        for i in ec2._instances.values()
        if i["InstanceType"] in SUPPORTED and i["State"]["Name"] == "running"
    ]
    found = [i for i in found if (not ids or i["InstanceId"] in ids) and (not groups or i["GroupName"] in groups)]
    for name, values in ec2._parse_filters(params).items():
        if name not in _KEYS:
            raise ApiError("InvalidParameterValue", f"The filter '{name}' is invalid")
        found = [i for i in found if any(fnmatch.fnmatchcase(i[_KEYS[name]], value) for value in values)]
    end = len(found) if ids else int(start) + int(wanted or 20)
    more = {"NextToken": str(end)} if end < len(found) else {}
    return ec2_response("DescribeInstanceTopology", {"Instances": found[int(start) : end], **more})


def _topology(instance: dict[str, Any]) -> dict[str, Any]:
    zone = instance["Placement"]["AvailabilityZone"]
    return {
        "InstanceId": instance["InstanceId"],
        "InstanceType": instance["InstanceType"],
        "GroupName": instance["Placement"].get("GroupName", ""),
        "NetworkNodes": _place(instance["InstanceId"]),
        "AvailabilityZone": zone,
        "ZoneId": ec2._az_id_for_zone_name(zone),
    }


def _place(id: str) -> list[str]:
    """The network nodes of an instance, which it keeps."""
    if id not in _placed:
        paths = given("topology.json")
        at = sum(of == paths for of, _ in _placed.values())
        _placed[id] = (paths, paths[at % len(paths)] if paths else ["nn-1", f"nn-2-{at // 8}", f"nn-3-{at // 4}"])
    names: list[str] = _placed[id][1]
    return names


ACTIONS = {"DescribeInstanceTopology": describe_instance_topology}
