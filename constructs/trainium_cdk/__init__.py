"""From an empty AWS account to a running Trainium training job, and back, with the AWS CDK.

The constructs can be imported from here. They are loaded when first asked for, because the CDK starts a Node process: what
only submits jobs never loads them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainium_cdk.bootstrap import TrnBootstrap
    from trainium_cdk.bucket import TrnBucket
    from trainium_cdk.efa import TrnEfaSecurityGroup
    from trainium_cdk.eks.addons import TrnAddons
    from trainium_cdk.eks.cluster import TrnEksCluster
    from trainium_cdk.eks.images import TrnImageBuilder
    from trainium_cdk.eks.jump_host import TrnJumpHost
    from trainium_cdk.eks.node_group import TrnNodeGroup
    from trainium_cdk.eks.node_role import TrnNodeRole
    from trainium_cdk.eks.plugins import TrnPlugins
    from trainium_cdk.eks.system_nodes import TrnSystemNodes
    from trainium_cdk.network import TrnNetwork, TrnPeering
    from trainium_cdk.pcluster.cluster import TrnPcluster, TrnPclusterProvider
    from trainium_cdk.registry import TrnRegistry
    from trainium_cdk.storage import FileSystemMount, TrnStorage

__version__ = "0.1.0"
__all__ = [
    "FileSystemMount",
    "TrnAddons",
    "TrnBootstrap",
    "TrnBucket",
    "TrnEfaSecurityGroup",
    "TrnEksCluster",
    "TrnImageBuilder",
    "TrnJumpHost",
    "TrnNetwork",
    "TrnNodeGroup",
    "TrnNodeRole",
    "TrnPcluster",
    "TrnPclusterProvider",
    "TrnPeering",
    "TrnPlugins",
    "TrnRegistry",
    "TrnStorage",
    "TrnSystemNodes",
]

_HOMES = {
    "FileSystemMount": "storage",
    "TrnAddons": "eks.addons",
    "TrnBootstrap": "bootstrap",
    "TrnBucket": "bucket",
    "TrnEfaSecurityGroup": "efa",
    "TrnEksCluster": "eks.cluster",
    "TrnImageBuilder": "eks.images",
    "TrnJumpHost": "eks.jump_host",
    "TrnNetwork": "network",
    "TrnNodeGroup": "eks.node_group",
    "TrnNodeRole": "eks.node_role",
    "TrnPcluster": "pcluster.cluster",
    "TrnPclusterProvider": "pcluster.cluster",
    "TrnPeering": "network",
    "TrnPlugins": "eks.plugins",
    "TrnRegistry": "registry",
    "TrnStorage": "storage",
    "TrnSystemNodes": "eks.system_nodes",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
