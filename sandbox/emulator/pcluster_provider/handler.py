"""A fake of the provider's function: real validation, and a cluster with a head node only.

On Create and Update the configuration goes through pcluster's dry run and update policies
(`sandbox.pcluster_validator`), and the resource fails with pcluster's messages. A valid configuration creates only
what other code uses: the cluster's CloudFormation stack with its log group, the head node (an EC2 instance with
pcluster's tags, reachable by Run Command), and in the sandbox's folder `clusters/<name>/config.yaml` and
`cluster.json`, from which a local Slurm is set up.

As in the original (cloudformation/custom_resource/cluster.yaml and its crhelper):

- Delete deletes the cluster of that NAME, whichever stack created it. CloudFormation sends Delete also when a creation is
  rolled back, so a duplicate name deletes the other cluster.
- A failed creation has a generated physical id, not the cluster's name.
- Only the last 240 characters of a reason are kept.
- The configuration's `DeletionPolicy` decides whether the log group is kept, also after a failed creation.
- A cluster whose update failed stays UPDATE_FAILED until an update with another configuration succeeds. The same configuration
  again, which is what CloudFormation sends when it rolls back, is "No changes found" and fails as well. So a failed update always
  ends in UPDATE_ROLLBACK_FAILED. No reason is given: ParallelCluster lists failures of creations only.
- What its update policy does not see as a change is not applied.
- Keys of the last response are in the next one, because `flatten` of the original has a mutable default.

`cluster-faults.json` in the sandbox's folder, `{"<cluster>": {"<step>": "<reason>"}}`, makes these steps fail:
`create` after the cluster's stack, log group and head node exist, like a failed bootstrap of the head node; `update` after the
validation, like a failed OnNodeUpdated, with a rollback of the cluster's stack; `delete`; and `poll`: the request that reads the
cluster's state is throttled, while its creation or update succeeds.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import time
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3

from sandbox import attach
from sandbox.pcluster_validator import PclusterValidator, installed_version

Event = dict[str, Any]
# AWS's provider passes every property but these to pcluster, which rejects unknown ones (ServiceTimeout, say)
_KNOWN = {"ServiceToken", "DeletionPolicy", "ClusterName", "ClusterConfiguration"}
_REASON_LIMIT, _REASON_KEPT = 256, 240  # crhelper's resource_helper.py


class ClusterError(Exception):
    """The resource fails with this message."""


def _sandbox() -> Path:
    return Path(os.environ["SANDBOX_DIR"])


def _folder(name: str) -> Path:
    return _sandbox() / "clusters" / name


def _validator_env() -> dict[str, str]:
    region = os.environ["AWS_REGION"]
    return {
        "AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"],
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


_flat: dict[str, Any] = {}


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Nested maps and lists flattened to dotted names, as the provider returns describe-cluster for Fn::GetAtt. As in the original,
    the names of earlier calls stay."""
    if not isinstance(value, dict | list):
        _flat[path] = value
        return _flat
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        flatten(item, f"{path}.{key}" if path else str(key))
    return _flat


def _validate(validator: PclusterValidator, name: str, config: Mapping[str, Any]) -> list[dict[str, str]]:
    """pcluster's dry run; returns its messages if it passes, else raises ClusterError with them."""
    findings = validator.validate(config, name)
    messages = [finding._asdict() for finding in findings]
    if any(finding.level == "ERROR" for finding in findings):
        failed = {"configuration_validation_errors": messages, "message": "Invalid cluster configuration."}
        raise ClusterError(json.dumps(failed))
    return messages


