"""`trn destroy`: deletes a stack, and what it would leave behind."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trainium_cdk.client.cli.options import (
    DEFAULT_STACK,
    EnvFile,
    Region,
    Target,
    at,
    described,
    name_in_account,
    remembered,
    stack_argument,
    user,
)
from trainium_cdk.client.cli.output import log, status_when_interrupted
from trainium_cdk.client.cli.progress import size, working
from trainium_cdk.client.jobs.quote import printed
from trainium_cdk.errors import JobError, OutputsError, TrnError
from trainium_cdk.text import counted

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.backend import Backend
    from trainium_cdk.client.operations.teardown import RemovalReport, Survey
    from trainium_cdk.client.operations.teardown.occupants import Fate, Occupant
    from trainium_cdk.client.operations.teardown.owner import Owner


def destroy(
    ctx: typer.Context,
    stack: Annotated[str, stack_argument(help="The stack's name in the account.")] = DEFAULT_STACK,
    _env: EnvFile = None,
    region: Region = None,
    jobs: Annotated[
        Literal["cancel", "wait", "ignore"], typer.Option(help="What to do with jobs that run or wait.")
    ] = "cancel",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted, and delete nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a stack, its jobs, and what they leave behind.

    Exit code 0: nothing is left but what the environment keeps. Exit code 1: something is left, or there is no such stack.
    """
    from trainium_cdk._aws import clients
    from trainium_cdk.client.operations.teardown import survey
    from trainium_cdk.client.operations.teardown.occupants import lines

    if environment := described(ctx):
        stack = name_in_account(stack, environment)
    client = clients(region)
    with _in_plain_words(stack):
        found = survey(stack, client)
    if found is None:
        raise _nothing_there(stack, client("cloudformation").meta.region_name)
    me = user(Target(user=os.environ.get("TRN_CLUSTER_USER") or remembered(ctx, "user", stack)))
    busy = Busy() if found.deleted or jobs == "ignore" else _busy(found.owner, region, jobs, me)
    on = Target(found.owner.stack, region, implied=frozenset())
    with working("looking for checkpoints (--jobs ignore does not)"):
        copies = only_there(busy.backend, on) if busy.backend and found.file_systems else ()
    for line in (*plan(found, jobs, copies), *lines(busy.jobs)):
        log(line)
    if dry_run:
        for line in _leftovers(found, client):
            log(line)
        return
    if not yes:
        if not sys.stdin.isatty():
            log("nothing was deleted: give --yes to delete without confirmation")
            raise typer.Exit(2)
        with _nothing_deleted():
            confirm(found.owner.stack, busy)
    with status_when_interrupted(lambda: _how_it_is(found, client)):
        _carry_out(found, client, jobs, busy.backend)


@dataclass
class Busy:
    """The jobs that use a cluster.

    Attributes:
        backend: the way to its jobs; None if it cannot be reached, or has none.
        jobs: those that run or wait.
        unknown: whether there may be more, of a team or of users whose jobs the caller may not list.
    """

    backend: Backend | None = None
    jobs: list[Occupant] = field(default_factory=list)
    unknown: bool = False


def confirm(stack: str, busy: Busy) -> None:
    """Ask before the deletion. Where jobs of others end with it, a `y` is not enough: the stack's name has to be typed.

    Raises:
        typer.Abort: the answer is no, or another name.
    """
    if not busy.unknown and all(job.own for job in busy.jobs):
        typer.confirm(f"Delete {stack}?", abort=True, err=True)
        return
    typed = typer.prompt(
        f"Jobs of others end with {stack}. Type its name to delete it", default="", show_default=False, err=True
    )
    if typed.strip() != stack:
        raise typer.Abort


