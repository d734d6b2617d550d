"""A function's log is what its role may write: of this depends whether a stack leaves a log group behind."""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from collections.abc import Callable, Iterator

import pytest

from sandbox import LocalAws

pytestmark = pytest.mark.sweep

BASIC = "arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
STREAMS = {"Effect": "Allow", "Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": "*"}
HANDLER = "def handler(event, context):\n    print(event)\n"


@pytest.fixture
def name() -> str:
    return f"logs-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def invoke(local_aws: LocalAws, name: str) -> Iterator[Callable[[str], list[str]]]:
    """`invoke(text)`: invoke the function; its log's lines, or none if there is no log."""
    iam, function, logs = (local_aws.client(service) for service in ("iam", "lambda", "logs"))
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))["Role"]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("index.py", HANDLER)
    function.create_function(
        FunctionName=name,
        Runtime="python3.12",
        Handler="index.handler",
        Role=role["Arn"],
        Code={"ZipFile": packed.getvalue()},
    )
    group = f"/aws/lambda/{name}"

    def run(word: str) -> list[str]:
        payload = word
        while True:
            function.invoke(FunctionName=name, Payload=json.dumps(payload))
            if not logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]:
                return []
            lines = [event["message"].strip() for event in logs.filter_log_events(logGroupName=group)["events"]]
            if not lines or word in lines:
                return lines
            payload = ""  # a line that is late comes with the next call's

    yield run
    function.delete_function(FunctionName=name)
    for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]:
        iam.delete_role_policy(RoleName=name, PolicyName=policy)
    for attached in iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=name, PolicyArn=attached["PolicyArn"])
    iam.delete_role(RoleName=name)
    for found in logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]:
        logs.delete_log_group(logGroupName=found["logGroupName"])


def test_without_permission_there_is_no_log(invoke: Callable[[str], list[str]]) -> None:
    assert invoke("one") == []


def test_a_deleted_log_group_is_created_again_if_the_role_may(
    local_aws: LocalAws, name: str, invoke: Callable[[str], list[str]]
) -> None:
    local_aws.client("iam").attach_role_policy(RoleName=name, PolicyArn=BASIC)
    assert "one" in invoke("one")
    local_aws.client("logs").delete_log_group(logGroupName=f"/aws/lambda/{name}")
    lines = invoke("two")
    assert "two" in lines
    assert "one" not in lines


def test_a_log_group_of_the_stack_is_not_created_again(
    local_aws: LocalAws, name: str, invoke: Callable[[str], list[str]]
) -> None:
    logs = local_aws.client("logs")
    logs.create_log_group(logGroupName=f"/aws/lambda/{name}")
    assert invoke("none may write") == []
    local_aws.client("iam").put_role_policy(
        RoleName=name, PolicyName="Streams", PolicyDocument=json.dumps({"Statement": [STREAMS]})
    )
    assert "one" in invoke("one")
    logs.delete_log_group(logGroupName=f"/aws/lambda/{name}")
    assert invoke("two") == []
