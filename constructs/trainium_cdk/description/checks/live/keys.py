"""KMS keys that are chosen outside the stack, and who may use them: keys of volumes, of topics that alarms are sent to, and of the secret with
the password of Slurm's database.

CloudWatch must be able to use a topic's key, or no alarm arrives, without a message anywhere. The metadata of a secret is read, never its value:
ParallelCluster's own validator (3.16.1, PasswordSecretArnValidator) asks DescribeSecret too, and takes a secret that is about to be deleted or
whose key is disabled; its template gives the head node `secretsmanager:GetSecretValue` on it, and no permission on a key: the cluster's construct gives it that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from trainium_cdk.description.checks.live.account import ROLES, Role, stack
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.data import shared_volumes
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, Subject, join_words
from trainium_cdk.description.checks.pcluster import partition
from trainium_cdk.problems import KeyPath
from trainium_cdk.text import is_placeholder

VOLUME_ACTIONS = (
    "kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo",
)  # fmt: skip
"""Permissions to start an instance with an encrypted volume (EBS user guide, requirements for encryption, 2026-11)."""
GRANTED = (
    "CreateGrant Decrypt DescribeKey Encrypt GenerateDataKey GenerateDataKeyWithoutPlaintext ReEncryptFrom ReEncryptTo"
)
"""Operations of a grant for a service that starts instances (Auto Scaling user guide, key policy requirements; EC2 user guide, Spot; 2026-11)."""
AWS_OWN = re.compile(r"(^|/)alias/aws/")
DESCRIBE = ("kms:DescribeKey", "kms:GetKeyPolicy")
SM_DESCRIBE, SM_OWN_KEY = "secretsmanager:DescribeSecret", "alias/aws/secretsmanager"


@dataclass(frozen=True)
class KmsKey:
    """A key as KMS describes it.

    Attributes:
        metadata: of DescribeKey; None if there is no such key.
        policy: its statements; None if they cannot be read, as of another account's key.
        grantees: principals with a grant that lets them create further grants, as volumes need.
    """

    metadata: Mapping[str, Any] | None
    policy: tuple[Mapping[str, Any], ...] | None = None
    grantees: frozenset[str] = frozenset()

    @property
    def of_aws(self) -> bool:
        return self.metadata is not None and self.metadata.get("KeyManager") == "AWS"

    def allows(self, principals: Iterable[str], action: str) -> bool:
        """Return whether a statement of the policy allows an action to one of these principals. Its conditions are not evaluated."""
        wanted = {"*", *principals}
        return any(
            statement.get("Effect") == "Allow"
            and wanted & set(_principals(statement.get("Principal")))
            and any(fnmatchcase(action.lower(), each.lower()) for each in _several(statement.get("Action")))
            for statement in self.policy or ()
        )


def _several(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def _principals(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [each for kind in ("AWS", "Service") for each in _several(value.get(kind))]
    return _several(value)


@dataclass(frozen=True)
class VolumeKey:
    """A key that encrypts volumes of nodes.

    Attributes:
        what: whose key it is, for example `the account's default key of EBS`.
        at: the key of the setting.
        id: ARN or id of the KMS key.
    """

    what: str
    at: KeyPath
    id: str


@dataclass(frozen=True)
class VolumeKeys:
    """Keys of volumes. `own` are the ids of the stack's own keys, which its roles may use."""

    uses: tuple[VolumeKey, ...] = ()
    keys: Mapping[str, KmsKey] = field(default_factory=dict)
    own: frozenset[str] = frozenset()


def evaluate_volumes(what: str, target: CheckTarget, state: VolumeKeys) -> Found:
    """Args: what: whose keys were asked for, where none of them is a customer's."""
    if not state.uses:
        yield target.about(what).ok("AWS's own", "all that start nodes may use it for their volumes")
    for use in state.uses:
        key = state.keys[use.id]
        subject = target.about(f"KMS key {use.id.rpartition('/')[2]}", *use.at)
        problems = list(_of_volume(target, use, key, subject, state.own))
        yield from problems
        if not problems:
            yield subject.ok("usable", f"{use.what}: all that start nodes may use it")