def _busy(owner: Owner, region: str | None, fate: Fate, me: str) -> Busy:
    """Find the use of a stack's cluster. A cluster that cannot be reached can still be deleted. The cluster may be none of the stack's own parts."""
    from trainium_cdk.client.jobs.connection import connect

    try:
        jobs = connect(owner.stack, region, say=log)
        return used(jobs, me, waits=fate == "wait", unlisted="could not be listed, and end with the cluster")
    except TrnError as e:
        if fate == "wait":
            raise
        if owner.cluster or not isinstance(e, OutputsError):
            log(f"the jobs and their checkpoints could not be listed, and end with the cluster: {e}")
        return Busy(unknown=isinstance(e, JobError))


def used(backend: Backend, me: str, *, waits: bool = False, unlisted: str = "could not be listed") -> Busy:
    """Find the jobs that run or wait on a cluster, of all its teams.

    Args:
        me, waits: as of `occupants`.
        unlisted: the line about jobs of a team that the caller may not list.

    Raises:
        TransportError: the cluster cannot be reached.
    """
    from trainium_cdk.client.jobs.connection import connect
    from trainium_cdk.client.operations.teardown.occupants import occupants

    busy = Busy(backend, occupants(backend, me, waits=waits))
    for team, seen in backend.cluster.of_teams().items():
        try:
            busy.jobs += occupants(connect(cluster=seen), me, team)
        except TrnError as e:
            busy.unknown = True
            log(f"jobs of team {team} {unlisted}: {e}")
    return busy


def only_there(backend: Backend, on: Target) -> list[str]:
    """Name the newest checkpoints that S3 does not have, as lines of text, with the command that copies each: of all teams and users whose files
    the caller may read. Empty if no job has any. `on`: the cluster, as commands name it."""
    from trainium_cdk.client.jobs.connection import connect

    views, every = [on, *(replace(on, team=name) for name in backend.cluster.of_teams())], []
    for view in views:
        try:
            found = (backend if view == on else connect(cluster=view.of_team(backend.cluster))).checkpoints()
            every += [(view, one) for one in found.checkpoints]
            views += [replace(on, user=name) for name in found.users]
        except TrnError as e:
            log(f"checkpoints of {view.team or view.user or view.stack} could not be listed: {e}")
    lost, made = [(view, one) for view, one in every if one.to], list[str]()
    for view, one in lost[:10]:
        to = "/".join(filter(None, (backend.cluster.keep or "s3://BUCKET", view.team or view.user, one.to)))
        command = printed("trn", "cp", f"cluster:{one.path}", to) + at(view)
        made.append(f"   only there: {one.id}: {one.name} ({size(one.size)}). To keep it: {command}")
    made += [f"   and {len(lost) - 10} more"] if len(lost) > 10 else []
    return made or [f"   the newest checkpoints of {counted(len(every), 'job')} are in S3"] * bool(every)


def _nothing_there(stack: str, region: str) -> TrnError:
    """An error that names the stacks that there are: a wrong name or region must not look like a deletion."""
    from trainium_cdk.description.outputs.read import elsewhere, missing

    return TrnError(f"nothing was deleted: {missing(stack, region, elsewhere(stack, region), deployable=False)}")


