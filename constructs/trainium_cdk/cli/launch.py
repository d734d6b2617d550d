"""`trn launch`: from an environment file and a job to its result, and back."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.exceptions import TyperException

from trainium_cdk import engines
from trainium_cdk.cli.diff import App
from trainium_cdk.cli.named import length, user
from trainium_cdk.cli.options import Target, backend, name_in_account
from trainium_cdk.cli.output import log, status_when_interrupted
from trainium_cdk.cli.settings import SETTINGS
from trainium_cdk.cli.working import working
from trainium_cdk.errors import JobError, TransportError, TrnError
from trainium_cdk.jobs.quote import printed

if TYPE_CHECKING:
    from trainium_cdk.settings import Environment

_REACHABLE_SECONDS = 600.0
"""Seconds after a deployment until the cluster must respond."""
_COMMANDS = frozenset({"--follow", "-f", "--dry-run", "--json", "--stack", "--environment", "--region", "--cluster"})
_WHEN = {"idle": "while no job runs", "full": "with all of its nodes"}


def launch(
    environment: Annotated[Path, typer.Argument(metavar="ENV", help="The environment file.")],
    job: Annotated[list[str], typer.Argument(metavar="JOB", help="The job, with its options, as of `trn submit`.")],
    stack: Annotated[str | None, typer.Option(help="Stack that is meant, where the file describes several.")] = None,
    app: App = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the cluster when the job has ended and no other one runs or waits.")
    ] = False,
) -> None:
    """Deploy, submit, follow, and remove the cluster if wanted.

    A cluster that is there already is not deployed. The job is followed to its end; then you are asked whether to remove the cluster.

    For example `trn launch environment.yaml bert-large --nodes 4`. Ctrl-C does not end a deployment or a job: the message has the
    commands that go on. Exit code: 0 if the job completed.
    """
    from trainium_cdk import settings

    job, flags = _without_flags(job)
    yes, remove = yes or not flags.isdisjoint(("--yes", "-y")), remove or "--remove" in flags
    env = settings.load(environment)
    id = stack or engines.get(env.engines[0]).stack
    name = name_in_account(id, env)
    to = ["--environment", str(environment), "--stack", name]
    if not _is_deployed(name, env, environment):
        with contextlib.redirect_stdout(io.StringIO()):  # what is wrong with the job costs nothing yet
            if code := _trn("submit", "--dry-run", "--json", *to, *job):
                raise typer.Exit(code)
        folder = _app_in(app)
        log(_price(id, name, env, environment))
        _ask(name, yes=yes)
        _deploy(id, name, env, environment, folder)
    stays = f"{name} stays. To remove it: {printed('trn', 'destroy', name, '--environment', environment)}"
    try:
        with status_when_interrupted(lambda: stays):
            _reach(name, env)
            code = _trn("submit", *to, "--follow", *job)
    except TrnError:
        log(stays)  # and costs
        raise
    raise typer.Exit(_finish(name, environment, env.region, remove=remove) or code)


def _without_flags(job: list[str]) -> tuple[list[str], set[str]]:
    """The job's words, and this command's own flags among them.

    Raises:
        JobError: an option has no meaning here.
    """
    end = job.index("--") if "--" in job else len(job)
    words, rest = job[:end], job[end:]
    for word in words:
        name = word.partition("=")[0]
        if name in _COMMANDS:
            raise JobError(
                f"{word} is not an option of `trn launch`, which follows the job on the cluster of its file. Leave it out"
            )
        if name in ("--array", "--count"):
            raise JobError(
                f"{word}: `trn launch` prints one log, and each member of an array has its own. Deploy the cluster, and use `trn submit`"
            )
    flags = {"--yes", "-y", "--remove"}
    return [word for word in words if word not in flags] + rest, flags.intersection(words)


def _trn(*arguments: str) -> int:
    """Run another command; its exit code."""
    from trainium_cdk.cli.app import app as commands

    try:
        return int(commands(list(arguments), prog_name="trn", standalone_mode=False) or 0)
    except TyperException as e:
        if not (show := getattr(e, "show", None)):  # an error of the command line has it
            raise
        show()
        raise typer.Exit(2) from None


def _is_deployed(name: str, env: Environment, file: Path) -> bool:
    """Whether it is, once nothing is being deployed there, as after a launch that was interrupted."""
    from trainium_cdk.operations.updates.live import deployed

    _wait_for_deployment(name, env.region)
    if deployed(name, env.region) is None:
        return False
    diff = printed("trn", "diff", name, "--environment", file)
    log(f"{name} is deployed in {env.region}. What a deployment of the file would change: {diff}")
    return True


def _wait_for_deployment(name: str, region: str) -> None:
    """Raises TrnError: the stack cannot be read."""
    from botocore.exceptions import ClientError

    from trainium_cdk._aws import aws_errors_as, client

    logged = False
    while True:
        with aws_errors_as(TrnError, f"cannot read stack {name}"):
            try:
                stacks = client("cloudformation", region).describe_stacks(StackName=name)["Stacks"]
            except ClientError as e:
                if "does not exist" in str(e):
                    return
                raise
        state = str(stacks[0]["StackStatus"])
        if not state.endswith("_IN_PROGRESS") or state.startswith(("DELETE", "REVIEW")):
            return
        if not logged:
            log(f"waiting until {name} in {region} is no longer {state}")
            logged = True
        time.sleep(5)


def _app_in(app: Path | None) -> Path:
    """The folder of the CDK app. Raises TrnError: there is none."""
    folder = app or Path()
    if not (folder / "cdk.json").is_file():
        raise TrnError(
            f"there is no CDK app in {folder.resolve()} (no cdk.json): run this in the app's folder, or give --app FOLDER"
        )
    return folder


def _price(id: str, name: str, env: Environment, file: Path) -> str:
    """A message: the stack is not deployed, and what it would cost."""
    from trainium_cdk.checks.live import Target as Described
    from trainium_cdk.checks.live.cost import cost, total

    engine = engines.of_stack(id)
    if engine is None:
        return f"{name} is not deployed in {env.region}"
    made = cost(Described(env, engine.name))
    prices = [f"{when} {total(made, part)}" for part, when in _WHEN.items()]
    more = printed("trn", "cost", id, "--environment", file)
    return f"{name} is not deployed in {env.region}. It will cost {', '.join(prices)} at list prices ({more})"


def _ask(name: str, *, yes: bool) -> None:
    """Ask before a deployment. Raises typer.Exit or typer.Abort: the answer is no, or no terminal can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        log("nothing was deployed: give --yes to deploy without confirmation")
        raise typer.Exit(2)
    typer.confirm(f"Deploy {name}?", abort=True, err=True)


