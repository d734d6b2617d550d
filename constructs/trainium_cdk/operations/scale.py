"""How many nodes a node group of EKS has: changed by command, after the cluster is there.

Where AWS has no capacity, a node group that is asked for nodes at its creation takes the whole stack back with it. So groups begin
with as many nodes as the environment says (none by default), and get the rest by `scale`: a shortage then costs nothing but waiting.
A deployment does not undo it, as long as the environment's own size of the group stays the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainium_cdk.errors import ScaleError
from trainium_cdk.outputs import GROUP_LABEL, EksCluster

Client = Callable[[str], Any]
CAPACITY = "InsufficientInstanceCapacity"


@dataclass(frozen=True)
class Progress:
    """How far a node group has come.

    Attributes:
        wanted, running: nodes it should have, and has.
        trouble: what AWS says holds it up; empty for nothing.
    """

    wanted: int
    running: int
    trouble: str = ""

    @property
    def done(self) -> bool:
        return self.running == self.wanted


def scale(cluster: EksCluster, group: str, nodes: int, client: Client) -> str:
    """Ask a node group to have so many nodes. Returns EKS's name of the group.

    Raises:
        ScaleError: there is no such group, it may not have so many, or something else is under way with it.
        botocore.exceptions.ClientError: AWS refuses.
    """
    name, found = _find(cluster, group, client("eks"))
    bounds = found["scalingConfig"]
    if not bounds["minSize"] <= nodes <= bounds["maxSize"]:
        bound = "max_nodes" if nodes > bounds["maxSize"] else "min_nodes"
        raise ScaleError(
            f"node group {group} has between {bounds['minSize']} and {bounds['maxSize']} nodes, and {nodes} were asked for. Change "
            f"{bound} of the group in the environment and deploy it, or ask for another number"
        )
    if found["status"] in ("CREATING", "DELETING", "CREATE_FAILED", "DELETE_FAILED"):
        raise ScaleError(f"node group {group} is {found['status']}. Wait for it, or mend it with a deployment")
    if bounds["desiredSize"] != nodes:
        client("eks").update_nodegroup_config(
            clusterName=cluster.cluster_name, nodegroupName=name, scalingConfig={**bounds, "desiredSize": nodes}
        )
    return name


def progress(cluster: EksCluster, name: str, client: Client) -> Progress:
    """How far a node group is, by EKS's own name of it."""
    found = client("eks").describe_nodegroup(clusterName=cluster.cluster_name, nodegroupName=name)["nodegroup"]
    filters = [
        {"Name": "tag:eks:nodegroup-name", "Values": [name]},
        {"Name": "tag:eks:cluster-name", "Values": [cluster.cluster_name]},
        {"Name": "instance-state-name", "Values": ["running"]},
    ]
    pages = client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
    running = sum(len(r["Instances"]) for page in pages for r in page["Reservations"])
    issues = found.get("health", {}).get("issues", [])
    trouble = "; ".join(f"{i['code']}: {i['message']}" for i in issues)
    return Progress(found["scalingConfig"]["desiredSize"], running, trouble)


def wait(
    look: Callable[[], Progress],
    tell: Callable[[str], None],
    *,
    timeout: float | None = None,
    interval: float = 15,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """Wait until the nodes are there; what holds them up is told when it changes. AWS itself goes on trying.

    timeout: seconds. Default: as long as it takes.

    Raises:
        ScaleError: the time is over. The group goes on trying; the message says how to stop it.
    """
    begun, told = clock(), ""
    while True:
        now = look()
        words = f"{now.running} of {now.wanted} nodes run" + (f"; {advice(now.trouble)}" if now.trouble else "")
        if words != told:
            tell(words)
            told = words
        if now.done:
            return now
        if timeout is not None and clock() - begun >= timeout:
            raise ScaleError(
                f"{words}. AWS goes on trying. Ask again with the same command, or keep what there is: --nodes {now.running}"
            )
        sleep(interval)


def advice(trouble: str) -> str:
    """What AWS says, with what helps."""
    if CAPACITY in trouble or "InsufficientCapacity" in trouble:
        return (
            f"AWS has no more of this type in the group's zone now, and is asked again by itself ({trouble}). What helps: a "
            "reservation or capacity block (eks.node_groups[].reservation), another zone (zone_id), or another time"
        )
    return trouble


def _find(cluster: EksCluster, group: str, eks: Any) -> tuple[str, dict[str, Any]]:
    known = []
    pages = eks.get_paginator("list_nodegroups").paginate(clusterName=cluster.cluster_name)
    for name in [n for page in pages for n in page["nodegroups"]]:
        found = eks.describe_nodegroup(clusterName=cluster.cluster_name, nodegroupName=name)["nodegroup"]
        label = found.get("labels", {}).get(GROUP_LABEL, "")
        known.append(label or name)
        if group in (label, name):
            return name, found
    raise ScaleError(
        f"cluster {cluster.cluster_name} has no node group {group}; it has {', '.join(sorted(known)) or 'none'}"
    )
