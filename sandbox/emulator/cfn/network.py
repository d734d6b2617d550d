"""Network types: elastic addresses, NAT gateways, peering, separate security group rules, flow logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ministack.core.responses import get_account_id, get_region
from ministack.services import ec2, iam
from ministack.services.cloudformation import provisioners

from sandbox.emulator.cfn.registry import Made, Properties, resource, retag, tag_specification
from sandbox.emulator.query import ApiError, call_ec2, text_of


def _retagged(physical_id: str, old: Properties, new: Properties, attributes: dict[str, Any]) -> Made:
    retag(physical_id, old, new)
    return physical_id, attributes


# --- AWS::EC2::EIP: Ref is the address itself ---


def _eip_create(_logical: str, properties: Properties, _stack: str) -> Made:
    answer = call_ec2("AllocateAddress", Domain="vpc", TagSpecification=tag_specification("elastic-ip", properties))
    address = text_of(answer, "publicIp")
    return address, {"PublicIp": address, "AllocationId": text_of(answer, "allocationId")}


def _eip_allocation(address: str) -> str | None:
    return next((key for key, entry in ec2._addresses.items() if entry["PublicIp"] == address), None)


def _eip_update(physical_id: str, old: Properties, new: Properties) -> Made:
    allocation = _eip_allocation(physical_id)
    if allocation is None:
        raise ValueError(f"The address '{physical_id}' does not exist")
    retag(allocation, old, new)
    return physical_id, {"PublicIp": physical_id, "AllocationId": allocation}


def _eip_delete(physical_id: str, _properties: Properties) -> None:
    allocation = _eip_allocation(physical_id)
    if allocation is None:
        return
    users = [
        nat_id
        for nat_id, nat in ec2._nat_gateways.items()
        if nat.get("AllocationId") == allocation and nat["State"] != "deleted"
    ]
    if users:
        raise ValueError(f"Address {physical_id} is in use by {', '.join(users)} (AuthFailure)")
    call_ec2("ReleaseAddress", AllocationId=allocation)


resource(
    "AWS::EC2::EIP",
    create=_eip_create,
    update=_eip_update,
    delete=_eip_delete,
)

# --- AWS::EC2::NatGateway ---


def _nat_create(_logical: str, properties: Properties, _stack: str) -> Made:
    subnet, allocation = properties.get("SubnetId"), properties.get("AllocationId")
    if subnet not in ec2._subnets:
        raise ValueError(f"The subnet ID '{subnet}' does not exist (InvalidSubnetID.NotFound)")
    if properties.get("ConnectivityType", "public") == "public" and allocation not in ec2._addresses:
        raise ValueError(f"The allocation ID '{allocation}' does not exist (InvalidAllocationID.NotFound)")
    answer = call_ec2(
        "CreateNatGateway",
        SubnetId=subnet,
        AllocationId=allocation,
        ConnectivityType=properties.get("ConnectivityType"),
        TagSpecification=tag_specification("natgateway", properties),
    )
    nat_id = text_of(answer, "natGatewayId")
    return nat_id, {"NatGatewayId": nat_id}


def _nat_delete(physical_id: str, _properties: Properties) -> None:
    ec2._nat_gateways.pop(physical_id, None)  # AWS lists a deleted gateway for an hour, which no test needs
    ec2._tags.pop(physical_id, None)


resource(
    "AWS::EC2::NatGateway",
    create=_nat_create,
    update=lambda pid, old, new: _retagged(pid, old, new, {"NatGatewayId": pid}),
    delete=_nat_delete,
)

# --- AWS::EC2::VPCPeeringConnection ---


def _peering_create(_logical: str, properties: Properties, _stack: str) -> Made:
    account = properties.get("PeerOwnerId", get_account_id())
    region = properties.get("PeerRegion", get_region())
    for key, place in (("VpcId", (get_account_id(), get_region())), ("PeerVpcId", (account, region))):
        if not ec2._vpcs.contains_scoped(*place, properties.get(key)):
            raise ValueError(f"The vpc ID '{properties.get(key)}' does not exist (InvalidVpcID.NotFound)")
    if account != get_account_id():
        _need_accepter(account, properties.get("PeerRoleArn", ""))
    answer = call_ec2(
        "CreateVpcPeeringConnection",
        VpcId=properties["VpcId"],
        PeerVpcId=properties["PeerVpcId"],
        PeerOwnerId=properties.get("PeerOwnerId"),
        PeerRegion=properties.get("PeerRegion"),
        TagSpecification=tag_specification("vpc-peering-connection", properties),
    )
    peering_id = text_of(answer, "vpcPeeringConnectionId")
    if region == get_region():  # CloudFormation accepts it, in another account by that account's role
        call_ec2("AcceptVpcPeeringConnection", VpcPeeringConnectionId=peering_id)
    return peering_id, {"Id": peering_id}


def _need_accepter(account: str, role_arn: str) -> None:
    """The role by which CloudFormation accepts the connection: one of the other account, which trusts this one."""
    role = iam._roles.get_scoped(account, "", role_arn.rpartition("/")[2])
    if role is None or role["Arn"] != role_arn or get_account_id() not in role["AssumeRolePolicyDocument"]:
        raise ValueError(
            f"the peering connection is not accepted: account {account} has no role {role_arn or '(PeerRoleArn)'} "
            f"that trusts account {get_account_id()}"
        )


def _peering_delete(physical_id: str, _properties: Properties) -> None:
    try:
        call_ec2("DeleteVpcPeeringConnection", VpcPeeringConnectionId=physical_id)
    except ApiError as error:
        if not error.code.endswith("NotFound"):
            raise


resource(
    "AWS::EC2::VPCPeeringConnection",
    create=_peering_create,
    update=lambda pid, old, new: _retagged(pid, old, new, {"Id": pid}),
    delete=_peering_delete,
)

# --- AWS::EC2::SecurityGroupIngress / Egress ---


def _rule(direction: str, key: str) -> None:
    def permission(properties: Properties) -> dict[str, Any]:
        rule: dict[str, Any] = provisioners._ec2_sg_permissions([properties])[0]
        return rule

    def create(_logical: str, properties: Properties, _stack: str) -> Made:
        group = ec2._security_groups.get(properties.get("GroupId"))
        if group is None:
            raise ValueError(f"The security group '{properties.get('GroupId')}' does not exist (InvalidGroup.NotFound)")
        peer = properties.get("SourceSecurityGroupId") or properties.get("DestinationSecurityGroupId")
        if peer and peer not in ec2._security_groups:
            raise ValueError(f"The security group '{peer}' does not exist (InvalidGroup.NotFound)")
        rule = permission(properties)
        rules = group.setdefault(key, [])
        if any(ec2._rules_match(rule, other) for other in rules):
            raise ValueError("the specified rule already exists (InvalidPermission.Duplicate)")
        rules.append(rule)
        rule_id = ec2._sg_rule_id(properties["GroupId"], key == "IpPermissionsEgress", rule)
        return rule_id, {"Id": rule_id}

    def delete(_physical_id: str, properties: Properties) -> None:
        group = ec2._security_groups.get(properties.get("GroupId"))
        if group:
            rule = permission(properties)
            group[key] = [other for other in group.get(key, []) if not ec2._rules_match(rule, other)]

    def update(physical_id: str, old: Properties, new: Properties) -> Made:
        delete(physical_id, old)
        return create("", new, "")

    resource(
        f"AWS::EC2::SecurityGroup{direction}",
        create=create,
        update=update,
        delete=delete,
        tags=False,
    )


_rule("Ingress", "IpPermissions")
_rule("Egress", "IpPermissionsEgress")

# --- AWS::EC2::FlowLog ---


def _flow_log_create(_logical: str, properties: Properties, _stack: str) -> Made:
    kind = properties["ResourceType"]
    known: Callable[[str], bool] = {
        "VPC": ec2._vpcs.__contains__,
        "Subnet": ec2._subnets.__contains__,
        "NetworkInterface": ec2._network_interfaces.__contains__,
    }.get(kind, lambda _: True)
    if not known(properties["ResourceId"]):
        raise ValueError(f"The {kind} '{properties['ResourceId']}' does not exist")
    answer = call_ec2(
        "CreateFlowLogs",
        ResourceId=[properties["ResourceId"]],
        ResourceType=kind,
        TrafficType=properties.get("TrafficType"),
        LogDestinationType=properties.get("LogDestinationType"),
        LogDestination=properties.get("LogDestination"),
        LogGroupName=properties.get("LogGroupName"),
        TagSpecification=tag_specification("vpc-flow-log", properties),
    )
    flow_log = text_of(answer, "flowLogIdSet/item")
    return flow_log, {"Id": flow_log}


def _flow_log_delete(physical_id: str, _properties: Properties) -> None:
    ec2._flow_logs.pop(physical_id, None)
    ec2._tags.pop(physical_id, None)


resource(
    "AWS::EC2::FlowLog",
    create=_flow_log_create,
    update=lambda pid, old, new: _retagged(pid, old, new, {"Id": pid}),
    delete=_flow_log_delete,
)

# --- AWS::EC2::PrefixList ---


def _entries(properties: Properties) -> list[dict[str, str]]:
    entries = [
        {"Cidr": entry["Cidr"], "Description": entry.get("Description", "")}
        for entry in properties.get("Entries") or []
    ]
    if len(entries) > int(properties.get("MaxEntries", len(entries))):
        raise ValueError(
            f"{len(entries)} entries exceed the prefix list's maximum of {properties['MaxEntries']} "
            "(PrefixListMaxEntriesExceeded)"
        )
    return entries


def _prefix_list(identifier: str) -> Made:
    entry = ec2._prefix_lists[identifier]
    names = {"PrefixListId": "PrefixListId", "Arn": "PrefixListArn", "OwnerId": "OwnerId", "Version": "Version"}
    return identifier, {attribute: entry[key] for attribute, key in names.items()}


def _prefix_list_create(_logical: str, properties: Properties, _stack: str) -> Made:
    entries = _entries(properties)
    answer = call_ec2(
        "CreateManagedPrefixList",
        PrefixListName=properties["PrefixListName"],
        AddressFamily=properties["AddressFamily"],
        MaxEntries=properties.get("MaxEntries", max(1, len(entries))),
        Entry=entries,
    )
    identifier = text_of(answer, "prefixListId")
    retag(identifier, {}, properties)
    return _prefix_list(identifier)


def _prefix_list_update(physical_id: str, old: Properties, new: Properties) -> Made:
    before, after = _entries(old), _entries(new)
    call_ec2(
        "ModifyManagedPrefixList",
        PrefixListId=physical_id,
        PrefixListName=new["PrefixListName"],
        MaxEntries=new.get("MaxEntries"),
        RemoveEntry=[entry for entry in before if entry not in after],
        AddEntry=[entry for entry in after if entry not in before],
    )
    retag(physical_id, old, new)
    return _prefix_list(physical_id)


def _prefix_list_delete(physical_id: str, _properties: Properties) -> None:
    if physical_id in ec2._prefix_lists:
        call_ec2("DeleteManagedPrefixList", PrefixListId=physical_id)
        ec2._tags.pop(physical_id, None)


resource(
    "AWS::EC2::PrefixList",
    create=_prefix_list_create,
    update=_prefix_list_update,
    delete=_prefix_list_delete,
)
