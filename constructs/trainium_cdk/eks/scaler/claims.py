"""Devices that pods claim (Dynamic Resource Allocation, resource.k8s.io/v1): what Neuron's driver publishes of a node, how many a template asks
for, and which a claim has. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from .model import Device, Devices

Object = dict[str, Any]
Pool = Mapping[str, Device | None]
"""The devices of a node by name; None for one whose taint keeps pods off."""

DRIVER = "neuron.aws.com"
"""Neuron's driver, and its DeviceClass. Devices of other classes are not counted."""
_GROUP = re.compile(r"resource\.aws\.com/devicegroup([0-9]{1,3})_id")
_KIND, _DEVICE = "resourceType", "neuron_device"
_KEEPS_OFF = ("NoSchedule", "NoExecute")
_PARTS = (4, 8)
"""Numbers of connected devices that a job may take of a node. A node that is not there yet has them in the order of its devices."""


class ClaimObjects(NamedTuple):
    """What is read of a cluster where pods claim devices.

    Attributes:
        groups: names of the node groups whose devices pods claim.
        templates: ResourceClaimTemplates.
        slices: ResourceSlices.
        claims: ResourceClaims.
    """

    groups: Collection[str] = ()
    templates: Iterable[Object] = ()
    slices: Iterable[Object] = ()
    claims: Iterable[Object] = ()


class Slice(NamedTuple):
    """ResourceSlice, reduced to the fields in use.

    Attributes:
        pool: its name, which is the node's.
        slices: number of those of the pool's generation.
    """

    pool: str
    generation: int
    slices: int
    devices: Pool


class Claim(NamedTuple):
    """A claim that has devices.

    Attributes:
        pods: uids of those that use it.
        devices: each one's pool and name.
    """

    pods: frozenset[str]
    devices: frozenset[tuple[str, str]]


class ClaimedDevices:
    """The devices that pods claim, at one moment.

    Args:
        read: reads an object with a function, and returns None if that fails.

    Attributes:
        groups: names of the node groups whose devices pods claim.
    """

    def __init__(self, objects: ClaimObjects, read: Callable[[Callable[[Object], Any], Object], Any]) -> None:
        self.groups, self._objects, self._read = objects.groups, objects, read
        self._counts = {_key(each): n for each in objects.templates if (n := read(template_count, each)) is not None}
        self._pools: dict[str, Pool] = {}
        self._claims: dict[str, list[Claim]] = {}

    def read_devices(self) -> None:
        """Read the slices and the claims. Called after the pods were read: what pods on nodes have claimed is then among them."""
        self._pools = complete(filter(None, (self._read(slice_, each) for each in self._objects.slices)))
        for each in self._objects.claims:
            if kept := self._read(claim, each):
                for pool in {pool for pool, _ in kept.devices}:
                    self._claims.setdefault(pool, []).append(kept)

    def asked(self, spec: Object, namespace: str) -> int | None:
        """The number of devices for which a pod's templates ask; None if one of them is not there, or of a form that Kueue refuses."""
        if not self.groups:
            return 0
        names = [each.get("resourceClaimTemplateName") for each in spec.get("resourceClaims") or ()]
        counts = [self._counts.get(f"{namespace}/{name}") for name in names if name]
        return None if None in counts else sum(filter(None, counts))

    def announced(self, node: str, count: int, *, share: bool) -> int:
        """The number of a node's devices that can be used: `count` or more make it usable. Jobs that take parts can use the rest of a node
        with a bad device."""
        pool = self._pools.get(node, {})
        good = sum(device is not None for device in pool.values())
        return count if share and good and len(pool) >= count else good

    def bad(self, node: str) -> bool:
        """Return whether the driver keeps pods off a device of this node."""
        return None in self._pools.get(node, {}).values()

    def room(self, node: str, count: int, works: Collection[str]) -> tuple[Devices, bool]:
        """Return the free devices of a node, and whether any are claimed. Those of a pod that has ended, or is not on its node yet, are free: they
        are about to be given back, or are of a request that still needs them.

        Args:
            count: of a node that has not published them.
            works: uids of the pods that work on the node.
        """
        claims = self._claims.get(node, [])
        used = [each for each in claims if not each.pods or not each.pods.isdisjoint(works)]
        taken = {name for each in used for pool, name in each.devices if pool == node}
        free = (
            device for name, device in self._pools.get(node, {}).items() if device is not None and name not in taken
        )
        return tuple(free) if node in self._pools else fresh(count), bool(claims)


def slice_(manifest: Object) -> Slice | None:
    """A slice; None if it is of another driver."""
    spec, pool = manifest["spec"], manifest["spec"]["pool"]
    if spec["driver"] != DRIVER:
        return None
    found = [each for each in spec.get("devices") or () if _texts(each).get(_KIND) == _DEVICE]
    devices = {str(each["name"]): _device(each) for each in found}
    return Slice(pool["name"], pool["generation"], pool["resourceSliceCount"], devices)


def _device(device: Object) -> Device | None:
    if any(taint["effect"] in _KEEPS_OFF for taint in device.get("taints") or ()):
        return None
    return frozenset((int(of[1]), text) for name, text in _texts(device).items() if (of := _GROUP.fullmatch(name)))


def _texts(device: Object) -> dict[str, str]:
    return {name: value["string"] for name, value in (device.get("attributes") or {}).items() if "string" in value}


def complete(slices: Iterable[Slice]) -> dict[str, Pool]:
    """The pools whose slices of the newest generation are all there."""
    by_name: dict[str, list[Slice]] = {}
    for each in slices:
        by_name.setdefault(each.pool, []).append(each)
    found = {}
    for name, parts in by_name.items():
        last = max(part.generation for part in parts)
        newest = [part for part in parts if part.generation == last]
        if len(newest) == newest[0].slices:
            found[name] = {name: device for part in newest for name, device in part.devices.items()}
    return found


def template_count(manifest: Object) -> int | None:
    """The number of devices for which a template asks; None for one of another form, which Kueue refuses."""
    count = 0
    for request in manifest["spec"]["spec"].get("devices", {}).get("requests") or ():
        asked = request.get("exactly")
        if asked is None or asked.get("allocationMode", "ExactCount") != "ExactCount":
            return None
        count += asked.get("count", 1) if asked["deviceClassName"] == DRIVER else 0
    return count


def claim(manifest: Object) -> Claim | None:
    """A claim; None if it has no devices of the driver, or only watches them (adminAccess)."""
    status = manifest.get("status") or {}
    results = status.get("allocation", {}).get("devices", {}).get("results") or ()
    own = [each for each in results if each["driver"] == DRIVER and not each.get("adminAccess")]
    pods = frozenset(each["uid"] for each in status.get("reservedFor") or () if each.get("resource") == "pods")
    return Claim(pods, frozenset((each["pool"], each["device"]) for each in own)) if own else None


def fresh(count: int) -> Devices:
    """The devices of a node that has not published them."""
    return tuple(frozenset((size, str(i // size)) for size in _PARTS) for i in range(count))


def _key(manifest: Object) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


NO_CLAIMS = ClaimObjects()
NOTHING_CLAIMED = ClaimedDevices(NO_CLAIMS, lambda read, each: read(each))
