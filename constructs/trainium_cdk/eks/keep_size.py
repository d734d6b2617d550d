"""A CloudFormation custom resource that returns the size of a node group: at first the configured size, later the current
size, so that a deployment does not undo a scaling.

Properties: Cluster, Group (the value of the label that marks the group's nodes), Label, Nodes, Min, Max.
Attribute: Nodes.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import boto3


def handler(event: dict[str, Any], _context: object) -> None:
    answer: dict[str, Any] = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
    answer["PhysicalResourceId"] = event.get("PhysicalResourceId", event["LogicalResourceId"])
    try:
        answer |= {"Status": "SUCCESS", "Data": {"Nodes": size(event["RequestType"], event["ResourceProperties"])}}
    except Exception as e:  # CloudFormation waits for a response, whatever happens
        print(f"{type(e).__name__}: {e}")
        answer |= {"Status": "FAILED", "Reason": f"{type(e).__name__}: {e}"}
    body = json.dumps(answer).encode()
    request = urllib.request.Request(event["ResponseURL"], body, {"Content-Type": ""}, method="PUT")  # noqa: S310  CloudFormation's
    with urllib.request.urlopen(request, timeout=30):  # noqa: S310
        pass


def size(kind: str, wanted: dict[str, str], eks: Any = None) -> int:
    """The number of nodes that the group should have."""
    least, most, nodes = (int(wanted[key]) for key in ("Min", "Max", "Nodes"))
    if kind == "Update":
        nodes = max(_current(eks or boto3.client("eks"), wanted), default=nodes)
    return min(max(nodes, least), most)


def _current(eks: Any, wanted: dict[str, str]) -> Iterator[int]:
    cluster = wanted["Cluster"]
    pages = eks.get_paginator("list_nodegroups").paginate(clusterName=cluster)
    for name in [name for page in pages for name in page["nodegroups"]]:
        found = eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
        if found.get("labels", {}).get(wanted["Label"]) == wanted["Group"]:
            yield found["scalingConfig"]["desiredSize"]
