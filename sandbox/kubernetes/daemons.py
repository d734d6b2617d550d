"""Command lines of each program: pure functions of paths and ports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.kubernetes import volcano
from sandbox.kubernetes.api import Object
from sandbox.kubernetes.build import program
from sandbox.kubernetes.nodes import OWN_STATUS

SERVICE_RANGE = "10.100.0.0/16"
"""EKS's service range (except for a VPC in 10.0.0.0/8 or 192.168.0.0/16)."""
SERVICE_IP = "10.100.0.1"
PORTS = (
    "etcd", "peers", "api", "controllers", "scheduler", "kubelet", "vc-scheduler", "vc-controllers", "admission",
    *(f"{name}-{which}" for name in ("jobset", "kueue", "trainer") for which in ("webhook", "metrics", "health")),
)  # fmt: skip


@dataclass(frozen=True)
class Places:
    """The paths of one cluster.

    ports: a free port on 127.0.0.1 for each name of `PORTS`.
    """

    root: Path
    ports: Mapping[str, int]

    def file(self, name: str) -> str:
        return str(self.root / name)

    def certificate(self, name: str) -> str:
        return str(self.root / "pki" / f"{name}.crt")

    def key(self, name: str) -> str:
        return str(self.root / "pki" / f"{name}.key")

    def kubeconfig(self, user: str) -> str:
        return str(self.root / "kubeconfigs" / user)

    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.ports['api']}"


def etcd(at: Places) -> list[str]:
    client, peer = f"https://127.0.0.1:{at.ports['etcd']}", f"http://127.0.0.1:{at.ports['peers']}"
    return [
        str(program("etcd")),
        "--name=local",
        f"--data-dir={at.file('etcd')}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=local={peer}",
        f"--cert-file={at.certificate('server')}",
        f"--key-file={at.key('server')}",
        f"--trusted-ca-file={at.certificate('ca')}",
        "--client-cert-auth",
        "--unsafe-no-fsync",  # durability is not needed here
        "--log-level=warn",
    ]


def apiserver(at: Places, *, token_webhook: bool) -> list[str]:
    command = [
        str(program("kube-apiserver")),
        "--bind-address=127.0.0.1",
        f"--secure-port={at.ports['api']}",
        f"--etcd-servers=https://127.0.0.1:{at.ports['etcd']}",
        f"--etcd-cafile={at.certificate('ca')}",
        f"--etcd-certfile={at.certificate('admin')}",
        f"--etcd-keyfile={at.key('admin')}",
        f"--tls-cert-file={at.certificate('server')}",
        f"--tls-private-key-file={at.key('server')}",
        f"--client-ca-file={at.certificate('ca')}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=ExtendedResourceToleration",  # as on EKS, in addition to the defaults
        "--anonymous-auth=true",  # as on EKS: health and version only, by RBAC
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--service-account-issuer={at.endpoint}",
        f"--service-account-key-file={at.key('service-account')}",
        f"--service-account-signing-key-file={at.key('service-account')}",
        f"--kubelet-certificate-authority={at.certificate('ca')}",
        f"--kubelet-client-certificate={at.certificate('apiserver-kubelet')}",
        f"--kubelet-client-key={at.key('apiserver-kubelet')}",
        "--kubelet-preferred-address-types=InternalIP",
        "--endpoint-reconciler-type=none",  # a loopback address cannot be an endpoint of the service `kubernetes`
        "--allow-privileged=true",
        "--profiling=false",
    ]
    if token_webhook:
        command += [
            f"--authentication-token-webhook-config-file={at.file('token-webhook.json')}",
            "--authentication-token-webhook-version=v1",
            "--authentication-token-webhook-cache-ttl=5s",
        ]
    return command


def controller_manager(at: Places) -> list[str]:
    return [
        str(program("kube-controller-manager")),
        f"--kubeconfig={at.kubeconfig('controller-manager')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={at.ports['controllers']}",
        f"--root-ca-file={at.certificate('ca')}",
        f"--service-account-private-key-file={at.key('service-account')}",
        "--use-service-account-credentials",
        "--pvclaimbinder-sync-period=1s",  # otherwise a claim created just after its volume is bound 15 s later
        "--leader-elect=false",
    ]


def scheduler(at: Places) -> list[str]:
    return [
        str(program("kube-scheduler")),
        f"--kubeconfig={at.kubeconfig('scheduler')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={at.ports['scheduler']}",
        "--leader-elect=false",
    ]


def kwok(at: Places) -> list[str]:
    return [
        str(program("kwok")),
        f"--kubeconfig={at.kubeconfig('kwok')}",
        f"--config={at.file('kwok.yaml')}",
        "--manage-all-nodes",
        f"--disregard-status-with-annotation-selector={OWN_STATUS}=true",
        "--node-ip=127.0.0.1",
        f"--node-port={at.ports['kubelet']}",
        f"--server-address=127.0.0.1:{at.ports['kubelet']}",
        f"--tls-cert-file={at.certificate('server')}",
        f"--tls-private-key-file={at.key('server')}",
        "--enable-crds=Logs,Exec,PortForward",
    ]


def volcano_scheduler(at: Places) -> list[str]:
    return [
        str(program("vc-scheduler")),
        f"--kubeconfig={at.kubeconfig('volcano')}",
        f"--scheduler-conf={at.file('volcano-scheduler.conf')}",
        f"--listen-address=127.0.0.1:{at.ports['vc-scheduler']}",
        "--schedule-period=500ms",
        "--cache-dumper=false",
        "--leader-elect=false",
    ]


def volcano_controllers(at: Places) -> list[str]:
    return [
        str(program("vc-controller-manager")),
        f"--kubeconfig={at.kubeconfig('volcano')}",
        f"--listen-address=127.0.0.1:{at.ports['vc-controllers']}",
        "--controllers=gc-controller,job-controller,pg-controller,queue-controller",
        "--leader-elect=false",
    ]


def volcano_admission(at: Places) -> list[str]:
    port = at.ports["admission"]
    return [
        str(program("vc-webhook-manager")),
        f"--kubeconfig={at.kubeconfig('volcano')}",
        "--listen-address=127.0.0.1",
        f"--port={port}",
        f"--webhook-url=https://127.0.0.1:{port}",
        f"--tls-cert-file={at.certificate('server')}",
        f"--tls-private-key-file={at.key('server')}",
        f"--ca-cert-file={at.certificate('ca')}",
        f"--enabled-admission={','.join(path for path, *_ in volcano.ADMISSIONS)}",
    ]


def kubeconfig(endpoint: str, authority: str, user: Object) -> str:
    """A kubeconfig with one cluster and one user, as JSON (valid YAML).

    Args:
        authority: base64 of the certificate that signed the server's.
        user: {"client-certificate": ..., "client-key": ...} or {"exec": ...}.
    """
    name = "local"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": endpoint, "certificate-authority-data": authority}}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        indent=1,
    )


def token_webhook(url: str) -> str:
    """The file that configures the API server's webhook for bearer tokens."""
    name = "eks"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": url}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        indent=1,
    )
