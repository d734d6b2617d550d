"""Neuron's DRA driver, as far as others see it: the devices that it publishes of a node, and what it does for a container whose pod claims some.

The driver's source is not public: names and attributes come from its documentation, its chart and published outputs of clusters.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from sandbox.kubernetes import probes
from sandbox.kubernetes.api import Api, ApiError, Object, path_of
from trainium_cdk.description.catalog import Catalog, InstanceType
from trainium_cdk.description.outputs.eks import DEVICES_LABEL

_FACTS = Catalog.load().eks.claims
API = "resource.k8s.io/v1"
DRIVER = _FACTS.device_class
NAMESPACE = "neuron-dra-driver"
"""The namespace of the driver's pods, which its chart creates."""
UNHEALTHY = f"{DRIVER}/unhealthy"
"""Key of a broken device's taint: the sandbox's own guess."""
DRIVER_VERSION, KERNEL_MODULE = "1.2.0", "2.26.5.0"
_GROUPS = (1, 4, 8, 16)
_ROW = 4
"""Devices of a row of the torus."""
_TYPE = "node.kubernetes.io/instance-type"
_CONFIG = {"apiVersion": f"{DRIVER}/v1", "kind": "NeuronConfig"}
_LNC = "logicalNeuronCore"
_PAUSE = 1.0
PREPARED = "sandbox/claims-prepared"
"""Annotation of a pod that kwok runs: its claims are ready on its node."""


class Given(NamedTuple):
    """Devices of a claim: their number, and the logical cores of each."""

    devices: int
    cores: int


class NotPrepared(RuntimeError):
    """A pod's claims are not ready on its node: the kubelet tries again. The message is the text of its event."""


def published(labels: Mapping[str, str]) -> bool:
    """Whether the devices of a node with these labels are given by claims: no device plug-in announces them."""
    return labels.get(DEVICES_LABEL) == "claims"


def objects() -> list[Object]:
    """What the driver's chart creates, as far as others rely on it."""
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": {"selectors": [selector]}},
    ]


def install(api: Api) -> None:
    """Create them."""
    for each in objects():
        api.apply(each)


def installed(api: Api) -> bool:
    """Whether the class of the devices is there."""
    return any(one["metadata"]["name"] == DRIVER for one in api.get(path_of(API, "DeviceClass"))["items"])


def resource_slice(instance: InstanceType, node: Object) -> Object:
    """The slice that the driver publishes of a node.

    Args:
        node: as the API server has it; the slice goes with it.
    """
    about = node["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": about["name"], "uid": about["uid"], "controller": True}
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{about['name']}-{DRIVER[:12]}{_digest(about['uid'], 5)}", "ownerReferences": [owner]},
        "spec": {
            "driver": DRIVER,
            "nodeName": about["name"],
            "pool": {"name": about["name"], "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"neuron-device-{i}", "attributes": _attributes(instance, node, i)}
                for i in range(instance.neuron_devices)
            ],
        },
    }


