"""The nodes of node groups: UpdateNodegroupConfig, which ministack has not, and EC2 instances, as many as a group desires.

The instances carry the tags by which EKS marks them. They run at once: capacity is never short here.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from ministack.services import ec2, eks

from sandbox.emulator.query import call_ec2

_ROUTE = re.compile(r"/clusters/([A-Za-z0-9_-]+)/node-groups/([A-Za-z0-9_-]+)/update-config")
_SIZES = ("minSize", "maxSize", "desiredSize")


def install() -> None:
    handle, delete = eks._handle_request_sync, eks._delete_nodegroup

    def with_scaling(method: str, path: str, headers: Any, body: bytes, query: Any) -> Any:
        found = _ROUTE.fullmatch(path)
        if found and method == "POST":
            return update(found[1], found[2], json.loads(body or b"{}"))
        return handle(method, path, headers, body, query)

    def delete_nodegroup(cluster: str, name: str) -> Any:
        answer = delete(cluster, name)
        if answer[0] < 400:
            _terminate(_instances(cluster, name))
        return answer

    eks._handle_request_sync = with_scaling
    eks._delete_nodegroup = delete_nodegroup


def update(cluster: str, name: str, asked: dict[str, Any]) -> Any:
    group = eks._nodegroups.get(f"{cluster}/{name}")
    if group is None:
        return eks._error(404, "ResourceNotFoundException", f"No node group found for name: {name}.")
    sizes = {**group["scalingConfig"], **asked.get("scalingConfig", {})}
    least, most, desired = (int(sizes[key]) for key in _SIZES)
    if desired < least:
        return _refused(f"Minimum capacity {least} can't be greater than desired size {desired}")
    if desired > most:
        return _refused(f"desired capacity {desired} can't be greater than max size {most}")
    group["scalingConfig"] = dict(zip(_SIZES, (least, most, desired), strict=True))
    follow(group)
    params = [{"type": key[0].upper() + key[1:], "value": str(sizes[key])} for key in asked.get("scalingConfig", {})]
    said = {"id": str(uuid.uuid4()), "status": "Successful", "type": "ConfigUpdate", "params": params, "errors": []}
    return eks._json_resp(200, {"update": said})


def follow(group: dict[str, Any]) -> None:
    """Give a node group as many running instances as it desires."""
    cluster, name = group["clusterName"], group["nodegroupName"]
    running, desired = _instances(cluster, name), int(group["scalingConfig"]["desiredSize"])
    _terminate(running[desired:])
    if len(running) >= desired:
        return
    made = call_ec2(
        "RunInstances",
        InstanceType=instance_type(group),
        SubnetId=group["subnets"][0],
        MinCount=desired - len(running),
        MaxCount=desired - len(running),
        **_security_groups(cluster),
    )
    tags = {"eks:cluster-name": cluster, "eks:nodegroup-name": name, f"kubernetes.io/cluster/{cluster}": "owned"}
    call_ec2(
        "CreateTags",
        ResourceId=[str(found.text) for found in made.iter("instanceId")],
        Tag=[{"Key": key, "Value": value} for key, value in tags.items()],
    )


def instance_type(group: dict[str, Any]) -> str:
    """The type a node group names, or its launch template."""
    if group["instanceTypes"]:
        return str(group["instanceTypes"][0])
    template = group["launchTemplate"]
    found = call_ec2(
        "DescribeLaunchTemplateVersions",
        LaunchTemplateId=template["id"],
        LaunchTemplateVersion=[str(template["version"])],
    )
    return str(found.findtext(".//launchTemplateData/instanceType"))


def _security_groups(cluster: str) -> dict[str, Any]:
    group = eks._clusters[cluster]["resourcesVpcConfig"]["clusterSecurityGroupId"]
    return {"SecurityGroupId": [group]} if group in ec2._security_groups else {}


def _instances(cluster: str, name: str) -> list[str]:
    """Ids of a node group's running instances, the oldest first."""
    found = []
    for id, instance in ec2._instances.items():
        tags = {tag["Key"]: tag["Value"] for tag in ec2._tags.get(id) or []}
        ours = (tags.get("eks:cluster-name"), tags.get("eks:nodegroup-name")) == (cluster, name)
        if ours and instance["State"]["Name"] == "running":
            found.append(id)
    return found


def _terminate(ids: list[str]) -> None:
    if ids:
        call_ec2("TerminateInstances", InstanceId=ids)


def _refused(message: str) -> Any:
    return eks._error(400, "InvalidParameterException", message)
