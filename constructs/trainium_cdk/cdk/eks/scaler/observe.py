"""Conversion of objects of Kubernetes and AWS to the function's input, and of its answers to conditions. Pure."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from .conditions import clock
from .devices import Claims, Listed, requested, whole
from .labels import LEAVING
from .model import Answer, Devices, Group, GroupNode, NodeRequest, Reservation, Resources

Object = dict[str, Any]
Claimed = Callable[[Object, Object], int | None]
T = TypeVar("T")

CLASS = "node-group.trainium-cdk"
"""The class of the ProvisioningRequests that the function answers."""
OF_REQUEST = "autoscaling.x-k8s.io/consume-provisioning-request"
"""Kueue's annotation of a pod with the name of its ProvisioningRequest."""
IDLE_SINCE = "trainium-cdk/idle-since"
"""Annotation of a node: since when no pod has used it, seconds since 1970; empty while one does; none until it was usable once."""
NOT_OURS = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
"""Annotation of a node that a Cluster Autoscaler in the same cluster leaves alone."""
REQUESTED = "trainium-cdk:requested"
"""Tag of an Auto Scaling group: `Group.requested`."""
_WAITING_SINCE, WITHOUT_PODS_SINCE = "asked", "without-pods"
_HARDWARE = "AcceleratedHardwareReady"
"""A node's condition, which EKS's node monitoring agent writes; False: a device is broken. Jobs cannot write the status of a node (aws/eks-node-monitoring-agent
v1.6.4, EKS user guide, "Detect node health issues", 2026-11-27; unproven: no instance had such an error yet)."""
_CORDONED = "node.kubernetes.io/unschedulable"
"""Taint of a cordoned node, set by Kubernetes."""
_KEEPS_OFF = ("NoSchedule", "NoExecute")
_LAUNCHED = ("Pending", "InService")
_ENDED = ("Succeeded", "Failed")
_REGION = re.compile(r"[a-z]+(-[a-z]+)+-[0-9]+")
"""Region in the name of a zone: us-west-2 of us-west-2a, and of the local zone us-west-2-lax-1a."""
_EKS_STOPS = dt.timedelta(minutes=40)
"""EKS scales the group of a capacity block to 0 this long before the block's end (EKS user guide, capacity blocks, 2026-11)."""
_JOBS_LEAVE = _EKS_STOPS + dt.timedelta(minutes=5)
"""The same for jobs, which have a minute to save: the function looks each minute."""


@dataclass(frozen=True)
class GroupSettings:
    """A node group, as described by the stack.

    Attributes:
        name: its name in the environment, and of its queue.
        nodegroup: its name in EKS.
        resources: of one node.
        claims: whether pods claim its devices.
        share: whether jobs take parts of its nodes.
    """

    name: str
    nodegroup: str
    instance_type: str
    resources: Resources
    claims: bool = False
    share: bool = False


@dataclass(frozen=True)
class DescribedGroup:
    """A node group in AWS.

    Attributes:
        described: by DescribeNodegroup.
        scaling: its Auto Scaling group.
        template: its launch template's data; empty if it has none.
        reservation: the capacity reservation or block that the template names.
    """

    settings: GroupSettings
    described: Object
    scaling: Object
    template: Object
    reservation: Object | None

    @property
    def reserved(self) -> bool:
        """True if its nodes come from a reservation, a block, or a resource group of them. Beyond a group, EC2 starts nodes on demand."""
        target = self.template.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
        return self.reservation is not None or "CapacityReservationResourceGroupArn" in target


class PlacedPod(NamedTuple):
    """Pod on a node, reduced to the fields in use.

    Attributes:
        request: key of its ProvisioningRequest; empty if it has none.
        phase: `Deleted` while it is being deleted.
    """

    node: str
    request: str
    needs: Resources
    phase: str
    uid: str = ""


class Template(NamedTuple):
    """PodTemplate, reduced to the fields in use. `forms`: whether its pods claim devices; empty if they need none."""

    needs: Resources
    selector: Mapping[str, str]
    affinity: Sequence[Object]
    forms: frozenset[bool] = frozenset()


