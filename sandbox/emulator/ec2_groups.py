"""Security groups: EC2 deletes none that something uses; the interfaces of a load balancer use its groups for a while after its deletion.
A rule that is revoked must exist; the account of a group in it may be given, as EC2 itself describes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ministack.core.responses import get_account_id
from ministack.services import alb, ec2, efs

from sandbox.emulator.query import ApiError, Response

RELEASED_AFTER = 3.0
"""Seconds until a deleted load balancer's interfaces are gone: on AWS a minute or more."""
_delete = ec2._ACTION_MAP["DeleteSecurityGroup"]
_balancers: dict[str, tuple[list[str], float]] = {}
"""Deleted load balancers: their groups, and until when these are in use."""


def users(group: str) -> list[str]:
    """What uses a security group."""

    def names(other: dict[str, Any]) -> bool:
        rules = [*other.get("IpPermissions", []), *other.get("IpPermissionsEgress", [])]
        return any(pair.get("GroupId") == group for rule in rules for pair in rule.get("UserIdGroupPairs", []))

    return [
        *(key for key, entry in ec2._network_interfaces.items()
          if any(used["GroupId"] == group for used in entry.get("Groups", []))),
        *(key for key, entry in efs._mount_targets.items() if group in entry.get("SecurityGroups", [])),
        *(key for key, entry in ec2._instances.items()
          if entry["State"]["Name"] not in ("terminated", "shutting-down")
          and any(used["GroupId"] == group for used in entry.get("SecurityGroups", []))),
        *(key for key, entry in ec2._security_groups.items() if key != group and names(entry)),
        *(key for key, entry in alb._lbs.items() if group in entry["SecurityGroups"]),
        *(key for key, (groups, until) in _balancers.items() if group in groups and time.monotonic() < until),
    ]  # fmt: skip


def _delete_group(params: dict[str, Any]) -> Response:
    group = ec2._p(params, "GroupId")
    if group in ec2._security_groups and users(group):
        raise ApiError("DependencyViolation", f"resource {group} has a dependent object")
    answer: Response = _delete(params)
    return answer


def _revoke(action: Callable[[dict[str, Any]], Response], kind: str) -> Callable[[dict[str, Any]], Response]:
    def run(params: dict[str, Any]) -> Response:
        group = ec2._security_groups.get(ec2._p(params, "GroupId"))
        for wanted in ec2._parse_ip_permissions(params, "IpPermissions") if group else ():
            if not any(ec2._rules_match(wanted, has) for has in group[kind]):
                raise ApiError(
                    "InvalidPermission.NotFound", "The specified rule does not exist in this security group."
                )
        return action(params)

    return run


def install() -> None:
    """Load balancers have the VPC of their subnets and release their groups later from now on, and rules are compared without the account."""
    delete, parse = alb._ACTION_MAP["DeleteLoadBalancer"], ec2._parse_ip_permissions
    create = alb._ACTION_MAP["CreateLoadBalancer"]

    def created(params: dict[str, Any]) -> Any:
        answer, subnets = create(params), alb._parse_member_list(params, "Subnets")
        for balancer in alb._lbs.values():
            if balancer["LoadBalancerName"] == alb._p(params, "Name") and subnets and subnets[0] in ec2._subnets:
                balancer["VpcId"] = ec2._subnets[subnets[0]]["VpcId"]
        return answer

    def deleted(params: dict[str, Any]) -> Any:
        arn = alb._p(params, "LoadBalancerArn")
        if arn in alb._lbs:
            _balancers[arn] = (alb._lbs[arn]["SecurityGroups"], time.monotonic() + RELEASED_AFTER)
        return delete(params)

    def parsed(params: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
        rules: list[dict[str, Any]] = parse(params, prefix)
        for pair in (pair for rule in rules for pair in rule["UserIdGroupPairs"]):
            if pair.get("UserId") == get_account_id():
                del pair["UserId"]
        return rules

    alb._ACTION_MAP["DeleteLoadBalancer"], ec2._parse_ip_permissions = deleted, parsed
    alb._ACTION_MAP["CreateLoadBalancer"] = created


ACTIONS = {
    "DeleteSecurityGroup": _delete_group,
    "RevokeSecurityGroupEgress": _revoke(ec2._ACTION_MAP["RevokeSecurityGroupEgress"], "IpPermissionsEgress"),
    "RevokeSecurityGroupIngress": _revoke(ec2._ACTION_MAP["RevokeSecurityGroupIngress"], "IpPermissions"),
}
