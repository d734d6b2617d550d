"""Jobs that take 1, 4 or 8 devices of a node, and jobs that take whole nodes, on an EKS cluster in your own VPC.

    cdk deploy --app "python examples/parts_of_nodes.py"
    trn submit my-script.sh --devices 4 --queue parts --stack ExamplePartsOfNodes --region us-east-2

Jobs of several nodes use the queue `trn`. Parts of nodes have their own node group, because they leave no node whole.
"""

import aws_cdk as cdk
from aws_cdk import aws_eks_v2 as eks
from aws_cdk.lambda_layer_kubectl_v36 import KubectlV36Layer

from trainium_cdk import TrnEks, TrnNetwork, TrnStorage, settings

app = cdk.App()
stack = cdk.Stack(app, "ExamplePartsOfNodes", env=cdk.Environment(region="us-east-2"))

network = TrnNetwork(stack, "Network", network=settings.Network(zone_ids=("use2-az3", "use2-az1")))
cluster = eks.Cluster(
    stack,
    "Mine",
    version=eks.KubernetesVersion.of("1.36"),
    vpc=network.vpc,
    kubectl_provider_options=eks.KubectlProviderOptions(kubectl_layer=KubectlV36Layer(stack, "Kubectl")),
    default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
    default_capacity=0,
)
TrnEks(
    stack,
    "Trn",
    cluster=cluster,
    storage=TrnStorage(stack, "Storage", vpc=network.vpc),
    node_groups=[
        settings.NodeGroup(instance_type="trn2.48xlarge", max_nodes=2),
        settings.NodeGroup(name="parts", instance_type="trn2.48xlarge", max_nodes=1, share=True),
    ],
    plugins=settings.Plugins(devices="claims"),
)
app.synth()
