"""Quotas that ministack does not know: sizes of policies, policies of a role, rules of a security group, events of custom resources."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ministack.services import ec2, iam
from ministack.services.cloudformation import custom_resource

from sandbox.emulator.cfn.registry import Made, Properties, handlers

TRUST, MANAGED, INLINE, ATTACHED = 2048, 6144, 10_240, 10
"""Characters without white space of a trust policy, of a managed policy and of all inline ones of a role; managed policies of a role (IAM quotas)."""
RULES = 60
"""Rules of a security group in one direction (VPC quotas)."""
EVENT = 262_144
"""Bytes of an event that Lambda has taken of CloudFormation (aws-cdk issue 19165); its API reference names 1 MB since."""
_QUOTA = "Cannot exceed quota for {}: {} (LimitExceeded)"


def _size(document: Any) -> int:
    return len("".join((document if isinstance(document, str) else json.dumps(document)).split()))


def _require(name: str, found: int, most: int) -> None:
    if found > most:
        raise ValueError(_QUOTA.format(name, most))


def _role(properties: Properties) -> None:
    _require("ACLSizePerRole", _size(properties["AssumeRolePolicyDocument"]), TRUST)
    inline = sum(_size(each["PolicyDocument"]) for each in properties.get("Policies") or [])
    _require("PolicySize", inline, INLINE)
    _require("PoliciesPerRole", len(set(properties.get("ManagedPolicyArns") or [])), ATTACHED)


def _managed(properties: Properties) -> None:
    _require("PolicySize", _size(properties["PolicyDocument"]), MANAGED)


def _attached(properties: Properties) -> None:
    for role in properties.get("Roles") or []:
        _require("PoliciesPerRole", len(iam._roles[role]["AttachedPolicies"]), ATTACHED)


def _inline(properties: Properties) -> None:
    for role in properties.get("Roles") or []:
        _require("PolicySize", sum(map(_size, iam._roles[role]["InlinePolicies"].values())), INLINE)


def _rules(properties: Properties) -> None:
    group = ec2._security_groups.get(properties["GroupId"], {})
    for key in ("IpPermissions", "IpPermissionsEgress"):
        if sum(_count(rule) for rule in group.get(key, [])) > RULES:
            raise ValueError(
                "The maximum number of rules per security group has been reached. (RulesPerSecurityGroupLimitExceeded)"
            )


def _count(rule: dict[str, Any]) -> int:
    """EC2 keeps the peers of rules of one port together, and counts each."""
    return sum(len(rule.get(peers) or []) for peers in ("UserIdGroupPairs", "IpRanges", "Ipv6Ranges", "PrefixListIds"))


def _limit(
    kind: str, before: Callable[[Properties], None] | None = None, after: Callable[[Properties], None] | None = None
) -> None:
    """Check the properties before, or the result after, a resource of a type is created or updated."""
    found = handlers(kind)
    create, update, delete = (found[action] for action in ("create", "update", "delete"))

    def created(logical: str, properties: Properties, stack: str) -> Made:
        if before:
            before(properties)
        made: Made = create(logical, properties, stack)
        if after:
            try:
                after(properties)
            except ValueError:
                delete(made[0], properties)
                raise
        return made

    def updated(physical_id: str, old: Properties, new: Properties, *rest: Any, **more: Any) -> Made:
        if before:
            before(new)
        made: Made = update(physical_id, old, new, *rest, **more)
        if after:
            after(new)
        return made

    found.update(create=created, update=updated)


_limit("AWS::IAM::Role", before=_role)
_limit("AWS::IAM::ManagedPolicy", before=_managed, after=_attached)
_limit("AWS::IAM::Policy", after=_inline)
for _direction in ("Ingress", "Egress"):
    _limit(f"AWS::EC2::SecurityGroup{_direction}", after=_rules)

_invoke = custom_resource.invoke_custom_resource


def _invoke_within_limit(
    request: str, logical_id: str, properties: dict[str, Any], stack_name: str, stack_id: str, kind: str, **more: Any
) -> Any:
    size = len(json.dumps([properties, more.get("old_props")]).encode())
    if size > EVENT:
        raise ValueError(
            f"{size} byte payload is too large for the Event invocation type (limit {EVENT} bytes) (RequestEntityTooLargeException)"
        )
    return _invoke(request, logical_id, properties, stack_name, stack_id, kind, **more)


custom_resource.invoke_custom_resource = _invoke_within_limit
