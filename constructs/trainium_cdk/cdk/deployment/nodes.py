"""Custom resources of nodes: a subnet that offers their types, the size of their group, and their scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .request import Client, Request, Response


def choose_subnet(request: Request, client: Client) -> Response:
    """`Custom::TrnSubnetChoice` chooses a subnet in an availability zone that offers every one of some instance types.

    Properties: InstanceTypes, SubnetIds (in order of preference).
    Attribute: SubnetId, which is also the physical id: a subnet that is still given, and still offers the types, is kept.

    Physical id: the chosen subnet.

    Raises:
        ValueError: none of the subnets lies in a zone that offers the instance types.
    """
    if request.delete:
        return Response(request.physical_id or "none")
    subnet = _choose(request.properties, request.physical_id, client("ec2"))
    return Response(subnet, {"SubnetId": subnet})


def _choose(properties: Mapping[str, Any], current: str | None, ec2: Any) -> str:
    kinds, subnets = properties["InstanceTypes"], properties["SubnetIds"]
    offered = set.intersection(*(_zones(kind, ec2) for kind in kinds))
    described = ec2.describe_subnets(SubnetIds=subnets)["Subnets"]
    zones = {subnet["SubnetId"]: subnet["AvailabilityZoneId"] for subnet in described}
    for subnet in [current, *subnets]:
        if subnet in zones and zones[subnet] in offered:
            return str(subnet)
    where = ", ".join(f"{subnet} in {zone}" for subnet, zone in sorted(zones.items()))
    fix = f"give a subnet in {' or '.join(sorted(offered))}" if offered else "deploy to a region that offers it"
    raise ValueError(f"no subnet lies in an availability zone that offers {' and '.join(kinds)} ({where}): {fix}")


def _zones(kind: str, ec2: Any) -> set[str]:
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": [kind]}]
    )
    return {offering["Location"] for page in pages for offering in page["InstanceTypeOfferings"]}


def size_of_group(request: Request, client: Client) -> Response:
    """`Custom::TrnNodeGroupSize` returns the size of a node group: at first the configured size, later the current size, so that a
    deployment does not undo a scaling.

    Properties: Cluster, Group (the value of the label that marks the group's nodes), Label, Nodes, Min, Max.
    Attribute: Nodes.

    Physical id: constant.
    """
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


def copy_scripts(request: Request, client: Client) -> Response:
    """`Custom::TrnNodeScripts` copies objects into a bucket, and never deletes one: nodes that are starting may still need the old ones.

    Properties: Bucket, Objects (each with Source, BUCKET/KEY, and Key).

    Physical id: constant, as an update deletes nothing.
    """
    if not request.delete:
        s3 = client("s3")
        for item in request.properties["Objects"]:
            bucket, _, key = item["Source"].partition("/")
            source = {"Bucket": bucket, "Key": key}
            s3.copy_object(Bucket=request.properties["Bucket"], Key=item["Key"], CopySource=source)
    return Response(request.physical_id or "node-scripts")
