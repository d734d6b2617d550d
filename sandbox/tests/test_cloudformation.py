"""The added CloudFormation types: replacement, in-place updates, refusals, faults. Small templates, no CDK."""

from __future__ import annotations

import copy
import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox import LocalAws
from sandbox.leftovers import beyond, inventory

Template = dict[str, Any]
Run = Callable[[Template], str]


def resource(kind: str, **properties: Any) -> dict[str, Any]:
    return {"Type": f"AWS::{kind}", "Properties": properties}


NETWORK, PCS = (
    yaml.safe_load(Path(__file__).with_name(file).read_text("utf-8")) for file in ("network.yaml", "pcs.yaml")
)


@pytest.fixture
def name() -> str:
    return f"small-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def run(local_aws: LocalAws, name: str) -> Iterator[Run]:
    """Create or update the test's stack; its final status. Whatever happens, nothing is left after the test."""
    client = local_aws.client("cloudformation")
    before = inventory(local_aws.client)

    def apply(template: Template) -> str:
        exists = any(stack["StackName"] == name for stack in client.describe_stacks()["Stacks"])
        action = client.update_stack if exists else client.create_stack
        action(StackName=name, TemplateBody=json.dumps(template))
        return settle(local_aws, name)

    yield apply
    local_aws.set_faults([])
    client.delete_stack(StackName=name)
    settle(local_aws, name)
    assert beyond(inventory(local_aws.client), before) == {}


def settle(aws: LocalAws, name: str) -> str:
    """The stack's status once nothing is in progress."""
    while True:
        status: str = aws.client("cloudformation").describe_stacks(StackName=stack_id(aws, name))["Stacks"][0][
            "StackStatus"
        ]
        if not status.endswith("IN_PROGRESS"):
            return status
        time.sleep(0.05)


def stack_id(aws: LocalAws, name: str) -> str:
    """A deleted stack answers to its id only."""
    summaries = aws.client("cloudformation").list_stacks()["StackSummaries"]
    return str(next(entry["StackId"] for entry in summaries if entry["StackName"] == name))


def physical(aws: LocalAws, name: str) -> dict[str, str]:
    found = aws.client("cloudformation").describe_stack_resources(StackName=name)["StackResources"]
    return {entry["LogicalResourceId"]: entry["PhysicalResourceId"] for entry in found}


def failures(aws: LocalAws, name: str) -> str:
    pages = aws.client("cloudformation").get_paginator("describe_stack_events").paginate(StackName=name)
    events = [event for page in pages for event in page["StackEvents"]]
    return " | ".join(event.get("ResourceStatusReason", "") for event in events if "FAILED" in event["ResourceStatus"])


def changed(logical: str, **properties: Any) -> Template:
    template = copy.deepcopy(NETWORK)
    template["Resources"][logical]["Properties"].update(properties)
    return template


def test_a_change_in_place_keeps_the_resource(local_aws: LocalAws, run: Run, name: str) -> None:
    assert run(NETWORK) == "CREATE_COMPLETE"
    before = physical(local_aws, name)
    assert run(changed("Lustre", StorageCapacity="2400")) == "UPDATE_COMPLETE"
    retagged = changed("Nat", Tags=[{"Key": "Name", "Value": "second"}])
    retagged["Resources"]["Lustre"]["Properties"]["StorageCapacity"] = "2400"
    assert run(retagged) == "UPDATE_COMPLETE"
    assert physical(local_aws, name) == before
    lustre = local_aws.client("fsx").describe_file_systems(FileSystemIds=[before["Lustre"]])["FileSystems"][0]
    assert lustre["StorageCapacity"] == 2400
    nat = local_aws.client("ec2").describe_nat_gateways(NatGatewayIds=[before["Nat"]])["NatGateways"][0]
    assert {"Key": "Name", "Value": "second"} in nat["Tags"]


@pytest.mark.sweep
def test_a_change_that_replaces_leaves_only_the_successor(local_aws: LocalAws, run: Run, name: str) -> None:
    assert run(NETWORK) == "CREATE_COMPLETE"
    before, existing = physical(local_aws, name), inventory(local_aws.client)
    assert run(changed("Subnet", AvailabilityZoneId="use1-az5", CidrBlock="10.0.16.0/20")) == "UPDATE_COMPLETE"
    after = physical(local_aws, name)
    assert {key for key in before if before[key] != after[key]} == {"Subnet", "Nat", "Lustre"}
    sizes = {kind: len(names) for kind, names in existing.items()}
    assert {kind: len(names) for kind, names in inventory(local_aws.client).items()} == sizes


