"""`TrnBucket`: private, and gone without a trace when asked to go."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cdk import findings, needs, only, properties, resources, synth
from trainium_cdk.bucket import TrnBucket


def test_nobody_reads_it_in_the_clear_or_from_outside() -> None:
    template = synth(lambda s: TrnBucket(s, "Bucket", expire_days={"payloads/": 30}))
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


@pytest.mark.parametrize(("on_destroy", "policy"), [("delete", "Delete"), ("keep", "Retain")])
def test_what_becomes_of_the_objects(on_destroy: Any, policy: str) -> None:
    template = synth(lambda s: TrnBucket(s, "Bucket", on_destroy=on_destroy))
    [bucket] = resources(template, "S3::Bucket").values()
    assert bucket["DeletionPolicy"] == policy
    assert len(properties(template, "Lambda::Function")) == (1 if on_destroy == "delete" else 0)
    assert findings(template) == []
