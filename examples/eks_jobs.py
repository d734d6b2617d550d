"""Jobs of `trn` on an EKS cluster and in your own VPC: everything that they need in the cluster.

    cdk deploy --app "python examples/eks_jobs.py" -c users=arn:aws:iam::...:role/...
    trn submit my-script.sh --nodes 2 --stack ExampleEksJobs --region us-west-2

The role of `users`, if you give one, may submit jobs. The Trainium nodes start when a job waits for them, and stop when they are idle.
"""

import os

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk.lambda_layer_kubectl_v36 import KubectlV36Layer

from trainium_cdk import TrnEks, TrnStorage, settings

app = cdk.App()
account = os.environ.get("CDK_DEFAULT_ACCOUNT")  # with the region known too, the VPC has all the zones that it asks for
stack = cdk.Stack(app, "ExampleEksJobs", env=cdk.Environment(account=account, region="us-west-2"))

# Yours
vpc = ec2.Vpc(stack, "Vpc", max_azs=3, nat_gateways=1)
cluster = eks.Cluster(
    stack,
    "Mine",
    version=eks.KubernetesVersion.of("1.36"),
    vpc=vpc,
    kubectl_provider_options=eks.KubectlProviderOptions(kubectl_layer=KubectlV36Layer(stack, "Kubectl")),
    default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
    default_capacity=0,
)

# Ours
storage = TrnStorage(stack, "Storage", vpc=vpc)
nodes = settings.NodeGroup(instance_type="trn1.32xlarge", max_nodes=4)
training = TrnEks(stack, "Trn", cluster=cluster, storage=storage, node_groups=[nodes])
if users := app.node.try_get_context("users"):
    training.grant_submit(iam.Role.from_role_arn(stack, "Users", users))
app.synth()
