"""`trn verify`: a cluster on AWS from check to removal, within a budget, and what of the predictions was true."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk import engines
from trainium_cdk._aws import sandboxed
from trainium_cdk.cli.output import echo, echo_json, log, log_if_sandbox, table, write_file
from trainium_cdk.engines import SLURM
from trainium_cdk.errors import Stopped, TrnError
from trainium_cdk.jobs.quote import printed

if TYPE_CHECKING:
    from trainium_cdk.operations.verify.commands import Commands
    from trainium_cdk.operations.verify.guard import Client
    from trainium_cdk.operations.verify.plan import Plan
    from trainium_cdk.operations.verify.state import Run


def verify(
    max_usd: Annotated[
        float | None,
        typer.Option("--max-usd", min=1, max=100_000, help="USD that it may cost at most, the removal included."),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="slurm (ParallelCluster), pcs (AWS PCS) or eks (Kubernetes).")
    ] = SLURM.name,
    instance_type: Annotated[
        str | None, typer.Option(help="Type of the nodes. Default: the cheapest on which a kind of job trains.")
    ] = None,
    region: Annotated[
        str | None, typer.Option(help="AWS region. Default: one where the type is offered at a known price.")
    ] = None,
    capacity_block: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Use the instances of this capacity block (cr-...), which you have paid for."),
    ] = None,
    folder: Annotated[
        Path, typer.Option(help="Folder for its files. The same folder goes on with the same run.")
    ] = Path("trn-verify"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and the highest cost. AWS is not asked, but for a block.")
    ] = False,
    print_policy: Annotated[
        bool, typer.Option("--print-policy", help="Print the IAM policy that it needs, and run nothing.")
    ] = False,
    remove: Annotated[
        str | None,
        typer.Option("--remove", metavar="STACK", help="Only remove what a run has left, whose folder is lost."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Prove on AWS that it works, within a budget.

    It deploys a small cluster, tests it, trains, ends a node, updates, and removes everything. Then it writes a page about what was as
    predicted. If it is interrupted, the same command goes on. Exit code 0: each step has passed, and nothing is left.
    """
    from trainium_cdk.operations.verify.state import alone, load

    if remove is not None:
        raise typer.Exit(_only_remove(remove, region))
    engines.get(engine)
    if dry_run or print_policy:
        plan = _plan(engine, instance_type, region, max_usd, capacity_block)
        _print_policy(plan) if print_policy else _show(plan, max_usd)
        return
    with alone(folder):
        run = load(folder)
        if run is None or run.removed:
            if max_usd is None:
                raise TrnError(
                    "give --max-usd: how many USD it may cost at most. `trn verify --dry-run` prints the plan"
                )
            run = _begin(
                _plan(engine, instance_type, region, max_usd, capacity_block, ask=True), max_usd, folder, yes=yes
            )
        else:
            log(
                f"going on with the run in {folder}: {run.plan.stack} in {run.plan.region}, at most {run.max_usd:,.2f} USD"
            )
        raise typer.Exit(_go(run, folder))


def _plan(
    engine: str,
    instance_type: str | None,
    region: str | None,
    max_usd: float | None,
    capacity_block: str | None,
    *,
    ask: bool = False,
) -> Plan:
    """The plan; with `ask` for what can start now, where no instance type is given."""
    from trainium_cdk.operations.verify.plan import make

    if capacity_block is not None:
        from trainium_cdk._aws import aws_errors_as, clients
        from trainium_cdk.operations.verify.choice import block

        with aws_errors_as(TrnError, f"cannot read capacity block {capacity_block}"):
            return make(engine, None, None, max_usd, block(clients(region), capacity_block))
    if ask and instance_type is None:
        from trainium_cdk.operations.verify.choice import can_start

        instance_type, region = can_start(engine, region)
    return make(engine, instance_type, region, max_usd)


def _show(plan: Plan, max_usd: float | None) -> None:
    """The plan, and what it costs at most."""
    table(
        f"{plan.stack}: {plan.nodes} x {plan.instance_type} in {plan.region}",
        ["step", "usual min", "at most min", "at most USD", "what"],
        [
            [s.name, f"{s.usual / 60:,.0f}", f"{s.most / 60:,.0f}", f"{plan.price(s.rate, s.most):,.2f}", s.title]
            for s in plan.all
        ],
    )
    assumed = f". Prices are not known, and assumed: {'; '.join(plan.assumed)}" if plan.assumed else ""
    log(
        f"about {plan.expected:,.2f} USD, at most {plan.highest:,.2f}, of them {plan.data:,.2f} for traffic and data. "
        f"An hour costs {plan.usd['full']:,.2f} with all nodes, {plan.usd['idle']:,.2f} without{assumed}"
    )
    if max_usd is not None and plan.highest > max_usd:
        log(f"with --max-usd {max_usd:,.2f}, a step that might cost more than what is left is not run")
    nodes = ("--capacity-block", plan.block) if plan.block else ("--instance-type", plan.instance_type)
    policy = printed("trn", "verify", "--print-policy", "--engine", plan.engine, *nodes, "--region", plan.region)
    log(f"it needs a bootstrapped account (cdk bootstrap), and these permissions: {policy}")


