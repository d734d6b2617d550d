"""The rules of `trn check` for the arguments of an EKS cluster, its plug-ins and its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constructs import Construct
from pydantic import TypeAdapter, ValidationError

from trainium_cdk._cdk.rules import REGION_NAMES, Arguments, known, own_entries, refuse_lookups, region_of, unresolved
from trainium_cdk.catalog import Catalog
from trainium_cdk.checks import capacity, eks, eks_nodes, nodes, zones
from trainium_cdk.settings.eks import LabelValue
from trainium_cdk.settings.reserved import group_region

_OF_CLUSTER = (
    eks.unsupported_kubernetes_version,
    eks.support_policy,
    eks.open_api,
    eks.service_network_overlap,
    eks.reserved_namespace,
)
_OF_PLUGINS = (eks.reserved_namespace, eks.incompatible_plugins, eks.queue_shares)
_OF_GROUPS = (
    *capacity.RULES,
    eks_nodes.reserved_node_group_name,
    eks_nodes.reserved_label,
    eks_nodes.efa_layout_without_use,
    eks_nodes.unsupported_lnc,
    zones.type_not_in_region,
)
_CLUSTER_NAMES = {
    "public_cidrs": "public_access_cidrs",
    "eks": "cluster",
    "write endpoint: private": "none, for a private API",
}
_GROUP_NAMES = {
    **REGION_NAMES,
    "min_nodes": "min_size",
    "nodes": "desired_size",
    "max_nodes": "max_size",
    "reservation": "capacity_reservation_id",
    "custom_ami": "image_id",
    "root_volume_gib": "root_volume_size",
    "user_data": "startup_script",
}
_LABEL_VALUE = TypeAdapter(LabelValue)


def check_cluster(construct: Construct, cluster: Mapping[str, Any]) -> None:
    """Register problems of a cluster.

    Args:
        cluster: its values by the keys of `eks`.

    Raises:
        ValueError: the name is a token.
    """
    refuse_lookups(construct, cluster_name=cluster["cluster_name"])
    if unresolved(cluster["cluster_name"]):
        raise ValueError(
            f"{construct.node.path}: cluster_name must be plain text: log groups and permissions are named after it"
        )
    values = known(cluster)
    data = {**values, "endpoint": "public" if values.get("public_cidrs") else "private"}
    Arguments(construct, ("eks",), _CLUSTER_NAMES).check(_of_region(construct, data), _OF_CLUSTER)


def check_plugins(construct: Construct, plugins: Mapping[str, Any]) -> None:
    """Register problems of plug-ins, by the keys of `eks`."""
    Arguments(construct, ("eks",)).check(_of_region(construct, known(plugins)), _OF_PLUGINS)


def check_group(construct: Construct, catalog: Catalog, group: Mapping[str, Any]) -> None:
    """Register problems of a node group.

    Args:
        group: its values by the keys of `eks.node_groups`; tokens are left out.
    """
    kind, values = catalog.instance(group["instance_type"]), known(group)
    named = group_region(values.get("reservation"))
    data = {
        "region": region_of(construct, (*([named] if named else []), *catalog.regions_of(kind.name))),
        "eks": {"node_groups": [values]},
        **own_entries(catalog, [kind.name]),
    }
    Arguments(construct, ("eks", "node_groups", 0), _GROUP_NAMES, engine="eks").check(data, _OF_GROUPS)


def check_service_nodes(construct: Construct, section: str, instance_type: str) -> None:
    """Register problems of the instance type of nodes without Trainium.

    Args:
        section: where an environment describes them: `system` or `bastion_host`.
    """
    data = _of_region(construct, {section: known({"instance_type": instance_type})})
    Arguments(construct, ("eks", section)).check(data, (nodes.service_node_type,))


def refuse_name(construct: Construct, name: str) -> None:
    """Raises ValueError for the name of a node group that cannot be the value of a Kubernetes label."""
    if unresolved(name):
        return
    try:
        _LABEL_VALUE.validate_python(name)
    except ValidationError:
        raise ValueError(
            f"{construct.node.path}: name = {name}: not the value of a Kubernetes label. Fix: write at most 63 letters "
            "from a to z, digits, -, _ and ., of which the first and the last are letters or digits"
        ) from None


def _of_region(construct: Construct, eks: Mapping[str, Any]) -> dict[str, Any]:
    return {"region": region_of(construct, ()), "eks": eks}
