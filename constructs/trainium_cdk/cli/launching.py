"""What `trn launch` does with one cluster: check, price, deploy, reach and remove it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.exceptions import TyperException

from trainium_cdk import engines
from trainium_cdk.cli.named import length, user
from trainium_cdk.cli.options import Target, backend
from trainium_cdk.cli.output import say, status_when_interrupted
from trainium_cdk.cli.working import working
from trainium_cdk.errors import TransportError, TrnError, UpdateError
from trainium_cdk.jobs.quote import printed

if TYPE_CHECKING:
    from trainium_cdk.settings import Environment

REACHABLE_SECONDS = 600.0
"""Seconds after a deployment until the cluster must respond."""
PATIENCE = 20.0
"""Minutes: ParallelCluster has asked EC2 twice by then (`slurm.status.RETRY_SECONDS`), EKS's node scaler more often."""


def trn(*arguments: str) -> int:
    """Run another command; its exit code."""
    from trainium_cdk.cli.app import app as commands

    try:
        return int(commands(list(arguments), prog_name="trn", standalone_mode=False) or 0)
    except TyperException as e:
        if not (show := getattr(e, "show", None)):  # an error of the command line has it
            raise
        show()
        raise typer.Exit(2) from None


def dry_run(submit: list[str]) -> dict[str, Any]:
    """Render the job for the cluster that the environment file among the words describes: what is wrong with it costs nothing yet. Returns
    what `trn submit --dry-run --json` prints, and raises as that does."""
    import json

    with tempfile.TemporaryDirectory(prefix="trn-launch-") as folder:
        printed = Path(folder) / "printed"
        with _output_to(printed):
            if code := trn("submit", "--dry-run", "--json", *submit):
                raise typer.Exit(code)
        found: dict[str, Any] = json.loads(printed.read_text("utf-8"))
        return found


@contextlib.contextmanager
def _output_to(file: Path) -> Iterator[None]:
    sys.stdout.flush()
    out = sys.stdout.fileno()
    kept, other = os.dup(out), os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(other, out)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, out)
        os.close(kept)
        os.close(other)


def state(name: str, region: str) -> str:
    """CloudFormation's state of a stack, once nothing is being deployed there; empty if there is none.

    Raises:
        UpdateError: it cannot be read.
    """
    from botocore.exceptions import ClientError

    from trainium_cdk._aws import aws_errors_as, client

    told = False
    while True:
        with aws_errors_as(UpdateError, f"cannot read stack {name}"):
            try:
                stacks = client("cloudformation", region).describe_stacks(StackName=name)["Stacks"]
            except ClientError as e:
                if "does not exist" in str(e):
                    return ""
                raise
        found = str(stacks[0]["StackStatus"])
        if not found.endswith("_IN_PROGRESS") or found.startswith(("DELETE", "REVIEW")):
            return found
        if not told:
            say(f"waiting until {name} in {region} is no longer {found}")
            told = True
        time.sleep(5)


def is_deployed(name: str, env: Environment, file: Path) -> bool:
    """Whether it is, once nothing is being deployed there, as after a launch that was interrupted."""
    from trainium_cdk.operations.updates.live import deployed

    state(name, env.region)
    if deployed(name, env.region) is None:
        return False
    diff = printed("trn", "diff", name, "--env", file)
    say(f"{name} is deployed in {env.region}. What a deployment of the file would change: {diff}")
    return True


def app_in(app: Path | None) -> Path:
    """The folder of the CDK app. Raises UpdateError: there is none."""
    folder = app or Path()
    if not (folder / "cdk.json").is_file():
        raise UpdateError(
            f"there is no CDK app in {folder.resolve()} (no cdk.json): run this in the app's folder, or give --app FOLDER"
        )
    return folder


def price(id: str, name: str, env: Environment, file: Path) -> str:
    """That a stack is not deployed, and what it would cost."""
    from trainium_cdk.checks.live import Target as Described
    from trainium_cdk.checks.live.cost import cost, total

    engine = engines.of_stack(id)
    if engine is None:
        return f"{name} is not deployed in {env.region}"
    made = cost(Described(env, engine.name))
    prices = [f"{when} {total(made, part)}" for part, when in _WHEN.items()]
    more = printed("trn", "cost", id, "--env", file)
    return f"{name} is not deployed in {env.region}. It will cost {', '.join(prices)} at list prices ({more})"


def ask(what: str, *, yes: bool) -> None:
    """Ask before a deployment. Raises typer.Exit or typer.Abort: the answer is no, or no terminal can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        say("nothing was deployed: give --yes to deploy without confirmation")
        raise typer.Exit(2)
    typer.confirm(f"Deploy {what}?", abort=True, err=True)


def deploy(id: str, name: str, env: Environment, file: Path, folder: Path) -> None:
    """Deploy the stack with the CDK's command line, which reports its progress.

    Raises:
        UpdateError: the deployment failed.
    """
    from trainium_cdk.operations.updates.spec import command

    cdk = [str(command().absolute()), "deploy", "-e", id, "-c", f"env={file.resolve()}", "--require-approval", "never"]
    with (
        status_when_interrupted(
            lambda: (
                f"CloudFormation goes on with {name}. Run the same command again to go on, or delete it: {printed('trn', 'destroy', name, '--env', file)}"
            )
        ),
        working(f"deploying {name}", f"deploy {env.region} {name}", alone=False),
    ):
        done = subprocess.run(cdk, cwd=folder, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
        if done.returncode:
            raise UpdateError(
                f"{name} was not deployed: see above. What failed in it: {printed('trn', 'why', name, '--env', file)}. Then run this again"
            )


_WHEN = {"idle": "while no job runs", "full": "with all of its nodes"}


def reachable(name: str, env: Environment) -> Any:
    """The jobs of a cluster, which may have been deployed just now.

    Raises:
        TransportError: it does not respond.
    """
    from trainium_cdk.jobs.patience import Patience

    jobs = backend(Target(name, env.region, team=os.environ.get("TRN_TEAM"), user=os.environ.get("TRN_CLUSTER_USER")))
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


def finish(name: str, environment: Path, region: str, *, remove: bool, offer: bool = True) -> int:
    """Remove a cluster on which nothing of anyone runs or waits, if that is wanted; the exit code of that.

    Args:
        offer: ask on a terminal, where --remove is not given.
    """
    from trainium_cdk.cli.destroy import used

    end = printed("trn", "destroy", name, "--env", environment)
    if not (remove or (offer and sys.stdin.isatty())):
        say(f"{name} stays. To remove it: {end}")
        return 0
    # all teams' jobs, whosever this one was: they end with the cluster
    try:
        busy = used(backend(Target(name, region)), user(Target()))
    except TrnError as e:
        say(f"{name} stays, as it is not known what runs there: {e}. To remove it: {end}")
        return int(remove)
    if busy.jobs:
        others = ", ".join(job.name for job in busy.jobs[:5])
        say(f"{name} stays: {others} runs or waits there. To remove it: {end}")
    elif busy.unknown:
        say(f"{name} stays, as others may use it. To remove it: {end}")
    else:
        with contextlib.suppress(typer.Abort):  # the answer is no
            return trn("destroy", name, "--env", str(environment), *(["--yes"] if remove else []))
    return 0
