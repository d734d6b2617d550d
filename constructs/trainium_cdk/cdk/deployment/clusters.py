"""Custom resources of clusters: the claim of a name on ParallelCluster, and Kubernetes objects that leave."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from botocore.config import Config

from .request import Client, Request, Response

_ONCE = Config(read_timeout=300, retries={"total_max_attempts": 1})
"""The function may wait for minutes; boto3 would call it again after one."""
_LONGEST = 2000
"""Characters. CloudFormation takes a response of 4096 bytes."""


def claim_name(request: Request, client: Client) -> Response:
    """`Custom::TrnClusterName` fails if the name of a ParallelCluster cluster is taken.

    ParallelCluster's provider deletes by name, on rollback too: a creation that fails because the name is taken would delete the
    cluster that has it. So the cluster depends on this resource. Deleted on purpose, it deletes the cluster's logs, which
    ParallelCluster retains; a rollback leaves the nodes' groups, as they hold the reason.

    Properties: ClusterName, DeleteLogs ("yes" or "no").

    Physical id: the name, once it is claimed.

    Raises:
        ValueError: another stack has the name.
    """
    name, cloudformation = str(request.properties["ClusterName"]), client("cloudformation")
    claimed = request.physical_id == name
    if request.delete:
        if request.properties["DeleteLogs"] == "yes" and claimed:
            stacks = f"{request.stack.partition(':stack/')[0]}:stack/{name}/"
            wanted = "ROLLBACK" not in (_status(cloudformation, request.stack) or "ROLLBACK")
            _delete_logs(client("logs"), name, wanted, lambda id: _status(cloudformation, stacks + id) is not None)
        return Response(request.physical_id or name)
    if not claimed and (status := _status(cloudformation, name)) and not _ours(cloudformation, request.stack, name):
        raise ValueError(
            f"the cluster name {name} is taken: stack {name} is {status}. Set pcluster.cluster_name, or delete that cluster"
        )
    return Response(name)


def _status(cloudformation: Any, stack: str) -> str | None:
    try:
        return str(cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"])
    except cloudformation.exceptions.ClientError as e:
        if "does not exist" in str(e):
            return None
        raise


def _ours(cloudformation: Any, stack: str, name: str) -> bool:
    """Return whether the cluster already belongs to this stack."""
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack)
    found = [r for page in pages for r in page["StackResourceSummaries"] if r.get("PhysicalResourceId") == name]
    return any(r["ResourceType"] == "Custom::PclusterCluster" for r in found)


def _delete_logs(logs: Any, name: str, nodes: bool, is_cluster: Callable[[str], bool]) -> None:
    """Delete only this cluster's log groups: nodes' groups end with the time of its creation, functions' groups with the id of its stack."""
    for prefix, ours in (
        (f"/aws/parallelcluster/{name}-", lambda end: nodes and re.fullmatch(r"\d{12}", end)),
        ("/aws/lambda/pcluster-Cleanup", lambda end: is_cluster(end[-36:])),  # ...Resources and ...Route53
    ):
        for page in logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix):
            for group in [g["logGroupName"] for g in page["logGroups"] if ours(g["logGroupName"].removeprefix(prefix))]:
                logs.delete_log_group(logGroupName=group)


def remove_objects(request: Request, client: Client) -> Response:
    """`Custom::TrnOwnedObjects` removes Kubernetes objects that the stack does not have any more, after those that it has were applied.

    It has a function do it that reaches the Kubernetes API. A rollback is an update with the former list: the former objects were applied
    again, and only the failed update's objects leave. When the stack is deleted, nothing is removed: the objects go with their cluster.

    Properties: Function, Objects (by kind, a list of names).
    Attribute: Stays (what could not be removed yet, and why; - if nothing).

    Physical id: constant.

    Raises:
        RuntimeError: the function failed.
    """
    id = request.physical_id or "objects"
    if request.delete:
        return Response(id, {})
    wanted = request.properties
    payload = json.dumps({"objects": wanted["Objects"]}).encode()
    answer = client("lambda", config=_ONCE).invoke(FunctionName=wanted["Function"], Payload=payload)
    done: dict[str, Any] = json.loads(answer["Payload"].read())
    if "FunctionError" in answer:
        raise RuntimeError(f"objects that left could not be removed: {done.get('errorMessage', '')}")
    return Response(id, {"Stays": "; ".join(done["stays"])[:_LONGEST] or "-"})
