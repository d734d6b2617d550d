"""Workloads that their queue can never admit are set aside, so that those behind them start: a queue of strict order (StrictFIFO) waits
for its first one, for ever if need be.

Kueue has judged them. A Workload is set aside by `spec.active: false`, and tried again after a change of the queues, and each hour.

So is one that was admitted and gets no pod: its nodes were there, and its Job was refused, or its pods were. It is tried again after a day.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from . import observe
from .labels import ASIDE, LEASE, condition

Object = dict[str, Any]

AT = "trainium-cdk/set-aside-at"
"""Annotation: when it was last set aside, in seconds since 1970, and the digest of the queues at that time."""
AGAIN = 3600
"""Seconds after which one is tried again: a LimitRange or a node group may have changed."""
_DAY = 24 * 3600
"""As `AGAIN`, of one that was admitted and got no pod: each try has its nodes for ten minutes and more."""
_WORKLOAD = "kueue.x-k8s.io/workload"
"""Kueue's annotation of a pod: its Workload (apis/kueue/v1beta2/topology_types.go, 0.18.3)."""
_OWNERS = ("/jobset-name", "/job-name", "/pod-group-name")
Inside = tuple[set[str], list[tuple[str, str, str]]]
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_PENDING = "fieldSelector=status.admission.clusterQueue%3D"
_PART = re.compile(r"(?:couldn't|failed to) assign flavors to pod set [^:]+: ")
_NEVER = re.compile(
    r"resource \S+ unavailable in ClusterQueue|> maximum capacity|doesn't match node affinity|untolerated taint"
    r"|^failed to assign flavors|^resources validation failed|^resources didn't satisfy LimitRange constraints"
)
"""Kueue's words for what does not change while a Workload waits (Kueue 0.18.3, pkg/scheduler: flavorassigner.go, scheduler.go). Other
words change nothing here."""
_LATER = "insufficient unused quota"
"""Its words for a flavor that others may give back."""


def never(message: str) -> bool:
    """Return whether Kueue's reason for giving a Workload no quota is permanent.

    A set of pods that no flavor takes is enough; a flavor in which others may make room is not such a reason.

    >>> never("couldn't assign flavors to pod set train: resource example.com/gpu unavailable in ClusterQueue")
    True
    """
    parts = _PART.split(message)
    whole = not parts[0] and message.startswith("failed to")
    return any((whole or _NEVER.search(part)) and _LATER not in part for part in parts if part)


def digest(queues: Iterable[Object], flavors: Iterable[Object]) -> str:
    """Return a digest that changes when a queue or a flavor does."""
    found = [
        f"{q['metadata']['name']} {q['metadata'].get('uid')} {q['metadata'].get('generation')}"
        for q in (*queues, *flavors)
    ]
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()[:16]


def set_aside(
    kubernetes: Any, groups: Collection[str], now: float, attempt: Callable[..., str | None]
) -> dict[str, str]:
    """Set aside what can never start in the queues of the node groups, and let what was set aside be tried again when it is time.

    Args:
        kubernetes: the cluster's API, with `list`, `patch` and `create`.
        groups: names of the node groups. Queues of others are left alone.
        now: seconds since 1970.
        attempt: as of `after.release`.

    Returns:
        What was done, by "namespace/name" of the Workload.
    """
    # read twice: what others have written may be more than there is memory
    if not any(ASIDE in _notes(one) or never(_reason(one)) for one in kubernetes.list(f"{KUEUE}/workloads", _PENDING)):
        return {}
    named = {observe.key(q): q["spec"]["clusterQueue"] for q in kubernetes.list(f"{KUEUE}/localqueues")}
    queues = list(kubernetes.list(f"{KUEUE}/clusterqueues"))
    is_now = digest(queues, kubernetes.list(f"{KUEUE}/resourceflavors"))
    done = dict[str, str]()
    for one in kubernetes.list(f"{KUEUE}/workloads", _PENDING):
        queue = named.get(f"{one['metadata']['namespace']}/{one['spec'].get('queueName')}", "")
        if queue.partition(".")[0] not in groups or condition(one, "Finished"):
            continue
        key, active = observe.key(one), one["spec"].get("active") is not False
        if active and never(why := _reason(one)):
            if attempt(f"Workload {key}", put_aside, kubernetes, one, why, now, is_now):
                done[key] = f"set aside: {why}"
        elif (
            not active and _again(_notes(one), now, is_now) and attempt(f"Workload {key}", _bring_back, kubernetes, one)
        ):
            done[key] = "tried again"
    return done


