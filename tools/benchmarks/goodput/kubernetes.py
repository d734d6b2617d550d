"""A real API server with Kueue and JobSet on this machine."""

from __future__ import annotations

import calendar
import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3

from sandbox import LocalAws
from sandbox.kubernetes.api import path_of
from tests.jobs.kubernetes.conftest import NODES, Running, serving
from tools.benchmarks.goodput.figure import Fault
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, kubernetes_api, parts
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import GROUP_LABEL, ROLE_LABEL
from trainium_cdk.jobs import Script
from trainium_cdk.runner.spec import HealthRules


class Kubernetes:
    """Of `NODES` nodes."""

    name, inside = "eks", "/efs"

    def __init__(self, running: Running) -> None:
        self._running = running
        self._backend = KubernetesBackend(running.cluster, lambda: kubernetes_api(running.cluster))
        self.place = running.shared
        self.place.mkdir(parents=True, exist_ok=True)

    def send(self, job: Script, rules: HealthRules) -> str:
        made = self._backend.render(job.model_copy(update={"restarts": 20}))
        spec = dataclasses.replace(made.spec, health=rules)
        return self._backend.send(dataclasses.replace(made, spec=spec))[0].id

    def has_ended(self, id: str) -> bool:
        return self._backend.status(id).done

    def hangs(self, id: str) -> bool:
        return bool(self._backend.status(id, progress=True).findings)

    def cancel(self, id: str) -> None:
        self._backend.cancel(id)
        until = time.monotonic() + 120
        while self._pods(id) and time.monotonic() < until:
            time.sleep(0.2)

    def lose(self, id: str, fault: Fault, goes_on: Callable[[], bool]) -> float:
        """The node leaves the cluster, as after the end of its instance. Its pod is deleted, for which Kubernetes itself would wait."""
        [pod] = [one for one in self._pods(id) if one["metadata"]["labels"].get(parts.INDEX_LABEL) == str(fault.node)]
        kubernetes = self._running.kubernetes
        kubernetes.remove_node(pod["spec"]["nodeName"])
        labels = {GROUP_LABEL: "trn", ROLE_LABEL: "training"}
        self._backend.api.delete("Pod", pod["metadata"]["name"], uid=pod["metadata"]["uid"])
        kubernetes.add_nodes(Catalog.load().instance("trn1.32xlarge"), 1, zone="us-east-1b", labels=labels)
        until = time.monotonic() + 300
        while not goes_on():
            if time.monotonic() > until:
                raise TimeoutError(f"JobSet does not begin {id} again")
            time.sleep(0.2)
        made = max(one["metadata"]["creationTimestamp"] for one in self._pods(id))
        return calendar.timegm(time.strptime(made, "%Y-%m-%dT%H:%M:%SZ"))

    def _pods(self, id: str) -> list[dict[str, Any]]:
        selector = f"{parts.JOB_LABEL}={parts.object_name(id)}"
        path = path_of("v1", "Pod", namespace="training")
        every = self._running.kubernetes.api().get(path, labelSelector=selector)["items"]
        return [one for one in every if one["status"].get("phase") in ("Pending", "Running")]


@contextlib.contextmanager
def kubernetes(folder: Path) -> Iterator[Kubernetes]:
    """Its own cluster, behind its own local AWS."""
    with LocalAws.start() as aws:
        aws.bootstrap()
        with serving(folder, aws) as running:
            before = dict(os.environ)
            boto3.DEFAULT_SESSION = None
            os.environ.update(running.variables)
            try:
                yield Kubernetes(running)
            finally:
                os.environ.clear()
                os.environ.update(before)
                boto3.DEFAULT_SESSION = None


__all__ = ["NODES", "Kubernetes", "kubernetes"]
