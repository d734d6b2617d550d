"""Keys that are chosen outside the stack: whether the stack's roles, and the services that start its nodes, may use them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandbox import LocalAws
from tests.checks.live.cases import Case, verify
from tests.checks.live.conftest import report, wrong
from trainium_cdk.description.checks.live.keys import KmsKey, VolumeKey, VolumeKeys

ACCOUNT = "111122223333"
ARN = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/1234"
THEIRS = "arn:aws:kms:us-east-1:444455556666:key/5678"
ROOT = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "kms:*", "Resource": "*"}
LINKED = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role"
SCALING = f"{LINKED}/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
SPOT = f"{LINKED}/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
TOPIC = "observability: {alarm_topic: 'arn:aws:sns:us-east-1:111122223333:ops'}\neks: {}"
AT, TO = ("observability", "alarm_topic"), ("observability", "job_topic")
JOBS = TOPIC.replace("alarm_topic", "job_topic")


def to(principal: str, *actions: str) -> dict[str, Any]:
    kind = "Service" if principal.endswith(".com") else "AWS"
    return {"Effect": "Allow", "Principal": {kind: [principal]}, "Action": list(actions), "Resource": "*"}


def key(*policy: dict[str, Any], arn: str = ARN, grantees: tuple[str, ...] = (), **other: str) -> KmsKey:
    metadata = {"Arn": arn, "KeyId": arn.rpartition("/")[2], "KeyManager": "CUSTOMER", "KeyState": "Enabled", **other}
    own = arn.split(":")[4] == ACCOUNT and metadata["KeyManager"] == "CUSTOMER"
    return KmsKey(metadata, policy if own else None, frozenset(grantees))


def default(found: KmsKey | None, *own: str) -> VolumeKeys:
    """The account's default key of EBS."""
    use = VolumeKey("the account's default key of EBS", ("encryption",), ARN)
    return VolumeKeys((use,), {ARN: found or KmsKey(None)}, frozenset(own))


MINE = f"pcluster: {{volume_keys: ['{ARN}']}}"
ROLE = "pcluster: {provider: {role: 'arn:aws:iam::111122223333:role/P'}}"
LOGIN = MINE.replace("volume_keys", "login_nodes: {}, volume_keys")
TABLE = [
    Case("volume-keys", "pcluster: {}", VolumeKeys(), [("ok", "AWS's own")]),
    Case("volume-keys", "pcluster: {}", default(key(ROOT)), [("error", "it is the account's default key of EBS, and neither the function", f"Fix: write pcluster.volume_keys: [{ARN}] [")]),
    Case("volume-keys", ROLE, default(key(ROOT)), [("error", "and allow kms:CreateGrant, kms:Decrypt", "on it in arn:aws:iam::111122223333:role/P")]),
    Case("volume-keys", MINE, default(key(ROOT)), [("ok", "all that start nodes may use it")]),
    Case("volume-keys", f"encryption: {ARN}\npcluster: {{}}", default(key(ROOT)), [("ok",)]),
    Case("volume-keys", "encryption: customer-key\npcluster: {}", default(key(ROOT), "1234"), [("ok",)]),
    Case("volume-keys", "encryption: customer-key\npcluster: {}", default(key(ROOT), "of-the-stack"), [("error", "write pcluster.volume_keys")]),
    Case("volume-keys", MINE, default(key(to("arn:aws:iam::111122223333:role/Admin", "kms:*"))), [("error", "does not let the account's IAM policies allow it", "allow arn:aws:iam::111122223333:root kms:CreateGrant")]),
    Case("volume-keys", MINE, default(key(to("111122223333", "kms:Create*", "kms:Decrypt"))), [("ok",)]),
    Case("volume-keys", LOGIN, default(key(ROOT)), [("error", "autoscaling.amazonaws.com, which starts nodes, may not use it", f"aws kms create-grant --region us-east-1 --key-id {ARN} --grantee-principal {SCALING}")]),
    Case("volume-keys", LOGIN, default(key(ROOT, grantees=(SCALING,))), [("ok",)]),
    Case("volume-keys", MINE.replace("volume_keys", "queues: [{capacity_type: spot}], volume_keys"), default(key(ROOT)), [("error", f"--grantee-principal {SPOT}")]),
    Case("volume-keys", MINE, default(key(ROOT, KeyState="PendingDeletion")), [("error", "= PendingDeletion", "aws kms enable-key --key-id 1234")]),
    Case("volume-keys", MINE, default(None), [("error", "= none", "does not exist in us-east-1")]),
    Case("image-keys", MINE.replace(ARN, THEIRS).replace("{volume", "{custom_ami: ami-0123456789abcdef0, volume"), VolumeKeys((VolumeKey("the key of the image ami-1", ("pcluster", "custom_ami"), THEIRS),), {THEIRS: key(arn=THEIRS)}),
         [("warning", "of account 444455556666", "its policy cannot be read from this account", "arn:aws:iam::111122223333:root")]),
    Case("volume-keys", "eks: {}", default(key(ROOT)), [("error", f"--grantee-principal {SCALING} --operations CreateGrant Decrypt")], "eks"),
    Case("volume-keys", "eks: {}", default(key(ROOT, to(SCALING, "kms:CreateGrant", "kms:Decrypt"))), [("ok",)], "eks"),
    Case("volume-keys", "eks: {}", default(key(ROOT, grantees=(SCALING,))), [("ok",)], "eks"),
    Case("volume-keys", "eks: {}", default(key(KeyManager="AWS")), [("ok",)], "eks"),
    Case("volume-keys", "pcs: {}", default(key(ROOT)), [("error", f"--grantee-principal {LINKED}/pcs.amazonaws.com/AWSServiceRoleForPCS")], "pcs"),
    Case("given-key", f"encryption: {ARN}\neks: {{}}", default(key(ROOT)), [("error", f"--grantee-principal {SCALING}")], "eks"),
    Case("given-key", f"encryption: {ARN}\neks: {{}}", default(key(ROOT, grantees=(SCALING,))), [("ok",)], "eks"),
    Case("image-keys", "pcluster: {custom_ami: ami-0123456789abcdef0}", VolumeKeys(), [("ok", "keys of images = AWS's own")]),
    Case("image-keys", "pcluster: {custom_ami: ami-0123456789abcdef0}", default(key(ROOT)), [("error", "write pcluster.volume_keys")]),
    Case("attached-keys", "pcluster: {shared_storage: [{name: a, type: ebs, id: vol-0123456789abcdef0, mount_dir: /a}]}", VolumeKeys(), [("ok", "keys of attached volumes = AWS's own")]),
    Case("attached-keys", "pcluster: {shared_storage: [{name: a, type: ebs, id: vol-0123456789abcdef0, mount_dir: /a}]}", default(key(ROOT)), [("error", "write pcluster.volume_keys")]),
    Case("alarm-topics", TOPIC, {AT: ("", None)}, [("ok", "topic ops")], "eks"),
    Case("alarm-topics", JOBS, {TO: ("alias/aws/sns", None)}, [("ok", "topic ops", "messages about jobs may be sent to it")], "eks"),
    Case("alarm-topics", JOBS, {TO: None}, [("error", "it does not exist in us-east-1")], "eks"),
    Case("alarm-topics", TOPIC, {AT: None}, [("error", "it does not exist in us-east-1")], "eks"),
    Case("alarm-topics", TOPIC, {AT: ("alias/aws/sns", None)}, [("error", "CloudWatch may not use this key, so that no alarm would arrive")], "eks"),
    Case("alarm-topics", TOPIC, {AT: ("1234", key(ROOT))}, [("error", "does not allow CloudWatch", "allow cloudwatch.amazonaws.com kms:Decrypt")], "eks"),
    Case("alarm-topics", TOPIC, {AT: ("1234", key(ROOT, to("cloudwatch.amazonaws.com", "kms:Decrypt", "kms:GenerateDataKey*")))}, [("ok", "CloudWatch may use its key 1234")], "eks"),
    Case("alarm-topics", TOPIC, {AT: (THEIRS, key(arn=THEIRS))}, [("warning", "its policy cannot be read")], "eks"),
]  # fmt: skip