def _create_head_node(name: str, config: Mapping[str, Any]) -> str:
    ec2 = boto3.client("ec2")
    head = config["HeadNode"]
    networking = head["Networking"]
    wanted: dict[str, Any] = {
        "ImageId": (head.get("Image") or {}).get("CustomAmi") or (config["Image"].get("CustomAmi") or _image(config)),
        "InstanceType": head["InstanceType"],
        "SubnetId": networking["SubnetId"],
        "MinCount": 1,
        "MaxCount": 1,
    }
    if (head.get("Ssh") or {}).get("KeyName"):
        wanted["KeyName"] = head["Ssh"]["KeyName"]
    if networking.get("SecurityGroups"):
        wanted["SecurityGroupIds"] = networking["SecurityGroups"]
    instance: str = ec2.run_instances(**wanted)["Instances"][0]["InstanceId"]
    tags = {
        "Name": "HeadNode",
        "parallelcluster:cluster-name": name,
        "parallelcluster:node-type": "HeadNode",
        "aws:cloudformation:stack-name": name,
        "aws:cloudformation:logical-id": "HeadNode",
        "parallelcluster:version": os.environ["SANDBOX_PCLUSTER_VERSION"],
        **{tag["Key"]: tag["Value"] for tag in config.get("Tags") or []},
    }
    ec2.create_tags(Resources=[instance], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
    return instance


def _elastic_address(instance: str, wanted: Any) -> dict[str, str]:
    """The head node's elastic IP: a new one (`ElasticIp: true`), an existing one, or empty."""
    if str(wanted or "false").lower() == "false":
        return {}
    ec2 = boto3.client("ec2")
    named = {} if str(wanted).lower() == "true" else {"AllocationIds": [wanted]}
    address = ec2.describe_addresses(**named)["Addresses"][0] if named else ec2.allocate_address(Domain="vpc")
    ec2.associate_address(AllocationId=address["AllocationId"], InstanceId=instance)
    return {"ip": address["PublicIp"]} | ({} if named else {"ours": address["AllocationId"]})


def _image(config: Mapping[str, Any]) -> str:
    """The official image for the configuration's system, as pcluster chooses it."""
    names = {"alinux2023": "amzn2023-hvm", "ubuntu2204": "ubuntu-2204-lts-hvm", "ubuntu2404": "ubuntu-2404-lts-hvm"}
    system = config["Image"]["Os"]
    prefix = f"aws-parallelcluster-{installed_version()}-{names.get(system, system + '-hvm')}-x86_64"
    images = boto3.client("ec2").describe_images(
        Owners=["amazon"], Filters=[{"Name": "name", "Values": [prefix + "*"]}]
    )["Images"]
    return str(images[0]["ImageId"])


def _describe(name: str, record: Mapping[str, Any], messages: list[dict[str, str]]) -> dict[str, Any]:
    """The attributes of the resource: describe-cluster, flattened. A public address only if it has one."""
    ec2 = boto3.client("ec2")
    instance = ec2.describe_instances(InstanceIds=[record["headNode"]])["Reservations"][0]["Instances"][0]
    head = {
        "instanceId": instance["InstanceId"],
        "instanceType": instance["InstanceType"],
        "launchTime": instance["LaunchTime"].isoformat(),
        "privateIpAddress": instance["PrivateIpAddress"],
        "state": instance["State"]["Name"],
    }
    if public := record.get("address", {}).get("ip") or instance.get("PublicIpAddress"):
        head["publicIpAddress"] = public
    status = "UPDATE_COMPLETE" if record.get("updated") else "CREATE_COMPLETE"
    cluster = {
        "clusterName": name,
        "clusterStatus": status,
        "cloudFormationStackStatus": status,
        "cloudformationStackArn": record["stackId"],
        "computeFleetStatus": record["computeFleetStatus"],
        "creationTime": record["created"],
        "lastUpdatedTime": record.get("updated", record["created"]),
        "region": os.environ["AWS_REGION"],
        "version": os.environ["SANDBOX_PCLUSTER_VERSION"],
        "headNode": head,
    }
    if pools := (record["typedConfig"].get("LoginNodes") or {}).get("Pools"):
        cluster["loginNodes"] = [
            {
                "poolName": pool["Name"],
                "status": "active",
                "address": f"{name}-{pool['Name']}-0123456789abcdef.elb.{os.environ['AWS_REGION']}.amazonaws.com",
                "scheme": "internal",
                "healthyNodes": int(pool["Count"]),
                "unhealthyNodes": 0,
            }
            for pool in pools
        ]
    text = json.dumps(messages)
    return {**flatten(cluster), "validationMessages": f"TRUNCATED:{text[:2048]}" if len(text) > 2048 else text}


def _write(name: str, record: Mapping[str, Any]) -> None:
    """Write config.yaml (JSON is YAML, and needs no library here) and cluster.json, each atomically."""
    folder = _folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in (("config.yaml", record["typedConfig"]), ("cluster.json", record)):
        partial = folder / f".{file}.new"
        partial.write_text(json.dumps(content, indent=2) + "\n")
        partial.replace(folder / file)


def _read(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((_folder(name) / "cluster.json").read_text())
    return record


def _configuration(properties: Mapping[str, Any], stack_id: str) -> dict[str, Any]:
    """The configuration with the stack's tags, as the provider adds them."""
    config: dict[str, Any] = json.loads(json.dumps(properties["ClusterConfiguration"]))
    own = config.get("Tags") or []
    stack = boto3.client("cloudformation").describe_stacks(StackName=stack_id)["Stacks"][0]
    names = {tag["Key"] for tag in own}
    inherited = [tag for tag in stack.get("Tags", []) if not tag["Key"].startswith("aws:") and tag["Key"] not in names]
    config["Tags"] = [*inherited, *own, {"Key": "parallelcluster:custom_resource", "Value": "cluster"}]
    return config


def _stack_status(name: str) -> str | None:
    """Status of the CloudFormation stack with that name, or None."""
    cloudformation = boto3.client("cloudformation")
    try:
        return str(cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"])
    except cloudformation.exceptions.ClientError:
        return None


def _settled(name: str, *, deleted: bool = False) -> None:
    """Wait until the cluster's stack has reached a final state, or is deleted."""
    for _ in range(6000):
        status = _stack_status(name)
        if status is None or status == "DELETE_COMPLETE" or (not deleted and not status.endswith("_IN_PROGRESS")):
            return
        time.sleep(0.1)
    raise ClusterError(f"stack {name} is {_stack_status(name)}")


def _cluster_stack(name: str, log_group: str, logs: Mapping[str, Any]) -> str:
    """Create the stack that ParallelCluster creates for a cluster, here with its log groups only. Returns its id."""
    stack = {"Fn::Select": [2, {"Fn::Split": ["/", {"Ref": "AWS::StackId"}]}]}
    names: dict[str, Any] = {
        "CloudWatchLogGroup": log_group,
        "CleanupResourcesFunctionLogGroup": {"Fn::Join": ["-", ["/aws/lambda/pcluster-CleanupResources", stack]]},
    }
    days = int(logs.get("RetentionInDays", 180))
    resources = {
        id: {
            "Type": "AWS::Logs::LogGroup",
            "DeletionPolicy": logs.get("DeletionPolicy", "Retain"),
            "Properties": {"LogGroupName": group, **({"RetentionInDays": days} if days else {})},
        }
        for id, group in names.items()
    }
    made = boto3.client("cloudformation").create_stack(
        StackName=name,
        TemplateBody=json.dumps({"Resources": resources}),
        Tags=[{"Key": "parallelcluster:cluster-name", "Value": name}],
    )
    _settled(name)
    return str(made["StackId"])


def _free_log_group(name: str, now: datetime) -> str:
    """ParallelCluster's names end with the minute. Clusters are created instantly here, so a retained group may have this name."""
    prefix = f"/aws/parallelcluster/{name}-"
    groups = boto3.client("logs").describe_log_groups(logGroupNamePrefix=prefix)["logGroups"]
    taken = {group["logGroupName"] for group in groups}
    while f"{prefix}{now:%Y%m%d%H%M}" in taken:
        now += timedelta(minutes=1)
    return f"{prefix}{now:%Y%m%d%H%M}"


def _planned_failure(name: str, step: str) -> str | None:
    """The injected failure of this step; None if there is none."""
    file = _sandbox() / "cluster-faults.json"
    return json.loads(file.read_text()).get(name, {}).get(step) if file.is_file() else None


def _poll(name: str, *, failed: str | None, throttled: bool = False) -> None:
    """What the original finds when it polls the cluster."""
    if throttled:
        raise ClusterError("")  # of an exception of ParallelCluster's API, whose text is empty
    if failed is not None:
        raise ClusterError(f"{name}: {failed} (LogGroup: /aws/lambda/{os.environ['AWS_LAMBDA_FUNCTION_NAME']})")


def _region(name: str) -> str:
    """The region of the cluster with this name; empty for none."""
    return str(_read(name)["region"]) if (_folder(name) / "cluster.json").exists() else ""


def _create(event: Event, name: str) -> dict[str, Any]:
    if (other := _region(name)) not in {"", os.environ["AWS_REGION"]}:
        raise ClusterError(
            f"The local AWS can have one cluster {name}, and {other} has it (AWS allows one in each region): give another cluster_name"
        )
    if _stack_status(name):
        raise ClusterError(json.dumps({"message": f"Cluster {name} already exists."}))
    config = _configuration(event["ResourceProperties"], event["StackId"])
    with PclusterValidator(_validator_env(), Path(os.environ["SANDBOX_PCLUSTER_PYTHON"])) as validator:
        messages = _validate(validator, name, config)
        typed = validator.typed(config, name)
    now = datetime.now(UTC)
    log_group = _free_log_group(name, now)
    logs = ((typed.get("Monitoring") or {}).get("Logs") or {}).get("CloudWatch") or {}
    stack_id = _cluster_stack(name, log_group, logs)
    head_node = _create_head_node(name, config)
    record = {
        "name": name,
        "stackId": stack_id,
        "region": os.environ["AWS_REGION"],
        "headNode": head_node,
        "address": _elastic_address(head_node, config["HeadNode"]["Networking"].get("ElasticIp")),
        "logGroup": log_group,
        "computeFleetStatus": "RUNNING",
        "created": now.isoformat(),
        "config": config,
        "typedConfig": typed,
    }
    _write(name, record)
    _poll(name, failed=_planned_failure(name, "create"), throttled=_planned_failure(name, "poll") is not None)
    _attach(name)
    return _describe(name, record, messages)


def _fleet_status(name: str, record: Mapping[str, Any]) -> str:
    """As `trn nodes stop` has set it on the head node of the cluster's Slurm, else as `LocalAws.set_compute_fleet` has."""
    node = _folder(name) / "node.json"
    if node.is_file():
        status = Path(json.loads(node.read_text())["env"]["TRN_SHARED_ROOT"]) / "fleet-status"
        if status.is_file():
            return status.read_text().strip()
    return str(record["computeFleetStatus"])


def _update(event: Event, name: str) -> dict[str, Any]:
    if event["PhysicalResourceId"] != name:
        raise ClusterError("Cannot update the ClusterName in the properties.")
    if not _region(name):
        raise ClusterError(
            json.dumps(
                {
                    "message": f"Cluster '{name}' does not exist or belongs to an incompatible ParallelCluster major version."
                }
            )
        )
    record = _read(name)
    config = _configuration(event["ResourceProperties"], event["StackId"])
    running = _fleet_status(name, record) != "STOPPED"
    with PclusterValidator(_validator_env(), Path(os.environ["SANDBOX_PCLUSTER_PYTHON"])) as validator:
        # create-cluster rejects a name in use before validation; update-cluster does not check
        messages = _validate(validator, f"{name[:50]}-update", config)
        changes = validator.check_update(record["config"], config, fleet_running=running, name=name)
        typed = validator.typed(config, name)
    blocked = [change for change in changes if not change.allowed]
    if blocked:
        reasons = [
            {
                "parameter": change.path,
                "requested_value": str(change.new),
                "current_value": str(change.old),
                "message": f"{change.reason} {change.action_needed}".strip(),
            }
            for change in blocked
        ]
        raise ClusterError(json.dumps({"message": "Update failure", "update_validation_errors": reasons}))
    if changes:
        failed = _planned_failure(name, "update") is not None
        record |= {"updateFailed": True} if failed else {"updateFailed": False, "config": config, "typedConfig": typed}
        _write(name, record | {"updated": datetime.now(UTC).isoformat()})
    _poll(
        name,
        failed="" if record.get("updateFailed") else None,
        throttled=_planned_failure(name, "poll") is not None,
    )
    _attach(name)
    return _describe(name, record, messages)


def _delete(event: Event, name: str) -> dict[str, Any]:
    """Delete the cluster with this name, whichever stack created it, like the original."""
    if event["ResourceProperties"].get("DeletionPolicy") == "Retain" or _region(name) != os.environ["AWS_REGION"]:
        return {}
    _poll(name, failed=_planned_failure(name, "delete"))
    record = _read(name)
    ec2 = boto3.client("ec2")
    ec2.terminate_instances(InstanceIds=[record["headNode"]])
    if allocation := record.get("address", {}).get("ours"):
        ec2.release_address(AllocationId=allocation)
    boto3.client("cloudformation").delete_stack(StackName=name)
    _settled(name, deleted=True)
    attach.withdraw(_sandbox(), "slurm", name)
    shutil.rmtree(_folder(name))
    return {}


def _attach(name: str) -> None:
    """Wait for the cluster's Slurm, if the sandbox runs one for each cluster."""
    try:
        attach.wait(_sandbox(), "slurm", name, attach.request(_sandbox(), "slurm", name, os.environ["AWS_REGION"]))
    except attach.AttachFailed as problem:
        raise ClusterError(json.dumps({"message": str(problem)})) from None


def shortened(reason: str) -> str:
    """The end of a reason, as crhelper truncates it."""
    return reason if len(reason) <= _REASON_LIMIT else f"ERROR: (truncated) {reason[-_REASON_KEPT:]}"


def respond(event: Event, physical_id: str, status: str, reason: str, data: Mapping[str, Any]) -> None:
    """Send the response to CloudFormation."""
    body = json.dumps(
        {
            "Status": status,
            "Reason": shortened(reason),
            "PhysicalResourceId": physical_id,
            "StackId": event["StackId"],
            "RequestId": event["RequestId"],
            "LogicalResourceId": event["LogicalResourceId"],
            "Data": data,
        }
    ).encode()
    request = urllib.request.Request(event["ResponseURL"], data=body, method="PUT")  # noqa: S310 - the emulator's own address
    with urllib.request.urlopen(request, timeout=30):  # noqa: S310
        pass


def handler(event: Event, _context: object) -> None:
    """The function's entry point."""
    properties = event["ResourceProperties"]
    name = properties.get("ClusterName")
    stack = event["StackId"].split("/")[1]
    unnamed = event.get("PhysicalResourceId") or f"{stack}_{event['LogicalResourceId']}_{secrets.token_hex(4).upper()}"
    work = {"Create": _create, "Update": _update, "Delete": _delete}[event["RequestType"]]
    try:
        if properties.get("DeletionPolicy", "Delete") not in ("Retain", "Delete"):
            raise ClusterError('DeletionPolicy must be one of ["Retain", "Delete"].')
        if not name:
            raise ClusterError("Couldn't find a ClusterName in the properties.")
        if event["RequestType"] != "Delete" and (unknown := properties.keys() - _KNOWN):
            raise ClusterError(f"{event['RequestType']}: got unexpected arguments: {sorted(unknown)}")
        data = work(event, name)
    except Exception as error:
        print(f"{event['RequestType']} of cluster {name} failed: {error}", file=sys.stderr)
        respond(event, unnamed, "FAILED", str(error), {})
        return
    respond(event, name, "SUCCESS", "", data)
