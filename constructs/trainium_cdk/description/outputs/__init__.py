"""The contract between the stacks and the jobs: what a stack exports, and how the jobs read it. Both sides import this."""

from trainium_cdk.description.outputs.contract import CONTRACT as CONTRACT
from trainium_cdk.description.outputs.contract import CONTRACT_KEY as CONTRACT_KEY
from trainium_cdk.description.outputs.contract import ClusterOutputs as ClusterOutputs
from trainium_cdk.description.outputs.contract import Exports as Exports
from trainium_cdk.description.outputs.contract import Fleet as Fleet
from trainium_cdk.description.outputs.contract import next_step as next_step
from trainium_cdk.description.outputs.eks import GROUP_LABEL as GROUP_LABEL
from trainium_cdk.description.outputs.eks import ROLE_LABEL as ROLE_LABEL
from trainium_cdk.description.outputs.eks import SERVICE_ACCOUNT as SERVICE_ACCOUNT
from trainium_cdk.description.outputs.eks import EksCluster as EksCluster
from trainium_cdk.description.outputs.eks import claim_of as claim_of
from trainium_cdk.description.outputs.eks import eks_fleets as eks_fleets
from trainium_cdk.description.outputs.eks import eks_outputs as eks_outputs
from trainium_cdk.description.outputs.read import Cluster as Cluster
from trainium_cdk.description.outputs.read import from_json as from_json
from trainium_cdk.description.outputs.read import parse as parse
from trainium_cdk.description.outputs.read import read as read
from trainium_cdk.description.outputs.slurm import PcsCluster as PcsCluster
from trainium_cdk.description.outputs.slurm import SlurmCluster as SlurmCluster
from trainium_cdk.description.outputs.slurm import fleets as fleets
from trainium_cdk.description.outputs.slurm import pcs_outputs as pcs_outputs
from trainium_cdk.description.outputs.slurm import pcs_venv as pcs_venv
from trainium_cdk.description.outputs.slurm import slurm_outputs as slurm_outputs
from trainium_cdk.errors import OutputsError as OutputsError
