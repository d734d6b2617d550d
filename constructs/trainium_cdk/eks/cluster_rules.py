"""The rules of `trn validate` for the arguments of a cluster and of its plug-ins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from constructs import Construct

import trainium_cdk.checks.eks as eks
from trainium_cdk._cdk.rules import known, refuse_lookups, region_of, report, unresolved
from trainium_cdk.settings import Mirror, Plugins

_OF_CLUSTER = (
    eks.kubernetes_version_is_supported,
    eks.support_is_available,
    eks.api_is_for_own_networks,
    eks.service_network_is_free,
    eks.namespace_is_not_reserved,
)
_OF_PLUGINS = (eks.namespace_is_not_reserved, eks.plugins_are_compatible)


def check_cluster(
    construct: Construct,
    *,
    name: str,
    version: str,
    support: str | None,
    public_access_cidrs: Sequence[str],
    service_cidr: str | None,
    namespace: str,
) -> None:
    """Register problems of the arguments of a `TrnEksCluster`.

    Raises:
        ValueError: the name is a token.
    """
    refuse_lookups(construct, cluster_name=name)
    if unresolved(name):
        raise ValueError(
            f"{construct.node.path}: cluster_name must be plain text: log groups and permissions are named after it"
        )
    values = {
        "cluster_name": name,
        "version": version,
        "support": support,
        "endpoint": "public" if public_access_cidrs and not unresolved(list(public_access_cidrs)) else "private",
        "public_cidrs": list(public_access_cidrs),
        "service_cidr": service_cidr,
        "namespace": namespace,
    }
    names = {
        "public_cidrs": "public_access_cidrs",
        "eks": "cluster",
        "write endpoint: private": "none, for a private API",
    }
    report(construct, _data(construct, values), at=("eks",), rules=_OF_CLUSTER, names=names)


def check_plugins(
    construct: Construct, namespace: str, plugins: Plugins, mirror: Mirror, networks: Sequence[str]
) -> None:
    """Register problems of the arguments of `TrnPlugins`."""
    values = {
        "namespace": namespace,
        "plugins": plugins.model_dump(),
        "mirror": mirror.model_dump(),
        "job_networks": list(networks),
    }
    report(construct, _data(construct, values), at=("eks",), rules=_OF_PLUGINS, names={})


def _data(construct: Construct, values: dict[str, Any]) -> dict[str, Any]:
    return {"region": region_of(construct, ()), "eks": known(values)}
