"""`trn status`, `logs`, `cancel`, `list`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.client.cli import named, output
from trainium_cdk.client.cli.named import age, as_given, clock, duration, full_id, length, took, unknown
from trainium_cdk.client.cli.options import (
    JobId,
    JobIds,
    Json,
    Target,
    at,
    backend,
    catalog_of,
    described,
    on_cluster,
    user,
)
from trainium_cdk.client.cli.output import (
    echo_json,
    log,
    log_if_sandbox,
    one_line,
    status_when_interrupted,
    still_runs,
    table,
    with_sandbox,
)
from trainium_cdk.client.jobs.status import ENDED_BADLY, shown_values
from trainium_cdk.errors import JobError, TransportError, TrnError

_MEMBERS = 10
"""Stages of an array whose metrics are summed up."""
_DROP = ("user", "age", "queue", "nodes", "duration", "reason", "state")
"""Columns that a list leaves out on a narrow terminal, in this order."""
_STATES = sorted({"ACTIVE", "PENDING", "RUNNING", "COMPLETED", "CANCELLED", "LOST", "UNKNOWN", *ENDED_BADLY})

if TYPE_CHECKING:
    from trainium_cdk.client.cli.filters import Printed, Stream
    from trainium_cdk.client.jobs.backend import Backend
    from trainium_cdk.client.jobs.status import Foreign, JobStatus
    from trainium_cdk.runner.readers.log import JobLog


@on_cluster()
def status(
    ctx: typer.Context,
    on: Target,
    ids: JobIds,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", "-w", help="Fill the screen until they have ended: steps, loss as a curve, time left, cost, log."
        ),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until they have ended, with a line for each change, and then show them."),
    ] = False,
    timeout: Annotated[float | None, typer.Option(min=0, help="With --wait: seconds. Default: no limit.")] = None,
    as_json: Json = False,
) -> None:
    """Show the status of jobs.

    Each stage with its state, and why it waits or failed. With --watch or --wait, exit code 1 if one failed, was cancelled, or has not
    ended within --timeout; Ctrl-C ends no job.
    """
    if (watch and wait) or (timeout is not None and not wait):
        raise JobError(
            "--watch stays on the screen, --wait prints lines and takes --timeout. Give --wait, or leave the others out"
        )
    jobs = backend(on)
    if watch:
        from trainium_cdk.client.cli import watch as watching

        watching.check(as_json)
        from trainium_cdk.client.jobs.report.run import Live

        catalog = catalog_of(described(ctx))
        ids = [as_given(jobs, id) for id in ids]
        together = " ".join(ids)
        with status_when_interrupted(
            lambda: f"{still_runs(together)}. To watch again: trn status --watch {together}{at(on)}"
        ):
            live = Live(jobs, ids, catalog)
            ok = watching.jobs(live)
        for run in live.runs:
            if "/" in run.status.id:  # the screen has shown a whole job's
                log_why(run.status)
        if not ok:
            raise typer.Exit(1)
        return
    found = _wait(on, jobs, ids, timeout) if wait else [named.status(jobs, id) for id in ids]
    if as_json:
        echo_jobs(found)
    else:
        for job in found:
            show(job)
            log_why(job)
    if wait and not all(job.ok for job in found):
        raise typer.Exit(1)


def _wait(on: Target, jobs: Backend, ids: Iterable[str], timeout: float | None) -> list[JobStatus]:
    ids = list(dict.fromkeys(as_given(jobs, id) for id in ids))
    end = None if timeout is None else time.monotonic() + timeout
    found: list[JobStatus] = []

    def interrupted() -> str:
        every = " ".join(full_id(jobs, id) for id in ids)
        return f"{still_runs(every)}. To wait again: trn status --wait {every}{at(on)}"

    with status_when_interrupted(interrupted):
        for id in ids:
            left = None if end is None else max(0.0, end - time.monotonic())
            found.append(jobs.wait(id, left, lambda s: log(one_line(s))))
    return found


def log_findings(job: JobStatus) -> None:
    """Print what is wrong with a job that runs."""
    for one in job.findings:
        log(output.line(f"{job.id} {one.text}"))


def log_why(job: JobStatus) -> None:
    """Print why a job failed, if it did, and that is known."""
    if job.why:
        log(output.line(f"{job.id}: {job.why}"))


@on_cluster()
def logs(
    on: Target,
    id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the job has ended.")] = False,
    stage: Annotated[
        str | None, typer.Option(help="prepare, precompile or train. Default: the last one that has begun.")
    ] = None,
    node: Annotated[int | None, typer.Option(help="Only the output of this node: 0, 1, ... Default: all.")] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="Only the node of this process.")] = None,
    offset: Annotated[int, typer.Option(min=0, help="Byte of the stage's log to begin at.")] = 0,
    tail: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Only the last lines that the other options select; with --metrics, the last metrics (with -f also, the last lines' metrics).",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only lines since then: 30m, 2h, 1d, or a time in UTC. A line without a time takes it from the line before."
        ),
    ] = None,
    metrics: Annotated[
        bool,
        typer.Option(
            "--metrics", help="Only the metrics, one JSON record per line; of the lines that --since selects."
        ),
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Keep control characters, also on a terminal, which they can control.")
    ] = False,
) -> None:
    """Print the log of a job, as it is now or until the end.

    Then, on standard error, a summary of its metrics, and why it failed.

    The output is the unchanged log; on a terminal, control characters (also colours) are removed unless --raw is given.
    """
    from trainium_cdk.client.cli.filters import LogOutput, Printed, moment

    wanted = LogOutput(follow, metrics, tail, None if since is None else moment(since))
    jobs = backend(on)
    id = as_given(jobs, id)
    if tail is not None and follow and not jobs.ordered_logs:
        raise JobError("--tail together with -f needs a Slurm cluster. Leave one of them out")
    printed = Printed(wanted, offset, raw=raw)
    try:
        for chunk in jobs.logs(
            id,
            stage=stage,
            node=node,
            rank=rank,
            follow=follow,
            offset=offset,
            tail=wanted.of_log,
            changed=printed.changed,
        ):
            printed.add(chunk)
        printed.end()
    except (KeyboardInterrupt, SystemExit, TransportError) as e:
        if printed.stage or not isinstance(e, TransportError):
            options = _options(printed, node, rank, ordered=jobs.ordered_logs)
            flag, begin = (" -f", f"{still_runs(full_id(jobs, id))}. ") if follow else ("", "")
            log(f"\n{begin}To continue: trn logs{flag} {full_id(jobs, id)}{options}{at(on)}")
        raise
    _summary(printed)
    if follow and not printed.status.ok:
        raise typer.Exit(1)


def _options(printed: Printed, node: int | None, rank: int | None, *, ordered: bool) -> str:
    """The options with which another `trn logs` continues."""
    chosen = node is not None or rank is not None
    given: dict[str, object] = {"stage": printed.stage or None, "node": node, "rank": rank}
    if printed.stage and (chosen or ordered) and not any(printed.streams):
        given["offset"] = printed.offset
    return "".join(f" --{name} {value}" for name, value in given.items() if value is not None)


def _summary(printed: Printed) -> None:
    """Print what a log tells: its metrics, and why the job failed; or why there is none."""
    streams, ended, last = printed.streams, printed.status, printed.stage
    if printed.wanted.metrics and last == "train" and not any(one.log.steps for one in streams.values()):
        from trainium_cdk.runner.readers.step_lines import what_to_print

        none = "no line is a training step that trn can read. In the script"
        log(output.line(f"{none}, {what_to_print(next(iter(streams.values())).log.tail(last))}"))
    if not last:
        after = f" after byte {printed.offset}" if printed.offset else ""
        none = f"there is no output{after}{'' if ended.done else ' yet'}"
        log(f"{printed.ends or none}. {one_line(ended)}")
    summary = summarize_members(streams) if any(streams) else summarize(printed.stream().log)
    if summary:
        log_if_sandbox()
    for line in summary:
        log(line)
    log_why(ended)


@on_cluster()
def cancel(
    on: Target,
    ids: JobIds,
    as_json: Json = False,
) -> None:
    """Cancel jobs.

    Exit code 1 if one of them could not be cancelled; the others are cancelled.
    """
    jobs, found, failed = backend(on), [], False
    for id in dict.fromkeys(as_given(jobs, id) for id in ids):
        try:
            job = jobs.cancel(id)
        except TrnError as e:
            if len(ids) == 1:
                raise
            failed = True
            log(f"trn: {e}")
            continue
        found.append(job)
        if job.ok:
            log(f"{job.id} had already completed: nothing to cancel")
        if not as_json:
            show(job)
    if as_json:
        echo_jobs(found)
    if failed:
        raise typer.Exit(1)


@on_cluster()
def list_(
    on: Target,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of jobs that are looked at.")] = 50,
    state: Annotated[
        list[str] | None,
        typer.Option(
            help="Only jobs in this state (running, failed, ...); repeat it for more. `active`: that run or wait."
        ),
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only jobs that you submitted, by your user name.")] = False,
    since: Annotated[
        str | None, typer.Option(help="Only jobs submitted since then: 30m, 2h, 1d, or a time in UTC.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay, and show them again every 5 s.")] = False,
    as_json: Json = False,
) -> None:
    """List the jobs of a cluster, newest first.

    On Kubernetes, jobs that wait are in the order of their queue, with Kueue's reason; and what other clients run or queue there is
    listed too, but not with --json or --mine.
    """
    from trainium_cdk.client.cli.filters import moment

    begin = None if since is None else moment(since).timestamp()
    states = {name.upper() for name in state or ()}
    if other := states.difference(_STATES):
        raise JobError(unknown("there is no state", min(other), _STATES))
    jobs = backend(on)

    def chosen(one: JobStatus | Foreign, *, done: bool) -> bool:
        return (not states or one.state in states or ("ACTIVE" in states and not done)) and (
            begin is None or (one.submitted or 0) >= begin
        )

    def wanted() -> tuple[list[JobStatus], list[Foreign]]:
        found, others = (jobs.list(limit), ()) if mine or as_json else jobs.listed(limit)
        own = [job for job in found if chosen(job, done=job.done) and (not mine or job.user == user(on))]
        return own, [one for one in others if chosen(one, done=False)]

    columns = ["job", "state", "nodes", "queue", "age", "duration", "user", "reason"]
    if watch:
        from trainium_cdk.client.cli import watch as watching

        watching.check(as_json)
        watching.rows(columns, lambda: _rows(*wanted()), _DROP)
        return
    found, others = wanted()
    if as_json:
        echo_json(with_sandbox([job.to_dict() for job in found]))
        return
    log_if_sandbox()
    table("", columns, _rows(found, others), _DROP)


def _rows(found: Iterable[JobStatus], others: Iterable[Foreign]) -> list[list[str]]:
    """List the rows of `trn list`: jobs, and then other clients' jobs."""
    now = time.time()
    rows = [
        [j.id, f"{j.current.name} {j.state}", str(j.nodes), j.queue, age(j), duration(j), j.user, _why(j)]
        for j in found
    ]
    rows += [
        [
            one.name,
            one.state,
            "",
            one.queue,
            length(now - one.submitted) if one.submitted else "",
            "",
            "",
            "; ".join(filter(None, [f"not of trn: {one.kind}", one.reason])),
        ]
        for one in others
    ]
    return rows


