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
    stack_class="stacks.pcs:TrnPcsStack",
    rules=("trainium_cdk.checks.pcs",),
    live_checks=("trainium_cdk.checks.live.pcs",),
    traces="trainium_cdk.operations.teardown.pcs:TRACES",
    nodes_noun="compute resource",
)
