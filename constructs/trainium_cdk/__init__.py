"""From an empty AWS account to a running Trainium training job, and back, with the AWS CDK.
 The constructs can be imported from here. They are loaded when first asked for, because the CDK starts a Node process: what only submits
jobs never loads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainium_cdk import _lazy

_HOMES = {
    "FileSystemMount": "storage",
    "TrnAddons": "eks.addons",
    "TrnBastionHost": "eks.bastion_host",
    "TrnBootstrap": "bootstrap",
    "TrnBucket": "bucket",
    "TrnEfaSecurityGroup": "efa",
    "TrnEks": "facade",
    "TrnEksCluster": "eks.cluster",
    "TrnImageBuilder": "eks.images",
    "TrnJobNotices": "observability",
    "TrnKey": "hardening.encryption",
    "TrnNetwork": "network",
    "TrnNodeGroup": "eks.node_group",
    "TrnNodeRole": "eks.node_role",
    "TrnObservability": "observability",
    "TrnOutputs": "stack_outputs",
    "TrnPcluster": "pcluster.cluster",
    "TrnPclusterProvider": "pcluster.provider",
    "TrnPcsCluster": "pcs.cluster",
    "TrnPeering": "network",
    "TrnPlugins": "eks.plugins",
    "TrnRegistry": "registry",
    "TrnScaler": "eks.scaling",
    "TrnStorage": "storage",
    "TrnSystemNodes": "eks.system_nodes",
    "encrypt": "hardening.encryption",
    "encrypt_operations": "hardening.encryption",
}

if TYPE_CHECKING:
    from trainium_cdk.bootstrap import TrnBootstrap as TrnBootstrap
    from trainium_cdk.bucket import TrnBucket as TrnBucket
    from trainium_cdk.efa import TrnEfaSecurityGroup as TrnEfaSecurityGroup
    from trainium_cdk.eks.addons import TrnAddons as TrnAddons
    from trainium_cdk.eks.bastion_host import TrnBastionHost as TrnBastionHost
    from trainium_cdk.eks.cluster import TrnEksCluster as TrnEksCluster
    from trainium_cdk.eks.images import TrnImageBuilder as TrnImageBuilder
    from trainium_cdk.eks.node_group import TrnNodeGroup as TrnNodeGroup
    from trainium_cdk.eks.node_role import TrnNodeRole as TrnNodeRole
    from trainium_cdk.eks.plugins import TrnPlugins as TrnPlugins
    from trainium_cdk.eks.scaling import TrnScaler as TrnScaler
    from trainium_cdk.eks.system_nodes import TrnSystemNodes as TrnSystemNodes
    from trainium_cdk.facade import TrnEks as TrnEks
    from trainium_cdk.hardening.encryption import TrnKey as TrnKey
    from trainium_cdk.hardening.encryption import encrypt as encrypt
    from trainium_cdk.hardening.encryption import encrypt_operations as encrypt_operations
    from trainium_cdk.network import TrnNetwork as TrnNetwork
    from trainium_cdk.network import TrnPeering as TrnPeering
    from trainium_cdk.observability import TrnJobNotices as TrnJobNotices
    from trainium_cdk.observability import TrnObservability as TrnObservability
    from trainium_cdk.pcluster.cluster import TrnPcluster as TrnPcluster
    from trainium_cdk.pcluster.provider import TrnPclusterProvider as TrnPclusterProvider
    from trainium_cdk.pcs.cluster import TrnPcsCluster as TrnPcsCluster
    from trainium_cdk.registry import TrnRegistry as TrnRegistry
    from trainium_cdk.stack_outputs import TrnOutputs as TrnOutputs
    from trainium_cdk.storage import FileSystemMount as FileSystemMount
    from trainium_cdk.storage import TrnStorage as TrnStorage
else:
    __getattr__ = _lazy.attributes(__name__, _HOMES)

__all__ = sorted(_HOMES)


__version__ = "0.1.0"


def __dir__() -> list[str]:
    return [*globals(), *__all__]
