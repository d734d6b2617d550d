"""Why a job on Kubernetes waits, does not start, or has failed, in words. Pure.

A job waits in a queue of Kueue: for the job at its head, for what that lacks, for the holders of the nodes. Its pods do not start, or a container of them
has ended: with an exit code, and the failure in the runner's termination message.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainium_cdk.cdk.eks.scaler.labels import ASIDE
from trainium_cdk.client.jobs.kubernetes import parts
from trainium_cdk.client.jobs.kubernetes.parts import FAILED, TIMED_OUT, seconds
from trainium_cdk.runner.records import Failure, safe
from trainium_cdk.runner.spec import SpecError, from_json

Object = dict[str, Any]

_LONGEST = 400
"""Characters of a reason."""
BACK = "Correct what it asks for, and submit it again; within a day, or after a change of its queue, it is tried again automatically"
_SET = re.compile(r"(?:couldn't|failed to) assign flavors to pod set [^:]+: ")
_RESET = "Reset to Pending after eviction"
_EVICTED = re.compile(r'Evicted due to AdmissionChecks? in \w+ state: "[^"]*" \((.*)\)', re.DOTALL)
"""Kueue's message with the check's message."""
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
_SCALES = {"": 1, **{unit: 1000 ** (n + 1) for n, unit in enumerate("kMGTPE")}}
_SCALES |= {f"{unit}i": 1024 ** (n + 1) for n, unit in enumerate("KMGTPE")}
_COUNT = re.compile(rf"([0-9]{{1,18}})({'|'.join(sorted(_SCALES, key=len, reverse=True))})")
_OTHERS = (
    (re.compile(r"resource (\S+) unavailable in ClusterQueue"), r"it asks for \1, which its queue does not have"),
    (re.compile(r"flavor (\S+) doesn't match node affinity"), r"its node selector or affinity matches no node of \1"),
    (re.compile(r"untolerated taint .*? in flavor (\S+)"), r"it does not tolerate a taint of the nodes of \1"),
    (re.compile(r"flavor (\S+) not found"), r"its queue names \1, which is no ResourceFlavor any more"),
    (re.compile(r"flavor (\S+) does not provide resource (\S+)"), r"\1 has no \2"),
    (re.compile(r"LocalQueue (\S+) is terminating or missing"), r"queue \1 no longer exists: submit it again to another --queue"),
    (
        re.compile(r"ClusterQueue (\S+) (?:is terminating or missing|not found)"),
        r"ClusterQueue \1 of its queue no longer exists: deploy the stack again, or submit it to another --queue",
    ),
    (re.compile(r"(?:LocalQueue|ClusterQueue) (\S+) is stopped|The (?:LocalQueue|ClusterQueue) is stopped"), "an administrator has stopped its queue"),
    (re.compile(r"ClusterQueue (\S+) is inactive"), r"its queue starts no jobs now: kubectl describe clusterqueue \1 has the reason"),
    (re.compile(r"The workload has failed admission checks"), "its nodes could not be had, and Kueue asks for them again"),
    (re.compile(r"The workload is deactivated due to (.*)", re.DOTALL), r"Kueue tries it no more: \1"),
    (re.compile(r"[Ee]xceeded the PodsReady timeout (\S+)"), r"its pods were not all ready within \1, and it is tried again"),
    (re.compile(r"The maximum execution time \((\d+)s\) exceeded"), r"it reached its time limit of \1 seconds"),
    (re.compile(r"waiting for all admitted workloads to be in PodsReady condition"), "waits until the pods of the jobs before it are ready"),
    (re.compile(r"Admission is gated by: (.*)"), r"\1 holds it (annotation kueue.x-k8s.io/admission-gated-by)"),
    (re.compile(r"AdmissionGatedBy cleared, waiting for quota reservation"), "waits for its turn"),
    (re.compile(r"Workload has overlapping preemption targets with another workload.*"), "waits for nodes of jobs of a lower priority, which end"),
    (re.compile(r"Workload no longer fits after processing another workload"), "another job was before it"),
    (re.compile(r"Workload requires preemption, but it's gated"), "waits for leave to end jobs of a lower priority (preemption gate)"),
    (re.compile(r"\. Pending the preemption of (\d+) workload\(s\)"), r"; jobs of a lower priority leave their nodes to it (\1)"),
    (re.compile(r"\. Preempting (\d+) workload\(s\) failed, will retry\.?"), r"; jobs of a lower priority did not end yet, which is tried again (\1)"),
    (re.compile(r"\. Pending the migration of 1 workload\(s\)"), "; it moves to other nodes"),
    (re.compile(r"Evicted to accommodate a workload \(UID: [^)]*\) due to migration .*"), "it moves to other nodes, which are preferred"),
    (
        re.compile(r"Workload (?:eviction triggered due to multiple TAS assigned node failures, including|was evicted as there was no replacement for unhealthy node\(s\)): (.*)"),
        r"its nodes failed: \1",
    ),
)  # fmt: skip
"""Kueue's messages (release-0.18 of 2026-08-21: pkg/scheduler, pkg/controller/core and pkg/controller/tas), and ours."""
_CODES = {
    "NoMatchingFlavor": "no nodes of its queue suit it", "WaitingForQuota": "waits for nodes that others have",
    "ExceedsMaxQuota": "it asks for more than its queue can ever have", "TopologyPlacementFailed": "the free nodes are not close enough to each other",
    "WaitingForPreemptedWorkloads": "waits for nodes of jobs of a lower priority, which end", "Misconfigured": "it or its queue cannot start as it is written",
    "Suspended": "its queue starts no jobs now", "PendingEvaluation": "Kueue has not looked at it yet",
    "WaitingForPodsReady": "waits until the pods of the jobs before it are ready", "Inadmissible": "it cannot start as it is written",
    "OnHold": "Kueue holds it", "AdmissionGated": "another program holds it",
    "PreemptionGated": "waits for leave to end jobs of a lower priority (preemption gate)", "PodsReadyTimeout": "its pods were not all ready in time, and it is tried again",
    "AdmissionCheck": "its nodes could not be had, and Kueue asks for them again", "ClusterQueueStopped": "an administrator has stopped its queue",
    "LocalQueueStopped": "an administrator has stopped its queue", "NodeFailures": "its nodes failed", "FlavorMigration": "it moves to other nodes, which are preferred",
    "EvictedOnManagerCluster": "the cluster that manages it has ended it",
    "Deactivated": "Kueue tries it no more: spec.active of its Workload is false", "RequeuingLimitExceeded": "it was tried too often",
    "MaximumExecutionTimeExceeded": "it reached its time limit",
}  # fmt: skip
"""Kueue's reasons (apis/kueue/v1beta2/workload_types.go, release-0.18 of 2026-08-21), where its message says nothing or is not known."""


