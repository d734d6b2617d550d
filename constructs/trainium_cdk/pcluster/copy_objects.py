"""A CloudFormation custom resource that copies objects into a bucket, and never deletes one: nodes that are starting may still
need the old ones.

Properties: Bucket, Objects (each with Source, BUCKET/KEY, and Key).
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import boto3


def handler(event: dict[str, Any], _context: object) -> None:
    response: dict[str, Any] = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
    response |= {"Status": "SUCCESS", "PhysicalResourceId": event["LogicalResourceId"]}
    try:
        if event["RequestType"] != "Delete":
            copy(event["ResourceProperties"], boto3.client("s3"))
    except Exception as e:  # CloudFormation waits for a response, whatever happens
        print(f"{type(e).__name__}: {e}")
        response |= {"Status": "FAILED", "Reason": str(e)}
    body = json.dumps(response).encode()
    request = urllib.request.Request(event["ResponseURL"], body, {"Content-Type": ""}, method="PUT")  # noqa: S310  CloudFormation's
    with urllib.request.urlopen(request, timeout=30):  # noqa: S310
        pass


def copy(properties: dict[str, Any], s3: Any) -> None:
    for item in properties["Objects"]:
        bucket, _, key = item["Source"].partition("/")
        s3.copy_object(Bucket=properties["Bucket"], Key=item["Key"], CopySource={"Bucket": bucket, "Key": key})
