"""Conversion of objects of Kubernetes and AWS to the scaler's input, and of its decisions to annotations. Pure."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .decide import Attempt, Gang, Group, Node

Object = dict[str, Any]

ATTEMPT = "trainium-cdk/nodes"
"""Annotation of a PodGroup: its `Attempt`, JSON."""
REQUESTED = "trainium-cdk/requested"
"""Annotation of a node group's queue: `Group.requested`."""
IDLE_SINCE = "trainium-cdk/idle-since"
"""Annotation of a node: since when no pod has used it, seconds since 1970."""
LEAVING = "trainium-cdk/leaving"
"""Annotation of a node that the scaler has cordoned to remove it."""
_GANG = "scheduling.k8s.io/group-name"
_SCHEDULER = "volcano"
_ENDED = ("Succeeded", "Failed")
_LAUNCHED = ("Pending", "InService")


@dataclass(frozen=True)
class GroupSettings:
    """A node group, as described by the stack.

    Attributes:
        name: its name in the environment, and of its Volcano queue.
        nodegroup: its name in EKS.
        devices: of one node.
    """

    name: str
    nodegroup: str
    instance_type: str
    devices: int


def gangs(
    podgroups: Sequence[Object],
    pods: Sequence[Object],
    labels: Mapping[str, Mapping[str, str]],
    device: str,
    label: str,
) -> list[Gang]:
    """Volcano's gangs, each with the node groups that its waiting pods may use.

    Args:
        labels: those of each node group's nodes, by the group's name.
        device: Kubernetes name of the devices.
        label: the label that names a node's group.
    """
    members: dict[str, list[Object]] = {}
    for pod in pods:
        if gang := _gang_of(pod):
            members.setdefault(gang, []).append(pod)
    found = []
    for podgroup in podgroups:
        key = f"{podgroup['metadata']['namespace']}/{podgroup['metadata']['name']}"
        mine = members.get(key, [])
        waiting = [pod for pod in mine if _waits(pod)]
        able = [
            name for name, has in labels.items() if waiting and all(_fits(pod, has, device, label) for pod in waiting)
        ]
        found.append(
            Gang(
                key=key,
                groups=tuple(able),
                needs=tuple(requested(pod, device) for pod in waiting),
                created=seconds(podgroup["metadata"]["creationTimestamp"]),
                priority=max((int(pod["spec"].get("priority") or 0) for pod in waiting), default=0),
                complete=len(mine) >= int(podgroup["spec"].get("minMember") or 1),
                attempt=attempt(podgroup),
            )
        )
    return found


def nodes(
    instances: Sequence[Object],
    launched: Mapping[str, float],
    kubernetes: Sequence[Object],
    pods: Sequence[Object],
    now: float,
    device: str,
) -> tuple[Node, ...]:
    """The instances of an Auto Scaling group with their Kubernetes nodes; terminating ones are left out.

    Args:
        instances: as returned by DescribeAutoScalingGroups.
        launched: launch times, by id.
        pods: all pods of the cluster.
    """
    joined = {node["spec"].get("providerID", "").rpartition("/")[2]: node for node in kubernetes}
    live = {_gang_of(pod) for pod in pods if not _ended(pod)} - {None}
    on: dict[str, list[Object]] = {}
    for pod in pods:
        # an ended pod whose node is removed is deleted, and Volcano then starts all of its gang again
        if not _ended(pod) or _gang_of(pod) in live:
            on.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
    found = []
    for instance in instances:
        id = instance["InstanceId"]
        if not instance["LifecycleState"].startswith(_LAUNCHED):
            continue
        if (node := joined.get(id)) is None:
            found.append(Node(id, since=launched.get(id, now)))
            continue
        name, notes = node["metadata"]["name"], node["metadata"].get("annotations", {})
        mine = [pod for pod in on.get(name, []) if not _of_the_node(pod)]
        leaving = LEAVING in notes
        found.append(
            Node(
                id,
                name=name,
                since=now if mine else float(notes.get(IDLE_SINCE) or now),
                used=sum(requested(pod, device) for pod in mine if not _ended(pod)),
                busy=bool(mine),
                cordoned=bool(node["spec"].get("unschedulable")) and not leaving,
                leaving=leaving,
            )
        )
    return tuple(found)


