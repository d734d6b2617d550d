"""Training jobs: described as data, submitted, and followed.

>>> from trainium_cdk.jobs import BertLarge, connect        # doctest: +SKIP
>>> cluster = connect("TrnPclusterStack")                    # doctest: +SKIP
>>> job = cluster.submit(BertLarge(nodes=16))                # doctest: +SKIP
>>> cluster.wait(job.id).ok                                  # doctest: +SKIP
True

The command `trn` does the same in a shell. Errors are `TrnError`s: see `trainium_cdk.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainium_cdk import _lazy

_HOMES = {
    "AnyJob": "client.jobs.models",
    "Backend": "client.jobs.backend",
    "Batch": "client.jobs.plan",
    "BertLarge": "client.jobs.kinds.bert_large",
    "Finetune": "client.jobs.kinds.finetune",
    "Gpt": "client.jobs.kinds.gpt_67b",
    "Job": "client.jobs.models",
    "JobError": "errors",
    "JobLog": "runner.readers.log",
    "JobStatus": "client.jobs.status",
    "LocalTransport": "client.jobs.slurm.transport",
    "LogChunk": "client.jobs.status",
    "Nccom": "client.jobs.kinds.nccom",
    "Plan": "client.jobs.plan",
    "Result": "client.jobs.slurm.transport",
    "Script": "client.jobs.kinds.script",
    "SlurmBackend": "client.jobs.slurm.backend",
    "SsmTransport": "client.jobs.slurm.ssm",
    "Stage": "client.jobs.status",
    "SubmitError": "errors",
    "Submitted": "client.jobs.status",
    "TorchTitan": "client.jobs.kinds.torchtitan",
    "Transport": "client.jobs.slurm.transport",
    "TransportError": "errors",
    "TrnError": "errors",
    "Tunnel": "client.jobs.forward",
    "UnknownJob": "errors",
    "Upstream": "client.jobs.models",
    "connect": "client.jobs.connection",
    "is_head_node": "client.jobs.slurm.transport",
    "job_id": "client.jobs.job_spec",
    "job_log": "client.jobs.metrics",
    "launch_environment": "client.jobs.job_spec",
    "new_token": "client.jobs.job_spec",
    "parse_line": "client.jobs.metrics",
    "read_log": "client.jobs.metrics",
}

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.backend import Backend as Backend
    from trainium_cdk.client.jobs.connection import connect as connect
    from trainium_cdk.client.jobs.forward import Tunnel as Tunnel
    from trainium_cdk.client.jobs.job_spec import job_id as job_id
    from trainium_cdk.client.jobs.job_spec import launch_environment as launch_environment
    from trainium_cdk.client.jobs.job_spec import new_token as new_token
    from trainium_cdk.client.jobs.kinds.bert_large import BertLarge as BertLarge
    from trainium_cdk.client.jobs.kinds.finetune import Finetune as Finetune
    from trainium_cdk.client.jobs.kinds.gpt_67b import Gpt as Gpt
    from trainium_cdk.client.jobs.kinds.nccom import Nccom as Nccom
    from trainium_cdk.client.jobs.kinds.script import Script as Script
    from trainium_cdk.client.jobs.kinds.torchtitan import TorchTitan as TorchTitan
    from trainium_cdk.client.jobs.metrics import job_log as job_log
    from trainium_cdk.client.jobs.metrics import parse_line as parse_line
    from trainium_cdk.client.jobs.metrics import read_log as read_log
    from trainium_cdk.client.jobs.models import AnyJob as AnyJob
    from trainium_cdk.client.jobs.models import Job as Job
    from trainium_cdk.client.jobs.models import Upstream as Upstream
    from trainium_cdk.client.jobs.plan import Batch as Batch
    from trainium_cdk.client.jobs.plan import Plan as Plan
    from trainium_cdk.client.jobs.slurm.backend import SlurmBackend as SlurmBackend
    from trainium_cdk.client.jobs.slurm.ssm import SsmTransport as SsmTransport
    from trainium_cdk.client.jobs.slurm.transport import LocalTransport as LocalTransport
    from trainium_cdk.client.jobs.slurm.transport import Result as Result
    from trainium_cdk.client.jobs.slurm.transport import Transport as Transport
    from trainium_cdk.client.jobs.slurm.transport import is_head_node as is_head_node
    from trainium_cdk.client.jobs.status import JobStatus as JobStatus
    from trainium_cdk.client.jobs.status import LogChunk as LogChunk
    from trainium_cdk.client.jobs.status import Stage as Stage
    from trainium_cdk.client.jobs.status import Submitted as Submitted
    from trainium_cdk.errors import JobError as JobError
    from trainium_cdk.errors import SubmitError as SubmitError
    from trainium_cdk.errors import TransportError as TransportError
    from trainium_cdk.errors import TrnError as TrnError
    from trainium_cdk.errors import UnknownJob as UnknownJob
    from trainium_cdk.runner.readers.log import JobLog as JobLog
else:
    __getattr__ = _lazy.attributes(__name__, _HOMES)

__all__ = sorted(_HOMES)
