"""Which record of a failed stack is its cause: CloudFormation repeats what follows from it, and cuts off what a function answers."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from botocore.stub import Stubber

from sandbox import LocalAws
from tests.operations.test_why import ID, NESTED, STACK, client, create, delete, event, update
from trainium_cdk.client.operations.functions import Custom, log_groups
from trainium_cdk.client.operations.why import failed_events, why

LONG = "error: the PersistentVolume training-fsx is invalid: Forbidden: spec.persistentvolumesource is immutable"
ANSWERS = f"""\
import json, urllib.request
def handler(event, context):
    fails = event["ResourceProperties"].get("Word") == "new" and event["RequestType"] == "Update"
    if fails:
        print("[ERROR] Exception: {LONG}")
    answer = {{"Status": "FAILED" if fails else "SUCCESS", "PhysicalResourceId": "made", "Reason": "x" * 5000 * fails}}
    answer |= {{key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}}
    body = json.dumps(answer).encode()
    urllib.request.urlopen(urllib.request.Request(event["ResponseURL"], body, method="PUT"))
"""


def test_the_log_of_the_function_has_the_cause_that_cloudformation_cuts_off(local_aws: LocalAws) -> None:
    name, cloudformation = f"why-{uuid.uuid4().hex[:6]}", local_aws.client("cloudformation")
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}
    write = {"Effect": "Allow", "Action": "logs:*", "Resource": "*"}
    role = {
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]},
        "Policies": [{"PolicyName": "Log", "PolicyDocument": {"Version": "2012-10-17", "Statement": [write]}}],
    }
    function = {
        "Runtime": "python3.12", "Handler": "index.handler", "Role": {"Fn::GetAtt": ["Role", "Arn"]}, "Code": {"ZipFile": ANSWERS},
        "LoggingConfig": {"LogGroup": {"Ref": "Log"}},
    }  # fmt: skip
    resources: dict[str, Any] = {
        "Log": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": f"/trn/{name}"}},
        "Role": {"Type": "AWS::IAM::Role", "Properties": role},
        "Function": {"Type": "AWS::Lambda::Function", "Properties": function},
    }
    resources["Made"] = {
        "Type": "Custom::Manifest",
        "Properties": {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}, "Word": "old"},
    }
    try:
        create(cloudformation, name, {"Resources": resources})
        resources["Made"]["Properties"]["Word"] = "new"
        update(cloudformation, name, {"Resources": resources})
        report = why(name, local_aws.client)
    finally:
        delete(cloudformation, name)
    assert report.first
    assert report.first.text == "Response object is too long."
    [cause] = report.evidence
    assert cause.where.startswith(f"/trn/{name}")
    assert LONG in cause.text


FUNCTION = {"Fn::GetAtt": ["Entry", "Arn"]}
IMPORTED = "arn:aws:lambda:us-east-1:111122223333:function:theirs"


@pytest.mark.parametrize(
    ("token", "groups"),
    [
        (FUNCTION, ["/own/log", "/aws/lambda/handler-1"]),
        ({"Ref": "Alias"}, ["/aws/lambda/aliased"]),
        ({"Ref": "Given"}, ["/aws/lambda/theirs"]),
        (IMPORTED, ["/aws/lambda/theirs"]),
        ("arn:aws:lambda:us-east-1:111122223333:function:entry-1", ["/own/log", "/aws/lambda/handler-1"]),
        ("arn:aws:sns:us-east-1:111122223333:topic", []),
        ({"Fn::ImportValue": "elsewhere"}, []),
        ({"Fn::GetAtt": ["Provider", "Outputs.Token"]}, ["/aws/lambda/nested-1"]),
        ({"Fn::GetAtt": ["Provider", "Outputs.Gone"]}, []),
        ({"Fn::GetAtt": "Handler.Arn"}, ["/aws/lambda/handler-1"]),
        (None, []),
    ],
    ids=str,
)
def test_the_log_groups_of_a_custom_resource(token: Any, groups: list[str]) -> None:
    """Of a function of the stack, of one that calls another, of one in a nested stack, and of one from elsewhere."""
    calls = {"Variables": {"USER_ON_EVENT_FUNCTION_ARN": {"Fn::GetAtt": ["Handler", "Arn"]}, "WORD": "x"}}
    made: dict[str, Any] = {
        "Made": {"Type": "Custom::Made", "Properties": {"ServiceToken": token}},
        "Log": {"Type": "AWS::Logs::LogGroup"},
        "Entry": {"Type": "AWS::Lambda::Function", "Properties": {"LoggingConfig": {"LogGroup": {"Ref": "Log"}}, "Environment": calls}},
        "Handler": {"Type": "AWS::Lambda::Function"},
        "Alias": {"Type": "AWS::Lambda::Alias"},
        "Provider": {"Type": STACK},
    }  # fmt: skip
    inner = {
        "Resources": {"Inner": {"Type": "AWS::Lambda::Function"}},
        "Outputs": {"Token": {"Value": {"Fn::GetAtt": ["Inner", "Arn"]}}},
    }
    there = {
        "Log": "/own/log", "Entry": "entry-1", "Handler": "handler-1", "Provider": NESTED,
        "Alias": "arn:aws:lambda:us-east-1:111122223333:function:aliased:live",
    }  # fmt: skip
    events = [event(1, key, made[key]["Type"], "CREATE_COMPLETE", physical=id) for key, id in there.items()]
    nested = [event(1, "Inner", "AWS::Lambda::Function", "CREATE_COMPLETE", "", "nested-1", NESTED)]

    class CloudFormation:
        def get_template(self, **asked: Any) -> Any:
            return {"TemplateBody": inner if asked["StackName"] == NESTED else {"Resources": made}}

        def get_paginator(self, _: str) -> Any:
            return self

        def paginate(self, **asked: Any) -> Any:
            return [{"StackEvents": nested if asked["StackName"] == NESTED else events}]

        def describe_stacks(self, **_: Any) -> Any:
            return {"Stacks": [{"Parameters": [{"ParameterKey": "Given", "ParameterValue": IMPORTED}]}]}

    assert log_groups(CloudFormation(), Custom(ID, "Made", "")) == groups


def test_a_resource_that_a_rollback_took_away_names_its_function_in_its_event() -> None:
    arn = "arn:aws:lambda:us-east-1:111122223333:function:entry-1"
    failed = event(3, "New", "Custom::Made", "CREATE_FAILED", "Response object is too long.")
    assert Custom.of({**failed, "ResourceProperties": json.dumps({"ServiceToken": arn})}).token == arn
    assert [Custom.of({**failed, **cut}).token for cut in ({}, {"ResourceProperties": '{"Manifest": "abc'})] == ["", ""]


LAUNCH = "AsgInstanceLaunchFailures: Could not launch. Capacity Reservation cr-0123456789abcdef0 is in state cancelled"


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("", False),
        ("Resource creation cancelled", False),
        ("Resource update Cancelled", False),
        ("Resource deletion cancelled", False),
        ("The following resource(s) failed to create: [Nodes, Other]. ", False),
        ("The following resource(s) failed to create: [Nodes]. Rollback requested by user.", False),
        ("The following resource(s) failed to update: [Nodes].", False),
        (LAUNCH, True),
        ("Spot request cancelled by user", True),
        ("User cancelled transaction", True),
        ("Resource creation cancelled: the function was throttled", True),
        ("Received response status [FAILED] from custom resource. Message returned: The following resource(s) failed to create: [x]", True),
        ("Embedded stack arn:aws:cloudformation:s was not successfully created: The following resource(s) failed to create: [A].", True),
    ],
)  # fmt: skip
def test_only_whole_sentences_about_consequences_are_left_out(reason: str, shown: bool) -> None:
    cloudformation = client("cloudformation")
    own = [
        event(2, "Nodes", "AWS::EKS::Nodegroup", "CREATE_FAILED", reason),
        event(1, "TrnEksStack", STACK, "CREATE_IN_PROGRESS", "User Initiated", ID),
    ]
    with Stubber(cloudformation) as answers:
        answers.add_response("describe_stack_events", {"StackEvents": own}, {"StackName": ID})
        assert [e.text for e in failed_events(cloudformation, ID)[1]] == [reason] * shown


def test_a_nested_stack_is_left_out_only_where_its_own_events_tell_more() -> None:
    sentence = (
        f"Embedded stack {NESTED} was not successfully created: The following resource(s) failed to create: [Flow]. "
    )
    own = [
        event(5, "Nested", STACK, "CREATE_FAILED", sentence, NESTED),
        event(1, "TrnEksStack", STACK, "CREATE_IN_PROGRESS", "User Initiated", ID),
    ]
    inside = [
        event(3, "Flow", "AWS::EC2::FlowLog", "CREATE_FAILED", "no such role", stack=NESTED),
        event(2, "TrnEksStack-Nested", STACK, "CREATE_IN_PROGRESS", "", NESTED, NESTED),
    ]
    for nested, expected in ((inside, "no such role"), (inside[1:], sentence)):
        cloudformation = client("cloudformation")
        with Stubber(cloudformation) as answers:
            answers.add_response("describe_stack_events", {"StackEvents": own}, {"StackName": ID})
            answers.add_response("describe_stack_events", {"StackEvents": nested}, {"StackName": NESTED})
            assert [e.text for e in failed_events(cloudformation, ID)[1]] == [expected]
