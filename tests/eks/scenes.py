"""A cluster in the local AWS with a real API server, Kueue and JobSet under the deployed configuration, whose nodes the stack's function
alone starts and stops.

Time is simulated for the function, in minutes that pass immediately. What the real components do between two minutes is awaited by its
result.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

import boto3
import pytest

from sandbox import LocalAws
from sandbox.kubernetes import LocalKubernetes, eks
from sandbox.kubernetes.api import Api, Object, path_of
from tests.support import until
from trainium_cdk import settings
from trainium_cdk.cdk.eks import manifests
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.cdk.eks.kueue import API as KUEUE
from trainium_cdk.cdk.eks.kueue import CHECK, priority_class
from trainium_cdk.cdk.eks.scaler.function import Kubernetes, RunFailed, ScalerSettings, Supplier
from trainium_cdk.cdk.eks.scaler.model import Limits, ScalingPlan
from trainium_cdk.cdk.eks.scaler.observe import GroupSettings
from trainium_cdk.client.jobs.kubernetes.reasons import aside
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import GROUP_LABEL, ROLE_LABEL, Fleet
from trainium_cdk.description.outputs.eks import DEVICES_LABEL

NAME = "scenes"
LIMITS = Limits()
TRN1 = Catalog.load().instance("trn1.32xlarge")
NAMESPACE, QUEUE = "training", "trn"
NEURON, EFA = "aws.amazon.com/neuron", "vpc.amazonaws.com/efa"
JOB_SETS, PODS = (
    path_of("jobset.x-k8s.io/v1alpha2", "JobSet", namespace=NAMESPACE),
    path_of("v1", "Pod", namespace=NAMESPACE),
)
SLACK = 180
"""Seconds beyond the stated ones: a run that sees a node idle, one that cordons it, one that ends it."""
ENDS, FAILS = {"sandbox/ends-after": "0s"}, {"sandbox/ends-after": "0s", "sandbox/exit-code": "1"}
MERGE = "application/merge-patch+json"


def pod(devices: int, **spec: Any) -> Object:
    """A pod's template; without devices for 0."""
    wanted = {NEURON: str(devices)} if devices else {}
    container = {"name": "c", "image": "x:1", "command": ["true"], "resources": {"limits": wanted, "requests": wanted}}
    return {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def job(nodes: int, template: Object) -> Object:
    indexed = {"parallelism": nodes, "completions": nodes, "completionMode": "Indexed", "backoffLimit": 0}
    return {**indexed, "template": template}


def thing(version: str, kind: str, name: str, labels: dict[str, str] | None = None, **more: Any) -> Object:
    """An object in the jobs' namespace."""
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels or {}},
        **more,
    }


def jobset(name: str, jobs: dict[str, Object], priority: str = "", queue: str = QUEUE) -> Object:
    """A JobSet of a user's own, with no trace of `trn`."""
    labels = {"kueue.x-k8s.io/queue-name": queue}
    if priority:
        labels["kueue.x-k8s.io/priority-class"] = priority_class(priority)
    parts = [{"name": part, "replicas": 1, "template": {"spec": spec}} for part, spec in jobs.items()]
    spec = {"failurePolicy": {"maxRestarts": 3}, "replicatedJobs": parts}
    return thing("jobset.x-k8s.io/v1alpha2", "JobSet", name, labels, spec=spec)