def _why(job: JobStatus) -> str:
    """Describe why a job waits, or failed, and the time since its last step."""
    both = [job.current.reason, job.why] if job.members else [job.why or job.current.reason]
    both.append(job.stages[-1].last_step(time.time()))
    return "; ".join(filter(None, both))


def echo_jobs(jobs: list[JobStatus]) -> None:
    """Print one job as a JSON object, several as a list."""
    data = with_sandbox([job.to_dict() for job in jobs])
    echo_json(data[0] if len(data) == 1 else data)


def show(job: JobStatus) -> None:
    log_if_sandbox()
    batch = f", global batch size {job.global_batch_size}" if job.global_batch_size else ""
    values = f"; {shown_values(job.values)}" if job.values else ""
    first = f"{job.id}: {job.state}{values}; {job.nodes} x {job.instance_type} in queue {job.queue}{batch}"
    log(output.line(f"{first}; {job.directory}"))
    now = time.time()
    rows = [
        [
            s.name,
            s.number,
            s.state,
            clock(s.started),
            took(s, now),
            s.nodes,
            s.reason,
        ]
        for s in job.stages
    ]
    table("", ["stage", "id", "state", "started", "duration", "nodes", "reason"], rows)
    if stands := ", ".join(filter(None, (job.progress, job.stages[-1].last_step(now)))):
        log(output.line(stands))
    if job.kept:
        log(output.line(f"kept: {job.kept}"))
    log_findings(job)
    if job.members:
        names = list(dict.fromkeys(name for m in job.members for name in m.values))
        rows = [
            [f"{job.id}/{m.name}", *(m.values.get(name, "") for name in names), m.state, clock(m.started), m.nodes, "; ".join(filter(None, (m.reason, m.last_step(now))))]
            for m in job.members
        ]  # fmt: skip
        table("", ["member", *names, "state", "started", "nodes", "reason"], rows)


