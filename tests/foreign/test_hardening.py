"""What makes our stacks hard, in a stack of others with functions, buckets, roles and volumes of theirs."""

from __future__ import annotations

import inspect
import json

import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Template
from constructs import Construct

import trainium_cdk as trn
from tests.cdk import findings, resources
from tests.foreign.foreign import stack, vpc


def function(scope: Construct, id: str) -> functions.Function:
    return functions.Function(
        scope,
        id,
        runtime=functions.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=functions.Code.from_inline("def handler(event, context): pass"),
    )


@pytest.fixture(scope="module")
def made() -> Template:
    theirs = stack()
    network = vpc(theirs)
    plain = function(theirs, "Plain")
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
    trn.encrypt(theirs, key, users=[plain])
    return Template.from_stack(theirs)


def of(template: Template, kind: str, id: str) -> dict[str, object]:
    [found] = [r["Properties"] for name, r in resources(template, kind).items() if name[:-8] == id]
    return dict(found)


def test_its_template_is_valid(made: Template) -> None:
    assert findings(made) == []


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


@pytest.mark.parametrize("name", ["encrypt", "encrypt_operations"])
def test_each_has_an_example(name: str) -> None:
    text = inspect.getdoc(getattr(trn, name)) or ""
    assert f"{name}(" in text.partition("\nExample:\n")[2]
