"""`trn launch`: from an environment file and a job to its result, and back."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk import engines
from trainium_cdk.cli.diff import App
from trainium_cdk.cli.options import Target, backend, name_in_account, user
from trainium_cdk.cli.output import log, status_when_interrupted
from trainium_cdk.cli.settings import SETTINGS
from trainium_cdk.cli.working import working
from trainium_cdk.errors import JobError, TransportError, TrnError
from trainium_cdk.jobs.quote import printed

if TYPE_CHECKING:
    from trainium_cdk.settings import Environment

_REACHABLE_SECONDS = 600.0
"""Seconds after a deployment until the cluster must respond."""
_NOT_HERE = frozenset(
    {"--follow", "-f", "--dry-run", "--json", "--stack", "--environment", "--region", "--cluster", "--array"}
)
_FLAGS = frozenset({"--yes", "-y", "--remove"})


def launch(
    environment: Annotated[Path, typer.Argument(metavar="ENV", help="The environment file.")],
    job: Annotated[list[str], typer.Argument(metavar="JOB", help="The job, with its options, as of `trn submit`.")],
    stack: Annotated[str | None, typer.Option(help="Stack to launch, where the file describes several.")] = None,
    app: App = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the cluster when the job has ended and no other one runs or waits.")
    ] = False,
) -> None:
    """Deploy, submit, follow, and remove the cluster if wanted.

    A cluster that is there already is not deployed. The job is followed to its end; then you are asked whether to remove the cluster.

    For example `trn launch environment.yaml finetune --nodes 4`. After Ctrl-C the deployment and the job continue: the message shows
    how to follow them again. Exit code: 0 if the job completed.
    """
    from trainium_cdk import settings
    from trainium_cdk.jobs.kinds import by_name
    from trainium_cdk.operations.updates.live import deployed

    if environment.suffix in (".py", ".sh") or by_name(str(environment)):
        written = printed("trn", "launch", "environment.yaml", environment)
        raise JobError(f"{environment} is a job. Write the environment file before it: {written}")
    job, flags = _split(job)
    yes, remove = yes or not flags.isdisjoint(("--yes", "-y")), remove or "--remove" in flags
    env = settings.load(environment)
    id = stack or engines.get(env.engines[0]).stack
    name = name_in_account(id, env)
    to = ["--environment", str(environment), "--stack", name]
    confirmed = ["--yes"] if yes and "--" in job else []  # arguments of a script
    if deployed(name, env.region) is None:
        with contextlib.redirect_stdout(io.StringIO()):  # what is wrong with the job costs nothing yet
            if code := run_trn("submit", "--dry-run", "--json", *to, *confirmed, *job):
                raise typer.Exit(code)
        _deploy(id, name, env, environment, app or Path(), yes=yes)
    else:
        diff = printed("trn", "diff", name, "--environment", environment)
        log(f"{name} is deployed in {env.region}. What a deployment of the file would change: {diff}")
    stays = f"{name} stays. To remove it: {printed('trn', 'destroy', name, '--environment', environment)}"
    try:
        with status_when_interrupted(lambda: stays):
            _reach(name, env)
            code = run_trn("submit", *to, "--follow", *confirmed, *job)
    except TrnError:
        log(stays)  # and costs
        raise
    raise typer.Exit(_finish(name, environment, env.region, stays, remove=remove) or code)


def _split(job: list[str]) -> tuple[list[str], frozenset[str]]:
    """The job's words, and this command's own flags among them. Raises JobError: an option has no meaning here."""
    end = job.index("--") if "--" in job else len(job)
    for word in job[:end]:
        if word.partition("=")[0] in _NOT_HERE:
            raise JobError(
                f"{word} is not an option of `trn launch`, which follows one job on the cluster of its file. Leave it out"
            )
    return [word for word in job[:end] if word not in _FLAGS] + job[end:], _FLAGS.intersection(job[:end])


def run_trn(*arguments: str) -> int:
    """Run another command; its exit code."""
    from trainium_cdk.cli.app import app as commands

    return int(commands(list(arguments), prog_name="trn", standalone_mode=False) or 0)


def _deploy(id: str, name: str, env: Environment, file: Path, folder: Path, *, yes: bool) -> None:
    """Deploy the stack with the CDK's command line, after a question. Raises TrnError: the deployment failed, or there is no app."""
    from trainium_cdk.operations.updates.spec import command

    if not (folder / "cdk.json").is_file():
        raise TrnError(
            f"there is no CDK app in {folder.resolve()} (no cdk.json): run this in the app's folder, or give --app FOLDER"
        )
    log(f"{name} is not deployed in {env.region}{_price(id, env, file)}")
    if not yes and not sys.stdin.isatty():
        log("nothing was deployed: give --yes to deploy without confirmation")
        raise typer.Exit(2)
    if not yes:
        typer.confirm(f"Deploy {name}?", abort=True, err=True)
    cdk = [str(command().absolute()), "deploy", "-e", id, "-c", f"env={file.resolve()}", "--require-approval", "never"]
    remove = printed("trn", "destroy", name, "--environment", file)
    message = (
        f"CloudFormation continues with {name}. When it has ended, run the same command again, or delete it: {remove}"
    )
    with (
        status_when_interrupted(lambda: message),
        working(f"deploying {name}", alone=False),
    ):
        done = subprocess.run(cdk, cwd=folder, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    if done.returncode:
        why = printed("trn", "why", name, "--environment", file)
        raise TrnError(f"{name} was not deployed: see above. What failed in it: {why}. Then run this again")


def _price(id: str, env: Environment, file: Path) -> str:
    """Describe the cost of a stack, as the end of a sentence; empty for a stack of no engine."""
    from trainium_cdk.checks.live import CheckTarget as Described
    from trainium_cdk.checks.live.cost import cost, total

    engine = engines.of_stack(id)
    if engine is None:
        return ""
    items, more = cost(Described(env, engine.name)), printed("trn", "cost", id, "--environment", file)
    idle, full = total(items, "idle"), total(items, "full")
    return f". It will cost {idle} while no job runs, {full} with all of its nodes, at list prices ({more})"


def _reach(name: str, env: Environment) -> None:
    """Wait for a cluster that may have been deployed just now. Raises TransportError: it does not respond."""
    from trainium_cdk.jobs.backend import Patience

    jobs = backend(Target(name, env.region, team=os.environ.get("TRN_TEAM"), user=os.environ.get("TRN_CLUSTER_USER")))
    try:
        with working(f"waiting for an answer of {name}"):
            Patience(_REACHABLE_SECONDS, first=2.0).ask(jobs.active)
    except TrnError as e:
        raise TransportError(f"{name} is deployed, but {e}") from None


def _finish(name: str, environment: Path, region: str, stays: str, *, remove: bool) -> int:
    """Remove the cluster, or offer it; the exit code. With --remove only one on which nothing of anyone runs or waits."""
    from trainium_cdk.cli.destroy import used

    if not (remove or sys.stdin.isatty()):
        log(stays)
        return 0
    if remove:  # all teams' jobs, whosever this one was: they end with the cluster
        busy = used(backend(Target(name, region)), user(Target()))
        if busy.jobs or busy.unknown:
            others = ", ".join(job.name for job in busy.jobs[:5])
            log(f"{others} runs or waits there. {stays}" if others else f"others may use it. {stays}")
            return 0
    with contextlib.suppress(typer.Abort):  # the answer is no
        return run_trn("destroy", name, "--environment", str(environment), *(["--yes"] if remove else []))
    return 0


launch_ = typer.Typer(**SETTINGS)
launch_.command("launch", context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})(
    launch
)
