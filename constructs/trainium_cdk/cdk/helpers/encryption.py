"""Keys of KMS, and the permissions to use them."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from trainium_cdk.cdk.helpers.permissions import allow
from trainium_cdk.cdk.helpers.stack_wide import place_of

USE = ("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*")
VOLUME_USE = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)


def own_key(scope: Construct, id: str, description: str, removal_policy: RemovalPolicy) -> kms.Key:
    """A key with which CloudWatch Logs encrypts log groups of this account and region."""
    key = kms.Key(scope, id, description=description, enable_key_rotation=True, removal_policy=removal_policy)
    place = place_of(scope)
    groups = f"arn:{place.partition}:logs:{place.region}:{place.account}:log-group:*"
    service = iam.ServicePrincipal(f"logs.{place.region}.{place.url_suffix}")
    of_groups = {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}}
    key.add_to_resource_policy(allow("*", *USE, sid="Logs", to=service, conditions=of_groups))
    return key


def volume_statements(scope: Construct, keys: Sequence[str]) -> list[iam.PolicyStatement]:
    """Starting instances whose volumes have these keys, and attaching such volumes (EBS user guide, requirements for encryption).

    Args:
        keys: ARNs. None: no statements.
    """
    if not keys:
        return []
    place = place_of(scope)
    through_ec2 = {"StringEquals": {"kms:ViaService": f"ec2.{place.region}.{place.url_suffix}"}}
    for_volumes = {**through_ec2, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    return [
        allow(keys, *VOLUME_USE, sid="KeysOfVolumes", conditions=through_ec2),
        allow(keys, "kms:CreateGrant", sid="KeysOfVolumesAttached", conditions=for_volumes),
    ]
