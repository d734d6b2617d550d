"""A cluster in the local AWS with a real API server and a real Volcano, whose nodes are started and stopped by the scaler alone.

Time is simulated, in minutes that pass immediately. What the real components do between two minutes is awaited by
its result.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3

from sandbox import LocalAws, processes
from sandbox.kubernetes import LocalKubernetes, eks
from sandbox.kubernetes.api import Object, path_of
from trainium_cdk.catalog import Catalog
from trainium_cdk.eks.scaler.decide import Limits, Plan
from trainium_cdk.eks.scaler.function import Kubernetes, Scaler, Settings
from trainium_cdk.eks.scaler.look import GroupSettings
from trainium_cdk.jobs import Script
from trainium_cdk.jobs.kubernetes import status
from trainium_cdk.jobs.kubernetes.render import render
from trainium_cdk.outputs import GROUP_LABEL, ROLE_LABEL, EksCluster

LIMITS = Limits()
TRN1 = Catalog.load().instance("trn1.32xlarge")
JOBS, GROUPS, NAMESPACE = "batch.volcano.sh/v1alpha1", "scheduling.volcano.sh/v1beta1", "training"
ENDS = {"metadata": {"annotations": {"sandbox/ends-after": "0s"}}}
SLACK = 180
"""Seconds beyond the stated ones: a run that sees a node idle, one that cordons it, one that ends it."""


class Scene:
    """One node group of trn1.32xlarge, empty at first."""

    def __init__(
        self,
        name: str,
        maximum: int,
        kubernetes: LocalKubernetes,
        aws: LocalAws,
        cluster: EksCluster,
        session: boto3.Session,
    ) -> None:
        self.name, self.now, self.devices = name, float(int(time.time())), True
        self._kubernetes, self._aws, self._cluster = kubernetes, aws, cluster
        self._idle: dict[str, float] = {}
        self._ids: dict[str, str] = {}
        self._made: list[str] = []
        self.most = 0
        self.eks, self.api = aws.client("eks"), kubernetes.api()
        [subnet, *_] = aws.client("ec2").describe_subnets()["Subnets"]
        self.eks.create_nodegroup(
            clusterName=kubernetes.name,
            nodegroupName=name,
            subnets=[subnet["SubnetId"]],
            nodeRole="arn:aws:iam::000000000000:role/nodes",
            scalingConfig={"minSize": 0, "maxSize": maximum, "desiredSize": 0},
            instanceTypes=[TRN1.name],
            labels={GROUP_LABEL: "trn", ROLE_LABEL: "training"},
            taints=[{"key": "aws.amazon.com/neuron", "value": "true", "effect": "NO_SCHEDULE"}],
        )
        group = GroupSettings("trn", name, TRN1.name, TRN1.neuron_devices)
        self.settings = Settings(kubernetes.name, "aws.amazon.com/neuron", GROUP_LABEL, LIMITS, (group,))
        self._session = session

    def minute(self) -> Plan:
        """One run of the scaler, and what AWS makes of it; then a minute later. No node may be idle for longer than is stated."""
        described = self.eks.describe_cluster(name=self._kubernetes.name)["cluster"]
        plan = Scaler(self.settings, Kubernetes(described, self._session), self._aws.client).run(self.now)
        self.nodes = eks.sync_nodes(self._kubernetes, self._aws.client, devices=self.devices)[self.name]
        self.most = max(self.most, len(self.nodes))
        pods = self.pods()
        works = {self._job_of(pod) for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")}
        busy = {pod["spec"].get("nodeName") for pod in pods if self._job_of(pod) in works}
        self._idle = {node: self._idle.get(node, self.now) for node in self.nodes if node not in busy}
        waits = any(status.phase(job) == "Pending" for job in self.jobs())
        most = LIMITS.idle + SLACK + (LIMITS.capacity if waits else 0)
        assert all(self.now - since <= most for since in self._idle.values()), (
            f"idle nodes bill in silence: {self._idle}"
        )
        self.now += 60
        return plan

    def submit(self, name: str, nodes: int) -> None:
        """A job as `trn submit` sends it; its pods are there when this returns."""
        job = Script(filename="run.sh", content=b"true\n", nodes=nodes, name=name, image="registry.example/train:1")
        sent = render(job, self._cluster, self.name)
        for thing in sent.objects:
            self.api.create(thing)
            self._made.append(path_of(thing["apiVersion"], thing["kind"], thing["metadata"]["name"], NAMESPACE))
        self._ids[name] = sent.id
        assert until(lambda: len(self.pods(name)) == nodes)

    def pods(self, name: str = "") -> list[Object]:
        chosen = f"volcano.sh/job-name={self._ids[name]}" if name else "volcano.sh/job-name"
        listed = self.api.get(path_of("v1", "Pod", namespace=NAMESPACE), labelSelector=chosen)
        return list(listed["items"])

    def _job_of(self, pod: Object) -> str:
        return str(pod["metadata"]["labels"]["volcano.sh/job-name"])

    def jobs(self) -> list[Object]:
        return list(self.api.get(path_of(JOBS, "Job", namespace=NAMESPACE))["items"])

    def job(self, name: str) -> Object:
        found: Object = self.api.get(path_of(JOBS, "Job", self._ids[name], NAMESPACE))
        return found

    def runs(self, name: str) -> set[str]:
        """Waits until the job runs; its nodes. It has not been started twice."""
        assert until(lambda: status.phase(self.job(name)) == "Running"), self._kubernetes.kubectl(
            "get", "pods,nodes", "-A"
        ).stdout
        assert not self.job(name)["status"].get("retryCount")
        return {pod["spec"]["nodeName"] for pod in self.pods(name)}

    def end_pod(self, pod: Object) -> None:
        """The command of one pod ends well."""
        path = path_of("v1", "Pod", pod["metadata"]["name"], NAMESPACE)
        self.api.call("PATCH", path, ENDS, kind="application/merge-patch+json")

    def end(self, name: str) -> None:
        """The job's commands end well."""
        for pod in self.pods(name):
            self.end_pod(pod)
        assert until(lambda: status.phase(self.job(name)) == "Completed")

    def why(self, name: str) -> str:
        """What `trn status` reports about the job."""
        job = self.job(name)
        group = self.api.get(path_of(GROUPS, "PodGroup", f"{self._ids[name]}-{job['metadata']['uid']}", NAMESPACE))
        seen = status.Seen(job, self.pods(name), group, (), None)
        return status.status(seen).stages[-1].reason

    def minutes(self, count: int) -> list[Plan]:
        return [self.minute() for _ in range(count)]

    def until_gone(self) -> float:
        """Minutes pass until no node is there; how many."""
        began = self.now
        while self.nodes:
            self.minute()
        return (self.now - began) / 60

    @property
    def desired(self) -> int:
        found = self.eks.describe_nodegroup(clusterName=self._kubernetes.name, nodegroupName=self.name)["nodegroup"]
        return int(found["scalingConfig"]["desiredSize"])

    def capacity(self, nodes: int | None) -> None:
        """How many instances AWS has; None for no limit."""
        file: Path = self._aws.directory / "capacity.json"
        if nodes is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(json.dumps({TRN1.name: nodes}))

    def announce_devices(self) -> None:
        self._kubernetes.announce_devices(TRN1, self.nodes)

    def close(self) -> None:
        self.capacity(None)
        for path in self._made:
            self.api.delete(path, propagationPolicy="Foreground")
        assert until(lambda: not self.pods())
        self.eks.delete_nodegroup(clusterName=self._kubernetes.name, nodegroupName=self.name)
        eks.sync_nodes(self._kubernetes, self._aws.client)


def until(found: Callable[[], Any]) -> bool:
    return processes.wait_until(lambda: bool(found()), 600, pause=0.1)