def idle_marks(nodes: Sequence[Node], kubernetes: Sequence[Object], now: float) -> dict[str, str | None]:
    """New values of IDLE_SINCE by node name; None removes it."""
    noted = {n["metadata"]["name"]: n["metadata"].get("annotations", {}).get(IDLE_SINCE) for n in kubernetes}
    found: dict[str, str | None] = {}
    for node in nodes:
        if node.name and node.busy and noted[node.name]:
            found[node.name] = None
        elif node.name and not node.busy and not noted[node.name]:
            found[node.name] = str(int(now))
    return found


def taken_back(nodes: Sequence[Node]) -> list[str]:
    """Names of nodes that were to be removed, but got a pod just before they were cordoned."""
    return [node.name for node in nodes if node.leaving and node.busy]


def group(
    settings: GroupSettings, described: Object, scaling: Object, queue: Object | None, nodes: tuple[Node, ...]
) -> Group:
    """A node group from EKS's description of it, its Auto Scaling group and its queue."""
    noted = (queue or {"metadata": {}})["metadata"].get("annotations", {}).get(REQUESTED, "")
    issues = described.get("health", {}).get("issues", [])
    return Group(
        name=settings.name,
        devices=settings.devices,
        minimum=scaling["MinSize"],
        maximum=scaling["MaxSize"],
        desired=scaling["DesiredCapacity"],
        nodes=nodes,
        requested=int(noted) if noted.isdigit() else None,
        trouble="; ".join(str(issue.get("message") or issue.get("code")) for issue in issues),
    )


def labels(settings: GroupSettings, described: Object) -> dict[str, str]:
    """The labels of a group's nodes that pods may select."""
    own = {
        "node.kubernetes.io/instance-type": settings.instance_type,
        "eks.amazonaws.com/nodegroup": settings.nodegroup,
    }
    return {**described.get("labels", {}), **own}


def attempt(podgroup: Object) -> Attempt:
    """The state in a PodGroup; a new one if it has none, or an invalid one."""
    try:
        return Attempt(**json.loads(podgroup["metadata"].get("annotations", {})[ATTEMPT]))
    except (KeyError, ValueError, TypeError):
        return Attempt()


def annotation(attempt: Attempt) -> str | None:
    """The annotation for a PodGroup; None for none."""
    return json.dumps(asdict(attempt), sort_keys=True) if attempt != Attempt() else None


def requested(pod: Object, resource: str) -> int:
    """The request of a pod for an extended resource: all containers together, or the largest init container."""

    def of(container: Object) -> int:
        resources = container.get("resources", {})
        return int({**resources.get("limits", {}), **resources.get("requests", {})}.get(resource, 0))

    spec = pod["spec"]
    return max(sum(map(of, spec["containers"])), *map(of, spec.get("initContainers", [])), 0)


def seconds(text: str) -> float:
    """A Kubernetes timestamp in seconds since 1970."""
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _gang_of(pod: Object) -> str | None:
    """Namespace and name of its PodGroup; None if it has none."""
    name = pod["metadata"].get("annotations", {}).get(_GANG)
    return f"{pod['metadata']['namespace']}/{name}" if name else None


def _ended(pod: Object) -> bool:
    return pod["status"].get("phase") in _ENDED


def _waits(pod: Object) -> bool:
    return (
        not _ended(pod)
        and not pod["spec"].get("nodeName")
        and pod["spec"].get("schedulerName") == _SCHEDULER
        and not pod["metadata"].get("deletionTimestamp")
    )


def _fits(pod: Object, labels: Mapping[str, str], device: str, label: str) -> bool:
    """Whether a pod requests nodes of this group: devices, or the group by name, and no label that its nodes lack."""
    selector = pod["spec"].get("nodeSelector", {})
    if not (requested(pod, device) or label in selector):
        return False
    return all(labels.get(key) == value for key, value in selector.items())


def _of_the_node(pod: Object) -> bool:
    """Whether a pod belongs to its node: a static pod, or one of a DaemonSet."""
    owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", [])}
    return bool(owners & {"DaemonSet", "Node"})
