"""Compute types: key pairs, placement groups and instances."""

from __future__ import annotations

import uuid

from ministack.services import ec2, ssm

from sandbox.emulator.cfn.registry import Made, Properties, resource, retag, tag_specification
from sandbox.emulator.query import call_ec2, text_of


def _parameter_name(key_pair_id: str) -> str:
    """Where EC2 stores the private key of a key pair created by CloudFormation."""
    return f"/ec2/keypair/{key_pair_id}"


def _key_create(_logical: str, properties: Properties, _stack: str) -> Made:
    name = properties["KeyName"]
    common = {"KeyName": name, "TagSpecification": tag_specification("key-pair", properties)}
    if properties.get("PublicKeyMaterial"):
        answer = call_ec2("ImportKeyPair", PublicKeyMaterial=properties["PublicKeyMaterial"], **common)
    else:
        answer = call_ec2("CreateKeyPair", KeyType=properties.get("KeyType"), **common)
        ssm._put_parameter(
            {
                "Name": _parameter_name(text_of(answer, "keyPairId")),
                "Type": "SecureString",
                "Value": text_of(answer, "keyMaterial"),
            }
        )
    return name, {
        "KeyPairId": text_of(answer, "keyPairId"),
        "KeyFingerprint": text_of(answer, "keyFingerprint"),
    }


def _key_delete(physical_id: str, _properties: Properties) -> None:
    entry = ec2._key_pairs.get(physical_id)
    if entry:
        ssm._delete_parameter({"Name": _parameter_name(entry["KeyPairId"])})
        call_ec2("DeleteKeyPair", KeyName=physical_id)


def _key_update(physical_id: str, old: Properties, new: Properties) -> Made:
    entry = ec2._key_pairs[physical_id]
    retag(entry["KeyPairId"], old, new)
    return physical_id, {"KeyPairId": entry["KeyPairId"], "KeyFingerprint": entry["KeyFingerprint"]}


resource(
    "AWS::EC2::KeyPair",
    create=_key_create,
    update=_key_update,
    delete=_key_delete,
)


def _group_create(logical_id: str, properties: Properties, stack: str) -> Made:
    name = properties.get("GroupName") or f"{stack}-{logical_id}-{uuid.uuid4().hex[:12].upper()}"
    call_ec2(
        "CreatePlacementGroup",
        GroupName=name,
        Strategy=properties.get("Strategy"),
        PartitionCount=properties.get("PartitionCount"),
        SpreadLevel=properties.get("SpreadLevel"),
        TagSpecification=tag_specification("placement-group", properties),
    )
    return name, {"GroupName": name}


def _group_delete(physical_id: str, _properties: Properties) -> None:
    if physical_id in ec2._placement_groups:
        call_ec2("DeletePlacementGroup", GroupName=physical_id)


def _group_update(physical_id: str, old: Properties, new: Properties) -> Made:
    retag(ec2._placement_groups[physical_id]["GroupId"], old, new)
    return physical_id, {"GroupName": physical_id}


resource(
    "AWS::EC2::PlacementGroup",
    create=_group_create,
    update=_group_update,
    delete=_group_delete,
)


def _instance_create(_logical: str, properties: Properties, _stack: str) -> Made:
    template = properties.get("LaunchTemplate") or {}
    [interface] = properties.get("NetworkInterfaces") or [{}]  # ministack's EC2 has only one
    if interface and {"SubnetId", "SecurityGroupIds"} & properties.keys():
        raise ValueError(
            "Network interfaces and an instance-level subnet ID or security groups may not be specified on the same request"
        )
    answer = call_ec2(
        "RunInstances",
        MinCount=1,
        MaxCount=1,
        InstanceType=properties.get("InstanceType"),
        ImageId=properties.get("ImageId"),
        SubnetId=properties.get("SubnetId") or interface.get("SubnetId"),
        SecurityGroupId=properties.get("SecurityGroupIds") or interface.get("GroupSet") or [],
        KeyName=properties.get("KeyName"),
        UserData=properties.get("UserData"),
        IamInstanceProfile={"Name": properties.get("IamInstanceProfile")},
        LaunchTemplate={"LaunchTemplateId": template.get("LaunchTemplateId"), "Version": template.get("Version")},
        BlockDeviceMapping=properties.get("BlockDeviceMappings") or [],
        TagSpecification=tag_specification("instance", properties),
    )
    instance_id = text_of(answer, "instanceId")
    return instance_id, _instance_attributes(instance_id)


def _instance_attributes(instance_id: str) -> dict[str, str]:
    found = ec2._instances[instance_id]
    names = {"PrivateIp": "PrivateIpAddress", "PrivateDnsName": "PrivateDnsName", "PublicIp": "PublicIpAddress"}
    return {"InstanceId": instance_id, **{name: str(found.get(key) or "") for name, key in names.items()}}


def _instance_update(physical_id: str, old: Properties, new: Properties) -> Made:
    retag(physical_id, old, new)
    return physical_id, _instance_attributes(physical_id)


def _instance_delete(physical_id: str, _properties: Properties) -> None:
    if physical_id in ec2._instances:
        call_ec2("TerminateInstances", InstanceId=[physical_id])


resource(
    "AWS::EC2::Instance",
    create=_instance_create,
    update=_instance_update,
    delete=_instance_delete,
    replaced_by=(
        "InstanceType",
        "SecurityGroupIds",
        "UserData",
    ),  # on AWS only with an instance store, or in another VPC
)
