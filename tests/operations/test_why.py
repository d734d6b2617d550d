"""What `trn why` reads: CloudFormation's events, logs, EKS and Auto Scaling; the responses have the form of botocore's models. A failed
creation and a failed update of a Slurm cluster: tests/faults/test_cluster.py."""

from __future__ import annotations

import copy
import datetime as dt
import json
import uuid
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.stub import Stubber

from sandbox import LocalAws
from sandbox.tests.test_cloudformation import PCS
from tests.support import until
from tests.told import told
from trainium_cdk.client.operations.why import (
    EMPTY_PAGES,
    EVENTS,
    LINES,
    _allowed,
    closed,
    eks_issues,
    failed_events,
    log_lines,
    why,
)

NOW = dt.datetime(2026, 11, 24, 7, 0, tzinfo=dt.UTC)
ID = "arn:aws:cloudformation:us-east-1:111122223333:stack/TrnEksStack/0"
NESTED = "arn:aws:cloudformation:us-east-1:111122223333:stack/TrnEksStack-Nested/1"


def client(service: str) -> Any:
    return boto3.client(service, "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")


def event(
    minute: int, name: str, kind: str, status: str, reason: str = "", physical: str = "", stack: str = ID
) -> dict[str, Any]:
    return {
        "StackId": stack, "EventId": f"{stack}{minute}{name}", "StackName": stack.split("/")[1], "LogicalResourceId": name,
        "PhysicalResourceId": physical, "ResourceType": kind, "Timestamp": NOW + dt.timedelta(minutes=minute), "ResourceStatus": status,
        "ResourceStatusReason": reason,
    }  # fmt: skip


STACK = "AWS::CloudFormation::Stack"


def test_the_first_cause_is_found_in_a_nested_stack_and_consequences_are_left_out() -> None:
    denied = "User: x is not authorized to perform: ec2:CreateFlowLogs on resource: *"
    own = [
        event(
            9,
            "TrnEksStack",
            STACK,
            "UPDATE_ROLLBACK_FAILED",
            "The following resource(s) failed to update: [Nested].",
            ID,
        ),
        event(6, "Other", "AWS::EC2::VPC", "UPDATE_FAILED", "Resource update cancelled"),
        event(5, "Nested", STACK, "UPDATE_FAILED", "Embedded stack was not successfully updated", NESTED),
        event(1, "TrnEksStack", STACK, "UPDATE_IN_PROGRESS", "User Initiated", ID),
        event(-9, "Before", "AWS::EC2::VPC", "CREATE_FAILED", "of an earlier creation"),
    ]
    nested = [
        event(4, "Role", "AWS::IAM::Role", "CREATE_FAILED", "Resource creation Cancelled", stack=NESTED),
        event(3, "Flow", "AWS::EC2::FlowLog", "CREATE_FAILED", denied, stack=NESTED),
        event(2, "TrnEksStack-Nested", STACK, "UPDATE_IN_PROGRESS", "", NESTED, NESTED),
    ]
    cloudformation = client("cloudformation")
    with Stubber(cloudformation) as answers:
        answers.add_response("describe_stack_events", {"StackEvents": own}, {"StackName": ID})
        answers.add_response("describe_stack_events", {"StackEvents": nested}, {"StackName": NESTED})
        since, failed = failed_events(cloudformation, ID)
    assert since == NOW + dt.timedelta(minutes=1)
    assert [(e.where.split()[0], e.error and e.error.name) for e in failed] == [
        ("Flow", "not-authorized"),
        ("Nested", None),
    ]
    assert len(failed) < EVENTS


@pytest.mark.parametrize("failing", [True, False])
def test_a_deletion_that_failed_is_the_last_operation(failing: bool) -> None:
    """One that did not fail is passed over: CloudFormation deletes a stack whose creation failed."""
    own = [
        event(8, "Files", "AWS::S3::Bucket", "DELETE_FAILED", "The bucket you tried to delete is not empty"),
        event(7, "TrnEksStack", STACK, "DELETE_IN_PROGRESS", "User Initiated", ID),
        event(2, "Nodes", "AWS::EKS::Nodegroup", "UPDATE_FAILED", "of an earlier update"),
        event(1, "TrnEksStack", STACK, "UPDATE_IN_PROGRESS", "User Initiated", ID),
    ]
    cloudformation = client("cloudformation")
    with Stubber(cloudformation) as answers:
        answers.add_response("describe_stack_events", {"StackEvents": own[not failing :]}, {"StackName": ID})
        since, failed = failed_events(cloudformation, ID)
    assert since == NOW + dt.timedelta(minutes=7 if failing else 1)
    assert [e.where.split()[0] for e in failed] == (["Files"] if failing else ["Nodes"])


