"""Permissions in the cluster. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

Policy = Literal["cluster-admin", "admin", "edit", "view"]
POLICIES = {
    "cluster-admin": "AmazonEKSClusterAdminPolicy",
    "admin": "AmazonEKSAdminPolicy",
    "edit": "AmazonEKSEditPolicy",
    "view": "AmazonEKSViewPolicy",
}
"""Policy names in the environment -> EKS access policies."""
EDITORS = "trainium:edit"
VIEWERS = "trainium:view"
SCALER = "trainium:scaler"
"""Kubernetes group of the function that starts and stops nodes."""
OBJECTS = "trainium:objects"
"""Kubernetes group of the function that removes objects which leave."""
_GROUPS = {"admin": EDITORS, "edit": EDITORS, "view": VIEWERS}


def groups_of(policy: Policy, team: str | None = None) -> list[str]:
    """The Kubernetes groups of a policy's principals. EKS's policies do not cover JobSets, Kueue and Volcano; a group's members get them by
    RBAC, in the jobs' namespace or in a team's."""
    return [_GROUPS[policy] + (f":{team}" if team else "")] if policy in _GROUPS else []


_ECR = re.compile(r"(?:oci://)?(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.[^/]+/(.+)")


def ecr_repositories(partition: str, addresses: Iterable[str]) -> list[str]:
    """ARNs of repositories in ECR by their addresses, with or without oci://; other registries' are left out, and a registry
    without a path.

    >>> ecr_repositories("aws", ["oci://111122223333.dkr.ecr.us-east-1.amazonaws.com/charts/kueue", "quay.io/x"])
    ['arn:aws:ecr:us-east-1:111122223333:repository/charts/kueue']
    """
    found = (_ECR.fullmatch(address) for address in addresses)
    return [f"arn:{partition}:ecr:{m[2]}:{m[1]}:repository/{m[3]}" for m in found if m]


def policy_arn(partition: str, policy: str) -> str:
    """The ARN of an access policy, by its name in the environment."""
    return f"arn:{partition}:eks::aws:cluster-access-policy/{POLICIES[policy]}"
