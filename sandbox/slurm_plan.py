"""The plan of a local Slurm, from the configuration of a cluster of ParallelCluster or AWS PCS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sandbox.pcs import plan_of_pcs
from sandbox.slurm_config import MAX_NODES, ClusterPlan, plan_of_pcluster


def plan(config: Mapping[str, Any], max_nodes: int = MAX_NODES, idle_seconds: int | None = None) -> ClusterPlan:
    """The plan of at most so many nodes.

    Args:
        idle_seconds: after which nodes without a job are stopped, where the configuration stops them. Default: as it says.

    Raises:
        BadClusterConfiguration: no queue, no node, or a value that is not a number.
    """
    pcs = config.get("Pcs")
    made = plan_of_pcs(pcs, max_nodes) if pcs else plan_of_pcluster(config, max_nodes)
    return replace(made, idle_seconds=idle_seconds) if idle_seconds and made.idle_seconds else made
