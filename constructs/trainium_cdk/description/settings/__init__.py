"""The typed description of an environment, read from YAML. Frozen; unknown keys are refused.

>>> from trainium_cdk import settings
>>> settings.load().cluster_name
'trn-slurm'
"""

from trainium_cdk.description.settings.eks import Access as Access
from trainium_cdk.description.settings.eks import BastionHost as BastionHost
from trainium_cdk.description.settings.eks import ContainerInsights as ContainerInsights
from trainium_cdk.description.settings.eks import ControlPlane as ControlPlane
from trainium_cdk.description.settings.eks import Eks as Eks
from trainium_cdk.description.settings.eks import Mirror as Mirror
from trainium_cdk.description.settings.eks import NodeGroup as NodeGroup
from trainium_cdk.description.settings.eks import Plugins as Plugins
from trainium_cdk.description.settings.eks import Scaling as Scaling
from trainium_cdk.description.settings.eks import SystemNodes as SystemNodes
from trainium_cdk.description.settings.eks import TeamQueue as TeamQueue
from trainium_cdk.description.settings.environment import Bootstrap as Bootstrap
from trainium_cdk.description.settings.environment import Environment as Environment
from trainium_cdk.description.settings.environment import Health as Health
from trainium_cdk.description.settings.environment import Jobs as Jobs
from trainium_cdk.description.settings.environment import OwnScript as OwnScript
from trainium_cdk.description.settings.load import json_schema as json_schema
from trainium_cdk.description.settings.load import load as load
from trainium_cdk.description.settings.load import no_file as no_file
from trainium_cdk.description.settings.load import parse as parse
from trainium_cdk.description.settings.load import validate as validate
from trainium_cdk.description.settings.network import ExistingSubnet as ExistingSubnet
from trainium_cdk.description.settings.network import ExistingVpc as ExistingVpc
from trainium_cdk.description.settings.network import Network as Network
from trainium_cdk.description.settings.network import Peering as Peering
from trainium_cdk.description.settings.network import ZoneSubnets as ZoneSubnets
from trainium_cdk.description.settings.network import plan_subnets as plan_subnets
from trainium_cdk.description.settings.observability import Observability as Observability
from trainium_cdk.description.settings.pcluster import Accounting as Accounting
from trainium_cdk.description.settings.pcluster import ComputeResource as ComputeResource
from trainium_cdk.description.settings.pcluster import HeadNode as HeadNode
from trainium_cdk.description.settings.pcluster import LoginNodes as LoginNodes
from trainium_cdk.description.settings.pcluster import Pcluster as Pcluster
from trainium_cdk.description.settings.pcluster import Provider as Provider
from trainium_cdk.description.settings.pcluster import Queue as Queue
from trainium_cdk.description.settings.pcluster import SharedVolume as SharedVolume
from trainium_cdk.description.settings.pcluster import Ssh as Ssh
from trainium_cdk.description.settings.slurm import ClusterUser as ClusterUser
from trainium_cdk.description.settings.slurm import CpuQueue as CpuQueue
from trainium_cdk.description.settings.slurm import Pcs as Pcs
from trainium_cdk.description.settings.slurm import PcsLoginNode as PcsLoginNode
from trainium_cdk.description.settings.slurm import PcsQueue as PcsQueue
from trainium_cdk.description.settings.slurm import PcsResource as PcsResource
from trainium_cdk.description.settings.storage import DataRepository as DataRepository
from trainium_cdk.description.settings.storage import Efs as Efs
from trainium_cdk.description.settings.storage import ExistingEfs as ExistingEfs
from trainium_cdk.description.settings.storage import ExistingFsx as ExistingFsx
from trainium_cdk.description.settings.storage import Fsx as Fsx
from trainium_cdk.description.settings.storage import Registry as Registry
from trainium_cdk.description.settings.storage import Storage as Storage
from trainium_cdk.errors import SettingsError as SettingsError
from trainium_cdk.errors import SettingsFileError as SettingsFileError
from trainium_cdk.problems import Problem as Problem
from trainium_cdk.problems import Source as Source
