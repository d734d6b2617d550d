"""From an empty AWS account to a running Trainium training job, and back, with the AWS CDK.
 The constructs can be imported from here. They are loaded when first asked for, because the CDK starts a Node process: what only submits
jobs never loads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainium_cdk import _lazy

_HOMES = {
    "FileSystemMount": "cdk.storage",
    "TrnAddons": "cdk.eks.addons",
    "TrnBastionHost": "cdk.eks.bastion_host",
    "TrnBootstrap": "cdk.bootstrap",
    "TrnBucket": "cdk.bucket",
    "TrnEfaSecurityGroup": "cdk.efa",
    "TrnEks": "cdk.facade",
    "TrnEksCluster": "cdk.eks.cluster",
    "TrnImageBuilder": "cdk.eks.images",
    "TrnJobNotices": "cdk.observability",
    "TrnKey": "cdk.hardening.encryption",
    "TrnNetwork": "cdk.network",
    "TrnNodeGroup": "cdk.eks.node_group",
    "TrnNodeRole": "cdk.eks.node_role",
    "TrnObservability": "cdk.observability",
    "TrnOutputs": "cdk.stack_outputs",
    "TrnPcluster": "cdk.pcluster.cluster",
    "TrnPclusterProvider": "cdk.pcluster.provider",
    "TrnPcsCluster": "cdk.pcs.cluster",
    "TrnPeering": "cdk.network",
    "TrnPlugins": "cdk.eks.plugins",
    "TrnRegistry": "cdk.registry",
    "TrnScaler": "cdk.eks.scaling",
    "TrnStorage": "cdk.storage",
    "TrnSystemNodes": "cdk.eks.system_nodes",
    "encrypt": "cdk.hardening.encryption",
    "encrypt_operations": "cdk.hardening.encryption",
}
_MODULES = {"outputs": "description.outputs", "settings": "description.settings"}

if TYPE_CHECKING:
    from trainium_cdk.cdk.bootstrap import TrnBootstrap as TrnBootstrap
    from trainium_cdk.cdk.bucket import TrnBucket as TrnBucket
    from trainium_cdk.cdk.efa import TrnEfaSecurityGroup as TrnEfaSecurityGroup
    from trainium_cdk.cdk.eks.addons import TrnAddons as TrnAddons
    from trainium_cdk.cdk.eks.bastion_host import TrnBastionHost as TrnBastionHost
    from trainium_cdk.cdk.eks.cluster import TrnEksCluster as TrnEksCluster
    from trainium_cdk.cdk.eks.images import TrnImageBuilder as TrnImageBuilder
    from trainium_cdk.cdk.eks.node_group import TrnNodeGroup as TrnNodeGroup
    from trainium_cdk.cdk.eks.node_role import TrnNodeRole as TrnNodeRole
    from trainium_cdk.cdk.eks.plugins import TrnPlugins as TrnPlugins
    from trainium_cdk.cdk.eks.scaling import TrnScaler as TrnScaler
    from trainium_cdk.cdk.eks.system_nodes import TrnSystemNodes as TrnSystemNodes
    from trainium_cdk.cdk.facade import TrnEks as TrnEks
    from trainium_cdk.cdk.hardening.encryption import TrnKey as TrnKey
    from trainium_cdk.cdk.hardening.encryption import encrypt as encrypt
    from trainium_cdk.cdk.hardening.encryption import encrypt_operations as encrypt_operations
    from trainium_cdk.cdk.network import TrnNetwork as TrnNetwork
    from trainium_cdk.cdk.network import TrnPeering as TrnPeering
    from trainium_cdk.cdk.observability import TrnJobNotices as TrnJobNotices
    from trainium_cdk.cdk.observability import TrnObservability as TrnObservability
    from trainium_cdk.cdk.pcluster.cluster import TrnPcluster as TrnPcluster
    from trainium_cdk.cdk.pcluster.provider import TrnPclusterProvider as TrnPclusterProvider
    from trainium_cdk.cdk.pcs.cluster import TrnPcsCluster as TrnPcsCluster
    from trainium_cdk.cdk.registry import TrnRegistry as TrnRegistry
    from trainium_cdk.cdk.stack_outputs import TrnOutputs as TrnOutputs
    from trainium_cdk.cdk.storage import FileSystemMount as FileSystemMount
    from trainium_cdk.cdk.storage import TrnStorage as TrnStorage
    from trainium_cdk.description import outputs as outputs
    from trainium_cdk.description import settings as settings
else:
    __getattr__ = _lazy.attributes(__name__, {**_HOMES, **_MODULES})

__all__ = sorted(_HOMES)


__version__ = "0.1.0"


def __dir__() -> list[str]:
    return [*globals(), *__all__, *_MODULES]
