"""Ids to render with, where nothing has to exist."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from trainium_cdk.description.cluster_configuration import ClusterIds, Config
from trainium_cdk.description.settings import Environment

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
        ssh_source=ssh.from_cidrs[0] if ssh and ssh.from_cidrs else IDS.ssh_source,
    )


def stringified(value: Any) -> Any:
    """Every scalar as text: what CloudFormation passes to a custom resource."""
    if isinstance(value, dict):
        return {k: stringified(v) for k, v in value.items()}
    if isinstance(value, list):
        return [stringified(v) for v in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


def change(config: Config, path: str, value: Any) -> None:
    """Set what is at a path, `HeadNode.Ssh.KeyName` or `SlurmQueues.0`; None: remove it. `+`: append; `*`: append a copy of the
    first, with these changes."""
    *way, last = (int(key) if key.lstrip("-").isdigit() else key for key in path.split("."))
    place: Any = config
    for key in way:
        place = place[key]
    if last == "+":
        place.append(copy.deepcopy(value))
    elif last == "*":
        place.append({**copy.deepcopy(place[0]), **value})
    elif value is None:
        del place[last]
    else:
        place[last] = copy.deepcopy(value)
