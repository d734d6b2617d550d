"""`trn diff`: what a deployment would do to the deployed stack."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.client.cli.options import DEFAULT_STACK, EnvFile, Json, described, id_in_app, stack_argument
from trainium_cdk.client.cli.output import echo, echo_json, log
from trainium_cdk.client.cli.progress import working

if TYPE_CHECKING:
    from trainium_cdk.client.operations.updates import Change
    from trainium_cdk.description.checks.live import Aws
    from trainium_cdk.description.settings import Environment

App = Annotated[Path | None, typer.Option(help="Folder with the app's cdk.json. Default: this one.")]


def diff(
    ctx: typer.Context,
    stack: Annotated[
        str,
        stack_argument(help="Stack id as in `cdk deploy`, or the stack's name in the account."),
    ] = DEFAULT_STACK,
    env: EnvFile = None,
    app: App = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A resource that may be lost; repeat it for several. Default: none."),
    ] = None,
    fleet_stopped: Annotated[
        bool, typer.Option("--fleet-stopped", help="The Slurm fleet is stopped for the deployment.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="Also show safe changes.")] = False,
    as_json: Json = False,
) -> None:
    """Print what a deployment would lose, replace or interrupt.

    Exit code 1: it would lose something, or fail.
    """
    from trainium_cdk.client.operations.updates import Spec, compare, dangerous
    from trainium_cdk.client.operations.updates.live import assemble, deployed

    spec = Spec.load()
    if environment := described(ctx):
        stack = id_in_app(stack, environment)
    with working(f"synthesising {stack}"):
        wanted = assemble(stack, env, app)
    there = deployed(wanted.name, wanted.region)
    if there is None:
        log(f"{wanted.name} is not deployed: all of its resources are new")
        for line in _staying(wanted.name, wanted.region):
            log(line)
        if as_json:
            echo_json([])
        return
    found = compare(there, wanted.template, spec, fleet_running=not fleet_stopped)
    bad = dangerous(found, allow or [])
    if as_json:
        echo_json([asdict(c) for c in found])
    else:
        for line in describe(found, everything=all_):
            echo(line)
    if environment:
        for line in servers(stack, environment):
            log(line)
    log(_verdict(wanted.name, found, bad))
    if bad:
        raise typer.Exit(1)


def servers(stack: str, environment: Environment, aws: Aws | None = None) -> list[str]:
    """List the quotas of ordinary instances that do not suffice for the most that the stack needs after the update. CloudFormation would not notice:
    it creates a queue whose nodes cannot start."""
    from trainium_cdk.description import engines
    from trainium_cdk.description.checks.live import Aws as Connection
    from trainium_cdk.description.checks.live import CheckTarget, run
    from trainium_cdk.description.checks.live.quotas import STANDARD_CHECK

    engine = engines.of_stack(stack)
    if engine is None:
        return []
    found = run(CheckTarget(environment, engine.name), aws or Connection(environment.region), [STANDARD_CHECK])
    return [f"{f.level}: {f.what} = {f.value}: {f.reason}. Fix: {f.fix}" for f in found if f.level != "ok"]


def _staying(name: str, region: str | None) -> list[str]:
    """Describe the stacks of the same engine that stay after an environment is renamed, or moved to another region."""
    import boto3

    from trainium_cdk._aws import region as aws_region
    from trainium_cdk.description import engines
    from trainium_cdk.description.outputs.read import elsewhere, id_in_app, stacks

    here, engine = boto3.Session(region_name=aws_region(region)).region_name, engines.of_stack(id_in_app(name) or "")
    if engine is None:
        return []
    found = [(other, here) for other in stacks(here, engine.name)] + [(name, there) for there in elsewhere(name, here)]
    return [
        f"{other} in {there} stays, and costs money, until `trn destroy {other} --region {there}`"
        for other, there in found
    ]


def describe(found: Iterable[Change], *, everything: bool = False) -> list[str]:
    """The changes as lines of text: one per resource, with its properties below it; safe ones only as a number."""
    lines: list[str] = []
    safe = 0
    for (level, name, kind), group in groupby(found, key=lambda c: (c.level, c.name, c.type)):
        changes = list(group)
        if level == "safe" and not everything:
            safe += len(changes)
            continue
        lines.append(f"{level:<10} {name} ({kind})")
        for (meaning, advice), same in groupby(changes, key=lambda c: (c.meaning, c.advice)):
            for c in same:
                if c.property:
                    lines.append(f"{'':<11}{c.property}: {c.old or 'none'} -> {c.new or 'none'}")
            lines.append(f"{'':<11}{meaning[:1].upper()}{meaning[1:]}.")
            if advice:
                lines.append(f"{'':<11}What to do: {advice}.")
    if safe:
        lines.append(f"{'safe':<10} {safe} more (--all shows them)")
    return lines


def _verdict(name: str, found: list[Change], bad: list[Change]) -> str:
    if not found:
        return f"{name}: no change"
    if bad:
        names = ", ".join(dict.fromkeys(c.name for c in bad))
        return f"{name}: do not deploy this as it is: {names}"
    lost = [c.name for c in found if c.level == "loses"]
    changes = "1 change" if len(found) == 1 else f"{len(found)} changes"
    return f"{name}: {changes}; nothing is lost" + (
        f" but what --allow names: {', '.join(dict.fromkeys(lost))}" if lost else ""
    )
