"""Nodes of a purchased capacity block: in its zone, without a placement group.

cdk deploy --app "python examples/capacity_block.py" -c block=cr-...
"""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks

from trainium_cdk import TrnNetwork, TrnNodeGroup, settings

app = cdk.App()
stack = cdk.Stack(app, "ExampleCapacityBlock", env=cdk.Environment(region="us-east-2"))

network = TrnNetwork(
    stack, "Network", network=settings.Network(zone_ids=("use2-az3", "use2-az1"))
)  # the block's zone first
cluster = eks.Cluster(
    stack,
    "Cluster",
    version=eks.KubernetesVersion.V1_33,
    vpc=network.vpc,
    default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
    default_capacity=0,
)
TrnNodeGroup(
    stack,
    "Trn",
    cluster=cluster,
    nodes=settings.NodeGroup(
        instance_type="trn2.48xlarge",
        capacity_type="capacity-block",
        reservation=app.node.try_get_context("block") or "cr-0123456789abcdef0",
        max_nodes=4,
    ),
    vpc_subnets=ec2.SubnetSelection(subnets=[network.private_subnet("use2-az3")]),
)
app.synth()
