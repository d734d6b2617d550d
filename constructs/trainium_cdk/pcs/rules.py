"""The rules of `trn validate` for the settings of a `TrnPcsCluster`."""

from __future__ import annotations

from collections.abc import Sequence
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
    given: Sequence[str],
    storage: TrnStorage,
    catalog: Catalog,
    rules: bool,
    **changes: Any,
) -> Environment:
    """The environment of a cluster.

    Args:
        given: arguments of the construct that replace parts of `cluster`.
        catalog: has the instance types of the queues.
        rules: whether to register problems that the rules find.
        changes: of `cluster`.

    Raises:
        SettingsError: a value is not valid.
    """
    of_own: dict[KeyPath, str] = {("pcs", _KEYS.get(name, name)): name for name in given}
    described = Described(construct, {("pcs",): "cluster"} | of_own, "pcs")
    name = cluster.cluster_name or Names.unique_resource_name(construct, max_length=40, separator="-")
    changed = described.changed(("pcs",), cluster, cluster_name=name, **changes)
    resources = [resource for queue in changed.queues for resource in queue.compute_resources]
    environment = described.environment(
        catalog,
        regions=likely_regions(catalog, resources),
        pcs=changed,
        storage={"efs": None, "fsx": None}
        | {mount.kind: {"mount_dir": mount.mount_dir} for mount in storage.file_systems},
    )
    described.require(environment, pcs.system_without_image)
    if rules:
        described.check(environment, _RULES)
    return environment
