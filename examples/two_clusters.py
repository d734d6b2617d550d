"""Two EKS clusters in one stack, with one EFA security group and one file system: production and development.

cdk deploy --app "python examples/two_clusters.py"
"""

import aws_cdk as cdk
from aws_cdk import aws_eks_v2 as eks

from trainium_cdk import TrnEfaSecurityGroup, TrnNetwork, TrnNodeGroup, TrnStorage, settings

app = cdk.App()
stack = cdk.Stack(app, "ExampleTwoClusters", env=cdk.Environment(region="us-east-1"))

network = TrnNetwork(stack, "Network")
storage = TrnStorage(stack, "Storage", vpc=network.vpc)
efa = TrnEfaSecurityGroup(stack, "Efa", vpc=network.vpc)

for name, instance_type in {"Production": "trn1.32xlarge", "Trial": "trn1.2xlarge"}.items():
    cluster = eks.Cluster(
        stack,
        name,
        version=eks.KubernetesVersion.V1_33,
        vpc=network.vpc,
        default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
        default_capacity=0,
    )
    TrnNodeGroup(
        stack,
        f"{name}Nodes",
        cluster=cluster,
        nodes=settings.NodeGroup(instance_type=instance_type),
        storage=storage,
        efa_security_group=efa.security_group,
    )
app.synth()
