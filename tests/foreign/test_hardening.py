"""What makes our stacks hard, in a stack of others with functions, buckets, roles and volumes of theirs."""

from __future__ import annotations

import inspect
import json

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk.assertions import Template
from constructs import Construct

import trainium_cdk as trn
from tests.cdk import findings, resources
from tests.foreign.foreign import stack, vpc


def function(
    scope: Construct, id: str, role: iam.Role | None = None, own: sqs.Queue | None = None
) -> functions.Function:
    return functions.Function(
        scope,
        id,
        runtime=functions.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=functions.Code.from_inline("def handler(event, context): pass"),
        role=role,
        dead_letter_queue=own,
    )


@pytest.fixture(scope="module")
def made() -> Template:
    theirs = stack()
    network = vpc(theirs)
    plain = function(theirs, "Plain")
    role = iam.Role(theirs, "Shared", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    for id in "One", "Two":
        function(theirs, id, role)
    function(theirs, "Own", own=sqs.Queue(theirs, "OwnQueue"))
    function(cdk.NestedStack(theirs, "Nested"), "Inside")
    logs.LogGroup(theirs, "Logs")
    access = s3.Bucket(theirs, "AccessLogs")
    bucket = s3.Bucket(theirs, "Data", server_access_logs_bucket=access)
    bucket.grant_read(plain)
    image, kind = ec2.MachineImage.latest_amazon_linux2023(), ec2.InstanceType("t3.small")
    ec2.Instance(theirs, "Bare", vpc=network, instance_type=kind, machine_image=image)
    volume = ec2.BlockDeviceVolume.ebs(8, encrypted=True)
    devices = [ec2.BlockDevice(device_name=name, volume=volume) for name in ("/dev/xvda", "/dev/xvdb")]
    ec2.Instance(theirs, "Disks", vpc=network, instance_type=kind, machine_image=image, block_devices=devices)
    ec2.LaunchTemplate(theirs, "Template", block_devices=devices)
    key = trn.TrnKey(theirs, "Key", description="Data").key
    trn.TrnFailedCalls(theirs, "FailedCalls", encryption_key=key)
    trn.encrypt(theirs, key, users=[plain])
    trn.manage_policies(theirs)
    return Template.from_stack(theirs)


def of(template: Template, kind: str, id: str) -> dict[str, object]:
    [found] = [r["Properties"] for name, r in resources(template, kind).items() if name[:-8] == id]
    return dict(found)


def test_its_template_is_valid(made: Template) -> None:
    assert findings(made) == []


def test_every_function_keeps_its_failed_calls_unless_it_does_already(made: Template) -> None:
    found = {
        name: str(of(made, "Lambda::Function", name)["DeadLetterConfig"]) for name in ("Plain", "One", "Two", "Own")
    }
    assert {name: "FailedCallsFailed" in config for name, config in found.items()} == {
        "Plain": True, "One": True, "Two": True, "Own": False,
    }  # fmt: skip
    sends = [
        r for r in resources(made, "IAM::ManagedPolicy").values() if "failed" in r["Properties"].get("Description", "")
    ]
    assert len(sends) == 2, "one for each role"
    assert all("kms:GenerateDataKey" in json.dumps(r) for r in sends)


def test_one_key_encrypts_everything(made: Template) -> None:
    [key] = resources(made, "KMS::Key")
    arn = {"Fn::GetAtt": [key, "Arn"]}
    assert of(made, "Logs::LogGroup", "Logs")["KmsKeyId"] == arn
    assert of(made, "Lambda::Function", "Plain")["KmsKeyArn"] == arn
    assert key in json.dumps(of(made, "S3::Bucket", "Data")["BucketEncryption"])
    disks = of(made, "EC2::Instance", "Disks")["BlockDeviceMappings"]
    template = of(made, "EC2::LaunchTemplate", "Template")["LaunchTemplateData"]
    assert isinstance(disks, list)
    assert isinstance(template, dict)
    assert [d["Ebs"]["KmsKeyId"] for d in (*disks, *template["BlockDeviceMappings"])] == [arn] * 4
    assert "BlockDeviceMappings" not in of(made, "EC2::Instance", "Bare")


def test_access_logs_keep_the_key_with_which_s3_delivers_them(made: Template) -> None:
    assert "KMSMasterKeyID" not in json.dumps(of(made, "S3::Bucket", "AccessLogs"))


def test_no_policy_is_inline(made: Template) -> None:
    assert resources(made, "IAM::Policy") == {}


@pytest.mark.parametrize("name", ["encrypt", "encrypt_operations", "manage_policies"])
def test_each_has_an_example(name: str) -> None:
    text = inspect.getdoc(getattr(trn, name)) or ""
    assert f"{name}(" in text.partition("\nExample:\n")[2]
