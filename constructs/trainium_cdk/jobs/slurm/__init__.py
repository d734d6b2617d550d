"""Jobs on Slurm: a chain of Slurm jobs, submitted by one script on the head node of a stack's cluster."""

from __future__ import annotations

from trainium_cdk.jobs.slurm.backend import SlurmBackend as SlurmBackend
from trainium_cdk.jobs.slurm.connect import connect as connect
from trainium_cdk.jobs.slurm.render import SlurmSubmission as SlurmSubmission
from trainium_cdk.jobs.slurm.render import render as render
from trainium_cdk.jobs.slurm.ssm import SsmTransport as SsmTransport
from trainium_cdk.jobs.slurm.transport import LocalTransport as LocalTransport
from trainium_cdk.jobs.slurm.transport import Result as Result
from trainium_cdk.jobs.slurm.transport import Transport as Transport
from trainium_cdk.jobs.slurm.transport import is_head_node as is_head_node
