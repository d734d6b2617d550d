"""The typed description of an environment, read from YAML. Frozen; unknown keys are refused.

>>> from trainium_cdk import settings
>>> settings.load().cluster_name
'trn-slurm'
"""

from trainium_cdk.errors import SettingsError, SettingsFileError
from trainium_cdk.problems import Problem, Source
from trainium_cdk.settings.directory import DirectoryService
from trainium_cdk.settings.eks import (
    Access,
    BastionHost,
    Eks,
    Mirror,
    NodeGroup,
    Plugins,
    Scaling,
    SystemNodes,
    TeamQueue,
)
from trainium_cdk.settings.environment import Bootstrap, Environment, OwnScript
from trainium_cdk.settings.load import json_schema, load, parse, validate
from trainium_cdk.settings.network import ExistingSubnet, ExistingVpc, Network, Peering
from trainium_cdk.settings.observability import Observability
from trainium_cdk.settings.pcluster import (
    Accounting,
    ComputeResource,
    HeadNode,
    LoginNodes,
    Pcluster,
    Queue,
    SharedVolume,
    Ssh,
)
from trainium_cdk.settings.pcs import Pcs, PcsLoginNode, PcsQueue, PcsResource
from trainium_cdk.settings.slurm import ClusterUser, CpuQueue
from trainium_cdk.settings.storage import (
    DataRepository,
    Efs,
    ExistingEfs,
    ExistingFsx,
    Fsx,
    Registry,
    Storage,
)
from trainium_cdk.settings.subnets import ZoneSubnets, plan_subnets

__all__ = [
    "Access",
    "Accounting",
    "BastionHost",
    "Bootstrap",
    "ClusterUser",
    "ComputeResource",
    "CpuQueue",
    "DataRepository",
    "DirectoryService",
    "Efs",
    "Eks",
    "Environment",
    "ExistingEfs",
    "ExistingFsx",
    "ExistingSubnet",
    "ExistingVpc",
    "Fsx",
    "HeadNode",
    "LoginNodes",
    "Mirror",
    "Network",
    "NodeGroup",
    "Observability",
    "OwnScript",
    "Pcluster",
    "Pcs",
    "PcsLoginNode",
    "PcsQueue",
    "PcsResource",
    "Peering",
    "Plugins",
    "Problem",
    "Queue",
    "Registry",
    "Scaling",
    "SettingsError",
    "SettingsFileError",
    "SharedVolume",
    "Source",
    "Ssh",
    "Storage",
    "SystemNodes",
    "TeamQueue",
    "ZoneSubnets",
    "json_schema",
    "load",
    "parse",
    "plan_subnets",
    "validate",
]
