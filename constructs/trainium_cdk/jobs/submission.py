"""What is sent to a cluster of any engine: the job's id, the token that makes a submission idempotent, and the text."""

from __future__ import annotations

import datetime as dt
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainium_cdk.errors import JobError
from trainium_cdk.jobs.models import Job
from trainium_cdk.jobs.plan import Plan


@dataclass(frozen=True)
class Submission(ABC):
    """A rendered job. Each engine has a subclass with its `text`.

    Attributes:
        id: `<name>-<token>`; the same token gives the same id, and is submitted once.
        directory: the job's directory on the shared file system: logs, checkpoints, TensorBoard, scripts.
    """

    id: str
    directory: str
    plan: Plan
    files: Mapping[str, bytes] = field(repr=False)
    """The job's own files, by their paths."""

    @property
    @abstractmethod
    def text(self) -> str:
        """What `--dry-run` prints: what is sent, byte for byte."""

    @property
    def log_dir(self) -> str:
        return f"{self.directory}/logs"

    @property
    def tensorboard_dir(self) -> str:
        return f"{self.directory}/{self.plan.job.TENSORBOARD}"


def job_id(job: Job, token: str) -> str:
    """The id of a job submitted with `token`.

    Raises:
        JobError: the token has characters that ids may not have.
    """
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", token):
        raise JobError(
            f"token is {token!r}. Use small letters, digits and hyphens, at most 40, with a letter or digit as the "
            "first and the last, for example 20261120-4f3a9c"
        )
    return f"{job.label}-{token}"


def new_token() -> str:
    """A unique token: the date and six random hexadecimal digits."""
    return f"{dt.datetime.now(dt.UTC):%Y%m%d}-{secrets.token_hex(3)}"
