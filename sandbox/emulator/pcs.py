"""AWS Parallel Computing Service (PCS): clusters, compute node groups and queues.

Requests are checked with botocore's own model of the service (names, types, lengths, patterns), then with PCS's published rules and
limits (user guide, 2026-11: quotas, custom Slurm settings, instance profiles, launch templates, node lifecycle actions). Everything is
ACTIVE at once. Nodes are EC2 instances (`pcs_nodes`); a start script that cannot be fetched, or is another one than its checksum says,
fails its group. `pcs-errors.json` in the sandbox's folder, `{"<name>": [{"code": ..., "message": ...}]}`, is the errorInfo of
the cluster, node group or queue of that name. What a Slurm is set up from is `clusters/<name>/config.yaml` in the sandbox's folder.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ministack.core.responses import AccountRegionScopedDict, get_account_id, get_region
from ministack.services import ec2, iam, ssm

from sandbox import attach
from sandbox.emulator import pcs_nodes, service_model
from sandbox.emulator.ec2_catalogue import offered
from sandbox.emulator.pcs_nodes import CLUSTER_TAG as CLUSTER_TAG
from sandbox.emulator.pcs_nodes import check_scripts, instances, keep_static, template_data, terminate
from sandbox.emulator.query import ApiError, Response, call_ec2
from sandbox.emulator.service_model import invalid

Data = dict[str, Any]
TARGET = "AWSParallelComputingService."
IMAGE = "/aws/service/pcs/ami/dlami-base-ubuntu2404/x86_64/latest/ami-id"
NODES = {"SMALL": 32, "MEDIUM": 512, "LARGE": 2048}
LIMITS = {"clusters": 5, "groups": 10, "queues": 10}
SLURM = ("24.11", "25.05", "25.11", "26.05")
GROUP_SETTINGS = ("CpuSpecList", "Features", "Gres", "MemSpecLimit", "Parameters", "RealMemory", "Sockets", "Weight")
QUEUE_SETTINGS = (
    "AllowAccounts", "AllowQoS", "Default", "DefaultTime", "DenyAccounts", "DenyQoS", "ExclusiveUser", "GraceTime", "MaxTime",
    "OverSubscribe", "OverTimeLimit", "PreemptMode", "PriorityJobFactor", "PriorityTier", "QOS", "TRESBillingWeights",
)  # fmt: skip

clusters = AccountRegionScopedDict()
"""Id -> cluster, with its groups and queues by id."""


def checked(action: str, request: Data) -> Data:
    """The request with numbers as numbers; raises ApiError for what botocore's model of PCS does not allow."""
    return service_model.checked("pcs", action, request)


def find(cluster: str) -> Data:
    """A cluster by its id or name."""
    for record in clusters.values():
        if cluster in (record["id"], record["name"]):
            found: Data = record
            return found
    raise ApiError("ResourceNotFoundException", f"Cluster {cluster} does not exist")


def _part(cluster: Data, kind: str, identifier: str) -> Data:
    for record in cluster[kind].values():
        if identifier in (record["id"], record["name"]):
            found: Data = record
            return found
    raise ApiError("ResourceNotFoundException", f"{kind} of {cluster['name']} have no {identifier}")


def _new(name: str, others: Iterable[Data], limit: int, what: str, path: str) -> Data:
    names = [other["name"] for other in others]
    if name in names:
        raise ApiError("ConflictException", f"A {what} named {name} already exists")
    if len(names) >= limit:
        raise ApiError("ServiceQuotaExceededException", f"The limit of {limit} {what}s is reached")
    id = f"pcs_{secrets.token_hex(5)}"
    arn = f"arn:aws:pcs:{get_region()}:{get_account_id()}:{path}{id}"
    times = {"createdAt": "2026-11-24T00:00:00Z", "modifiedAt": "2026-11-24T00:00:00Z"}
    return {"id": id, "name": name, "arn": arn, "status": "ACTIVE", **times}


def _settings(configuration: Data, allowed: Iterable[str], what: str) -> None:
    for setting in configuration.get("slurmCustomSettings", []):
        if setting["parameterName"] not in allowed:
            raise invalid(f"The Slurm setting {setting['parameterName']} is not supported for a {what}")


