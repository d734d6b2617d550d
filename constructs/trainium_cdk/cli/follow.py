"""`trn status`, `logs`, `cancel`, `list`, `wait`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.cli import terminal
from trainium_cdk.cli.options import DEFAULT_STACK, ClusterFile, EnvFile, JobId, Json, Local, Region, Stack, at, backend
from trainium_cdk.cli.output import hand_out, one_line, put, say, shown, status_when_interrupted, table

if TYPE_CHECKING:
    from trainium_cdk.jobs import Expected, JobStatus, Summary


def status(
    id: JobId,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    local: Local = None,
    cluster: ClusterFile = None,
    as_json: Json = False,
) -> None:
    """Show a job's status: each stage with its state and the reason."""
    jobs = backend(stack, region, local, cluster)
    found = jobs.status(id)
    show(found, as_json)
    if not as_json and found.state in _PROGRAM_FAILED:
        name = found.current.name
        begin = jobs.tail_offset(id, name, None, _LAST_LINES)
        if begin or jobs.ordered_logs:
            end = b"".join(chunk.data for chunk in jobs.logs(id, stage=name, offset=begin))
            known(end)


_PROGRAM_FAILED = {"FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "TIMEOUT"}
_LAST_LINES, _LAST_BYTES = 400, 400_000


def known(log: bytes) -> None:
    """Print the known errors in the end of a log."""
    from trainium_cdk.catalog.known_errors import found_in

    for error, line in found_in(log[-_LAST_BYTES:].decode(errors="replace").splitlines()).values():
        say(terminal.line(f"{error}. The log has: {line[:300]}"))


def logs(
    id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the job has ended.")] = False,
    stage: Annotated[
        str | None, typer.Option(help="prepare, precompile or train. Default: the last one that has begun.")
    ] = None,
    node: Annotated[int | None, typer.Option(help="Only the output of this node: 0, 1, ... Default: all.")] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="Only the node of this process.")] = None,
    offset: Annotated[int, typer.Option(min=0, help="Byte of the stage's log to begin at.")] = 0,
    tail: Annotated[
        int | None, typer.Option(min=0, help="Only the last lines, of those that the other options select.")
    ] = None,
    grep: Annotated[str | None, typer.Option(help="Only lines with this regular expression.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only lines since then: 30m, 2h, 1d, or a time in UTC. A line without a time has that of the line before."
        ),
    ] = None,
    metrics: Annotated[bool, typer.Option("--metrics", help="Only the metrics, one JSON record per line.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Keep control characters, also on a terminal, which they can control.")
    ] = False,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    local: Local = None,
    cluster: ClusterFile = None,
) -> None:
    """Print what a job's log has now, and a summary of its metrics on standard error; of a job that failed, also known errors.

    The output is the unchanged log; on a terminal, control characters (also colours) are removed unless --raw is given.
    """
    import json
    from dataclasses import asdict

    from trainium_cdk.cli.filters import Lines, moment
    from trainium_cdk.jobs import Follower, JobError, TransportError

    filters: Lines | None = None
    if (grep, since) != (None, None) or (tail is not None and not follow):
        filters = Lines(tail=None if follow else tail, grep=grep, since=moment(since) if since else None)
    jobs = backend(stack, region, local, cluster)
    if tail is not None and (follow or (grep, since) == (None, None)):
        if follow and not jobs.ordered_logs:
            raise JobError("--tail together with -f needs a Slurm cluster. Leave one of them out")
        offset = max(offset, jobs.tail_offset(id, stage, node, tail))
    if rank is not None:
        node = jobs.node_of_rank(id, rank)
        say(f"rank {rank} is on node {node}")
    reader, last, end, show, recent = Follower(), "", "", shown(raw=raw), b""

    def handed_out(size: int) -> None:
        nonlocal offset
        offset += 0 if metrics or filters else size

    changed = (lambda s: say(one_line(s))) if follow else None
    try:
        for chunk in jobs.logs(id, stage=stage, node=node, follow=follow, offset=offset, changed=changed):
            if not chunk.data:  # the log ends before the offset
                end = f"the log of {chunk.stage} ends at byte {chunk.offset}"
                continue
            if chunk.stage != last:
                last, offset, show = chunk.stage, chunk.offset, shown(raw=raw)
                say(f"--- {last}")
            text, records = chunk.data, reader.feed(chunk.data)
            if metrics:
                lines = (
                    {"stage": chunk.stage, "record": type(record).__name__, **asdict(record)} for record in records
                )
                text = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
            elif filters:
                text = filters.feed(text)
            hand_out(text, handed_out, show)
            offset, recent = chunk.next_offset, (recent + chunk.data)[-_LAST_BYTES:]
        if filters and not metrics:
            hand_out(filters.close(), handed_out, show)
    except (KeyboardInterrupt, SystemExit, TransportError) as e:
        if last or not isinstance(e, TransportError):
            words = f" --stage {last}" if last else ""
            words += "" if node is None else f" --node {node}"
            if last and (node is not None or jobs.ordered_logs):
                words += f" --offset {offset}"
            flag, goes_on = (" -f", f"{id} continues to run. ") if follow else ("", "")
            say(f"\n{goes_on}To continue: trn logs{flag} {id}{words}{at(stack, region)}")
        raise
    reader.close()
    ended = jobs.status(id)
    if not last:
        say(f"{end or _no_output(ended, offset)}. {one_line(ended)}")
    for line in summarize(reader.summary, ended.expected):
        say(line)
    if ended.state in _PROGRAM_FAILED:
        known(recent)
    if follow and not ended.ok:
        raise typer.Exit(1)