def _deploy(id: str, name: str, env: Environment, file: Path, folder: Path) -> None:
    """Deploy the stack with the CDK's command line, which reports its progress. Raises TrnError: the deployment failed."""
    from trainium_cdk.operations.updates.spec import command

    cdk = [str(command().absolute()), "deploy", "-e", id, "-c", f"env={file.resolve()}", "--require-approval", "never"]
    remove = printed("trn", "destroy", name, "--environment", file)
    message = f"CloudFormation goes on with {name}. Run the same command again to go on, or delete it: {remove}"
    with (
        status_when_interrupted(lambda: message),
        working(f"deploying {name}", f"deploy {env.region} {name}", alone=False),
    ):
        done = subprocess.run(cdk, cwd=folder, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
        if done.returncode:
            raise TrnError(
                f"{name} was not deployed: see above. What failed in it: {printed('trn', 'why', name, '--environment', file)}. Then run this again"
            )


def _reach(name: str, env: Environment) -> None:
    """Wait for a cluster that may have been deployed just now. Raises TransportError: it does not respond."""
    from trainium_cdk.jobs.patience import Patience

    jobs = backend(Target(name, env.region, team=os.environ.get("TRN_TEAM"), user=os.environ.get("TRN_CLUSTER_USER")))
    logged = False

    def ask() -> None:
        nonlocal logged
        try:
            jobs.active()
        except TransportError as e:
            if not logged and e.again:
                log(f"waiting for {name}, {length(_REACHABLE_SECONDS)} at most: {e}")
                logged = True
            raise

    try:
        Patience(_REACHABLE_SECONDS, first=2.0).ask(ask)
    except TrnError as e:
        raise TransportError(f"{name} is deployed, but {e}") from None


def _finish(name: str, environment: Path, region: str, *, remove: bool) -> int:
    """Remove a cluster on which nothing of anyone runs or waits, if that is wanted; the exit code of that."""
    from trainium_cdk.cli.destroy import used

    end = printed("trn", "destroy", name, "--environment", environment)
    if not (remove or sys.stdin.isatty()):
        log(f"{name} stays. To remove it: {end}")
        return 0
    # all teams' jobs, whosever this one was: they end with the cluster
    try:
        busy = used(backend(Target(name, region)), user(Target()))
    except TrnError as e:
        log(f"{name} stays, as it is not known what runs there: {e}. To remove it: {end}")
        return int(remove)
    if busy.jobs:
        others = ", ".join(job.name for job in busy.jobs[:5])
        log(f"{name} stays: {others} runs or waits there. To remove it: {end}")
    elif busy.unknown:
        log(f"{name} stays, as others may use it. To remove it: {end}")
    else:
        with contextlib.suppress(typer.Abort):  # the answer is no
            return _trn("destroy", name, "--environment", str(environment), *(["--yes"] if remove else []))
    return 0


launch_ = typer.Typer(**SETTINGS)
launch_.command("launch", context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})(
    launch
)
