"""Slurm, on AWS Parallel Computing Service (PCS)."""

from trainium_cdk.engines.manifest import Engine

PCS = Engine(
    name="pcs",
    title="Slurm on AWS PCS",
    section="pcs",
    stack="TrnPcsStack",
    settings="trainium_cdk.settings.pcs:Pcs",
    inventory="trainium_cdk.settings.inventory.pcs:PcsInventory",
    outputs="trainium_cdk.outputs.pcs:PcsCluster",
    jobs="trainium_cdk.jobs.slurm.pcs:connect",
    stack_class="trainium_cdk.stacks.pcs:TrnPcsStack",
    rules=("trainium_cdk.checks.pcs",),
    live_checks=("trainium_cdk.checks.live.pcs",),
    traces="trainium_cdk.operations.teardown.pcs:TRACES",
    nodes_noun="compute resource",
    example="""
# A Slurm cluster on AWS PCS: cdk deploy TrnPcsStack -c env={file}
pcs:
  # Slurm's controller, which AWS runs and charges by the hour: small is for 32 nodes, the login node included. It cannot be changed later.
  size: {size}
  queues:
    - name: compute1
      # capacity_type: spot               # or on-demand, which is the default
      compute_resources:
        # Nodes cost nothing while no job needs them; min_nodes of them would always run.
        - {{name: trn, instance_type: {instance_type}, max_nodes: {nodes}}}
  # Data is prepared on ordinary nodes, which start when a job needs them.
  cpu_queue: {{max_nodes: 1}}
""",
)
