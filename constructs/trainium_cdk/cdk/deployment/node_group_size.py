"""`Custom::TrnNodeGroupSize` returns the size of a node group: at first the configured size, later the current size, so that a
deployment does not undo a scaling.

Properties: Cluster, Group (the value of the label that marks the group's nodes), Label, Nodes, Min, Max.
Attribute: Nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .request import Client, Request, Response


def respond(request: Request, client: Client) -> Response:
    """Physical id: constant."""
    wanted = request.properties
    least, most, nodes = (int(wanted[key]) for key in ("Min", "Max", "Nodes"))
    if request.kind == "Update":
        nodes = max(_current(client("eks"), wanted), default=nodes)
    return Response(request.physical_id or "size", {"Nodes": min(max(nodes, least), most)})


def _current(eks: Any, wanted: Mapping[str, str]) -> Iterator[int]:
    cluster = wanted["Cluster"]
    pages = eks.get_paginator("list_nodegroups").paginate(clusterName=cluster)
    for name in [name for page in pages for name in page["nodegroups"]]:
        found = eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
        if found.get("labels", {}).get(wanted["Label"]) == wanted["Group"]:
            yield found["scalingConfig"]["desiredSize"]
