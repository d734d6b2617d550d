"""The plan of a local Slurm for a cluster of AWS PCS, from what the emulator wrote down of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.slurm_config import (
    BadClusterConfiguration,
    ClusterPlan,
    Queue,
    VirtualNode,
    lines_not_run,
    own_settings,
    shares,
)

IDLE_SECONDS = 600
"""PCS's default (API reference, scaleDownIdleTimeInSeconds)."""


def plan_of_pcs(cluster: Mapping[str, Any], max_nodes: int) -> ClusterPlan:
    """Nodes are named after their group, from 1; a group has the features of its Slurm settings. PCS turns hyperthreads off.

    Raises:
        BadClusterConfiguration: no queue has a node.
    """
    groups, queues = (
        cluster["groups"],
        sorted(cluster["queues"].values(), key=lambda q: _setting(q, "Default") != "YES"),
    )
    used = {c["computeNodeGroupId"]: queue for queue in queues for c in queue["computeNodeGroupConfigurations"]}
    most = [groups[id]["scalingConfiguration"]["maxInstanceCount"] for id in used]
    if not sum(most):
        raise BadClusterConfiguration("no queue has a node: every maxInstanceCount is 0; set one to 1 or more")
    granted = dict(zip(used, shares(most, max_nodes), strict=True))
    made = tuple(
        Queue(
            queue["name"],
            tuple(node for id in used if used[id] is queue for node in _nodes(queue, groups[id], granted[id])),
            exclusive=_setting(queue, "OverSubscribe") == "EXCLUSIVE",
        )
        for queue in queues
    )
    slurm = cluster.get("slurmConfiguration") or {}
    given = [{one["parameterName"]: one["parameterValue"]} for one in slurm.get("slurmCustomSettings") or []]
    return ClusterPlan(
        made,
        tuple(
            dict.fromkeys(
                source.rpartition(":")[2] for text in _given(groups, "TRN_MOUNT_SOURCES") for source in text.split()
            )
        ),
        left_out=sum(most) - sum(granted.values()),
        venv=next(iter(_given(groups, "TRN_VENV")), ""),
        settings=own_settings(given),
        settings_not_run=lines_not_run(given),
        idle_seconds=slurm.get("scaleDownIdleTimeInSeconds", IDLE_SECONDS),
        service=cluster.get("name", ""),
    )


def _nodes(queue: Mapping[str, Any], group: Mapping[str, Any], count: int) -> Iterable[VirtualNode]:
    least, name = group["scalingConfiguration"]["minInstanceCount"], group["name"]
    features = tuple(filter(None, _setting(group, "Features").split(",")))
    weight = int(_setting(group, "Weight") or 1)
    kind = group["instanceConfigs"][0]["instanceType"]
    launch = json.dumps(
        [group.get(key) for key in ("amiId", "customLaunchTemplate", "nodeLifecycleActions")], sort_keys=True
    )
    for i in range(1, count + 1):
        yield VirtualNode(f"{name}-{i}", queue["name"], name, kind, i <= least, features, 1, weight, launch)


def _setting(record: Mapping[str, Any], name: str) -> str:
    settings = record.get("slurmConfiguration", {}).get("slurmCustomSettings", [])
    return next((str(s["parameterValue"]) for s in settings if s["parameterName"] == name), "")


def _given(groups: Mapping[str, Mapping[str, Any]], key: str) -> list[str]:
    """The values of an argument of the nodes' start script."""
    scripts = [s for g in groups.values() for s in g["nodeLifecycleActions"]["stages"]["nodeBootstrapped"]]
    return [a.partition("=")[2] for s in scripts for a in s["arguments"] if a.startswith(f"{key}=")]
