"""`TrnBucket`: the stack's own bucket."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import CfnResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from trainium_cdk.functions import own_logs

ACCESS_LOGS = "access-logs/"
_ACCESS_LOG_DAYS = 90
_OLD_VERSION_DAYS = 30
_EMPTIER = "Custom::S3AutoDeleteObjectsCustomResourceProvider"


class TrnBucket(Construct):
    """A private bucket for what jobs need and leave: TLS only, encrypted, versioned, its own access log.

    `cdk destroy` empties it first, with the CDK's own function for that; the log group of the function is the stack's, and is
    deleted with it.

    Example:
        bucket = TrnBucket(self, "Files", expiration={"payloads/": Duration.days(30)})
        bucket.grant_read_write(role)

    Args:
        expiration: How long objects live, by prefix, and as long again as an old version, 30 days at most. Default: objects
            stay.
        removal_policy: What becomes of the bucket, objects and all, on `cdk destroy`. Default: DESTROY.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        expiration: Mapping[str, Duration] | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
    ) -> None:
        super().__init__(scope, id)
        expire = {**(expiration or {}), ACCESS_LOGS: Duration.days(_ACCESS_LOG_DAYS)}
        delete = removal_policy == RemovalPolicy.DESTROY
        bucket = s3.Bucket(
            self,
            "Resource",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            encryption=s3.BucketEncryption.S3_MANAGED,  # the only kind that a bucket of access logs may have
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    noncurrent_version_expiration=Duration.days(_OLD_VERSION_DAYS),
                    abort_incomplete_multipart_upload_after=Duration.days(7),
                ),
                *(
                    s3.LifecycleRule(
                        prefix=prefix,
                        expiration=after,
                        noncurrent_version_expiration=Duration.days(min(after.to_days(), _OLD_VERSION_DAYS)),
                    )
                    for prefix, after in expire.items()
                ),
            ],
            auto_delete_objects=delete,
            removal_policy=removal_policy,
        )
        self._log_access(bucket)
        if delete:
            _own_the_emptiers_logs(Stack.of(self))
        self.bucket: s3.IBucket = bucket
        """The bucket, for any construct of the CDK."""

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an identity list and read the objects."""
        return self.bucket.grant_read(grantee)

    def grant_read_write(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an identity list, read, write and delete the objects."""
        return self.bucket.grant_read_write(grantee)

    def _log_access(self, bucket: s3.Bucket) -> None:
        # By bucket policy: the CDK's own way needs an access control list, or a feature flag that a foreign app may not have
        resource = bucket.node.default_child
        assert isinstance(resource, s3.CfnBucket)  # noqa: S101  what the CDK's Bucket is made of
        resource.logging_configuration = s3.CfnBucket.LoggingConfigurationProperty(log_file_prefix=ACCESS_LOGS)
        bucket.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AccessLog",
                principals=[iam.ServicePrincipal("logging.s3.amazonaws.com")],
                actions=["s3:PutObject"],
                resources=[bucket.arn_for_objects(f"{ACCESS_LOGS}*")],
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            )
        )


def _own_the_emptiers_logs(stack: Stack) -> None:
    """Give the function that empties buckets (one for each stack) a log group of the stack, and no right to make another."""
    provider = stack.node.find_child(_EMPTIER)
    if provider.node.try_find_child("Logs"):
        return
    function, role = provider.node.find_child("Handler"), provider.node.find_child("Role")
    # the CDK's provider is made of plain resources
    assert isinstance(provider, Construct)  # noqa: S101
    assert isinstance(function, CfnResource)  # noqa: S101
    assert isinstance(role, CfnResource)  # noqa: S101
    own_logs(provider, function, role)
