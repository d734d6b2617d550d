"""Settings for the observability of a cluster in CloudWatch."""

from __future__ import annotations

from trainium_cdk.description.settings.base import Arn, Settings

ALARMS = 3
NODE_ALARMS = 2
"""Alarms of every cluster, and alarms of nodes that send metrics (Slurm)."""
CLUSTER_METRICS, QUEUE_METRICS, NODE_METRICS = 7, 4, 8
"""Custom metrics, each charged by the month: of the cluster, of each queue, and of Slurm's nodes (all together, and each while it runs)."""


def metrics_group(cluster: str) -> str:
    """Name of the log group of a Slurm cluster's metrics."""
    return f"/trainium/{cluster}/metrics"


class Observability(Settings):
    """A dashboard in CloudWatch and the metrics that it shows: nodes by state and their money, the queue, NeuronCores, memory, EFA,
    file systems. `trn cost` has its price."""

    alarm_topic: Arn | None = None
    """SNS topic that alarms are sent to: nodes that failed or are idle, a job that waits long, a full disk, memory errors; on EKS also
    that nodes have not been started or stopped for ten minutes. Default: no alarms, as they would reach no one. EKS's alarm is in CloudWatch."""
    job_topic: Arn | None = None
    """SNS topic that gets a message when a job has ended, within two minutes, however it ended; and when one runs without progress. The topic sends it
    on: as email, to a chat, to a webhook. Default: no messages."""
