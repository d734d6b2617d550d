"""The place where a job on Slurm is prepared, and the cost of that, for the user. Pure."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainium_cdk.outputs import Cluster, Fleet


def described(cluster: "Cluster", on: "Fleet") -> str:
    """The nodes that fetch what the job lacks, and the price of one; where there are no CPU nodes also the reason."""
    from trainium_cdk.catalog import Catalog

    price = Catalog.load().describe_price(on.instance_type, cluster.region)
    why = "" if cluster.cpu else f", as {cluster.stack} has no queue of CPU nodes (cpu_queue)"
    return f"prepare runs on one {on.instance_type} of queue {on.queue} ({price}){why}, unless nothing must be fetched"