class ObservedCluster:
    """A cluster at one moment.

    Args:
        names: of the resources that are counted.
        labels: labels of each node group's nodes, by the group's name.
        nodes: Kubernetes objects, as the next ones.
        pods: those that are on nodes.
        templates: Kueue's PodTemplates.
        provisioning: ProvisioningRequests.
        isolate: whether a node with a broken device is given to no pod any more.
        claims, listed: as of `Claims`.

    Attributes:
        joined: nodes, by instance.
        provisioning: ProvisioningRequests, by namespace and name.
        requests: requests of our class that have not failed.
        unreadable: objects that were left out, each with the reason. Whoever runs jobs can write them, and must not stop other people's.
    """

    def __init__(
        self,
        names: Sequence[str],
        labels: Mapping[str, Mapping[str, str]],
        nodes: Iterable[Object],
        pods: Iterable[Object],
        templates: Iterable[Object],
        provisioning: Iterable[Object],
        now: float,
        *,
        isolate: bool = True,
        claims: Set[str] = frozenset(),
        listed: Listed = lambda _: (),
    ) -> None:
        self._isolate = isolate
        self._names, self._now, self.unreadable = names, now, list[str]()
        self.joined = {node["spec"].get("providerID", "").rpartition("/")[2]: node for node in map(_small, nodes)}
        self._claims = Claims(claims, listed, self._read)
        self._pods: dict[str, list[PlacedPod]] = {}
        for each in pods:
            if kept := self._read(pod, each, names, self._claims.asked):
                self._pods.setdefault(kept.node, []).append(kept)
        self._holders = {each.request for each in itertools.chain.from_iterable(self._pods.values())}
        self._claims.read_nodes()
        given = (names, self._claims.asked)
        self._templates = {key(each): t for each in templates if (t := self._read(template, each, *given))}
        self.provisioning = {key(each): each for each in provisioning}
        placed = self._placed()
        self.requests = [
            r for one in self.provisioning.values() if (r := self._read(self._request, one, labels, placed))
        ]
        self._live = {r.key for r in self.requests}

    def _read(self, read: Callable[..., T | None], obj: Object, *given: Any) -> T | None:
        try:
            return read(obj, *given)
        except Exception as error:
            metadata = obj.get("metadata", {})
            name = key(obj) if "namespace" in metadata else metadata.get("name", obj.get("InstanceId"))
            self.unreadable.append(f"{obj.get('kind', read.__name__.strip('_'))} {name} cannot be read: {error!r:.500}")
            return None

    def _placed(self) -> dict[str, Counter[Resources]]:
        """Return the needs of each request's pods that are on nodes."""
        # on a node that is not Ready, a pod that is being deleted may stay for ever
        alive = {node["metadata"]["name"] for node in self.joined.values() if ready(node)}
        placed: dict[str, Counter[Resources]] = {}
        for each in itertools.chain.from_iterable(self._pods.values()):
            if each.request and each.phase != "Failed" and (each.phase != "Deleted" or each.node in alive):
                placed.setdefault(each.request, Counter())[each.needs] += 1
        return placed

    def _request(
        self, request: Object, labels: Mapping[str, Mapping[str, str]], placed: Mapping[str, Counter[Resources]]
    ) -> NodeRequest | None:
        spec, metadata, state = request["spec"], request["metadata"], request.get("status", {})
        true = {c["type"] for c in state.get("conditions", []) if c["status"] == "True"}
        paths = [f"{metadata['namespace']}/{s['podTemplateRef']['name']}" for s in spec["podSets"]]
        if spec["provisioningClassName"] != CLASS or "Failed" in true or not self._templates.keys() >= set(paths):
            return None  # Kueue creates the templates first: without one, the request is being deleted
        sets = [(self._templates[path], each["count"]) for path, each in zip(paths, spec["podSets"], strict=True)]
        if self._claims.groups:  # then Kueue also asks for pods without devices, which may run on other nodes
            sets = [(chosen, count) for chosen, count in sets if any(chosen.needs)]
        needs = Counter[Resources]()
        for chosen, count in sets:
            needs[chosen.needs] += count
        details = state.get("provisioningClassDetails", {})
        return NodeRequest(
            key=key(request),
            groups=tuple(
                n for n, has in labels.items() if all(_matches(p, has, n in self._claims.groups) for p, _ in sets)
            ),
            needs=tuple((needs - placed.get(key(request), Counter())).items()),
            created=seconds(metadata["creationTimestamp"]),
            waiting_since=float(details.get(_WAITING_SINCE) or 0),
            provisioned="Provisioned" in true,
            holds=key(request) in self._holders,
            without_pods_since=float(details.get(WITHOUT_PODS_SINCE) or 0),
        )

    def group(
        self, group: DescribedGroup, launched: Mapping[str, float], reservations: Iterable[Object], *, atomic: bool
    ) -> Group:
        """A node group, without instances that are terminating.

        Args:
            launched: launch times of instances that have not joined, by id.
            reservations: reservations that were made for it.
            atomic: whether to reserve new instances before they are started.
        """
        settings, described, scaling = group.settings, group.described, group.scaling
        noted = {tag["Key"]: tag["Value"] for tag in scaling.get("Tags", [])}.get(REQUESTED, "")
        issues = described.get("health", {}).get("issues", [])
        # spot and reserved capacity need no reservation, and one is for one zone
        plain = described.get("capacityType") == "ON_DEMAND" and not group.reserved
        own = [
            Reservation(r["CapacityReservationId"], r["CreateDate"].timestamp(), r["AvailableInstanceCount"])
            for r in reservations
        ]
        return Group(
            name=settings.name,
            resources=settings.resources,
            minimum=scaling["MinSize"],
            maximum=scaling["MaxSize"],
            desired=scaling["DesiredCapacity"],
            nodes=tuple(
                # one that cannot be read takes no pod, and stays
                self._read(self._node, i, group, launched) or GroupNode(i["InstanceId"], state="unusable", busy=True)
                for i in scaling["Instances"]
                if i["LifecycleState"].startswith(_LAUNCHED)
            ),
            requested=int(noted) if noted.isdigit() else None,
            status=described["status"],
            trouble="; ".join(str(issue.get("message") or issue.get("code")) for issue in issues),
            closed=closed(group.reservation, self._now) if group.reservation else "",
            reserved=group.reserved,
            atomic=atomic and plain and len(scaling["AvailabilityZones"]) == 1,
            reservations=tuple(own),
        )

    def _node(self, instance: Object, group: DescribedGroup, launched: Mapping[str, float]) -> GroupNode:
        id, has = instance["InstanceId"], group.settings.resources
        if (node := self.joined.get(id)) is None:
            return GroupNode(id, free=has, since=launched.get(id, self._now))
        metadata, notes, resources = node["metadata"], _notes(node), dict(zip(self._names, has, strict=True))
        own = {t["key"] for t in group.described.get("taints", [])}
        leaving, mark = LEAVING in notes, notes.get(IDLE_SINCE)
        # on a node that is lost, a pod that is being deleted stays for ever
        mine = [p for p in self._pods.get(metadata["name"], []) if p.phase != "Deleted" or ready(node)]
        works = [p for p in mine if p.phase not in (*_ENDED, "Deleted")]
        # the node of an ended pod stays while its workload lives
        busy = any(p.phase not in _ENDED or p.request in self._live for p in mine)
        why, devices = broken(node) if self._isolate else "", Devices()
        free = [count - sum(p.needs[i] for p in works) for i, count in enumerate(has)]
        if group.settings.claims:
            uids, share, name = {p.uid for p in works}, group.settings.share, metadata["name"]
            gone = {p.uid for p in self._pods.get(name, [])} - {p.uid for p in mine}
            there, bad, claimed, devices = self._claims.node(name, has[0], uids, gone, share=share)
            node.setdefault("status", {}).setdefault("allocatable", {})[self._names[0]] = str(there)
            free[0], busy, why = len(devices) if there else free[0], busy or claimed, "" if share and bad else why
        usable = _usable(node, resources, own, cordoned=leaving) and not why
        new = mark is None and not _lacks(node, resources)
        until_now = usable or mark == ""  # the last run saw it busy
        idle = float(mark or (self._now if until_now else seconds(metadata["creationTimestamp"])))
        return GroupNode(
            id,
            name=metadata["name"],
            state="usable" if usable else "starting" if new else "unusable",
            free=tuple(free),
            devices=devices,
            since=self._now if busy else idle,
            busy=busy,
            holders=frozenset(p.request for p in mine) - {""},
            leaving=leaving,
            broken=bool(why) and not node["spec"].get("unschedulable"),
            protected=instance.get("ProtectedFromScaleIn", False)
            if instance["LifecycleState"] == "InService"
            else None,
        )

    def why(self, name: str) -> str:
        """Return why a device of this node is broken."""
        return next((broken(node) for node in self.joined.values() if node["metadata"]["name"] == name), "")

    def marks(self, groups: Iterable[Group]) -> dict[str, dict[str, str]]:
        """New annotations, by the name of a node."""
        found: dict[str, dict[str, str]] = {}
        for node in itertools.chain.from_iterable(group.nodes for group in groups):
            if not node.name or node.state == "starting":
                continue
            notes = _notes(self.joined[node.instance])
            mark = "" if node.busy else notes.get(IDLE_SINCE) or str(int(self._now))
            new = {IDLE_SINCE: mark} if mark != notes.get(IDLE_SINCE) else {}
            if NOT_OURS not in notes:
                new[NOT_OURS] = "true"
            if new:
                found[node.name] = new
        return found


