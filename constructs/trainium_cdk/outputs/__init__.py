"""The contract between the stacks and the jobs: what a stack exports, and how the jobs read it. Both sides import this."""

from trainium_cdk.errors import OutputsError
from trainium_cdk.outputs.contract import CONTRACT, CONTRACT_KEY, ClusterOutputs, Exports, Fleet
from trainium_cdk.outputs.eks import (
    GROUP_LABEL,
    NETWORK_LABEL,
    ROLE_LABEL,
    SERVICE_ACCOUNT,
    EksCluster,
    claims,
    eks_fleets,
    eks_outputs,
)
from trainium_cdk.outputs.pcs import PcsCluster, pcs_outputs, pcs_venv
from trainium_cdk.outputs.read import Cluster, from_json, parse, read
from trainium_cdk.outputs.slurm import SlurmCluster, fleets, slurm_outputs

__all__ = [
    "CONTRACT",
    "CONTRACT_KEY",
    "GROUP_LABEL",
    "NETWORK_LABEL",
    "ROLE_LABEL",
    "SERVICE_ACCOUNT",
    "Cluster",
    "ClusterOutputs",
    "EksCluster",
    "Exports",
    "Fleet",
    "OutputsError",
    "PcsCluster",
    "SlurmCluster",
    "claims",
    "eks_fleets",
    "eks_outputs",
    "fleets",
    "from_json",
    "parse",
    "pcs_outputs",
    "pcs_venv",
    "read",
    "slurm_outputs",
]
