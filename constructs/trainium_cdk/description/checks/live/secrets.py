"""The secret with the password of Slurm's database: its metadata, never its value.

ParallelCluster's own validator (3.16.1, PasswordSecretArnValidator) asks DescribeSecret too, and takes a secret that is about to be deleted or
whose key is disabled; its template gives the head node `secretsmanager:GetSecretValue` on it, and no permission on a key: the cluster's construct gives it that.
"""

from __future__ import annotations

from typing import Any

from trainium_cdk.description.checks.live import keys
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found
from trainium_cdk.description.checks.pcluster import partition
from trainium_cdk.description.settings.types import is_placeholder
from trainium_cdk.problems import KeyPath

DESCRIBE, AWS_OWN = "secretsmanager:DescribeSecret", "alias/aws/secretsmanager"


Secrets = dict[KeyPath, "tuple[dict[str, Any] | None, keys.KmsKey | None]"]
"""Each secret as AWS describes it, None where there is none, and its key, None for AWS's own."""


def arns(target: CheckTarget) -> dict[KeyPath, str]:
    """The secret by the key that names it, unless it is not known before the deployment."""
    accounting = target.env.pcluster.accounting
    if not accounting or is_placeholder(accounting.password_secret):
        return {}
    return {("pcluster", "accounting", "password_secret"): accounting.password_secret}


def fetch(target: CheckTarget, aws: Aws) -> Secrets:
    found: Secrets = {}
    for at, arn in arns(target).items():
        described = aws.find(DESCRIBE, SecretId=arn)
        id = (described or {}).get("KmsKeyId") or AWS_OWN
        found[at] = (described, None if id.endswith(AWS_OWN) else keys.describe(target, aws, id))
    return found


def evaluate(target: CheckTarget, secrets: Secrets) -> Found:
    """The head node's role may use a key through Secrets Manager: the key's policy must let it."""
    root = f"arn:{partition(target.env.region)}:iam::{target.account}:root"
    for at, (secret, key) in secrets.items():
        arn = arns(target)[at]
        subject = target.about(f"secret {arn.rpartition(':')[2]}", *at)
        if secret is None:
            reason = f"this secret does not exist in {target.env.region}"
            yield subject.error("none", reason, "create it, or correct the ARN")
        elif secret.get("DeletedDate"):
            restore = f"aws secretsmanager restore-secret --secret-id {arn} --region {target.env.region}"
            yield subject.error("scheduled for deletion", "the head node cannot read it", restore)
        elif key is None:
            yield subject.ok("exists", "it is encrypted with AWS's own key; its value is not read")
        elif problem := keys.unusable(target, key, subject, "the key of this secret"):
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
    Check("secrets", (DESCRIBE, *keys.DESCRIBE), fetch, evaluate, lambda t: bool(arns(t))),
)
