"""One network and one file system for both engines: Slurm and Kubernetes read the same checkpoints.

cdk deploy --app "python examples/two_engines.py"
"""

import aws_cdk as cdk
from aws_cdk import aws_eks_v2 as eks

from trainium_cdk import TrnNetwork, TrnNodeGroup, TrnPcluster, TrnStorage

app = cdk.App()
stack = cdk.Stack(app, "ExampleTwoEngines", env=cdk.Environment(region="us-east-1"))

network = TrnNetwork(stack, "Network")
storage = TrnStorage(stack, "Storage", vpc=network.vpc)

TrnPcluster(stack, "Slurm", vpc=network.vpc, storage=storage, cluster_name="example-both")
cluster = eks.Cluster(
    stack,
    "Kubernetes",
    version=eks.KubernetesVersion.V1_33,
    vpc=network.vpc,
    default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
    default_capacity=0,
)
TrnNodeGroup(stack, "Trn", cluster=cluster, storage=storage)
app.synth()
