"""JobSet, Kueue and Kubeflow Trainer as their Helm charts install them with the stack's values, without the images: Helm's own engine renders the charts, and the
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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from sandbox.kubernetes import build, daemons
from sandbox.kubernetes.api import Api, ApiError, Object, path_of, read_all
from sandbox.kubernetes.daemons import Places
from sandbox.processes import wait_until
from trainium_cdk.cdk.eks import charts
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.cdk.eks.kueue import configuration
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.settings import Mirror, Plugins

NAMES = ("jobset", "kueue")
"""In the order in which they start."""
_PROGRAMS = {"trainer": "trainer-controller-manager"}
_CONFIG = "controller_manager_config.yaml"
_HOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_APPLIED = (
    "Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ConfigMap", *_HOOKS,
)  # fmt: skip
"""What is created in the API server, in this order."""
_LEFT_OUT = {"Deployment", "Service", "Secret", "APIService"}


def releases(own: Mapping[str, Any] | None = None) -> list[charts.Release]:
    """What the stack installs, with its values.

    Args:
        own: configuration of Kueue's controller. Default: as in a stack without node groups.
    """
    wanted = Installation((), Catalog.load(), "training", Plugins(), Mirror())
    found = {release.name: release for release in charts.releases(wanted)}
    if own is not None:
        found["kueue"].values["managerConfig"]["controllerManagerConfigYaml"] = json.dumps(own)
    return [found[name] for name in NAMES]


def of_both_forms() -> Mapping[str, Any]:
    """Kueue's configuration for a cluster whose stack is deployed later: Helm starts no controller here, and Kueue reads it at its start alone.
    It fits node groups of the device plug-in and of claims."""
    facts = Catalog.load().eks
    found: Mapping[str, Any] = configuration({facts.resources.device: facts.claims.device_class})
    return found


def trainer() -> charts.Release:
    """Kubeflow Trainer, which users install themselves, on the installed JobSet."""
    version = build.version("github.com/kubeflow/trainer/v2")
    values = {"jobset": {"install": False}}
    return charts.Release("trainer", "kubeflow-trainer", "", version, "kubeflow-system", values)


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
    return read_all(done.stdout)


def install(api: Api, release: charts.Release, at: Places, authority: str) -> tuple[list[str], dict[str, str]]:
    """Create the chart's objects; returns the command of its controller, and its variables.

    Args:
        authority: base64 of the certificate that signed the sandbox's certificates.

    Raises:
        RuntimeError: the chart has objects of an unknown kind.
    """
    name, objects, ports = release.name, rendered(release), _ports(release.name, at)
    if unknown := {one["kind"] for one in objects} - {*_APPLIED, *_LEFT_OUT}:
        raise RuntimeError(f"chart {name} {release.version} has objects of kinds that are not known here: {unknown}")
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}})
    created = sorted((o for o in objects if o["kind"] in _APPLIED), key=lambda o: _APPLIED.index(o["kind"]))
    for one in created:
        for client in _clients(one):
            service = client.pop("service")
            client |= {"url": f"https://127.0.0.1:{ports['webhook']}{service['path']}", "caBundle": authority}
        api.create(one)
    wait_until(lambda: all(_served(api, one) for one in created), 60, pause=0.1)
    kubeconfig = Path(at.kubeconfig(name))
    kubeconfig.touch(mode=0o600)
    who = {"token": _token(api, release.namespace, _template(objects)["spec"]["serviceAccountName"])}
    kubeconfig.write_text(daemons.kubeconfig(at.endpoint, authority, who))
    _certificates(at.root / name, at)
    return _command(name, objects, at)


def upgrade(
    api: Api, before: charts.Release, release: charts.Release, at: Places
) -> tuple[list[str], dict[str, str]] | None:
    """Give a controller other values, as `helm upgrade` does. Returns its command and variables if its pod starts again: where the chart changes the
    template of the pod."""
    old, objects = rendered(before), rendered(release)
    for one in objects:
        if one["kind"] == "ConfigMap":
            api.apply(one)
    return None if _template(old) == _template(objects) else _command(release.name, objects, at)


def _command(name: str, objects: list[Object], at: Places) -> tuple[list[str], dict[str, str]]:
    """The command of a controller, whose configuration is written, and its variables."""
    folder, kubeconfig = at.root / name, at.kubeconfig(name)
    [config] = [o["data"][_CONFIG] for o in objects if o["kind"] == "ConfigMap" and _CONFIG in o["data"]]
    arguments = [a for a in _template(objects)["spec"]["containers"][0]["args"] if not a.startswith("--config=")]
    file = folder / "config.json"
    file.write_text(json.dumps(_configured(YAML(typ="safe").load(config), _ports(name, at), _served_with(folder))))
    command = [str(build.program(_PROGRAMS.get(name, name))), f"--config={file}", *arguments]
    return command, {"KUBECONFIG": kubeconfig, "TMPDIR": str(folder)}


def _template(objects: list[Object]) -> Object:
    """Return the template of the controller's pod."""
    [template] = [one["spec"]["template"] for one in objects if one["kind"] == "Deployment"]
    return dict(template)


def _served(api: Api, one: Object) -> bool:
    """Whether the API server lists a kind that was defined, so that clients find it; true for other objects."""
    if one["kind"] != "CustomResourceDefinition":
        return True
    spec = one["spec"]
    try:
        for version in (v["name"] for v in spec["versions"] if v["served"]):
            listed = api.get(f"/apis/{spec['group']}/{version}")["resources"]
            if spec["names"]["plural"] not in {resource["name"] for resource in listed}:
                return False
    except ApiError:
        return False
    return True


def _ports(name: str, at: Places) -> dict[str, int]:
    return {which: at.ports[f"{name}-{which}"] for which in ("webhook", "metrics", "health")}


def _clients(one: Object) -> Iterator[Object]:
    """How the API server calls this object's webhooks."""
    if one["kind"] in _HOOKS:
        yield from (hook["clientConfig"] for hook in one["webhooks"])
    elif one["kind"] == "CustomResourceDefinition" and "webhook" in one["spec"].get("conversion", {}):
        yield one["spec"]["conversion"]["webhook"]["clientConfig"]


def _configured(config: Object, ports: Mapping[str, int], certificates: Path) -> Object:
    """The controller's configuration for this machine."""
    local: dict[str, Any] = {
        "webhook": {"port": ports["webhook"], "host": "127.0.0.1"},
        "metrics": {"bindAddress": f"127.0.0.1:{ports['metrics']}"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['health']}"},
        "leaderElection": {"leaderElect": False},
    }
    if "trainer" in config["apiVersion"]:
        return {**config, **local, "certManagement": {"enable": False}}
    local["webhook"]["certDir"] = str(certificates)
    local["internalCertManagement"] = {"enable": False}
    if "kueue" in config["apiVersion"]:
        local["featureGates"] = {"VisibilityOnDemand": False}
    return {**config, **local}


def _served_with(folder: Path) -> Path:
    """The folder with the webhook server's certificate: where a controller without a setting for it looks, below $TMPDIR."""
    return folder / "k8s-webhook-server" / "serving-certs"


def _certificates(folder: Path, at: Places) -> None:
    place = _served_with(folder)
    place.mkdir(mode=0o700, parents=True)
    shutil.copyfile(at.certificate("server"), place / "tls.crt")
    shutil.copyfile(at.key("server"), place / "tls.key")


def _token(api: Api, namespace: str, account: str) -> str:
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