@dataclass(frozen=True)
class Waits:
    """The place of a waiting Workload in its queue, and the holders of the nodes.

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
    """Return why a Workload is set aside; empty if it is not."""
    notes = (workload or {}).get("metadata", {}).get("annotations") or {}
    return str(notes.get(ASIDE, "")) if (workload or {}).get("spec", {}).get("active") is False else ""


def describe_wait(workload: Object | None, waits: Waits) -> str:
    """Describe in one line why a Workload has no nodes: its turn, the one before it, what it lacks, and the holder of that."""
    words = why_no_nodes(workload, waits)
    if parts.condition(workload, "QuotaReserved") or aside(workload):
        return next(iter(words), "it is its turn: its nodes are requested")
    place = f"position {waits.position} in its queue" if waits.position else "waits in its queue"
    if waits.ahead:
        place += f", behind {waits.ahead}"
    elif words:
        place += f": {words[0]}"
    return "; ".join(filter(None, [place, waits.held, taken(workload, waits)]))


def why_no_nodes(workload: Object | None, waits: Waits | None = None) -> list[str]:
    """List why a Workload has no nodes, by Kueue and the function that starts nodes: the messages of its checks; the reason of an eviction by these,
    which clears them; and the missing quota."""
    devices = waits.devices if waits else None
    if why := aside(workload):
        if why.startswith("capacity block"):
            return [f"{why}; it waits for the next one, and continues there from its checkpoint"]
        return [f"set aside, as it can never start: {in_nodes(why, devices)}. {BACK}"]
    checks = (workload or {}).get("status", {}).get("admissionChecks") or []
    said = [str(c.get("message") or "") for c in checks if c.get("state") != "Ready"]
    now = _told(parts.condition(workload, "QuotaReserved", status="False"), devices)
    evicted = parts.condition(workload, "Evicted")
    text = str((evicted or {}).get("message") or "")
    is_back = text.startswith(_DEACTIVATED) and (workload or {}).get("spec", {}).get("active")
    if not is_back and not _PREEMPTED.match(text):
        said.append(found[1] if (found := _EVICTED.fullmatch(text)) else _told(evicted, devices))
    if not _PREEMPTED.match(now):
        said.append(now)
    return list(dict.fromkeys(text for text in said if text and not text.startswith(_RESET)))


def _told(condition: Mapping[str, Any] | None, devices: Mapping[str, int] | None) -> str:
    """A condition in words: its message; else its reason, before a message that is not known."""
    message, reason = str((condition or {}).get("message") or ""), str((condition or {}).get("reason") or "")
    reason = reason.removeprefix("DeactivatedDueTo")
    text = in_nodes(message, devices)
    if reason not in _CODES or (message and text != message) or _PREEMPTED.match(message):
        return text
    return f"{_CODES[reason]}: {message}" if message and message != _DEACTIVATED else _CODES[reason]


def taken(workload: Object | None, waits: Waits | None = None) -> str:
    """Name the job that took the nodes of a Workload; empty if none were taken."""
    found = _PREEMPTED.match(str((parts.condition(workload, "Evicted") or {}).get("message") or ""))
    if not found:
        return ""
    uid, by, of = found[1], found[2].rpartition("/")[2], found[3].rpartition("/")[2]
    who = ((waits.names if waits else None) or {}).get(uid, "")
    if by != of:
        return f"its nodes went to {_namespace(by)}{f' ({who})' if who else ''}, whose own they are"
    return f"its nodes went to {who or 'another job'}, which has a higher priority"


def in_nodes(message: str, devices: Mapping[str, int] | None) -> str:
    """Return Kueue's reason with nodes for devices.

    >>> in_nodes("couldn't assign flavors to pod set train: insufficient unused quota for aws.amazon.com/neuron in flavor trn, 48 more needed", {"trn": 16})
    'it lacks 3 nodes of trn'
    """
    of = devices or {}

    def later(found: re.Match[str]) -> str:
        known = found[2] in of and _COUNT.fullmatch(found[3])
        return f"it lacks {_nodes(found[3], of[found[2]], found[2])}" if known else found[0]

    def most(found: re.Match[str]) -> str:
        if (each := of.get(found[2])) is None or not all(map(_COUNT.fullmatch, found.group(3, 4, 5))):
            return found[0]
        total = str(_whole(found[3]) + _whole(found[4]))
        return f"it asks for {_nodes(total, each, found[2])}, and its queue has at most {_nodes(found[5], each)}"

    text = _MOST.sub(most, _LATER.sub(later, _SET.sub("", message)))
    for pattern, words in _OTHERS:
        text = pattern.sub(words, text)
    return text


def _whole(count: str) -> int:
    """Read a whole number in Kubernetes' notation: 48, 1k, 2Ki; 0 for other text."""
    found = _COUNT.fullmatch(count)
    return int(found[1]) * _SCALES[found[2] or ""] if found else 0


