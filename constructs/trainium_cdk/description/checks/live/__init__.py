"""Checks of the AWS account: quotas, offerings, reservations, versions, existing resources, cost.

Every check uses only read calls. It reports the current state, what that means and what to do. A check whose call is denied reports the
IAM action that it needs; the other checks still run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainium_cdk.description import engines
from trainium_cdk.description.checks import check
from trainium_cdk.description.checks.live import (
    access,
    account,
    data,
    eks,
    keys,
    network,
    offering,
    parallelcluster,
    pcs,
    placement,
    quotas,
    reservation_groups,
    reservations,
    topics,
)
from trainium_cdk.description.checks.live import cost as prices
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckReport, CheckTarget, Subject
from trainium_cdk.description.checks.live.policy import policy
from trainium_cdk.description.checks.live.run import run
from trainium_cdk.errors import AwsError, NoCredentials
from trainium_cdk.problems import Problem, show

__all__ = ["Aws", "AwsError", "Check", "CheckReport", "CheckTarget", "checks_of", "examine", "policy"]

COMMON: tuple[Check[Any], ...] = (
    *account.CHECKS,
    *quotas.CHECKS,
    *offering.CHECKS,
    *reservations.CHECKS,
    *reservation_groups.CHECKS,
    *placement.CHECKS,
    *access.CHECKS,
    *network.CHECKS,
    *data.CHECKS,
    *keys.CHECKS,
    *topics.CHECKS,
)
OF_ENGINE: Mapping[str, tuple[Check[Any], ...]] = {
    "slurm": parallelcluster.CHECKS,
    "eks": eks.CHECKS,
    "pcs": pcs.CHECKS,
}


def checks_of(engine: str) -> tuple[Check[Any], ...]:
    """Every live check for an engine's stack except the credentials', in the order of the report.

    Raises:
        TrnError: there is no such engine.
    """
    return (*COMMON, *OF_ENGINE[engines.get(engine).name])


def examine(target: CheckTarget, aws: Aws | None = None) -> CheckReport:
    """Everything that can be checked before anything costs money: offline rules, live checks, cost.

    Args:
        aws: the connection. Default: one with the current credentials, in the environment's region.
    """
    aws = aws or Aws(target.env.region)
    offline = [
        replace(p, what=p.dotted, value=show(p.value), where=target.where(p.key), rule=f"rule {p.rule}")
        for p in check(target.env, target.engine)
    ]
    findings, account_id = _identify(target, aws)
    if account_id:
        target = replace(target, account=account_id)
        findings += run(target, aws, checks_of(target.engine))
    findings = [replace(f, where=target.where(f.key) if f.key else "") for f in findings]
    estimate = prices.cost(target)
    return CheckReport(
        target.stack,
        target.env.name,
        target.env.region,
        target.account,
        (*offline, *findings, *prices.findings(estimate)),
        estimate,
    )


def _identify(target: CheckTarget, aws: Aws) -> tuple[list[Problem], str]:
    """Check the credentials, and return the problems and the account. The account is empty if the credentials cannot be used."""
    check = account.IDENTITY
    try:
        identity = check.fetch(target, aws.limited_to(check.actions))
    except NoCredentials as e:
        return [
            _no_connection(
                str(e), "sign in (aws sso login), or set AWS_PROFILE, and make sure that the region is enabled"
            )
        ], ""
    except AwsError as e:
        return [_no_connection(str(e), "check this machine's connection to AWS (network, proxy, AWS_ENDPOINT_URL)")], ""
    findings = [replace(f, rule=check.name) for f in check.evaluate(target, identity)]
    return findings, "" if any(f.level == "error" for f in findings) else str(identity["Account"])


def _no_connection(reason: str, fix: str) -> Problem:
    what = account.IDENTITY.name
    return replace(Subject(what).error("none", f"{reason}; nothing in the account could be checked", fix), rule=what)
