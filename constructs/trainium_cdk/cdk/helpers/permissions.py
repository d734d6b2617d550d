"""Policy statements, and who may assume a role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from trainium_cdk.cdk.helpers.acknowledged import acknowledge_wildcards
from trainium_cdk.cdk.helpers.stack_wide import once, place_of, stack_wide
from trainium_cdk.description.outputs.contract import CODE, JOB_FILES, PAYLOADS, RESPONSES

_PUBLIC_REGISTRY = "us-east-1"
_OBJECTS = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
_USE = ("kms:Decrypt", "kms:GenerateDataKey")
PULL_THROUGH = ("ecr:BatchImportUpstreamImage", "ecr:CreateRepository")
"""Permissions for the first pull through an ECR pull-through cache, in addition to pulling (ECR user guide, pull-through-cache-iam, 2026-11)."""


def allow(
    resources: str | Sequence[str],
    *actions: str,
    sid: str | None = None,
    conditions: Mapping[str, Any] | None = None,
    to: iam.IPrincipal | None = None,
) -> iam.PolicyStatement:
    """A statement that allows actions on resources.

    Args:
        to: In the policy of a resource, who may. Default: none: in the policy of a role, the role.
    """
    arns = [resources] if isinstance(resources, str) else list(resources)
    principals = [to] if to else None
    return iam.PolicyStatement(
        sid=sid, actions=list(actions), resources=arns, conditions=conditions, principals=principals
    )


def service_of_account(scope: Construct, service: str) -> iam.ServicePrincipal:
    """An AWS service, acting for a resource of the stack's own account and no other.

    For services that report the resource for which they act: CodeBuild, EKS and VPC flow logs (see "confused deputy" in their user
    guides). EC2 and Lambda, whose roles can only be passed within the account, document no such condition.

    Args:
        service: its principal, for example `codebuild.amazonaws.com`.
    """
    return iam.ServicePrincipal(service, conditions={"StringEquals": {"aws:SourceAccount": place_of(scope).account}})


def job_file_statements(
    partition: str, bucket: str = "", data_buckets: Sequence[str] = (), *, folder: str = ""
) -> list[iam.PolicyStatement]:
    """Reading and writing the jobs' own prefix of the stack's bucket, and all objects of other buckets.

    The rest of the stack's bucket has files that run with more permissions than a job: scripts of nodes, sources of images.

    Args:
        bucket: name of the stack's bucket. Default: none.
        data_buckets: names of buckets that belong to the jobs as a whole.
        folder: only this one in the jobs' own prefix. Default: all of that.
    """
    files = f"{JOB_FILES}{folder}/" if folder else JOB_FILES
    found: list[iam.PolicyStatement] = []
    if bucket:
        own = f"arn:{partition}:s3:::{bucket}"
        found.append(allow(own, "s3:ListBucket", sid="ListJobFiles", conditions=_below(files)))
        found.append(allow(f"{own}/{files}*", *_OBJECTS, sid="JobFiles"))
        if folder:  # workdirs are there by the digests of what is in them, and not listed
            found.append(allow(f"{own}/{CODE}/*", "s3:GetObject", sid="Code"))
    if data := [f"arn:{partition}:s3:::{name}" for name in data_buckets]:
        found.append(allow(data, "s3:ListBucket", sid="ListData"))
        found.append(allow([f"{arn}/*" for arn in data], *_OBJECTS, sid="Data"))
        # their keys are not known here: S3 asks KMS for objects that this identity may read or write, and for no others
        keys = f"arn:{partition}:kms:*:*:key/*"
        found.append(allow(keys, *_USE, sid="KeysOfData", conditions={"StringLike": {"kms:ViaService": "s3.*"}}))
    return found


def _below(files: str) -> Mapping[str, Any]:
    return {"StringLike": {"s3:prefix": [f"{files}*"]}}


def address_statements(partition: str, addresses: Sequence[str]) -> list[iam.PolicyStatement]:
    """Reading and writing below addresses in S3, `s3://BUCKET/PREFIX` or `s3://BUCKET`, and nowhere else in buckets. These may have any region and key.

    Raises:
        ValueError: an address does not begin with `s3://`.
    """
    found: list[iam.PolicyStatement] = []
    objects: dict[str, str] = {}
    for address in addresses:
        if not address.startswith("s3://"):
            raise ValueError(f"{address} is not an address in S3. Fix: write s3://BUCKET/PREFIX")
        bucket, _, prefix = address.removeprefix("s3://").rstrip("/").partition("/")
        arn, below = f"arn:{partition}:s3:::{bucket}", f"{prefix}/*" if prefix else "*"
        only = {"StringLike": {"s3:prefix": [prefix, below]}} if prefix else None
        found.append(allow(arn, "s3:ListBucket", conditions=only))
        objects[f"{arn}/{below}"] = arn
    if objects:
        # a request for the region has no prefix: s3:ListBucket, which HeadBucket needs, would not allow it
        found.append(allow(list(dict.fromkeys(objects.values())), "s3:GetBucketLocation"))
        found.append(allow([*objects], *_OBJECTS, "s3:ListMultipartUploadParts"))
        # S3 names the object to KMS, or the bucket if that has a bucket key (S3 user guide, UsingKMSEncryption, 2026-11)
        named = list(dict.fromkeys((*objects.values(), *objects)))
        of = {"kms:ViaService": "s3.*", "kms:EncryptionContext:aws:s3:arn": named}
        found.append(allow(f"arn:{partition}:kms:*:*:key/*", *_USE, conditions={"StringLike": of}))
    return found


def grant_addresses(jobs: iam.Role, addresses: Sequence[str]) -> None:
    """Let the role of jobs read and write below addresses in S3, as in `address_statements`."""
    statements = address_statements(place_of(jobs).partition, addresses)
    for statement in statements:
        jobs.add_to_policy(statement)
    acknowledge_wildcards(jobs, statements)


def objects_arn(bucket: s3.IBucket, keys: str) -> str:
    """The ARN of objects, as of the CDK's `arn_for_objects`, which is a request for each."""
    return f"{once(bucket, 'bucket_arn')}/{keys}"