def _of_volume(target: CheckTarget, use: VolumeKey, key: KmsKey, subject: Subject, own: frozenset[str]) -> Found:
    if problem := unusable(target, key, subject, use.what):
        yield problem
        return
    if key.of_aws:
        return
    assert key.metadata is not None  # noqa: S101  else it is unusable
    arn, region, account = str(key.metadata["Arn"]), target.env.region, target.account
    if key.policy is None:
        yield subject.warning(
            f"of account {arn.split(':')[4]}",
            f"it is {use.what}, and its policy cannot be read from this account",
            f"make sure that it allows {join_words(VOLUME_ACTIONS)} to arn:{partition(region)}:iam::{account}:root and to "
            f"{join_words(_arn(target, role) for role in _roles(target)) if _roles(target) else 'no service'}",
        )
    keys = target.inventory.volume_keys()
    if keys is not None:
        yield from _own_roles(target, use, key, subject, listed_already=arn in keys or key.metadata["KeyId"] in own)
    for role in _roles(target) if key.policy is not None else ():
        principal = _arn(target, role)
        if principal not in key.grantees and not key.allows([principal], "kms:CreateGrant"):
            yield subject.error(
                f"not for {role.name}",
                f"it is {use.what}, and {role.service}, which starts nodes, may not use it: "
                "they end with `Client.InternalError: Client error on launch`",
                f"aws kms create-grant --region {region} --key-id {arn} --grantee-principal {principal} --operations {GRANTED}",
            )


def _own_roles(target: CheckTarget, use: VolumeKey, key: KmsKey, subject: Subject, *, listed_already: bool) -> Found:
    """Check that the stack's roles that start nodes may use a key. Their policies must allow it, and the key's policy must permit that."""
    assert key.metadata is not None  # noqa: S101  checked by the caller
    arn, provider = str(key.metadata["Arn"]), target.env.pcluster.provider.role
    others = [each for each in target.env.pcluster.volume_keys if each != arn]
    if not listed_already:
        also = f", and allow {join_words(VOLUME_ACTIONS)} on it in {provider}" if provider else ""
        yield subject.error(
            "not for this cluster",
            f"it is {use.what}, and neither the function that creates the cluster nor the head node may use it: no node would start "
            "(`Client.InternalError: Client error on launch`)",
            f"write pcluster.volume_keys: [{', '.join((*others, arn))}]{also}",
        )
    root = f"arn:{partition(target.env.region)}:iam::{target.account}:root"
    if key.policy is not None and not key.allows([root, target.account], "kms:CreateGrant"):
        yield subject.error(
            "not for IAM policies",
            f"it is {use.what}, and its policy does not let the account's IAM policies allow it",
            f"add to the key's policy (aws kms put-key-policy): allow {root} {join_words(VOLUME_ACTIONS)}",
        )


def _roles(target: CheckTarget) -> list[Role]:
    return [ROLES[name] for name in target.inventory.volume_roles()]


def _arn(target: CheckTarget, role: Role) -> str:
    return f"arn:{partition(target.env.region)}:iam::{target.account}:role/aws-service-role/{role.service}/{role.name}"


def unusable(target: CheckTarget, key: KmsKey, subject: Subject, what: str) -> Any:
    """An error if a key does not exist, or cannot encrypt in its state."""
    if key.metadata is None:
        return subject.error(
            "none", f"it is {what}, and does not exist in {target.env.region}", "correct the ARN, or use another"
        )
    if (state := key.metadata.get("KeyState", "Enabled")) != "Enabled":
        fix = f"aws kms enable-key --key-id {key.metadata['KeyId']} --region {target.env.region}, or use another key"
        return subject.error(state, f"it is {what}, and cannot be used in this state", fix)
    return None


def _volumes(
    name: str,
    what: str,
    uses: Callable[[CheckTarget, Aws], Iterable[VolumeKey]],
    wanted: Callable[[CheckTarget], bool],
    *actions: str,
) -> Check[VolumeKeys]:
    """A check of keys of volumes.

    Args:
        what: whose keys these are.
        uses: asks for them.
        actions: that `uses` needs.
    """

    def fetch(target: CheckTarget, aws: Aws) -> VolumeKeys:
        found, own = tuple(uses(target, aws)), frozenset[str]()
        if found and target.env.encryption == "customer-key" and stack(target, aws):
            resources = aws("cloudformation:ListStackResources", StackName=target.stack)["StackResourceSummaries"]
            own = frozenset(r["PhysicalResourceId"] for r in resources if r["ResourceType"] == "AWS::KMS::Key")
        return VolumeKeys(found, {use.id: describe(target, aws, use.id, grants=True) for use in found}, own)

    stacks = ("cloudformation:DescribeStacks", "cloudformation:ListStackResources")
    return Check(name, (*actions, *DESCRIBE, "kms:ListGrants", *stacks), fetch, partial(evaluate_volumes, what), wanted)