def _nodes(count: str, each: int, group: str = "") -> str:
    number, rest = divmod(_whole(count), each)
    of = f" of {group}" if group else ""
    if rest:
        some = _whole(count)
        return f"{some} device{'' if some == 1 else 's'}{of} (a node has {each})"
    return f"{number} node{'' if number == 1 else 's'}{of}"


def _namespace(queue: str) -> str:
    """Name the namespace of a ClusterQueue, by its name: GROUP.NAMESPACE."""
    return f"namespace {queue.partition('.')[2]}"


def waiting(
    pending: Iterable[Object],
    holders: Sequence[Object],
    local: Iterable[Object],
    queues: Iterable[Object],
    devices: Mapping[str, int],
) -> dict[str, Waits]:
    """Return the place of each waiting Workload, by the uid of its job.

    Args:
        pending: in Kueue's order: priority, then age.
        holders: Workloads of this namespace that have quota.
        local: LocalQueues of this namespace.
        queues: all ClusterQueues.
        devices: of one node, by node group.
    """
    of = {q["metadata"]["name"]: str(q["spec"]["clusterQueue"]) for q in local}
    by_name = {q["metadata"]["name"]: q for q in queues}
    known = {uid: _owner(one) for one in holders for uid in parts.owners(one)}
    lined: dict[str, list[Object]] = defaultdict(list)
    for one in pending:
        lined[of.get(str(one["spec"].get("queueName")), str(one["spec"].get("queueName")))].append(one)
    found: dict[str, Waits] = {}
    for name, line in lined.items():
        held = _held(name, by_name, holders, devices)
        base = Waits(0, "", held, devices, known)
        head = next((one for one in line if not parts.condition(one, "Requeued", status="False")), None)
        before, first = len(line), ""
        if head:
            before, why = line.index(head), "; ".join(why_no_nodes(head, base))
            first = f"{_owner(head)}{f': {why}' if why else ''}"
        for at, one in enumerate(line):
            waits = Waits(at + 1, first if at > before else "", held, devices, known, one)
            found |= dict.fromkeys(parts.owners(one), waits)
    return found


