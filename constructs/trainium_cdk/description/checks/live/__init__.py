"""Checks of the AWS account: quotas, offerings, reservations, versions, existing resources, cost.

Every check uses only read calls. It reports the current state, what that means and what to do. A check whose call is denied reports the
IAM action that it needs; the other checks still run. They run concurrently, each with a time limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainium_cdk.description import engines
from trainium_cdk.description.checks import check
from trainium_cdk.description.checks.live import account, capacity, clusters, data, groups, keys, network, quotas
from trainium_cdk.description.checks.live import cost as prices
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckReport, CheckTarget, Subject, join_words
from trainium_cdk.errors import AwsError, Denied, NoCredentials, Unreachable
from trainium_cdk.problems import Problem, show

__all__ = ["Aws", "AwsError", "Check", "CheckReport", "CheckTarget", "checks_of", "examine", "policy", "run"]

SECONDS = 60.0
"""Time limit of the checks. Each call has its own, shorter limit; this one is for the sum of a check's calls."""
WITHOUT_POLICY = frozenset({"sts:GetCallerIdentity"})
"""Every principal may call it."""

COMMON: tuple[Check[Any], ...] = (
    *account.CHECKS,
    *quotas.CHECKS,
    *capacity.CHECKS,
    *groups.CHECKS,
    *account.ACCESS_CHECKS,
    *network.CHECKS,
    *data.CHECKS,
    *keys.CHECKS,
)
OF_ENGINE: Mapping[str, tuple[Check[Any], ...]] = {
    "slurm": clusters.PARALLELCLUSTER_CHECKS,
    "eks": clusters.EKS_CHECKS,
    "pcs": clusters.PCS_CHECKS,
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


class _Running(threading.Thread):
    """One check in a daemon thread: a call that hangs must not delay the end of the command."""

    def __init__(self, check: Check[Any], target: CheckTarget, aws: Aws) -> None:
        super().__init__(daemon=True)
        self.check, self._target, self._aws = check, target, aws
        self.findings: list[Problem] | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            answer = self.check.fetch(self._target, self._aws.limited_to(self.check.actions))
            self.findings = list(self.check.evaluate(self._target, answer))
        except Exception as e:
            self.error = e


def run(target: CheckTarget, aws: Aws, checks: Sequence[Check[Any]], seconds: float = SECONDS) -> list[Problem]:
    """The findings of the checks, in the order of the checks. A service that cannot be reached is reported once."""
    running = [_Running(check, target, aws) for check in checks if check.wanted(target)]
    for each in running:
        each.start()
    end = time.monotonic() + seconds
    for each in running:
        each.join(max(0.0, end - time.monotonic()))
    return _findings(running, seconds)


def _findings(jobs: Iterable[_Running], seconds: float) -> list[Problem]:
    findings: list[Problem] = []
    unreachable: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for job in jobs:
        name = job.check.name
        match job.error:
            case None if job.findings is not None:
                findings += [replace(f, rule=name) for f in job.findings]
            case None:
                findings.append(_unchecked(name, f"no answer within {seconds:.0f} s", "run trn check again"))
            case Denied(action=action):
                findings.append(_denied(name, action))
            case Unreachable(service=service) as e:
                unreachable.setdefault(service, []).append(name)
                reasons.setdefault(service, str(e))
            case NoCredentials() as e:
                findings.append(_unchecked(name, str(e), "renew the credentials and run trn check again"))
            case AwsError() as e:
                findings.append(_unchecked(name, str(e), "fix this and run trn check again"))
            case e:
                bug = f"this is a bug in trn: {type(e).__name__}: {e}"
                findings.append(replace(_unchecked(name, bug, "report it; the other checks are valid"), level="error"))
    for service, names in unreachable.items():
        problem = Subject(f"connection to {service}").error(
            "none",
            f"{reasons[service]}. These checks could not run: {join_words(names)}",
            "check this machine's connection to AWS (network, proxy, AWS_ENDPOINT_URL), and run trn check again",
        )
        findings.append(replace(problem, rule="connection"))
    return findings


def _denied(check: str, action: str) -> Problem:
    """The warning for a call that the credentials do not allow."""
    fix = f"allow {action} for these credentials (trn check --print-policy prints the policy that these checks need)"
    return _unchecked(check, f"needs {action}", fix)


def _unchecked(check: str, reason: str, fix: str) -> Problem:
    return replace(Subject(check).warning("unknown", f"could not be checked: {reason}", fix), rule=check)


def policy(target: CheckTarget, checks: Iterable[Check[Any]]) -> dict[str, Any]:
    """The least IAM policy for the checks that apply to this target. Each action is limited to resources where IAM
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
    region, account_id, aws = account.place(target)
    parameters = [f"arn:{aws}:ssm:{region}:{account_id}:parameter/cdk-bootstrap/{target.qualifier}/version"]
    own, *others = (
        f"arn:{aws}:cloudformation:{region}:{account_id}:stack/{name}/*"
        for name in (target.stack, *target.inventory.own_stacks())
    )
    # their paths may be others than the environment's
    named = {
        kind: [f"arn:{aws}:iam::{account_id}:{kind}/*{each.name}" for each in account.principals(target, kind).values()]
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
            for role in account.roles(target)
            for path in (f"aws-service-role/{role.service}/", "")
        ]
        + named["role"],
        "iam:GetUser": named["user"],
        "iam:SimulatePrincipalPolicy": [account.deploying_role(target)],
        **dict.fromkeys(
            ("resource-groups:GetGroupConfiguration", "resource-groups:ListGroupResources"),
            groups.group_arns(target),
        ),
        "secretsmanager:DescribeSecret": list(keys.secret_arns(target).values()),
        "s3:ListBucket": [f"arn:{aws}:s3:::{name}" for name in data.buckets(target)],
    }
