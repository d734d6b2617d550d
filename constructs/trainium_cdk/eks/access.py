"""Who may do what in the cluster. Pure."""

from __future__ import annotations

POLICIES = {
    "cluster-admin": "AmazonEKSClusterAdminPolicy",
    "admin": "AmazonEKSAdminPolicy",
    "edit": "AmazonEKSEditPolicy",
    "view": "AmazonEKSViewPolicy",
}
"""The environment's words -> EKS access policies."""
EDITORS = "trainium:edit"
VIEWERS = "trainium:view"
SCALER = "trainium:scaler"
"""Kubernetes group of the function that starts and stops nodes."""
GROUPS = {"admin": EDITORS, "edit": EDITORS, "view": VIEWERS}
"""Policy -> Kubernetes group. EKS's own policies leave Volcano's jobs out; a group's members get them by RBAC."""


def policy_arn(partition: str, policy: str) -> str:
    """The ARN of an access policy, by its word in the environment."""
    return f"arn:{partition}:eks::aws:cluster-access-policy/{POLICIES[policy]}"
