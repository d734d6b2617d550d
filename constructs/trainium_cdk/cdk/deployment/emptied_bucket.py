"""`Custom::TrnEmptiedBucket` empties a bucket before CloudFormation deletes it.

Only a bucket whose tag `TAG` is `EMPTIED`: a resource is also deleted when its bucket is to be kept from now on, and by then CloudFormation
has removed the tag. An update empties nothing, unlike with the CDK's own function for this, which takes any update for a new bucket.

Property: Bucket, which is also the physical id.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from .request import Client, Request, Response

TAG = "trainium-cdk:empty-on-delete"
EMPTIED = "yes"
"""The tag's value; another one where an aspect of the app keeps the bucket."""
_CLOSED = "TrnBucketIsBeingDeleted"
_BUSY = ("InternalError", "ServiceUnavailable", "SlowDown")
_ATTEMPTS, _PAUSE = 6, 5.0


def respond(request: Request, client: Client) -> Response:
    """Physical id: the bucket.

    Raises:
        RuntimeError: objects could not be deleted.
    """
    bucket = str(request.properties["Bucket"])
    if not request.delete:
        return Response(bucket)
    s3 = client("s3")
    if request.physical_id == bucket and _tagged(s3, bucket):
        _close(s3, bucket)
        _empty(s3, bucket)
    return Response(request.physical_id or bucket)


def _tagged(s3: Any, bucket: str) -> bool:
    # a bucket that is kept from now on no longer lets this function read its tags
    none = ("AccessDenied", "NoSuchBucket", "NoSuchTagSet")
    tags = _unless(lambda: s3.get_bucket_tagging(Bucket=bucket)["TagSet"], *none)
    return any((tag["Key"], tag["Value"]) == (TAG, EMPTIED) for tag in tags or ())


def _close(s3: Any, bucket: str) -> None:
    """Deny further writes: a bucket with an object that arrives late cannot be deleted."""
    text = _unless(lambda: s3.get_bucket_policy(Bucket=bucket)["Policy"], "NoSuchBucketPolicy")
    policy: dict[str, Any] = json.loads(text) if text else {"Version": "2012-10-17", "Statement": []}
    objects = f"arn:{s3.meta.partition}:s3:::{bucket}/*"
    statement = {"Sid": _CLOSED, "Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": objects}
    if not any(each.get("Sid") == _CLOSED for each in policy["Statement"]):
        policy["Statement"].append(statement)
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))


def _empty(s3: Any, bucket: str) -> None:
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        found = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        if found and (failed := _delete(s3, bucket, found)):
            example = f"{failed[0].get('Key')}: {failed[0].get('Message')}"
            raise RuntimeError(f"{len(failed)} objects of {bucket} could not be deleted, such as {example}")


def _delete(s3: Any, bucket: str, objects: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Delete objects, and return the errors of the rest. Retry while S3 takes no more requests, even for a single object."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)
        wanted = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in objects]
        failed = s3.delete_objects(Bucket=bucket, Delete={"Objects": wanted, "Quiet": True}).get("Errors", [])
        objects = failed
        if not failed or any(each.get("Code") not in _BUSY for each in failed):
            break
    return list(objects)


def _unless(request: Callable[[], Any], *codes: str) -> Any:
    """The response, or None for one of these errors."""
    try:
        return request()
    except ClientError as e:
        if e.response["Error"]["Code"] in codes:
            return None
        raise
