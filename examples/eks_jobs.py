"""Jobs of `trn` on an EKS cluster and in a VPC of your own: everything that they need in the cluster.

    cdk deploy --app "python examples/eks_jobs.py"
    trn submit my-script.sh --nodes 2 --stack ExampleEksJobs --region us-west-2

The Trainium nodes start when a job waits for them, and stop when they are idle.
"""

import os

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk.lambda_layer_kubectl_v35 import KubectlV35Layer

from trainium_cdk import (
    TrnAddons,
    TrnBucket,
    TrnNodeGroup,
    TrnOutputs,
    TrnPlugins,
    TrnScaler,
    TrnStorage,
    TrnSystemNodes,
)

app = cdk.App()
account = os.environ.get("CDK_DEFAULT_ACCOUNT")  # with the region known too, the VPC has all the zones that it asks for
stack = cdk.Stack(app, "ExampleEksJobs", env=cdk.Environment(account=account, region="us-west-2"))

# Yours
vpc = ec2.Vpc(stack, "Vpc", max_azs=3, nat_gateways=1)
cluster = eks.Cluster(
    stack,
    "Mine",
    version=eks.KubernetesVersion.V1_33,
    vpc=vpc,
    kubectl_provider_options=eks.KubectlProviderOptions(kubectl_layer=KubectlV35Layer(stack, "Kubectl")),
    default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
    default_capacity=0,
)
users = iam.Role(stack, "Users", assumed_by=iam.AccountRootPrincipal())  # `trn` assumes it

# Ours
storage, bucket = TrnStorage(stack, "Storage", vpc=vpc), TrnBucket(stack, "Jobs").bucket
addons = TrnAddons(stack, "Addons", cluster=cluster, storage=storage)
system = TrnSystemNodes(stack, "System", cluster=cluster, storage=storage)
system.node.add_dependency(addons.before_nodes)
addons.run_on(system)
group = TrnNodeGroup(stack, "Trn", cluster=cluster, storage=storage, name="trn", max_size=4)
plugins = TrnPlugins(
    stack, "Plugins", cluster=cluster, node_groups=[group], storage=storage, system_nodes=[system], bucket=bucket
)
plugins.grant_access("Users", users, "edit")
TrnScaler(stack, "Scaler", cluster=cluster, node_groups=[group], plugins=plugins)
TrnOutputs(stack, "Outputs", cluster=cluster, node_groups=[group], bucket=bucket, access_role=users)
app.synth()
