"""Why jobs wait in a queue of Kueue: who is at its head, what that one lacks, and who has the nodes. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainium_cdk.jobs.kubernetes import names

Object = dict[str, Any]

ASIDE = "trainium-cdk/set-aside"
"""Annotation of a Workload that the function that starts nodes has set aside, as it can never start: why."""
BACK = "Correct what it asks for, and submit it again; after a change of its queue it is tried again by itself"
_SET = re.compile(r"(?:couldn't|failed to) assign flavors to pod set [^:]+: ")
_RESET = "Reset to Pending after eviction"
_EVICTED = re.compile(r'Evicted due to AdmissionChecks? in \w+ state: "[^"]*" \((.*)\)', re.DOTALL)
"""Kueue's message with that of the check."""
_PREEMPTED = re.compile(
    r"Preempted to accommodate a workload \(UID: \S+, JobUID: (\S+)\).*?preemptor path: (\S+); preemptee path: (\S+)",
    re.DOTALL,
)
_DEACTIVATED = "The workload is deactivated"
"""It stays when the workload is active again."""
_LATER = re.compile(r"insufficient unused quota for (\S+) in flavor ([^\s,]+), (\w+) more needed")
_MOST = re.compile(
    r"insufficient quota for (\S+) in flavor (\S+), previously considered podsets requests \((\w+)\) \+ current podset request "
    r"\((\w+)\) > maximum capacity \((\w+)\)"
)
_OTHERS = (
    (re.compile(r"resource (\S+) unavailable in ClusterQueue"), r"it asks for \1, which its queue does not have"),
    (re.compile(r"flavor (\S+) doesn't match node affinity"), r"its node selector or affinity matches no node of \1"),
    (re.compile(r"untolerated taint .*? in flavor (\S+)"), r"it does not tolerate a taint of the nodes of \1"),
)


@dataclass(frozen=True)
class Waits:
    """What is known of a Workload that waits.

    Attributes:
        position: in its queue, from 1; 0 if it does not wait there.
        ahead: the one at the head of its queue, with its reason; empty if it is the head itself.
        held: who has the nodes of its queue; empty if none has, or that is not known.
        devices: of one node, by node group.
        names: of the jobs in its namespace that have nodes, by uid.
        workload: itself, without its pods.
    """

    position: int = 0
    ahead: str = ""
    held: str = ""
    devices: Mapping[str, int] | None = None
    names: Mapping[str, str] | None = None
    workload: Object | None = None


def aside(workload: Object | None) -> str:
    """Why it is set aside; empty if it is not."""
    notes = (workload or {}).get("metadata", {}).get("annotations") or {}
    return str(notes.get(ASIDE, "")) if (workload or {}).get("spec", {}).get("active") is False else ""


def describe_wait(workload: Object | None, waits: Waits) -> str:
    """Why a Workload has no nodes, in one line: its turn, who is before it, what it lacks, and who has that."""
    words = reasons(workload, waits)
    if names.condition(workload, "QuotaReserved") or aside(workload):
        return next(iter(words), "it is its turn: its nodes are requested")
    place = f"position {waits.position} in its queue" if waits.position else "waits in its queue"
    if waits.ahead:
        place += f", behind {waits.ahead}"
    elif words:
        place += f": {words[0]}"
    return "; ".join(filter(None, [place, waits.held, taken(workload, waits)]))


def reasons(workload: Object | None, waits: Waits | None = None) -> list[str]:
    """What Kueue, and the function that starts nodes, say of a Workload that has no nodes: the messages of its checks; once it is evicted
    by those, which clears them, why; and what it lacks."""
    devices = waits.devices if waits else None
    if why := aside(workload):
        return [f"set aside, as it can never start: {in_nodes(why, devices)}. {BACK}"]
    checks = (workload or {}).get("status", {}).get("admissionChecks") or []
    said = [str(c.get("message") or "") for c in checks if c.get("state") != "Ready"]
    now = str((names.condition(workload, "QuotaReserved", status="False") or {}).get("message") or "")
    text = str((names.condition(workload, "Evicted") or {}).get("message") or "")
    is_back = text == _DEACTIVATED and (workload or {}).get("spec", {}).get("active")
    if not is_back and not _PREEMPTED.match(text):
        said.append(found[1] if (found := _EVICTED.fullmatch(text)) else text)
    if not _PREEMPTED.match(now):
        said.append(in_nodes(now, devices))
    return list(dict.fromkeys(text for text in said if text and not text.startswith(_RESET)))


def taken(workload: Object | None, waits: Waits | None = None) -> str:
    """Who has the nodes that a Workload had; empty if none were taken."""
    found = _PREEMPTED.match(str((names.condition(workload, "Evicted") or {}).get("message") or ""))
    if not found:
        return ""
    uid, by, of = found[1], found[2].rpartition("/")[2], found[3].rpartition("/")[2]
    who = ((waits.names if waits else None) or {}).get(uid, "")
    if by != of:
        return f"its nodes went to {_namespace(by)}{f' ({who})' if who else ''}, whose own they are"
    return f"its nodes went to {who or 'another job'}, which has a higher priority"


