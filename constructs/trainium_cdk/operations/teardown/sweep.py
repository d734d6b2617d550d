"""Finding and deleting leftovers of a stack: resources that Kubernetes, ParallelCluster and Lambda created."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trainium_cdk.operations.teardown.owner import Owner
from trainium_cdk.operations.teardown.survey import Client


@dataclass(frozen=True)
class Leftover:
    """Something that belongs to the stack but is not one of its resources.

    Attributes:
        kind: for example `network interface`.
        why: why it belongs to the stack.
    """

    kind: str
    id: str
    why: str


@dataclass(frozen=True)
class Kind:
    """A kind of leftover: how to find and how to delete it."""

    name: str
    find: Callable[[Client, Owner], Iterator[tuple[str, str]]]
    delete: Callable[[Client, str], object]
    before: bool = False
    """Whether it may block the stack's deletion."""


def find(client: Client, owner: Owner, *, blocking: bool = False) -> Iterator[Leftover]:
    """All leftovers, in the order in which they can be deleted. Managed and kept resources are never among them.

    blocking: only what may block the stack's deletion.
    """
    spared = owner.managed | owner.kept if blocking else owner.kept
    for kind in KINDS:
        if blocking and not kind.before:
            continue
        for id, why in kind.find(client, owner):
            if id not in spared:
                yield Leftover(kind.name, id, why)


def delete(client: Client, left: Leftover) -> None:
    """Delete one of them.

    Raises:
        botocore.exceptions.ClientError: AWS rejected a request.
    """
    next(kind for kind in KINDS if kind.name == left.kind).delete(client, left.id)


def _tags(item: dict[str, Any]) -> dict[str, str]:
    return {t["Key"]: t["Value"] for t in item.get("Tags") or item.get("TagSet") or []}


def _instances(client: Client, owner: Owner) -> Iterator[tuple[str, str]]:
    states = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
    for page in client("ec2").get_paginator("describe_instances").paginate(Filters=states):
        for instance in [i for r in page["Reservations"] for i in r["Instances"]]:
            if why := owner.why(_tags(instance)):
                yield instance["InstanceId"], why


def _balancers(client: Client, owner: Owner) -> Iterator[tuple[str, str]]:
    elb = client("elbv2")
    for page in elb.get_paginator("describe_load_balancers").paginate():
        for balancer in page.get("LoadBalancers", []):
            arn = balancer["LoadBalancerArn"]
            described = elb.describe_tags(ResourceArns=[arn])["TagDescriptions"]
            if why := owner.why(_tags(described[0]) if described else {}):
                yield arn, why


def _classic_balancers(client: Client, owner: Owner) -> Iterator[tuple[str, str]]:
    elb = client("elb")
    for balancer in elb.describe_load_balancers().get("LoadBalancerDescriptions", []):
        name = balancer["LoadBalancerName"]
        described = elb.describe_tags(LoadBalancerNames=[name])["TagDescriptions"]
        if why := owner.why(_tags(described[0]) if described else {}):
            yield name, why


def _target_groups(client: Client, owner: Owner) -> Iterator[tuple[str, str]]:
    elb = client("elbv2")
    for page in elb.get_paginator("describe_target_groups").paginate():
        for group in page.get("TargetGroups", []):
            arn = group["TargetGroupArn"]
            described = elb.describe_tags(ResourceArns=[arn])["TagDescriptions"]
            if why := owner.why(_tags(described[0]) if described else {}):
                yield arn, why


def _interfaces(client: Client, owner: Owner) -> Iterator[tuple[str, str]]:
    """Only unused ones."""
    for page in client("ec2").get_paginator("describe_network_interfaces").paginate():
        for interface in page["NetworkInterfaces"]:
            if interface.get("Status") != "available":
                continue
            vpc, description = interface.get("VpcId", ""), interface.get("Description") or ""
            if why := owner.why_interface(_tags(interface), vpc, description):
                yield interface["NetworkInterfaceId"], why


def _groups(client: Client, owner: Owner) -> Iterator[tuple[str, str]]:
    for page in client("ec2").get_paginator("describe_security_groups").paginate():
        for group in page["SecurityGroups"]:
            if group["GroupName"] != "default" and (why := owner.why(_tags(group))):
                yield group["GroupId"], why


def _delete_group(client: Client, id: str) -> None:
    """First the rules that refer to it, its own and others', as they block its deletion."""
    ec2 = client("ec2")
    for group in ec2.describe_security_groups()["SecurityGroups"]:
        for key, revoke in (
            ("IpPermissions", ec2.revoke_security_group_ingress),
            ("IpPermissionsEgress", ec2.revoke_security_group_egress),
        ):
            rules = [
                {**rule, "UserIdGroupPairs": pairs, "IpRanges": [], "Ipv6Ranges": [], "PrefixListIds": []}
                for rule in group.get(key, [])
                if (pairs := [p for p in rule.get("UserIdGroupPairs", []) if p.get("GroupId") == id])
            ]
            if rules:
                revoke(GroupId=group["GroupId"], IpPermissions=rules)
    ec2.delete_security_group(GroupId=id)


def _volumes(client: Client, owner: Owner) -> Iterator[tuple[str, str]]:
    """Only those without an instance."""
    for page in client("ec2").get_paginator("describe_volumes").paginate():
        for volume in page["Volumes"]:
            if volume.get("State") == "available" and (why := owner.why(_tags(volume))):
                yield volume["VolumeId"], why


def _logs(client: Client, owner: Owner) -> Iterator[tuple[str, str]]:
    for page in client("logs").get_paginator("describe_log_groups").paginate():
        for group in page["logGroups"]:
            if why := owner.why_log(group["logGroupName"]):
                yield group["logGroupName"], why


KINDS: tuple[Kind, ...] = (
    Kind("instance", _instances, lambda c, id: c("ec2").terminate_instances(InstanceIds=[id])),
    Kind("load balancer", _balancers, lambda c, id: c("elbv2").delete_load_balancer(LoadBalancerArn=id), before=True),
    Kind(
        "classic load balancer",
        _classic_balancers,
        lambda c, id: c("elb").delete_load_balancer(LoadBalancerName=id),
        before=True,
    ),
    Kind("target group", _target_groups, lambda c, id: c("elbv2").delete_target_group(TargetGroupArn=id), before=True),
    Kind(
        "network interface",
        _interfaces,
        lambda c, id: c("ec2").delete_network_interface(NetworkInterfaceId=id),
        before=True,
    ),
    Kind("security group", _groups, _delete_group, before=True),
    Kind("volume", _volumes, lambda c, id: c("ec2").delete_volume(VolumeId=id)),
    Kind("log group", _logs, lambda c, id: c("logs").delete_log_group(logGroupName=id)),
)
"""In the order of deletion: each may block the ones after it."""
