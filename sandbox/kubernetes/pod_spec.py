"""What a Pod object says of a container: its environment, its command, its volumes. Pure, but for the look-ups given."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.kubernetes.api import Object
from trainium_cdk.catalog import Catalog

Lookup = Callable[[str, str], Object | None]
"""(kind, name) -> the ConfigMap, Secret or PersistentVolumeClaim of the pod's namespace, or None."""


@dataclass(frozen=True)
class Mount:
    """A volume at its place.

    files: what a directory is to hold before it is shown, by name; with one entry named as `source` is, that file.
    """

    place: str
    source: Path
    read_only: bool
    files: Mapping[str, bytes] | None = None


def address(namespace: str, pod: str) -> str:
    """A loopback address of the pod's own: pods share a machine, with those of other clusters, and may all want the same port."""
    digest = hashlib.sha256(f"{os.getpid()}/{namespace}/{pod}".encode()).digest()
    return f"127.{1 + digest[0] % 250}.{digest[1]}.{1 + digest[2] % 250}"


def shown_address(namespace: str, pod: str) -> str:
    """The address that the API shows: 10.x for 127.x, for Kubernetes takes no loopback address as an endpoint."""
    return "10." + address(namespace, pod).partition(".")[2]


def environment(pod: Object, container: Object, lookup: Lookup) -> dict[str, str]:
    """The variables of a container, `$(NAME)` expanded, in the order the kubelet takes them."""
    env = {"HOSTNAME": hostname(pod), "KUBERNETES_SERVICE_HOST": "10.100.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    for source in container.get("envFrom", []):
        for kind, key in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
            if key in source:
                values = _contents(lookup(kind, source[key]["name"]))
                env |= {source.get("prefix", "") + name: value.decode() for name, value in values.items()}
    for variable in container.get("env", []):
        if "valueFrom" in variable:
            value = _from(pod, container, variable["valueFrom"], lookup)
            if value is not None:
                env[variable["name"]] = value
        else:
            env[variable["name"]] = expand(variable.get("value", ""), env)
    return env


def devices(pod: Object, container: Object) -> dict[str, str]:
    """What the device plug-ins give to a container: the devices that it asks for, and no others (see `standin.neuron_tools`)."""
    limits = container.get("resources", {}).get("limits", {})
    kind = pod["spec"].get("nodeSelector", {}).get("node.kubernetes.io/instance-type", "")
    facts, names = Catalog.load().instances.get(kind), Catalog.load().eks.resources
    if names.device not in limits or facts is None:
        return {}
    cores = facts.logical_cores() // facts.neuron_devices
    return {"TRN_SANDBOX_DEVICES": f"*={limits[names.device]}x{cores}x{limits.get(names.efa, 0)}"}


def command(container: Object, env: Mapping[str, str]) -> list[str]:
    """Command and arguments; empty where only the image would know what to run."""
    if "command" not in container:
        return []
    return [expand(word, env) for word in [*container["command"], *container.get("args", [])]]


def expand(text: str, env: Mapping[str, str]) -> str:
    """Kubernetes' own expansion: $(NAME) if NAME is known, and $$(NAME) is a literal $(NAME).

    >>> expand("$(A) $(B) $$(A)", {"A": "1"})
    '1 $(B) $(A)'
    """

    def value(found: re.Match[str]) -> str:
        if found[0].startswith("$$"):
            return found[0][1:]
        return env.get(found[1], found[0])

    return re.sub(r"\$?\$\(([A-Za-z_][\w.-]*)\)", value, text)


def hostname(pod: Object) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])


def hosts_lines(pod: Object) -> str:
    """The lines of /etc/hosts by which other pods of the namespace find this one."""
    metadata, spec = pod["metadata"], pod["spec"]
    names = [hostname(pod)]
    if spec.get("subdomain"):
        short = f"{names[0]}.{spec['subdomain']}"
        names = [
            f"{short}.{metadata['namespace']}.svc.cluster.local",
            f"{short}.{metadata['namespace']}.svc",
            short,
            *names,
        ]
    return f"{address(metadata['namespace'], metadata['name'])} {' '.join(names)}\n"


def mounts(pod: Object, container: Object, root: Path, lookup: Lookup) -> list[Mount]:
    """Where a container's volumes come from.

    Args:
        root: the cluster's directory. `volumes/` in it holds what outlives pods, by claim; the rest is the pod's own.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    own = root / "pods" / metadata["namespace"] / metadata["name"] / "volumes"
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    found = []
    for use in container.get("volumeMounts", []):
        volume = volumes.get(use["name"], {})
        read_only = bool(use.get("readOnly", False))
        files: dict[str, bytes] | None = None
        source = own / use["name"]
        if "persistentVolumeClaim" in volume:
            claim = lookup("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
            bound = (claim or {}).get("spec", {}).get("volumeName")
            source = root / "volumes" / str(bound or volume["persistentVolumeClaim"]["claimName"])
        elif "hostPath" in volume:
            source = root / "hosts" / spec["nodeName"] / volume["hostPath"]["path"].lstrip("/")
        elif "configMap" in volume:
            files = _chosen(lookup("ConfigMap", volume["configMap"]["name"]), volume["configMap"])
        elif "secret" in volume:
            files = _chosen(lookup("Secret", volume["secret"]["secretName"]), volume["secret"])
        elif "projected" in volume or "downwardAPI" in volume:
            files = {}  # tokens of service accounts: nothing here calls the API from within a pod
        if (part := use.get("subPath")) is not None:
            source = source / part
            files = None if files is None else {part: files.get(part, b"")}
        found.append(Mount(use["mountPath"], source, read_only, files))
    return found


def _contents(thing: Object | None) -> dict[str, bytes]:
    if thing is None:
        return {}
    if thing["kind"] == "Secret":
        return {name: base64.b64decode(value) for name, value in (thing.get("data") or {}).items()}
    return {name: value.encode() for name, value in (thing.get("data") or {}).items()}


def _chosen(thing: Object | None, volume: Object) -> dict[str, bytes]:
    contents = _contents(thing)
    if "items" not in volume:
        return contents
    return {item["path"]: contents[item["key"]] for item in volume["items"] if item["key"] in contents}


def _from(pod: Object, container: Object, source: Object, lookup: Lookup) -> str | None:
    if "fieldRef" in source:
        return _field(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        group, _, resource = source["resourceFieldRef"]["resource"].partition(".")
        return str(container.get("resources", {}).get(group, {}).get(resource, "0"))
    for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if key in source:
            value = _contents(lookup(kind, source[key]["name"])).get(source[key]["key"])
            return None if value is None else value.decode()
    return None


def _field(pod: Object, path: str) -> str:
    metadata = pod["metadata"]
    if found := re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path):
        return str(metadata.get(found[1], {}).get(found[2], ""))
    known = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
        "status.hostIP": "127.0.0.1",
        "status.podIP": address(metadata["namespace"], metadata["name"]),
        "status.podIPs": address(metadata["namespace"], metadata["name"]),
    }
    return str(known.get(path, ""))
