"""The function: reads the cluster and its node groups, decides, and applies the changes. It keeps no state between runs.

Environment: SETTINGS (`Settings` as JSON).

A node is removed in two runs: the first cordons it, and the next ends its instance, unless a pod was placed on it in the meantime.
What fails for one group, or for one object, stops nothing else; the run then ends as an error, for the alarm.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from . import after, look, metrics
from .aws import Found, NodeGroups
from .kubernetes import Kubernetes
from .supply import Answer, Group, Limits, Plan, answer, decide

_REQUESTS = "/apis/autoscaling.x-k8s.io/v1"
_QUICK = Config(connect_timeout=5, read_timeout=15, retries={"mode": "standard", "total_max_attempts": 2})
"""A shortage of capacity is an error that boto3 tries again, but the next run comes soon enough."""
_ON_NODES = "fieldSelector=spec.nodeName%21%3D"
_KUEUES = "labelSelector=kueue.x-k8s.io%2Fmanaged%3Dtrue"


class RunFailed(Exception):
    """Some groups or objects could not be read or changed. The others were."""


def handler(_event: object, _context: object) -> dict[str, Any]:
    """Entry point of AWS Lambda. What was done is printed for the log, and returned."""
    settings = Settings.read(os.environ["SETTINGS"])
    session = boto3.Session()
    client = functools.partial(session.client, config=_QUICK)
    cluster = client("eks").describe_cluster(name=settings.cluster)["cluster"]
    done = Supplier(settings, Kubernetes(cluster, session), client).run(time.time())
    return {"groups": {name: vars(change) for name, change in done.changes.items()}}


@dataclass(frozen=True)
class Settings:
    """Settings of the function, from the stack.

    Attributes:
        cluster: its name.
        namespace: of the jobs, which has the Lease that shows when the function ran last.
        resources: Kubernetes names of the resources that are counted, the devices first.
        label: the label that names a node's group.
        reserve: whether to reserve all new instances of a workload before they are started.
        metrics: whether to write metrics to the log.
    """

    cluster: str
    namespace: str
    resources: tuple[str, ...]
    label: str
    reserve: bool
    limits: Limits
    groups: tuple[look.GroupSettings, ...]
    metrics: bool = False

    @classmethod
    def read(cls, text: str) -> Settings:
        """From JSON."""
        data = json.loads(text)
        groups = tuple(
            look.GroupSettings(name, nodegroup, kind["type"], tuple(kind["resources"]))
            for kind in data.pop("types")
            for name, nodegroup in kind["groups"].items()
        )
        limits, names = Limits(**data.pop("limits")), tuple(data.pop("resources"))
        return cls(**data, resources=names, limits=limits, groups=groups)


class Supplier:
    """One run over a cluster's node groups.

    Args:
        client: service name -> boto3 client.
    """

    def __init__(self, settings: Settings, kubernetes: Any, client: Any) -> None:
        self._settings, self._kubernetes = settings, kubernetes
        self._groups, self._failed = NodeGroups(settings.cluster, client), list[str]()

    def run(self, now: float) -> Plan:
        """Read, decide and apply: sizes first, then answers, then notes. Returns the decision.

        Raises:
            RunFailed: something could not be done.
        """
        settings, api = self._settings, self._kubernetes
        found, reasons = self._find()
        names = settings.resources
        joined = {n["spec"].get("providerID", "").rpartition("/")[2]: n for n in map(_small, api.list("/api/v1/nodes"))}
        pods = [p for one in api.list("/api/v1/pods", _ON_NODES) if (p := look.pod(one, names))]
        templates = {
            f"{t['metadata']['namespace']}/{t['metadata']['name']}": look.template(t, names)
            for t in api.list("/api/v1/podtemplates", _KUEUES)
        }
        asked = {look.key(r): r for r in api.list(f"{_REQUESTS}/provisioningrequests")}
        of = {g.name: g for g in settings.groups}
        labels = {
            name: look.labels(of[name], one.described, one.scaling["AvailabilityZones"]) for name, one in found.items()
        }
        # requests for groups that cannot be read now wait for them
        labels |= {name: {settings.label: name} for name in reasons}
        alive = [n["metadata"]["name"] for n in joined.values() if look.ready(n)]
        requests = look.requests(asked.values(), templates, pods, labels, alive)
        groups = self._describe(found, joined, pods, {r.key for r in requests}, now)
        plan = decide(groups.values(), requests, now, settings.limits)
        if settings.metrics:
            print(*metrics.lines(settings.cluster, groups.values(), requests, now), sep="\n")
        for name, change in plan.changes.items():
            with self._guard(f"node group {name}"):
                if trouble := self._groups.change(
                    groups[name], found[name], change, now, settings.limits.capacity / 60
                ):
                    groups[name] = replace(groups[name], trouble=trouble)
            for node in change.cordon:
                with self._guard(f"node {node}"):
                    self._annotate(node, {look.LEAVING: "true"}, cordoned=True)
        for name, one in found.items():
            with self._guard(f"tags of node group {name}"):
                self._groups.keep_others_off(one)
        answers = {r.key: self._answer(r, plan, groups, reasons, now) for r in requests if not r.provisioned}
        for key, told in answers.items():
            self._tell(asked[key], told, now)
        for node, notes in look.marks([n for g in groups.values() for n in g.nodes], joined, now).items():
            with self._guard(f"node {node}"):
                self._annotate(node, notes, cordoned=False if look.LEAVING in notes else None)
        released: dict[str, str] = {}
        with self._guard("JobSets after a Job"):
            released = after.release(api, now)
        self._report(plan, {k: a.message for k, a in answers.items()} | released, now)
        return plan

    def _find(self) -> tuple[dict[str, Found], dict[str, str]]:
        """The groups that could be read, and why the others could not."""
        found: dict[str, Found] = {}
        reasons: dict[str, str] = {}
        for group in self._settings.groups:
            try:
                found[group.name] = self._groups.find(group.nodegroup)
            except LookupError as error:  # while a stack is deployed
                reasons[group.name] = str(error)
            except (ClientError, BotoCoreError) as error:
                reasons[group.name] = f"node group {group.name} cannot be read: {error}"
                self._failed.append(reasons[group.name])
        return found, reasons

    def _describe(
        self, found: Mapping[str, Found], joined: Mapping[str, Any], pods: list[look.Pod], live: set[str], now: float
    ) -> dict[str, Group]:
        settings, on = self._settings, dict[str, list[look.Pod]]()
        for pod in pods:
            on.setdefault(pod.node, []).append(pod)
        ids = [i["InstanceId"] for one in found.values() for i in one.scaling["Instances"]]
        launched: dict[str, float] = {}
        with self._guard("launch times"):
            launched = self._groups.launched([id for id in ids if id not in joined])
        made: dict[str, list[Any]] = {}
        if settings.reserve:
            with self._guard("capacity reservations"):
                made = self._groups.reserved()
        groups = {}
        for each in settings.groups:
            if one := found.get(each.name):
                counted = dict(zip(settings.resources, each.resources, strict=True))
                taints = [t["key"] for t in one.described.get("taints", [])]
                nodes = look.nodes(one.scaling["Instances"], launched, joined, on, counted, taints, live, now)
                groups[each.name] = look.group(
                    each, one.described, one.scaling, nodes, reservation=one.reservation,
                    made=made.get(each.name, []), atomic=settings.reserve, now=now,
                )  # fmt: skip
        return groups

    def _answer(
        self, request: Any, plan: Plan, groups: Mapping[str, Group], reasons: Mapping[str, str], now: float
    ) -> Answer:
        if not (set(request.groups) & set(groups)) and request.groups:
            return Answer("Waiting", "NodeGroupUnavailable", reasons[request.groups[0]])
        return answer(request, plan.places.get(request.key), groups, now, self._settings.limits)

    def _tell(self, request: Mapping[str, Any], told: Answer, now: float) -> None:
        key = look.key(request)
        namespace, name = key.split("/")
        if status := look.status(told, request.get("status", {}), now):
            with self._guard(f"ProvisioningRequest {key}"):
                path = f"{_REQUESTS}/namespaces/{namespace}/provisioningrequests/{name}/status"
                self._kubernetes.patch(path, {"status": status})

    def _report(self, plan: Plan, told: Mapping[str, str], now: float) -> None:
        changes = {name: {k: v for k, v in vars(change).items() if v} for name, change in plan.changes.items()}
        if changes or told:
            print(json.dumps({"groups": changes, "jobs": told}))
        with self._guard("Lease trn-scaler"):
            path = f"/apis/coordination.k8s.io/v1/namespaces/{self._settings.namespace}/leases/{look.LEASE}"
            at = dt.datetime.fromtimestamp(now, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            self._kubernetes.patch(path, {"spec": {"renewTime": at}})
        if self._failed:
            raise RunFailed("; ".join(self._failed))

    def _annotate(self, node: str, annotations: Mapping[str, str | None], *, cordoned: bool | None) -> None:
        spec = {} if cordoned is None else {"spec": {"unschedulable": cordoned or None}}
        self._kubernetes.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": dict(annotations)}, **spec})

    @contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        """What fails inside is raised at the end of the run."""
        try:
            yield
        except (ClientError, BotoCoreError, OSError) as error:
            print(f"{what}: {error}")
            self._failed.append(f"{what}: {error}")


def _small(node: dict[str, Any]) -> dict[str, Any]:
    """A node without what is not needed: images, and who set which field."""
    metadata, status = node["metadata"], node.get("status", {})
    return {
        "metadata": {k: metadata[k] for k in ("name", "creationTimestamp", "annotations") if k in metadata},
        "spec": node["spec"],
        "status": {k: status[k] for k in ("conditions", "allocatable") if k in status},
    }