def log(*messages: str) -> dict[str, Any]:
    at = int(NOW.timestamp() * 1000)
    return {"events": [{"logStreamName": "s", "timestamp": at + i, "message": m} for i, m in enumerate(messages)]}


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        (["INFO ok", "step 1"], []),
        (["ERROR one", "2026 [ERROR] two\nTraceback"], ["ERROR one", "2026 [ERROR] two", "Traceback"]),
        (
            ["ERROR noise", "(Code:InsufficientInstanceCapacity)Failure when resuming nodes"] * 3,
            ["(Code:InsufficientInstanceCapacity)Failure when resuming nodes"],
        ),
        ([f"ERROR {i}" for i in range(50)], [f"ERROR {i}" for i in range(50 - LINES, 50)]),
    ],
)
def test_known_errors_come_before_other_lines(messages: list[str], told: list[str]) -> None:
    logs = client("logs")
    with Stubber(logs) as answers:
        answers.add_response("filter_log_events", log(*messages))
        assert [e.text for e in log_lines(logs, "/g", NOW)] == told


@pytest.mark.parametrize(("empty", "told"), [(EMPTY_PAGES - 1, ["ERROR one"]), (EMPTY_PAGES, [])])
def test_empty_pages_of_a_log_are_not_its_end(empty: int, told: list[str]) -> None:
    logs = client("logs")
    with Stubber(logs) as answers:
        for number in range(empty):
            answers.add_response("filter_log_events", {"events": [], "nextToken": str(number)})
        answers.add_response("filter_log_events", log("ERROR one"))
        assert [e.text for e in log_lines(logs, "/g", NOW)] == told


@pytest.mark.parametrize("before", ["", "old"])
def test_the_cause_is_in_the_stack_and_logs_of_the_slurm_cluster(before: str) -> None:
    """Its own stack has failures of an earlier creation too, and another cluster's log groups begin the same. `before`: the cluster
    whose name was changed, which a failed update has gone back to."""
    name, its_id = "trn", ID.replace("TrnEksStack", "trn")
    listed = [
        {"StackName": n, "StackId": id, "CreationTime": NOW, "StackStatus": "ROLLBACK_COMPLETE"}
        for n, id in (("Own", ID), (name, its_id))
    ]
    failed = "Resource handler returned message (LogGroup: /aws/lambda/pcluster-cfn-0)"
    shortage = "We currently do not have sufficient m7i.large capacity in the Availability Zone you requested"
    own = [
        event(5, "Cluster", "Custom::PclusterCluster", "CREATE_FAILED", failed),
        event(2, "Name", "Custom::TrnClusterName", "CREATE_COMPLETE", physical=name),
        event(1, "Own", STACK, "UPDATE_IN_PROGRESS" if before else "CREATE_IN_PROGRESS", physical=ID),
    ]
    its = [
        event(3, "HeadNode", "AWS::EC2::Instance", "CREATE_FAILED", shortage, stack=its_id),
        event(0, "Role", "AWS::IAM::Role", "CREATE_FAILED", "of an earlier creation", stack=its_id),
    ]
    template = {"Resources": {"C": {"Type": "Custom::PclusterCluster", "Properties": {"ClusterName": before or name}}}}
    groups = [
        {"logGroupName": f"/aws/parallelcluster/{group}", "creationTime": created}
        for group, created in (("trn-202611240000", 1), ("trn-202611240700", 2), ("trn-b-202611240800", 3))
    ]
    cloudformation, logs = client("cloudformation"), client("logs")
    with Stubber(cloudformation) as answers, Stubber(logs) as logged:
        answers.add_response("list_stacks", {"StackSummaries": listed})
        answers.add_response("describe_stack_events", {"StackEvents": own}, {"StackName": ID})
        answers.add_response("get_template", {"TemplateBody": json.dumps(template)})
        answers.add_response("describe_stack_events", {"StackEvents": own}, {"StackName": ID})
        for _ in (before, name) if before else (name,):
            answers.add_response("list_stacks", {"StackSummaries": listed})
        answers.add_response("describe_stack_events", {"StackEvents": its}, {"StackName": its_id})
        since = int((NOW + dt.timedelta(minutes=1)).timestamp() * 1000)
        function = {"logGroupName": "/aws/lambda/pcluster-cfn-0", "startTime": since}
        logged.add_response("filter_log_events", log("ERROR in the function"), function)
        if before:
            its_prefix = {"logGroupNamePrefix": "/aws/parallelcluster/old-"}
            logged.add_response("describe_log_groups", {"logGroups": []}, its_prefix)
        prefix = {"logGroupNamePrefix": "/aws/parallelcluster/trn-"}
        logged.add_response("describe_log_groups", {"logGroups": groups}, prefix)
        nodes = {"logGroupName": "/aws/parallelcluster/trn-202611240700", "startTime": since}
        logged.add_response("filter_log_events", log("trn-bootstrap: step 'mount' failed"), nodes)
        report = why("Own", {"cloudformation": cloudformation, "logs": logs, "ec2": client("ec2")}.__getitem__)
        answers.assert_no_pending_responses()
        logged.assert_no_pending_responses()
    assert report.first
    assert (report.first.where, report.first.error and report.first.error.name) == (
        "stack trn: HeadNode (AWS::EC2::Instance) CREATE_FAILED",
        "no-capacity",
    )
    assert [e.text for e in report.evidence] == [failed, "ERROR in the function", "trn-bootstrap: step 'mount' failed"]