def _no_output(status: JobStatus, offset: int) -> str:
    after = f" after byte {offset}" if offset else ""
    return f"there is no output{after}" + ("" if status.done else " yet")


def cancel(
    id: JobId,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    local: Local = None,
    cluster: ClusterFile = None,
    as_json: Json = False,
) -> None:
    """Cancel a job."""
    found = backend(stack, region, local, cluster).cancel(id)
    if found.ok:
        say(f"{id} had already completed: nothing to cancel")
    show(found, as_json)


def wait(
    id: JobId,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds. Default: no limit.")] = None,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    local: Local = None,
    cluster: ClusterFile = None,
    as_json: Json = False,
) -> None:
    """Wait until a job has ended. Exit code 0: it completed; 1: it failed, was cancelled, or has not ended within --timeout."""
    with status_when_interrupted(lambda: f"{id} continues to run. To wait again: trn wait {id}{at(stack, region)}"):
        found = backend(stack, region, local, cluster).wait(id, timeout, lambda s: say(one_line(s)))
    show(found, as_json)
    if not found.ok:
        raise typer.Exit(1)


def list_(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of jobs.")] = 50,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    local: Local = None,
    cluster: ClusterFile = None,
    as_json: Json = False,
) -> None:
    """List the jobs of a cluster, newest first."""
    found = backend(stack, region, local, cluster).list(limit)
    if as_json:
        put([job.to_dict() for job in found])
        return
    rows = [[j.id, f"{j.current.name} {j.state}", str(j.nodes), j.queue, j.current.reason] for j in found]
    table("", ["job", "state", "nodes", "queue", "reason"], rows)


def show(found: JobStatus, as_json: bool) -> None:
    if as_json:
        put(found.to_dict())
        return
    batch = f", global batch size {found.global_batch_size}" if found.global_batch_size else ""
    first = f"{found.id}: {found.state}; {found.nodes} x {found.instance_type} in queue {found.queue}{batch}"
    say(terminal.line(f"{first}; {found.directory}"))
    rows = [[s.name, s.number, s.state, _clock(s.started), _clock(s.ended), s.nodes, s.reason] for s in found.stages]
    table("", ["stage", "id", "state", "started", "ended", "nodes", "reason"], rows)


def _clock(seconds: int | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""


def summarize(summary: Summary, published: Expected | None = None) -> list[str]:
    """A run's metrics as lines of text."""
    lines = []
    if summary.graphs:
        lines.append(f"compiled {summary.graphs} graphs, {summary.failed_graphs} failed")
    if summary.last:
        step, loss = summary.last.step, summary.last.loss
        text = f"{summary.steps} steps" if step is None else f"step {step}"
        if loss is not None:
            text += f": loss {loss:.4g}" + (
                f", from {summary.first_loss:.4g}" if summary.first_loss is not None else ""
            )
        if summary.throughput is not None:
            text += f"; {summary.throughput:,.1f} sequences/s on average"
            # far above the published throughput, it is not Trainium: for example the sandbox's fake training program
            if published and summary.throughput < 3 * published.sequences_per_second:
                text += f", {summary.throughput / published.sequences_per_second:.0%} of {published}"
        lines.append(text)
    return lines