def summarize_members(streams: Mapping[str, Stream]) -> list[str]:
    """The metrics of an array's members as lines of text, that with the lowest loss first."""

    def loss(one: Stream) -> float:
        found = one.log.last.loss if one.log.last else None
        return math.inf if found is None or math.isnan(found) else found

    found = sorted((pair for pair in streams.items() if pair[1].log.last), key=lambda pair: loss(pair[1]))
    lines = []
    for name, one in found[:_MEMBERS]:
        values = f" {shown_values(one.values)}" if one.values else ""
        lines.append(f"[{name}]{values}: {summarize(one.log)[-1]}")
    return lines + ([f"and {len(found) - _MEMBERS} more members"] if len(found) > _MEMBERS else [])


def summarize(log: JobLog) -> list[str]:
    """A run's metrics as lines of text."""
    from trainium_cdk.runner.readers import NO_NUMBER

    lines = []
    if graphs := log.compiled.get("graphs"):
        lines.append(f"compiled {graphs} graphs, {log.compiled.get('failed', 0)} failed")
    if log.last:
        parts = [log.progress + ("" if log.first_loss is None else f", from {log.first_loss:.4g}")]
        parts += [
            f"{one.of} loss {NO_NUMBER if one.loss is None else f'{one.loss:.4g}'}" for one in log.evaluations.values()
        ]
        if log.throughput is not None:
            parts.append(f"{log.throughput:,.1f} {log.unit} on average")
        if log.seconds is not None:
            parts.append(f"{log.seconds:.3g} s a step")
        lines.append("; ".join(parts))
    return lines