def test_issues_of_eks_and_failed_launches() -> None:
    eks, scaling = client("eks"), client("autoscaling")
    quota = "Could not launch On-Demand Instances. VcpuLimitExceeded - You have requested more vCPU capacity than your current vCPU limit of 0 allows"
    shortage = "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have sufficient trn1.32xlarge capacity"

    def activity(minute: int, status: str, text: str) -> dict[str, Any]:
        at = NOW + dt.timedelta(minutes=minute)
        return {
            "ActivityId": str(minute),
            "AutoScalingGroupName": "asg",
            "Cause": "c",
            "StartTime": at,
            "StatusCode": status,
            "StatusMessage": text,
        }

    group = {
        "health": {
            "issues": [
                {
                    "code": "NodeCreationFailure",
                    "message": "Instances failed to join the kubernetes cluster",
                    "resourceIds": ["i-0"],
                }
            ]
        },
        "resources": {"autoScalingGroups": [{"name": "asg"}]},
    }
    activities = [
        activity(4, "Failed", shortage), activity(3, "Failed", shortage), activity(2, "Successful", "Launching a new EC2 instance: i-0"), activity(1, "Failed", quota),
    ]  # fmt: skip
    with Stubber(eks) as answers, Stubber(scaling) as scaled:
        answers.add_response("describe_cluster", {"cluster": {"health": {"issues": []}}}, {"name": "trn"})
        answers.add_response("list_addons", {"addons": ["vpc-cni"]}, {"clusterName": "trn"})
        conflict = {"code": "ConfigurationConflict", "message": "Conflicts found", "resourceIds": []}
        answers.add_response("describe_addon", {"addon": {"health": {"issues": [conflict]}}})
        answers.add_response("list_nodegroups", {"nodegroups": ["trn1"]})
        answers.add_response("describe_nodegroup", {"nodegroup": group})
        scaled.add_response("describe_scaling_activities", {"Activities": activities})
        found = eks_issues({"eks": eks, "autoscaling": scaling}.__getitem__, "trn")
    assert [(e.where, e.text, e.error.name if e.error else "") for e in found] == [
        ("add-on vpc-cni", "ConfigurationConflict: Conflicts found", ""),
        ("node group trn1", "NodeCreationFailure: Instances failed to join the kubernetes cluster", "node-not-joined"),
        ("node group trn1 (Auto Scaling)", shortage, "no-capacity"),
    ]


