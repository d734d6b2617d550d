"""The rules of `trn check` for the settings of a `TrnPcsCluster`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Names
from constructs import Construct

from trainium_cdk._cdk.described import Described
from trainium_cdk._cdk.rules import likely_regions
from trainium_cdk.catalog import Catalog
from trainium_cdk.checks import capacity, pcs, shared_storage, zones
from trainium_cdk.problems import KeyPath
from trainium_cdk.settings import Environment, Pcs
from trainium_cdk.storage import TrnStorage

_RULES = (*capacity.RULES, *pcs.RULES, shared_storage.hidden_homes, zones.type_not_in_region)
_KEYS = {"login_node": "login"}
"""Argument of the construct -> key, where they differ."""


def described_cluster(
    construct: Construct,
    cluster: Pcs,
    *,
    replaced: Mapping[str, Any],
    storage: TrnStorage,
    catalog: Catalog,
    rules: bool,
    **changes: Any,
) -> Environment:
    """The environment of a cluster.

    Args:
        replaced: arguments of the construct, by name, in place of parts of `cluster`.
        catalog: has the instance types of the queues.
        rules: whether to register problems that the rules find.
        changes: of `cluster`.

    Raises:
        SettingsError: a value is not valid.
    """
    keys = {name: _KEYS.get(name, name) for name in replaced}
    of_own: dict[KeyPath, str] = {("pcs", key): name for name, key in keys.items()}
    described = Described(construct, {("pcs",): "cluster"} | of_own, "pcs")
    name = cluster.cluster_name or Names.unique_resource_name(construct, max_length=40, separator="-")
    changes |= {"cluster_name": name, **{keys[argument]: value for argument, value in replaced.items()}}
    changed = described.changed(("pcs",), cluster, **changes)
    resources = [resource for queue in changed.queues for resource in queue.compute_resources]
    environment = described.environment(
        catalog,
        regions=likely_regions(catalog, resources),
        pcs=changed,
        storage={"efs": None, "fsx": None}
        | {mount.kind: {"mount_dir": mount.mount_dir} for mount in storage.file_systems},
    )
    described.require(environment, capacity.unknown_instance_type, pcs.system_without_image)
    if rules:
        described.check(environment, _RULES)
    return environment
