"""Marks of resources that belong to the clusters of each engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Traces:
    """Marks of resources that belong to an engine's clusters.

    Attributes:
        cluster_resource: CloudFormation type of the cluster, by which a stack is known as one of this engine; empty for none.
        tags: of what was created for a cluster, by the cluster's name; each is enough.
        reservations: further tags, which count for capacity reservations only: the nodes of another engine's cluster may have them.
        log_groups: regular expressions of a cluster's own log groups -> what they are, by the cluster's name.
        shared: what stays after the stack is deleted, because all clusters of a region use it.
    """

    cluster_resource: str = ""
    tags: Callable[[str], Mapping[str, str]] = lambda _: {}
    reservations: Callable[[str], Mapping[str, str]] = lambda _: {}
    log_groups: Callable[[str], Mapping[str, str]] = lambda _: {}
    shared: str = ""


TRACES: Mapping[str, Traces] = {
    "slurm": Traces(
        cluster_resource="Custom::PclusterCluster",
        tags=lambda cluster: {"parallelcluster:cluster-name": cluster},
        # ParallelCluster appends the time of the cluster's creation to its name
        log_groups=lambda cluster: {
            rf"/aws/parallelcluster/{re.escape(cluster)}-\d{{12}}": "the log of the cluster's nodes",
        },
        shared="ParallelCluster's bucket parallelcluster-...-v1-do-not-delete (a few small objects of each cluster)",
    ),
    "eks": Traces(
        cluster_resource="AWS::EKS::Cluster",
        tags=lambda cluster: {
            f"kubernetes.io/cluster/{cluster}": "owned",
            "eks:cluster-name": cluster,
            "aws:eks:cluster-name": cluster,
            "cluster.k8s.amazonaws.com/name": cluster,
            "elbv2.k8s.aws/cluster": cluster,
            "KubernetesCluster": cluster,
        },
        reservations=lambda cluster: {"trainium-cdk:cluster": cluster},  # as instances of AWS PCS have it
        log_groups=lambda cluster: {re.escape(f"/aws/eks/{cluster}/cluster"): "the log of the control plane"},
    ),
    "pcs": Traces(cluster_resource="AWS::PCS::Cluster"),
}
