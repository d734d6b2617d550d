"""A CloudFormation custom resource that fails if the name of a ParallelCluster cluster is taken.

ParallelCluster's provider deletes by name, on rollback too: a creation that fails because the name is taken would delete the
cluster that has it. So the cluster depends on this resource. Deleted on purpose, it deletes the cluster's logs, which
ParallelCluster retains; a rollback leaves them, as they hold the reason.

Properties: ClusterName, DeleteLogs ("yes" or "no").
"""

from __future__ import annotations

import json
import re
import urllib.request
from typing import Any

import boto3


def handler(event: dict[str, Any], _context: object) -> None:
    response: dict[str, Any] = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
    response |= {"Status": "SUCCESS", "PhysicalResourceId": event.get("PhysicalResourceId", "not-claimed")}
    try:
        response["PhysicalResourceId"] = respond(event)
    except Exception as e:  # CloudFormation waits for a response, whatever happens
        print(f"{type(e).__name__}: {e}")
        response |= {"Status": "FAILED", "Reason": str(e)}
    body = json.dumps(response).encode()
    request = urllib.request.Request(event["ResponseURL"], body, {"Content-Type": ""}, method="PUT")  # noqa: S310  CloudFormation's
    with urllib.request.urlopen(request, timeout=30):  # noqa: S310
        pass


def respond(event: dict[str, Any], cloudformation: Any = None, logs: Any = None) -> str:
    """Physical id: the name, once it is claimed.

    Raises:
        ValueError: another stack has the name.
    """
    cloudformation = cloudformation or boto3.client("cloudformation")
    name, physical_id = event["ResourceProperties"]["ClusterName"], event.get("PhysicalResourceId")
    if event["RequestType"] == "Delete":
        wanted = event["ResourceProperties"]["DeleteLogs"] == "yes" and physical_id == name
        if wanted and "ROLLBACK" not in (_status(cloudformation, event["StackId"]) or "ROLLBACK"):
            _delete_logs(logs or boto3.client("logs"), name)
        return str(physical_id)
    if physical_id != name and (status := _status(cloudformation, name)) and not _ours(cloudformation, event, name):
        raise ValueError(
            f"the cluster name {name} is taken: stack {name} is {status}. Set pcluster.cluster_name, or delete that cluster"
        )
    return str(name)


def _status(cloudformation: Any, stack: str) -> str | None:
    try:
        return str(cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"])
    except cloudformation.exceptions.ClientError as e:
        if "does not exist" in str(e):
            return None
        raise


def _ours(cloudformation: Any, event: dict[str, Any], name: str) -> bool:
    """Whether the cluster already belongs to this stack."""
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=event["StackId"])
    found = [r for page in pages for r in page["StackResourceSummaries"] if r.get("PhysicalResourceId") == name]
    return any(r["ResourceType"] == "Custom::PclusterCluster" for r in found)


def _delete_logs(logs: Any, name: str) -> None:
    """Delete only this cluster's log groups: their names end with the time of its creation."""
    prefix = f"/aws/parallelcluster/{name}-"
    for page in logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix):
        for group in [g["logGroupName"] for g in page["logGroups"]]:
            if re.fullmatch(r"\d{12}", group.removeprefix(prefix)):
                logs.delete_log_group(logGroupName=group)
