"""What AWS says of a stack's capacity: reservations and blocks that launch nothing, and the errors of PCS. For `trn why`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainium_cdk._aws import code_and_message, failures

_RESERVATION = re.compile(r"\bcr-[0-9a-f]{8,17}\b")
_LATER = ("scheduled", "pending", "payment-pending", "assessing", "delayed")


def closed(ec2: Any, template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What each capacity reservation or block that the template names is, and why it launches nothing; none where it does.

    Args:
        ec2: boto3 client.
    """
    ids = sorted(set(_RESERVATION.findall(json.dumps(template, default=str))))
    for id in ids:
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
    """What PCS reports of a cluster, its node groups and its queues, each with what it is about.

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