@contextlib.contextmanager
def _nothing_deleted() -> Iterator[None]:
    """Print that nothing was deleted, if the user answers no or presses Ctrl-C."""
    try:
        yield
    except (typer.Abort, SystemExit) as e:
        log("\nnothing was deleted")
        if isinstance(e, typer.Abort) and isinstance(e.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


def _how_it_is(found: Survey, client: Any) -> str:
    """The state of the deletion when it is interrupted."""
    from trainium_cdk._aws import describe_error, failures

    stack, again = found.owner.stack, "Run the same command again"
    try:
        response = client("cloudformation").describe_stacks(StackName=found.owner.stack_id)
        status = response["Stacks"][0]["StackStatus"]
    except failures() as e:
        return f"{stack} could not be inspected: {describe_error(e)}. {again} to resume"
    if status == "DELETE_COMPLETE":
        return f"{stack} is deleted; leftovers may still exist. {again} to delete them"
    if status == "DELETE_IN_PROGRESS":
        return f"CloudFormation continues to delete {stack}. {again} to wait for it and delete the leftovers"
    return f"{stack} is {status}; a job that was cancelled stays cancelled. {again} to delete it"


def _carry_out(found: Survey, client: Any, fate: Fate, jobs: Backend | None) -> None:
    from trainium_cdk.client.operations import teardown

    stack = found.owner.stack
    if jobs:
        _end_jobs(jobs, fate)
    with _in_plain_words(stack), working(f"deleting {stack}") as shown:
        report = teardown.destroy(
            found, client, log, progress=lambda done, total: shown.at(f"{done} of {total} resources")
        )
    for line in conclusion(found, report):
        log(line)
    if report.left or not report.deleted:
        raise typer.Exit(1)


def plan(survey: Survey, fate: str, checkpoints: Sequence[str] = ()) -> list[str]:
    """The plan as lines of text. `checkpoints`: as of `only_there`."""
    from trainium_cdk.client.operations.teardown.owner import TRACES

    owner = survey.owner
    if survey.deleted:
        lines = [f"{owner.stack} is already deleted; its leftovers are searched for"]
    else:
        lines = [f"{number}. {step}" for number, step in enumerate(_steps(survey, fate), 1)]
        if survey.file_systems:
            copy = "" if checkpoints else ". To keep some, copy them first, for example: trn cp latest:output model"
            lines.append(f"   with them, all files on {', '.join(survey.file_systems)} are deleted{copy}")
            lines += checkpoints
    lines.extend(f"   kept, as configured: {k.type} {k.id}" for k in survey.kept)
    if owner.engine and (shared := TRACES[owner.engine].shared):
        lines.append(f"   kept, because all clusters in the region share it: {shared}")
    return lines


def _steps(found: Survey, fate: str) -> Iterator[str]:
    if found.owner.cluster and fate != "ignore":
        yield f"{'cancel' if fate == 'cancel' else 'wait for'} the jobs on cluster {found.owner.cluster}"
    yield f"delete stack {found.owner.stack} with {counted(found.resources, 'resource')}"
    yield "delete leftovers of its parts: instances, load balancers, network interfaces, security groups, volumes, logs"


def conclusion(survey: Survey, report: RemovalReport) -> list[str]:
    """The result as lines of text."""
    stack = survey.owner.stack
    lines = [f"kept, as configured: {k.type} {k.id}; it costs money" for k in report.kept]
    lines += [f"left: {what}: {why}" for what, why in report.left]
    if report.deleted and not report.left:
        rest = f"{counted(len(report.kept), 'resource is', 'resources are')} kept" if report.kept else "nothing is left"
        return [
            *lines,
            f"{stack} is deleted; {counted(len(report.swept), 'leftover was', 'leftovers were')} deleted; {rest}",
        ]
    return [*lines, f"{stack} is not completely deleted. Fix the errors above, and run the same command again"]


def _leftovers(found: Survey, client: Any) -> list[str]:
    from trainium_cdk.client.operations.teardown.sweep import find

    return [
        f"   {'exists now' if left.sure else 'stays, unless you delete it'}: {left.kind} {left.id}: {left.why}"
        for left in find(client, found.owner)
        if left.id not in found.owner.managed
    ]


def _end_jobs(jobs: Backend, fate: Fate) -> None:
    """End the jobs. If the cluster cannot be reached any more, it can still be deleted: its jobs end with it."""
    from trainium_cdk.client.operations.teardown.occupants import end

    try:
        end(jobs, fate, log)
    except TrnError as e:
        if fate == "wait":
            raise
        log(f"not all jobs could be ended, and the rest ends with the cluster: {e}")


def _in_plain_words(stack: str) -> AbstractContextManager[None]:
    """Raise errors of AWS as TrnError."""
    from trainium_cdk._aws import aws_errors_as

    return aws_errors_as(TrnError, f"a request to AWS about {stack} or its resources failed")
