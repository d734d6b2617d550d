"""Your own key for everything in a stack that can have one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aws_cdk import CfnResource, ConstructSelector, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct, IConstruct

from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.custom_resources import DEPLOYMENT_FUNCTION
from trainium_cdk.cdk.helpers.encryption import USE, own_key
from trainium_cdk.cdk.helpers.permissions import allow
from trainium_cdk.cdk.helpers.removal import OnDestroy, removal_policy
from trainium_cdk.cdk.helpers.stack_wide import once, place_of
from trainium_cdk.cdk.helpers.types import AnyKey

Setter = Callable[[CfnResource, str], None]
AUTO_SCALING_ROLE = "aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
"""Path of the role with which Auto Scaling starts nodes. KMS rejects a key policy with a role that does not exist."""
PCS_ROLE = "aws-service-role/pcs.amazonaws.com/AWSServiceRoleForPCS"
"""Path of the role with which AWS PCS starts nodes."""


class TrnKey(Checked):
    """A key with a policy for CloudWatch Logs and, where Auto Scaling starts nodes, for their volumes.

    Everything else (S3, EFS, FSx, ECR, Lambda, EKS) uses a key with the permissions of the caller: the account's IAM policies
    decide, as for any key.

    Example:
        key = TrnKey(stack, "Key", description="Data of my stack", auto_scaling=True).key
        encrypt(stack, key)

    Args:
        description: What the key is for.
        auto_scaling: Whether Auto Scaling starts nodes whose volumes have this key (on EKS). Its service-linked role must exist.
            Default: no.
        pcs: The same for AWS PCS. Default: no.
        grants: Whether grants can be created, with which most services use a key. Logs need none. Default: yes.
        removal_policy: What becomes of the key on `cdk destroy`. Without it, encrypted data that is kept cannot be read. Default:
            DESTROY, after KMS's waiting period of 30 days.
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
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
    ) -> None:
        super().__init__(scope, id)
        key = own_key(self, "Resource", description, removal_policy)
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
        kept = removal_policy(on_destroy)
        return TrnKey(
            scope, "Key", description=description, auto_scaling=auto_scaling, pcs=pcs, removal_policy=kept
        ).key
    return kms.Key.from_key_arn(scope, "Key", encryption)


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
    place = place_of(key)
    role = iam.ArnPrincipal(f"arn:{place.partition}:iam::{place.account}:role/{path}")
    for_volumes = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    key.add_to_resource_policy(allow("*", *USE, sid="VolumesOfNodes", to=role))
    grant = allow("*", "kms:CreateGrant", sid="VolumesOfNodesAttached", to=role, conditions=for_volumes)
    key.add_to_resource_policy(grant)


def encrypt_operations(scope: IConstruct, key: AnyKey) -> None:
    """Encrypt log groups, variables of functions and builds below `scope` with a key. Call it last.

    Example:
        encrypt_operations(stack, TrnKey(stack, "LogsKey", description="Logs of my stack", grants=False).key)

    Args:
        scope: A stack, or any construct.
        key: Its policy lets CloudWatch Logs use it, as a `TrnKey`'s does.
    """
    _set(scope, _OPERATIONS, key)


def encrypt(scope: IConstruct, key: AnyKey, *, users: Sequence[iam.IGrantable] = ()) -> None:
    """Encrypt everything below `scope` that CloudFormation can encrypt with a key: log groups, buckets, repositories, file systems,
    declared volumes, variables of functions, builds. Call it last.

    It replaces keys that they have. Buckets that S3 delivers access logs to keep S3's own key, the only one that S3 can use there.

    Example:
        key = TrnKey(stack, "Key", description="Data of my stack").key
        encrypt(stack, key, users=[role])

    Args:
        scope: A stack, or any construct.
        key: Its policy lets CloudWatch Logs use it, as a `TrnKey`'s does.
        users: Readers and writers of the buckets: they may use the key, only through S3. Default: none.
    """
    _set(scope, _EVERYTHING, key, without=_log_destinations(scope))
    place, arn = place_of(scope), key.key_arn
    through_s3 = {"StringEquals": {"kms:ViaService": f"s3.{place.region}.{place.url_suffix}"}}
    for user in users:
        user.grant_principal.add_to_principal_policy(
            allow(arn, "kms:Decrypt", "kms:GenerateDataKey", sid="KeyOfTheBucket", conditions=through_s3)
        )


def _log_destinations(scope: IConstruct) -> list[object]:
    """Names of the buckets with access logs. S3 does not deliver these to a bucket with a KMS key."""
    found: list[object] = []
    for bucket in ConstructSelector.resources_of_type("AWS::S3::Bucket").select(scope):
        logging = bucket.logging_configuration if isinstance(bucket, s3.CfnBucket) else None
        if isinstance(bucket, s3.CfnBucket) and isinstance(logging, s3.CfnBucket.LoggingConfigurationProperty):
            found.append(bucket.stack.resolve(logging.destination_bucket_name or bucket.ref))
    return found


def _set(scope: IConstruct, setters: Mapping[str, Setter], key: AnyKey, *, without: Sequence[object] = ()) -> None:
    arn = once(key, "key_arn")
    for kind, setter in setters.items():
        for resource in ConstructSelector.resources_of_type(kind).select(scope):
            assert isinstance(resource, CfnResource)  # noqa: S101  what the selector selects
            if not without or resource.stack.resolve(resource.ref) not in without:
                setter(resource, arn)


def _property(path: str) -> Setter:
    return lambda resource, arn: resource.add_property_override(path, arn)


def _bucket(resource: CfnResource, arn: str) -> None:
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
    if isinstance(data, ec2.CfnLaunchTemplate.LaunchTemplateDataProperty):
        _volumes(resource, "LaunchTemplateData.", data.block_device_mappings, arn)


def _instance(resource: CfnResource, arn: str) -> None:
    if isinstance(resource, ec2.CfnInstance):
        _volumes(resource, "", resource.block_device_mappings, arn)


def _volumes(resource: CfnResource, path: str, mappings: object, arn: str) -> None:
    for i, mapping in enumerate(mappings if isinstance(mappings, list) else ()):
        if getattr(mapping, "ebs", None):
            resource.add_property_override(f"{path}BlockDeviceMappings.{i}.Ebs.KmsKeyId", arn)


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
    "AWS::EC2::Instance": _instance,
    "AWS::ECR::Repository": _repository,
    "AWS::EFS::FileSystem": _property("KmsKeyId"),
    "AWS::FSx::FileSystem": _lustre,
    "AWS::S3::Bucket": _bucket,
}