def _subnets(ids: list[str]) -> str:
    """The VPC of the subnets."""
    if unknown := [i for i in ids if i not in ec2._subnets]:
        raise invalid(f"The subnet {unknown[0]} does not exist")
    vpcs = {ec2._subnets[i]["VpcId"] for i in ids}
    if len(vpcs) != 1:
        raise invalid("Subnets must be in one VPC")
    return str(vpcs.pop())


def _opens_to_itself(group: str) -> bool:
    rules = (ec2._security_groups.get(group) or {}).get("IpPermissions", [])
    pairs = (pair for rule in rules if str(rule.get("IpProtocol")) == "-1" for pair in rule.get("UserIdGroupPairs", []))
    return any(pair.get("GroupId") == group for pair in pairs)


def create_cluster(request: Data) -> Data:
    wanted = checked("CreateCluster", request)
    if wanted["scheduler"]["version"] not in SLURM:
        raise invalid(f"Slurm {wanted['scheduler']['version']} is not one of {', '.join(SLURM)}")
    network = wanted["networking"]
    if len(network.get("subnetIds", [])) != 1:
        raise invalid("A cluster needs exactly one subnet")
    vpc = _subnets(network["subnetIds"])
    groups = network.get("securityGroupIds", [])
    if not groups or not all(map(_opens_to_itself, groups[:1])):
        raise invalid("The cluster's security group must allow all traffic from itself")
    record = _new(wanted["clusterName"], clusters.values(), LIMITS["clusters"], "cluster", "cluster/")
    record |= {k: v for k, v in wanted.items() if k not in ("clusterName", "clientToken")}
    record |= {"vpc": vpc, "groups": {}, "queues": {}}
    clusters[record["id"]] = record
    return record


def update_cluster(request: Data) -> Data:
    wanted = checked("UpdateCluster", request)
    record = find(wanted["clusterIdentifier"])
    before: str = record["scheduler"]["version"]
    after = str((wanted.get("scheduler") or record["scheduler"])["version"])
    if after not in SLURM or after < before:
        raise invalid(f"A cluster with Slurm {before} cannot be updated to {after}")
    record["scheduler"] = {**record["scheduler"], "version": after}
    record["slurmConfiguration"] = {**record.get("slurmConfiguration", {}), **wanted.get("slurmConfiguration", {})}
    return record


def delete_cluster(request: Data) -> Data:
    record = find(checked("DeleteCluster", request)["clusterIdentifier"])
    for kind in ("queues", "groups"):
        if record[kind]:
            raise ApiError("ConflictException", f"Cluster {record['name']} still has {kind}")
    del clusters[record["id"]]
    attach.withdraw(_sandbox(), "slurm", record["name"])
    shutil.rmtree(_folder(record["name"]), ignore_errors=True)
    return {}


def _check_group(cluster: Data, group: Data) -> None:
    """What PCS needs of a group's parts."""
    if _subnets(group["subnetIds"]) != cluster["vpc"]:
        raise invalid("Subnets of a node group must be in the cluster's VPC")
    sizes = group["scalingConfiguration"]
    if sizes["minInstanceCount"] > sizes["maxInstanceCount"]:
        raise invalid("minInstanceCount is more than maxInstanceCount")
    others = [g for g in cluster["groups"].values() if g["id"] != group["id"]]
    total = sum(g["scalingConfiguration"]["maxInstanceCount"] for g in [*others, group])
    if total > NODES[cluster["size"]]:
        raise ApiError(
            "ServiceQuotaExceededException", f"A {cluster['size']} cluster has at most {NODES[cluster['size']]} nodes"
        )
    if unknown := [c["instanceType"] for c in group["instanceConfigs"] if not offered(c["instanceType"])]:
        raise invalid(f"The instance type {unknown[0]} is not offered in this region")
    _check_profile(group["iamInstanceProfileArn"])
    data = _template(group)
    if any(g["customLaunchTemplate"] == group["customLaunchTemplate"] for g in others):
        raise invalid("Another node group uses this version of the launch template")
    block = (data.get("InstanceMarketOptions") or {}).get("MarketType") == "capacity-block"
    if (group.get("purchaseOption") == "CAPACITY_BLOCK") is not block:
        raise invalid("CAPACITY_BLOCK needs a launch template with the market type capacity-block, and only it")
    image = group.get("amiId") or data.get("ImageId")
    if not image or call_ec2("DescribeImages", ImageId=[image]).find(".//imageId") is None:
        raise invalid(f"The image {image} does not exist")
    _settings(group.get("slurmConfiguration", {}), GROUP_SETTINGS, "compute node group")