@pytest.mark.sweep
def test_a_change_deep_in_a_property_replaces_too(local_aws: LocalAws, run: Run, name: str) -> None:
    assert run(NETWORK) == "CREATE_COMPLETE"
    before = physical(local_aws, name)
    replaced = changed("Lustre", LustreConfiguration={"DeploymentType": "SCRATCH_1"})
    assert run(replaced) == "UPDATE_COMPLETE"
    after = physical(local_aws, name)
    assert {key for key in before if before[key] != after[key]} == {"Lustre"}
    systems = local_aws.client("fsx").describe_file_systems()["FileSystems"]
    assert before["Lustre"] not in {system["FileSystemId"] for system in systems}


@pytest.mark.sweep
def test_the_subnet_of_a_replacement_has_addresses_of_its_own(local_aws: LocalAws, run: Run, name: str) -> None:
    assert run(NETWORK) == "CREATE_COMPLETE"
    before = physical(local_aws, name)
    assert run(changed("Subnet", AvailabilityZoneId="use1-az5")) == "UPDATE_ROLLBACK_COMPLETE"
    assert "The CIDR '10.0.0.0/20' conflicts with another subnet" in failures(local_aws, name)
    assert physical(local_aws, name) == before


@pytest.mark.sweep
def test_a_directory_is_linked_once(local_aws: LocalAws, run: Run, name: str) -> None:
    """The new link of a replacement is created while the old one is there."""
    template = copy.deepcopy(NETWORK)
    template["Resources"]["Bucket"] = resource("S3::Bucket")
    link = resource("FSx::DataRepositoryAssociation", FileSystemId={"Ref": "Lustre"}, FileSystemPath="/data")
    link["Properties"]["DataRepositoryPath"] = {"Fn::Sub": "s3://${Bucket}/a"}
    template["Resources"]["Link"] = link
    assert run(template) == "CREATE_COMPLETE"
    for change, what in (
        ({"DataRepositoryPath": {"Fn::Sub": "s3://${Bucket}/b"}}, "file system path '/data'"),
        ({"FileSystemPath": "/more"}, "data repository path 's3://"),
    ):
        again = copy.deepcopy(template)
        again["Resources"]["Link"]["Properties"].update(change)
        assert run(again) == "UPDATE_ROLLBACK_COMPLETE"
        assert f"The {what}" in failures(local_aws, name)


@pytest.mark.sweep
def test_a_nested_stack_names_its_parent(local_aws: LocalAws, run: Run, name: str) -> None:
    s3 = local_aws.client("s3")
    s3.create_bucket(Bucket=name)
    inner = {"Resources": {"Made": resource("SSM::Parameter", Type="String", Value="x")}}
    s3.put_object(Bucket=name, Key="inner.json", Body=json.dumps(inner))
    nested = resource("CloudFormation::Stack", TemplateURL=f"https://s3.amazonaws.com/{name}/inner.json")
    assert run({"Resources": {"Inner": nested}}) == "CREATE_COMPLETE"
    s3.delete_object(Bucket=name, Key="inner.json")
    s3.delete_bucket(Bucket=name)
    found = local_aws.client("cloudformation").describe_stacks()["Stacks"]
    assert {
        s["StackName"].startswith(f"{name}-Inner-"): s.get("ParentId") for s in found if name in s["StackName"]
    } == {
        False: None,
        True: stack_id(local_aws, name),
    }


def test_an_export_that_is_imported_neither_changes_nor_goes(local_aws: LocalAws, run: Run, name: str) -> None:
    def exporting(value: str, **output: Any) -> Template:
        exported = resource("SSM::Parameter", Type="String", Value="x", Name=f"/{name}/{value}")
        out = {"Value": {"Ref": "P"}, "Export": {"Name": name}} | output
        return {"Resources": {"P": exported}, "Outputs": {"Out": out} if value else {}}

    client, user = local_aws.client("cloudformation"), f"{name}-user"
    assert run(exporting("one")) == "CREATE_COMPLETE"
    uses = resource("SSM::Parameter", Type="String", Value={"Fn::ImportValue": name})
    client.create_stack(StackName=user, TemplateBody=json.dumps({"Resources": {"Q": uses}}))
    assert settle(local_aws, user) == "CREATE_COMPLETE"
    for changed_to, how in (("two", "updated"), ("", "deleted")):
        assert run(exporting(changed_to)) == "UPDATE_ROLLBACK_COMPLETE"
        assert f"Export {name} cannot be {how} as it is in use by {user}" in failures(local_aws, name)
    assert run(exporting("one", Description="the same value")) == "UPDATE_COMPLETE"
    client.delete_stack(StackName=user)
    settle(local_aws, user)
    assert run(exporting("two")) == "UPDATE_COMPLETE"


