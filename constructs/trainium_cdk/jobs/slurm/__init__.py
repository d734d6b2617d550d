"""Jobs on Slurm: a chain of Slurm jobs, submitted by one script on the head node of a stack's cluster."""

from trainium_cdk.jobs.slurm.backend import SlurmBackend
from trainium_cdk.jobs.slurm.connect import connect
from trainium_cdk.jobs.slurm.render import SlurmSubmission, render
from trainium_cdk.jobs.slurm.ssm import SsmTransport
from trainium_cdk.jobs.slurm.transport import LocalTransport, Result, Transport, is_head_node

__all__ = [
    "LocalTransport",
    "Result",
    "SlurmBackend",
    "SlurmSubmission",
    "SsmTransport",
    "Transport",
    "connect",
    "is_head_node",
    "render",
]
