"""Service-linked roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainium_cdk.checks.live.aws import Aws
from trainium_cdk.checks.live.model import Check, Found, Target


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


SPOT = Role("AWSServiceRoleForEC2Spot", "spot.amazonaws.com", automatic=False)
ROLES = {
    "eks": Role("AWSServiceRoleForAmazonEKS", "eks.amazonaws.com"),
    "nodes": Role("AWSServiceRoleForAmazonEKSNodegroup", "eks-nodegroup.amazonaws.com"),
    "scaling": Role("AWSServiceRoleForAutoScaling", "autoscaling.amazonaws.com"),
    "efs": Role("AWSServiceRoleForAmazonElasticFileSystem", "elasticfilesystem.amazonaws.com"),
    "fsx": Role("AWSServiceRoleForAmazonFSx", "fsx.amazonaws.com"),
    "pcs": Role("AWSServiceRoleForPCS", "pcs.amazonaws.com"),
    "balancer": Role("AWSServiceRoleForElasticLoadBalancing", "elasticloadbalancing.amazonaws.com"),
}


def roles(target: Target) -> list[Role]:
    """The service-linked roles that this stack's services use."""
    env, wanted = target.env, []
    if any(f.queue.capacity_type == "spot" for f in target.nodes):
        wanted.append(SPOT)
    wanted += [ROLES[name] for name in target.inventory.linked_roles()]
    for name, storage in (("efs", env.storage.efs), ("fsx", env.storage.fsx)):
        if storage and not storage.existing:
            wanted.append(ROLES[name])
    return wanted


def evaluate_roles(target: Target, existing: dict[str, bool]) -> Found:
    customer_key = target.env.encryption == "customer-key"
    named = [ROLES[name] for name in target.inventory.key_policy_roles if customer_key]
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


def fetch_roles(target: Target, aws: Aws) -> dict[str, bool]:
    return {r.name: aws.find("iam:GetRole", RoleName=r.name) is not None for r in roles(target)}


CHECKS: tuple[Check[Any], ...] = (
    Check("service-roles", ("iam:GetRole",), fetch_roles, evaluate_roles, lambda t: bool(roles(t))),
)
