"""The effects of changes to a deployed environment that AWS's own resource database does not list."""

from __future__ import annotations

import datetime as dt
from functools import cache

from pydantic import Field

from trainium_cdk.description.catalog.lookup import read
from trainium_cdk.description.catalog.models import Fact


class KubernetesUpdates(Fact):
    """The version changes that EKS accepts."""

    minors_at_once: int = Field(gt=0)
    """Minor versions that a control plane may go up in one step. It never goes down."""
    minors_behind: int = Field(gt=0)
    """Minor versions that nodes may be behind the control plane. They may never be ahead."""


class ClusterUpdates(Fact):
    """ParallelCluster's update policy."""

    policies: dict[str, tuple[str, ...]]
    """Policy -> paths of the cluster configuration."""
    keys: dict[str, str]
    """Path of a list -> the key that identifies its entries."""

    @property
    def by_path(self) -> dict[str, str]:
        return {path: policy for policy, paths in self.policies.items() for path in paths}


class Updates(Fact):
    source: str
    date: dt.date
    holds: dict[str, str]
    """Resource type -> what is lost when such a resource is deleted."""
    interrupts: dict[str, dict[str, tuple[str, str]]]
    """Resource type -> property -> (how its change affects running work, what to do)."""
    fixed: dict[str, dict[str, tuple[str, str]]]
    """Resource type -> property, or one of a property with a dot between them, that cannot change -> (what it means, what to do)."""
    names: dict[str, str]
    """Resource type -> the setting with its name."""
    grows_only: dict[str, dict[str, tuple[str, str]]]
    """Resource type -> a size or version that cannot be lowered -> (what it means, what to do)."""
    stays: dict[str, dict[str, tuple[str, str]]]
    """Resource type -> what cannot be turned off again, as a property of a property -> (what it means, what to do)."""
    ends: dict[str, dict[str, tuple[str, str]]]
    """Resource type -> a size, as a property of a property, whose lowering ends what runs -> (what it means, what to do)."""
    empties: dict[str, tuple[str, str]]
    """Resource type whose update in place deletes something in another resource -> (what it means, what to do)."""
    moving: dict[str, tuple[str, ...]]
    """Resource type -> attributes that every update in place changes."""
    kubernetes: KubernetesUpdates
    parallelcluster: ClusterUpdates


@cache
def updates() -> Updates:
    """The effects of changes."""
    return Updates.model_validate(read("updates"))
