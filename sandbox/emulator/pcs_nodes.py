"""The EC2 instances of PCS's compute node groups: those that always run, and those that Slurm starts when a job needs them.

`resume` and `suspend` are what PCS's controller does with Slurm's lists of nodes; the programs of `sandbox.slurm_power` request them.
A node that cannot be started gets an EC2 error code: no capacity (`capacity.json`, reservations), a group at its maximum. A start
script that cannot be fetched, or is another one than its checksum says, ends its node.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Iterable
from typing import Any

from ministack.services import ec2, s3

from sandbox.attach import NODE_TAG
from sandbox.emulator import ec2_reservations
from sandbox.emulator.query import ApiError, call_ec2

Data = dict[str, Any]
CLUSTER_TAG, GROUP_TAG = "aws:pcs:cluster-id", "aws:pcs:compute-node-group-id"


def template_data(wanted: Data) -> Data:
    """The content of a launch template's version; raises ApiError if it does not exist."""
    known = ec2._launch_templates.get(wanted["id"])
    versions = {str(v["VersionNumber"]): v["LaunchTemplateData"] for v in (known or {}).get("Versions", [])}
    if wanted["version"] not in versions:
        raise ApiError("ValidationException", f"The launch template {wanted['id']} has no version {wanted['version']}")
    data: Data = versions[wanted["version"]]
    return data


def instances(group: str, node: str | None = None) -> list[str]:
    """The running instances of a node group: all, or the one of a Slurm node."""
    tags = [{"Key": GROUP_TAG, "Value": group}, *([{"Key": NODE_TAG, "Value": node}] if node else [])]
    return [
        id
        for id, instance in ec2._instances.items()
        if instance["State"]["Name"] in ("pending", "running") and all(t in (ec2._tags.get(id) or []) for t in tags)
    ]


def terminate(ids: list[str]) -> None:
    if ids:
        call_ec2("TerminateInstances", InstanceId=ids)


def check_scripts(group: Data) -> None:
    """Fetch the start scripts of a group as its nodes do, with the archive that the first argument names, and compare their SHA-256."""
    for scripts in group.get("nodeLifecycleActions", {}).get("stages", {}).values():
        for script in scripts:
            source = script["scriptSource"]
            _fetch(source["scriptLocation"], source.get("checksum"))
            archive = next(iter(script.get("arguments", [])), "")
            if named := re.fullmatch(r"s3://.+/([0-9a-f]{64})\.zip", archive):
                with zipfile.ZipFile(io.BytesIO(_fetch(archive, named[1]))) as content:
                    if "configure-node.sh" not in content.namelist():
                        raise ApiError("ValidationException", f"{archive} has no configure-node.sh")


def _fetch(url: str, checksum: str | None) -> bytes:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    body: bytes | None = s3._get_object_data(bucket, key)
    if body is None:
        raise ApiError("ValidationException", f"A node cannot fetch {url}")
    if checksum not in (None, hashlib.sha256(body).hexdigest()):
        raise ApiError("ValidationException", f"{url} has another checksum than {checksum}")
    return body


def keep_static(cluster: Data, group: Data, *, replaced: bool = False) -> None:
    """As many static instances as the group has at least, all new if they are `replaced`. Those that Slurm has started are its own."""
    every = instances(group["id"])
    dynamic = {id for id in every if any(t["Key"] == NODE_TAG for t in ec2._tags.get(id) or [])}
    running = [id for id in every if id not in dynamic]
    least = group["scalingConfiguration"]["minInstanceCount"]
    kept = [] if replaced else running[:least]
    terminate([id for id in running if id not in kept])
    if (missing := least - len(kept)) > 0:
        _launch(cluster, group, missing)


def resume(cluster: Data, nodes: Iterable[str]) -> Data:
    """Start instances for these nodes of Slurm: node -> {"instance"} or {"code"} of why there is none."""
    answer: Data = {}
    for node in nodes:
        group = _group_of(cluster, node)
        try:
            if group is None:
                raise ApiError("InvalidParameterValue", f"no node group has the node {node}")
            if not (running := instances(group["id"], node)):
                running = _launch(cluster, group, 1, node)
                try:
                    check_scripts(group)
                except ApiError:
                    terminate(running)
                    raise ApiError("NodeLifecycleActionFailed", "the node's start script failed") from None
            answer[node] = {"instance": running[0]}
        except ApiError as error:
            answer[node] = {"code": error.code}
    return answer


def suspend(cluster: Data, nodes: Iterable[str]) -> Data:
    """Terminate the instances of these nodes."""
    for node in nodes:
        if group := _group_of(cluster, node):
            terminate(instances(group["id"], node))
    return {}


def _group_of(cluster: Data, node: str) -> Data | None:
    name = node.rpartition("-")[0]
    return next((group for group in cluster["groups"].values() if group["name"] == name), None)


def _launch(cluster: Data, group: Data, count: int, node: str | None = None) -> list[str]:
    kind, template = group["instanceConfigs"][0]["instanceType"], template_data(group["customLaunchTemplate"])
    if len(instances(group["id"])) + count > group["scalingConfiguration"]["maxInstanceCount"]:
        raise ApiError("MaxInstanceCountExceeded", f"{group['name']} has its most instances")
    ec2_reservations.use(kind, count, template)
    tags = {CLUSTER_TAG: cluster["id"], GROUP_TAG: group["id"], **({NODE_TAG: node} if node else {})}
    for given in template.get("TagSpecifications") or []:
        tags |= {tag["Key"]: tag["Value"] for tag in given["Tags"]} if given["ResourceType"] == "instance" else {}
    made = call_ec2(
        "RunInstances",
        ImageId=group.get("amiId") or template.get("ImageId"),
        InstanceType=kind,
        SubnetId=group["subnetIds"][0],
        MinCount=count,
        MaxCount=count,
        TagSpecification=[{"ResourceType": "instance", "Tag": [{"Key": k, "Value": v} for k, v in tags.items()]}],
    )
    return [str(found.text) for found in made.iter() if found.tag.rpartition("}")[2] == "instanceId"]
