"""The secret with the password of Slurm's database: its metadata, never its value.

ParallelCluster's own validator (3.16.1, PasswordSecretArnValidator) asks DescribeSecret too, and takes a secret that is about to be deleted or
whose key is disabled; its template gives the head node `secretsmanager:GetSecretValue` on it, and no permission on a key: the cluster's construct gives it that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from trainium_cdk.checks.live import keys
from trainium_cdk.checks.live.aws import Aws
from trainium_cdk.checks.live.model import Check, CheckTarget, Found, Subject
from trainium_cdk.checks.pcluster import partition
from trainium_cdk.problems import KeyPath, Problem
from trainium_cdk.settings.types import is_placeholder

DESCRIBE = "secretsmanager:DescribeSecret"


class Secret(NamedTuple):
    """A secret that the environment names, and its key as KMS describes it; None for what does not exist. `key` is empty for AWS's own key.

    Attributes:
        by_iam: whether the key's policy lets the account's IAM policies allow kms:Decrypt; None if it cannot be read.
    """

    described: dict[str, Any] | None
    key: dict[str, Any] | None
    by_iam: bool | None = None


def arns(target: CheckTarget) -> dict[KeyPath, str]:
    """The secret by the key that names it, unless it is not known before the deployment."""
    accounting = target.env.pcluster.accounting
    if not accounting or is_placeholder(accounting.password_secret):
        return {}
    return {("pcluster", "accounting", "password_secret"): accounting.password_secret}


def fetch(target: CheckTarget, aws: Aws) -> dict[KeyPath, Secret]:
    found = {}
    for at, arn in arns(target).items():
        described = aws.find(DESCRIBE, SecretId=arn)
        key = (described or {}).get("KmsKeyId") or ""
        own = not key or key.endswith("alias/aws/secretsmanager")
        found[at] = Secret(described, {}) if own else _with_key(target, aws, described, key)
    return found


def _with_key(target: CheckTarget, aws: Aws, described: dict[str, Any] | None, id: str) -> Secret:
    key = keys.describe(target, aws, id)
    root = f"arn:{partition(target.env.region)}:iam::{target.account}:root"
    by_iam = None if key.policy is None else key.allows([root, target.account], "kms:Decrypt")
    return Secret(described, None if key.metadata is None else dict(key.metadata), by_iam)


def _of_key(target: CheckTarget, subject: Subject, key: str, by_iam: bool | None) -> Problem:
    """The head node's role may use the key through Secrets Manager: the key's policy must let it."""
    root = f"arn:{partition(target.env.region)}:iam::{target.account}:root"
    fix = f"let the key's policy allow {root} kms:Decrypt through Secrets Manager (kms:ViaService)"
    if by_iam is None:
        return subject.info(
            f"encrypted with {key}", "not checked: whether the key's policy lets the head node use it", fix
        )
    if by_iam:
        return subject.ok(
            f"encrypted with {key}", "the head node may use this key for the secret; its value is not read"
        )
    return subject.error(f"encrypted with {key}", "the key's policy does not let the head node use it", fix)


def evaluate(target: CheckTarget, secrets: dict[KeyPath, Secret]) -> Found:
    for at, (secret, key, by_iam) in secrets.items():
        arn = arns(target)[at]
        subject = target.about(f"secret {arn.rpartition(':')[2]}", *at)
        if secret is None:
            yield subject.error(
                "none", f"this secret does not exist in {target.env.region}", "create it, or correct the ARN"
            )
        elif secret.get("DeletedDate"):
            restore = f"aws secretsmanager restore-secret --secret-id {arn} --region {target.env.region}"
            yield subject.error("scheduled for deletion", "the head node cannot read it", restore)
        elif key is None:
            yield subject.error(
                secret["KmsKeyId"], "the KMS key that encrypts it does not exist", "give the secret another key"
            )
        elif key and key.get("KeyState") != "Enabled":
            fix = f"aws kms enable-key --key-id {key['KeyId']} --region {target.env.region}, or give the secret another key"
            yield subject.error(key.get("KeyState"), f"its KMS key {key['KeyId']} cannot decrypt in this state", fix)
        elif key:
            yield _of_key(target, subject, str(key["KeyId"]), by_iam)
        else:
            yield subject.ok("exists", "it is encrypted with AWS's own key; its value is not read")


CHECKS: tuple[Check[Any], ...] = (
    Check("secrets", (DESCRIBE, *keys.DESCRIBE), fetch, evaluate, lambda t: bool(arns(t))),
)