def _uses_default_key(target: CheckTarget) -> bool:
    """Volumes of the launch templates that the stack makes have the key of `encryption`, and ParallelCluster's volumes cannot have one."""
    return target.inventory.volume_keys() is not None or target.env.encryption == "aws-managed"


def _default(target: CheckTarget, aws: Aws) -> Iterable[VolumeKey]:  # noqa: ARG001
    key = str(aws("ec2:GetEbsDefaultKmsKeyId")["KmsKeyId"])
    if not AWS_OWN.search(key):
        yield VolumeKey("the account's default key of EBS", ("encryption",), key)


def _given(target: CheckTarget, aws: Aws) -> Iterable[VolumeKey]:  # noqa: ARG001
    yield VolumeKey("the key of the nodes' volumes", ("encryption",), target.env.encryption)


def _of_images(target: CheckTarget, aws: Aws) -> Iterable[VolumeKey]:
    for image in {image.id: image for image in target.inventory.images()}.values():
        found = aws.first("ec2:DescribeImages", "Images", ImageIds=[image.id])
        disks = [m.get("Ebs", {}).get("SnapshotId") for m in (found or {}).get("BlockDeviceMappings", [])]
        for snapshot in filter(None, disks):
            described = aws.first("ec2:DescribeSnapshots", "Snapshots", SnapshotIds=[snapshot])
            if key := (described or {}).get("KmsKeyId"):
                yield VolumeKey(f"the key of the image {image.id}", image.key, str(key))


def _of_volumes(target: CheckTarget, aws: Aws) -> Iterable[VolumeKey]:
    for at, (_, volume, _) in shared_volumes(target, "ebs").items():
        described = aws.first("ec2:DescribeVolumes", "Volumes", VolumeIds=[volume])
        if key := (described or {}).get("KmsKeyId"):
            yield VolumeKey(f"the key of the volume {volume}", at, str(key))


def describe(target: CheckTarget, aws: Aws, id: str, *, grants: bool = False) -> KmsKey:
    """A key with its policy, where it belongs to the account.

    Args:
        grants: also its grants.
    """
    answer = aws.find("kms:DescribeKey", KeyId=id)
    metadata = answer["KeyMetadata"] if answer else None
    if not metadata or metadata.get("KeyManager") == "AWS" or str(metadata["Arn"]).split(":")[4] != target.account:
        return KmsKey(metadata)
    policy = json.loads(aws("kms:GetKeyPolicy", KeyId=metadata["KeyId"], PolicyName="default")["Policy"])
    given = aws("kms:ListGrants", KeyId=metadata["KeyId"])["Grants"] if grants else ()
    return KmsKey(
        metadata,
        tuple(policy.get("Statement", ())),
        frozenset(g["GranteePrincipal"] for g in given if "CreateGrant" in g.get("Operations", ())),
    )


Topics = dict[KeyPath, "tuple[str, KmsKey | None] | None"]
"""The key of each topic: its id, empty without one, and its description; None where the topic does not exist."""


def topics(target: CheckTarget) -> dict[KeyPath, str]:
    """The topics of alarms, and of messages about jobs, by the keys that name them."""
    return {at: arn for at, arn in target.inventory.alarm_topics().items() if not is_placeholder(arn)}


def evaluate_topics(target: CheckTarget, states: Topics) -> Found:
    for at, state in states.items():
        subject = target.about(f"topic {topics(target)[at].rpartition(':')[2]}", *at)
        if state is None:
            yield subject.error("none", f"it does not exist in {target.env.region}", "create it, or correct the ARN")
            continue
        id, key = state
        if at[-1] == "job_topic":  # a role of the account sends, which the key's policy or IAM lets use it
            yield subject.ok("exists", "messages about jobs may be sent to it")
        elif not id:
            yield subject.ok("exists", "alarms may be sent to it")
        elif AWS_OWN.search(id) or (key and key.of_aws):
            yield subject.error(
                "encrypted with AWS's own key",
                "CloudWatch may not use this key, so that no alarm would arrive",
                "give the topic a key of yours whose policy allows cloudwatch.amazonaws.com kms:Decrypt and kms:GenerateDataKey*, or none",
            )
        elif key and (problem := unusable(target, key, subject, "the topic's key")):
            yield problem
        elif key and key.policy is not None and key.allows(["cloudwatch.amazonaws.com"], "kms:GenerateDataKey"):
            yield subject.ok("encrypted", f"CloudWatch may use its key {id.rpartition('/')[2]}")
        else:
            missing = "its key's policy does not allow CloudWatch to use it, so that no alarm would arrive"
            unknown = "its key is of another account: its policy cannot be read"
            fix = "allow cloudwatch.amazonaws.com kms:Decrypt and kms:GenerateDataKey* in the policy of the key"
            if key and key.policy is None:
                yield subject.warning(id, unknown, fix)
            else:
                yield subject.error(id, missing, fix)


