"""Requests of an EKS cluster's pods, and the room of its nodes. CPU in thousandths of a core, memory in MiB."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection
from functools import cache
from typing import Literal, NamedTuple

from pydantic import Field

from trainium_cdk.description.catalog.lookup import DATA, read
from trainium_cdk.description.catalog.models import Fact, Helpers


class Machine(NamedTuple):
    """An instance type, and the most pods that its network interfaces allow."""

    vcpus: int
    memory: int
    pods: int


class Room(NamedTuple):
    """CPU, memory and number of pods: that a node has, or that pods take."""

    cpu: int = 0
    memory: int = 0
    pods: int = 1

    def less(self, other: Room) -> Room:
        return Room(self.cpu - other.cpu, self.memory - other.memory, self.pods - other.pods)

    def holds(self, other: Room) -> bool:
        return all(mine >= theirs for mine, theirs in zip(self, other, strict=True))


class Cores(Fact):
    """Share of some cores that a node keeps for itself. `cores`: their number; None for all others."""

    cores: int | None = None
    percent: float


class Kept(Fact):
    """CPU and memory that a node keeps for itself."""

    cpu: tuple[Cores, ...]
    memory: int
    memory_each_pod: int
    memory_free: int
    memory_unseen_percent: float


class Pod(Fact):
    """A pod that an add-on, a chart or a setting brings; `of` names all that are needed for it."""

    name: str
    of: tuple[str, ...]
    nodes: Literal["every", "training", "efa", "claims", "system"]
    """The nodes: each, each Trainium node, each of those with EFA or with devices by claims, or `count` in all on system nodes."""
    count: int = Field(default=1, ge=1)
    cpu: int = 0
    memory: int = 0
    source: str

    @property
    def room(self) -> Room:
        return Room(self.cpu, self.memory)


class PodFacts(Fact):
    source: str
    date: dt.date
    kept: Kept
    pods: tuple[Pod, ...]
    helpers: Helpers

    def installed(self, parts: Collection[str], *where: str) -> tuple[Pod, ...]:
        """The pods that these parts bring to some nodes.

        Args:
            parts: names of add-ons, charts and settings.
            where: values of `Pod.nodes`.
        """
        return tuple(pod for pod in self.pods if pod.nodes in where and set(pod.of) <= set(parts))

    def allocatable(self, machine: Machine, *, hugepages: int = 0) -> Room:
        """Return how much CPU and memory of a node pods can use.

        Args:
            hugepages: MiB that the node keeps as huge pages, which are not counted as memory.
        """
        kept, left, share = self.kept, machine.vcpus, 0.0
        for some in kept.cpu:
            cores = left if some.cores is None else min(left, some.cores)
            share += cores * some.percent * 10
            left -= cores
        seen = machine.memory * (100 - kept.memory_unseen_percent) / 100
        memory = seen - hugepages - kept.memory - kept.memory_each_pod * machine.pods - kept.memory_free
        return Room(machine.vcpus * 1000 - int(share), int(memory), machine.pods)


@cache
def pods() -> PodFacts:
    """The facts about pods."""
    return PodFacts.model_validate(read("pods"))


@cache
def machine(instance_type: str) -> Machine | None:
    """An ordinary x86_64 instance type with up to 32 vCPUs; None if it is not known."""
    known = json.loads((DATA / "machines.json").read_text("utf-8"))["types"].get(instance_type)
    return Machine(*known) if known else None
