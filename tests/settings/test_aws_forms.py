"""What AWS takes as the name of a thing, a setting takes too: each form that its API accepts, and none that it refuses."""

from __future__ import annotations

import re
from typing import Any

import boto3
import pytest

from trainium_cdk import settings

HEX = ("01234567", "0123456789abcdef0")
"""The two lengths of EC2's ids."""


def of_queue(**given: Any) -> dict[str, Any]:
    resource = {key: given.pop(key) for key in ("reservation",) if key in given}
    return {"pcluster": {"queues": [{**given, "compute_resources": [resource]}]}}


def existing(**given: Any) -> dict[str, Any]:
    subnet = {"id": "subnet-0123456789abcdef0", "zone_id": "use1-az4"}
    network = {"vpc_id": "vpc-0123456789abcdef0", "cidr": "10.0.0.0/16", "private_subnets": [subnet]}
    return {"network": {"existing": {**network, **given}}}


FORMS: dict[str, tuple[Any, list[str], list[str]]] = {
    "a reservation": (
        lambda v: of_queue(reservation=v),
        [*(f"cr-{h}" for h in HEX), "arn:aws:resource-groups:us-east-1:111122223333:group/my.group_1",
         "arn:aws-us-gov:resource-groups:us-gov-west-1:111122223333:group/g", f"arn:aws:resource-groups:us-east-1:111122223333:group/app/{'a1' * 13}"],
        ["my-reservations", "arn:aws:ec2:us-east-1:111122223333:capacity-reservation/cr-01234567", "cr-"],
    ),
    "a placement group": (
        lambda v: of_queue(placement_group=v),
        ["mine", "my group (2026)", "pg-0123456789abcdef0", "x" * 255],
        ["", " mine", "mine ", "x" * 256, "none", "yes"],
    ),
    "a key pair": (lambda v: {"pcluster": {"head": {"ssh": {"key_name": v}}}}, ["mine", "my key", "ops@example.com", "x" * 255], ["", " mine", "x" * 256]),
    "an image": (lambda v: of_queue(custom_ami=v), [f"ami-{h}" for h in HEX], ["resolve:ssm:/aws/x", "AMI-01234567", "ubuntu"]),
    "a VPC": (lambda v: existing(vpc_id=v), [f"vpc-{h}" for h in HEX], ["my-vpc"]),
    "a subnet": (lambda v: existing(private_subnets=[{"id": v, "zone_id": "use1-az4"}]), [f"subnet-{h}" for h in HEX], ["arn:aws:ec2:us-east-1:111122223333:subnet/subnet-01234567"]),
    "a policy": (
        lambda v: {"pcluster": {"node_policies": [v]}},
        ["arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess", "arn:aws:iam::aws:policy/service-role/AWSBatchServiceRole",
         "arn:aws-cn:iam::111122223333:policy/team/a/parallelcluster-x", "arn:aws:iam::111122223333:policy/a+b=c,d.e@f_g-h"],
        ["AmazonS3ReadOnlyAccess", "arn:aws:iam::111122223333:role/x"],
    ),
    "a principal": (
        lambda v: {"eks": {"access": [{"principal": v}]}},
        ["arn:aws:iam::111122223333:role/Admin", "arn:aws:iam::111122223333:role/team/a/Admin", "arn:aws:iam::111122223333:user/ops/ada",
         "arn:aws:iam::111122223333:role/aws-reserved/sso.amazonaws.com/eu-west-1/AWSReservedSSO_Admin_0123456789abcdef"],
        ["Admin", "111122223333"],
    ),
    "a topic": (
        lambda v: {"observability": {"alarm_topic": v, "job_topic": v}},
        ["arn:aws:sns:us-east-1:111122223333:alarms", "arn:aws-us-gov:sns:us-gov-west-1:111122223333:alarms"],
        ["alarms", "arn:sns"],
    ),
    "an address in S3": (
        lambda v: {"storage": {"fsx": {"s3_links": [{"uri": v}]}}},
        ["s3://corpus", "s3://corpus/", "s3://my.corpus.v1/a/b", "s3://corpus/year=2026/month=11/", "s3://corpus/a+b @c:d,e;f&g$h/(x)!"],
        ["corpus", "https://corpus.s3.amazonaws.com", "s3://Corpus/x", "s3://c"],
    ),
    "a mount name of Lustre": (
        lambda v: {**existing(), "storage": {"fsx": {"existing": {"id": "fs-0123456789abcdef0", "mount_name": v}}}},
        ["fsx", "abcdef12", "Ab_c-d"],
        ["", "abcdef123", "a b"],
    ),
    "a file system": (
        lambda v: {**existing(), "storage": {"efs": {"existing": {"id": v}}}}, [f"fs-{h}" for h in HEX], ["fs-1", "my-efs"]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("what", "value"), [(what, value) for what, (_, taken, _) in FORMS.items() for value in taken])
def test_what_aws_takes_is_taken(what: str, value: str) -> None:
    settings.validate(FORMS[what][0](value))


@pytest.mark.parametrize(
    ("what", "value"), [(what, value) for what, (_, _, not_taken) in FORMS.items() for value in not_taken]
)
def test_what_aws_refuses_is_refused(what: str, value: str) -> None:
    with pytest.raises(settings.SettingsError) as refused:
        settings.validate(FORMS[what][0](value))
    assert "^" not in str(refused.value), "words, not a regular expression"


@pytest.mark.parametrize(
    ("what", "service", "shape"),
    [
        ("a mount name of Lustre", "fsx", "LustreFileSystemMountName"),
        ("an address in S3", "fsx", "ArchivePath"),
        ("a file system", "fsx", "FileSystemId"),
    ],
)
def test_the_forms_are_those_of_the_services_own_model(what: str, service: str, shape: str) -> None:
    model = boto3.session.Session().client(service, region_name="us-east-1").meta.service_model
    pattern = model.shape_for(shape).metadata["pattern"]
    assert all(re.search(pattern, value) for value in FORMS[what][1])


def test_a_group_is_named_as_resource_groups_names_it() -> None:
    model = boto3.session.Session().client("resource-groups", region_name="us-east-1").meta.service_model
    pattern = model.shape_for("GroupArn").metadata["pattern"]
    groups = [value for value in FORMS["a reservation"][1] if value.startswith("arn:")]
    assert groups
    assert all(re.fullmatch(pattern, value) for value in groups)