def test_a_node_group_without_capacity_in_the_local_aws(local_aws: LocalAws) -> None:
    name = "why-eks"
    cloudformation, eks = local_aws.client("cloudformation"), local_aws.client("eks")
    local_aws.set_answers("capacity", {"trn1.32xlarge": 0})
    try:
        create(cloudformation, name, eks_cluster(name))
        assert why(name, local_aws.client).evidence == ()
        eks.update_nodegroup_config(
            clusterName=name, nodegroupName="trn1", scalingConfig={"minSize": 0, "desiredSize": 2, "maxSize": 4}
        )
        report = why(name, local_aws.client)
    finally:
        local_aws.set_answers("capacity", None)
        delete(cloudformation, name)
    assert (report.status, report.first) == ("CREATE_COMPLETE", None)
    [shortage] = report.evidence
    assert shortage.where == "node group trn1"
    assert "InsufficientInstanceCapacity - We currently do not have sufficient trn1.32xlarge capacity" in shortage.text
    assert shortage.error
    assert shortage.error.name == "no-capacity"


def test_what_may_not_be_read_is_told_and_what_is_gone_is_not() -> None:
    logs = client("logs")
    with Stubber(logs) as answers:
        answers.add_client_error("filter_log_events", "AccessDeniedException", "not allowed")
        answers.add_client_error("filter_log_events", "ResourceNotFoundException", "gone")
        [refused] = _allowed(lambda: log_lines(logs, "/g", NOW))
        assert _allowed(lambda: log_lines(logs, "/g", NOW)) == []
    assert refused.where == "FilterLogEvents was refused"
    assert "not allowed" in refused.text


BLOCK = "cr-0a1b2c3d4e5f60718"


def reservation(**changes: Any) -> dict[str, Any]:
    return {
        "CapacityReservationId": BLOCK,
        "ReservationType": "capacity-block",
        "State": "active",
        "EndDate": NOW,
        **changes,
    }


@pytest.mark.parametrize(
    ("described", "sentence"),
    [
        ([reservation()], None),
        (
            [reservation(State="expired")],
            f"capacity block {BLOCK} is expired (it ended at 2026-11-24 07:00 UTC): no node starts in it.",
        ),
        (
            [reservation(State="scheduled", StartDate=NOW)],
            f"capacity block {BLOCK} is scheduled: nodes start when it begins at 2026-11-24",
        ),
        ([reservation(State="payment-failed")], f"capacity block {BLOCK} is payment-failed: no node starts in it."),
        (
            [reservation(ReservationType="default", State="cancelled")],
            f"capacity reservation {BLOCK} is cancelled: no node",
        ),
        ([], f"capacity reservation {BLOCK} is not in this account and region: no node"),
    ],
)
def test_a_reservation_that_launches_nothing_is_named(described: list[dict[str, Any]], sentence: str | None) -> None:
    """Found in the template wherever it is: in ParallelCluster's configuration, or in a launch template of PCS or EKS."""
    for template in (
        {"a": [{"Fn::Join": ["", [f"CapacityReservationId: {BLOCK}\n"]]}]},
        {"b": {"CapacityReservationId": BLOCK}},
    ):
        ec2 = client("ec2")
        with Stubber(ec2) as answers:
            if described:
                expected = {"CapacityReservationIds": [BLOCK]}
                answers.add_response("describe_capacity_reservations", {"CapacityReservations": described}, expected)
            else:
                answers.add_client_error("describe_capacity_reservations", "InvalidCapacityReservationId.NotFound")
            found = [text for _, text in closed(lambda _: ec2, template)]  # noqa: B023  called at once
        assert len(found) == (sentence is not None)
        assert not sentence or found[0].startswith(sentence)
    assert list(closed(client, {"no": "reservation"})) == []


def test_a_reservation_of_a_group_that_launches_nothing_is_named() -> None:
    """The group stays in use: EC2 goes on with its other reservations."""
    arn = "arn:aws:resource-groups:us-east-1:111122223333:group/mine"
    clients = {"ec2": client("ec2"), "resource-groups": client("resource-groups")}
    members = ["cr-0000000000000000a", "cr-0000000000000000b"]
    with Stubber(clients["ec2"]) as answers, Stubber(clients["resource-groups"]) as listed:
        arns = [f"arn:aws:ec2:us-east-1:111122223333:capacity-reservation/{id}" for id in members]
        listed.add_response(
            "list_group_resources",
            {"Resources": [{"Identifier": {"ResourceArn": one}} for one in arns]},
            {"Group": arn},
        )
        for id, state in zip(members, ("active", "expired"), strict=True):
            one = reservation(CapacityReservationId=id, ReservationType="default", State=state)
            answers.add_response("describe_capacity_reservations", {"CapacityReservations": [one]})
        template = {"x": {"CapacityReservationResourceGroupArn": arn}}
        [(what, why)] = closed(lambda service: clients[service], template)
    assert what == f"capacity reservation {members[1]}"
    assert f"It is in the group {arn}: EC2 uses others of it, then starts nodes on demand" in why


