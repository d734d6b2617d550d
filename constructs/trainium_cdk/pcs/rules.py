"""The rules of `trn check` for the settings of a `TrnPcsCluster`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import Names
from constructs import Construct

from trainium_cdk._cdk.described import describe_slurm
from trainium_cdk.catalog import Catalog
from trainium_cdk.checks import capacity, exposure, pcs, shared_storage, zones
from trainium_cdk.settings import Environment, Pcs
from trainium_cdk.storage import TrnStorage

_RULES = (
    *capacity.RULES,
    *pcs.RULES,
    exposure.wide_node_policies,
    shared_storage.hidden_homes,
    zones.type_not_in_region,
)


def described_cluster(
    construct: Construct,
    cluster: Pcs,
    arguments: Mapping[str, tuple[str, object]],
    *,
    storage: TrnStorage,
    catalog: Catalog,
    rules: bool,
    **changes: Any,
) -> Environment:
    """The environment of a cluster. Arguments as of ParallelCluster's.

    Raises:
        SettingsError: a value is not valid.
    """
    return describe_slurm(
        construct,
        "pcs",
        "pcs",
        cluster,
        arguments,
        mounts={mount.kind: mount.mount_dir for mount in storage.file_systems},
        catalog=catalog,
        required=(pcs.system_without_image,),
        rules=_RULES if rules else (),
        cluster_name=cluster.cluster_name or Names.unique_resource_name(construct, max_length=40, separator="-"),
        **changes,
    )