def in_nodes(message: str, devices: Mapping[str, int] | None) -> str:
    """Kueue's reason with nodes for devices.

    >>> in_nodes("couldn't assign flavors to pod set train: insufficient unused quota for aws.amazon.com/neuron in flavor trn, 48 more needed", {"trn": 16})
    'it lacks 3 nodes of trn'
    """
    of = devices or {}

    def later(found: re.Match[str]) -> str:
        return f"it lacks {_nodes(found[3], of[found[2]], found[2])}" if found[2] in of else found[0]

    def most(found: re.Match[str]) -> str:
        if (each := of.get(found[2])) is None:
            return found[0]
        total = str(_whole(found[3]) + _whole(found[4]))
        return f"it asks for {_nodes(total, each, found[2])}, and its queue has at most {_nodes(found[5], each)}"

    text = _MOST.sub(most, _LATER.sub(later, _SET.sub("", message)))
    for pattern, words in _OTHERS:
        text = pattern.sub(words, text)
    return text


def _whole(count: str) -> int:
    """Of Kubernetes' notation: 48, 1k."""
    return int(count[:-1]) * 1000 if count.endswith("k") else int(count)


def _nodes(count: str, each: int, group: str = "") -> str:
    number, rest = divmod(_whole(count), each)
    of = f" of {group}" if group else ""
    if rest:
        return f"{_whole(count)} devices{of} (a node has {each})"
    return f"{number} node{'' if number == 1 else 's'}{of}"


def _namespace(queue: str) -> str:
    """Whose a ClusterQueue is, by its name: GROUP.NAMESPACE."""
    return f"namespace {queue.partition('.')[2]}"


def waiting(
    pending: Iterable[Object],
    holders: Sequence[Object],
    local: Iterable[Object],
    queues: Iterable[Object],
    devices: Mapping[str, int],
) -> dict[str, Waits]:
    """What is known of each Workload that waits, by the uid of the job that it stands for.

    Args:
        pending: in Kueue's order: priority, then age.
        holders: Workloads of this namespace that have quota.
        local: LocalQueues of this namespace.
        queues: all ClusterQueues.
        devices: of one node, by node group.
    """
    of = {q["metadata"]["name"]: str(q["spec"]["clusterQueue"]) for q in local}
    by_name = {q["metadata"]["name"]: q for q in queues}
    known = {uid: _owner(one) for one in holders for uid in names.owners(one)}
    lined: dict[str, list[Object]] = defaultdict(list)
    for one in pending:
        lined[of.get(str(one["spec"].get("queueName")), str(one["spec"].get("queueName")))].append(one)
    found: dict[str, Waits] = {}
    for name, line in lined.items():
        held = _held(name, by_name, holders, devices)
        base = Waits(0, "", held, devices, known)
        head = next((one for one in line if not names.condition(one, "Requeued", status="False")), None)
        before = line.index(head) if head else len(line)
        for at, one in enumerate(line):
            ahead = ""
            if head and at > before:
                why = "; ".join(reasons(head, base))
                ahead = f"{_owner(head)}{f': {why}' if why else ''}"
            found |= dict.fromkeys(names.owners(one), Waits(at + 1, ahead, held, devices, known, one))
    return found


def _held(name: str, queues: Mapping[str, Object], holders: Sequence[Object], devices: Mapping[str, int]) -> str:
    """Who has the nodes of a ClusterQueue's group: the jobs of this namespace, and other namespaces."""
    own, told = queues.get(name, {}), list[str]()
    for group, each in devices.items():
        mine: dict[str, int] = {}
        for one in holders:
            if one["status"]["admission"]["clusterQueue"] == name and (count := _of_workload(one, group)):
                mine[_owner(one)] = count
        cohort = own.get("spec", {}).get("cohortName")
        others = {
            _namespace(other): _of_queue(one, group)
            for other, one in queues.items()
            if other != name and cohort and one["spec"].get("cohortName") == cohort
        }
        found = [f"{who} {-(-count // each)}" for who, count in {**mine, **others}.items() if count]
        if found:
            told.append(f"nodes of {group} in use: {', '.join(found[:5])}{', ...' if len(found) > 5 else ''}")
    return "; ".join(told)


def _of_workload(workload: Object, group: str) -> int:
    """Devices of a node group that it has."""
    sets = workload["status"]["admission"].get("podSetAssignments") or []
    return sum(
        _whole(str(one.get("resourceUsage", {}).get(resource, "0")))
        for one in sets
        for resource, flavor in one.get("flavors", {}).items()
        if flavor == group
    )


def _of_queue(queue: Object, group: str) -> int:
    """Devices of a node group that its Workloads have."""
    flavors = queue.get("status", {}).get("flavorsReservation") or []
    return sum(
        _whole(str(resource.get("total") or "0"))
        for flavor in flavors
        if flavor["name"] == group
        for resource in flavor.get("resources", [])
    )


def _owner(workload: Object) -> str:
    owners = workload["metadata"].get("ownerReferences") or []
    return str(owners[0]["name"]) if owners else str(workload["metadata"]["name"])
