"""The nodes of an EKS cluster, as its API describes them. Pure, but for `listed`."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence

from trainium_cdk.client.jobs.kubernetes import names, status
from trainium_cdk.client.jobs.kubernetes.api import Api, Object
from trainium_cdk.client.jobs.status import Node
from trainium_cdk.description.outputs import GROUP_LABEL, EksCluster
from trainium_cdk.errors import ApiError

_TYPE = "node.kubernetes.io/instance-type"
_LEAVES = "no job has used it for a while: it is ended"
_HARDWARE = "AcceleratedHardwareReady"
"""Conditions that EKS's node monitoring agent sets."""
_PRESSURE = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})


def list_nodes(api: Api, cluster: EksCluster) -> tuple[Node, ...]:
    """The nodes, training groups' first, by name. In two requests; with claims, in three."""
    jobs: dict[str, str] = {}
    others: dict[str, str] = {}
    parts: dict[str, list[str]] = {}
    claimed = _claimed(api) if any(fleet.claims for fleet in cluster.fleets) else {}
    # a pod whose init container compiles, or whose image is pulled, is Pending: its node is taken
    for pod in api.list("Pod", fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"):
        job, name = (pod["metadata"].get("labels") or {}).get(names.JOB_LABEL), pod["spec"]["nodeName"]
        who = f"{job}:{status.task(pod)}" if job else f"pod {pod['metadata']['name']}"
        (jobs if job else others)[name] = who
        if claimed and (count := claimed.get(pod["metadata"]["uid"])):
            parts.setdefault(name, []).append(f"{who} {count}")
    for name, users in parts.items():
        jobs[name] = f"devices in use: {', '.join(sorted(users))}"
    found = [_node(node, cluster, jobs, others) for node in api.list("Node")]
    return tuple(sorted(found, key=lambda node: (not node.queue, node.queue, node.name)))


def _claimed(api: Api) -> Mapping[str, int]:
    """Count the Neuron devices that pods have by claims, by the pod's uid; of none, if the caller may not read claims."""
    from trainium_cdk.description.catalog import Catalog

    driver, found = Catalog.load().eks.claims.device_class, Counter[str]()
    with contextlib.suppress(ApiError):
        for claim in api.list("ResourceClaim"):
            state = claim.get("status") or {}
            results = (state.get("allocation") or {}).get("devices", {}).get("results") or []
            count = sum(one["driver"] == driver for one in results)
            for pod in state.get("reservedFor") or []:
                found[str(pod["uid"])] += count
    return found


def _node(node: Object, cluster: EksCluster, jobs: Mapping[str, str], others: Mapping[str, str]) -> Node:
    """Describe a node. `others`: pods of other clients, which matter on the nodes that are for jobs."""
    meta, spec, state = node["metadata"], node["spec"], node.get("status", {})
    labels = meta.get("labels", {})
    conditions = {one["type"]: one for one in state.get("conditions", [])}
    ready = conditions.get("Ready", {}).get("status") == "True"
    leaving = names.LEAVING in meta.get("annotations", {})
    words = [
        "ready" if ready else "notready",
        "leaving" if leaving else "cordoned" if spec.get("unschedulable") else "",
    ]
    fleets = [fleet for fleet in cluster.fleets if fleet.resource == labels.get(GROUP_LABEL)]
    addresses = [one["address"] for one in state.get("addresses", []) if one["type"] == "InternalIP"]
    created = dt.datetime.fromisoformat(meta["creationTimestamp"])
    return Node(
        name=meta["name"],
        queue=fleets[0].queue if fleets else "",
        instance_type=labels.get(_TYPE, ""),
        state="+".join(filter(None, words)),
        job=jobs.get(meta["name"], "") or (others.get(meta["name"], "") if fleets else ""),
        reason="; ".join([_LEAVES] * leaving + _reasons(ready, conditions, spec.get("taints", []))),
        address=addresses[0] if addresses else meta["name"],
        booted=int(created.timestamp()),
        instance=spec.get("providerID", "").rpartition("/")[2],
    )


def _reasons(ready: bool, conditions: Mapping[str, Object], taints: Sequence[Object]) -> list[str]:
    wrong = [one for kind, one in conditions.items() if kind in _PRESSURE and one["status"] == "True"]
    wrong += [one for kind, one in conditions.items() if kind == _HARDWARE and one["status"] == "False"]
    if not ready:
        wrong.insert(0, conditions.get("Ready", {}))
    found = [str(one.get("message") or one.get("reason") or "has not reported yet") for one in wrong]
    return found + [f"taint {one['key']}" for one in taints if one.get("effect") == "NoExecute"]
