"""Training jobs: described as data, rendered to text, submitted, and followed.

>>> from trainium_cdk.jobs import BertLarge, connect        # doctest: +SKIP
>>> cluster = connect("TrnPclusterStack")                    # doctest: +SKIP
>>> job = cluster.submit(BertLarge(nodes=16))                # doctest: +SKIP
>>> cluster.wait(job.id).ok                                  # doctest: +SKIP
True

The command `trn` does the same in a shell. Errors are `TrnError`s: see `trainium_cdk.errors`.
"""

from trainium_cdk.errors import JobError, SubmitError, TransportError, TrnError, UnknownJob
from trainium_cdk.jobs.backend import Backend, Board
from trainium_cdk.jobs.connect import connect
from trainium_cdk.jobs.environment import launch_environment
from trainium_cdk.jobs.kinds import kinds
from trainium_cdk.jobs.kinds.bert_large import BertLarge
from trainium_cdk.jobs.kinds.finetune import Finetune
from trainium_cdk.jobs.kinds.gpt_67b import Gpt
from trainium_cdk.jobs.kinds.llama_nxd import LlamaNxd
from trainium_cdk.jobs.kinds.lora import Lora
from trainium_cdk.jobs.kinds.nccom import Nccom
from trainium_cdk.jobs.kinds.script import Script
from trainium_cdk.jobs.kinds.torchtitan import TorchTitan
from trainium_cdk.jobs.metrics import Follower, Summary, parse_line
from trainium_cdk.jobs.models import AnyJob, Job, Upstream
from trainium_cdk.jobs.plan import Batch, Plan, expected, plan
from trainium_cdk.jobs.slurm import LocalTransport, Result, SlurmBackend, SsmTransport, Transport, is_head_node, render
from trainium_cdk.jobs.status import Expected, JobStatus, LogChunk, Stage, Submitted
from trainium_cdk.jobs.submission import Submission, job_id, new_token

__all__ = [
    "AnyJob",
    "Backend",
    "Batch",
    "BertLarge",
    "Board",
    "Expected",
    "Finetune",
    "Follower",
    "Gpt",
    "Job",
    "JobError",
    "JobStatus",
    "LlamaNxd",
    "LocalTransport",
    "LogChunk",
    "Lora",
    "Nccom",
    "Plan",
    "Result",
    "Script",
    "SlurmBackend",
    "SsmTransport",
    "Stage",
    "Submission",
    "SubmitError",
    "Submitted",
    "Summary",
    "TorchTitan",
    "Transport",
    "TransportError",
    "TrnError",
    "UnknownJob",
    "Upstream",
    "connect",
    "expected",
    "is_head_node",
    "job_id",
    "kinds",
    "launch_environment",
    "new_token",
    "parse_line",
    "plan",
    "render",
]
