"""The rules of `trn validate` for the arguments of node groups, and of other nodes of an EKS cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constructs import Construct
from pydantic import TypeAdapter, ValidationError

import trainium_cdk.checks.capacity as capacity
import trainium_cdk.checks.eks_nodes as eks_nodes
import trainium_cdk.checks.nodes as nodes
import trainium_cdk.checks.zones as zones
from trainium_cdk._cdk.rules import REGION_NAMES, known, own_entries, region_of, report, unresolved
from trainium_cdk.catalog import Catalog
from trainium_cdk.settings.eks import LabelValue

_NAMES = {
    **REGION_NAMES,
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
    eks_nodes.node_group_names_are_not_reserved,
    eks_nodes.labels_are_not_reserved,
    eks_nodes.efa_layout_applies,
    eks_nodes.lnc_is_supported_by_the_type,
    zones.region_offers_every_type,
)
_LABEL_VALUE = TypeAdapter(LabelValue)


def check_group(construct: Construct, catalog: Catalog, group: Mapping[str, Any]) -> None:
    """Register problems of a node group.

    Args:
        group: its values by the keys of `eks.node_groups`; tokens are left out.
    """
    kind = catalog.instance(group["instance_type"])
    data = {
        "region": region_of(construct, catalog.regions_of(kind.name)),
        "eks": {"node_groups": [known(group)]},
        **own_entries(catalog, [kind.name]),
    }
    report(construct, data, at=("eks", "node_groups", 0), rules=_RULES, names=_NAMES, engine="eks")


def check_service_nodes(construct: Construct, section: str, instance_type: str) -> None:
    """Register problems of the instance type of nodes without Trainium.

    Args:
        section: where an environment describes them: `system` or `bastion_host`.
    """
    data = {"region": region_of(construct, ()), "eks": {section: known({"instance_type": instance_type})}}
    rules = (nodes.service_nodes_are_x86_and_large_enough,)
    report(construct, data, at=("eks", section), rules=rules, names={})


def refuse_label_value(construct: Construct, **values: str) -> None:
    """Raises ValueError for an argument that cannot be the value of a Kubernetes label."""
    for name, value in values.items():
        if not unresolved(value) and not _is_label_value(value):
            raise ValueError(
                f"{construct.node.path}: {name} = {value}: not the value of a Kubernetes label. Fix: write at most 63 letters "
                "from a to z, digits, -, _ and ., of which the first and the last are letters or digits"
            )


def _is_label_value(value: str) -> bool:
    try:
        return bool(_LABEL_VALUE.validate_python(value))
    except ValidationError:
        return False
