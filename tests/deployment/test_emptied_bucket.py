"""`Custom::TrnEmptiedBucket`, with the local AWS's S3: empties what is to be deleted, and nothing else."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sandbox import LocalAws
from trainium_cdk.cdk.deployment import emptied_bucket
from trainium_cdk.cdk.deployment.emptied_bucket import TAG, respond
from trainium_cdk.cdk.deployment.request import Request

TAGGED = {"TagSet": [{"Key": TAG, "Value": "yes"}, {"Key": "Team", "Value": "speech"}]}


@pytest.fixture
def bucket(local_aws: LocalAws) -> Iterator[str]:
    """A versioned bucket with two objects, one of them twice, and a delete marker."""
    s3, name = local_aws.client("s3"), f"emptied-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=name)
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    for key in ("a", "a", "b/c"):
        s3.put_object(Bucket=name, Key=key, Body=b"x")
    s3.delete_object(Bucket=name, Key="a")
    yield name
    try:
        s3.delete_bucket_policy(Bucket=name)
        for each in versions(s3, name):
            s3.delete_object(Bucket=name, **each)
        s3.delete_bucket(Bucket=name)
    except s3.exceptions.NoSuchBucket:
        pass


def versions(s3: Any, bucket: str) -> list[dict[str, str]]:
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket)
    found = [v for page in pages for kind in ("Versions", "DeleteMarkers") for v in page.get(kind, ())]
    return [{"Key": v["Key"], "VersionId": v["VersionId"]} for v in found]


def deletion(bucket: str, physical_id: str | None = None) -> Request:
    return Request("Delete", "stack", {"Bucket": bucket}, physical_id or bucket)


def test_a_bucket_that_is_deleted_is_emptied_to_the_last_version(local_aws: LocalAws, bucket: str) -> None:
    s3 = local_aws.client("s3")
    s3.put_bucket_tagging(Bucket=bucket, Tagging=TAGGED)
    for number in range(1005):  # more than one page
        s3.put_object(Bucket=bucket, Key=f"many/{number}", Body=b"")
    assert respond(deletion(bucket), local_aws.client).physical_id == bucket
    assert versions(s3, bucket) == []
    [statement] = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]
    assert (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", "*", "s3:PutObject")
    assert respond(deletion(bucket), local_aws.client).physical_id == bucket, "CloudFormation may request it again"
    assert len(json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]) == 1
    s3.delete_bucket(Bucket=bucket)


def test_a_bucket_that_the_app_keeps_is_not_emptied(local_aws: LocalAws, bucket: str) -> None:
    s3 = local_aws.client("s3")
    s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [{"Key": TAG, "Value": "no"}]})
    before = versions(s3, bucket)
    respond(deletion(bucket), local_aws.client)
    assert versions(s3, bucket) == before


def test_an_object_under_a_legal_hold_stops_the_deletion_until_it_is_released(local_aws: LocalAws) -> None:
    s3, bucket = local_aws.client("s3"), f"emptied-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    s3.put_bucket_tagging(Bucket=bucket, Tagging=TAGGED)
    held = s3.put_object(Bucket=bucket, Key="model", Body=b"x", ObjectLockLegalHoldStatus="ON")["VersionId"]
    s3.put_object(Bucket=bucket, Key="other", Body=b"x")
    with pytest.raises(RuntimeError, match=f"^1 objects of {bucket} could not be deleted, such as model: "):
        respond(deletion(bucket), local_aws.client)
    assert versions(s3, bucket) == [{"Key": "model", "VersionId": held}]
    s3.put_object_legal_hold(Bucket=bucket, Key="model", VersionId=held, LegalHold={"Status": "OFF"})
    respond(deletion(bucket), local_aws.client)
    s3.delete_bucket(Bucket=bucket)


def test_its_own_policy_stays(local_aws: LocalAws, bucket: str) -> None:
    s3 = local_aws.client("s3")
    s3.put_bucket_tagging(Bucket=bucket, Tagging=TAGGED)
    own = {"Sid": "Tls", "Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{bucket}/*",
           "Condition": {"Bool": {"aws:SecureTransport": "false"}}}  # fmt: skip
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [own]}))
    respond(deletion(bucket), local_aws.client)
    assert [s["Sid"] for s in json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]] == [
        "Tls", "TrnBucketIsBeingDeleted",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tags", "request_of"),
    [
        ({"TagSet": [{"Key": "Team", "Value": "speech"}]}, deletion),
        (None, deletion),
        (TAGGED, lambda bucket: deletion(bucket, "not-created")),
        (TAGGED, lambda bucket: Request("Create", "stack", {"Bucket": bucket})),
        (TAGGED, lambda bucket: Request("Update", "stack", {"Bucket": bucket}, bucket)),
        (TAGGED, lambda bucket: Request("Update", "stack", {"Bucket": bucket}, "another-bucket")),
    ],
    ids=["kept from now on", "without tags", "never created", "created", "updated", "of another bucket before"],
)
def test_nothing_else_is_emptied(local_aws: LocalAws, bucket: str, tags: Any, request_of: Any) -> None:
    s3 = local_aws.client("s3")
    if tags:
        s3.put_bucket_tagging(Bucket=bucket, Tagging=tags)
    before, request = versions(s3, bucket), request_of(bucket)
    response = respond(request, local_aws.client)
    assert versions(s3, bucket) == before
    assert response.physical_id == (request.physical_id if request.delete else bucket)
    with pytest.raises(ClientError, match="NoSuchBucketPolicy"):
        s3.get_bucket_policy(Bucket=bucket)


def test_a_bucket_that_is_gone_is_empty(local_aws: LocalAws) -> None:
    assert respond(deletion("gone-already-0123"), local_aws.client).physical_id == "gone-already-0123"


def test_what_cannot_be_deleted_is_an_error(local_aws: LocalAws, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s3 = local_aws.client("s3")
    s3.put_bucket_tagging(Bucket=bucket, Tagging=TAGGED)
    denied = {"Errors": [{"Key": key, "Message": "Access Denied"} for key in "ab"]}
    monkeypatch.setattr(s3, "delete_objects", lambda **_: denied)
    with pytest.raises(RuntimeError, match=f"2 objects of {bucket} could not be deleted, such as a: Access Denied"):
        respond(deletion(bucket), lambda _: s3)


@pytest.mark.parametrize("busy", [1, 99])
def test_objects_for_which_s3_takes_no_more_requests_are_tried_again(
    busy: int, local_aws: LocalAws, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a bucket with very many objects: S3 answers so for single ones of a request."""
    s3, asked, slept = local_aws.client("s3"), list[int](), list[float]()
    monkeypatch.setattr(emptied_bucket.time, "sleep", slept.append)
    s3.put_bucket_tagging(Bucket=bucket, Tagging=TAGGED)
    delete = s3.delete_objects

    def some(**given: Any) -> Any:
        *now, later = given["Delete"]["Objects"]
        asked.append(len(now) + 1)
        if len(asked) > busy:
            return delete(**given)
        if now:
            delete(**{**given, "Delete": {"Objects": now, "Quiet": True}})
        return {"Errors": [{**later, "Code": "SlowDown", "Message": "Please reduce your request rate."}]}

    monkeypatch.setattr(s3, "delete_objects", some)
    if busy == 1:
        respond(deletion(bucket), lambda _: s3)
        assert (versions(s3, bucket), asked, slept) == ([], [4, 1], [5.0])
    else:
        with pytest.raises(RuntimeError, match=r"1 objects of .* Please reduce your request rate"):
            respond(deletion(bucket), lambda _: s3)
        assert asked == [4, 1, 1, 1, 1, 1]


def test_a_bucket_whose_policy_no_longer_names_the_function_is_kept() -> None:
    class Kept:
        def get_bucket_tagging(self, **_: str) -> None:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}, "GetBucketTagging")

    assert respond(deletion("kept"), lambda _: Kept()).physical_id == "kept"
