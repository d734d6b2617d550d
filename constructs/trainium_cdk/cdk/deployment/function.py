"""Entry point: calls the function of the resource's type, and sends CloudFormation its response."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import boto3
from botocore.exceptions import ClientError

from . import clusters, emptied_bucket, nodes
from .request import Client, Request, Response

Respond = Callable[[Request, Client], Response]
RESPOND: dict[str, Respond] = {
    "Custom::TrnClusterName": clusters.claim_name,
    "Custom::TrnEmptiedBucket": emptied_bucket.respond,
    "Custom::TrnNodeGroupSize": nodes.size_of_group,
    "Custom::TrnNodeScripts": nodes.copy_scripts,
    "Custom::TrnOwnedObjects": clusters.remove_objects,
    "Custom::TrnSubnetChoice": nodes.choose_subnet,
}
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"}
_PATIENCE = 60.0
"""Seconds. A permission may take that long to be effective everywhere (IAM user guide, "changes that I make are not always
immediately visible")."""
_PAUSE = 5.0
_REASON = 1000
"""Characters. CloudFormation takes a response of 4096 bytes."""


def handler(event: Mapping[str, Any], _context: object) -> None:
    """Entry point of AWS Lambda."""
    request = Request(
        event["RequestType"], event["StackId"], event["ResourceProperties"], event.get("PhysicalResourceId")
    )
    answer: dict[str, Any] = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
    try:
        response = _permitted(RESPOND[event["ResourceType"]], request)
        answer |= {"Status": "SUCCESS", "PhysicalResourceId": response.physical_id, "Data": dict(response.attributes)}
    except Exception as e:  # CloudFormation waits for a response, whatever happens
        print(f"{event['ResourceType']} {request.kind}: {type(e).__name__}: {e}")
        answer |= {
            "Status": "FAILED",
            "Reason": str(e)[:_REASON],
            "PhysicalResourceId": request.physical_id or "not-created",
        }
    body = json.dumps(answer).encode()
    put = urllib.request.Request(event["ResponseURL"], body, {"Content-Type": ""}, method="PUT")  # noqa: S310  CloudFormation's
    with urllib.request.urlopen(put, timeout=30):  # noqa: S310
        pass


def _permitted(respond: Respond, request: Request) -> Response:
    """The response, also if the role's policy, which is as new as the resource, is not yet effective."""
    client: Any = boto3.client
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return respond(request, client)
        except ClientError as e:
            if e.response["Error"]["Code"] not in _DENIED or time.monotonic() > until:
                raise
        time.sleep(_PAUSE)
