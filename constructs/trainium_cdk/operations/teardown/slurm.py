"""What marks resources of a ParallelCluster cluster."""

import re

from trainium_cdk.operations.teardown.owner import Traces

TRACES = Traces(
    cluster_resource="Custom::PclusterCluster",
    tags=lambda cluster: {"parallelcluster:cluster-name": cluster},
    # ParallelCluster appends the time of the cluster's creation to its name
    log_groups=lambda cluster: {
        rf"/aws/parallelcluster/{re.escape(cluster)}-\d{{12}}": "the log of the cluster's nodes",
    },
    shared="ParallelCluster's bucket parallelcluster-...-v1-do-not-delete (a few small objects of each cluster)",
)
