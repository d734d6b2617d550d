"""The IAM policy of a verification: that of the checks, and what its commands ask of AWS."""

from __future__ import annotations

from typing import Any

from trainium_cdk.catalog.files import read
from trainium_cdk.checks.live import Target, checks_of
from trainium_cdk.checks.live import policy as policy_of_checks
from trainium_cdk.checks.pcluster import partition
from trainium_cdk.operations.verify.plan import Plan, environment


def policy(plan: Plan) -> dict[str, Any]:
    """The policy document. Each action is limited to the run's own resources, where IAM allows it."""
    target = Target(environment(plan), plan.engine)
    names = {
        "partition": partition(plan.region),
        "account": target.account or "*",
        "region": plan.region,
        "stack": plan.stack,
        "low": plan.stack.lower(),
        "cluster": target.cluster,
        "qualifier": target.qualifier,
        "instance_type": plan.instance_type,
    }
    document: dict[str, Any] = policy_of_checks(target, checks_of(plan.engine))
    given = read("verify")["permissions"]
    wanted = [*given["every"], *given.get(plan.engine, ())]
    statements = [
        {
            "Effect": "Allow",
            "Action": sorted(one["actions"]),
            "Resource": [text.format(**names) for text in one["resources"]],
            **({"Condition": _filled(one["condition"], names)} if "condition" in one else {}),
        }
        for one in wanted
    ]
    return {**document, "Statement": [*document["Statement"], *statements]}


def _filled(condition: dict[str, dict[str, str]], names: dict[str, str]) -> dict[str, dict[str, str]]:
    return {how: {key: value.format(**names) for key, value in keys.items()} for how, keys in condition.items()}