@pytest.mark.parametrize("case", TABLE, ids=lambda c: f"{c.check}: {c.expected[0]}")
def test_responses_are_evaluated(case: Case) -> None:
    verify(case)


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("slurm", "pcluster: {KEYS}"),
        ("slurm", "pcluster: {login_nodes: {}, queues: [{capacity_type: spot}], KEYS}"),
        ("eks", "eks: {}"),
        ("pcs", "pcs: {}"),
    ],
)
def test_what_preflight_says_about_a_default_key_is_enough(aws: LocalAws, engine: str, text: str) -> None:
    """Of EBS, which the account's users have set: each fix is followed, until there is none left."""
    kms, ec2, iam = aws.client("kms"), aws.client("ec2"), aws.client("iam")
    iam.create_role(RoleName="AWSServiceRoleForEC2Spot", AssumeRolePolicyDocument="{}")
    arn = kms.create_key()["KeyMetadata"]["Arn"]
    account = arn.split(":")[4]
    policy = {"Statement": [to(f"arn:aws:iam::{account}:root", "kms:*")]}
    kms.put_key_policy(KeyId=arn, PolicyName="default", Policy=json.dumps(policy))
    plain = text.replace("KEYS", "")
    assert wrong(report(plain, engine)) == {}
    ec2.modify_ebs_default_kms_key_id(KmsKeyId=arn)
    try:
        found = wrong(report(plain, engine))
        assert found.keys() == {"volume-keys"}
        if engine == "slurm":
            assert f"write pcluster.volume_keys: [{arn}]" in found["volume-keys"]
            plain = text.replace("KEYS", f"volume_keys: [{arn}]")
        for line in wrong(report(plain, engine)).get("volume-keys", "").splitlines():
            words = line.partition("aws kms create-grant ")[2].split()
            at = words.index("--operations")
            given = dict(zip(words[:at:2], words[1:at:2], strict=True))
            kms.create_grant(
                KeyId=given["--key-id"], GranteePrincipal=given["--grantee-principal"], Operations=words[at + 1 :]
            )
        assert wrong(report(plain, engine)) == {}
        kms.disable_key(KeyId=arn)
        assert "= Disabled" in wrong(report(plain, engine))["volume-keys"]
    finally:
        ec2.reset_ebs_default_kms_key_id()
        iam.delete_role(RoleName="AWSServiceRoleForEC2Spot")
