"""Access entries: who may use the Kubernetes API, and for what."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from trainium_cdk._cdk.described import Described
from trainium_cdk._cdk.rules import unresolved
from trainium_cdk._cdk.types import AnyRole
from trainium_cdk.checks.principals import principal_kind
from trainium_cdk.eks.access import POLICIES, Policy, groups_of, policy_arn

_Entry = eks.CfnAccessEntry


def access_entry(
    scope: Construct,
    id: str,
    *,
    cluster_name: str,
    principal: AnyRole | str,
    policy: Policy,
    namespace: str,
    team: str | None = None,
) -> eks.CfnAccessEntry:
    """Policies of EKS do not cover JobSets and Kueue, so each also has a Kubernetes group, whose permissions in the namespace come with the
    plug-ins.

    Args:
        principal: a role, or the ARN of a role or user.
        policy: `cluster-admin` applies to all of the cluster, the others to one namespace.
        namespace: the jobs' namespace.
        team: a team's namespace instead of it.

    Raises:
        SettingsError: the principal is no ARN.
        ValueError: there is no such policy.
    """
    if policy not in POLICIES:
        choices = ", ".join(POLICIES)
        raise ValueError(f"{scope.node.path}: policy = {policy}: there is no such policy. Fix: write one of {choices}")
    arn = principal if isinstance(principal, str) else principal.role_arn
    if not unresolved(
        arn.rpartition(":")[2]
    ):  # of a role that is imported by its name, only account and partition are tokens
        described = Described(scope, {("eks", "access", 0, "principal"): "principal"})
        described.check(described.environment(eks={"access": [{"principal": arn}]}), (principal_kind,))
    whole = policy == "cluster-admin"
    return _Entry(
        scope,
        id,
        cluster_name=cluster_name,
        principal_arn=arn,
        type="STANDARD",
        kubernetes_groups=groups_of(policy, team) or None,
        access_policies=[
            _Entry.AccessPolicyProperty(
                policy_arn=policy_arn(Stack.of(scope).partition, policy),
                access_scope=_Entry.AccessScopeProperty(
                    type="cluster" if whole else "namespace", namespaces=None if whole else [team or namespace]
                ),
            )
        ],
    )


def entry_of_function(scope: Construct, *, cluster_name: str, role: AnyRole, group: str) -> eks.CfnAccessEntry:
    """For a function with permissions of one Kubernetes group alone, which the plug-ins bind."""
    return _Entry(
        scope,
        "Access",
        cluster_name=cluster_name,
        principal_arn=role.role_arn,
        type="STANDARD",
        kubernetes_groups=[group],
    )
