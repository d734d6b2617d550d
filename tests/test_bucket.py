"""`TrnBucket`: private, and gone without a trace when asked to go."""

from __future__ import annotations

import json

import pytest
from aws_cdk import Duration, RemovalPolicy

from tests.cdk import findings, needs, only, properties, resources, synth
from trainium_cdk.bucket import TrnBucket


def test_nobody_reads_it_in_the_clear_or_from_outside() -> None:
    template = synth(lambda s: TrnBucket(s, "Bucket", expiration={"payloads/": Duration.days(30)}))
    found = only(template, "S3::Bucket")
    assert set(found["PublicAccessBlockConfiguration"].values()) == {True}
    assert found["VersioningConfiguration"] == {"Status": "Enabled"}
    assert found["LoggingConfiguration"] == {"LogFilePrefix": "access-logs/"}
    expiring = {r.get("Prefix"): r.get("ExpirationInDays") for r in found["LifecycleConfiguration"]["Rules"]}
    assert expiring == {None: None, "payloads/": 30, "access-logs/": 90}
    denied = [
        s["Condition"]
        for s in only(template, "S3::BucketPolicy")["PolicyDocument"]["Statement"]
        if s["Effect"] == "Deny"
    ]
    assert denied == [{"Bool": {"aws:SecureTransport": "false"}}, {"NumericLessThan": {"s3:TlsVersion": 1.2}}]
    assert findings(template) == []


def test_the_function_that_empties_it_logs_where_the_stack_owns_and_nowhere_else() -> None:
    template = synth(lambda s: (TrnBucket(s, "One"), TrnBucket(s, "Two")))
    [group] = resources(template, "Logs::LogGroup")
    assert resources(template, "Logs::LogGroup")[group]["DeletionPolicy"] == "Delete"
    [function] = resources(template, "Lambda::Function")
    assert only(template, "Lambda::Function")["LoggingConfig"] == {"LogGroup": {"Ref": group}}
    assert group in needs(template, function), "the group must outlive the function"
    role = only(template, "IAM::Role")
    assert role["ManagedPolicyArns"] == []
    assert "CreateLogGroup" not in json.dumps(role)


@pytest.mark.parametrize(
    ("removal_policy", "policy"), [(RemovalPolicy.DESTROY, "Delete"), (RemovalPolicy.RETAIN, "Retain")]
)
def test_what_becomes_of_the_objects(removal_policy: RemovalPolicy, policy: str) -> None:
    template = synth(lambda s: TrnBucket(s, "Bucket", removal_policy=removal_policy))
    [bucket] = resources(template, "S3::Bucket").values()
    assert bucket["DeletionPolicy"] == policy
    assert len(properties(template, "Lambda::Function")) == (1 if policy == "Delete" else 0)
    assert findings(template) == []
