"""`trn launch`: from an environment file and a job to its result, and back."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import TyperException

from trainium_cdk import engines
from trainium_cdk.cli.diff import App
from trainium_cdk.cli.named import length
from trainium_cdk.cli.options import name_in_account
from trainium_cdk.cli.output import say, status_when_interrupted
from trainium_cdk.cli.settings import SETTINGS
from trainium_cdk.cli.working import working
from trainium_cdk.errors import JobError, TransportError, TrnError, UpdateError

if TYPE_CHECKING:
    from trainium_cdk.outputs import Cluster
    from trainium_cdk.settings import Environment

REACHABLE_SECONDS = 600.0
"""Seconds after a deployment until the cluster must respond."""
_FLAGS = {"--yes": "yes", "-y": "yes", "--remove": "remove"}
_COMMANDS = frozenset({"--follow", "-f", "--dry-run", "--json", "--stack", "--environment", "--region", "--cluster"})


def launch(
    environment: Annotated[Path, typer.Argument(metavar="ENV", help="The environment file.")],
    job: Annotated[list[str], typer.Argument(metavar="JOB...", help="The job, and its options, as of `trn submit`.")],
    stack: Annotated[str | None, typer.Option(help="Stack that is meant, where the file describes several.")] = None,
    app: App = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the cluster when the job has ended and no other one runs or waits.")
    ] = False,
) -> None:
    """Deploy a cluster if it is not there, submit a job, and follow it to its end; then remove the cluster, if you want.

    For example `trn launch environment.yaml bert-large --nodes 4`. Ctrl-C does not end a deployment or a job: the message has the
    commands that go on. Exit code: 0 if the job completed.
    """
    from trainium_cdk import settings

    job, given = _flags(job)
    yes, remove = yes or "yes" in given, remove or "remove" in given
    env = settings.load(environment)
    id = stack or engines.get(env.engines[0]).stack
    name = name_in_account(id, env)
    to = ["--environment", str(environment), "--stack", name]
    _check(env, name, [*to, *job])
    if not _is_deployed(name, env):
        _deploy(id, name, env, environment, app, yes=yes)
    jobs = _reachable(name, env)
    end = f"trn destroy {name} --env {environment}"
    with status_when_interrupted(lambda: f"{name} stays. To remove it: {end}"):
        code = _trn("submit", *to, "--follow", *job)
    others = [*(one.id for one in jobs.active()), *(one.name for one in jobs.foreign())]  # also of other clients
    if others and (remove or sys.stdin.isatty()):
        say(f"{name} stays: {', '.join(others[:5])} runs or waits there. To remove it: {end}")
    elif remove or sys.stdin.isatty():
        with contextlib.suppress(typer.Abort):  # the answer is no
            code = _trn("destroy", name, "--env", str(environment), *(["--yes"] if remove else [])) or code
    else:
        say(f"{name} stays. To remove it: {end}")
    raise typer.Exit(code)


def _flags(job: list[str]) -> tuple[list[str], set[str]]:
    """The job's words, and this command's flags among its options.

    Raises:
        JobError: an option has no meaning here.
    """
    end = job.index("--") if "--" in job else len(job)
    options, rest = job[:end], job[end:]
    if wrong := [word for word in options if word.partition("=")[0] in _COMMANDS]:
        raise JobError(
            f"{wrong[0]} is not an option of `trn launch`, which follows the job on the cluster of its file. Leave it out"
        )
    return [word for word in options if word not in _FLAGS] + rest, {_FLAGS[word] for word in options if word in _FLAGS}


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


def _check(env: Environment, name: str, submit: list[str]) -> None:
    """Render the job for the cluster that the file describes: what is wrong with it costs nothing yet. Raises as `trn submit` does."""
    from trainium_cdk.cli.plan import described_cluster

    cluster: Cluster = described_cluster(env, name)
    with tempfile.TemporaryDirectory(prefix="trn-launch-") as folder, _no_output():
        file = Path(folder) / "cluster.json"
        file.write_text(cluster.model_dump_json(), "utf-8")
        if code := _trn("submit", "--dry-run", "--cluster", str(file), *submit):
            raise typer.Exit(code)


@contextlib.contextmanager
def _no_output() -> Iterator[None]:
    sys.stdout.flush()
    out = sys.stdout.fileno()
    kept, nothing = os.dup(out), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, out)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, out)
        os.close(kept)
        os.close(nothing)


def _is_deployed(name: str, env: Environment) -> bool:
    from trainium_cdk.operations.updates.live import deployed

    if deployed(name, env.region) is None:
        return False
    say(f"{name} is deployed in {env.region}. What a deployment of the file would change: trn diff {name}")
    return True


def _deploy(id: str, name: str, env: Environment, file: Path, app: Path | None, *, yes: bool) -> None:
    """Deploy the stack with the CDK's command line, which reports its progress.

    Raises:
        UpdateError: there is no app, or the deployment failed.
    """
    from trainium_cdk.checks.live import Target
    from trainium_cdk.checks.live.cost import cost
    from trainium_cdk.operations.updates.spec import command

    folder = app or Path()
    if not (folder / "cdk.json").is_file():
        raise UpdateError(
            f"there is no CDK app in {folder.resolve()} (no cdk.json): run this in the app's folder, or give --app FOLDER"
        )
    engine = engines.of_stack(id)
    if engine:
        made = cost(Target(env, engine.name))
        least = {part: "at least " if made[f"unknown_{part}"] else "" for part in ("idle", "full")}
        prices = [f"{least[part]}{made[f'{part}_hour']:,.2f} USD an hour {when}" for part, when in _WHEN.items()]
        say(f"{name} is not deployed in {env.region}. It will cost {', '.join(prices)} (list prices; trn cost {id})")
    if not yes:
        if not sys.stdin.isatty():
            say("nothing was deployed: give --yes to deploy without confirmation")
            raise typer.Exit(2)
        typer.confirm(f"Deploy {name}?", abort=True, err=True)
    cdk = [str(command().absolute()), "deploy", "-e", id, "-c", f"env={file.resolve()}", "--require-approval", "never"]
    with (
        status_when_interrupted(
            lambda: (
                f"CloudFormation goes on with {name}. Run the same command again to go on, or delete it: trn destroy {name} --env {file}"
            )
        ),
        working(f"deploying {name}", f"deploy {env.region} {name}", alone=False),
    ):
        done = subprocess.run(cdk, cwd=folder, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
        if done.returncode:
            raise UpdateError(
                f"{name} was not deployed: see above. What failed in it: trn why {name} --env {file}. Then run this again"
            )


_WHEN = {"idle": "while no job runs", "full": "with all of its nodes"}


def _reachable(name: str, env: Environment) -> Any:
    """The jobs of a cluster, which may have been deployed just now.

    Raises:
        TransportError: it does not respond.
    """
    from trainium_cdk.jobs.connect import connect
    from trainium_cdk.jobs.patience import Patience

    jobs = connect(name, env.region, say=say)
    told = False

    def ask() -> None:
        nonlocal told
        try:
            jobs.active()
        except TransportError as e:
            if not told and e.again:
                say(f"waiting for {name}, {length(REACHABLE_SECONDS)} at most: {e}")
                told = True
            raise

    try:
        Patience(REACHABLE_SECONDS, first=2.0).ask(ask)
    except TrnError as e:
        raise TransportError(f"{name} is deployed, but {e}") from None
    return jobs


launch_ = typer.Typer(**SETTINGS)
launch_.command("launch", context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})(
    launch
)
