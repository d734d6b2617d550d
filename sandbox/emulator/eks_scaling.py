"""The Auto Scaling groups of EKS node groups, for which ministack has only names, and UpdateNodegroupConfig, which it lacks.

A node group's `scalingConfig` is authoritative; EKS shows the size of its Auto Scaling group in the same way. Instances are
launched on each read, within the capacity: `capacity.json` in the sandbox's folder limits the instances of a type,
`{"trn1.32xlarge": 11}`; what is reserved for it counts as used. Missing instances are reported as EKS reports them, and launched when
there is capacity. `nodegroups.json`, name -> fields, replaces fields of DescribeNodegroup. A smaller size ends the oldest instances (EKS's termination policies, which cannot be changed: containers-roadmap
issue 1311), except those that are protected from scale-in.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from typing import Any

from ministack.services import autoscaling, ec2, eks

from sandbox.emulator import ec2_reservations
from sandbox.emulator.query import call_ec2

_ROUTE = re.compile(r"/clusters/([A-Za-z0-9_-]+)/node-groups/([A-Za-z0-9_-]+)/update-config")
_SIZES = ("minSize", "maxSize", "desiredSize")
_PROTECTED_AT_ONCE = 50
_IMAGE = "ami-0123456789abcdef0"
Group = dict[str, Any]


def install() -> None:
    handle, describe, delete = eks._handle_request_sync, eks._describe_nodegroup, eks._delete_nodegroup
    create = eks._create_nodegroup

    def created(cluster: str, body: dict[str, Any]) -> Any:
        answer = create(cluster, body)
        if body.get("launchTemplate"):  # ministack drops it when it is not in a template of CloudFormation
            made = eks._nodegroups[f"{cluster}/{body['nodegroupName']}"]
            made |= {"launchTemplate": body["launchTemplate"], "instanceTypes": body.get("instanceTypes", [])}
        return answer

    def with_scaling(method: str, path: str, headers: Any, body: bytes, query: Any) -> Any:
        found = _ROUTE.fullmatch(path)
        if found and method == "POST":
            return update(found[1], found[2], json.loads(body or b"{}"))
        return handle(method, path, headers, body, query)

    def described(cluster: str, name: str) -> Any:
        reconcile()
        code, headers, body = describe(cluster, name)
        if fields := ec2_reservations.given("nodegroups.json", {}).get(name):
            found = json.loads(body)
            body = json.dumps({"nodegroup": {**found["nodegroup"], **fields}}).encode()
        return code, headers, body

    def deleted(cluster: str, name: str) -> Any:
        answer = delete(cluster, name)
        reconcile()
        return answer

    eks._handle_request_sync = with_scaling
    eks._describe_nodegroup, eks._delete_nodegroup, eks._create_nodegroup = described, deleted, created
    for action in ("DescribeAutoScalingGroups", "DescribeAutoScalingInstances"):
        autoscaling._ACTION_MAP[action] = _after_reconciling(autoscaling._ACTION_MAP[action])
    set_desired = autoscaling._ACTION_MAP["SetDesiredCapacity"]
    autoscaling._ACTION_MAP["SetDesiredCapacity"] = lambda p: _set_desired(p, set_desired)
    autoscaling._ACTION_MAP["TerminateInstanceInAutoScalingGroup"] = _terminate
    autoscaling._ACTION_MAP["SetInstanceProtection"] = _protect


def update(cluster: str, name: str, request: dict[str, Any]) -> Any:
    group = eks._nodegroups.get(f"{cluster}/{name}")
    if group is None:
        return eks._error(404, "ResourceNotFoundException", f"No node group found for name: {name}.")
    status = ec2_reservations.given("nodegroups.json", {}).get(name, {}).get("status", "ACTIVE")
    if status not in ("ACTIVE", "DEGRADED"):
        return eks._error(
            409, "ResourceInUseException", "Nodegroup cannot be updated as it is currently not in Active State"
        )
    sizes = {**group["scalingConfig"], **request.get("scalingConfig", {})}
    least, most, desired = (int(sizes[key]) for key in _SIZES)
    if desired < least:
        return _refused(f"Minimum capacity {least} can't be greater than desired size {desired}")
    if desired > most:
        return _refused(f"desired capacity {desired} can't be greater than max size {most}")
    group["scalingConfig"] = dict(zip(_SIZES, (least, most, desired), strict=True))
    params = [{"type": key[0].upper() + key[1:], "value": str(sizes[key])} for key in request.get("scalingConfig", {})]
    result = {"id": str(uuid.uuid4()), "status": "Successful", "type": "ConfigUpdate", "params": params, "errors": []}
    return eks._json_resp(200, {"update": result})


def reconcile() -> None:
    """Create the Auto Scaling groups and instances of the node groups, within the capacity."""
    groups = {group["resources"]["autoScalingGroups"][0]["name"]: group for group in eks._nodegroups.values()}
    for name, asg in list(autoscaling._asgs.items()):
        if "_nodegroup" in asg and name not in groups:
            _end([i["InstanceId"] for i in asg["Instances"]])
            del autoscaling._asgs[name]
    for name, group in groups.items():
        sizes = {key: int(group["scalingConfig"][key]) for key in _SIZES}
        asg = autoscaling._asgs.get(name) or _new_asg(name, group)
        asg.update(MinSize=sizes["minSize"], MaxSize=sizes["maxSize"], DesiredCapacity=sizes["desiredSize"])
        asg["Instances"] = [i for i in asg["Instances"] if _runs(i["InstanceId"])]  # one that EC2 has ended is replaced
        missing = sizes["desiredSize"] - len(asg["Instances"])
        kind = _instance_type(group)
        if missing < 0:
            over = [i for i in asg["Instances"] if not i["ProtectedFromScaleIn"]][:-missing]
            _end([i["InstanceId"] for i in over])
            asg["Instances"] = [i for i in asg["Instances"] if i not in over]
        elif missing and (launched := min(missing, ec2_reservations.room(kind) + ec2_reservations.available(kind))):
            ec2_reservations.take(kind, launched)
            asg["Instances"] += _launch(group, kind, launched)
        short = missing > 0 and len(asg["Instances"]) < sizes["desiredSize"]
        group["health"] = {"issues": [_shortage(name, kind)] if short else []}


def _runs(id: str) -> bool:
    return ec2._instances.get(id, {}).get("State", {}).get("Name") in ("pending", "running")


def _after_reconciling(action: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(params: Any) -> Any:
        reconcile()
        return action(params)

    return run


def _new_asg(name: str, group: Group) -> dict[str, Any]:
    autoscaling._create_asg({"AutoScalingGroupName": name, "MaxSize": "0"})
    asg: dict[str, Any] = autoscaling._asgs[name]
    tags = {"eks:cluster-name": group["clusterName"], "eks:nodegroup-name": group["nodegroupName"]}
    tags |= {
        f"k8s.io/cluster-autoscaler/{key}": value
        for key, value in (("enabled", "true"), (group["clusterName"], "owned"))
    }
    asg["Tags"] = [
        {"Key": k, "Value": v, "ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": True}
        for k, v in tags.items()
    ]
    autoscaling._tags[name] = asg["Tags"]  # to which CreateOrUpdateTags adds
    asg["_nodegroup"] = group["nodegroupName"]
    if zones := {ec2._subnets[id]["AvailabilityZone"] for id in group.get("subnets", []) if id in ec2._subnets}:
        asg["AvailabilityZones"] = sorted(zones)
    return asg


def _set_desired(params: Any, other: Callable[[Any], Any]) -> Any:
    name = autoscaling._p(params, "AutoScalingGroupName")
    group = _group_of(name)
    if group is None:
        return other(params)
    wanted, sizes = int(autoscaling._p(params, "DesiredCapacity")), group["scalingConfig"]
    for bound, beyond, relation in (("maxSize", wanted > int(sizes["maxSize"]), "above max"), ("minSize", wanted < int(sizes["minSize"]), "below min")):  # fmt: skip
        if beyond:
            text = f"New SetDesiredCapacity value {wanted} is {relation} value {sizes[bound]} for the AutoScalingGroup."
            return autoscaling._error("ValidationError", text)
    group["scalingConfig"] = {**sizes, "desiredSize": wanted}
    reconcile()
    return autoscaling._xml(200, "SetDesiredCapacityResponse", "")


def _terminate(params: Any) -> Any:
    """TerminateInstanceInAutoScalingGroup: ends that instance; without the decrement it is replaced."""
    id = autoscaling._p(params, "InstanceId")
    for name, asg in autoscaling._asgs.items():
        found = next((i for i in asg["Instances"] if i["InstanceId"] == id), None)
        group = _group_of(name)
        if found is None or group is None:
            continue
        sizes = group["scalingConfig"]
        if autoscaling._p(params, "ShouldDecrementDesiredCapacity") == "true":
            if int(sizes["desiredSize"]) <= int(sizes["minSize"]):
                text = f"Currently, desiredSize equals minSize ({sizes['minSize']}). Terminating instance without replacement will violate group's min size constraint."
                return autoscaling._error("ValidationError", text)
            group["scalingConfig"] = {**sizes, "desiredSize": int(sizes["desiredSize"]) - 1}
        asg["Instances"].remove(found)
        _end([id])
        reconcile()
        inner = "<TerminateInstanceInAutoScalingGroupResult/>"
        return autoscaling._xml(200, "TerminateInstanceInAutoScalingGroupResponse", inner)
    return autoscaling._error(
        "ValidationError", f"Instance Id not found - No managed instance found for instance ID: {id}"
    )


def _protect(params: Any) -> Any:
    ids = autoscaling._parse_member_list(params, "InstanceIds")
    if len(ids) > _PROTECTED_AT_ONCE:
        return autoscaling._error("ValidationError", f"The number of instance IDs must be at most {_PROTECTED_AT_ONCE}")
    asg = autoscaling._asgs.get(autoscaling._p(params, "AutoScalingGroupName")) or {"Instances": []}
    has = {i["InstanceId"]: i for i in asg["Instances"]}
    if unknown := [id for id in ids if has.get(id, {}).get("LifecycleState") != "InService"]:
        return autoscaling._error(
            "ValidationError", f"The instance {unknown[0]} is not part of the group or not in InService."
        )
    for id in ids:
        has[id]["ProtectedFromScaleIn"] = autoscaling._p(params, "ProtectedFromScaleIn") == "true"
    reconcile()
    return autoscaling._xml(200, "SetInstanceProtectionResponse", "<SetInstanceProtectionResult/>")


def _group_of(asg: str) -> Group | None:
    named = (g for g in eks._nodegroups.values() if g["resources"]["autoScalingGroups"][0]["name"] == asg)
    return next(named, None)


def _instance_type(group: Group) -> str:
    if group.get("instanceTypes"):
        return str(group["instanceTypes"][0])
    template = group["launchTemplate"]
    found = call_ec2(
        "DescribeLaunchTemplateVersions",
        LaunchTemplateId=template.get("id") or template.get("Id"),
        LaunchTemplateVersion=[str(template.get("version") or template.get("Version") or "$Latest")],
    )
    return found.findtext(".//instanceType") or "unknown"


def _launch(group: Group, kind: str, count: int) -> list[dict[str, Any]]:
    subnet = str((group.get("subnets") or [""])[0])
    launched = ec2._launch_instances_internal(image_id=_IMAGE, instance_type=kind, subnet_id=subnet, count=count)
    tags = {"eks:cluster-name": group["clusterName"], "eks:nodegroup-name": group["nodegroupName"]}
    call_ec2(
        "CreateTags",
        ResourceId=[made["InstanceId"] for made in launched],
        Tag=[{"Key": key, "Value": value} for key, value in tags.items()],
    )
    return [
        {
            "InstanceId": made["InstanceId"],
            "LifecycleState": "InService",
            "HealthStatus": "Healthy",
            "AvailabilityZone": made["Placement"]["AvailabilityZone"],
            "ProtectedFromScaleIn": False,
        }
        for made in launched
    ]


def _end(instances: list[str]) -> None:
    if there := [id for id in instances if id in ec2._instances]:
        call_ec2("TerminateInstances", InstanceId=there)


def _shortage(asg: str, kind: str) -> dict[str, Any]:
    message = (
        "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have sufficient "
        f"{kind} capacity in the Availability Zone you requested."
    )
    return {"code": "AsgInstanceLaunchFailures", "message": message, "resourceIds": [asg]}


def _refused(message: str) -> Any:
    return eks._error(400, "InvalidParameterException", message)