def pod(manifest: Object, names: Sequence[str], claimed: Claimed = lambda *_: 0) -> PlacedPod | None:
    """A pod; None if it is on no node, or belongs to it (a static pod, or one of a DaemonSet) and holds no devices."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    owners, needs = {owner["kind"] for owner in metadata.get("ownerReferences", [])}, requested(spec, names)
    needs = (needs[0] + (claimed(manifest, spec) or 0), *needs[1:])
    holds = any(needs) or "resourceClaims" in spec
    if not spec.get("nodeName") or (owners & {"DaemonSet", "Node"} and not holds):
        return None
    request = metadata.get("annotations", {}).get(OF_REQUEST)
    phase = "Deleted" if metadata.get("deletionTimestamp") else manifest["status"].get("phase", "")
    of = f"{metadata['namespace']}/{request}" if request else ""
    return PlacedPod(spec["nodeName"], of, needs, phase, metadata.get("uid", ""))


def template(manifest: Object, names: Sequence[str], claimed: Claimed = lambda *_: 0) -> Template | None:
    """A PodTemplate; None if it is not known how many devices its pods claim."""
    spec = manifest["template"]["spec"]
    if (count := claimed(manifest, spec)) is None:
        return None
    affinity, required = spec.get("affinity", {}), "requiredDuringSchedulingIgnoredDuringExecution"
    node = affinity.get("nodeAffinity", {}).get(required, {})
    terms = node.get("nodeSelectorTerms", [])
    if len(json.dumps(terms)) > 1 << 16:  # they are compared with each node group
        raise ValueError("its node affinity has more than 65,536 characters")
    device, *others = requested(spec, names)
    forms = frozenset(form for form, some in ((True, count), (False, device)) if some)
    return Template((device + count, *others), spec.get("nodeSelector", {}), terms, forms)


def status(answer: Answer, before: Object, now: float) -> Object | None:
    """The new status of a ProvisioningRequest; None if it is unchanged. Kueue shows the message of `Provisioned` to the workload's
    owner, whether it is true or not."""
    has = {c["type"]: c for c in before.get("conditions", [])}
    wanted = {
        "Accepted": (True, "Accepted", "a node group of this cluster supplies the nodes"),
        "Provisioned": (answer.state == "Provisioned", answer.reason, answer.message),
    }
    if answer.state == "Failed":
        wanted["Failed"] = (True, answer.reason, answer.message)
    conditions = []
    for kind, (true, reason, message) in wanted.items():
        old, new = has.get(kind, {}), condition(kind, true, reason, message, now)
        since = "lastTransitionTime"
        conditions.append({**new, since: old[since]} if old.get("status") == new["status"] else new)
    details = {_WAITING_SINCE: str(int(answer.waiting_since)) if answer.waiting_since else ""}
    new = {"conditions": conditions, "provisioningClassDetails": details}
    return new if any(before.get(key) != value for key, value in new.items()) else None


def workload(request: Mapping[str, Any]) -> str:
    """Namespace and name of the Workload to which a ProvisioningRequest belongs."""
    owners = request["metadata"].get("ownerReferences", [])
    return f"{request['metadata']['namespace']}/{owners[0]['name'] if owners else ''}"


def _small(node: Object) -> Object:
    """A node without what takes much memory: images, and who set which field."""
    node.get("status", {}).pop("images", None)
    node["metadata"].pop("managedFields", None)
    return node


def _notes(node: Object) -> dict[str, str]:
    return node["metadata"].get("annotations", {})  # type: ignore[no-any-return]


def ready(node: Object) -> bool:
    """Return whether the node's kubelet answers."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node.get("status", {}).get("conditions", []))


