"""The least IAM policy that preflight needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainium_cdk.description.checks.live import account, reservation_groups, secrets
from trainium_cdk.description.checks.live.access import principals, roles
from trainium_cdk.description.checks.live.data import buckets
from trainium_cdk.description.checks.live.model import Check, CheckTarget
from trainium_cdk.description.checks.pcluster import partition

WITHOUT_POLICY = frozenset({"sts:GetCallerIdentity"})
"""Every principal may call it."""


def policy(target: CheckTarget, checks: Iterable[Check[Any]]) -> dict[str, Any]:
    """The policy document for the checks that apply to this target. Each action is limited to resources where IAM
    allows it."""
    actions = {a for c in (account.IDENTITY, *checks) if c.wanted(target) for a in c.actions} - WITHOUT_POLICY
    narrow = {a: r for a, r in _resources(target).items() if a in actions}
    broad = sorted(actions - narrow.keys())
    statements: list[dict[str, Any]] = [{"Sid": "Look", "Effect": "Allow", "Action": broad, "Resource": "*"}]
    statements += [
        {"Sid": a.replace(":", "").capitalize(), "Effect": "Allow", "Action": [a], "Resource": r}
        for a, r in sorted(narrow.items())
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def _resources(target: CheckTarget) -> dict[str, list[str]]:
    """Resources of the actions that can be limited. Most describe actions cannot."""
    region, account_id, aws = _place(target)
    parameters = [f"arn:{aws}:ssm:{region}:{account_id}:parameter/cdk-bootstrap/{target.qualifier}/version"]
    own, *others = (
        f"arn:{aws}:cloudformation:{region}:{account_id}:stack/{name}/*"
        for name in (target.stack, *target.inventory.own_stacks())
    )
    # their paths may be others than the environment's
    named = {
        kind: [f"arn:{aws}:iam::{account_id}:{kind}/*{each.name}" for each in principals(target, kind).values()]
        for kind in ("role", "user")
    }
    # public: it belongs to no account
    parameters += [f"arn:{aws}:ssm:{region}:*:parameter{name}" for name in target.inventory.public_parameters()]
    return {
        "ssm:GetParameter": parameters,
        "cloudformation:DescribeStacks": [own, *others],
        "cloudformation:ListStackResources": [own],
        # a role that does not exist has no path
        "iam:GetRole": [
            f"arn:{aws}:iam::{account_id}:role/{path}{role.name}"
            for role in roles(target)
            for path in (f"aws-service-role/{role.service}/", "")
        ]
        + named["role"],
        "iam:GetUser": named["user"],
        "iam:SimulatePrincipalPolicy": [deploying_role(target)],
        **dict.fromkeys(
            ("resource-groups:GetGroupConfiguration", "resource-groups:ListGroupResources"),
            reservation_groups.group_arns(target),
        ),
        "secretsmanager:DescribeSecret": list(secrets.arns(target).values()),
        "s3:ListBucket": [f"arn:{aws}:s3:::{name}" for name in buckets(target)],
    }


def deploying_role(target: CheckTarget) -> str:
    """ARN of the role of the CDK's bootstrap with which CloudFormation deploys."""
    region, account_id, aws = _place(target)
    return f"arn:{aws}:iam::{account_id}:role/cdk-{target.qualifier}-cfn-exec-role-{account_id}-{region}"


def _place(target: CheckTarget) -> tuple[str, str, str]:
    """Region, account and partition."""
    region = target.env.region
    return region, target.env.account or target.account or "*", partition(region)
