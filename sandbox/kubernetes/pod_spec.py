"""A container's environment, command and volumes, from its Pod object. Pure, except for the given look-ups."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.kubernetes.api import Object
from sandbox.kubernetes.claims import Given
from trainium_cdk.description.catalog import Catalog

Lookup = Callable[[str, str], Object | None]
"""(kind, name) -> the ConfigMap, Secret or PersistentVolumeClaim of the pod's namespace, or None."""


@dataclass(frozen=True)
class Mount:
    """A volume and its mount path.

    files: files to create in a directory before it is mounted, by name; with one entry named like `source`, that file.
    mode: of these files.
    """

    place: str
    source: Path
    read_only: bool
    files: Mapping[str, bytes] | None = None
    mode: int = 0o644


def address(namespace: str, pod: str) -> str:
    """A loopback address for the pod: pods share this machine, also with other clusters' pods, and may use the same port."""
    digest = hashlib.sha256(f"{os.getpid()}/{namespace}/{pod}".encode()).digest()
    return f"127.{1 + digest[0] % 250}.{digest[1]}.{1 + digest[2] % 250}"


def shown_address(namespace: str, pod: str) -> str:
    """The address in the API: 10.x for 127.x, because Kubernetes rejects loopback addresses as endpoints."""
    return "10." + address(namespace, pod).partition(".")[2]


def environment(pod: Object, container: Object, lookup: Lookup) -> dict[str, str]:
    """The variables of a container, with `$(NAME)` expanded, in the kubelet's order."""
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


def devices(pod: Object, container: Object, given: Mapping[str, Given] | None = None) -> dict[str, str]:
    """The variables of device plug-ins or drivers for a container: the requested devices only (see `fakes.neuron_tools`).

    Args:
        given: the pod's claims, which a container sees if it names them.
    """
    resources, names = container.get("resources", {}), Catalog.load().eks.resources
    limits = resources.get("limits", {})
    efa = limits.get(names.efa, 0)
    mine = [(given or {})[claim["name"]] for claim in resources.get("claims", []) if claim["name"] in (given or {})]
    if found := [one for one in mine if one.devices]:
        return {"TRN_SANDBOX_DEVICES": f"*={sum(one.devices for one in found)}x{found[0].cores}x{efa}"}
    kind = pod["spec"].get("nodeSelector", {}).get("node.kubernetes.io/instance-type", "")
    facts = Catalog.load().instances.get(kind)
    if names.device not in limits or facts is None:
        return {}
    cores = facts.logical_cores() // facts.neuron_devices
    return {"TRN_SANDBOX_DEVICES": f"*={limits[names.device]}x{cores}x{efa}"}


_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def memory_limit(container: Object) -> int | None:
    """Bytes of memory that a container may use; None without a limit.

    >>> memory_limit({"resources": {"limits": {"memory": "64Mi"}}})
    67108864
    """
    found = str(container.get("resources", {}).get("limits", {}).get("memory", ""))
    return int(found[:-2]) * _UNITS[found[-2:]] if found[-2:] in _UNITS else int(found) if found.isdigit() else None


def command(container: Object, env: Mapping[str, str]) -> list[str]:
    """Command and arguments; empty if only the image defines them."""
    if "command" not in container:
        return []
    return [expand(text, env) for text in [*container["command"], *container.get("args", [])]]


@dataclass(frozen=True)
class Rights:
    """What a container may do, of its own security context and its pod's."""

    user: int
    group: int
    read_only_root: bool

    @classmethod
    def of(cls, pod: Object, container: Object) -> Rights:
        """Without a word about it a container runs as root: images are not read here."""
        may = {**pod["spec"].get("securityContext", {}), **container.get("securityContext", {})}
        return cls(may.get("runAsUser", 0), may.get("runAsGroup", 0), may.get("readOnlyRootFilesystem", False))


def expand(text: str, env: Mapping[str, str]) -> str:
    """Kubernetes' expansion: $(NAME) if NAME is defined; $$ is a literal $.

    >>> expand("$(A) $(B) $$(A) $$(a b)", {"A": "1"})
    '1 $(B) $(A) $(a b)'
    """

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else env.get(found[1], found[0])

    return re.sub(r"\$(?:\$|\(([^)]*)\))", value, text)


def hostname(pod: Object) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])


def hosts_lines(pod: Object) -> str:
    """Lines of /etc/hosts with which other pods of the namespace find this one."""
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
    """The sources of a container's volumes.

    Args:
        root: the cluster's directory. its `volumes/` has persistent volumes, by claim; the rest belongs to the pod.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    own = root / "pods" / metadata["namespace"] / metadata["name"] / "volumes"
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    found = []
    for use in container.get("volumeMounts", []):
        volume = volumes.get(use["name"], {})
        read_only = bool(use.get("readOnly", False))
        files: dict[str, bytes] | None = None
        mode = 0o644
        source = own / use["name"]
        if "persistentVolumeClaim" in volume:
            claim = lookup("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
            bound = (claim or {}).get("spec", {}).get("volumeName")
            source = root / "volumes" / str(bound or volume["persistentVolumeClaim"]["claimName"])
        elif "hostPath" in volume:
            source = root / "hosts" / spec["nodeName"] / volume["hostPath"]["path"].lstrip("/")
        elif "configMap" in volume:
            files = _chosen(lookup("ConfigMap", volume["configMap"]["name"]), volume["configMap"])
            mode = volume["configMap"].get("defaultMode", mode)
        elif "secret" in volume:
            files = _chosen(lookup("Secret", volume["secret"]["secretName"]), volume["secret"])
            mode = volume["secret"].get("defaultMode", mode)
        elif "projected" in volume or "downwardAPI" in volume:
            files = {}  # service account tokens: no pod calls the API here
        if (part := use.get("subPath")) is not None:
            source = source / part
            files = None if files is None else {part: files.get(part, b"")}
        found.append(Mount(use["mountPath"], source, read_only, files, mode))
    return found


def _contents(thing: Object | None) -> dict[str, bytes]:
    if thing is None:
        return {}
    if thing["kind"] == "Secret":
        return {name: base64.b64decode(value) for name, value in (thing.get("data") or {}).items()}
    text = {name: value.encode() for name, value in (thing.get("data") or {}).items()}
    return text | {name: base64.b64decode(value) for name, value in (thing.get("binaryData") or {}).items()}


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
