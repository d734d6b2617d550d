"""`trn check`: reports what would fail, or cost more than expected, before a deployment."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.client.cli.options import EnvFile, Json, engine_of, stack_name
from trainium_cdk.client.cli.output import echo, echo_json, log, log_if_sandbox, with_sandbox

if TYPE_CHECKING:
    from trainium_cdk.description.checks.live import CheckReport, CheckTarget
    from trainium_cdk.description.settings import Environment
    from trainium_cdk.problems import Level

_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan", "ok": "green"}


def check(
    stack: Annotated[
        str | None,
        typer.Argument(
            metavar="STACK",
            envvar="TRN_STACK",
            callback=stack_name,
            help="TrnPclusterStack, TrnEksStack or TrnPcsStack. Default: those that the file describes.",
        ),
    ] = None,
    env: EnvFile = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check the file alone, as `cdk synth` does. AWS is not asked.")
    ] = False,
    as_json: Json = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 2 if there are warnings.")] = False,
    print_policy: Annotated[
        bool, typer.Option("--print-policy", help="Print the IAM policy that these checks need, and run none.")
    ] = False,
    qualifier: Annotated[str | None, typer.Option(help="The CDK's bootstrap qualifier, if not the default.")] = None,
) -> None:
    """Check an environment before you deploy it.

    The file, and in the account: quotas, capacity, permissions, cost. It only reads, and spends nothing. Exit code 0; 1 with errors; 2
    with warnings and --strict.
    """
    from trainium_cdk.description import settings

    environment = settings.load(env or settings.no_file())
    engines = (engine_of(stack, environment),) if stack is not None else environment.engines
    if offline:
        code = _check_file(environment, engines, as_json=as_json, strict=strict)
    else:
        code = _check_account(
            environment, engines, qualifier, print_policy=print_policy, as_json=as_json, strict=strict
        )
    if code:
        raise typer.Exit(code)


def _check_file(environment: Environment, engines: Sequence[str], *, as_json: bool, strict: bool) -> int:
    """Print the problems of the file; the exit code."""
    from trainium_cdk.description import checks
    from trainium_cdk.problems import errors

    file, problems = environment.source.file, checks.check(environment, *engines)
    if as_json:
        echo_json(
            [{"key": p.dotted, "level": p.level, "reason": p.reason, "fix": p.fix, "rule": p.rule} for p in problems]
        )
    for problem in problems:
        log(environment.source.describe(problem))
    _log_controller(environment, engines)
    if errors(problems):
        return 1
    if not environment.model_fields_set:
        log(f"{file}: it has no settings, and describes the default environment, in {environment.region}")
    log(f"{file}: valid, can be deployed")
    return 2 if strict and problems else 0


def _check_account(
    environment: Environment,
    engines: Sequence[str],
    qualifier: str | None,
    *,
    print_policy: bool,
    as_json: bool,
    strict: bool,
) -> int:
    """Print a report for each stack, or the policy that its checks need; the exit code."""
    from trainium_cdk.description.checks.live import CheckTarget, checks_of, examine, policy
    from trainium_cdk.description.checks.live.model import QUALIFIER

    targets = [CheckTarget(environment, engine, qualifier=qualifier or QUALIFIER) for engine in engines]
    if print_policy:
        _echo_each([policy(target, checks_of(target.engine)) for target in targets])
        return 0
    reports = [examine(target) for target in targets]
    if as_json:
        _echo_each([with_sandbox(report.as_json()) for report in reports])
    else:
        log_if_sandbox()
        for report, target in zip(reports, targets, strict=True):
            _show(report, target)
    _log_controller(environment, engines)
    codes = {report.exit_code(strict=strict) for report in reports}
    return min(codes - {0}, default=0)  # an error before warnings


def _log_controller(environment: Environment, engines: Sequence[str]) -> None:
    """Say what a slurmctld of this machine makes of the settings of slurm.conf, where there are any."""
    from trainium_cdk.description.checks.slurm_controller import ask

    for said in filter(None, (ask(environment, engine) for engine in engines)):
        log(said)


def _echo_each(found: list[Any]) -> None:
    """Print the findings as JSON: of one stack as an object, of several as a list."""
    echo_json(found[0] if len(found) == 1 else found)


def _show(report: CheckReport, target: CheckTarget) -> None:
    """Print a table on a terminal; elsewhere a line for each finding, and one for its fix."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from trainium_cdk.client.cli.output import clean
    from trainium_cdk.text import counted

    levels: tuple[Level, ...] = ("ok", "info", "warning", "error")  # the worst last, where it stays on the screen
    findings = [f for level in levels for f in report.of(level)]
    title = f"{report.stack} in {report.account or 'no account'}, {report.region}, from {target.env.source.file}"
    if sys.stdout.isatty():
        made = Table("level", "what", "value", "reason and fix", title=Text(clean(title)), title_justify="left")
        for f in findings:
            why = (
                Text(clean(f.reason))
                .append(clean(f"\n{f.where}") if f.where else "", "dim")
                .append(clean(f"\nFix: {f.fix}") if f.fix else "")
            )
            made.add_row(Text(f.level, _STYLES[f.level]), Text(clean(f.what)), Text(clean(f.value)), why)
        Console().print(made)
    else:
        echo(title)
        for f in findings:
            where = f" [{f.where}]" if f.where else ""
            echo(
                f"{f.level:<8} {f.what} = {f.value}: {f.reason}{where}" + (f"\n         Fix: {f.fix}" if f.fix else "")
            )
    errors, warnings = counted(len(report.of("error")), "error"), counted(len(report.of("warning")), "warning")
    log(f"{errors}, {warnings}, {len(report.of('ok'))} passed")
