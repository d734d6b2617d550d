"""Key pairs and service-linked roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainium_cdk.checks.live.aws import Aws
from trainium_cdk.checks.live.model import Check, Finding, Found, Target

KEY: tuple[str, ...] = ("pcluster", "head", "ssh", "key_name")


def _key_name(target: Target) -> str | None:
    """The key pair that is named; one that the stack makes is of the right kind."""
    return target.of.key_pair(target.env)


def judge_key_pair(target: Target, kind: str | None) -> Found:
    name, os = _key_name(target), target.env.pcluster.os
    what, where = f"key pair {name}", target.where(KEY)
    make = f"aws ec2 create-key-pair --key-name {name} --key-type ed25519 --region {target.env.region}"
    if kind is None:
        yield Finding("error", what, "none", f"there is no such key pair in {target.env.region}", make, where)
    elif kind != "ed25519" and os.startswith("ubuntu"):
        yield Finding(
            "error", what, kind, f"{os} takes no {kind} keys", "name an ed25519 key pair, or remove key_name", where
        )
    else:
        yield Finding("ok", what, kind, f"{os} takes it")


def fetch_key_pair(target: Target, aws: Aws) -> str | None:
    found = aws.find("ec2:DescribeKeyPairs", KeyNames=[_key_name(target)])
    return str(found["KeyPairs"][0]["KeyType"]) if found and found["KeyPairs"] else None


@dataclass(frozen=True)
class Role:
    """A service-linked role.

    Attributes:
        service: what makes it: `aws iam create-service-linked-role --aws-service-name <this>`.
        by_itself: whether the service makes it when it is first used by who may create it.
    """

    name: str
    service: str
    by_itself: bool = True


SPOT = Role("AWSServiceRoleForEC2Spot", "spot.amazonaws.com", by_itself=False)
ROLES = {
    "eks": Role("AWSServiceRoleForAmazonEKS", "eks.amazonaws.com"),
    "nodes": Role("AWSServiceRoleForAmazonEKSNodegroup", "eks-nodegroup.amazonaws.com"),
    "scaling": Role("AWSServiceRoleForAutoScaling", "autoscaling.amazonaws.com"),
    "efs": Role("AWSServiceRoleForAmazonElasticFileSystem", "elasticfilesystem.amazonaws.com"),
    "fsx": Role("AWSServiceRoleForAmazonFSx", "fsx.amazonaws.com"),
    "balancer": Role("AWSServiceRoleForElasticLoadBalancing", "elasticloadbalancing.amazonaws.com"),
}


def roles(target: Target) -> list[Role]:
    """The service-linked roles that this stack's services act with."""
    env, wanted = target.env, []
    if any(f.queue.purchase == "spot" for f in target.fleets):
        wanted.append(SPOT)
    wanted += [ROLES[name] for name in target.of.service_roles(env)]
    for name, storage in (("efs", env.storage.efs), ("fsx", env.storage.fsx)):
        if storage and not storage.existing:
            wanted.append(ROLES[name])
    return wanted


def judge_roles(target: Target, there: dict[str, bool]) -> Found:
    for role in roles(target):
        make = f"aws iam create-service-linked-role --aws-service-name {role.service}"
        if there[role.name]:
            yield Finding("ok", f"role {role.name}", "there", f"for {role.service}")
        elif _named_by_the_key(target, role):
            why = "the policy of the stack's key names it (encryption: customer-key), and KMS takes no policy with a role that is absent"
            yield Finding("error", f"role {role.name}", "none", why, make)
        elif role.by_itself:
            may = "iam:CreateServiceLinkedRole"
            yield Finding(
                "info",
                f"role {role.name}",
                "none",
                f"the service makes it at first use, if the deployer has {may}",
                make,
            )
        else:
            yield Finding(
                "error", f"role {role.name}", "none", "nothing makes it for us, and no instance starts without it", make
            )


def _named_by_the_key(target: Target, role: Role) -> bool:
    return role is ROLES.get(target.of.role_in_key_policy) and target.env.encryption == "customer-key"


def fetch_roles(target: Target, aws: Aws) -> dict[str, bool]:
    return {r.name: aws.find("iam:GetRole", RoleName=r.name) is not None for r in roles(target)}


CHECKS: tuple[Check[Any], ...] = (
    Check("key-pair", ("ec2:DescribeKeyPairs",), fetch_key_pair, judge_key_pair, lambda t: bool(_key_name(t))),
    Check("service-roles", ("iam:GetRole",), fetch_roles, judge_roles, lambda t: bool(roles(t))),
)
