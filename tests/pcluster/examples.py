"""Ids to render with, where nothing has to exist."""

from __future__ import annotations

import dataclasses

from trainium_cdk.cluster_configuration.config import ClusterIds
from trainium_cdk.settings import Environment

IDS = ClusterIds(
    head_subnet="subnet-0000000000000000a",
    queue_subnets=dict.fromkeys(("compute1", "cpu"), "subnet-0000000000000000a"),
    entry_url="s3://cdk-assets/entry.sh",
    scripts_url="s3://cdk-assets/scripts.zip",
    pointer="/trainium/trn-slurm/node-scripts",
    policies=("arn:aws:iam::123456789012:policy/parallelcluster/nodes",),
    head_policies=("arn:aws:iam::123456789012:policy/parallelcluster/head",),
    login_policies=("arn:aws:iam::123456789012:policy/parallelcluster/login",),
    security_groups=("sg-0000000000000000a",),
    efs_id="fs-0000000000000000a",
    fsx_id="fs-0000000000000000b",
)


def ids_for(env: Environment) -> ClusterIds:
    """Example ids for the queues and login nodes of an environment."""
    ssh = env.pcluster.head.ssh
    return dataclasses.replace(
        IDS,
        queue_subnets=dict.fromkeys(env.pcluster.queue_names, IDS.head_subnet),
        login_subnet=IDS.head_subnet if env.pcluster.login_nodes else None,
        key_name=ssh.key_name or "made-here" if ssh else None,
        ssh_source=ssh.from_cidrs[0] if ssh else IDS.ssh_source,
    )
