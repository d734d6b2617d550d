"""Why a job ended: one sentence from its log, for `trn status`, `logs`, `why` and the report."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from trainium_cdk.catalog.known_errors import job_errors
from trainium_cdk.jobs.status import ENDED_BADLY
from trainium_cdk.runner.readers import ending as reading
from trainium_cdk.runner.readers.ending import Known

if TYPE_CHECKING:
    from trainium_cdk.jobs.backend import Backend
    from trainium_cdk.jobs.status import JobStatus, Stage

LOG_BYTES = 2 * 1024 * 1024
"""Of the end of a node's log, in which the reason is looked for: more than the tracebacks of all its workers have."""
_OF_PROGRAM = ("FAILED", "OUT_OF_MEMORY")
_KILLED = 137


def ending(jobs: Backend[Any], status: JobStatus) -> str:
    """Why a job ended as it did, of the node that failed first; empty if it did not fail, or nothing is known.

    Raises:
        TransportError: the cluster cannot be reached.
    """
    if status.state not in ENDED_BADLY:
        return ""
    one: JobStatus | None = status
    if status.members:
        one = next((status.member(m.name) for m in status.members if m.state == status.state), None)
    if one is None:
        return ""
    stage = one.current
    node = 0 if stage.failed_node is None and one.nodes == 1 and stage.name != "prepare" else stage.failed_node
    log = jobs.log_end(one.id, stage.name, node, LOG_BYTES).decode(errors="replace")
    return of_stage(stage, log, one.nodes)


def of_stage(stage: Stage, log: str, nodes: int) -> str:
    """The same, where the end of its log is known."""
    if stage.state in _OF_PROGRAM:
        code = _KILLED if stage.state == "OUT_OF_MEMORY" and stage.exit_code is None else stage.exit_code
        return why_it_ended(log, code, nodes)
    return reading.known_error(log, nodes, error_patterns()) if stage.state in ENDED_BADLY else ""


def why_it_ended(log: str, code: int | None, nodes: int) -> str:
    """Why a program failed, with the errors that the catalogue knows. See `readers.ending`."""
    return reading.why_it_ended(log, code, nodes, error_patterns())


@cache
def error_patterns() -> tuple[Known, ...]:
    """The catalogue's known errors of a job's log."""
    return tuple(Known(**{name: getattr(one, name) for name in Known._fields}) for one in job_errors())
