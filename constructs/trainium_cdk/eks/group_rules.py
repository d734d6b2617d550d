"""The rules of `trn validate` for the arguments of a node group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constructs import Construct

import trainium_cdk.checks.capacity as capacity
import trainium_cdk.checks.eks_nodes as eks_nodes
import trainium_cdk.checks.zones as zones
from trainium_cdk._cdk.rules import known, region_of, report
from trainium_cdk.catalog import Catalog

_NAMES = {
    "min_nodes": "min_size",
    "nodes": "desired_size",
    "max_nodes": "max_size",
    "reservation": "capacity_reservation_id",
    "custom_ami": "image_id",
    "root_volume_gib": "root_volume_size",
    "user_data": "startup_script",
}
_RULES = (
    *capacity.RULES,
    eks_nodes.labels_are_not_reserved,
    eks_nodes.efa_layout_applies,
    eks_nodes.lnc_is_supported_by_the_type,
    zones.region_offers_every_type,
)


def check_group(construct: Construct, catalog: Catalog, group: Mapping[str, Any]) -> None:
    """Register problems of a node group.

    Args:
        group: its values by the keys of `eks.node_groups`; tokens are left out.
    """
    kind = catalog.instance(group["instance_type"])
    data: dict[str, Any] = {
        "region": region_of(construct, catalog.regions_of(kind.name)),
        "eks": {"node_groups": [known(group)]},
    }
    if Catalog.load().instances.get(kind.name) != kind:  # added or changed by the caller
        data["catalog"] = {"instances": {kind.name: kind.model_dump(exclude={"name"})}}
    report(construct, data, at=("eks", "node_groups", 0), rules=_RULES, names=_NAMES)
