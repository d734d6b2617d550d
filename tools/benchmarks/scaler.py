"""Memory of the function that supplies EKS nodes in a large cluster.

Its own code and HTTP client, in its own process with boto3 and the clients that it makes, against a server with 500 nodes in 50
groups, 6,000 pods, 100 live jobs and 1,000 that wait, each of them with a request for nodes: in a cluster only those have one for which
Kueue holds quota. The objects have the size of real ones, with a third of it for who has set which field. AWS answers at once.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
import json
import multiprocessing
import resource
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

GROUPS, NODES, PODS, LIVE, WAITING = 50, 500, 6000, 100, 1000
MEMORY_MB = 512
"""The function's limit."""
_EACH = NODES // GROUPS
_FILL = [{"manager": "kubelet", "operation": "Update", "fieldsV1": {f"f:{i}": {"f:name": {}} for i in range(300)}}]
_TEMPLATE_KB, _POD_KB = 10, 22
_DEVICE = "aws.amazon.com/neuron"


def pod_spec(kilobytes: int, **more: Any) -> dict[str, Any]:
    env = [{"name": f"NAME_{i}", "value": "v" * 100} for i in range(kilobytes * 5)]
    return {
        "containers": [{"name": "train", "image": "x", "env": env, "resources": {"limits": {_DEVICE: "16"}}}],
        **more,
    }


def metadata(name: str, number: int, **more: Any) -> dict[str, Any]:
    at = dt.datetime.fromtimestamp(1_780_000_000 + number, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"name": name, "namespace": "training", "creationTimestamp": at, "managedFields": _FILL, **more}


def node(i: int) -> dict[str, Any]:
    ready = [{"type": "Ready", "status": "True"}]
    images = [{"names": [f"registry.example/{n}@sha256:{'0' * 64}"], "sizeBytes": n} for n in range(50)]
    status = {"conditions": ready, "allocatable": {_DEVICE: "16", "vpc.amazonaws.com/efa": "8"}, "images": images}
    return {"metadata": metadata(f"n{i}", i), "spec": {"providerID": f"aws:///a/i-{i}"}, "status": status}


def pod(i: int) -> dict[str, Any]:
    """The first run on a node each, five of a live job; the others have ended."""
    live = i < NODES
    notes = {"autoscaling.x-k8s.io/consume-provisioning-request": f"r{i % LIVE}"} if live else {}
    phase = {"phase": "Running" if live else "Succeeded"}
    return {
        "metadata": metadata(f"p{i}", i, annotations=notes),
        "spec": pod_spec(_POD_KB - 5, nodeName=f"n{i % NODES}"),
        "status": phase,
    }


def template(i: int) -> dict[str, Any]:
    selector = {"trainium-cdk/node-group": f"g{i % GROUPS}"}
    return {
        "metadata": metadata(f"t{i}", i),
        "template": {"spec": pod_spec(_TEMPLATE_KB - 5, nodeSelector=selector)},
    }


