"""What can go wrong with a job, each said in one paragraph: what is wrong, which value, how to mend it.

TrnError
|- JobError          the job itself cannot be run as asked; nothing was sent
|- TransportError    the head node cannot be reached, or did not answer in time
|- SubmitError       the head node or Slurm refused; nothing is left behind
'- UnknownJob        there is no job of that id on the cluster
"""

from __future__ import annotations


class TrnError(Exception):
    """Base of all of them."""


class JobError(TrnError):
    """The job cannot be run as asked."""


class TransportError(TrnError):
    """The cluster cannot be reached, or did not answer.

    Attributes:
        again: whether the same question may be answered a little later: not where credentials have expired, say.
    """

    def __init__(self, message: str, *, again: bool = True):
        super().__init__(message)
        self.again = again


class SubmitError(TrnError):
    """The cluster refused the job."""


class UnknownJob(TrnError):
    """No such job on this cluster."""
