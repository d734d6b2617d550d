"""Encryption with a customer-managed key: one key for everything in a stack that supports one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aws_cdk import CfnResource, ConstructSelector, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct, IConstruct

from trainium_cdk._cdk.custom_resources import DEPLOYMENT_FUNCTION
from trainium_cdk._cdk.permissions import allow
from trainium_cdk._cdk.removal import OnDestroy, removal_policy

Setter = Callable[[CfnResource, str], None]
_USE = ("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*")
VOLUME_USE = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
AUTO_SCALING_ROLE = "aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
"""Path of the role with which Auto Scaling starts nodes. KMS rejects a key policy with a role that does not exist."""
PCS_ROLE = "aws-service-role/pcs.amazonaws.com/AWSServiceRoleForPCS"
"""Path of the role with which AWS PCS starts nodes."""


class TrnKey(Construct):
    """A key with a policy for CloudWatch Logs and, where Auto Scaling starts nodes, for their volumes.

    Everything else (S3, EFS, FSx, ECR, Lambda, EKS) uses a key with the permissions of the caller: the account's IAM policies
    decide, as for any key.

    Args:
        description: what the key is for.
        auto_scaling: whether Auto Scaling starts nodes whose volumes have this key (on EKS). Its service-linked role must exist.
            Default: no.
        pcs: the same for AWS PCS. Default: no.
        grants: whether grants can be created, with which most services use a key. Logs and queues need none. Default: yes.
        on_destroy: for the key on `cdk destroy`. Without the key, encrypted data that is kept cannot be read. Default:
            deleted, after KMS's waiting period of 30 days.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        description: str,
        auto_scaling: bool = False,
        pcs: bool = False,
        grants: bool = True,
        on_destroy: OnDestroy = "delete",
    ) -> None:
        super().__init__(scope, id)
        key = own_key(self, "Resource", description, removal_policy(on_destroy))
        if auto_scaling:
            _allow_volumes(key, AUTO_SCALING_ROLE)
        if pcs:
            _allow_volumes(key, PCS_ROLE)
        if not grants:
            _deny_grants(key)
        self.key: kms.IKey = key
        """The key, for any construct of the CDK."""


def stack_key(
    scope: Construct,
    encryption: str,
    *,
    description: str,
    auto_scaling: bool = False,
    pcs: bool = False,
    on_destroy: OnDestroy = "delete",
) -> kms.IKey | None:
    """The key for an environment's `encryption`: none, a new one, or the given one."""
    if encryption == "aws-managed":
        return None
    if encryption == "customer-key":
        return TrnKey(
            scope, "Key", description=description, auto_scaling=auto_scaling, pcs=pcs, on_destroy=on_destroy
        ).key
    return kms.Key.from_key_arn(scope, "Key", encryption)


def own_key(scope: Construct, id: str, description: str, removal_policy: RemovalPolicy) -> kms.Key:
    """A key with which CloudWatch Logs encrypts log groups of this account and region."""
    key = kms.Key(scope, id, description=description, enable_key_rotation=True, removal_policy=removal_policy)
    stack = Stack.of(key)
    groups = f"arn:{stack.partition}:logs:{stack.region}:{stack.account}:log-group:*"
    service = iam.ServicePrincipal(f"logs.{stack.region}.{stack.url_suffix}")
    of_groups = {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}}
    key.add_to_resource_policy(allow("*", *_USE, sid="Logs", to=service, conditions=of_groups))
    return key


def _deny_grants(key: kms.Key) -> None:
    # Except those that a service creates for its own resource
    neither = {"aws:PrincipalIsAWSService": "false", "kms:GrantIsForAWSResource": "false"}
    key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="NoGrants",
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=["kms:CreateGrant"],
            resources=["*"],
            conditions={"BoolIfExists": neither},
        )
    )


def _allow_volumes(key: kms.Key, path: str) -> None:
    stack = Stack.of(key)
    role = iam.ArnPrincipal(f"arn:{stack.partition}:iam::{stack.account}:role/{path}")
    for_volumes = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    key.add_to_resource_policy(allow("*", *_USE, sid="VolumesOfNodes", to=role))
    grant = allow("*", "kms:CreateGrant", sid="VolumesOfNodesAttached", to=role, conditions=for_volumes)
    key.add_to_resource_policy(grant)