def request(i: int) -> dict[str, Any]:
    sets = [{"count": NODES // LIVE if i < LIVE else 8, "podTemplateRef": {"name": f"t{i}"}}]
    true = [{"type": kind, "status": "True"} for kind in ("Accepted", "Provisioned")] if i < LIVE else []
    spec = {"provisioningClassName": "node-group.trainium-cdk", "podSets": sets}
    return {"metadata": metadata(f"r{i}", i), "spec": spec, "status": {"conditions": true}}


_LISTS = {"nodes": (node, NODES), "pods": (pod, PODS), "podtemplates": (template, LIVE + WAITING), "provisioningrequests": (request, LIVE + WAITING)}  # fmt: skip


class Server(BaseHTTPRequestHandler):
    """The Kubernetes API: pages of objects; what is sent is accepted."""

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        make, count = _LISTS.get(url.path.rpartition("/")[2], (node, 0))
        begin, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        end = min(count, begin + limit)
        more = {"continue": str(end)} if end < count else {}
        self._reply({"metadata": more, "items": [make(i) for i in range(begin, end)]})

    def do_PATCH(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._reply({})

    def _reply(self, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Aws:
    """Node groups, each with all of its nodes."""

    def __init__(self) -> None:
        self.changes = 0

    def describe_nodegroup(self, *, nodegroupName: str, **_: object) -> Any:  # noqa: N803  AWS's name
        names = {"autoScalingGroups": [{"name": nodegroupName}]}
        labels = {"trainium-cdk/node-group": nodegroupName}
        return {"nodegroup": {"status": "ACTIVE", "capacityType": "ON_DEMAND", "labels": labels, "resources": names}}

    def describe_auto_scaling_groups(self, *, AutoScalingGroupNames: list[str]) -> Any:  # noqa: N803
        [name] = AutoScalingGroupNames
        ids = [f"i-{i}" for i in range(int(name[1:]), NODES, GROUPS)]
        instances = [{"InstanceId": id, "LifecycleState": "InService"} for id in ids]
        size = {"MinSize": 0, "MaxSize": _EACH, "DesiredCapacity": _EACH, "AvailabilityZones": ["us-east-1a"]}
        return {"AutoScalingGroups": [{"AutoScalingGroupName": name, "Instances": instances, "Tags": [], **size}]}

    def get_paginator(self, _: str) -> Any:
        return type(
            "Nothing", (), {"paginate": lambda *_, **__: iter([{"CapacityReservations": [], "Reservations": []}])}
        )()

    def __getattr__(self, name: str) -> Any:
        def change(**_: object) -> Any:
            self.changes += 1

        return change


def measure(endpoint: str) -> dict[str, float]:
    """One run of the function, as the first after its deployment, in this process."""
    import boto3
    import botocore

    from trainium_cdk.cdk.eks.scaler.function import ScalerSettings, Supplier
    from trainium_cdk.cdk.eks.scaler.kubernetes import Kubernetes
    from trainium_cdk.cdk.eks.scaler.model import Limits
    from trainium_cdk.cdk.eks.scaler.observe import GroupSettings

    class Counted(Kubernetes):
        patches = 0

        def patch(self, path: str, body: dict[str, Any]) -> None:
            self.patches += 1
            super().patch(path, body)

    session = boto3.Session("key", "secret", region_name="us-east-1")
    kept = [session.client(service) for service in ("eks", "autoscaling", "ec2")]
    authorities = (Path(botocore.__file__).parent / "cacert.pem").read_text()
    end = "-----END CERTIFICATE-----"
    any_authority = authorities[authorities.index("-----BEGIN CERTIFICATE-----") : authorities.index(end) + len(end)]
    data = base64.b64encode(any_authority.encode()).decode()
    kubernetes = Counted({"name": "large", "endpoint": endpoint, "certificateAuthority": {"data": data}}, session)
    groups = tuple(GroupSettings(f"g{i}", f"g{i}", "trn1.32xlarge", (16, 8)) for i in range(GROUPS))
    settings = ScalerSettings(
        "large", "training", (_DEVICE, "vpc.amazonaws.com/efa"), "trainium-cdk/node-group", True, Limits(), groups
    )
    before = peak()
    aws = Aws()
    Supplier(settings, kubernetes, functools.partial(lambda _: aws)).run(1_780_010_000)
    del kept  # until now: their memory counts
    changes = aws.changes + kubernetes.patches
    return {"megabytes": peak(), "before": before, "changes": changes}


def peak() -> float:
    """The most memory that this process has used, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def serve(port: Any) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    port.send(server.server_port)
    server.serve_forever()


def run() -> dict[str, float]:
    """The figures of a run in its own process."""
    mine, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=[theirs], daemon=True)
    server.start()
    try:
        command = [sys.executable, "-m", "tools.benchmarks.scaler", f"http://127.0.0.1:{mine.recv()}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
