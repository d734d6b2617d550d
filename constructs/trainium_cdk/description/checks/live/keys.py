"""KMS keys that are chosen outside the stack, and used by principals of the stack: volumes' keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from trainium_cdk.description.checks.live.access import ROLES, Role
from trainium_cdk.description.checks.live.account import stack
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.data import shared_volumes
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, Subject, join_words
from trainium_cdk.description.checks.pcluster import partition
from trainium_cdk.problems import KeyPath

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
)
