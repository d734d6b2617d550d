"""Topics that alarms are sent to: CloudWatch must be able to use a topic's key, or no alarm arrives, without a message anywhere."""

from __future__ import annotations

from typing import Any

from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.keys import AWS_OWN, DESCRIBE, KmsKey, describe, unusable
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found
from trainium_cdk.description.settings.types import is_placeholder
from trainium_cdk.problems import KeyPath

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


CHECKS: tuple[Check[Any], ...] = (
    Check(
        "alarm-topics", (*DESCRIBE, "sns:GetTopicAttributes"), fetch_topics, evaluate_topics, lambda t: bool(topics(t))
    ),
)
