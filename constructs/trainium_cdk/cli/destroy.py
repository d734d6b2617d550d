"""`trn destroy`: a stack, and all that it would leave behind."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trainium_cdk import engines
from trainium_cdk.cli.common import DEFAULT_STACK, EnvFile, Region, described, name_in_account, say, told_when_stopped
from trainium_cdk.errors import TeardownError, TrnError

if TYPE_CHECKING:
    from trainium_cdk.operations.teardown import Report, Survey
    from trainium_cdk.operations.teardown.jobs import Fate


def register(app: typer.Typer) -> None:
    app.command()(destroy)


def destroy(
    ctx: typer.Context,
    stack: Annotated[
        str, typer.Argument(metavar="STACK", envvar="TRN_STACK", help="The stack's name in the account.")
    ] = DEFAULT_STACK,
    _env: EnvFile = None,
    region: Region = None,
    jobs: Annotated[
        Literal["cancel", "wait", "ignore"], typer.Option(help="What becomes of jobs that run or wait.")
    ] = "cancel",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a stack, its jobs, and what they leave behind. Exit code 0: nothing is left but what the environment keeps."""
    from trainium_cdk.operations.teardown import survey

    if environment := described(ctx):
        stack = name_in_account(stack, environment)
    client = clients(region)
    with _in_plain_words(stack):
        found = survey(stack, client)
    if found is None:
        say(f"there is no stack {stack} in {client('cloudformation').meta.region_name}, and there was none")
        return
    for line in plan(found, jobs):
        say(line)
    if dry_run:
        for line in _leftovers(found, client):
            say(line)
        return
    if not yes:
        if not sys.stdin.isatty():
            say("nothing was deleted: say --yes where nobody can be asked")
            raise typer.Exit(2)
        with _nothing_deleted():
            typer.confirm(f"Delete {found.owner.stack}?", abort=True, err=True)
    with told_when_stopped(lambda: _how_it_is(found, client)):
        _carry_out(found, client, jobs)


@contextlib.contextmanager
def _nothing_deleted() -> Iterator[None]:
    """Whoever says no, or Ctrl-C, instead of yes."""
    try:
        yield
    except (typer.Abort, SystemExit) as e:
        say("\nnothing was deleted")
        if isinstance(e, typer.Abort) and isinstance(e.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


def _how_it_is(found: Survey, client: Any) -> str:
    """How far it has come, for who stops it."""
    from botocore.exceptions import BotoCoreError, ClientError

    from trainium_cdk._aws import describe_error

    stack, again = found.owner.stack, "Run the same command again"
    try:
        answer = client("cloudformation").describe_stacks(StackName=found.owner.stack_id)
        status = answer["Stacks"][0]["StackStatus"]
    except (ClientError, BotoCoreError) as e:
        return f"{stack} could not be looked at: {describe_error(e)}. {again}: it goes on from where things are"
    if status == "DELETE_COMPLETE":
        return f"{stack} is gone; what it left may be there still. {again}: it looks for that"
    if status == "DELETE_IN_PROGRESS":
        return f"CloudFormation goes on deleting {stack}. {again}: it waits for that, and deletes what is left"
    return f"{stack} is {status}; a job that was cancelled stays cancelled. {again} to delete it"


def _carry_out(found: Survey, client: Any, fate: Fate) -> None:
    from trainium_cdk.operations import teardown

    if not found.gone and fate != "ignore":
        _end_jobs(found.owner.stack, client("cloudformation").meta.region_name, fate)
    with _in_plain_words(found.owner.stack):
        report = teardown.destroy(found, client, say)
    for line in conclusion(found, report):
        say(line)
    if report.left or not report.gone:
        raise typer.Exit(1)


def plan(found: Survey, fate: str) -> list[str]:
    """What will be done, in lines for people."""
    owner = found.owner
    lines = []
    if found.gone:
        lines.append(f"{owner.stack} has been deleted already; what it left is looked for")
    else:
        if owner.cluster and fate != "ignore":
            verb = "cancel" if fate == "cancel" else "wait for"
            lines.append(f"1. {verb} the jobs on cluster {owner.cluster}")
        lines.append(f"2. delete stack {owner.stack} with {found.resources} resources")
        lines.append(
            "3. delete what its parts have left: instances, load balancers, network interfaces, security groups, volumes, logs"
        )
    lines.extend(f"   kept, as its environment says: {k.type} {k.id}" for k in found.kept)
    if owner.engine and (shared := engines.get(owner.engine).shared_with_others):
        lines.append(f"   kept, as every cluster in the region shares it: {shared}")
    return lines


def conclusion(found: Survey, report: Report) -> list[str]:
    """What has become of it, in lines for people."""
    stack = found.owner.stack
    lines = [f"kept, as its environment says: {k.type} {k.id}; it is paid for" for k in report.kept]
    lines += [f"left: {what}: {why}" for what, why in report.left]
    if report.gone and not report.left:
        rest = f"{len(report.kept)} resources are kept" if report.kept else "nothing is left"
        return [*lines, f"{stack} is gone; {len(report.swept)} leftovers were deleted; {rest}"]
    return [*lines, f"{stack} is not all gone. Mend what is said above, and run the same command again"]


def _leftovers(found: Survey, client: Any) -> list[str]:
    from trainium_cdk.operations.teardown.sweep import look

    return [
        f"   there now: {left.kind} {left.id}: {left.why}"
        for left in look(client, found.owner)
        if left.id not in found.owner.managed
    ]


def _end_jobs(stack: str, region: str, fate: Fate) -> None:
    """Whoever cannot ask a cluster can still delete it: its jobs end with it."""
    from trainium_cdk.jobs.connect import connect
    from trainium_cdk.operations.teardown.jobs import end

    try:
        end(connect(stack, region, say=say), fate, say)
    except TrnError as e:
        if fate == "wait":
            raise
        say(f"the jobs could not be asked for, and end with the cluster: {e}")


@contextlib.contextmanager
def _in_plain_words(stack: str) -> Iterator[None]:
    """What AWS refuses, as one of our own errors."""
    from botocore.exceptions import BotoCoreError, ClientError

    from trainium_cdk._aws import describe_error

    try:
        yield
    except (ClientError, BotoCoreError) as e:
        raise TeardownError(f"AWS cannot be asked about {stack} or what belongs to it: {describe_error(e)}") from None


def clients(region: str | None) -> Any:
    """Service -> boto3 client, each made once."""
    from functools import cache

    import boto3
    from botocore.config import Config

    from trainium_cdk._aws import region as aws_region

    patient = Config(retries={"mode": "adaptive", "max_attempts": 10})
    make: Any = boto3.client  # its stubs know each service by a literal name only
    return cache(lambda service: make(service, region_name=aws_region(region), config=patient))