def _check_profile(arn: str) -> None:
    profile = next((p for p in iam._instance_profiles.values() if p["Arn"] == arn), None)
    if profile is None:
        raise invalid(f"The instance profile {arn} does not exist")
    if not (profile["Path"] == "/aws-pcs/" or profile["InstanceProfileName"].startswith("AWSPCS")):
        raise invalid(
            "The role ARN is invalid: the instance profile must begin with AWSPCS, or have the path /aws-pcs/"
        )
    if not profile["Roles"]:
        raise invalid(f"The instance profile {arn} has no role")


def _template(group: Data) -> Data:
    wanted = group.get("customLaunchTemplate")
    if not wanted:
        raise invalid("customLaunchTemplate is missing")
    data = template_data(wanted)
    interfaces = data.get("NetworkInterfaces") or []
    groups = [g for i in interfaces for g in i.get("Groups") or []] or data.get("SecurityGroupIds") or []
    if not groups or any(g not in ec2._security_groups for g in groups):
        raise invalid(f"The launch template {wanted['id']} needs security groups that exist")
    if interfaces and data.get("SecurityGroupIds"):
        raise invalid("With network interfaces, security groups belong to each of them")
    if other := [i["SubnetId"] for i in interfaces if i.get("SubnetId") not in (None, *group["subnetIds"])]:
        raise invalid(f"A network interface is in {other[0]}, which is not a subnet of the group")
    return data


def create_compute_node_group(request: Data) -> Data:
    wanted = checked("CreateComputeNodeGroup", request)
    cluster = find(wanted["clusterIdentifier"])
    path = f"cluster/{cluster['id']}/computenodegroup/"
    name = wanted["computeNodeGroupName"]
    record = _new(name, cluster["groups"].values(), LIMITS["groups"], "compute node group", path)
    record |= {k: v for k, v in wanted.items() if k not in ("clusterIdentifier", "computeNodeGroupName", "clientToken")}
    record["clusterId"] = cluster["id"]
    _check_group(cluster, record)
    check_scripts(record)
    cluster["groups"][record["id"]] = record
    keep_static(cluster, record)
    return record


def update_compute_node_group(request: Data) -> Data:
    wanted = checked("UpdateComputeNodeGroup", request)
    cluster = find(wanted.pop("clusterIdentifier"))
    record = _part(cluster, "groups", wanted.pop("computeNodeGroupIdentifier"))
    changed = {**record, **wanted}
    _check_group(cluster, changed)
    check_scripts(changed)
    replaced = any(
        changed.get(key) != record.get(key) for key in ("amiId", "customLaunchTemplate", "nodeLifecycleActions")
    )
    record.update(changed)
    keep_static(cluster, record, replaced=replaced)
    _attach(cluster)
    return record


def delete_compute_node_group(request: Data) -> Data:
    wanted = checked("DeleteComputeNodeGroup", request)
    cluster = find(wanted["clusterIdentifier"])
    record = _part(cluster, "groups", wanted["computeNodeGroupIdentifier"])
    for queue in cluster["queues"].values():
        if record["id"] in _groups_of(queue):
            raise ApiError("ConflictException", f"Queue {queue['name']} uses the node group {record['name']}")
    terminate(instances(record["id"]))
    del cluster["groups"][record["id"]]
    return {}


def _groups_of(queue: Data) -> list[str]:
    return [c["computeNodeGroupId"] for c in queue.get("computeNodeGroupConfigurations", [])]


def _check_queue(cluster: Data, queue: Data) -> None:
    for id in _groups_of(queue):
        _part(cluster, "groups", id)
    _settings(queue.get("slurmConfiguration", {}), QUEUE_SETTINGS, "queue")


def create_queue(request: Data) -> Data:
    wanted = checked("CreateQueue", request)
    cluster = find(wanted["clusterIdentifier"])
    path = f"cluster/{cluster['id']}/queue/"
    record = _new(wanted["queueName"], cluster["queues"].values(), LIMITS["queues"], "queue", path)
    record |= {k: v for k, v in wanted.items() if k not in ("clusterIdentifier", "queueName", "clientToken")}
    record["clusterId"] = cluster["id"]
    _check_queue(cluster, record)
    cluster["queues"][record["id"]] = record
    _attach(cluster)
    return record


