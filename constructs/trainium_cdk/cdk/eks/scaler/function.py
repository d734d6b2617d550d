"""The function: reads the cluster and its node groups, decides, and applies the changes. It keeps no state between runs.

Environment: SETTINGS (`ScalerSettings` as JSON).

A node is removed in two runs: the first cordons it, and the next ends its instance, unless a pod was placed on it in the meantime.
What fails for one group, or for one object, stops nothing else; the run then ends as an error, for the alarm.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from . import after, aside, lines, observe
from .aws import NodeGroups
from .conditions import answer
from .kubernetes import Kubernetes
from .labels import BROKEN, LEASE, LEAVING
from .model import Answer, Group, Limits, NodeRequest, ScalingPlan
from .supply import decide

T = TypeVar("T")
_REQUESTS, _CLAIMS = "/apis/autoscaling.x-k8s.io/v1", "/apis/resource.k8s.io/v1"
_QUICK = Config(connect_timeout=5, read_timeout=15, retries={"mode": "standard", "total_max_attempts": 2})
"""A shortage of capacity is an error that boto3 tries again, but the next run comes soon enough."""
_FOR_GOOD = ("NoDevices", "NoNodeGroup", "TooLarge")
"""Answers that stay while nothing is changed: Kueue would ask again for ever, and stop others for it."""
_ON_NODES = "fieldSelector=spec.nodeName%21%3D"
_KUEUES = "labelSelector=kueue.x-k8s.io%2Fmanaged%3Dtrue"


class RunFailed(Exception):
    """Some groups or objects could not be read or changed. The others were."""


def handler(_event: object, _context: object) -> dict[str, Any]:
    """Entry point of AWS Lambda. What was done is printed for the log, and returned."""
    settings = ScalerSettings.read(os.environ["SETTINGS"])
    session = boto3.Session()
    client = functools.partial(session.client, config=_QUICK)
    cluster = client("eks").describe_cluster(name=settings.cluster)["cluster"]
    done = Supplier(settings, Kubernetes(cluster, session), client).run(time.time())
    return {"groups": {name: vars(change) for name, change in done.changes.items()}}


@dataclass(frozen=True)
class ScalerSettings:
    """Settings of the function, from the stack.

    Attributes:
        cluster: its name.
        namespace: of the jobs, which has the Lease that shows when the function ran last.
        resources: Kubernetes names of the resources that are counted, the devices first.
        label: the label that names a node's group.
        reserve: whether to reserve all new instances of a workload before they are started.
        metrics: whether to write metrics to the log.
        job_ends: whether to write a line for each job that has ended, and for each without progress.
        devices: `replace` a node with a broken device, or `tell`, which is EKS's node repair alone.
    """

    cluster: str
    namespace: str
    resources: tuple[str, ...]
    label: str
    reserve: bool
    limits: Limits
    groups: tuple[observe.GroupSettings, ...]
    metrics: bool = False
    job_ends: bool = False
    devices: str = "replace"

    @classmethod
    def read(cls, text: str) -> ScalerSettings:
        """Read the settings from JSON."""
        data = json.loads(text)
        groups = tuple(
            observe.GroupSettings(name, own, kind["type"], tuple(kind["resources"]), "claims" in kind, "share" in kind)
            for kind in data.pop("types")
            for name, own in kind["groups"].items()
        )
        limits, names = Limits(**data.pop("limits")), tuple(data.pop("resources"))
        return cls(**data, resources=names, limits=limits, groups=groups)


class Supplier:
    """One run over a cluster's node groups.

    Args:
        client: service name -> boto3 client.
    """

    def __init__(self, settings: ScalerSettings, kubernetes: Any, client: Any) -> None:
        self._settings, self._kubernetes = settings, kubernetes
        self._groups, self._failed = NodeGroups(settings.cluster, client), list[str]()

    def run(self, now: float) -> ScalingPlan:
        """Read, decide and apply: sizes first, then answers, then notes. Returns the decision.

        Raises:
            RunFailed: something could not be done.
        """
        settings, api = self._settings, self._kubernetes
        found, unknown = self._find()
        unready: dict[str, float] = {}
        labels = {name: observe.labels(one) for name, one in found.items()}
        # requests for groups that cannot be read now wait for them
        labels |= {name: {settings.label: name} for name in unknown}
        cluster = observe.ObservedCluster(
            settings.resources,
            labels,
            nodes=api.list("/api/v1/nodes"),
            pods=lines.noting(api.list("/api/v1/pods", _ON_NODES), unready),
            templates=api.list("/api/v1/podtemplates", _KUEUES),
            provisioning=api.list(f"{_REQUESTS}/provisioningrequests"),
            now=now,
            isolate=settings.devices == "replace",
            claims={group.name for group in settings.groups if group.claims},
            listed=lambda kind: api.list(f"{_CLAIMS}/{kind}"),
        )
        ids = [i["InstanceId"] for one in found.values() for i in one.scaling["Instances"]]
        new = [id for id in ids if id not in cluster.joined]
        launched = self._try("launch times", self._groups.launched, new) or {}
        made = (self._try("capacity reservations", self._groups.reserved) or {}) if settings.reserve else {}
        groups = {
            name: cluster.group(one, launched, made.get(name, []), atomic=settings.reserve)
            for name, one in found.items()
        }
        for each in cluster.unreadable:
            print(each)
            self._failed.append(each)
        usable = self._without_ending(groups, found, cluster)
        unknown |= {name: group.closed for name, group in groups.items() if name not in usable}
        plan = decide(usable.values(), cluster.requests, now, settings.limits)
        if settings.metrics:
            print(*lines.metrics(settings.cluster, groups.values(), cluster.requests, now), sep="\n")
        for name, change in plan.changes.items():
            ends = now + settings.limits.capacity
            what = f"node group {name}"
            if trouble := self._try(what, self._groups.change, groups[name], found[name], change, now, ends):
                groups[name] = replace(groups[name], trouble=trouble)
            for node in change.isolate:
                self._try(f"node {node}", self._annotate, node, {BROKEN: cluster.why(node)}, cordoned=True)
            for node in change.cordon:
                self._try(f"node {node}", self._annotate, node, {LEAVING: "true"}, cordoned=True)
            for node in change.uncordon:
                self._try(f"node {node}", self._annotate, node, {LEAVING: None}, cordoned=False)
        for name, one in found.items():
            self._try(f"tags of node group {name}", self._groups.keep_others_off, one)
        waiting = {r.key: r for r in cluster.requests if not r.provisioned}
        given = (plan, {name: groups[name] for name in usable}, unknown, now, settings.limits)
        told_of = {key: self._try(f"request {key}", answer, r, *given) for key, r in waiting.items()}
        answers = {key: told for key, told in told_of.items() if told}
        # those for good last: many of one team keep no other waiting
        for key, told in sorted(answers.items(), key=lambda one: one[1].reason in _FOR_GOOD):
            what = f"ProvisioningRequest {key}"
            if told.reason in _FOR_GOOD and not unknown:
                # not told too: Kueue's own change of the Workload would be in the way of this one, which no later run would repeat
                self._try(what, self._set_aside, cluster.provisioning[key], told.message, now)
            else:
                self._try(what, self._tell, cluster.provisioning[key], told, now)
        for node, notes in cluster.marks(groups.values()).items():
            self._try(f"node {node}", self._annotate, node, notes)
        released = self._try("JobSets after a Job", after.release, api, now, self._try) or {}
        released |= self._try("Workloads to set aside", aside.set_aside, api, set(labels), now, self._try) or {}
        inside = functools.cache(functools.partial(aside.inside, api))
        for r in cluster.requests:
            if r.provisioned and (r.without_pods_since or not r.holds):
                what = f"pods of ProvisioningRequest {r.key}"
                self._try(what, self._look_for_pods, cluster.provisioning[r.key], r, now, inside)
        changes = {name: {k: v for k, v in vars(change).items() if v} for name, change in plan.changes.items()}
        jobs = {key: each.message for key, each in answers.items()} | released
        if changes or jobs:
            print(json.dumps({"groups": changes, "jobs": jobs}))
        if settings.job_ends:
            self._try("JobSets that have ended", self._tell_ends, now, unready)
        self._try("Lease trn-scaler", self._renew, now)
        if self._failed:
            raise RunFailed("; ".join(self._failed))
        return plan

    def _without_ending(
        self, groups: Mapping[str, Group], found: Mapping[str, observe.DescribedGroup], cluster: observe.ObservedCluster
    ) -> dict[str, Group]:
        """The groups without those whose capacity block ends soon. Their jobs are set aside until it has ended: Kueue ends their pods, which
        save, and counts no restart. EKS itself ends the nodes."""
        usable = dict(groups)
        for name, group in groups.items():
            block = found[name].reservation
            if not (block and group.closed and block["State"] == "active"):
                continue
            del usable[name]
            for key in {key for node in group.nodes for key in node.holders} & cluster.provisioning.keys():
                since = block["EndDate"].timestamp() - aside.AGAIN
                self._try(f"jobs in {name}", self._set_aside, cluster.provisioning[key], group.closed, since)
        return usable

    def _find(self) -> tuple[dict[str, observe.DescribedGroup], dict[str, str]]:
        """The groups that could be read, and why the others could not."""
        found: dict[str, observe.DescribedGroup] = {}
        unknown: dict[str, str] = {}
        for group in self._settings.groups:
            try:
                found[group.name] = self._groups.find(group)
            except LookupError as error:  # while a stack is deployed
                unknown[group.name] = str(error)
            except (ClientError, BotoCoreError) as error:
                unknown[group.name] = f"node group {group.name} cannot be read: {error}"
                self._failed.append(unknown[group.name])
        return found, unknown

    def _tell(self, request: Mapping[str, Any], response: Answer, now: float) -> None:
        if status := observe.status(response, request.get("status", {}), now):
            self._patch_status(request, status)

    def _look_for_pods(self, request: Mapping[str, Any], known: NodeRequest, now: float, inside: Any) -> None:
        limit, since = self._settings.limits.without_pods, known.without_pods_since
        new = 0 if known.holds else aside.without_pods(self._kubernetes, dict(request), since, now, limit, inside)
        if new != since:
            details = {observe.WITHOUT_PODS_SINCE: str(int(new)) if new else ""}
            self._patch_status(request, {"provisioningClassDetails": details})

    def _patch_status(self, request: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        namespace, name = observe.key(request).split("/")
        path = f"{_REQUESTS}/namespaces/{namespace}/provisioningrequests/{name}/status"
        self._kubernetes.patch(path, {"status": status})

    def _set_aside(self, request: Mapping[str, Any], why: str, now: float) -> None:
        namespace, name = observe.workload(request).split("/")
        found = self._kubernetes.list(
            f"{aside.KUEUE}/namespaces/{namespace}/workloads", f"fieldSelector=metadata.name%3D{name}"
        )
        for workload in found:
            if workload["spec"].get("active") is not False:
                aside.put_aside(self._kubernetes, workload, why, now)

    def _annotate(self, node: str, annotations: Mapping[str, str | None], *, cordoned: bool | None = None) -> None:
        spec = {} if cordoned is None else {"spec": {"unschedulable": cordoned or None}}
        self._kubernetes.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": dict(annotations)}, **spec})

    def _tell_ends(self, now: float, unready: Mapping[str, float]) -> None:
        last = (self._kubernetes.get(self._lease) or {}).get("spec", {}).get("renewTime")
        since = observe.seconds(last) if last else now
        for line in lines.ended(self._kubernetes, self._settings.cluster, since, now, unready):
            print(line)

    @property
    def _lease(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._settings.namespace}/leases/{LEASE}"

    def _renew(self, now: float) -> None:
        at = dt.datetime.fromtimestamp(now, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self._kubernetes.patch(self._lease, {"spec": {"renewTime": at}})

    def _try(self, what: str, call: Callable[..., T], *given: Any, **options: Any) -> T | None:
        """Call a function and return its result; None if it fails. A failure ends the run as an error when all else is done."""
        try:
            return call(*given, **options)
        except Exception as error:  # of an object that somebody wrote
            print(f"{what}: {error!s:.1000}")
            self._failed.append(f"{what}: {error!s:.1000}")
            return None
