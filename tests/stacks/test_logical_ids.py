"""What holds data, or takes long to come back: another logical id deletes the one and creates another. And what a stack itself deletes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Template

from tests.stacks import synthesis
from tests.support import golden
from trainium_cdk.description.outputs.contract import CODE, JOB_FILES, KEPT_DAYS

GOLDEN = Path(__file__).parent / "golden"
STATEFUL = {
    "AWS::EC2::Subnet", "AWS::EC2::VPC", "AWS::ECR::Repository", "AWS::EFS::FileSystem", "AWS::EFS::MountTarget",
    "AWS::EKS::Cluster", "AWS::EKS::Nodegroup", "AWS::FSx::FileSystem", "AWS::KMS::Key", "AWS::S3::Bucket", "AWS::SSM::Parameter",
    "Custom::PclusterCluster",
}  # fmt: skip


def ids(template: Template) -> str:
    found = {(r["Type"], key) for key, r in template.to_json()["Resources"].items() if r["Type"] in STATEFUL}
    return "".join(f"{kind} {key}\n" for kind, key in sorted(found))


@pytest.mark.parametrize(
    ("stack", "name"),
    [("pcluster", "default"), ("pcluster", "fsx-persistent-s3"), ("eks", "default"), ("eks", "eks/trn1-spot")],
)
def test_stateful_resources_keep_their_logical_ids(stack: str, name: str) -> None:
    template = (synthesis.SLURM if stack == "pcluster" else synthesis.EKS).template(name)
    found = ids(template)
    file = GOLDEN / f"stateful-{stack}-{name.rpartition('/')[2]}.txt"
    assert found == golden(file, found), "these resources would be replaced, with what is in them"


@pytest.mark.parametrize("stack", [synthesis.SLURM, synthesis.EKS, synthesis.PCS], ids=lambda s: s.engine)
def test_the_bucket_deletes_what_commands_put_there_when_its_time_is_over(stack: Any) -> None:
    """On Kubernetes only job files and working directories go through the bucket."""
    buckets = stack.template("default").find_resources("AWS::S3::Bucket").values()
    rules = [rule for bucket in buckets for rule in bucket["Properties"]["LifecycleConfiguration"]["Rules"]]
    expected = {p: days for p, days in KEPT_DAYS.items() if stack is not synthesis.EKS or p.startswith(JOB_FILES)}
    assert {rule["Prefix"]: rule["ExpirationInDays"] for rule in rules if "Prefix" in rule} == expected
    assert expected[f"{CODE}/"] == 60
