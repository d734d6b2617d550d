"""Three stacks with separate lifecycles: the network, the data, and the clusters.

cdk deploy --all --app "python examples/split.py"
"""

import aws_cdk as cdk
from aws_cdk import aws_eks_v2 as eks

from trainium_cdk import TrnNetwork, TrnNodeGroup, TrnRegistry, TrnStorage

app = cdk.App()
env = cdk.Environment(region="us-east-1")  # known, so that the network has zones that offer the type

network = TrnNetwork(cdk.Stack(app, "ExampleNetwork", env=env), "Network")

data = cdk.Stack(app, "ExampleData", env=env)
storage = TrnStorage(data, "Storage", vpc=network.vpc)
registry = TrnRegistry(data, "Registry")

compute = cdk.Stack(app, "ExampleCompute", env=env)
cluster = eks.Cluster(
    compute,
    "Cluster",
    version=eks.KubernetesVersion.V1_33,
    vpc=network.vpc,
    default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
    default_capacity=0,
)
group = TrnNodeGroup(compute, "Trn", cluster=cluster, storage=storage)
registry.grant_pull(group)
app.synth()
