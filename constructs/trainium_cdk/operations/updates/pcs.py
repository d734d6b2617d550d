"""Changes of a cluster of AWS PCS that a deployment cannot make."""

from __future__ import annotations

from typing import Any

_CLUSTER, _GROUP = "AWS::PCS::Cluster", "AWS::PCS::ComputeNodeGroup"


def refused(type_name: str, path: tuple[str, ...], _old: Any, _new: Any) -> tuple[str, str] | None:
    """Why a change would fail: (meaning, advice); None if it would not. The names are fixed, and CloudFormation creates a resource that
    it replaces before it deletes the old one."""
    if type_name == _CLUSTER and path[0] in ("Size", "Networking"):
        return (
            "PCS does not change it, and a replacement would have the same name",
            "leave it as it was; or give the cluster another name (pcs.cluster_name): a new one is created, and this one is deleted "
            "after it",
        )
    if type_name == _GROUP and path[0] == "InstanceConfigs":
        return (
            "a node group keeps its instance type, and a replacement would have the same name",
            "give the compute resource another name: a new group is created, and this one is deleted after it",
        )
    return None
