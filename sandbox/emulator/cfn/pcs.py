"""AWS::PCS::Cluster, ComputeNodeGroup and Queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ministack.services.cloudformation import stacks

from sandbox.emulator import pcs
from sandbox.emulator.cfn.registry import Made, Properties, camel, resource
from sandbox.emulator.query import ApiError

Call = Callable[[dict[str, Any]], dict[str, Any]]
_CLUSTER = {"ClusterId": "clusterIdentifier"}


def _request(properties: Properties, names: Mapping[str, str]) -> dict[str, Any]:
    request = {names.get(k) or k[:1].lower() + k[1:]: camel(v) for k, v in properties.items() if k != "Tags"}
    if template := properties.get("CustomLaunchTemplate"):
        request["customLaunchTemplate"] = {"id": template["TemplateId"], "version": str(template["Version"])}
    tags = properties.get("Tags") or {}
    return request | ({"tags": dict(tags)} if tags else {})


def _made(record: dict[str, Any]) -> Made:
    return record["arn"], {"Arn": record["arn"], "Id": record["id"], "Status": record["status"]}


def _add(
    kind: str,
    name: str,
    identifier: str,
    create: Call,
    update: Call,
    delete: Call,
    mutable: str,
) -> None:
    names = {"Name": name, **(_CLUSTER if kind != "Cluster" else {})}

    def created(logical_id: str, properties: Properties, stack: str) -> Made:
        return _made(create(_request({"Name": f"{stack}-{logical_id}"[:25], **properties}, names)))

    def where(physical_id: str, properties: Properties) -> dict[str, Any]:
        own = {identifier: physical_id.rpartition("/")[2]}
        return own if kind == "Cluster" else {**own, "clusterIdentifier": properties["ClusterId"]}

    def updated(physical_id: str, _old: Properties, new: Properties) -> Made:
        changes = {k: v for k, v in _request(new, names).items() if k in mutable.split()}
        if kind == "Cluster" and "scheduler" in changes:
            changes["scheduler"].pop("type")
        return _made(update({**where(physical_id, new), **changes}))

    def deleted(physical_id: str, properties: Properties) -> None:
        try:
            delete(where(physical_id, properties))
        except ApiError as error:
            if error.code != "ResourceNotFoundException":
                raise

    resource(f"AWS::PCS::{kind}", create=created, update=updated, delete=deleted, tags=False)


_add(
    "Cluster",
    "clusterName",
    "clusterIdentifier",
    pcs.create_cluster,
    pcs.update_cluster,
    pcs.delete_cluster,
    "scheduler slurmConfiguration",
)
_add(
    "ComputeNodeGroup",
    "computeNodeGroupName",
    "computeNodeGroupIdentifier",
    pcs.create_compute_node_group,
    pcs.update_compute_node_group,
    pcs.delete_compute_node_group,
    "amiId subnetIds customLaunchTemplate purchaseOption spotOptions scalingConfiguration iamInstanceProfileArn slurmConfiguration "
    "nodeLifecycleActions",
)
_add(
    "Queue",
    "queueName",
    "queueIdentifier",
    pcs.create_queue,
    pcs.update_queue,
    pcs.delete_queue,
    "computeNodeGroupConfigurations slurmConfiguration",
)

_waits = stacks._runs_on_worker_thread
# each waits for its cluster's Slurm, which reads the scripts of its nodes in S3 meanwhile
stacks._runs_on_worker_thread = lambda kind: kind.startswith("AWS::PCS::") or _waits(kind)