def code_stays(bucket: s3.IBucket) -> iam.PolicyStatement:
    """No job writes or deletes what others send of their workdirs, whatever else its role may do in the bucket: a submission does not send
    again what S3 has."""
    return iam.PolicyStatement(
        sid="CodeStays",
        effect=iam.Effect.DENY,
        actions=["s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion"],
        resources=[objects_arn(bucket, f"{CODE}/*")],
    )


def secret_key_statements(scope: Construct, secrets: Sequence[str]) -> list[iam.PolicyStatement]:
    """Use of the keys of secrets, which are not known here: only through Secrets Manager, which names the secret in what KMS is asked.

    Args:
        secrets: ARNs. None: no statements.
    """
    if not secrets:
        return []
    place = place_of(scope)
    conditions = {
        "StringEquals": {
            "kms:ViaService": f"secretsmanager.{place.region}.{place.url_suffix}",
            "kms:EncryptionContext:SecretARN": list(dict.fromkeys(secrets)),
        }
    }
    keys = f"arn:{place.partition}:kms:{place.region}:*:key/*"
    return [allow(keys, "kms:Decrypt", sid="KeysOfSecrets", conditions=conditions)]


def grant_keys(grantee: iam.IGrantable, *buckets: s3.IBucket | None, write: bool = False) -> list[iam.Grant]:
    """Use of the buckets' own keys (SSE-KMS with a key of the caller's), without which their objects cannot be read.

    Args:
        write: also to write objects.
    """
    keys = [key for bucket in buckets if bucket and (key := once(bucket, "encryption_key"))]
    return [key.grant_encrypt_decrypt(grantee) if write else key.grant_decrypt(grantee) for key in keys]


def grant_cluster_files(bucket: s3.IBucket, partition: str, entry: iam.IGrantable, jobs: iam.Role) -> list[iam.Grant]:
    """Let jobs on a Slurm cluster read and write their files in the stack's bucket, and the node where `trn` runs commands read what it
    sends, and store what it returns. With the bucket's key.

    Args:
        entry: the identity of that node.
    """
    own = f"arn:{partition}:s3:::{once(bucket, 'bucket_name')}"
    allowed: list[tuple[iam.IGrantable, str, Sequence[str], Mapping[str, Any] | None]] = [
        (entry, objects_arn(bucket, f"{PAYLOADS}*"), ("s3:GetObject", "s3:GetObjectVersion"), None),
        (entry, objects_arn(bucket, f"{RESPONSES}*"), ("s3:PutObject",), None),
        (jobs, own, ("s3:ListBucket",), _below(JOB_FILES)),
        (jobs, f"{own}/{JOB_FILES}*", _OBJECTS, None),
    ]
    jobs.add_to_policy(code_stays(bucket))
    return [
        *(
            iam.Grant.add_to_principal(grantee=to, actions=list(actions), resource_arns=[on], conditions=conditions)
            for to, on, actions, conditions in allowed
        ),
        *grant_keys(entry, bucket, write=True),
        *grant_keys(jobs, bucket, write=True),
    ]


def session_manager_statements(scope: Construct) -> list[iam.PolicyStatement]:
    """Permissions of a managed instance: to register and to exchange messages with Systems Manager, in the stack's region.

    AWS's managed policy for this, AmazonSSMManagedInstanceCore, also allows `ssm:GetParameter` and `ssm:GetParameters` on every
    parameter of the account, private SSH keys included.
    """
    statement = allow(
        "*",  # AWS accepts no narrower resource for the messages
        "ec2messages:AcknowledgeMessage",
        "ec2messages:DeleteMessage",
        "ec2messages:FailMessage",
        "ec2messages:GetEndpoint",
        "ec2messages:GetMessages",
        "ec2messages:SendReply",
        "ssm:UpdateInstanceInformation",
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
        sid="ManagedInstance",
        conditions={"StringEquals": {"aws:RequestedRegion": place_of(scope).region}},
    )
    return [statement]


def session_manager_policy(scope: Construct) -> iam.ManagedPolicy:
    """The one policy with these permissions for all roles of a stack."""

    def create(stack: Stack, id: str) -> iam.ManagedPolicy:
        what = "Session Manager and Run Command: the instance's side"
        statements = session_manager_statements(stack)
        policy = iam.ManagedPolicy(stack, id, description=what, statements=statements)
        acknowledge_wildcards(policy, statements)
        return policy

    return stack_wide(scope, "TrnManagedInstance", iam.ManagedPolicy, create)


def public_registry() -> list[iam.PolicyStatement]:
    """Logging in to AWS's public registry, which limits anonymous pulls. It issues its tokens in one region only."""
    region = {"StringEquals": {"aws:RequestedRegion": _PUBLIC_REGISTRY}}
    return [
        allow("*", "ecr-public:GetAuthorizationToken", conditions=region),
        # without a condition: conditions on the service's name were seen to reject the registry's own requests
        allow("*", "sts:GetServiceBearerToken"),
    ]
