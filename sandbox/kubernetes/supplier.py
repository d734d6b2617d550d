"""What the node scaler's function does for jobs, on nodes that are always there: it answers Kueue's ProvisioningRequests, and lets jobs
enter their queue after `prepare`. For clusters without node groups; where there are some, the deployed function runs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

from sandbox.kubernetes.api import Api, ApiError, Object
from sandbox.kubernetes.cluster import LocalKubernetes
from trainium_cdk.cdk.eks.kueue import PROVISIONING_CLASS
from trainium_cdk.cdk.eks.scaler import after, aside
from trainium_cdk.description.outputs import GROUP_LABEL

_REQUESTS = "/apis/autoscaling.x-k8s.io/v1"


class Kubernetes:
    """The sandbox's client with the methods of the function's."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def list(self, path: str, select: str = "") -> list[Object]:
        return list(self.api.get(path, **dict(parse_qsl(select)))["items"])

    def patch(self, path: str, body: Object) -> None:
        self.api.call("PATCH", path, body, kind="application/merge-patch+json")

    def create(self, path: str, body: Object) -> None:
        self.api.call("POST", path, body)


@contextlib.contextmanager
def supplying(cluster: LocalKubernetes) -> Iterator[None]:
    """Answer every 0.3 s, until the end of this context."""
    ended = threading.Event()
    kubernetes = Kubernetes(cluster.api())

    def run() -> None:
        while not ended.wait(0.3):
            with contextlib.suppress(ApiError, OSError):
                after.release(kubernetes, time.time())
                groups = {node["metadata"]["labels"].get(GROUP_LABEL, "") for node in kubernetes.list("/api/v1/nodes")}
                aside.set_aside(kubernetes, groups - {""}, time.time(), lambda _, call, *given: call(*given))
                answer(kubernetes)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def answer(kubernetes: Kubernetes) -> None:
    """Provisioned, once there are as many nodes in the group as there are pods; until then how many are missing."""
    nodes = kubernetes.list("/api/v1/nodes")
    for request in kubernetes.list(f"{_REQUESTS}/provisioningrequests"):
        there = {c["type"]: c for c in request.get("status", {}).get("conditions", [])}
        if (
            request["spec"]["provisioningClassName"] != PROVISIONING_CLASS
            or there.get("Provisioned", {}).get("status") == "True"
        ):
            continue
        metadata = request["metadata"]
        wanted: Counter[str] = Counter()
        for pods in request["spec"]["podSets"]:
            path = f"/api/v1/namespaces/{metadata['namespace']}/podtemplates/{pods['podTemplateRef']['name']}"
            wanted[kubernetes.api.get(path)["template"]["spec"]["nodeSelector"][GROUP_LABEL]] += pods["count"]
        missing = wanted - Counter(node["metadata"]["labels"].get(GROUP_LABEL) for node in nodes)
        lacks = ", ".join(f"{count} nodes of {group}" for group, count in (missing or wanted).items())
        message = f"waits for {lacks}" if missing else f"{lacks} are there"
        if there.get("Provisioned", {}).get("message") != message:
            kubernetes.patch(
                f"{_REQUESTS}/namespaces/{metadata['namespace']}/provisioningrequests/{metadata['name']}/status",
                {
                    "status": {
                        "conditions": [_condition("Accepted", True), _condition("Provisioned", not missing, message)]
                    }
                },
            )


def _condition(kind: str, true: bool, message: str = "") -> dict[str, Any]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    status = "True" if true else "False"
    return {"type": kind, "status": status, "reason": kind, "message": message, "lastTransitionTime": now}
