"""Kubernetes with Kueue, on Amazon EKS."""

from trainium_cdk.engines.manifest import Engine

EKS = Engine(
    name="eks",
    title="Kubernetes",
    section="eks",
    stack="TrnEksStack",
    settings="trainium_cdk.settings.eks:Eks",
    inventory="trainium_cdk.settings.inventory.eks:EksInventory",
    outputs="trainium_cdk.outputs.eks:EksCluster",
    jobs="trainium_cdk.jobs.kubernetes.connect:connect",
    stack_class="stacks.eks:TrnEksStack",
    rules=("trainium_cdk.checks.eks", "trainium_cdk.checks.eks_nodes"),
    live_checks=("trainium_cdk.checks.live.eks",),
    traces="trainium_cdk.operations.teardown.eks:TRACES",
    queue_noun="node group",
)
