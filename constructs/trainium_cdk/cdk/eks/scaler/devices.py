"""Devices for which pods ask: in the resources of their containers, or by claims (Dynamic Resource Allocation, resource.k8s.io/v1). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence, Set
from decimal import Decimal
from typing import Any

from .model import Devices, Resources

Object = dict[str, Any]
Listed = Callable[[str], Iterable[Object]]
Pool = dict[str, frozenset[tuple[int, str]] | None]
"""The devices of a node by name; None for one whose taint keeps pods off."""
DRIVER = "neuron.aws.com"
"""Neuron's driver, and its DeviceClass. Devices of other classes are not counted."""
_GROUP = re.compile(r"resource\.aws\.com/devicegroup([0-9]{1,3})_id")
_KEEPS_OFF = ("NoSchedule", "NoExecute")
_UNITS = (
    {"": 1}
    | {unit: 1000**power for power, unit in enumerate("kMGTPE", 1)}
    | {f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)}
)
_DIGITS = 19
"""Most digits of a number of devices: Kubernetes accepts 1e999999999, and counts in 64 bits (apimachinery, pkg/api/resource/quantity.go)."""


class Claims:
    """Devices that pods claim from Neuron's driver, at one moment.

    Args:
        groups: names of the node groups whose devices pods claim. Nothing is read if there are none.
        listed: all objects of a kind.
        read: reads an object with a function; None if it cannot.
    """

    def __init__(self, groups: Set[str], listed: Listed, read: Callable[..., Any]) -> None:
        self.groups, self._listed, self._read = groups, listed, read
        self._counts: dict[str, int] = dict(self._all("resourceclaimtemplates", template_count))
        self._pools: dict[str, Pool] = {}
        self._held: dict[str, list[tuple[Set[str], Set[str]]]] = {}

    def _all(self, kind: str, read: Callable[[Object], Any]) -> list[Any]:
        return [kept for each in self._listed(kind) if (kept := self._read(read, each))] if self.groups else []

    def read_nodes(self) -> None:
        """Read what nodes have. Called after the pods were read, so that their claims are there."""
        parts: dict[str, dict[int, list[tuple[int, Pool]]]] = {}
        for pool, generation, count, devices in self._all("resourceslices", slice_):
            parts.setdefault(pool, {}).setdefault(generation, []).append((count, devices))
        for pool, generations in parts.items():
            newest = generations[max(generations)]
            if len(newest) == newest[0][0]:  # else the driver is still publishing
                self._pools[pool] = {name: device for _, devices in newest for name, device in devices.items()}
        for pods, held in self._all("resourceclaims", claim):
            for pool, devices in held.items():
                self._held.setdefault(pool, []).append((pods, devices))

    def asked(self, manifest: Object, spec: Object) -> int | None:
        """How many devices a pod's templates ask for. None if it is not known: Kueue refuses such a pod, or its job is being deleted."""
        names = [each.get("resourceClaimTemplateName") for each in spec.get("resourceClaims") or () if self.groups]
        found = [self._counts.get(f"{manifest['metadata']['namespace']}/{name}") for name in names if name]
        return None if None in found else sum(filter(None, found))

    def node(
        self, name: str, count: int, works: Set[str], gone: Set[str], *, share: bool
    ) -> tuple[int, bool, bool, Devices]:
        """Return how many devices of a node can be used, whether the driver keeps pods off one, whether a claim has one, and the free ones.

        Where jobs take parts of a node (`share`), it is as usable with a bad device as without. Claims of pods that do not work on it take nothing:
        they end soon, or the pod's request still asks for its devices.

        Args:
            count: of its type.
            works: uids of the pods that work on it.
            gone: uids of pods that only a lost node keeps, and their claims with them.
        """
        pool, held = self._pools.get(name), self._held.get(name, [])
        claimed = any(not pods or pods - gone for pods, _ in held)
        if pool is None:
            return 0, False, claimed, ()
        used = set[str]().union(*(devices for pods, devices in held if not pods or pods & works))
        good = {each: device for each, device in pool.items() if device is not None}
        usable = count if share and good and len(pool) >= count else len(good)
        return usable, len(good) < len(pool), claimed, tuple(good[each] for each in good if each not in used)


def slice_(manifest: Object) -> tuple[str, int, int, Pool] | None:
    """A ResourceSlice: its pool, which has the node's name, the pool's generation and number of slices, and the devices."""
    spec, pool, devices = manifest["spec"], manifest["spec"]["pool"], Pool()
    if spec["driver"] != DRIVER:
        return None
    for each in spec.get("devices") or ():
        texts = {name: value["string"] for name, value in (each.get("attributes") or {}).items() if "string" in value}
        if texts.get("resourceType") == "neuron_device":
            bad = any(taint["effect"] in _KEEPS_OFF for taint in each.get("taints") or ())
            groups = frozenset((int(of[1]), text) for name, text in texts.items() if (of := _GROUP.fullmatch(name)))
            devices[each["name"]] = None if bad else groups
    return pool["name"], pool["generation"], pool["resourceSliceCount"], devices


def template_count(manifest: Object) -> tuple[str, int] | None:
    """A ResourceClaimTemplate's namespace and name, and how many devices it asks for; None if it names no number."""
    asked = [each.get("exactly") or {} for each in manifest["spec"]["spec"].get("devices", {}).get("requests") or ()]
    if any(each.get("allocationMode") != "ExactCount" for each in asked):
        return None
    count = sum(each["count"] for each in asked if each["deviceClassName"] == DRIVER)
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}", count


def claim(manifest: Object) -> tuple[Set[str], dict[str, set[str]]] | None:
    """The uids of a ResourceClaim's pods, and its devices by pool; None if it has none, or only watches them (adminAccess)."""
    status, held = manifest.get("status") or {}, dict[str, set[str]]()
    for each in status.get("allocation", {}).get("devices", {}).get("results") or ():
        if each["driver"] == DRIVER and not each.get("adminAccess"):
            held.setdefault(each["pool"], set()).add(each["device"])
    return ({each["uid"] for each in status.get("reservedFor") or ()}, held) if held else None


def take(devices: Devices, count: int, most: int) -> tuple[int, Devices]:
    """How many pods, at most `most`, can take `count` of these free devices each, and what they leave. As with Kubernetes' scheduler, each takes
    the first ones; and a whole group, where devices are in groups of that number."""
    every, fits, gone = range(len(devices)), 0, set[int]()
    groups = {group for device in devices for group in device if group[0] == count}
    for own in sorted([i for i in every if group in devices[i]] for group in groups) if groups else [[*every]]:
        more = min(len(own) // count, most - fits)
        gone, fits = gone | {*own[: more * count]}, fits + more
    return fits, tuple(devices[i] for i in every if i not in gone)


def requested(spec: Object, names: Sequence[str]) -> Resources:
    """The request of a pod for each resource: all containers together, or the largest init container."""

    def of(container: Object, name: str) -> int:
        resources = container.get("resources", {})
        return whole({**resources.get("limits", {}), **resources.get("requests", {})}.get(name, "0"))

    containers, first = spec["containers"], spec.get("initContainers", [])
    return tuple(max(sum(of(c, n) for c in containers), *(of(c, n) for c in first), 0) for n in names)


def whole(quantity: str) -> int:
    """A number of devices. The API server keeps the form in which it was written: 16, 16e0, 1k, 1Ki."""
    number = quantity.rstrip("KMGTPEki")
    if (value := Decimal(number)).adjusted() >= _DIGITS:
        raise ValueError(f"{quantity[:40]} devices are more than can be counted")
    return int(value * _UNITS[quantity[len(number) :]])
