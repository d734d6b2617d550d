"""What marks resources of an EKS cluster."""

import re

from trainium_cdk.operations.teardown.owner import Traces

TRACES = Traces(
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
)