def without_pods(
    kubernetes: Any, request: Object, since: float, now: float, limit: float, read: Callable[[str], Inside]
) -> float:
    """Set aside a Workload that was admitted, whose nodes are there, and that had no pod at all for so many seconds. Returns since when it
    has none; 0 if it has one. Pods of a launcher count, and so do those that wait for a node, and those that have ended.

    Args:
        since: what the last run returned.
        read: `inside`, which reads a namespace once.
    """
    namespace, name = observe.workload(request).split("/")
    found = kubernetes.list(f"{KUEUE}/namespaces/{namespace}/workloads", f"fieldSelector=metadata.name%3D{name}")
    one: Object = next(iter(found), {})
    if not condition(one, "Admitted") or condition(one, "Finished", "Evicted"):
        return 0
    pods, warnings = read(namespace)
    owner = str(next(iter(one["metadata"].get("ownerReferences", [])), one["metadata"])["name"])
    if {name, owner} & pods:
        return 0
    if since and now - since >= limit:
        said = max((w for w in warnings if w[1] == owner or w[1].startswith(f"{owner}-")), default=("", "", ""))[2]
        why = f"its nodes were there for {limit / 60:g} minutes, and it got no pod{said and ': '}{said}"
        put_aside(kubernetes, one, why, now, pause=_DAY)
    return since or now


def inside(kubernetes: Any, namespace: str) -> Inside:
    """The Workloads and owners of a namespace's pods, and its warnings: when, about which JobSet or Job, and what."""
    names, said, path = set[str](), list[tuple[str, str, str]](), f"/api/v1/namespaces/{namespace}"
    for pod in kubernetes.list(f"{path}/pods"):
        labels = pod["metadata"].get("labels") or {}
        names |= {_notes(pod).get(_WORKLOAD, ""), *(v for k, v in labels.items() if k.endswith(_OWNERS))}
    for event in itertools.islice(kubernetes.list(f"{path}/events", "fieldSelector=type%3DWarning"), 5000):
        at = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
        if (about := event["involvedObject"]).get("kind") != "Pod" and event.get("reason") != "SetAside":
            text = str(event.get("message") or "").rpartition("Error creating: ")[2]
            said.append((str(at), str(about.get("name")), " ".join(text.split())[:500]))
    return names, said


def put_aside(kubernetes: Any, workload: Object, why: str, now: float, is_now: str = "", pause: float = AGAIN) -> str:
    """Set a Workload aside, with an event about the object that it stands for. After `pause` seconds it is tried again."""
    notes = {ASIDE: why, AT: f"{int(now + pause - AGAIN)} {is_now}".strip()}
    kubernetes.patch(
        _path(workload), {"metadata": {**_proof(workload), "annotations": notes}, "spec": {"active": False}}
    )
    metadata = workload["metadata"]
    owner: Object = next(iter(metadata.get("ownerReferences", [])), {})
    about = {key: owner[key] for key in ("apiVersion", "kind", "name", "uid") if key in owner}
    at = observe.condition("", True, "", "", now)["lastTransitionTime"]
    event: Object = {
        "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "SetAside", "count": 1, "firstTimestamp": at, "lastTimestamp": at,
        "metadata": {"name": f"{metadata['name'][:200]}.{int(now):x}", "namespace": metadata["namespace"]},
        "involvedObject": {**about, "namespace": metadata["namespace"]}, "source": {"component": LEASE},
        "message": f"set aside, so that those behind it start: {why}"[:1000],
    }  # fmt: skip
    kubernetes.create(f"/api/v1/namespaces/{metadata['namespace']}/events", event)
    return why


def _bring_back(kubernetes: Any, workload: Object) -> str:
    notes = {ASIDE: None, AT: None}
    kubernetes.patch(
        _path(workload), {"metadata": {**_proof(workload), "annotations": notes}, "spec": {"active": True}}
    )
    return "tried again"


def _again(notes: Object, now: float, is_now: str) -> bool:
    """Return whether it is time to retry a Workload that was set aside here."""
    at, _, before = str(notes.get(AT, ""))[:99].partition(" ")
    return ASIDE in notes and at.isdecimal() and (now - int(at) >= AGAIN or before not in ("", is_now))


def _reason(workload: Object) -> str:
    """Return Kueue's reason for giving a Workload no quota now."""
    conditions = workload.get("status", {}).get("conditions") or []
    found = [c for c in conditions if c["type"] == "QuotaReserved" and c["status"] == "False"]
    return str(found[0].get("message") or "") if found else ""


def _notes(workload: Object) -> Object:
    return workload["metadata"].get("annotations") or {}


def _proof(workload: Object) -> Object:
    return {key: workload["metadata"][key] for key in ("uid", "resourceVersion")}


def _path(workload: Object) -> str:
    return f"{KUEUE}/namespaces/{workload['metadata']['namespace']}/workloads/{workload['metadata']['name']}"