def broken(node: Object) -> str:
    """Return why a device of a node is broken, from EKS's agent; empty if none is."""
    for one in node.get("status", {}).get("conditions", []):
        if one["type"] == _HARDWARE and one["status"] == "False":
            return str(one.get("message") or one.get("reason") or "a device is broken")
    return ""


def _usable(node: Object, resources: Mapping[str, int], taints: set[str], *, cordoned: bool) -> bool:
    """Return whether the node takes pods and announces all of its devices.

    Args:
        cordoned: whether it was cordoned here; such a cordon does not count.
    """
    spec, has = node["spec"], node.get("status", {}).get("allocatable", {})
    own = taints | ({_CORDONED} if cordoned else set())
    foreign = [t for t in spec.get("taints", []) if t["effect"] in _KEEPS_OFF and t["key"] not in own]
    complete = all(whole(has.get(name, "0")) >= count for name, count in resources.items())
    return ready(node) and not foreign and (cordoned or not spec.get("unschedulable")) and complete


def _lacks(node: Object, resources: Mapping[str, int]) -> bool:
    """Return whether a plug-in has announced devices, but not all: one is broken."""
    has = node.get("status", {}).get("allocatable", {})
    return any(0 < whole(has.get(name, "0")) < count for name, count in resources.items())


def closed(reservation: Object, now: float) -> str:
    """Explain why a capacity reservation or block launches nothing now; empty if it does."""
    id, state, end = reservation["CapacityReservationId"], reservation["State"], reservation.get("EndDate")
    block = reservation.get("ReservationType") == "capacity-block"
    what = f"capacity {'block' if block else 'reservation'} {id}"
    if state == "active":
        if block and end and now >= (end - _JOBS_LEAVE).timestamp():
            last = (end - _EKS_STOPS).timestamp()
            return f"{what} ends at {clock(end.timestamp())}, and EKS starts no nodes in it after {clock(last)}"
        return ""
    if state in ("scheduled", "pending", "payment-pending", "assessing", "delayed"):
        return f"waits for {what}, which begins at {clock(reservation['StartDate'].timestamp())}"
    return f"{what} is {state}; give the node group another one (reservation)"