def _held(name: str, queues: Mapping[str, Object], holders: Sequence[Object], devices: Mapping[str, int]) -> str:
    """Name the holders of the nodes of a ClusterQueue's group: the jobs of this namespace, and other namespaces."""
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
        every = {who: count for who, count in {**mine, **others}.items() if count}
        whole = not any(count % each for count in every.values())  # else jobs take parts of nodes
        found = [f"{who} {count // each if whole else count}" for who, count in every.items()]
        if found:
            what = "nodes" if whole else "devices"
            told.append(f"{what} of {group} in use: {', '.join(found[:5])}{', ...' if len(found) > 5 else ''}")
    return "; ".join(told)


def _of_workload(workload: Object, group: str) -> int:
    """Count the devices of a node group that a Workload has."""
    sets = workload["status"]["admission"].get("podSetAssignments") or []
    return sum(
        _whole(str(one.get("resourceUsage", {}).get(resource, "0")))
        for one in sets
        for resource, flavor in one.get("flavors", {}).items()
        if flavor == group
    )


def _of_queue(queue: Object, group: str) -> int:
    """Count the devices of a node group that a queue's Workloads have."""
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


def cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def is_without_program(end: Mapping[str, Any]) -> bool:
    """Return whether a container was not started because its image has no such program."""
    return end.get("exitCode") == 128 and "executable file not found" in str(end.get("message"))


def describe_no_python(image: str) -> str:
    return (
        f"image {image} has no python3 on its PATH, which starts each job. Use one with Python 3.9 or newer, as the examples of trn image "
        "build have"
    )


def told_by(end: Mapping[str, Any]) -> Failure | None:
    """The failure that a container's runner has told at its end. Whatever runs in a pod may have written it."""
    try:
        found = json.loads(str(end.get("message", "")))
        found = found.get("first") or found  # of an older runner: another node failed first
        found = from_json(Failure, {"node": -1, **found}, strict=False)
    except (ValueError, TypeError, AttributeError, RecursionError, SpecError):
        return None
    return safe(found)


def describe_failure(bad: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # the first failure stopped the others
    first = min(bad, key=lambda t: (not t["full"], seconds(t.get("finishedAt")) or 0, t.get("exitCode") == 143))
    code, node = first.get("exitCode"), first["node"]
    if code == TIMED_OUT:
        return {"state": "TIMEOUT", "reason": "reached its time limit", "exit_code": code, "failure": told_by(first)}
    if full := first["full"]:
        told = told_by(first)
        failure = told if told and told.said.raised else None
        return {"state": "OUT_OF_MEMORY", "reason": full, "exit_code": code, "failed_node": node, "failure": failure}
    if is_without_program(first):
        return {"state": "FAILED", "reason": describe_no_python(first["image"]), "exit_code": code, "failed_node": node}
    failure = told_by(first)
    if failure and failure.node < 0 and failure.code == FAILED:  # it was stopped: no node is at fault
        node = None
    elif failure:
        node = node if failure.node < 0 else failure.node
        failure = replace(failure, node=node)
    code = failure.code if failure and failure.code else code
    return {
        "state": "FAILED",
        "reason": f"exit code {code}",
        "exit_code": code,
        "failed_node": node,
        "failure": failure,
    }