def fetch_topics(target: CheckTarget, aws: Aws) -> Topics:
    found: Topics = {}
    for at, arn in topics(target).items():
        answer = aws.find("sns:GetTopicAttributes", TopicArn=arn)
        id = str((answer or {}).get("Attributes", {}).get("KmsMasterKeyId", ""))
        key = describe(target, aws, id) if id and not AWS_OWN.search(id) else None
        found[at] = (id, key) if answer else None
    return found


Secrets = dict[KeyPath, "tuple[dict[str, Any] | None, KmsKey | None]"]
"""Each secret as AWS describes it, None where there is none, and its key, None for AWS's own."""


def secret_arns(target: CheckTarget) -> dict[KeyPath, str]:
    """The secret by the key that names it, unless it is not known before the deployment."""
    accounting = target.env.pcluster.accounting
    if not accounting or is_placeholder(accounting.password_secret):
        return {}
    return {("pcluster", "accounting", "password_secret"): accounting.password_secret}


def fetch_secrets(target: CheckTarget, aws: Aws) -> Secrets:
    found: Secrets = {}
    for at, arn in secret_arns(target).items():
        described = aws.find(SM_DESCRIBE, SecretId=arn)
        id = (described or {}).get("KmsKeyId") or SM_OWN_KEY
        found[at] = (described, None if id.endswith(SM_OWN_KEY) else describe(target, aws, id))
    return found


def evaluate_secrets(target: CheckTarget, secrets: Secrets) -> Found:
    """The head node's role may use a key through Secrets Manager: the key's policy must let it."""
    root = f"arn:{partition(target.env.region)}:iam::{target.account}:root"
    for at, (secret, key) in secrets.items():
        arn = secret_arns(target)[at]
        subject = target.about(f"secret {arn.rpartition(':')[2]}", *at)
        if secret is None:
            reason = f"this secret does not exist in {target.env.region}"
            yield subject.error("none", reason, "create it, or correct the ARN")
        elif secret.get("DeletedDate"):
            restore = f"aws secretsmanager restore-secret --secret-id {arn} --region {target.env.region}"
            yield subject.error("scheduled for deletion", "the head node cannot read it", restore)
        elif key is None:
            yield subject.ok("exists", "it is encrypted with AWS's own key; its value is not read")
        elif problem := unusable(target, key, subject, "the key of this secret"):
            yield problem
        else:
            value = f"encrypted with {(key.metadata or {})['KeyId']}"
            fix = f"let the key's policy allow {root} kms:Decrypt through Secrets Manager (kms:ViaService)"
            if key.policy is None:
                yield subject.info(value, "not checked: whether the key's policy lets the head node use it", fix)
            elif key.allows([root, target.account], "kms:Decrypt"):
                yield subject.ok(value, "the head node may use this key for the secret; its value is not read")
            else:
                yield subject.error(value, "the key's policy does not let the head node use it", fix)


CHECKS: tuple[Check[Any], ...] = (
    _volumes("volume-keys", "default key of EBS", _default, _uses_default_key, "ec2:GetEbsDefaultKmsKeyId"),
    _volumes(
        "given-key",
        "key of the nodes' volumes",
        _given,
        lambda t: not _uses_default_key(t) and t.env.encryption != "customer-key",
    ),
    _volumes(
        "image-keys",
        "keys of images",
        _of_images,
        lambda t: bool(t.inventory.images()),
        "ec2:DescribeImages",
        "ec2:DescribeSnapshots",
    ),
    _volumes(
        "attached-keys",
        "keys of attached volumes",
        _of_volumes,
        lambda t: bool(shared_volumes(t, "ebs")),
        "ec2:DescribeVolumes",
    ),
    Check(
        "alarm-topics", (*DESCRIBE, "sns:GetTopicAttributes"), fetch_topics, evaluate_topics, lambda t: bool(topics(t))
    ),
)
SECRET_CHECKS: tuple[Check[Any], ...] = (
    Check("secrets", (SM_DESCRIBE, *DESCRIBE), fetch_secrets, evaluate_secrets, lambda t: bool(secret_arns(t))),
)
