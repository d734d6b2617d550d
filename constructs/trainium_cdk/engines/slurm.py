"""Slurm, on AWS ParallelCluster."""

from trainium_cdk.engines.manifest import Engine

SLURM = Engine(
    name="slurm",
    title="Slurm",
    section="pcluster",
    stack="TrnPclusterStack",
    settings="trainium_cdk.settings.pcluster:Pcluster",
    inventory="trainium_cdk.settings.inventory.slurm:SlurmInventory",
    outputs="trainium_cdk.outputs.slurm:SlurmCluster",
    jobs="trainium_cdk.jobs.slurm.connect:connect",
    stack_class="trainium_cdk.stacks.pcluster:TrnPclusterStack",
    rules=(
        "trainium_cdk.checks.pcluster",
        "trainium_cdk.checks.pcluster_capacity",
        "trainium_cdk.checks.overrides",
        "trainium_cdk.checks.shared_storage",
    ),
    live_checks=("trainium_cdk.checks.live.parallelcluster",),
    traces="trainium_cdk.operations.teardown.slurm:TRACES",
    nodes_noun="compute resource",
    example="""
# A Slurm cluster on AWS ParallelCluster: cdk deploy TrnPclusterStack -c env={file}
pcluster:
  queues:
    - name: compute1
      # capacity_type: spot               # on-demand by default; capacity-block for a reserved block
      compute_resources:
        # Nodes start when jobs need them, and cost nothing while none runs.
        - {{name: trn, instance_type: {instance_type}, max_nodes: {nodes}}}
  # Data is prepared on ordinary nodes, which start when a job needs them; null: on a Trainium node.
  # cpu_queue: {{instance_type: c5.2xlarge, max_nodes: 2}}
""",
)
