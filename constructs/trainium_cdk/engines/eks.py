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
    stack_class="trainium_cdk.stacks.eks:TrnEksStack",
    rules=(
        "trainium_cdk.checks.eks",
        "trainium_cdk.checks.principals",
        "trainium_cdk.checks.eks_nodes",
        "trainium_cdk.checks.eks_pods",
    ),
    live_checks=("trainium_cdk.checks.live.eks",),
    traces="trainium_cdk.operations.teardown.eks:TRACES",
    queue_noun="node group",
    example="""
# A Kubernetes cluster on EKS: cdk deploy TrnEksStack -c env={file}
eks:
  node_groups:
    # Nodes start when jobs need them, and are ended when they have been idle for ten minutes.
    - {{name: trn, instance_type: {instance_type}, max_nodes: {nodes}}}
  # access:                               # administrators, beside the jobs' own role
  #   - {{principal: "arn:aws:iam::111122223333:role/Platform", policy: cluster-admin}}
""",
)
