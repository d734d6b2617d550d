"""Every error of this package. `str()` of one is a paragraph: what is wrong, with which value, and what to do.

TrnError
|- SettingsFileError        the environment file is missing, no YAML, or no mapping
|- SettingsError            the environment cannot be used: one line for each problem
|- UnknownCatalogEntry      the catalogue does not have what was looked up
|- RequirementError         a line of a requirements file cannot work
|- OutputsError             the stack does not exist, or its outputs cannot be read
|- JobError                 the job cannot be run as requested; nothing was sent
|- SubmitError              the cluster refused the job; nothing of it is left there
|- UnknownJob               the cluster has no job of that id
|- TransportError           the cluster cannot be reached, or does not respond
|  |- NotTheirs             the jobs are another user's
|  |- BucketError           a cluster has no bucket, or its caller may not write to it
|  '- ApiError              the Kubernetes API refused a request
'- AwsError                 AWS did not perform a call of `trn check`
   |- Denied                the credentials do not allow it
   |- NoCredentials         there are none, or AWS does not accept them
   |- Absent                what was requested does not exist
   '- Unreachable           there is no connection to the service
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from trainium_cdk.problems import Problem, Source


class TrnError(Exception):
    """Base class of all errors of this package."""


class SettingsFileError(TrnError):
    """The environment file cannot be read: it does not exist, is not YAML, or its top level is not a mapping."""

    def __init__(self, file: str | Path, reason: str, fix: str):
        text = f"{file}: {reason}. {fix}"
        super().__init__("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))


class SettingsError(TrnError, ValueError):
    """Settings that cannot be used: of an environment, or of a construct.

    Attributes:
        problems: what is wrong with it.
        source: the file that it was read from.
    """

    def __init__(self, problems: Sequence[Problem], source: Source):
        self.problems = tuple(problems)
        self.source = source
        super().__init__("\n".join(source.describe(p) for p in self.problems))


def similar(name: str, choices: Sequence[str], cutoff: float = 0.6) -> str | None:
    """The known name that was probably meant. The cutoff is difflib's."""
    import difflib  # slow, and seldom needed

    return next(iter(difflib.get_close_matches(name, choices, n=1, cutoff=cutoff)), None)


def fix_of_path(path: Path) -> str:
    """What to do about a file that cannot be read. A name in its folder counts only if the file is missing."""
    names = [] if path.exists() or not path.parent.is_dir() else [one.name for one in path.parent.iterdir()]
    meant = similar(path.name, names, 0.8)
    return f"Did you mean {path.with_name(meant)}?" if meant else "Check the path"


def meant_one_of(close: Sequence[str]) -> str:
    """The end of a sentence, with a question that has these names; empty without any."""
    return f". Did you mean {' or '.join(close)}?" if close else ""


class RequirementError(TrnError):
    """A requirement that cannot work: what is wrong, and what to write. No credentials are in it.

    Attributes:
        reason: begins with the place, if it is in a file.
    """

    def __init__(self, reason: str, fix: str):
        super().__init__(f"{reason}. {fix[0].upper()}{fix[1:]}")
        self.reason, self.fix = reason, fix


class UnknownCatalogEntry(TrnError, LookupError):
    """The catalogue has no such entry. The message lists the known entries and how to add one.

    Attributes:
        reason: what is wrong, for example `the catalogue has no instance type trn1.3xlarge`.
        fix: what to write instead.
    """

    def __init__(self, kind: str, key: str, known: Iterable[str], section: str):
        known = sorted(known)
        close = similar(key, known)
        hint = f"did you mean {close}?" if close else f"known: {', '.join(known)}."
        self.reason = f"the catalogue has no {kind} {key}"
        self.fix = f"write {close or ' or '.join(known)}, or describe {key} under `{section}`"
        super().__init__(
            f"unknown {kind} {key!r}; {hint} To add it, describe it under `{section}` in the environment file"
        )


class OutputsError(TrnError):
    """The outputs of a stack cannot be read. The message says which stack, why, and what to do."""


class JobError(TrnError):
    """The job cannot be run as requested; nothing was sent.

    Attributes:
        fields: the fields of the job that are wrong, where single ones are.
    """

    def __init__(self, message: str, fields: Sequence[str] = ()):
        super().__init__(message)
        self.fields = tuple(fields)


class SubmitError(TrnError):
    """The cluster refused the job, or some of several jobs.

    Attributes:
        submitted: of several jobs, those that are submitted (`Submitted` each).
        refused: of several jobs, an error for each refused one; nothing of those is left.
    """

    def __init__(self, message: str, submitted: Sequence[Any] = (), refused: Sequence[SubmitError] = ()):
        super().__init__(message)
        self.submitted, self.refused = tuple(submitted), tuple(refused)


class UnknownJob(TrnError):
    """This cluster has no job with the given id."""


class TransportError(TrnError):
    """The cluster cannot be reached, or does not respond.

    Attributes:
        again: whether the same request may succeed a little later: not where credentials have expired, for example.
        restarting: whether Slurm's controller does not answer on a head node that was reached; it may be restarting.
    """

    def __init__(self, message: str, *, again: bool = True, restarting: bool = False):
        super().__init__(message)
        self.again, self.restarting = again, restarting


class BucketError(TransportError):
    """A cluster has no bucket, or its caller may not write to it."""


class NotTheirs(TransportError):
    """The jobs are another user's, or the user has no account there."""


class ApiError(TransportError):
    """The Kubernetes API refused a request. `status` is the HTTP status, `reason` is Kubernetes' own."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message, again=status in (0, 429) or status >= 500)
        self.status, self.reason = status, reason


class AwsError(TrnError):
    """A call that AWS did not perform. The message says why, in one line."""


class Denied(AwsError):
    """The credentials do not allow this call."""

    def __init__(self, action: str):
        self.action = action
        super().__init__(f"needs {action}")


class NoCredentials(AwsError):
    """There are no credentials, or AWS does not accept them."""


class Absent(AwsError):
    """AWS reports that what was requested does not exist."""


class Unreachable(AwsError):
    """No connection to the service."""

    def __init__(self, service: str, reason: str):
        self.service = service
        super().__init__(reason)
