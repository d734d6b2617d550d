"""`TrnBucket`: private, and deleted completely where the removal policy requires it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import Duration, RemovalPolicies, RemovalPolicy, Stack
from aws_cdk.assertions import Template

from tests.cdk import app, findings, needs, only, properties, resources, synth
from trainium_cdk.cdk.bucket import TrnBucket
from trainium_cdk.cdk.deployment.emptied_bucket import EMPTIED, TAG
from trainium_cdk.cdk.registry import TrnRegistry


def test_access_needs_tls_and_the_own_account() -> None:
    template = synth(lambda s: TrnBucket(s, "Bucket", expiration={"payloads/": Duration.days(30)}))
    buckets = properties(template, "S3::Bucket")
    for found in buckets:
        assert set(found["PublicAccessBlockConfiguration"].values()) == {True}
        assert found["VersioningConfiguration"] == {"Status": "Enabled"}
        assert found["NotificationConfiguration"] == {"EventBridgeConfiguration": {"EventBridgeEnabled": True}}
    expiring = [
        {
            r.get("Prefix"): r["ExpirationInDays"]
            for r in found["LifecycleConfiguration"]["Rules"]
            if "ExpirationInDays" in r
        }
        for found in buckets
    ]
    assert sorted(expiring, key=str) == [{"payloads/": 30}, {None: 90}]
    for policy in properties(template, "S3::BucketPolicy"):
        denied = [s["Condition"] for s in policy["PolicyDocument"]["Statement"] if s["Effect"] == "Deny"]
        assert denied == [{"Bool": {"aws:SecureTransport": "false"}}, {"NumericLessThan": {"s3:TlsVersion": 1.2}}]
    assert findings(template) == []


def test_access_logs_are_written_by_s3_for_these_buckets_alone_and_elsewhere() -> None:
    template = synth(lambda s: TrnBucket(s, "Bucket"))
    buckets = resources(template, "S3::Bucket")
    [logs] = [
        name for name, b in buckets.items() if "DestinationBucketName" not in b["Properties"]["LoggingConfiguration"]
    ]
    [source] = set(buckets) - {logs}
    # S3 delivers access logs to no bucket with an object lock
    assert [name for name, b in buckets.items() if "ObjectLockEnabled" in b["Properties"]] == [source]
    assert "ObjectLockConfiguration" not in buckets[source]["Properties"], "no object is locked by default"
    assert buckets[source]["Properties"]["LoggingConfiguration"]["DestinationBucketName"] == {"Ref": logs}
    writers = {
        policy["Bucket"]["Ref"]: [
            (s["Resource"]["Fn::Join"][1][1], s["Condition"]["ArnLike"]["aws:SourceArn"]["Fn::GetAtt"][0])
            for s in policy["PolicyDocument"]["Statement"]
            if s["Principal"] == {"Service": "logging.s3.amazonaws.com"}
        ]
        for policy in properties(template, "S3::BucketPolicy")
    }
    assert writers == {source: [], logs: [("/objects/*", source), ("/access-logs/*", logs)]}


def test_the_function_that_empties_them_may_empty_only_these_and_leaves_no_log_group() -> None:
    template = synth(lambda s: (TrnBucket(s, "One"), TrnBucket(s, "Two")))
    [group] = resources(template, "Logs::LogGroup")
    assert resources(template, "Logs::LogGroup")[group]["DeletionPolicy"] == "Delete"
    [function] = resources(template, "Lambda::Function")
    assert only(template, "Lambda::Function")["LoggingConfig"] == {"LogGroup": {"Ref": group}}
    assert group in needs(template, function), "the group must outlive the function"
    may = only(template, "IAM::ManagedPolicy")["PolicyDocument"]["Statement"]
    assert [s["Action"] for s in may] == [["logs:CreateLogStream", "logs:PutLogEvents"]]
    policies = resources(template, "S3::BucketPolicy")
    emptied = template.find_resources("Custom::TrnEmptiedBucket")
    assert len(emptied) == len(policies) == 4
    assert {r["Properties"]["Bucket"]["Ref"] for r in emptied.values()} == set(resources(template, "S3::Bucket"))
    for resource in emptied.values():
        [policy] = set(resource["DependsOn"]) & set(policies)
        assert policies[policy]["Properties"]["Bucket"] == resource["Properties"]["Bucket"]


@pytest.mark.parametrize(
    ("removal_policy", "policy"), [(RemovalPolicy.DESTROY, "Delete"), (RemovalPolicy.RETAIN, "Retain")]
)
def test_removal_of_the_objects(removal_policy: RemovalPolicy, policy: str) -> None:
    template = synth(lambda s: TrnBucket(s, "Bucket", removal_policy=removal_policy))
    assert {bucket["DeletionPolicy"] for bucket in resources(template, "S3::Bucket").values()} == {policy}
    assert len(properties(template, "Lambda::Function")) == (1 if policy == "Delete" else 0)
    assert findings(template) == []


def keep_all(scope: Stack, bucket: TrnBucket) -> None:
    RemovalPolicies.of(scope).retain(apply_to_resource_types=["AWS::S3::Bucket"])


def keep_one(scope: Stack, bucket: TrnBucket) -> None:
    bucket.bucket.apply_removal_policy(RemovalPolicy.RETAIN)


@pytest.mark.parametrize(("keep", "kept"), [(keep_all, 2), (keep_one, 1)])
def test_a_bucket_that_the_app_keeps_is_not_emptied(keep: Callable[[Stack, TrnBucket], None], kept: int) -> None:
    """An aspect decides after the construct: the function goes by the tag, which is written last."""
    template = synth(lambda scope: keep(scope, TrnBucket(scope, "Bucket")))
    buckets = resources(template, "S3::Bucket").values()
    assert sorted(b["DeletionPolicy"] for b in buckets) == sorted(["Retain"] * kept + ["Delete"] * (2 - kept))
    for bucket in buckets:
        [tag] = (t["Value"] for t in bucket["Properties"]["Tags"] if t["Key"] == TAG)
        assert (tag == EMPTIED) is (bucket["DeletionPolicy"] == "Delete")


def test_the_app_may_delete_what_was_to_stay() -> None:
    """`RemovalPolicies.of(app).destroy()` over buckets and images that stay: both are emptied, as with DESTROY."""

    def made(policy: RemovalPolicy, *, destroyed: bool) -> dict[str, Any]:
        found = app()
        stack = Stack(found, "Test")
        TrnBucket(stack, "Files", removal_policy=policy)
        TrnRegistry(stack, "Registry", removal_policy=policy)
        if destroyed:
            RemovalPolicies.of(found).destroy()
        resources: dict[str, Any] = Template.from_stack(stack).to_json()["Resources"]
        return resources

    later, kept = made(RemovalPolicy.RETAIN, destroyed=True), made(RemovalPolicy.RETAIN, destroyed=False)
    assert later == made(RemovalPolicy.DESTROY, destroyed=True)
    assert [r["Properties"]["EmptyOnDelete"] for r in later.values() if r["Type"] == "AWS::ECR::Repository"] == [True]
    assert len([r for r in later.values() if r["Type"] == "Custom::TrnEmptiedBucket"]) == 2
    assert not [r for r in kept.values() if r["Type"] == "Custom::TrnEmptiedBucket"]
