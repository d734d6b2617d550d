"""Training stacks with the CDK's defaults, as in an introduction: what a synthesis of such parts takes without anything of ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_efs as efs
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk.lambda_layer_kubectl_v36 import KubectlV36Layer


def slurm(stack: cdk.Stack) -> None:
    """VPC, a role of nodes, EFS, a registry and a bucket; a function with its log group, a key and a queue."""
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2, nat_gateways=1)
    iam.Role(stack, "NodeRole", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    efs.FileSystem(stack, "Efs", vpc=vpc)
    ecr.Repository(stack, "Registry")
    s3.Bucket(stack, "Bucket")
    functions.Function(
        stack,
        "Function",
        code=functions.Code.from_inline("def handler(event, context): ..."),
        handler="index.handler",
        runtime=functions.Runtime.PYTHON_3_14,
        log_group=logs.LogGroup(stack, "Logs"),
    )
    kms.Key(stack, "Key")
    sqs.Queue(stack, "Queue")


def kubernetes(stack: cdk.Stack) -> None:
    """VPC, cluster, a node group from a launch template, EFS, Lustre, a registry and a bucket."""
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2, nat_gateways=1)
    cluster = eks.Cluster(
        stack,
        "Cluster",
        vpc=vpc,
        version=eks.KubernetesVersion.of("1.36"),
        default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
        default_capacity=0,
        kubectl_provider_options=eks.KubectlProviderOptions(kubectl_layer=KubectlV36Layer(stack, "Kubectl")),
    )
    policies = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryReadOnly", "AmazonEKS_CNI_Policy")
    role = iam.Role(
        stack,
        "NodeRole",
        assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
        managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in policies],
    )
    launch = ec2.CfnLaunchTemplate(
        stack,
        "Launch",
        launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(instance_type="trn1.32xlarge"),
    )
    eks.CfnNodegroup(
        stack,
        "Nodes",
        cluster_name=cluster.cluster_name,
        node_role=role.role_arn,
        subnets=[vpc.private_subnets[0].subnet_id],
        ami_type="AL2023_x86_64_NEURON",
        launch_template=eks.CfnNodegroup.LaunchTemplateSpecificationProperty(id=launch.ref),
    )
    efs.FileSystem(stack, "Efs", vpc=vpc)
    fsx.LustreFileSystem(
        stack,
        "Fsx",
        vpc=vpc,
        vpc_subnet=vpc.private_subnets[0],
        storage_capacity_gib=1200,
        lustre_configuration=fsx.LustreConfiguration(deployment_type=fsx.LustreDeploymentType.SCRATCH_2),
    )
    ecr.Repository(stack, "Registry")
    s3.Bucket(stack, "Bucket")


def template(engine: str) -> dict[str, object]:
    """The synthesised template."""
    app = cdk.App(builtin_cloud_formation_validation=False)
    stack = cdk.Stack(app, "Naive")
    {"slurm": slurm, "eks": kubernetes}[engine](stack)
    found: dict[str, object] = app.synth().get_stack_by_name("Naive").template
    return found


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(template(sys.argv[1]), indent=1), "utf-8")
