"""JobSet and Kueue as their Helm charts install them with the stack's values, without the images: Helm's own engine renders the charts, and the
programs run on this machine, each as its service account with the chart's permissions.

What differs from a deployment: webhooks are called by URL and use the sandbox's certificates, there is one instance (no election of a
leader), and Kueue's API of pending workloads is off, because it needs a service in front of it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from sandbox.kubernetes import build
from sandbox.kubernetes.api import Api, Object, path_of
from trainium_cdk.catalog import Catalog
from trainium_cdk.eks import charts
from trainium_cdk.eks.installation import Installation
from trainium_cdk.settings import Mirror, Plugins

NAMES = ("jobset", "kueue")
"""In the order in which they start."""
_CONFIG = "controller_manager_config.yaml"
_HOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_APPLIED = (
    "Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ConfigMap", *_HOOKS,
)  # fmt: skip
"""What is created in the API server, in this order."""
_LEFT_OUT = {"Deployment", "Service", "Secret", "APIService"}


@dataclass(frozen=True)
class Ports:
    """Free ports of 127.0.0.1."""

    webhook: int
    metrics: int
    health: int


def releases() -> list[charts.Release]:
    """What the stack installs, with its values."""
    wanted = Installation((), Catalog.load(), "training", Plugins(), Mirror())
    found = {release.name: release for release in charts.releases(wanted)}
    return [found[name] for name in NAMES]


def rendered(release: charts.Release) -> list[Object]:
    """The chart's objects, as `helm install` makes them of the release's values.

    Raises:
        RuntimeError: the chart refuses the values.
    """
    folder = str(build.chart(release.name))
    command = [str(build.program("render-chart")), folder, release.name, release.namespace]
    done = subprocess.run(command, input=json.dumps(release.values), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"chart {release.name} {release.version} does not accept its values: {done.stderr.strip()}")
    return [one for one in YAML(typ="safe").load_all(done.stdout) if one]


@dataclass(frozen=True)
class Controller:
    """How a chart runs its controller.

    Attributes:
        account: its service account.
        arguments: of the program, without the configuration file.
        config: the configuration file's content.
    """

    account: str
    arguments: list[str]
    config: Object


def install(api: Api, release: charts.Release, port: int, authority: str) -> Controller:
    """Create the chart's objects.

    Args:
        port: of the webhooks, on 127.0.0.1.
        authority: base64 of the certificate that signed the webhook server's.

    Raises:
        RuntimeError: the chart has objects of an unknown kind.
    """
    objects = rendered(release)
    if unknown := {one["kind"] for one in objects} - {*_APPLIED, *_LEFT_OUT}:
        raise RuntimeError(
            f"chart {release.name} {release.version} has objects of kinds that are not known here: {unknown}"
        )
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}})
    created = sorted((o for o in objects if o["kind"] in _APPLIED), key=lambda o: _APPLIED.index(o["kind"]))
    for one in created:
        for client in _clients(one):
            service = client.pop("service")
            client |= {"url": f"https://127.0.0.1:{port}{service['path']}", "caBundle": authority}
        api.create(one)
    [config] = [o["data"][_CONFIG] for o in objects if o["kind"] == "ConfigMap" and _CONFIG in o["data"]]
    [pod] = [o["spec"]["template"]["spec"] for o in objects if o["kind"] == "Deployment"]
    arguments = [a for a in pod["containers"][0]["args"] if not a.startswith("--config=")]
    return Controller(pod["serviceAccountName"], arguments, YAML(typ="safe").load(config))


def _clients(one: Object) -> Iterator[Object]:
    """How the API server calls this object's webhooks."""
    if one["kind"] in _HOOKS:
        yield from (hook["clientConfig"] for hook in one["webhooks"])
    elif one["kind"] == "CustomResourceDefinition" and "webhook" in one["spec"].get("conversion", {}):
        yield one["spec"]["conversion"]["webhook"]["clientConfig"]


def configured(config: Object, ports: Ports, certificates: Path) -> Object:
    """The controller's configuration for this machine."""
    local: dict[str, Any] = {
        "webhook": {"port": ports.webhook, "host": "127.0.0.1", "certDir": str(certificates)},
        "metrics": {"bindAddress": f"127.0.0.1:{ports.metrics}"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports.health}"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }
    if "kueue" in config["apiVersion"]:
        local["featureGates"] = {"VisibilityOnDemand": False}
    return {**config, **local}


def certificates(folder: Path, certificate: str, key: str) -> None:
    """Write the webhook server's certificate where the programs look for it."""
    folder.mkdir(mode=0o700)
    shutil.copyfile(certificate, folder / "tls.crt")
    shutil.copyfile(key, folder / "tls.key")


def token(api: Api, namespace: str, account: str) -> str:
    """A token of a service account, for a day."""
    path = path_of("v1", "ServiceAccount", account, namespace)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}
    return str(api.call("POST", f"{path}/token", request)["status"]["token"])


def ready(url: str) -> bool:
    """Whether a controller reports that it is ready. Raises OSError if it does not respond."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310  http, on this machine
            return bool(reply.status == 200)
    except urllib.error.HTTPError:
        return False