class Scene:
    """One node group, empty at first: of trn1.32xlarge, whose pods request devices. `fleet`: another one."""

    def __init__(
        self,
        name: str,
        maximum: int,
        kubernetes: LocalKubernetes,
        aws: LocalAws,
        session: boto3.Session,
        *,
        fleet: Fleet | None = None,
        **group: Any,
    ) -> None:
        self.name, self.now, self.devices = name, float(int(time.time())), True
        of = Catalog.load().instance(fleet.instance_type) if fleet else TRN1
        self.instance_type, self.queue = of, fleet.queue if fleet else QUEUE
        claims, share = (fleet.claims, fleet.share) if fleet else (False, False)
        self.kubernetes, self.aws = kubernetes, aws
        self._made: list[str] = []
        self.deleted: set[str] = set()
        self.most = 0
        self.nodes: list[str] = []
        self.eks, self.scaling, self.api = aws.client("eks"), aws.client("autoscaling"), kubernetes.api()
        [subnet, *_] = aws.client("ec2").describe_subnets()["Subnets"]
        kind = {} if "launchTemplate" in group else {"instanceTypes": [of.name]}
        self.eks.create_nodegroup(
            clusterName=kubernetes.name,
            nodegroupName=name,
            subnets=[subnet["SubnetId"]],
            nodeRole="arn:aws:iam::000000000000:role/nodes",
            scalingConfig={"minSize": 0, "maxSize": maximum, "desiredSize": 0},
            labels={GROUP_LABEL: self.queue, ROLE_LABEL: "training", **({DEVICES_LABEL: "claims"} if claims else {})},
            taints=[{"key": "aws.amazon.com/neuron", "value": "true", "effect": "NO_SCHEDULE"}],
            **kind,
            **group,
        )
        mine = GroupSettings(self.queue, name, of.name, (of.neuron_devices, of.efa_interfaces), claims, share)
        self.settings = ScalerSettings(kubernetes.name, NAMESPACE, (NEURON, EFA), GROUP_LABEL, True, LIMITS, (mine,))
        self._session = session

    # --- time ---

    def supplier(self) -> Supplier:
        described = self.eks.describe_cluster(name=self.kubernetes.name)["cluster"]
        return Supplier(self.settings, Kubernetes(described, self._session), self.aws.client)

    def minute(self, *, fails: str = "") -> ScalingPlan | None:
        """One run of the function, and what AWS makes of it; then a minute later.

        Args:
            fails: what the run ends with, after it has done everything else. Default: it succeeds.
        """
        plan = None
        if fails:
            with pytest.raises(RunFailed, match=re.escape(fails)):
                self.supplier().run(self.now)
        else:
            plan = self.supplier().run(self.now)
        self.sync()
        self.now += 60
        return plan

    def sync(self) -> None:
        """Nodes for the instances that there are now."""
        given: Any = {"devices": self.devices, "absent": self.deleted}
        self.nodes = eks.sync_nodes(self.kubernetes, self.aws.client, **given)[self.name]
        self.most = max(self.most, len(self.nodes))

    def minutes(self, count: int) -> list[ScalingPlan]:
        return [plan for _ in range(count) if (plan := self.minute()) is not None]

    def settled(self) -> None:
        """Nothing changes in three minutes."""
        assert not any(plan.changes for plan in self.minutes(3))

    def until_gone(self) -> float:
        """Minutes pass until no node is there; the seconds."""
        began = self.now
        while self.nodes:
            self.minute()
        return self.now - began

    # --- jobs ---

    def create(self, body: Object) -> None:
        self.api.create(body)
        self._made.append(path_of(body["apiVersion"], body["kind"], body["metadata"]["name"], NAMESPACE))

    def submit(
        self, name: str, nodes: int, priority: str = "", devices: int = TRN1.neuron_devices, **spec: Any
    ) -> None:
        """A JobSet; Kueue has seen it when this returns."""
        self.create(jobset(name, {"train": job(nodes, pod(devices, **spec))}, priority, self.queue))
        assert until(lambda: self.workload(name))
        next_second()

    def pods(self, name: str) -> list[Object]:
        """Of a JobSet; or those that a label selects."""
        listed = self.api.get(PODS, labelSelector=name if "=" in name else f"jobset.sigs.k8s.io/jobset-name={name}")
        return [p for p in listed["items"] if not p["metadata"].get("deletionTimestamp")]

    def workload(self, name: str) -> Object | None:
        found = self.api.get(path_of(KUEUE, "Workload", namespace=NAMESPACE))["items"]
        return next((w for w in found if w["metadata"]["ownerReferences"][0]["name"] == name), None)

    def is_(self, name: str, condition: str) -> bool:
        conditions = (self.workload(name) or {}).get("status", {}).get("conditions", [])
        return any(c["type"] == condition and c["status"] == "True" for c in conditions)

    def why(self, name: str) -> str:
        """What its Workload says about its nodes. Kueue does not always copy the reason of one that is set aside."""
        workload = self.workload(name)
        status = (workload or {}).get("status", {})
        evicted = [c for c in status.get("conditions", []) if c["type"] == "Evicted"]
        told = [s.get("message", "") for s in [*status.get("admissionChecks", []), *evicted]]
        if why := aside(workload):
            told.append(why)
        return "; ".join(told)

    def asks(self, name: str) -> None:
        """Waits until Kueue has asked for the job's nodes."""
        paths = path_of("autoscaling.x-k8s.io/v1", "ProvisioningRequest", namespace=NAMESPACE)
        workload = (self.workload(name) or {})["metadata"]["name"]

        def asked() -> bool:
            found = [r for r in self.api.get(paths)["items"] if r["metadata"]["name"].startswith(f"{workload}-")]
            return any(not any(c["type"] == "Failed" for c in r.get("status", {}).get("conditions", [])) for r in found)

        assert until(asked), self.workload(name)

    def phases(self, name: str) -> list[str]:
        return sorted(p["status"].get("phase", "") for p in self.pods(name))

    def running_on(self, name: str) -> set[str]:
        """The nodes of its pods that run."""
        return {p["spec"]["nodeName"] for p in self.pods(name) if p["status"].get("phase") == "Running"}

    def running(self, name: str, nodes: int) -> set[str]:
        """Waits until all its pods run; their nodes."""
        assert until(lambda: self.phases(name) == ["Running"] * nodes), self.kubernetes.kubectl(
            "get", "pods,nodes,workloads,provisioningrequests", "-A", "-o", "wide"
        ).stdout
        return self.running_on(name)

    def runs(self, name: str, nodes: int) -> set[str]:
        """The function starts the nodes, and the job runs on them, in two minutes; its nodes."""
        self.asks(name)
        self.minutes(2)
        return self.running(name, nodes)

    def end_pod(self, found: Object, how: Object = ENDS) -> None:
        self.api.call("PATCH", f"{PODS}/{found['metadata']['name']}", {"metadata": {"annotations": how}}, kind=MERGE)

    def end(self, name: str) -> None:
        """The job's commands end well."""
        for each in self.pods(name):
            self.end_pod(each)
        assert until(lambda: self.is_(name, "Finished"))

    def cancel(self, name: str) -> None:
        self.api.delete(f"{JOB_SETS}/{name}", propagationPolicy="Foreground")
        assert until(lambda: not self.workload(name) and not self.pods(name))

    # --- AWS and nodes ---

    @property
    def asg(self) -> Object:
        described = self.eks.describe_nodegroup(clusterName=self.kubernetes.name, nodegroupName=self.name)["nodegroup"]
        name = described["resources"]["autoScalingGroups"][0]["name"]
        [found] = self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return dict(found)

    @property
    def desired(self) -> int:
        return int(self.asg["DesiredCapacity"])

    def instances(self, *, protected: bool = False) -> set[str]:
        return {i["InstanceId"] for i in self.asg["Instances"] if i["ProtectedFromScaleIn"] or not protected}

    def instance(self, node: str) -> str:
        provider: str = self.api.get(path_of("v1", "Node", node))["spec"]["providerID"]
        return provider.rpartition("/")[2]

    def lose(self, node: str) -> None:
        """AWS ends the node's instance, and its group starts another one. Kubernetes removes the node and its pods."""
        self.scaling.terminate_instance_in_auto_scaling_group(
            InstanceId=self.instance(node), ShouldDecrementDesiredCapacity=False
        )
        self.sync()
        self._collect(node)

    def delete_node(self, node: str) -> None:
        """`kubectl delete node`: its instance runs, and its kubelet does not join again."""
        self.deleted.add(self.instance(node))
        self.sync()
        self._collect(node)

    def _collect(self, node: str) -> None:
        for each in self.api.get(PODS, fieldSelector=f"spec.nodeName={node}")["items"]:  # pod GC, which waits for 40 s
            self.api.delete(f"{PODS}/{each['metadata']['name']}", gracePeriodSeconds=0)

    def file(self, name: str, content: object) -> None:
        """A file with which the local AWS is changed; None removes it."""
        path = self.aws.directory / name
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(json.dumps(content))

    def capacity(self, nodes: int | None) -> None:
        """How many instances AWS has; None for no limit."""
        self.file("capacity.json", None if nodes is None else {TRN1.name: nodes})

    def retry_after_seconds(self, seconds: int) -> None:
        """How long Kueue waits before it asks again; the deployed time is half an hour, of the real clock."""
        path = path_of(KUEUE, "ProvisioningRequestConfig", CHECK)
        strategy = {
            **(self.api.get(path)["spec"].get("retryStrategy") or {}),
            "backoffBaseSeconds": seconds,
            "backoffMaxSeconds": seconds,
        }
        self.api.call("PATCH", path, {"spec": {"retryStrategy": strategy}}, kind=MERGE)

    def reserved(self) -> list[Object]:
        """The function's reservations that have not been cancelled."""
        filters = [
            {"Name": "tag:trainium-cdk:cluster", "Values": [self.kubernetes.name]},
            {"Name": "state", "Values": ["active"]},
        ]
        return list(self.aws.client("ec2").describe_capacity_reservations(Filters=filters)["CapacityReservations"])

    def close(self) -> None:
        for name in ("capacity.json", "unreservable.json", "reservations.json", "nodegroups.json"):
            self.file(name, None)
        for path in self._made:
            self.api.delete(path, propagationPolicy="Foreground")
        everything = path_of(KUEUE, "Workload", namespace=NAMESPACE)
        assert until(lambda: not self.api.get(PODS)["items"] and not self.api.get(everything)["items"])
        assert until(lambda: not any(map(self.api.exists, self._made)))  # the next scene gives the same names
        self.eks.delete_nodegroup(clusterName=self.kubernetes.name, nodegroupName=self.name)
        eks.sync_nodes(self.kubernetes, self.aws.client)


def next_second() -> None:
    """Kueue orders jobs by their time of creation, which has whole seconds, and those of one second by their UIDs."""
    time.sleep(1.05 - time.time() % 1)


def member_of(scene: Scene) -> Api:
    """The API as somebody with `edit` in the jobs' namespace, and no right beyond it."""
    return scene.kubernetes.api(token_of_member(scene))


def token_of_member(scene: Scene) -> str:
    """A token of such a member."""
    rbac = "rbac.authorization.k8s.io/v1"
    who = {"kind": "ServiceAccount", "name": "member", "namespace": NAMESPACE}
    scene.api.apply(thing("v1", "ServiceAccount", "member"))
    for each in manifests.access(Installation.of(settings.load())):
        scene.api.apply(each)
    for role in ("edit", "trn-edit"):
        bound = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}}
        scene.api.apply(thing(rbac, "RoleBinding", f"member-{role}", subjects=[who], **bound))
    made = scene.kubernetes.kubectl("create", "token", "member", "-n", NAMESPACE)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()