@pytest.mark.sweep
def test_a_prefix_list_changes_by_entries(local_aws: LocalAws, run: Run, name: str) -> None:
    def template(*blocks: str) -> Template:
        entries = [{"Cidr": block} for block in blocks]
        return {
            "Resources": {
                "Office": resource(
                    "EC2::PrefixList", PrefixListName=name, AddressFamily="IPv4", MaxEntries="2", Entries=entries
                )
            }
        }

    def blocks() -> list[str]:
        identifier = physical(local_aws, name)["Office"]
        found = local_aws.client("ec2").get_managed_prefix_list_entries(PrefixListId=identifier)["Entries"]
        return [entry["Cidr"] for entry in found]

    assert run(template("192.0.2.0/24", "198.51.100.0/24")) == "CREATE_COMPLETE"
    assert run(template("198.51.100.0/24", "203.0.113.0/24")) == "UPDATE_COMPLETE"
    assert blocks() == ["198.51.100.0/24", "203.0.113.0/24"]
    assert run(template("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")) == "UPDATE_ROLLBACK_COMPLETE"
    assert blocks() == ["198.51.100.0/24", "203.0.113.0/24"]


def test_resources_in_use_are_not_deleted(local_aws: LocalAws, run: Run, name: str) -> None:
    """As on AWS: what something outside the stack holds on to fails the delete, and a second one succeeds."""
    client, ec2 = local_aws.client("cloudformation"), local_aws.client("ec2")
    assert run(NETWORK) == "CREATE_COMPLETE"
    made = physical(local_aws, name)
    launched = ec2.run_instances(
        InstanceType="c5.large", MinCount=1, MaxCount=1, SubnetId=made["Subnet"], SecurityGroupIds=[made["Group"]]
    )["Instances"][0]["InstanceId"]
    client.delete_stack(StackName=name)
    assert settle(local_aws, name) == "DELETE_FAILED"
    assert f"{launched} (DependencyViolation)" in failures(local_aws, name)
    assert set(physical(local_aws, name)) == {"Subnet", "Group", "Vpc"}
    ec2.terminate_instances(InstanceIds=[launched])
    client.delete_stack(StackName=name)
    assert settle(local_aws, name) == "DELETE_COMPLETE"


@pytest.mark.sweep
def test_rules_are_created_and_deleted_with_their_resource(local_aws: LocalAws, run: Run, name: str) -> None:
    def ports() -> list[int]:
        group = physical(local_aws, name)["Group"]
        found = local_aws.client("ec2").describe_security_groups(GroupIds=[group])["SecurityGroups"][0]
        return [rule["FromPort"] for rule in found["IpPermissions"]]

    assert run(NETWORK) == "CREATE_COMPLETE"
    assert ports() == [22]
    assert run(changed("Ssh", FromPort=443, ToPort=443)) == "UPDATE_COMPLETE"
    assert ports() == [443]
    without = copy.deepcopy(NETWORK)
    del without["Resources"]["Ssh"]
    assert run(without) == "UPDATE_COMPLETE"
    assert ports() == []


BASES: dict[str, Template] = {
    "network": NETWORK,
    "pcs": PCS,
    "provider": {"Resources": {"Provider": resource("CloudFormation::Stack")}},
    "role": {"Resources": {"Role": resource("IAM::Role", AssumeRolePolicyDocument={"Statement": []})}},
    "policy": {"Resources": {"Policy": resource("IAM::ManagedPolicy", PolicyDocument={"Statement": []})}},
}
REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text("utf-8"))


@pytest.mark.parametrize(("base", "message"), [(base, message) for base, rows in REFUSED.items() for message in rows])
@pytest.mark.sweep
def test_properties_that_aws_refuses_are_refused_and_rolled_back(
    base: str, message: str, local_aws: LocalAws, run: Run, name: str
) -> None:
    template = copy.deepcopy(BASES[base])
    for logical, properties in REFUSED[base][message].items():
        template["Resources"][logical]["Properties"].update(properties)
    assert run(template) == "ROLLBACK_COMPLETE"
    assert message in failures(local_aws, name)
    assert "CREATE_COMPLETE" not in {
        entry["ResourceStatus"]
        for entry in local_aws.client("cloudformation").describe_stack_resources(StackName=name)["StackResources"]
    }