def _attributes(instance: InstanceType, node: Object, device: int) -> Object:
    """Places and groups only of types whose parts can be claimed, as others are not documented by name."""
    name, zone = node["metadata"]["name"], node["metadata"]["labels"]["topology.kubernetes.io/zone"]
    found: Object = {
        "deviceId": {"int": device},
        "instanceType": {"string": instance.name},
        "resourceType": {"string": "neuron_device"},
        "neuronDriverVersion": {"string": KERNEL_MODULE},
        "draDriverVersion": {"version": DRIVER_VERSION},
        **{
            f"networkNodeLayer{layer}": {"string": f"nn-{_digest(f'{place}/{layer}', 17)}"}
            for layer, place in ((1, zone), (2, zone), (3, name))
        },
    }
    if instance.name in _FACTS.parts:
        found |= {"topology_x": {"int": device // _ROW}, "topology_y": {"int": device % _ROW}}
        found |= {f"topology{size}_id": {"int": device // size} for size in (4, 8)}
        found |= {
            _FACTS.group.format(count=size): {"string": _digest(f"{name}/{size}/{device // size}", 16)}
            for size in _GROUPS[1:]
        }
        found[_FACTS.group.format(count=1)] = {"string": f"0000:{16 + device:02x}:19.0"}  # of its EFA interface
    return found


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def slices(api: Api, node: str) -> list[Object]:
    """Those of a node."""
    return list(api.get(path_of(API, "ResourceSlice"), fieldSelector=f"spec.nodeName={node}")["items"])


def withdraw(api: Api, node: str) -> None:
    """Remove a node's slices, as the kubelet does when a driver is gone."""
    for one in slices(api, node):
        api.delete(path_of(API, "ResourceSlice", one["metadata"]["name"]))


def break_device(api: Api, node: str, device: int, effect: str = "NoSchedule") -> None:
    """Publish a node's slice again, with a taint on a device that is broken.

    Args:
        effect: NoSchedule, or NoExecute, which also ends the pods that use it. Empty: it is not broken any more.
    """
    [one] = slices(api, node)
    found = one["spec"]["devices"][device]
    found.pop("taints", None)
    if effect:
        found["taints"] = [{"key": UNHEALTHY, "value": "true", "effect": effect}]
    one["spec"]["pool"]["generation"] += 1
    api.call("PUT", path_of(API, "ResourceSlice", one["metadata"]["name"]), one)


def prepared(api: Api, pod: Object) -> dict[str, Given]:
    """What each claim of a pod gives it on its node, by the claim's name in the pod.

    Raises:
        NotPrepared: a claim is not there, not allocated, not for this pod, or the driver refuses its configuration.
        ApiError, OSError: the API server does not respond as expected.
    """
    found: dict[str, Given] = {}
    about = pod["metadata"]
    if not pod["spec"].get("resourceClaims"):
        return found
    kind = api.get(path_of("v1", "Node", pod["spec"]["nodeName"]))["metadata"]["labels"][_TYPE]
    for name, claim_name in _claims(pod):
        try:
            claim = api.get(path_of(API, "ResourceClaim", claim_name, about["namespace"]))
        except ApiError as error:
            if error.status != 404:
                raise
            raise NotPrepared(_failed(f"fetch ResourceClaim {claim_name}: {error}")) from None
        if about["uid"] not in {user["uid"] for user in claim.get("status", {}).get("reservedFor", [])}:
            raise NotPrepared(
                _failed(
                    f"pod {about['name']} ({about['uid']}) is not allowed to use ResourceClaim {claim_name} ({claim['metadata']['uid']})"
                )
            )
        try:
            found[name] = given(claim["status"]["allocation"]["devices"], Catalog.load().instance(kind))
        except ValueError as problem:
            why = f"NodePrepareResources failed for ResourceClaim {claim_name}: error applying config: {problem}"
            raise NotPrepared(_failed(why)) from None
    return found


def until_prepared(
    api: Api, pod: Object, over: threading.Event, waits: Callable[[], None] = lambda: None
) -> dict[str, Given]:
    """As `prepared`, tried again as the kubelet does, with its event; empty if `over` is set before.

    Args:
        waits: called when the first attempt has failed.
    """
    about, first = pod["metadata"], True
    while pod["spec"].get("resourceClaims"):
        with contextlib.suppress(ApiError, OSError):
            try:
                return prepared(api, api.get(path_of("v1", "Pod", about["name"], about["namespace"])))
            except NotPrepared as problem:
                if first:
                    waits()
                    first = False
                probes.report(api, pod, "", str(problem), reason="FailedPrepareDynamicResources")
        if over.wait(_PAUSE):
            break
    return {}


def mark(api: Api, pod: Object, over: threading.Event) -> None:
    """Let kwok run a pod once its claims are ready."""
    until_prepared(api, pod, over)
    path = path_of("v1", "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
    body = {"metadata": {"uid": pod["metadata"]["uid"], "annotations": {PREPARED: "true"}}}
    with contextlib.suppress(ApiError, OSError):
        if not over.is_set():
            api.call("PATCH", path, body, kind="application/merge-patch+json")


def _failed(why: str) -> str:
    return f"Failed to prepare dynamic resources: prepare dynamic resources: {why}"


def _claims(pod: Object) -> Iterator[tuple[str, str]]:
    """(name in the pod, name of the ResourceClaim) of each claim."""
    made = {s["name"]: s.get("resourceClaimName") for s in pod["status"].get("resourceClaimStatuses", [])}
    for claim in pod["spec"]["resourceClaims"]:
        name = claim.get("resourceClaimName") or made.get(claim["name"])
        if name:
            yield claim["name"], name
        elif claim["name"] not in made:  # else it needs none
            raise NotPrepared(
                _failed(
                    f'pod "{pod["metadata"]["namespace"]}/{pod["metadata"]["name"]}": ResourceClaim not created yet'
                )
            )


def given(allocated: Object, instance: InstanceType) -> Given:
    """What the driver makes of an allocation.

    Raises:
        ValueError: it refuses the configuration.
    """
    sizes = [_lnc(c["opaque"]["parameters"], instance) for c in allocated.get("config", []) if _ours(c)]
    mine = [result for result in allocated["results"] if result["driver"] == DRIVER]
    cores = instance.logical_cores(sizes[-1] if sizes else None) // instance.neuron_devices
    return Given(len(mine), cores)


def _ours(config: Object) -> bool:
    return bool(config.get("opaque", {}).get("driver") == DRIVER)


def _lnc(parameters: Object, instance: InstanceType) -> int:
    """What a NeuronConfig says; other kinds, and other fields, are refused."""
    if {key: parameters.get(key) for key in _CONFIG} != _CONFIG:
        raise ValueError(f"no kind {parameters.get('kind')} is registered for version {parameters.get('apiVersion')}")
    if unknown := [key for key in parameters if key not in (*_CONFIG, _LNC)]:
        raise ValueError(f'strict decoding error: unknown field "{unknown[0]}"')
    if len(instance.lnc) == 1:
        raise ValueError(f"LNC value is not configurable for instance type {instance.name}")
    if parameters.get(_LNC) not in instance.lnc:
        raise ValueError(f"LNC value {parameters.get(_LNC)} is not supported for instance type {instance.name}")
    return int(parameters[_LNC])
