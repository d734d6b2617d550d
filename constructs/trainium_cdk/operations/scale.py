"""Sets the number of nodes of an EKS node group, after the cluster is created.

If AWS has no capacity, a node group that is created with nodes fails, and the whole stack is rolled back. So groups start with the size in
the environment (0 by default), and get more nodes by `scale`: a shortage then only costs time. A deployment does not undo it, as long as
the group's size in the environment stays the same.

To lower a size, AWS ends the oldest instances, whatever runs on them. So nodes in use are protected from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from trainium_cdk.errors import TrnError
from trainium_cdk.outputs import GROUP_LABEL, EksCluster

Client = Callable[[str], Any]
CAPACITY = "InsufficientInstanceCapacity"
_INTERVAL = 15.0
"""Seconds between two requests for the progress."""


@dataclass(frozen=True)
class Progress:
    """The progress of a node group.

    Attributes:
        wanted, running: number of nodes requested, and running.
        trouble: the problems that AWS reports; empty if none.
    """

    wanted: int
    running: int
    trouble: str = ""

    @property
    def done(self) -> bool:
        return self.running == self.wanted


def scale(
    cluster: EksCluster,
    group: str,
    nodes: int,
    client: Client,
    *,
    busy: Callable[[str], Collection[str]],
    force: bool = False,
) -> str:
    """Request a number of nodes for a node group. Idle nodes end first. Returns EKS's name of the group.

    Args:
        busy: EKS's name of the group -> ids of the instances on which pods run; asked only if the size is lowered.
        force: end nodes in use, too, if there are not enough idle ones.

    Raises:
        TrnError: the group does not exist, the number is outside its limits, another change of it is in progress, or nodes in use
            would end.
        botocore.exceptions.ClientError: AWS rejected a request.
    """
    name, found = _find(cluster, group, client("eks"))
    bounds = found["scalingConfig"]
    if not bounds["minSize"] <= nodes <= bounds["maxSize"]:
        bound = "max_nodes" if nodes > bounds["maxSize"] else "min_nodes"
        raise TrnError(
            f"node group {group} has between {bounds['minSize']} and {bounds['maxSize']} nodes, but {nodes} were requested. Change "
            f"{bound} of the group in the environment and deploy it, or request another number"
        )
    if found["status"] in ("CREATING", "DELETING", "CREATE_FAILED", "DELETE_FAILED"):
        raise TrnError(f"node group {group} is {found['status']}. Wait until it is ACTIVE, or fix it with a deployment")
    if found["status"] == "UPDATING" and nodes != bounds["desiredSize"]:
        raise TrnError(
            f"EKS is changing node group {group}, as a deployment or another `trn nodes scale` requested, and takes no further change meanwhile. Try "
            f"again in some minutes; the group has {bounds['desiredSize']} nodes, or gets them"
        )
    if nodes < bounds["desiredSize"]:
        _spare(found, group, nodes, client("autoscaling"), busy(name), force=force)
    if bounds["desiredSize"] != nodes:
        client("eks").update_nodegroup_config(
            clusterName=cluster.cluster_name, nodegroupName=name, scalingConfig={**bounds, "desiredSize": nodes}
        )
    return name


def _spare(found: dict[str, Any], group: str, nodes: int, scaling: Any, busy: Collection[str], *, force: bool) -> None:
    """Protect the instances in use from scale-in, and only as many as may stay. The scaler's function protects them, too."""
    asg = found["resources"]["autoScalingGroups"][0]["name"]
    [described] = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[asg])["AutoScalingGroups"]
    there = {
        i["InstanceId"]: i["ProtectedFromScaleIn"] for i in described["Instances"] if i["LifecycleState"] == "InService"
    }
    used = sorted(id for id, protected in there.items() if protected or id in busy)
    if len(used) > nodes and not force:
        raise TrnError(
            f"{len(used)} of the {len(there)} nodes of {group} are in use, and {nodes} were requested. Request at least {len(used)} "
            "(idle nodes end first), cancel the jobs first, or end nodes with running jobs with --force"
        )
    kept = set(used[:nodes])
    for protect in (True, False):
        ids = [id for id, protected in there.items() if (id in kept) == protect != protected]
        for at in range(0, len(ids), 50):  # of one request
            scaling.set_instance_protection(
                AutoScalingGroupName=asg, InstanceIds=ids[at : at + 50], ProtectedFromScaleIn=protect
            )


def busy(api: Any, nodegroup: str) -> set[str]:
    """Ids of the instances of a node group on which pods of one namespace run, by EKS's name of the group.

    Args:
        api: `jobs.kubernetes.kubernetes_api(cluster)`, of the jobs' namespace or a team's.
    """
    running = {
        pod["spec"].get("nodeName") for pod in api.list("Pod") if pod["status"].get("phase") in ("Pending", "Running")
    }
    nodes = api.list("Node", labels=f"eks.amazonaws.com/nodegroup={nodegroup}")
    return {n["spec"]["providerID"].rpartition("/")[2] for n in nodes if n["metadata"]["name"] in running}


def progress(cluster: EksCluster, name: str, client: Client) -> Progress:
    """The progress of a node group, by EKS's name of it."""
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
    say: Callable[[str], None],
    *,
    timeout: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """Wait until the nodes run. Progress and problems are reported when they change; AWS itself keeps trying.

    timeout: seconds. Default: no limit.

    Raises:
        TrnError: the time is over. The group keeps trying; the message says how to stop it.
    """
    begun, reported = clock(), ""
    while True:
        now = look()
        text = f"{now.running} of {now.wanted} nodes run" + (f"; {advice(now.trouble)}" if now.trouble else "")
        if text != reported:
            say(text)
            reported = text
        if now.done:
            return now
        if timeout is not None and clock() - begun >= timeout:
            raise TrnError(
                f"{text}. AWS keeps trying. Run the same command again, or keep the running nodes: --nodes {now.running}"
            )
        sleep(_INTERVAL)


def advice(trouble: str) -> str:
    """The problem that AWS reports, with the fix."""
    if CAPACITY in trouble or "InsufficientCapacity" in trouble:
        return (
            f"AWS has no capacity of this type in the group's zone now, and keeps trying ({trouble}). Use a "
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
    raise TrnError(
        f"cluster {cluster.cluster_name} has no node group {group}; it has {', '.join(sorted(known)) or 'none'}"
    )
