"""Trainium nodes on an existing EKS cluster (made with eksctl, Terraform or another stack) in an existing VPC.

cdk deploy --app "python examples/existing_cluster.py" -c vpc=vpc-... -c subnet=subnet-... -c cluster=NAME -c group=sg-...
"""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks

from trainium_cdk import TrnNodeGroup, settings

app = cdk.App()
stack = cdk.Stack(app, "ExampleExistingCluster")
given = {key: app.node.try_get_context(key) for key in ("vpc", "subnet", "cluster", "group")}

vpc = ec2.Vpc.from_vpc_attributes(
    stack,
    "Vpc",
    vpc_id=given["vpc"] or "vpc-0123456789abcdef0",
    availability_zones=["us-east-1a"],
    private_subnet_ids=[given["subnet"] or "subnet-0123456789abcdef0"],
)
cluster = eks.Cluster.from_cluster_attributes(
    stack,
    "Cluster",
    cluster_name=given["cluster"] or "theirs",
    vpc=vpc,
    cluster_security_group_id=given["group"] or "sg-0123456789abcdef0",  # the one that EKS created for the cluster
)
TrnNodeGroup(stack, "Trn", cluster=cluster, nodes=settings.NodeGroup(instance_type="trn1.32xlarge", max_nodes=4))
app.synth()
