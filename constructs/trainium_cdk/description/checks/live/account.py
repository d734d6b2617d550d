"""The account: credentials, the CDK's bootstrap, and stacks that already exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found

OLDEST_BOOTSTRAP = 6
"""The version that the CDK's templates require (rule CheckBootstrapVersion in every synthesised stack, aws-cdk-lib
2.275)."""
CLUSTER = "Custom::PclusterCluster"
Stacks = tuple[dict[str, Any] | None, dict[str, Any] | None]


def evaluate_identity(target: CheckTarget, identity: dict[str, Any]) -> Found:
    account, arn = identity["Account"], identity["Arn"]
    if target.env.account and target.env.account != account:
        yield target.about("account", "account").error(
            account,
            f"the credentials ({arn}) are not for the environment's account {target.env.account}",
            f"use credentials of {target.env.account}, or write account: {account!r}",
        )
        return
    yield target.about("credentials").ok(arn, f"account {account}, region {target.env.region}")


def bootstrap_command(region: str, account: str | None = None) -> str:
    """The command that bootstraps a region. Without `--app ""`, the CDK's command line synthesises the app of the folder first."""
    return f'cdk bootstrap aws://{account or "ACCOUNT"}/{region} --app ""'


def evaluate_bootstrap(target: CheckTarget, version: str | None) -> Found:
    fix = f"`trn launch` does it; for `cdk deploy`: {bootstrap_command(target.env.region, target.account)}"
    if target.qualifier != CheckTarget.qualifier:
        fix += f" --qualifier {target.qualifier}"
    bootstrap = target.about("CDK bootstrap")
    if version is None:
        yield bootstrap.warning("none", "this account and region are not bootstrapped for the CDK", fix)
    elif not version.isdecimal() or int(version) < OLDEST_BOOTSTRAP:
        yield bootstrap.error(f"version {version}", f"the stacks need version {OLDEST_BOOTSTRAP} or newer", fix)
    else:
        yield bootstrap.ok(f"version {version}", f"at least {OLDEST_BOOTSTRAP} is needed")


def evaluate_stacks(target: CheckTarget, stacks: Stacks) -> Found:
    ours, cluster = stacks
    own = target.about(f"stack {target.stack}")
    if cluster is not None:
        yield target.about(f"stack {target.cluster}", "pcluster", "cluster_name").error(
            cluster["StackStatus"],
            "ParallelCluster creates a stack with the cluster's name, and a stack with this name already exists",
            f"delete that cluster, or give this one another name: pcluster.cluster_name (now {target.cluster})",
        )
    if ours is None:
        yield own.ok("none", "it will be created")
        return
    status = str(ours["StackStatus"])
    if status == "ROLLBACK_COMPLETE" or status.endswith("_FAILED"):
        fix = f"find the cause (trn why {target.stack}), then: trn destroy {target.stack}"
        if status.startswith("UPDATE"):
            fix = (
                f"repair the stack first: {resume_rollback(target.stack, target.env.region, ours.get('Resources', ()))}"
            )
        yield own.error(status, "CloudFormation cannot update a stack in this state", fix)
    elif status.endswith("_IN_PROGRESS"):
        yield own.error(status, "the stack is being changed", "wait until that is finished")
    else:
        yield own.ok(status, "it exists and will be updated: its resources are not counted again")


def resume_rollback(stack: str, region: str, resources: Iterable[Mapping[str, Any]]) -> str:
    """The command that ends a failed rollback.

    ParallelCluster's function reports a cluster whose update failed as failed again when the rollback sends the earlier configuration.
    ParallelCluster itself has gone back to it already, so the cluster is skipped; the next change of its configuration is made
    (aws-parallelcluster 3.16.1, `converters.py`, and its provider of 3.11.1: run 2026-11-23).

    Args:
        resources: the stack's, as of ListStackResources.
    """
    command = f"aws cloudformation continue-update-rollback --stack-name {stack} --region {region}"
    failed = [r for r in resources if r["ResourceType"] == CLUSTER and r["ResourceStatus"].endswith("FAILED")]
    return f"{command} --resources-to-skip {' '.join(r['LogicalResourceId'] for r in failed)}" if failed else command


def fetch_stacks(target: CheckTarget, aws: Aws) -> Stacks:
    """Our stack with its resources, and another stack that already has the name of the new cluster."""
    ours = stack(target, aws)
    listed = aws.find("cloudformation:ListStackResources", StackName=target.stack)
    if ours:
        ours = {**ours, "Resources": (listed or {}).get("StackResourceSummaries", [])}
    new = target.inventory.own_stacks() and deployed_cluster(ours) != target.cluster
    return ours, _stack(aws, target.cluster) if new else None


def stack(target: CheckTarget, aws: Aws) -> dict[str, Any] | None:
    """The current state of our stack; None if it does not exist."""
    return _stack(aws, target.stack)


def deployed_cluster(ours: dict[str, Any] | None) -> str | None:
    """Name of the cluster of our stack; None if there is no stack."""
    return {o["OutputKey"]: o["OutputValue"] for o in (ours or {}).get("Outputs", [])}.get("ClusterName")


def _stack(aws: Aws, name: str) -> dict[str, Any] | None:
    answer = aws.find("cloudformation:DescribeStacks", StackName=name)
    listed = [s for s in (answer or {}).get("Stacks", []) if s["StackStatus"] != "DELETE_COMPLETE"]
    return listed[0] if listed else None


IDENTITY = Check(
    "credentials", ("sts:GetCallerIdentity",), lambda _, aws: aws("sts:GetCallerIdentity"), evaluate_identity
)
"""The first check. Without credentials no other check can run."""
BOOTSTRAP = Check(
    "bootstrap",
    ("ssm:GetParameter",),
    lambda target, aws: aws.parameter(f"/cdk-bootstrap/{target.qualifier}/version"),
    evaluate_bootstrap,
)
CHECKS: tuple[Check[Any], ...] = (
    BOOTSTRAP,
    Check(
        "stack", ("cloudformation:DescribeStacks", "cloudformation:ListStackResources"), fetch_stacks, evaluate_stacks
    ),
)