@pytest.mark.sweep
def test_the_quotas_of_a_role_and_a_group_hold_for_what_is_added_later(
    local_aws: LocalAws, run: Run, name: str
) -> None:
    nothing = {"Version": "2012-10-17", "Statement": []}
    role = resource("IAM::Role", AssumeRolePolicyDocument=nothing)
    policies = {
        f"P{i}": resource("IAM::ManagedPolicy", PolicyDocument=nothing, Roles=[{"Ref": "Role"}]) for i in range(11)
    }
    assert run({"Resources": {"Role": role, **policies}}) == "ROLLBACK_COMPLETE"
    assert "Cannot exceed quota for PoliciesPerRole: 10" in failures(local_aws, name)
    local_aws.client("cloudformation").delete_stack(StackName=name)
    settle(local_aws, name)
    long = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::data/" + "x" * 5200}
    document = {"Version": "2012-10-17", "Statement": [long]}
    inline = {
        f"P{i}": resource("IAM::Policy", PolicyName=f"P{i}", PolicyDocument=document, Roles=[{"Ref": "Role"}])
        for i in range(2)
    }
    assert run({"Resources": {"Role": role, **inline}}) == "ROLLBACK_COMPLETE"
    assert "Cannot exceed quota for PolicySize: 10240" in failures(local_aws, name)
    local_aws.client("cloudformation").delete_stack(StackName=name)
    settle(local_aws, name)
    template = copy.deepcopy(NETWORK)
    for port in range(61):
        rule = {"GroupId": {"Ref": "Group"}, "IpProtocol": "tcp", "FromPort": 1000 + port, "ToPort": 1000 + port}
        template["Resources"][f"R{port}"] = resource("EC2::SecurityGroupIngress", **rule, CidrIp="10.0.0.0/8")
    assert run(template) == "ROLLBACK_COMPLETE"
    assert "RulesPerSecurityGroupLimitExceeded" in failures(local_aws, name)


@pytest.mark.sweep
def test_faults_fail_a_create_an_update_and_a_delete(local_aws: LocalAws, run: Run, name: str) -> None:
    client = local_aws.client("cloudformation")
    local_aws.set_faults([{"type": "AWS::FSx::FileSystem", "reason": "no capacity today"}])
    assert run(NETWORK) == "ROLLBACK_COMPLETE"
    assert "no capacity today" in failures(local_aws, name)
    client.delete_stack(StackName=name)
    assert settle(local_aws, name) == "DELETE_COMPLETE"

    local_aws.set_faults([{"type": "AWS::FSx::FileSystem", "phase": "update", "logical": "Lus"}])
    assert run(NETWORK) == "CREATE_COMPLETE"
    assert run(changed("Lustre", StorageCapacity="2400")) == "UPDATE_ROLLBACK_COMPLETE"

    local_aws.set_faults([{"type": "AWS::EC2::NatGateway", "phase": "delete", "times": 1}])
    client.delete_stack(StackName=name)
    assert settle(local_aws, name) == "DELETE_FAILED"
    client.delete_stack(StackName=name)
    assert settle(local_aws, name) == "DELETE_COMPLETE"


@pytest.mark.sweep
def test_static_nodes_of_pcs_follow_their_group_and_queues_hold_it(run: Run, local_aws: LocalAws) -> None:
    template = copy.deepcopy(PCS)
    template["Resources"]["Nodes"]["Properties"]["ScalingConfiguration"]["MinInstanceCount"] = 2
    assert run(template) == "CREATE_COMPLETE"
    [cluster] = local_aws.client("pcs").list_clusters()["clusters"]
    [of] = local_aws.client("pcs").list_compute_node_groups(clusterIdentifier="test")["computeNodeGroups"]

    def running() -> set[str]:
        tags = {"aws:pcs:cluster-id": cluster["id"], "aws:pcs:compute-node-group-id": of["id"]}
        filters = [{"Name": f"tag:{k}", "Values": [v]} for k, v in tags.items()]
        filters.append({"Name": "instance-state-name", "Values": ["running"]})
        found = local_aws.client("ec2").describe_instances(Filters=filters)["Reservations"]
        return {i["InstanceId"] for r in found for i in r["Instances"]}

    assert len(before := running()) == 2
    template["Resources"]["Nodes"]["Properties"]["ScalingConfiguration"]["MinInstanceCount"] = 0
    assert run(template) == "UPDATE_COMPLETE"
    assert running() == set()
    template["Resources"]["Nodes"]["Properties"] |= {"InstanceConfigs": [{"InstanceType": "trn1.32xlarge"}]}
    assert run(template) == "UPDATE_ROLLBACK_COMPLETE"  # a replacement with the same name
    assert before