def update_queue(request: Data) -> Data:
    wanted = checked("UpdateQueue", request)
    cluster = find(wanted.pop("clusterIdentifier"))
    record = _part(cluster, "queues", wanted.pop("queueIdentifier"))
    changed = {**record, **wanted}
    _check_queue(cluster, changed)
    record.update(changed)
    _attach(cluster)
    return record


def delete_queue(request: Data) -> Data:
    wanted = checked("DeleteQueue", request)
    cluster = find(wanted["clusterIdentifier"])
    del cluster["queues"][_part(cluster, "queues", wanted["queueIdentifier"])["id"]]
    return {}


def login_node_of(instance_id: str) -> str | None:
    """The cluster whose login node this running instance is: an instance of a group that is in no queue."""
    for cluster in clusters.values():
        used = {id for queue in cluster["queues"].values() for id in _groups_of(queue)}
        if any(instance_id in instances(group) for group in cluster["groups"] if group not in used):
            return str(cluster["name"])
    return None


def _sandbox() -> Path:
    return Path(os.environ["SANDBOX_DIR"])


def _folder(name: str) -> Path:
    return _sandbox() / "clusters" / name


def _attach(cluster: Data) -> None:
    """Write down the cluster, and wait for its Slurm if the sandbox runs one for each cluster."""
    attach.write(_folder(cluster["name"]) / "config.yaml", {"Pcs": cluster})
    try:
        name = cluster["name"]
        attach.wait(_sandbox(), "slurm", name, attach.request(_sandbox(), "slurm", name, get_region()))
    except attach.AttachFailed as problem:
        raise ApiError("InternalServerException", str(problem)) from None


def _shown(kind: str, records: Iterable[Data]) -> list[Data]:
    members = service_model.of("pcs").shape_for(kind).members
    file = _sandbox() / "pcs-errors.json"
    errors = json.loads(file.read_text("utf-8")) if "errorInfo" in members and file.is_file() else {}
    found = [
        {**record, "errorInfo": errors[record["name"]]} if record["name"] in errors else record for record in records
    ]
    return [{k: v for k, v in record.items() if k in members} for record in found]


def _read(action: str, request: Data) -> Data:
    wanted = checked(action, request)
    if action == "ListClusters":
        return {"clusters": _shown("ClusterSummary", clusters.values())}
    cluster = find(wanted["clusterIdentifier"])
    match action:
        case "GetCluster":
            return {"cluster": _shown("Cluster", [cluster])[0]}
        case "ListComputeNodeGroups":
            return {"computeNodeGroups": _shown("ComputeNodeGroupSummary", cluster["groups"].values())}
        case "GetComputeNodeGroup":
            group = _part(cluster, "groups", wanted["computeNodeGroupIdentifier"])
            return {"computeNodeGroup": _shown("ComputeNodeGroup", [group])[0]}
        case "GetQueue":
            return {"queue": _shown("Queue", [_part(cluster, "queues", wanted["queueIdentifier"])])[0]}
        case _:
            return {"queues": _shown("QueueSummary", cluster["queues"].values())}


_READS = ("ListClusters", "GetCluster", "ListComputeNodeGroups", "GetComputeNodeGroup", "ListQueues", "GetQueue")
_OF_SLURM = {"ResumeNodes": pcs_nodes.resume, "SuspendNodes": pcs_nodes.suspend}
"""What PCS's controller does automatically: actions of the sandbox's own, requested by the Slurm behind a cluster."""


async def handle_request(
    _method: str, _path: str, headers: dict[str, str], body: bytes, _query: dict[str, Any]
) -> Response:
    """Respond to a read request in the service's JSON protocol; only CloudFormation changes anything here."""
    action = headers.get("x-amz-target", "").removeprefix(TARGET)
    reply = {"Content-Type": "application/x-amz-json-1.0"}
    try:
        if action in _OF_SLURM:
            wanted = json.loads(body)
            return 200, reply, json.dumps(_OF_SLURM[action](find(wanted["cluster"]), wanted["nodes"])).encode()
        if action not in _READS:
            raise ApiError("UnsupportedOperation", f"the sandbox's PCS has no {action}: use CloudFormation")
        return 200, reply, json.dumps(_read(action, json.loads(body or b"{}"))).encode()
    except ApiError as error:
        return error.status, reply, json.dumps({"__type": error.code, "message": error.message}).encode()


def install() -> None:
    """Publish the image's parameter."""
    known = ssm._PUBLIC_AMI_PARAMETERS
    known[IMAGE] = next(iter(known.values()))