def labels(group: DescribedGroup) -> dict[str, str]:
    """The labels of a group's nodes that pods may select."""
    zones = group.scaling["AvailabilityZones"]
    own = {
        "node.kubernetes.io/instance-type": group.settings.instance_type,
        "eks.amazonaws.com/nodegroup": group.settings.nodegroup,
        "eks.amazonaws.com/capacityType": group.described.get("capacityType", "ON_DEMAND"),
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
    if len(zones) == 1:
        region = _REGION.match(zones[0])
        own |= {"topology.kubernetes.io/zone": zones[0]} | (
            {"topology.kubernetes.io/region": region[0]} if region else {}
        )
    return {**group.described.get("labels", {}), **own}


def seconds(text: str) -> float:
    """A Kubernetes timestamp in seconds since 1970."""
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def condition(kind: str, true: bool, reason: str, message: str, now: float) -> Object:
    """A condition of a Kubernetes object."""
    at = f"{dt.datetime.fromtimestamp(now, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    return {"type": kind, "status": str(true), "reason": reason, "message": message, "lastTransitionTime": at}


def key(manifest: Mapping[str, Any]) -> str:
    """Namespace and name."""
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


def _matches(pods: Template, labels: Mapping[str, str], claims: bool = False) -> bool:
    """Return whether nodes with these labels, and this form of devices, fit a pod's node selector, required node affinity, and devices."""
    if pods.forms - {claims} or any(labels.get(key) != value for key, value in pods.selector.items()):
        return False
    return not pods.affinity or any(_term(term, labels) for term in pods.affinity)


def _term(term: Object, labels: Mapping[str, str]) -> bool:
    rules = term.get("matchExpressions", [])
    return bool(rules) and not term.get("matchFields") and all(_rule(rule, labels.get(rule["key"])) for rule in rules)


def _rule(rule: Object, has: str | None) -> bool:
    operator, values = rule["operator"], list[str](rule.get("values", []))
    if operator in ("In", "NotIn"):
        return bool((has in values) == (operator == "In"))
    if operator in ("Exists", "DoesNotExist"):
        return bool((has is not None) == (operator == "Exists"))
    if has is None or not has.lstrip("-").isdigit():
        return False
    return int(has) > int(values[0]) if operator == "Gt" else int(has) < int(values[0])