def eks_cluster(name: str) -> dict[str, Any]:
    text = Path(__file__).with_name("eks.yaml").read_text("utf-8")
    found: dict[str, Any] = yaml.safe_load(text.replace("NAME", name))
    return found


def create(cloudformation: Any, name: str, template: dict[str, Any]) -> None:
    cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_IAM"])
    cloudformation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})


def update(cloudformation: Any, name: str, template: dict[str, Any]) -> None:
    """Until it has succeeded, or been rolled back."""
    cloudformation.update_stack(StackName=name, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_IAM"])
    stack = lambda: cloudformation.describe_stacks(StackName=name)["Stacks"][0]  # noqa: E731
    assert until(lambda: "IN_PROGRESS" not in stack()["StackStatus"], 120)


def delete(cloudformation: Any, name: str) -> None:
    cloudformation.delete_stack(StackName=name)
    cloudformation.get_waiter("stack_delete_complete").wait(StackName=name, WaiterConfig={"Delay": 1})


def test_what_pcs_reports_in_the_local_aws(local_aws: LocalAws) -> None:
    """A real stack; the errors have the form of botocore's model."""
    name = f"why-{uuid.uuid4().hex[:6]}"
    template = copy.deepcopy(PCS)
    template["Resources"]["Cluster"]["Properties"]["Name"] = name
    shortage = (
        "We currently do not have sufficient trn1.2xlarge capacity in the Availability Zone you requested (us-east-1a)."
    )
    ec2 = local_aws.client("ec2")
    asked = {
        "InstanceType": "trn1.2xlarge",
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZoneId": "use1-az6",
        "InstanceCount": 1,
    }
    block = ec2.create_capacity_reservation(**asked)["CapacityReservation"]["CapacityReservationId"]
    target = {"CapacityReservationTarget": {"CapacityReservationId": block}}
    template["Resources"]["Template"]["Properties"]["LaunchTemplateData"]["CapacityReservationSpecification"] = target
    cloudformation = local_aws.client("cloudformation")
    local_aws.set_answers("pcs-errors", {"trn-a": [{"code": "InsufficientInstanceCapacity", "message": shortage}]})
    try:
        create(cloudformation, name, template)
        local_aws.set_answers("reservations", {block: {"ReservationType": "capacity-block", "State": "expired"}})
        expired, found = why(name, local_aws.client).evidence
        template["Resources"]["Nodes"]["Properties"]["ScalingConfiguration"] = {
            "MinInstanceCount": 5,
            "MaxInstanceCount": 4,
        }
        update(cloudformation, name, template)
        first = why(name, local_aws.client).first
    finally:
        local_aws.set_answers("pcs-errors", None)
        local_aws.set_answers("reservations", None)
        ec2.cancel_capacity_reservation(CapacityReservationId=block)
        delete(cloudformation, name)
    told("expired block", "PCS", "trn why", expired.text)
    assert found.where == "PCS compute node group trn-a"
    assert found.error
    assert found.error.name == "no-capacity"
    assert found.text == f"InsufficientInstanceCapacity: {shortage}"
    assert first
    told("failed update", "PCS", "trn why", f"first cause: {first.where}: {first.text}")


def test_a_failed_update_of_a_node_group(local_aws: LocalAws) -> None:
    """CloudFormation asks EKS for a size that EKS refuses."""
    name, cloudformation = f"why-{uuid.uuid4().hex[:6]}", local_aws.client("cloudformation")
    template = eks_cluster(name)
    try:
        create(cloudformation, name, template)
        template["Resources"]["Nodes"]["Properties"]["ScalingConfig"]["DesiredSize"] = 3
        update(cloudformation, name, template)
        first = why(name, local_aws.client).first
    finally:
        delete(cloudformation, name)
    assert first
    told("failed update", "EKS", "trn why", f"first cause: {first.where}: {first.text}")
