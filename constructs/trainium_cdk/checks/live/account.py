"""The account: whose credentials, the CDK's bootstrap, and stacks that are there already."""

from __future__ import annotations

from typing import Any

from trainium_cdk.checks.live.aws import Aws
from trainium_cdk.checks.live.model import Check, Finding, Found, Target

OLDEST_BOOTSTRAP = 6
"""What the CDK's own templates ask for (rule CheckBootstrapVersion of every stack it synthesises, aws-cdk-lib 2.275)."""
Stacks = tuple[dict[str, Any] | None, dict[str, Any] | None]


def judge_identity(target: Target, identity: dict[str, Any]) -> Found:
    account, arn = identity["Account"], identity["Arn"]
    if target.env.account and target.env.account != account:
        yield Finding(
            "error",
            "account",
            account,
            f"the credentials ({arn}) are for another account than the environment's {target.env.account}",
            f"use credentials of {target.env.account}, or write account: {account!r}",
            target.where(("account",)),
        )
        return
    yield Finding("ok", "credentials", arn, f"account {account}, region {target.env.region}")


def fetch_identity(_: Target, aws: Aws) -> dict[str, Any]:
    return aws("sts:GetCallerIdentity")


def judge_bootstrap(target: Target, version: str | None) -> Found:
    place = f"aws://{target.account or 'ACCOUNT'}/{target.env.region}"
    fix = f"cdk bootstrap {place}"
    if target.qualifier != Target.qualifier:
        fix += f" --qualifier {target.qualifier}"
    what = "CDK bootstrap"
    if version is None:
        yield Finding("error", what, "none", "the CDK has no bucket and no roles in this account and region", fix)
    elif not version.isdecimal() or int(version) < OLDEST_BOOTSTRAP:
        yield Finding(
            "error",
            what,
            f"version {version}",
            f"the stacks need version {OLDEST_BOOTSTRAP} or newer: bootstrap again",
            fix,
        )
    else:
        yield Finding("ok", what, f"version {version}", f"{OLDEST_BOOTSTRAP} or newer is needed")


def fetch_bootstrap(target: Target, aws: Aws) -> str | None:
    found = aws.find("ssm:GetParameter", Name=f"/cdk-bootstrap/{target.qualifier}/version")
    return str(found["Parameter"]["Value"]) if found else None


def judge_stacks(target: Target, stacks: Stacks) -> Found:
    ours, cluster = stacks
    what = f"stack {target.stack}"
    if cluster is not None:
        yield Finding(
            "error",
            f"stack {target.cluster}",
            cluster["StackStatus"],
            "ParallelCluster makes a stack with the cluster's name, and one already exists",
            f"delete that cluster, or give this one another name: pcluster.cluster_name (now {target.cluster})",
            target.where(("pcluster", "cluster_name")),
        )
    if ours is None:
        yield Finding("ok", what, "none", "it will be created")
        return
    status = str(ours["StackStatus"])
    if status == "ROLLBACK_COMPLETE" or status.endswith("_FAILED"):
        fix = f"look at its events, then: npx cdk destroy {target.stack}"
        if status.startswith("UPDATE"):
            fix = f"mend it first: aws cloudformation continue-update-rollback --stack-name {target.stack}"
        yield Finding("error", what, status, "CloudFormation updates no stack in this state", fix)
    elif status.endswith("_IN_PROGRESS"):
        yield Finding("error", what, status, "somebody is changing it now", "wait until that is done")
    else:
        yield Finding("ok", what, status, "it exists and will be updated: what it has already is not counted again")


def fetch_stacks(target: Target, aws: Aws) -> Stacks:
    """Our stack, and the one that has the name of a cluster which our stack does not have yet."""
    ours = stack(target, aws)
    deployed = {o["OutputKey"]: o["OutputValue"] for o in (ours or {}).get("Outputs", [])}.get("ClusterName")
    new = target.of.cluster_is_a_stack and deployed != target.cluster
    return ours, _stack(aws, target.cluster) if new else None


def stack(target: Target, aws: Aws) -> dict[str, Any] | None:
    """Our stack as it is now; None where there is none."""
    return _stack(aws, target.stack)


def _stack(aws: Aws, name: str) -> dict[str, Any] | None:
    found = aws.find("cloudformation:DescribeStacks", StackName=name)
    listed = [s for s in (found or {}).get("Stacks", []) if s["StackStatus"] != "DELETE_COMPLETE"]
    return listed[0] if listed else None


IDENTITY = Check("credentials", ("sts:GetCallerIdentity",), fetch_identity, judge_identity)
"""The first one: without credentials there is no other."""
CHECKS: tuple[Check[Any], ...] = (
    Check("bootstrap", ("ssm:GetParameter",), fetch_bootstrap, judge_bootstrap),
    Check("stack", ("cloudformation:DescribeStacks",), fetch_stacks, judge_stacks),
)
