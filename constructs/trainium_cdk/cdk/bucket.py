"""`TrnBucket`: the stack's own bucket."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import jsii
from aws_cdk import Aspects, CfnDeletionPolicy, Duration, IAspect, IStableStringProducer, Lazy, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct, IConstruct

from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.custom_resources import custom_resource, deployment_function
from trainium_cdk.cdk.helpers.functions import l1
from trainium_cdk.cdk.helpers.permissions import allow, objects_arn, service_of_account
from trainium_cdk.cdk.helpers.stack_wide import once, share
from trainium_cdk.cdk.helpers.types import AnyKey

ACCESS_LOG_DAYS = 90
TAG, EMPTIED = "trainium-cdk:empty-on-delete", "yes"
"""As in `deployment/emptied_bucket.py`, which runs where boto3 is."""
_OLD_VERSION_DAYS = 30
_EMPTYING_MINUTES = 60
_LAST = 1000
"""Priority of an aspect that runs after the app's."""
_OBJECTS, _OWN = "objects/", "access-logs/"


class TrnBucket(Checked):
    """A private bucket for what jobs need and leave: TLS only, encrypted, versioned; and a second one for the access logs of both,
    where only S3 writes.

    Versions can be given a legal hold or a retention (object lock), and none has one by default: `cdk destroy` fails at an object that
    has. EventBridge gets an event for each new and deleted object (1 USD per million; EventBridge pricing, 2026-11), for rules that start
    what follows a checkpoint.

    `cdk destroy` empties them first, unless an aspect of the app or `apply_removal_policy` has decided that they stay. No update does, unlike with the CDK's `auto_delete_objects`, whose function takes any change of its
    resource for another bucket.

    Example:
        bucket = TrnBucket(self, "Files", expiration={"payloads/": Duration.days(30)})
        bucket.grant_read_write(role)

    Args:
        expiration: How long objects live, by prefix, and as long again as an old version, 30 days at most. Default: objects
            stay.
        bucket_name: Your own name for it, or `PhysicalName.GENERATE_IF_NEEDED`: another account needs one. Default: CloudFormation's.
        encryption_key: Key of the objects: another account needs one. Default: the key AWS manages for S3.
        removal_policy: What becomes of the buckets, objects and all, on `cdk destroy`. Default: DESTROY.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        expiration: Mapping[str, Duration] | None = None,
        bucket_name: str | None = None,
        encryption_key: AnyKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
    ) -> None:
        super().__init__(scope, id)
        self._removal_policy = removal_policy
        # S3 delivers access logs to no bucket with a key of KMS's
        logs = self._private("AccessLogs", {"": Duration.days(ACCESS_LOG_DAYS)}, s3.BucketEncryption.S3_MANAGED)
        encryption = s3.BucketEncryption.KMS if encryption_key else s3.BucketEncryption.KMS_MANAGED
        bucket = self._private(
            "Resource", expiration or {}, encryption, object_lock=True, name=bucket_name, key=encryption_key
        )
        self._log_access(logs, {_OBJECTS: bucket, _OWN: logs})
        for each in (logs, bucket):
            if removal_policy == RemovalPolicy.DESTROY:
                _empty_when_deleted(each)
            else:
                Aspects.of(each).add(_EmptiedAfterAll(each), priority=_LAST)
        self.bucket: s3.IBucket = bucket
        """The bucket, for any construct of the CDK."""

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an identity list and read the objects."""
        return self.bucket.grant_read(grantee)

    def grant_read_write(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an identity list, read, write and delete the objects."""
        return self.bucket.grant_read_write(grantee)

    def _private(
        self,
        id: str,
        expiration: Mapping[str, Duration],
        encryption: s3.BucketEncryption,
        *,
        object_lock: bool = False,
        name: str | None = None,
        key: AnyKey | None = None,
    ) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            id,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            bucket_name=name,
            encryption=encryption,
            encryption_key=key,
            bucket_key_enabled=encryption is not s3.BucketEncryption.S3_MANAGED or None,
            versioned=True,
            object_lock_enabled=object_lock or None,
            lifecycle_rules=[
                s3.LifecycleRule(
                    noncurrent_version_expiration=_days(_OLD_VERSION_DAYS),
                    abort_incomplete_multipart_upload_after=_days(7),
                ),
                *(
                    s3.LifecycleRule(
                        prefix=prefix or None,
                        expiration=after,
                        noncurrent_version_expiration=_days(min(after.to_days(), _OLD_VERSION_DAYS)),
                    )
                    for prefix, after in expiration.items()
                ),
            ],
            removal_policy=self._removal_policy,
        )
        share(self, bucket, "stack")
        # Not by the CDK's `event_bridge_enabled`, which needs a function
        l1(bucket, s3.CfnBucket).notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(event_bridge_enabled=True)
        )
        return bucket

    def _log_access(self, logs: s3.Bucket, sources: Mapping[str, s3.Bucket]) -> None:
        # By bucket policy: the CDK's own way needs an access control list, or a feature flag that a foreign app may not have
        service = service_of_account(self, "logging.s3.amazonaws.com")
        statements = []
        for prefix, source in sources.items():
            l1(source, s3.CfnBucket).logging_configuration = s3.CfnBucket.LoggingConfigurationProperty(
                destination_bucket_name=once(logs, "bucket_name") if source is not logs else None,
                log_file_prefix=prefix,
            )
            of_source = {"ArnLike": {"aws:SourceArn": once(source, "bucket_arn")}}
            objects = objects_arn(logs, f"{prefix}*")
            statements.append(allow(objects, "s3:PutObject", to=service, conditions=of_source))
        _policy_of(logs).document.add_statements(*statements)


@jsii.implements(IStableStringProducer)
class _Emptied:
    """The tag's value, decided when the template is written: the app may have changed the bucket's removal policy since."""

    def __init__(self, bucket: s3.CfnBucket) -> None:
        self._bucket = bucket

    def produce(self) -> str:
        return EMPTIED if self._bucket.cfn_options.deletion_policy == CfnDeletionPolicy.DELETE else "no"


@jsii.implements(IAspect)
class _EmptiedAfterAll:
    """Empties a bucket that an aspect of the app lets `cdk destroy` delete."""

    def __init__(self, bucket: s3.Bucket) -> None:
        self._bucket: s3.Bucket | None = bucket

    def visit(self, node: IConstruct) -> None:
        bucket = self._bucket
        if bucket and isinstance(node, s3.CfnBucket) and node.cfn_options.deletion_policy == CfnDeletionPolicy.DELETE:
            self._bucket = None
            _empty_when_deleted(bucket)


def _policy_of(bucket: s3.Bucket) -> s3.BucketPolicy:
    policy = once(bucket, "policy")
    assert isinstance(policy, s3.BucketPolicy)  # noqa: S101  it has a statement: TLS only
    return policy


@cache
def _days(number: float) -> Duration:
    return Duration.days(number)


def _empty_when_deleted(bucket: s3.Bucket) -> None:
    resource = l1(bucket, s3.CfnBucket)
    resource.tags.set_tag(TAG, Lazy.string(_Emptied(resource)))
    function = deployment_function(bucket)
    of_bucket = ("s3:GetBucketPolicy", "s3:GetBucketTagging", "s3:ListBucketVersions", "s3:PutBucketPolicy")
    of_objects = ("s3:DeleteObject", "s3:DeleteObjectVersion")
    arn: str = once(bucket, "bucket_arn")
    policy = _policy_of(bucket)
    policy.document.add_statements(
        allow(arn, *of_bucket, to=function.role), allow(objects_arn(bucket, "*"), *of_objects, to=function.role)
    )
    custom_resource(
        bucket,
        "Emptied",
        kind="TrnEmptiedBucket",
        properties={"Bucket": once(bucket, "bucket_name")},
        minutes=_EMPTYING_MINUTES,
    ).node.add_dependency(policy)