def volume_statements(scope: Construct, keys: Sequence[str]) -> list[iam.PolicyStatement]:
    """Starting instances whose volumes have these keys, and attaching such volumes (EBS user guide, requirements for encryption).

    Args:
        keys: ARNs. None: no statements.
    """
    if not keys:
        return []
    stack = Stack.of(scope)
    through_ec2 = {"StringEquals": {"kms:ViaService": f"ec2.{stack.region}.{stack.url_suffix}"}}
    for_volumes = {**through_ec2, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    return [
        allow(keys, *VOLUME_USE, sid="KeysOfVolumes", conditions=through_ec2),
        allow(keys, "kms:CreateGrant", sid="KeysOfVolumesAttached", conditions=for_volumes),
    ]


def encrypt_operations(scope: IConstruct, key: kms.IKey) -> None:
    """Encrypt operational resources below `scope`: log groups, variables of functions, builds. Call it last.

    Args:
        key: its policy lets CloudWatch Logs use it.
    """
    _set(scope, _OPERATIONS, key)


def encrypt(scope: IConstruct, key: kms.IKey, *, users: Sequence[iam.IGrantable] = ()) -> None:
    """Encrypt everything below `scope` that CloudFormation can encrypt with a key: log groups, buckets, repositories, file systems,
    volumes, variables of functions, builds. Call it last.

    Args:
        users: readers and writers of the stack's bucket: they may use the key, only through S3.
    """
    _set(scope, _EVERYTHING, key)
    stack = Stack.of(scope)
    through_s3 = {"StringEquals": {"kms:ViaService": f"s3.{stack.region}.{stack.url_suffix}"}}
    for user in users:
        user.grant_principal.add_to_principal_policy(
            allow(key.key_arn, "kms:Decrypt", "kms:GenerateDataKey", sid="KeyOfTheBucket", conditions=through_s3)
        )


def _set(scope: IConstruct, setters: Mapping[str, Setter], key: kms.IKey) -> None:
    arn = key.key_arn
    for kind, setter in setters.items():
        for resource in ConstructSelector.resources_of_type(kind).select(scope):
            assert isinstance(resource, CfnResource)  # noqa: S101  what the selector selects
            setter(resource, arn)


def _property(path: str) -> Setter:
    return lambda resource, arn: resource.add_property_override(path, arn)


def _bucket(resource: CfnResource, arn: str) -> None:
    logging = resource.logging_configuration if isinstance(resource, s3.CfnBucket) else None
    if isinstance(logging, s3.CfnBucket.LoggingConfigurationProperty) and not logging.destination_bucket_name:
        return  # S3 does not deliver access logs to a bucket with a KMS key
    rule = {
        "BucketKeyEnabled": True,
        "ServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": arn},
    }
    resource.add_property_override("BucketEncryption.ServerSideEncryptionConfiguration", [rule])


def _lustre(resource: CfnResource, arn: str) -> None:
    lustre = resource.lustre_configuration if isinstance(resource, fsx.CfnFileSystem) else None
    if isinstance(lustre, fsx.CfnFileSystem.LustreConfigurationProperty) and lustre.deployment_type == "SCRATCH_2":
        return  # which always has FSx's own key
    resource.add_property_override("KmsKeyId", arn)


def _template(resource: CfnResource, arn: str) -> None:
    data = resource.launch_template_data if isinstance(resource, ec2.CfnLaunchTemplate) else None
    if isinstance(data, ec2.CfnLaunchTemplate.LaunchTemplateDataProperty) and data.block_device_mappings:
        resource.add_property_override("LaunchTemplateData.BlockDeviceMappings.0.Ebs.KmsKeyId", arn)


def _function(resource: CfnResource, arn: str) -> None:
    if f"/{DEPLOYMENT_FUNCTION}/" in resource.node.path:
        return  # which has no variables: Lambda encrypts nothing else with this key, but would create a grant
    resource.add_property_override("KmsKeyArn", arn)


def _repository(resource: CfnResource, arn: str) -> None:
    resource.add_property_override("EncryptionConfiguration", {"EncryptionType": "KMS", "KmsKey": arn})


_OPERATIONS: dict[str, Setter] = {
    "AWS::CodeBuild::Project": _property("EncryptionKey"),
    "AWS::Lambda::Function": _function,
    "AWS::Logs::LogGroup": _property("KmsKeyId"),
}
_EVERYTHING: dict[str, Setter] = {
    **_OPERATIONS,
    "AWS::EC2::LaunchTemplate": _template,
    "AWS::EC2::Instance": _property("BlockDeviceMappings.0.Ebs.KmsKeyId"),
    "AWS::ECR::Repository": _repository,
    "AWS::EFS::FileSystem": _property("KmsKeyId"),
    "AWS::FSx::FileSystem": _lustre,
    "AWS::S3::Bucket": _bucket,
}
