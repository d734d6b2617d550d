"""The rules of `trn check` for the arguments of an EKS cluster, its plug-ins and its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from constructs import Construct

from trainium_cdk.cdk.helpers.described import Described
from trainium_cdk.cdk.helpers.rules import known
from trainium_cdk.description.catalog import Catalog, InstanceType
from trainium_cdk.description.checks import capacity, eks, eks_nodes, nodes, security
from trainium_cdk.description.outputs import Fleet
from trainium_cdk.description.settings import ControlPlane, Eks, NodeGroup, TeamQueue
from trainium_cdk.description.settings.reserved import group_region
from trainium_cdk.errors import SettingsError, UnknownCatalogEntry
from trainium_cdk.problems import Problem, Source

_OF_CLUSTER = (
    eks.unsupported_kubernetes_version,
    eks.support_policy,
    eks.open_api,
    eks.service_network_overlap,
    eks.reserved_namespace,
)
_OF_PLUGINS = (
    eks.reserved_namespace,
    eks.incompatible_plugins,
    eks_nodes.plugins_beside_claims,
    eks_nodes.undocumented_claims,
    eks.queue_shares,
    security.wide_job_networks,
)
_OF_GROUPS = (
    *capacity.RULES,
    eks_nodes.reserved_node_group_name,
    eks_nodes.reserved_label,
    eks_nodes.efa_layout_without_use,
    eks_nodes.unsupported_claims,
    eks_nodes.parts_of_nodes,
    eks_nodes.claims_without_efa,
    eks_nodes.lnc_of_claims,
    eks_nodes.undocumented_claims,
    capacity.type_not_in_region,
)


def check_cluster(construct: Construct, control_plane: ControlPlane) -> None:
    """Register problems of a control plane."""
    described = Described(construct, {("eks",): "control_plane"})
    section = Eks(**{key: getattr(control_plane, key) for key in ControlPlane.model_fields})
    described.check(described.environment(eks=section), _OF_CLUSTER)


def check_plugins(construct: Construct, fleets: Sequence[Fleet], queues: Sequence[TeamQueue], **plugins: Any) -> None:
    """Register problems of plug-ins.

    Args:
        fleets: the Trainium nodes.
        queues: shares of them.
        plugins: the rest, by the keys of `eks`. Tokens are left out.
    """
    described = Described(construct, {("eks", key): key for key in ("queues", *plugins)})
    values = known({**plugins, "queues": tuple(queues)})
    if fleets:
        values["node_groups"] = tuple(
            {
                "name": f.queue,
                "instance_type": f.instance_type,
                "max_nodes": f.nodes,
                "devices": "claims" if f.claims else "plugin",
            }
            for f in fleets
        )
    described.check(described.environment(eks=values), _OF_PLUGINS)


def instance_of(construct: Construct, catalog: Catalog, nodes: NodeGroup) -> InstanceType:
    """The instance type of a node group. Raises SettingsError if the catalogue has none of this name."""
    try:
        return catalog.instance(nodes.instance_type)
    except UnknownCatalogEntry as e:
        problem = Problem(("nodes", "instance_type"), nodes.instance_type, e.reason, e.fix)
        raise SettingsError([problem], Source(construct.node.path)) from None


def check_group(construct: Construct, catalog: Catalog, group: NodeGroup, version: str | None = None) -> None:
    """Register problems of a node group in a cluster of a version of Kubernetes. Default: the catalogue's."""
    described = Described(construct, {("eks", "node_groups", 0): "nodes"}, engine="eks")
    named = group_region(group.reservation)
    regions = (*([named] if named else []), *catalog.regions_of(group.instance_type))
    environment = described.environment(
        catalog, regions=regions, eks=Eks(node_groups=(group,), **known({"version": version}))
    )
    described.check(environment, _OF_GROUPS)


def check_service_nodes(construct: Construct, section: str, argument: str, described_as: object) -> None:
    """Register problems of the instance type of nodes without Trainium.

    Args:
        section: where an environment describes them: `system` or `bastion_host`.
        argument: the argument that does.
    """
    described = Described(construct, {("eks", section): argument})
    environment = described.environment(eks=Eks(**{section: described_as}))
    described.check(environment, (nodes.service_node_type,))
