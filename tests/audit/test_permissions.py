"""Permissions in a deployed stack: principal, action and resource, evaluated by the local AWS with the policies of the
templates."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.audit.principals import ACCOUNT, REGION, Principals, evaluate, of
from tests.stacks import synthesis
from tests.test_bootstrap import KEY_OF_ENTRY
from trainium_cdk import settings

HERE = f"{REGION}:{ACCOUNT}"
FILES, LOGS = "arn:aws:s3:::files", "arn:aws:s3:::filesaccesslogs"
KEPT = {"jobs": {"keep": "s3://kept/runs/bert", "cache": "s3://graphs"}}
NAMES = {
    "here": HERE,
    "account": ACCOUNT,
    "files": FILES,
    "kept": "arn:aws:s3:::kept",
    "graphs": "arn:aws:s3:::graphs",
    "key": "arn:aws:kms:eu-west-1:444455556666:key/0",
    "logs": LOGS,
    "entry": KEY_OF_ENTRY,
    "job_role": f"arn:aws:iam::{ACCOUNT}:role/ClusterJobRole",
    "image": f"arn:aws:ecr:{HERE}:repository/registry",
    "scripts": f"arn:aws:ssm:{HERE}:parameter/trainium/trn-slurm/node-scripts",
    "other_secret": f"arn:aws:ssm:{HERE}:parameter/other-team/db-password",
    "ssh_key": f"arn:aws:ssm:{HERE}:parameter/ec2/keypair/key-0123456789abcdef0",
    "instance": f"arn:aws:ec2:{HERE}:instance/i-0123456789abcdef0",
    "reservation": f"arn:aws:ec2:{HERE}:capacity-reservation/cr-0",
    "group": f"arn:aws:autoscaling:{HERE}:autoScalingGroup:0:autoScalingGroupName/eks-grouptrn-0",
    "interface": f"arn:aws:ec2:{HERE}:network-interface/*",
    "handler": f"arn:aws:lambda:{HERE}:function:clusterkubectlproviderhandler",
    "efs": f"arn:aws:elasticfilesystem:{HERE}:file-system/storageefs",
    "access_point": f"arn:aws:elasticfilesystem:{HERE}:access-point/fsap-0123456789abcdef0",
    "nodegroup": f"arn:aws:eks:{HERE}:nodegroup/trn-eks/grouptrn/0",
}


class Row(NamedTuple):
    """One decision."""

    principal: str
    action: str
    resource: str
    allowed: bool
    context: dict[str, str]


def rows(stack: str) -> list[Row]:
    """Those of `permissions-STACK.txt`: yes or no, principal, action, resource, and the request's context."""
    found = []
    for line in Path(__file__).with_name(f"permissions-{stack}.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            allowed, principal, action, *words = line.format_map(NAMES).split()
            context = dict(word.split("=", 1) for word in words[1:])
            found.append(Row(principal, action, words[0], {"yes": True, "no": False}[allowed], context))
    return found


@pytest.fixture(scope="module")
def slurm() -> Principals:
    env = settings.validate(
        {"pcluster": {"login_nodes": {}, "head": {"ssh": {"from_cidrs": ["203.0.113.0/24"]}}}, **KEPT}
    )
    return of(synthesis.SLURM.template_of(env).to_json())


@pytest.fixture(scope="module")
def eks() -> Principals:
    return of(synthesis.EKS.template_of(settings.validate({"eks": {}, **KEPT})).to_json())


def decided(rows: list[Row], principals: Principals) -> dict[str, bool]:
    answers = evaluate([
        {
            "policies": principals.policies[r.principal], "action": r.action, "resource": r.resource,
            "context": r.context, "region": r.context.get("aws:RequestedRegion", REGION),
        }
        for r in rows
    ])  # fmt: skip
    return {f"{r.principal} {r.action} {r.resource} {r.context}": a for r, a in zip(rows, answers, strict=True)}


@pytest.mark.parametrize("stack", ["slurm", "eks"])
def test_permissions_of_each_principal(stack: str, request: pytest.FixtureRequest) -> None:
    listed = rows(stack)
    wanted = {f"{r.principal} {r.action} {r.resource} {r.context}": r.allowed for r in listed}
    assert len(wanted) == len(listed) > 40
    assert decided(listed, request.getfixturevalue(stack)) == wanted


@pytest.mark.parametrize("stack", ["slurm", "eks"])
@pytest.mark.parametrize("bucket", [FILES, LOGS])
def test_the_deployments_function_may_empty_a_bucket_by_its_policy(
    stack: str, bucket: str, request: pytest.FixtureRequest
) -> None:
    """Each request of `deployment/emptied_bucket.py`, and two that it does not make."""
    principals: Principals = request.getfixturevalue(stack)
    rows = {
        ("s3:GetBucketTagging", bucket): True,
        ("s3:GetBucketPolicy", bucket): True,
        ("s3:PutBucketPolicy", bucket): True,
        ("s3:ListBucketVersions", bucket): True,
        ("s3:DeleteObject", f"{bucket}/0"): True,
        ("s3:DeleteObjectVersion", f"{bucket}/0"): True,
        ("s3:GetObject", f"{bucket}/0"): False,
        ("s3:DeleteBucket", bucket): False,
    }
    policy = principals.bucket_policy(bucket.rpartition(":")[2])
    tls = {"aws:SecureTransport": "true", "s3:TlsVersion": "1.3"}
    answers = evaluate([
        {
            "policies": principals.policies["TrnDeploymentFunctionRole"], "action": action, "resource": resource,
            "resource_policy": policy, "context": tls,
            "caller": f"arn:aws:iam::{ACCOUNT}:role/TrnDeploymentFunctionRole",
        }
        for action, resource in rows
    ])  # fmt: skip
    assert dict(zip(rows, answers, strict=True)) == rows


def test_a_managed_policy_of_aws_would_open_every_parameter() -> None:
    """With the nodes' earlier policy, the evaluation allows the request: the row can fail."""
    [allowed] = evaluate([
        {"policies": ["arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"], "action": "ssm:GetParameter", "resource": NAMES["other_secret"]}
    ])  # fmt: skip
    assert allowed
