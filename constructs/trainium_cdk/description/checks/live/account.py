"""The account: credentials, the CDK's bootstrap, stacks that already exist, service-linked roles, and the principals that the environment names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found
from trainium_cdk.description.checks.pcluster import partition
from trainium_cdk.description.settings.principals import Principal, principal
from trainium_cdk.problems import KeyPath

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


def deploying_role(target: CheckTarget) -> str:
    """ARN of the role of the CDK's bootstrap with which CloudFormation deploys."""
    region, account_id, aws = place(target)
    return f"arn:{aws}:iam::{account_id}:role/cdk-{target.qualifier}-cfn-exec-role-{account_id}-{region}"


def place(target: CheckTarget) -> tuple[str, str, str]:
    """Region, account and partition, as an ARN has them."""
    region = target.env.region
    return region, target.env.account or target.account or "*", partition(region)


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


@dataclass(frozen=True)
class Role:
    """A service-linked role.

    Attributes:
        service: the service that it belongs to: `aws iam create-service-linked-role --aws-service-name <this>`.
        automatic: whether the service creates it at first use, if the caller has the permission.
    """

    name: str
    service: str
    automatic: bool = True


ROLES = {
    "eks": Role("AWSServiceRoleForAmazonEKS", "eks.amazonaws.com"),
    "nodes": Role("AWSServiceRoleForAmazonEKSNodegroup", "eks-nodegroup.amazonaws.com"),
    "scaling": Role("AWSServiceRoleForAutoScaling", "autoscaling.amazonaws.com"),
    "spot": Role("AWSServiceRoleForEC2Spot", "spot.amazonaws.com", automatic=False),
    "efs": Role("AWSServiceRoleForAmazonElasticFileSystem", "elasticfilesystem.amazonaws.com"),
    "fsx": Role("AWSServiceRoleForAmazonFSx", "fsx.amazonaws.com"),
    "pcs": Role("AWSServiceRoleForPCS", "pcs.amazonaws.com"),
    "balancer": Role("AWSServiceRoleForElasticLoadBalancing", "elasticloadbalancing.amazonaws.com"),
}


def roles(target: CheckTarget) -> list[Role]:
    """The service-linked roles that this stack's services use."""
    storage = (("efs", target.env.storage.efs), ("fsx", target.env.storage.fsx))
    names = ["spot"] * any(f.queue.capacity_type == "spot" for f in target.nodes)
    names += [*target.inventory.linked_roles(), *(name for name, each in storage if each and not each.existing)]
    return [ROLES[name] for name in names]


def evaluate_roles(target: CheckTarget, existing: dict[str, bool]) -> Found:
    customer_key = target.env.encryption == "customer-key"
    named = [ROLES[name] for name in target.inventory.volume_roles() if customer_key and name != "spot"]
    for role in roles(target):
        create = f"aws iam create-service-linked-role --aws-service-name {role.service}"
        subject = target.about(f"role {role.name}")
        if existing[role.name]:
            yield subject.ok("exists", f"for {role.service}")
        elif role in named:
            why = "the policy of the stack's key names this role (encryption: customer-key), and KMS rejects a policy with a missing role"
            yield subject.error("none", why, create)
        elif role.automatic:
            why = "the service creates it at first use, if the deployer has iam:CreateServiceLinkedRole"
            yield subject.info("none", why, create)
        else:
            why = "it is not created automatically, and no instance can start without it"
            yield subject.error("none", why, create)


def fetch_roles(target: CheckTarget, aws: Aws) -> dict[str, bool]:
    return {r.name: aws.find("iam:GetRole", RoleName=r.name) is not None for r in roles(target)}


Principals = dict[KeyPath, "str | None"]
"""The real ARN of each principal; None where there is no such role or user."""


def principals(target: CheckTarget, kind: str) -> dict[KeyPath, Principal]:
    """The roles, or the users, of this account that the cluster gives access, by key."""
    account, named = target.account or target.env.account, target.inventory.principals()
    found = {key: principal(arn) for key, arn in named.items()}
    return {key: one for key, one in found.items() if one and one.kind == kind and account in (None, one.account)}


def _principals(kind: str) -> Check[Principals]:
    """Return a check that roles, or users, exist under their ARNs. A session does not show its role's path."""

    def fetch(target: CheckTarget, aws: Aws) -> Principals:
        asked = {
            at: aws.find(action, **{f"{kind.title()}Name": one.name}) for at, one in principals(target, kind).items()
        }
        return {at: str(answer[kind.title()]["Arn"]) if answer else None for at, answer in asked.items()}

    def evaluate(target: CheckTarget, existing: Principals) -> Found:
        for at, one in principals(target, kind).items():
            real, subject = existing[at], target.about(f"{kind} {one.name}", *at)
            own = f"arn:{one.partition}:iam::{one.account}:{kind}/{one.path}{one.name}"
            if real is None:
                effect = "EKS refuses its access entry" if at[1] == "access" else "it matches no one"
                yield subject.error("none", f"there is none of this name in this account: {effect}", "correct the ARN")
            elif one.session or real != own:
                fix = "give one that is not a service's" if "/aws-service-role/" in real else f"write {real}"
                yield subject.error(real, "the environment has another ARN, without its path", fix)
            else:
                yield subject.ok(real, "exists")

    action = f"iam:Get{kind.title()}"
    return Check(f"{kind}s-with-access", (action,), fetch, evaluate, lambda t: bool(principals(t, kind)))


ACCESS_CHECKS: tuple[Check[Any], ...] = (
    _principals("role"),
    _principals("user"),
    Check("service-roles", ("iam:GetRole",), fetch_roles, evaluate_roles, lambda t: bool(roles(t))),
)
