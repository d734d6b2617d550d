"""Permissions of jobs in buckets."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from trainium_cdk.outputs.contract import JOB_FILES


def job_file_statements(
    partition: str, bucket: str = "", data_buckets: Sequence[str] = ()
) -> list[iam.PolicyStatement]:
    """Reading and writing the jobs' own prefix of the stack's bucket, and all objects of other buckets.

    The rest of the stack's bucket has files that run with more permissions than a job: scripts of nodes, sources of images.

    Args:
        bucket: name of the stack's bucket. Default: none.
        data_buckets: names of buckets that belong to the jobs as a whole.
    """
    found: list[iam.PolicyStatement] = []
    data = [f"arn:{partition}:s3:::{name}" for name in data_buckets]
    if bucket:
        own = f"arn:{partition}:s3:::{bucket}"
        condition = {"StringLike": {"s3:prefix": [f"{JOB_FILES}*"]}}
        found.append(
            iam.PolicyStatement(sid="ListJobFiles", actions=["s3:ListBucket"], resources=[own], conditions=condition)
        )
        found.append(_objects("JobFiles", [f"{own}/{JOB_FILES}*"]))
    if data:
        found.append(iam.PolicyStatement(sid="ListData", actions=["s3:ListBucket"], resources=data))
        found.append(_objects("Data", [f"{arn}/*" for arn in data]))
    return found


def grant_keys(grantee: iam.IGrantable, *buckets: s3.IBucket | None, write: bool = False) -> list[iam.Grant]:
    """Use of the buckets' own keys (SSE-KMS with a key of the caller's), without which their objects cannot be read.

    Args:
        write: also to write objects.
    """
    keys = [key for bucket in buckets if bucket and (key := bucket.encryption_key)]
    return [key.grant_encrypt_decrypt(grantee) if write else key.grant_decrypt(grantee) for key in keys]


def _objects(sid: str, resources: list[str]) -> iam.PolicyStatement:
    actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    return iam.PolicyStatement(sid=sid, actions=actions, resources=resources)
