"""`trn diff` on the command line, with a small foreign app: the real CDK command line, and a stack in the local AWS."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.stub import Stubber

from sandbox import LocalAws
from tests import command
from tests.support import table
from trainium_cdk.client.cli.diff import _staying
from trainium_cdk.client.operations.updates.live import assemble, deployed
from trainium_cdk.errors import TrnError

APP = """
import os
import aws_cdk as cdk
from aws_cdk import aws_efs as efs

app = cdk.App(builtin_cloud_formation_validation=False)
stack = cdk.Stack(app, "Small", stack_name=os.environ["SMALL_NAME"])
efs.CfnFileSystem(stack, "Files", performance_mode=os.environ["SMALL_MODE"], encrypted=True)
app.synth()
"""


@pytest.fixture
def name(local_aws: LocalAws) -> Iterator[str]:
    found = f"small-{uuid.uuid4().hex[:8]}"
    yield found
    local_aws.client("cloudformation").delete_stack(StackName=found)
    local_aws.client("cloudformation").get_waiter("stack_delete_complete").wait(
        StackName=found, WaiterConfig={"Delay": 1}
    )


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "cdk.json").write_text(json.dumps({"app": f"{sys.executable} app.py"}))
    return tmp_path


def diff(aws: LocalAws, app: Path, name: str, mode: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command.trn(["diff", "Small", "--app", app, *arguments], {**aws.env, "SMALL_NAME": name, "SMALL_MODE": mode})


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Standard error, without the line that a synthesis of more than 2 s begins with: how long it takes is the machine's."""
    return re.sub(r"^synthesising Small: .*\n", "", done.stderr, flags=re.MULTILINE).rstrip("\n")


def deploy(aws: LocalAws, app: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {**aws.env, "SMALL_NAME": name, "SMALL_MODE": "generalPurpose"}.items():
        monkeypatch.setenv(key, value)
    assert deployed(name) is None
    made = assemble("Small", app=app)
    assert made.name == name
    client = aws.client("cloudformation")
    client.create_stack(StackName=name, TemplateBody=json.dumps({"Resources": made.template["Resources"]}))
    client.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})


@pytest.mark.sweep
def test_before_a_deployment_and_after_it(
    local_aws: LocalAws, app: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = diff(local_aws, app, name, "generalPurpose")
    assert (first.returncode, said(first)) == (0, f"{name} is not deployed: all of its resources are new")
    deploy(local_aws, app, name, monkeypatch)
    same = diff(local_aws, app, name, "generalPurpose")
    assert (same.returncode, same.stdout, said(same)) == (0, "", f"{name}: no change")


def test_a_change_that_loses_data(local_aws: LocalAws, app: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(local_aws, app, name, monkeypatch)
    worse = diff(local_aws, app, name, "maxIO")
    assert worse.returncode == 1
    assert (
        "loses      Files (AWS::EFS::FileSystem)\n           PerformanceMode: generalPurpose -> maxIO" in worse.stdout
    )
    assert said(worse) == f"{name}: do not deploy this as it is: Files"
    allowed = diff(local_aws, app, name, "maxIO", "--allow", "Files", "--json")
    assert (allowed.returncode, said(allowed)) == (
        0,
        f"{name}: 1 change; nothing is lost but what --allow names: Files",
    )
    [change] = json.loads(allowed.stdout)
    assert (change["level"], change["property"]) == ("loses", "PerformanceMode")


@pytest.mark.parametrize(
    ("status", "message"),
    table(__file__, "states"),
)
def test_a_stack_that_no_deployment_can_follow(status: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = boto3.client("cloudformation", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    monkeypatch.setattr(boto3, "client", lambda *_, **__: client)
    since = "2026-11-01T00:00:00Z"
    stack = {"StackName": "small", "CreationTime": since, "StackStatus": status}
    summaries = [
        {"LogicalResourceId": name, "ResourceType": kind, "ResourceStatus": state, "LastUpdatedTimestamp": since}
        for name, kind, state in (
            ("Slurm", "Custom::PclusterCluster", "UPDATE_FAILED"),
            ("Files", "AWS::EFS::FileSystem", "UPDATE_COMPLETE"),
        )
    ]
    with Stubber(client) as answers:
        answers.add_response("describe_stacks", {"Stacks": [stack]})
        answers.add_response("list_stack_resources", {"StackResourceSummaries": summaries})
        with pytest.raises(TrnError) as refused:
            deployed("small")
    assert f"stack small is {status}: " in str(refused.value)
    assert message in str(refused.value)


@pytest.fixture
def predecessor(local_aws: LocalAws) -> Iterator[str]:
    """A Slurm stack of another environment's name, in us-west-2."""
    found = f"TrnPclusterStack-old-{uuid.uuid4().hex[:8]}"
    values = {"TrnContract": {"Value": "1"}, "TrnEngine": {"Value": "slurm"}}
    resource = {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "x"}}
    client = local_aws.client("cloudformation", "us-west-2")
    client.create_stack(StackName=found, TemplateBody=json.dumps({"Resources": {"Note": resource}, "Outputs": values}))
    client.get_waiter("stack_create_complete").wait(StackName=found, WaiterConfig={"Delay": 1})
    yield found
    client.delete_stack(StackName=found)
    client.get_waiter("stack_delete_complete").wait(StackName=found, WaiterConfig={"Delay": 1})


def test_a_new_stack_does_not_hide_the_old_one(
    local_aws: LocalAws, predecessor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment with another name or region is another stack; the old one stays."""
    for key, value in local_aws.env.items():
        monkeypatch.setenv(key, value)
    stays = f"{predecessor} in us-west-2 stays, and costs money, until `trn destroy {predecessor} --region us-west-2`"
    assert stays in _staying("TrnPclusterStack-renamed", "us-west-2")
    assert _staying(predecessor, "us-east-1") == [stays]
    assert stays not in _staying("TrnEksStack-renamed", "us-west-2")
    assert _staying("Small", "us-west-2") == []  # of no engine


def test_errors_are_reported_in_one_paragraph(local_aws: LocalAws, app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {**local_aws.env, "SMALL_NAME": "small", "SMALL_MODE": "generalPurpose"}.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(TrnError, match="the app has no stack Other: `cdk ls` in its folder lists them"):
        assemble("Other", app=app)
    (app / "nothing").mkdir()
    with pytest.raises(
        TrnError, match=r"there is no CDK app in .*/nothing .*: run it in the app's folder, or give --app FOLDER"
    ):
        assemble("Other", app=app / "nothing")
    (app / "app.py").write_text("raise SystemExit('no settings today')")
    broken = diff(local_aws, app, "small", "generalPurpose")
    assert broken.returncode == 1
    assert "no settings today" in broken.stderr
    assert "Traceback" not in broken.stderr
