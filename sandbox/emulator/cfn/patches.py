"""Fixes where ministack's handlers are less strict than CloudFormation and would hide mistakes."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from ministack.services import ec2, efs, s3
from ministack.services.cloudformation import handlers as stack_handlers
from ministack.services.cloudformation import provisioners

from sandbox.emulator import ec2_groups
from sandbox.emulator.cfn.registry import Made, Properties, handlers
from sandbox.emulator.ec2_catalogue import require_zone

# --- Buckets: ministack drops tags (CDK's autoDeleteObjects needs one) and deletes buckets with objects ---

_bucket = handlers("AWS::S3::Bucket")
_bucket_create, _bucket_update, _bucket_delete = _bucket["create"], _bucket["update"], _bucket["delete"]


def _set_bucket_tags(name: str, properties: Properties) -> None:
    tags = {tag["Key"]: str(tag["Value"]) for tag in properties.get("Tags") or []}
    if tags:
        s3._bucket_tags[name] = tags
    else:
        s3._bucket_tags.pop(name, None)


def _create_bucket(logical: str, properties: Properties, stack: str) -> Made:
    made: Made = _bucket_create(logical, properties, stack)
    _set_bucket_tags(made[0], properties)
    return made


def _update_bucket(physical_id: str, old: Properties, new: Properties, *rest: Any) -> Made:
    made: Made = _bucket_update(physical_id, old, new, *rest)
    _set_bucket_tags(made[0], new)
    return made


def _delete_bucket(physical_id: str, properties: Properties) -> None:
    bucket = s3._buckets.get(physical_id)
    if bucket and (bucket.get("objects") or s3._bucket_has_versions(physical_id)):
        raise ValueError(f"The bucket you tried to delete is not empty: {physical_id} (Service: S3, Status Code: 409)")
    _bucket_delete(physical_id, properties)


_bucket.update(create=_create_bucket, update=_update_bucket, delete=_delete_bucket)

# --- Subnets: ministack uses zone a for an unknown zone id, gives addresses twice, and deletes subnets that are in use ---

_subnet = handlers("AWS::EC2::Subnet")
_subnet_create, _subnet_delete = _subnet["create"], _subnet["delete"]


def _create_subnet(logical: str, properties: Properties, stack: str) -> Made:
    if properties.get("AvailabilityZoneId"):
        require_zone(properties["AvailabilityZoneId"])
    if properties.get("VpcId") not in ec2._vpcs:
        raise ValueError(f"The vpc ID '{properties.get('VpcId')}' does not exist (InvalidVpcID.NotFound)")
    cidr = properties["CidrBlock"]
    for other in ec2._subnets.values():
        if other["VpcId"] == properties["VpcId"] and ip_network(cidr).overlaps(ip_network(other["CidrBlock"])):
            raise ValueError(f"The CIDR '{cidr}' conflicts with another subnet (InvalidSubnet.Conflict)")
    made: Made = _subnet_create(logical, properties, stack)
    return made


def _subnet_users(subnet: str) -> list[str]:
    return [
        *(key for key, entry in ec2._network_interfaces.items() if entry.get("SubnetId") == subnet),
        *(key for key, entry in efs._mount_targets.items() if entry.get("SubnetId") == subnet),
        *(key for key, entry in ec2._nat_gateways.items()
          if entry.get("SubnetId") == subnet and entry["State"] != "deleted"),
        *(key for key, entry in ec2._instances.items()
          if entry.get("SubnetId") == subnet and entry["State"]["Name"] not in ("terminated", "shutting-down")),
    ]  # fmt: skip


def _delete_subnet(physical_id: str, properties: Properties) -> None:
    users = _subnet_users(physical_id)
    if users:
        raise ValueError(
            f"The subnet '{physical_id}' has dependencies and cannot be deleted: {', '.join(users)} "
            "(DependencyViolation)"
        )
    _subnet_delete(physical_id, properties)


_subnet.update(create=_create_subnet, delete=_delete_subnet)
provisioners._ec2_subnet_create = _create_subnet  # what an update that replaces calls

# --- VPCs: ministack deletes a VPC that is in use, and lacks the attribute CidrBlock ---

_vpc = handlers("AWS::EC2::VPC")
_vpc_create, _vpc_update, _vpc_delete = _vpc["create"], _vpc["update"], _vpc["delete"]


def _with_cidr(made: Made) -> Made:
    vpc_id, attributes = made
    return vpc_id, {**attributes, "CidrBlock": ec2._vpcs[vpc_id]["CidrBlock"]}


def _delete_vpc(physical_id: str, properties: Properties) -> None:
    groups = [
        key for key, entry in ec2._security_groups.items()
        if entry.get("VpcId") == physical_id and entry.get("GroupName") != "default"
    ]  # fmt: skip
    subnets = [key for key, entry in ec2._subnets.items() if entry["VpcId"] == physical_id]
    if groups or subnets:
        raise ValueError(
            f"The vpc '{physical_id}' has dependencies and cannot be deleted: {', '.join(groups + subnets)} "
            "(DependencyViolation)"
        )
    _vpc_delete(physical_id, properties)


_vpc.update(
    create=lambda *given: _with_cidr(_vpc_create(*given)),
    update=lambda *given: _with_cidr(_vpc_update(*given)),
    delete=_delete_vpc,
)

# --- Security groups: ministack deletes a group that is in use ---

_group = handlers("AWS::EC2::SecurityGroup")
_group_delete = _group["delete"]


def _delete_group(physical_id: str, properties: Properties) -> None:
    users = ec2_groups.users(physical_id)
    if users:
        raise ValueError(f"resource {physical_id} has a dependent object: {', '.join(users)} (DependencyViolation)")
    _group_delete(physical_id, properties)


_group["delete"] = _delete_group

# --- Stacks: ministack starts a second deletion of a stack while the first one runs ---

_delete_stack = stack_handlers._delete_stack_async


async def _delete_stack_once(stack_name: str, *rest: Any, **options: Any) -> None:
    from ministack.services.cloudformation import _stacks

    if _stacks.get(stack_name, {}).get("StackStatus") != "DELETE_IN_PROGRESS":
        await _delete_stack(stack_name, *rest, **options)


stack_handlers._delete_stack_async = _delete_stack_once

# --- Nested stacks: ministack leaves a nested stack behind whose creation failed ---

_nested = handlers("AWS::CloudFormation::Stack")
_nested_create, _nested_delete = _nested["create"], _nested["delete"]


def _create_nested(logical: str, properties: Properties, stack: str) -> Made:
    from ministack.services.cloudformation import _stacks

    try:
        made: Made = _nested_create(logical, properties, stack)
    except Exception:
        left = [
            child["StackId"] for name, child in _stacks.items()
            if name.startswith(f"{stack}-{logical}-") and child.get("_parent_stack_name") == stack
            and child["StackStatus"] == "CREATE_FAILED"
        ]  # fmt: skip
        for stack_id in left:
            _nested_delete(stack_id, properties)
        raise
    return made


_nested["create"] = _create_nested

# --- Nested stacks: ministack does not say that they are nested ---

_describe_stacks = stack_handlers._ACTION_HANDLERS["DescribeStacks"]


def _describe_stacks_with_parents(params: Any) -> Any:
    from ministack.services.cloudformation import _stacks

    status, headers, body = _describe_stacks(params)
    for child in list(_stacks.values()):
        if parent := child.get("ParentId"):
            id = f"<StackId>{child['StackId']}</StackId>"
            body = body.replace(id.encode(), f"{id}<ParentId>{parent}</ParentId>".encode())
    return status, headers, body


stack_handlers._ACTION_HANDLERS["DescribeStacks"] = _describe_stacks_with_parents
