"""Service-linked roles, and the principals that the environment names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found
from trainium_cdk.description.settings.principals import Principal, principal
from trainium_cdk.problems import KeyPath


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


CHECKS: tuple[Check[Any], ...] = (
    _principals("role"),
    _principals("user"),
    Check("service-roles", ("iam:GetRole",), fetch_roles, evaluate_roles, lambda t: bool(roles(t))),
)
