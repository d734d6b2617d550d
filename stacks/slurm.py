"""The parts of an environment that are the same in the stacks of Slurm."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from trainium_cdk.cdk.bootstrap import TrnBootstrap
from trainium_cdk.cdk.hardening.encryption import TrnKey, encrypt, encrypt_operations
from trainium_cdk.cdk.helpers.removal import removal_policy
from trainium_cdk.cdk.helpers.retention import RETENTION
from trainium_cdk.cdk.observability import TrnObservability
from trainium_cdk.cdk.slurm import OwnSlurmCluster
from trainium_cdk.description.settings import Environment, Pcluster, Pcs
from trainium_cdk.description.settings.observability import metrics_group
from trainium_cdk.stacks.parts import add_job_notices, alarm_topic, chosen_software


def add_bootstrap(
    stack: Stack, environment: Environment, cluster: Pcluster | Pcs, cluster_name: str, bucket: s3.IBucket
) -> TrnBootstrap:
    """The scripts of the nodes of a Slurm cluster."""
    return TrnBootstrap(
        stack,
        "Bootstrap",
        bucket=bucket,
        cluster=cluster,
        bootstrap=chosen_software(environment),
        mount_dirs=environment.storage.mount_dirs,
        network=environment.network,
        metrics_log_group=metrics_group(cluster_name) if environment.observability else None,
        parameter_name=f"/trainium/{cluster_name}/node-scripts",
        catalog=environment.catalog,
        rules=False,
    )


def add_observability(
    stack: Stack, environment: Environment, cluster: OwnSlurmCluster, writers: list[iam.IGrantable]
) -> None:
    """Dashboard, alarms and the nodes' metrics of a Slurm cluster, if the environment has them.

    Args:
        writers: what sends metrics.
    """
    if not environment.observability:
        return
    watched = TrnObservability(
        stack,
        "Observability",
        cluster=cluster,
        alarm_topic=alarm_topic(stack, environment),
        log_retention=RETENTION[environment.log_days],
    )
    for writer in writers:
        watched.grant_write(writer)
    if watched.log_group:
        add_job_notices(stack, environment, watched.log_group)


def harden(stack: Stack, environment: Environment, data_key: kms.IKey | None, users: list[iam.IGrantable]) -> None:
    """Encrypt what the stack has. Call it last.

    Args:
        data_key: the environment's key for its data; without one, a new key encrypts logs alone.
        users: may use the key.
    """
    logs = (
        TrnKey(
            stack,
            "LogsKey",
            description=f"Logs of {environment.name}",
            grants=False,
            removal_policy=removal_policy(environment.on_destroy),
        ).key
        if data_key is None
        else data_key
    )
    if data_key:
        encrypt(stack, data_key, users=users)
    else:
        encrypt_operations(stack, logs)
