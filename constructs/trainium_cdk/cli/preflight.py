"""`trn preflight`: reports what would fail, or cost more than expected, before a deployment."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.cli.named import unknown
from trainium_cdk.cli.options import DEFAULT_STACK, EnvFile, Json, id_in_app, stack_argument
from trainium_cdk.cli.output import answer, marked, put, say, say_if_sandbox
from trainium_cdk.errors import OutputsError

if TYPE_CHECKING:
    from trainium_cdk.checks.live import Level, Report, Target
    from trainium_cdk.settings import Environment

_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan", "ok": "green"}


def preflight(
    stack: Annotated[str, stack_argument(help="TrnPclusterStack, TrnEksStack or TrnPcsStack.")] = DEFAULT_STACK,
    env: EnvFile = None,
    as_json: Json = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 2 if there are warnings.")] = False,
    print_policy: Annotated[
        bool, typer.Option("--print-policy", help="Print the IAM policy that these checks need, and run none.")
    ] = False,
    qualifier: Annotated[str | None, typer.Option(help="The CDK's bootstrap qualifier, if not the default.")] = None,
) -> None:
    """Check an environment against the account.

    With requests that only read. Exit code 0; 1 with errors; 2 with warnings and --strict.
    """
    from trainium_cdk import settings
    from trainium_cdk.checks.live import Target, checks_of, examine, policy
    from trainium_cdk.checks.live.model import QUALIFIER

    environment = settings.load(env)
    target = Target(environment, engine_of(stack, environment), qualifier=qualifier or QUALIFIER)
    if print_policy:
        put(policy(target, checks_of(target.engine)))
        return
    report = examine(target)
    if as_json:
        put(marked(report.as_json()))
    else:
        say_if_sandbox()
        _show(report, target)
    if code := report.exit_code(strict=strict):
        raise typer.Exit(code)


def engine_of(stack: str, environment: Environment) -> str:
    """Name of the engine of a stack, by the stack's id in the app or by its name in the account.

    Raises:
        OutputsError: no engine has such a stack.
    """
    from trainium_cdk import engines

    if found := engines.of_stack(id_in_app(stack, environment)):
        return found.name
    raise OutputsError(unknown("there is no stack", stack, [e.stack for e in engines.ENGINES.values()]))


def _show(report: Report, target: Target) -> None:
    """Print a table on a terminal; elsewhere a line for each finding, and one for its fix."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from trainium_cdk.catalog.plain import counted
    from trainium_cdk.cli.terminal import clean

    levels: tuple[Level, ...] = ("ok", "info", "warning", "error")  # the worst last, where it stays on the screen
    findings = [f for level in levels for f in report.of(level)]
    title = f"{report.stack} in {report.account or 'no account'}, {report.region}, from {target.env.source.file}"
    if sys.stdout.isatty():
        made = Table("level", "what", "value", "reason and fix", title=clean(title), title_justify="left")
        for f in findings:
            why = (
                Text(clean(f.reason))
                .append(clean(f"\n{f.where}") if f.where else "", "dim")
                .append(clean(f"\nFix: {f.fix}") if f.fix else "")
            )
            made.add_row(Text(f.level, _STYLES[f.level]), Text(clean(f.what)), Text(clean(f.value)), why)
        Console().print(made)
    else:
        answer(title)
        for f in findings:
            where = f" [{f.where}]" if f.where else ""
            answer(
                f"{f.level:<8} {f.what} = {f.value}: {f.reason}{where}" + (f"\n         Fix: {f.fix}" if f.fix else "")
            )
    errors, warnings = counted(len(report.of("error")), "error"), counted(len(report.of("warning")), "warning")
    say(f"{errors}, {warnings}, {len(report.of('ok'))} passed")
