"""`TrnOutputs`: makes any stack one that `trn` understands."""

from __future__ import annotations

from aws_cdk import CfnOutput
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_s3 as s3
from constructs import Construct

from trainium_cdk.outputs import Exports, slurm_outputs
from trainium_cdk.pcluster.cluster import TrnPcluster


class TrnOutputs(Construct):
    """The outputs by which `trn` finds the cluster of a stack: `trn submit --stack NAME`. One for each stack.

    Example:
        TrnOutputs(self, "Outputs", cluster=TrnPcluster(self, "Slurm", vpc=vpc), bucket=bucket)

    Args:
        cluster: The stack's cluster.
        bucket: Where jobs keep files; the cluster's nodes must be granted to read and write it.
        repository: Where training images are. Default: none.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: TrnPcluster,
        bucket: s3.IBucket,
        repository: ecr.IRepository | None = None,
    ) -> None:
        super().__init__(scope, id)
        export(
            self,
            slurm_outputs(
                cluster.environment,
                head_node_id=cluster.head_node_id,
                bucket=bucket.bucket_name,
                registry_uri=repository.repository_uri if repository else "",
            ),
        )


def export(scope: Construct, outputs: Exports) -> None:
    """Outputs of the stack under exactly their keys."""
    for key, (value, description) in outputs.items():
        CfnOutput(scope, key, value=value, description=description).override_logical_id(key)
