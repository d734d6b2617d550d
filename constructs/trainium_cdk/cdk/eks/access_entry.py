"""Access entries: who may use the Kubernetes API, and for what."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from aws_cdk import aws_eks_v2 as eks
from constructs import Construct, IConstruct

from trainium_cdk.cdk.eks.access import POLICIES, Policy, groups_of, policy_arn
from trainium_cdk.cdk.helpers.described import Described
from trainium_cdk.cdk.helpers.paths import path_of
from trainium_cdk.cdk.helpers.rules import unresolved
from trainium_cdk.cdk.helpers.stack_wide import kept_with, once, place_of, share, stack_of
from trainium_cdk.cdk.helpers.types import AnyRole
from trainium_cdk.description.checks.eks import principal_kind

_Entry = eks.CfnAccessEntry
_Kept = tuple[eks.CfnAccessEntry | None, list[str], dict[str, dict[str, None]]]
"""An entry with its groups, and its policies, each with its namespaces."""


def access_entry(
    owner: IConstruct,
    scope: Construct,
    id: str,
    *,
    cluster_name: str,
    principal: AnyRole | str,
    policy: Policy,
    namespace: str,
    team: str | None = None,
) -> eks.CfnAccessEntry:
    """The access entry of a principal, with this policy too: EKS takes one entry of a principal, with several policies and groups (EKS user guide,
    "Create access entries").

    Policies of EKS do not cover JobSets and Kueue, so each also has a Kubernetes group, whose permissions in the namespace come with the
    plug-ins.

    Args:
        owner: the cluster, which has one entry of each principal.
        scope: of the entry, if this is the principal's first grant.
        id: as scope.
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
    arn = principal if isinstance(principal, str) else once(principal, "role_arn")
    if not unresolved(
        arn.rpartition(":")[2]
    ):  # of a role that is imported by its name, only account and partition are tokens
        described = Described(scope, {("eks", "access", 0, "principal"): "principal"})
        described.check(described.environment(eks={"access": [{"principal": arn}]}), (principal_kind,))
    names = [] if policy == "cluster-admin" else [team or namespace]
    return _granted(owner, scope, id, cluster_name, principal, groups_of(policy, team), {policy: names})


def entry_of_function(
    owner: IConstruct, scope: Construct, *, cluster_name: str, role: AnyRole, group: str
) -> eks.CfnAccessEntry:
    """Return the access entry of a function with permissions of one Kubernetes group alone, which the plug-ins bind."""
    return _granted(owner, scope, "Access", cluster_name, role, [group], {})


def _granted(
    owner: IConstruct,
    scope: Construct,
    id: str,
    cluster_name: str,
    principal: AnyRole | str,
    groups: Iterable[str],
    policies: Mapping[str, Iterable[str]],
) -> eks.CfnAccessEntry:
    """The principal's entry with these groups and policies too. policies: name -> its namespaces; none for all of the cluster."""
    stack, known = stack_of(scope), kept_with(owner, "entries")
    arn = principal if isinstance(principal, str) else once(principal, "role_arn")
    key = json.dumps(stack.resolve(arn))
    if "Fn::GetAtt" in key:  # a resource of one stack
        key += path_of(stack if isinstance(principal, str) else stack_of(principal))
    found: _Kept = known.get(key) or (None, [], {})
    entry, all_groups, scopes = found
    all_groups += [group for group in groups if group not in all_groups]
    for policy, namespaces in policies.items():
        scopes.setdefault(policy, {}).update(dict.fromkeys(namespaces))
    access_policies: list[Any] = [
        _Entry.AccessPolicyProperty(
            policy_arn=policy_arn(place_of(entry or scope).partition, policy),
            access_scope=_Entry.AccessScopeProperty(
                type="namespace" if namespaces else "cluster", namespaces=list(namespaces) or None
            ),
        )
        for policy, namespaces in scopes.items()
    ]
    if entry:
        entry.kubernetes_groups, entry.access_policies = all_groups or None, access_policies or None
        return entry
    made = _Entry(
        scope,
        id,
        cluster_name=cluster_name,
        principal_arn=arn,
        type="STANDARD",
        kubernetes_groups=all_groups or None,
        access_policies=access_policies or None,
    )
    share(scope, made, "stack")
    known[key] = made, all_groups, scopes
    return made
