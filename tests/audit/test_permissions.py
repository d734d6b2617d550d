"""Permissions in a deployed stack: principal, action and resource, evaluated by the local AWS with the policies of the
templates."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.audit.principals import ACCOUNT, REGION, Principals, evaluate, of
from tests.stacks import eks_synthesis, synthesis
from tests.test_bootstrap import KEY_OF_ENTRY
from tests.trust.figures import record
from trainium_cdk import settings

HERE, ELSEWHERE = f"{REGION}:{ACCOUNT}", "eu-west-1"
FILES = "arn:aws:s3:::files"
LOGS = "arn:aws:s3:::filesaccesslogs"
IMAGE = f"arn:aws:ecr:{HERE}:repository/registry"
SCRIPTS = f"arn:aws:ssm:{HERE}:parameter/trainium/trn-slurm/node-scripts"
OTHER_SECRET = f"arn:aws:ssm:{HERE}:parameter/other-team/db-password"
SSH_KEY = f"arn:aws:ssm:{HERE}:parameter/ec2/keypair/key-0123456789abcdef0"
INSTANCE = f"arn:aws:ec2:{HERE}:instance/i-0123456789abcdef0"
GROUP = f"arn:aws:autoscaling:{HERE}:autoScalingGroup:0:autoScalingGroupName/eks-grouptrn-0"
INTERFACE = f"arn:aws:ec2:{HERE}:network-interface/*"
HANDLER = f"arn:aws:lambda:{HERE}:function:clusterkubectlproviderhandler"
KUBECTL = {"lambda__SourceFunctionArn": HANDLER}
"""Set by AWS in requests of a function's own code, and not in Lambda's for the function."""
NODEGROUP = f"arn:aws:eks:{HERE}:nodegroup/trn-eks/grouptrn/0"


class Row(NamedTuple):
    """One decision."""

    principal: str
    action: str
    resource: str
    allowed: bool
    context: dict[str, Any]


def yes(principal: str, action: str, resource: str, **context: Any) -> Row:
    return Row(principal, action, resource, True, {k.replace("__", ":"): v for k, v in context.items()})


def no(principal: str, action: str, resource: str, **context: Any) -> Row:
    return Row(principal, action, resource, False, {k.replace("__", ":"): v for k, v in context.items()})


SLURM = [
    # the head node: accessible through Systems Manager, downloads what `trn` uploads
    yes("head", "ssm:UpdateInstanceInformation", INSTANCE),
    no("head", "ssm:UpdateInstanceInformation", INSTANCE, aws__RequestedRegion=ELSEWHERE),
    yes("head", "ssmmessages:OpenDataChannel", "*"),
    yes("head", "ec2messages:GetMessages", "*"),
    yes("head", "ssm:GetParameter", SCRIPTS),
    no("head", "ssm:GetParameter", OTHER_SECRET),
    no("head", "ssm:GetParameter", SSH_KEY),
    no("head", "ssm:SendCommand", INSTANCE),
    yes("head", "s3:GetObjectVersion", f"{FILES}/trn/payloads/0"),
    no("head", "s3:PutObject", f"{FILES}/trn/payloads/0"),
    yes("head", "s3:GetObject", f"{FILES}/node-scripts/0.zip"),
    no("head", "s3:PutObject", f"{FILES}/node-scripts/0.zip"),
    no("head", "s3:PutObject", f"{FILES}/images/0.zip"),
    # login nodes: accessible in the same way
    yes("login", "ssmmessages:OpenControlChannel", "*"),
    no("login", "ssm:GetParameters", SSH_KEY),
    no("login", "s3:GetObject", f"{FILES}/trn/payloads/0"),
    # compute nodes; every job has their credentials
    yes("compute", "s3:GetObject", f"{FILES}/jobs/checkpoint"),
    yes("compute", "s3:PutObject", f"{FILES}/jobs/checkpoint"),
    yes("compute", "s3:ListBucket", FILES, s3__prefix="jobs/"),
    no("compute", "s3:ListBucket", FILES),
    no("compute", "s3:ListBucket", FILES, s3__prefix="trn/payloads/"),
    yes("compute", "s3:GetObject", f"{FILES}/node-scripts/0.zip"),
    no("compute", "s3:PutObject", f"{FILES}/node-scripts/0.zip"),
    no("compute", "s3:GetObject", f"{FILES}/trn/payloads/0"),
    no("compute", "s3:GetObjectVersion", f"{FILES}/trn/payloads/0"),
    no("compute", "s3:DeleteObjectVersion", f"{FILES}/jobs/checkpoint"),
    no("compute", "s3:PutObject", f"{FILES}/images/0.zip"),
    no("compute", "s3:PutObject", f"{LOGS}/objects/0"),
    yes("compute", "ecr:BatchGetImage", IMAGE),
    no("compute", "ecr:PutImage", IMAGE),
    no("compute", "ssm:GetParameter", OTHER_SECRET),
    no("compute", "ssm:GetParameter", SSH_KEY),
    no("compute", "ssm:PutParameter", SCRIPTS),
    no("compute", "ssmmessages:OpenDataChannel", "*"),
    no("compute", "ec2messages:GetMessages", "*"),
    no("compute", "sts:AssumeRole", f"arn:aws:iam::{ACCOUNT}:role/TrnDeploymentFunctionRole"),
    # the functions of the deployment
    yes("TrnDeploymentFunctionRole", "s3:PutObject", f"{FILES}/{KEY_OF_ENTRY}"),
    no("TrnDeploymentFunctionRole", "s3:PutObject", f"{FILES}/node-scripts/0.zip"),
    no("TrnDeploymentFunctionRole", "s3:PutObject", f"{FILES}/images/0.zip"),
    no("TrnDeploymentFunctionRole", "s3:GetObject", f"{FILES}/jobs/checkpoint"),
    no("TrnDeploymentFunctionRole", "s3:DeleteObject", "arn:aws:s3:::other/0"),
    yes("TrnDeploymentFunctionRole", "cloudformation:DescribeStacks", f"arn:aws:cloudformation:{HERE}:stack/trn-slurm/0"),
    no("TrnDeploymentFunctionRole", "cloudformation:DeleteStack", f"arn:aws:cloudformation:{HERE}:stack/trn-slurm/0"),
    yes("TrnDeploymentFunctionRole", "logs:DeleteLogGroup", f"arn:aws:logs:{HERE}:log-group:/aws/parallelcluster/trn-slurm-0"),
    no("TrnDeploymentFunctionRole", "logs:DeleteLogGroup", f"arn:aws:logs:{HERE}:log-group:/aws/parallelcluster/other-0"),
]  # fmt: skip
EKS = [
    # pods of jobs
    yes("PluginsJobIdentityRole", "s3:PutObject", f"{FILES}/jobs/checkpoint"),
    yes("PluginsJobIdentityRole", "s3:DeleteObject", f"{FILES}/jobs/checkpoint"),
    no("PluginsJobIdentityRole", "s3:PutObject", f"{FILES}/images/0.zip"),
    no("PluginsJobIdentityRole", "s3:GetObject", f"{FILES}/images/0.zip"),
    no("PluginsJobIdentityRole", "s3:PutObject", f"{LOGS}/objects/0"),
    no("PluginsJobIdentityRole", "s3:ListBucket", FILES, s3__prefix="images/"),
    no("PluginsJobIdentityRole", "s3:PutBucketPolicy", FILES),
    no("PluginsJobIdentityRole", "codebuild:StartBuild", f"arn:aws:codebuild:{HERE}:project/images"),
    no("PluginsJobIdentityRole", "ecr:PutImage", IMAGE),
    no("PluginsJobIdentityRole", "ssm:GetParameter", OTHER_SECRET),
    no("PluginsJobIdentityRole", "eks:DescribeCluster", f"arn:aws:eks:{HERE}:cluster/trn-eks"),
    # nodes
    yes("NodesRole", "ssmmessages:OpenDataChannel", "*"),
    no("NodesRole", "ssm:GetParameter", OTHER_SECRET),
    yes("NodesRole", "eks-auth:AssumeRoleForPodIdentity", f"arn:aws:eks:{HERE}:cluster/trn-eks"),
    no("NodesRole", "s3:GetObject", f"{FILES}/jobs/checkpoint"),
    no("NodesRole", "ec2:TerminateInstances", INSTANCE),
    # builds
    yes("ImagesRole", "s3:GetObjectVersion", f"{FILES}/images/0.zip"),
    no("ImagesRole", "s3:PutObject", f"{FILES}/images/0.zip"),
    no("ImagesRole", "s3:GetObject", f"{FILES}/jobs/checkpoint"),
    yes("ImagesRole", "ecr:PutImage", IMAGE),
    no("ImagesRole", "ecr:PutImage", f"arn:aws:ecr:{HERE}:repository/other"),
    no("ImagesRole", "ecr:DeleteRepository", IMAGE),
    # the scaler
    yes("ScalerRole", "autoscaling:SetDesiredCapacity", GROUP, **{"aws__ResourceTag/eks:cluster-name": "trn-eks"}),
    no("ScalerRole", "autoscaling:SetDesiredCapacity", GROUP, **{"aws__ResourceTag/eks:cluster-name": "other"}),
    no("ScalerRole", "autoscaling:SetDesiredCapacity", GROUP.replace("grouptrn", "other"),
       **{"aws__ResourceTag/eks:cluster-name": "trn-eks"}),
    no("ScalerRole", "autoscaling:DeleteAutoScalingGroup", GROUP, **{"aws__ResourceTag/eks:cluster-name": "trn-eks"}),
    yes("ScalerRole", "eks:DescribeNodegroup", NODEGROUP),
    no("ScalerRole", "eks:UpdateNodegroupConfig", NODEGROUP),
    # functions of the deployment, the bastion host, and the detector
    yes("TrnDeploymentFunctionRole", "eks:DescribeNodegroup", NODEGROUP),
    no("TrnDeploymentFunctionRole", "eks:DeleteNodegroup", NODEGROUP),
    yes("ClusterKubectlHandlerRole", "ec2:CreateNetworkInterface", INTERFACE),
    no("ClusterKubectlHandlerRole", "ec2:CreateNetworkInterface", INTERFACE, aws__RequestedRegion=ELSEWHERE),
    no("ClusterKubectlHandlerRole", "ec2:CreateNetworkInterface", INTERFACE, **KUBECTL),
    no("ClusterKubectlHandlerRole", "ec2:DeleteNetworkInterface", INTERFACE, **KUBECTL),
    no("ClusterKubectlHandlerRole", "ec2:DescribeNetworkInterfaces", "*", **KUBECTL),
    no("ClusterKubectlHandlerRole", "logs:CreateLogGroup", "*"),
    no("ClusterKubectlHandlerRole", "ecr:GetAuthorizationToken", "*"),
    no("ClusterKubectlHandlerRole", "s3:GetObject", f"{FILES}/jobs/checkpoint"),
    yes("ClusterKubectlEntryRole", "lambda:InvokeFunction", HANDLER),
    no("ClusterKubectlEntryRole", "lambda:InvokeFunction", f"{HANDLER}:1"),
    no("ClusterAccessRole", "eks:DescribeCluster", f"arn:aws:eks:{HERE}:cluster/trn-eks"),
    yes("BastionHostRole", "ssm:UpdateInstanceInformation", INSTANCE),
    no("BastionHostRole", "ssm:GetParameter", OTHER_SECRET),
    yes("PluginsDetectorIdentityRole", "cloudwatch:PutMetricData", "*", cloudwatch__namespace="NeuronHealthCheck"),
    no("PluginsDetectorIdentityRole", "cloudwatch:PutMetricData", "*", cloudwatch__namespace="AWS/EC2"),
]  # fmt: skip


@pytest.fixture(scope="module")
def slurm() -> Principals:
    env = settings.validate({"pcluster": {"login_nodes": {}, "head": {"ssh": {"from_cidrs": ["203.0.113.0/24"]}}}})
    return of(synthesis.template_of(env).to_json())


@pytest.fixture(scope="module")
def eks() -> Principals:
    return of(eks_synthesis.document("default"))


def decided(rows: list[Row], principals: Principals) -> dict[str, bool]:
    answers = evaluate([
        {
            "policies": principals.policies[r.principal], "action": r.action, "resource": r.resource,
            "context": r.context, "region": r.context.get("aws:RequestedRegion", REGION),
        }
        for r in rows
    ])  # fmt: skip
    return {f"{r.principal} {r.action} {r.resource} {r.context}": a for r, a in zip(rows, answers, strict=True)}


@pytest.mark.parametrize(("stack", "rows"), [("slurm", SLURM), ("eks", EKS)])
def test_permissions_of_each_principal(stack: str, rows: list[Row], request: pytest.FixtureRequest) -> None:
    wanted = {f"{r.principal} {r.action} {r.resource} {r.context}": r.allowed for r in rows}
    assert len(wanted) == len(rows)
    assert decided(rows, request.getfixturevalue(stack)) == wanted
    allowed = sum(r.allowed for r in rows)
    record(f"permissions-{stack}", rows=len(rows), allowed=allowed, denied=len(rows) - allowed)


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
        {"policies": ["arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"], "action": "ssm:GetParameter", "resource": OTHER_SECRET}
    ])  # fmt: skip
    assert allowed