def _print_policy(plan: Plan) -> None:
    from trainium_cdk.operations.verify.permissions import policy

    echo_json(policy(plan))


def _begin(plan: Plan, max_usd: float, folder: Path, *, yes: bool) -> Run:
    """Show the plan, ask once, and prepare the folder."""
    import secrets

    from trainium_cdk.cli import project
    from trainium_cdk.operations.updates.spec import command
    from trainium_cdk.operations.verify.state import Run

    command()  # without the CDK nothing works
    _alone_in_account(plan)
    log_if_sandbox()
    _show(plan, max_usd)
    if not yes and not sys.stdin.isatty():
        log("nothing was done: give --yes to begin without confirmation")
        raise typer.Exit(2)
    if not yes:
        typer.confirm(f"Begin, with at most {max_usd:,.2f} USD?", abort=True, err=True)
    run = Run(secrets.token_hex(6), plan, max_usd, time.time())
    with contextlib.chdir(folder):
        for _ in project.write(force=False):
            pass
    run.save(folder)
    return run


def _alone_in_account(plan: Plan) -> None:
    """Raises TrnError: another verification runs, or somebody's own environment has its name, which the removal would delete."""
    from trainium_cdk._aws import aws_errors_as, clients
    from trainium_cdk.operations.verify.guard import holder, status, taken

    client = clients(plan.region)
    with aws_errors_as(TrnError, f"cannot ask for {plan.stack}"):
        if (other := holder(client)) is not None:
            raise TrnError(taken(*other))
        if status(client, plan.stack):
            raise TrnError(
                f"there is a stack {plan.stack} in {plan.region}, of an environment with the name verify. Give another --region, "
                f"or delete it: {printed('trn', 'destroy', plan.stack, '--region', plan.region)}"
            )


def _go(run: Run, folder: Path) -> int:
    """Do what is left of a run; the exit code."""
    from trainium_cdk._aws import aws_errors_as, clients
    from trainium_cdk.operations.verify.commands import Commands
    from trainium_cdk.operations.verify.guard import Guard, status
    from trainium_cdk.operations.verify.run import Verification, what_stays

    client, commands = clients(run.plan.region), Commands(folder.absolute())
    guard = Guard(client, run.id, run.plan.stack, commands.sleep)
    work = Verification(
        run,
        folder.absolute(),
        commands,
        client,
        guard,
        lambda: status(client, run.plan.stack),
        log,
        sleep=commands.sleep,
    )
    with _signals(commands), aws_errors_as(TrnError, "the verification stopped. Run the same command again"):
        try:
            passed = work()
        except Stopped:
            log(what_stays(run))
            return 130
    if not run.removed:
        log(what_stays(run))
    _write(run, folder)
    return 0 if passed else 1


def _write(run: Run, folder: Path) -> None:
    """The record and the page, which may be published; what was not as predicted."""
    from trainium_cdk.operations.verify.page import page, record, rows

    found = record(run, time.time(), sandbox=sandboxed())
    write_file(folder / "verified.json", found.model_dump_json(indent=1) + "\n", 0o644)
    write_file(folder / "verified.md", page(found), 0o644)
    table("", ["what", "predicted", "seen", "ratio", ""], [list(row) for row in rows(found)])
    wrong = [row[0] for row in rows(found) if row[-1] == "differs"]
    if wrong:
        log(
            f"not as predicted: {', '.join(wrong)}. Please report it, with {folder / 'verified.md'}. Nothing of your account is in it"
        )
    log(
        f"{found.usd:,.2f} USD, by list prices and the clock. The page: {folder / 'verified.md'}; all output: {folder / 'log.txt'}"
    )
    echo(str(folder / "verified.md"))


@contextlib.contextmanager
def _signals(commands: Commands) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal begin the removal."""

    def stop(*_: Any) -> None:
        commands.stopping.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {
        number: signal.signal(number, stop) for number in numbers if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _only_remove(stack: str, region: str | None) -> int:
    """Delete a stack of a verification, and its guard; the exit code."""
    from trainium_cdk._aws import aws_errors_as, clients
    from trainium_cdk.cli.launch import run_trn
    from trainium_cdk.operations.verify.guard import Guard, holder, status
    from trainium_cdk.operations.verify.plan import NAME

    names = [f"{engine.stack}-{NAME}" for engine in engines.ENGINES.values()]
    if stack not in names:
        raise TrnError(f"{stack!r} is no stack of a verification. These are: {', '.join(names)}")
    client: Client = clients(region)
    with aws_errors_as(TrnError, f"cannot read {stack}"):
        if status(client, stack):
            words = ("destroy", stack, *(("--region", region) if region else ()), "--yes")
            if code := run_trn(*words):
                return code
        if (found := holder(client)) is not None and found[1] == stack:
            Guard(client, found[0], stack).release()
    log(f"nothing of {stack} is left in {client('cloudformation').meta.region_name}")
    return 0
