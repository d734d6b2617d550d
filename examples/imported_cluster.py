"""Jobs of `trn` on an EKS cluster made with eksctl, Terraform or `aws_eks` of another app, imported with `aws_eks`.

    cdk deploy --app "python examples/imported_cluster.py" -c vpc=vpc-... -c subnets=subnet-...,subnet-... -c zones=us-east-1a,us-east-1b \
        -c cluster=NAME -c group=sg-... -c role=arn:...
    trn submit my-script.sh --nodes 2 --stack ExampleImportedCluster --region us-east-1

The role has cluster-admin access to the cluster and trusts this account: kubectl and Helm use it. The cluster has nodes for Volcano,
access entries, and the add-ons VPC CNI (1.18.5 or newer), Pod Identity and EFS CSI; without `system=None` and `addons=False`, `TrnEks` installs them.
"""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks
from aws_cdk.lambda_layer_kubectl_v36 import KubectlV36Layer

from trainium_cdk import TrnEks, TrnStorage, settings

app = cdk.App()
stack = cdk.Stack(app, "ExampleImportedCluster")
given = {key: app.node.try_get_context(key) for key in ("vpc", "subnets", "zones", "cluster", "group", "role")}

# Theirs
vpc = ec2.Vpc.from_vpc_attributes(
    stack,
    "Vpc",
    vpc_id=given["vpc"] or "vpc-0123456789abcdef0",
    availability_zones=(given["zones"] or "us-east-1a,us-east-1b").split(","),
    private_subnet_ids=(given["subnets"] or "subnet-0123456789abcdef0,subnet-0123456789abcdef1").split(","),
)
cluster = eks.Cluster.from_cluster_attributes(
    stack,
    "Cluster",
    cluster_name=given["cluster"] or "theirs",
    vpc=vpc,
    cluster_security_group_id=given["group"] or "sg-0123456789abcdef0",  # the one that EKS created for the cluster
    kubectl_role_arn=given["role"] or "arn:aws:iam::111122223333:role/ClusterAdmin",
    kubectl_layer=KubectlV36Layer(stack, "Kubectl"),
)

# Ours
storage = TrnStorage(stack, "Storage", vpc=vpc)
nodes = settings.NodeGroup(instance_type="trn1.32xlarge", max_nodes=4)
TrnEks(stack, "Trn", cluster=cluster, storage=storage, node_groups=[nodes], system=None, addons=False)
app.synth()
