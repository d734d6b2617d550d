"""Principals that may use a cluster: roles and users, by their complete ARNs."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.description.checks.rule import Rules, error, warning
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.principals import SSO_NAME, SSO_PATH, principal
from trainium_cdk.problems import KeyPath

TRUST_POLICY = 2048
"""Characters of a role's trust policy, if the account's quota was not raised (IAM quotas, 2026-11)."""
_TRUST_WITHOUT_USERS = 191
"""Characters of the trust policy of the role that `trn` takes, without `users`."""
_NO_PATH = "roles of IAM Identity Center have a path, and this ARN has none"

RULES = Rules()


@RULES.refuse("EKS user guide, creating-access-entries: roles and users of any account, none service-linked")
def principal_kind(env: Environment) -> Iterator[Problem]:
    for i, access in enumerate(env.eks.access):
        at: KeyPath = ("eks", "access", i, "principal")
        found = principal(access.principal)
        if found is None:
            text = "access entries are for IAM roles and users only"
            yield error(at, text, "write a role, for example arn:aws:iam::111122223333:role/Researcher")
        elif found.session:
            text = "this is a session of a role, not the role, whose path it does not show"
            yield error(at, text, f"write the ARN that this prints: {found.look_up}")
        elif found.lacks_its_path:
            text = f"{_NO_PATH}: EKS refuses it, and the stack is rolled back"
            yield error(at, text, f"write the ARN that this prints: {found.look_up}")
        elif found.path.startswith("aws-service-role/"):
            text = "EKS takes no service-linked role in an access entry, and the stack would be rolled back"
            yield error(at, text, "give a role that people or programs of yours assume")


@RULES.add
def user_without_path(env: Environment) -> Iterator[Problem]:
    """IAM compares these patterns with the role's ARN, path and all, also where a session asks."""
    for i, user in enumerate(env.eks.users):
        found = principal(user)
        if found and found.kind == "role" and not found.path and _may_be_sso(found.name):
            own = f"arn:{found.partition}:iam::{found.account}:role/{SSO_PATH}*{found.name}"
            yield warning(("eks", "users", i), f"{_NO_PATH}: it matches no one", f"write {own}")


def _may_be_sso(pattern: str) -> bool:
    """Return whether a pattern fits names of Identity Center's roles. The text before its first wildcard decides."""
    begin = pattern.partition("*")[0].partition("?")[0]
    return begin.startswith(SSO_NAME) or (begin.startswith("AWSReserved") and SSO_NAME.startswith(begin))


@RULES.add
def too_many_users(env: Environment) -> Iterator[Problem]:
    size = _TRUST_WITHOUT_USERS + sum(len(f'"{user}",') for user in env.eks.users)
    if size > TRUST_POLICY:
        yield warning(
            ("eks", "users"),
            f"the trust policy of the role that `trn` takes has {size:,} characters, and IAM accepts {TRUST_POLICY:,} where the account's quota "
            "was not raised: the deployment would fail",
            "name several users by one pattern with *, or raise IAM's quota `Role trust policy length` first",
            value=f"{len(env.eks.users)} users",
        )
