"""Capacity of a stack, from AWS: reservations and blocks that launch nothing, and the errors of PCS. For `trn why`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from trainium_cdk._aws import code_and_message, failures

_RESERVATION = re.compile(r"\bcr-[0-9a-f]{8,17}\b")
_GROUP = re.compile(r"arn:aws[a-z-]*:resource-groups:[a-z0-9-]+:[0-9]{12}:group/[A-Za-z0-9_./-]+")
_LATER = ("scheduled", "pending", "payment-pending", "assessing", "delayed")


def closed(client: Callable[[str], Any], template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """List the template's capacity reservations and blocks that launch nothing, each with the reason. Include those in resource groups.

    Args:
        client: service name -> boto3 client.
    """
    text = json.dumps(template, default=str)
    for group in sorted(set(_GROUP.findall(text))):
        for id in _members(client("resource-groups"), group):
            for what, why in _why_closed(client("ec2"), id):
                yield what, f"{why}. It is in the group {group}: EC2 uses others of it, then starts nodes on demand"
    for id in sorted(set(_RESERVATION.findall(text))):
        yield from _why_closed(client("ec2"), id)


def _members(groups: Any, arn: str) -> list[str]:
    pages = groups.get_paginator("list_group_resources").paginate(Group=arn)
    arns = [one["Identifier"]["ResourceArn"] for page in pages for one in page["Resources"]]
    return sorted(one.rpartition("/")[2] for one in arns if _RESERVATION.search(one))


def _why_closed(ec2: Any, id: str) -> Iterator[tuple[str, str]]:
    one = _reservation(ec2, id)
    state, end = one["State"], one.get("EndDate")
    what = f"capacity {'block' if one.get('ReservationType') == 'capacity-block' else 'reservation'} {id}"
    if state in _LATER:
        begins = f" at {one['StartDate']:%Y-%m-%d %H:%M} UTC" if one.get("StartDate") else ""
        yield what, f"{what} is {state}: nodes start when it begins{begins}"
    elif state != "active":
        ended = f" (it ended at {end:%Y-%m-%d %H:%M} UTC)" if end and state == "expired" else ""
        yield (
            what,
            f"{what} is {state}{ended}: no node starts in it. Set `reservation` to another one, or another capacity_type",
        )


def _reservation(ec2: Any, id: str) -> Mapping[str, Any]:
    try:  # one by one: an id that is gone fails the whole request
        found: Mapping[str, Any] = ec2.describe_capacity_reservations(CapacityReservationIds=[id])[
            "CapacityReservations"
        ][0]
    except failures() as e:
        if not code_and_message(e)[0].startswith("InvalidCapacityReservationId"):
            raise
        return {"State": "not in this account and region"}
    return found


def pcs_errors(pcs: Any, cluster: str) -> Iterator[tuple[str, str]]:
    """List the errors that PCS reports for a cluster, its node groups and its queues, each with its subject.

    Args:
        pcs: boto3 client.
        cluster: id or ARN of the cluster.
    """
    cluster = cluster.rpartition("/")[2]
    yield from _errors("PCS cluster", pcs.get_cluster(clusterIdentifier=cluster)["cluster"])
    for kind, listed, key in (
        ("compute_node_group", "computeNodeGroups", "computeNodeGroup"),
        ("queue", "queues", "queue"),
    ):
        for page in pcs.get_paginator(f"list_{kind}s").paginate(clusterIdentifier=cluster):
            for one in page[listed]:
                request = {"clusterIdentifier": cluster, f"{key}Identifier": one["id"]}
                yield from _errors(f"PCS {kind.replace('_', ' ')}", getattr(pcs, f"get_{kind}")(**request)[key])


def _errors(what: str, described: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    name, status = described["name"], described["status"]
    told = [
        (f"{what} {name}", f"{e.get('code', '')}: {e.get('message', '')}") for e in described.get("errorInfo") or []
    ]
    return told or ([(f"{what} {name}", f"it is {status}")] if status.endswith("FAILED") else [])
