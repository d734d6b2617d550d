"""Trainium nodes with EFA on an EKS cluster and in your own VPC.

    cdk deploy --app "python examples/node_group.py"

The group has EFA interfaces, a security group, a launch template and a role. It starts with zero nodes, in a private subnet
whose zone offers the instance type. Pods need Neuron's and EFA's device plug-ins in the cluster.
"""

import os

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks

from trainium_cdk import TrnNodeGroup, TrnStorage, settings

app = cdk.App()
account = os.environ.get("CDK_DEFAULT_ACCOUNT")  # with the region known too, the VPC has all the zones that it asks for
stack = cdk.Stack(app, "ExampleNodeGroup", env=cdk.Environment(account=account, region="us-west-2"))

# Yours: any VPC and any cluster, imported ones as well. One private subnet must be in a zone that offers the type: two of the
# four zones of us-west-2 do, so any three are enough. Otherwise the deployment fails, and the message has the ids of those zones
vpc = ec2.Vpc(stack, "Vpc", max_azs=3, nat_gateways=1)
cluster = eks.Cluster(
    stack,
    "Mine",
    version=eks.KubernetesVersion.V1_33,
    vpc=vpc,
    default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
    default_capacity=0,
)

# Ours
storage = TrnStorage(stack, "Storage", vpc=vpc)
nodes = settings.NodeGroup(instance_type="trn1.32xlarge", max_nodes=4)
group = TrnNodeGroup(stack, "Trn", cluster=cluster, nodes=nodes, storage=storage)

cdk.CfnOutput(stack, "NodeGroup", value=group.nodegroup_name)
app.synth()
