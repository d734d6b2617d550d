"""`trn launch`: from an environment file and a job to its result, and back."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.client.cli.app import SETTINGS
from trainium_cdk.client.cli.diff import App
from trainium_cdk.client.cli.options import EnvFile, Target, backend, described, id_in_app, name_in_account, split, user
from trainium_cdk.client.cli.output import log, status_when_interrupted
from trainium_cdk.client.cli.progress import working
from trainium_cdk.client.jobs.quote import printed
from trainium_cdk.description import engines
from trainium_cdk.errors import AwsError, JobError, TransportError, TrnError

if TYPE_CHECKING:
    from trainium_cdk.description.settings import Environment

_REACHABLE_SECONDS = 600.0
"""Seconds after a deployment until the cluster must respond."""
_NOT_HERE = ("-f", "--follow", "--dry-run", "--json", "--save", "--list", "--region", "--cluster", "--local", "--ssm", "--array")  # fmt: skip


@dataclass(frozen=True)
class _Stack:
    """The stack to launch. id: in the app. name: in the account. given: the words of the command line that select it for other commands."""

    id: str
    name: str
    env: Environment
    file: Path
    given: tuple[str, ...]

    def command(self, verb: str) -> str:
        """A command on it, as it is printed."""
        return printed("trn", verb, *self.given)

    @property
    def stays(self) -> str:
        return f"{self.name} stays. To remove it: {self.command('destroy')}"


def launch(
    ctx: typer.Context,
    job: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JOB",
            help="The job, with its options, as of `trn submit`: a kind, a script, a job file, or -- COMMAND.",
        ),
    ] = None,
    file: EnvFile = None,
    stack: Annotated[
        str | None, typer.Option(envvar="TRN_STACK", help="Stack to launch, where the file describes several.")
    ] = None,
    app: App = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the cluster when the job has ended and no other one runs or waits.")
    ] = False,
) -> None:
    """Deploy, submit, follow, and with `--remove` remove the cluster.

    It prints the cost and asks, then bootstraps the account for the CDK where that has not been done, and runs `cdk deploy`. A cluster that
    is there already is not deployed. The job is followed to its end. The cluster stays, unless `--remove` removes it.

    For example `trn launch finetune --model Qwen/Qwen3-8B`. After Ctrl-C the deployment and the job continue: the message shows how to
    follow them again. Exit code: 0 if the job completed.
    """
    from trainium_cdk.client.operations.updates.live import deployed
    from trainium_cdk.description import settings

    job, behind = _words(ctx, job or [])
    env = described(ctx)
    if env is None or file is None:
        settings.no_file(instead=". Or give one: --environment FILE")
    id = id_in_app(stack or engines.get(env.engines[0]).stack, env)
    name = name_in_account(id, env)
    typed = {key for key in ("file", "stack") if getattr(ctx.get_parameter_source(key), "name", "") == "COMMANDLINE"}
    of_file = ["--environment", str(file)] if "file" in typed else []
    named = "stack" in typed or "TRN_CLUSTER" in os.environ  # which --stack goes before
    to = [*of_file, *(["--stack", name] if named else [])]
    target = _Stack(id, name, env, file, (*([name] if named else []), *of_file))
    confirmed = ["--yes"] if yes and behind else []  # arguments of a script
    if deployed(name, env.region) is None:
        with contextlib.redirect_stdout(io.StringIO()):  # what is wrong with the job costs nothing yet
            if code := run_trn("submit", "--dry-run", "--json", *to, *confirmed, *job, *behind):
                raise typer.Exit(code)
        _deploy(target, app or Path(), yes=yes)
    else:
        log(f"{name} is deployed in {env.region}. What a deployment of the file would change: {target.command('diff')}")
    try:
        with status_when_interrupted(lambda: target.stays):
            _reach(name, env)
            code = run_trn("submit", *to, "--follow", *confirmed, *job, *behind)
    except TrnError:
        log(target.stays)  # and costs
        raise
    if not remove:
        log(target.stays)
    raise typer.Exit((remove and _remove(target)) or code)


def _words(ctx: typer.Context, job: list[str]) -> tuple[list[str], list[str]]:
    """The job's own words, and `--` with what is after it. Raises JobError: an option has no meaning here, or the first word is an
    environment file."""
    from trainium_cdk.client.cli.app import WORDS

    _, behind = split(ctx.meta[WORDS])
    job = job[: len(job) - len(behind[1:])]
    if not job and not behind[1:]:
        ctx.fail("Missing argument 'JOB'. Give a kind of job, the path of a script, a job file, or a command after --")
    for word in job:
        if word.partition("=")[0] in _NOT_HERE:
            raise JobError(
                f"{word} is not an option of `trn launch`, which follows one job on the cluster of its file. Leave it out"
            )
    if job and _is_environment(job[0]):
        written = printed("trn", "launch", *(job[1:] or ["JOB"][: not behind]), "--environment", job[0], *behind)
        raise JobError(f"{job[0]} is an environment file. Write it as an option: {written}")
    return job, behind


def _is_environment(word: str) -> bool:
    from trainium_cdk.description import settings

    with contextlib.suppress(TrnError):
        return word.endswith((".yaml", ".yml")) and bool(settings.load(Path(word)))
    return False


def run_trn(*arguments: str) -> int:
    """Run another command, which does not name the file in use again; its exit code."""
    from trainium_cdk.client.cli.app import app as commands

    return int(commands(list(arguments), prog_name="trn", standalone_mode=False, obj="launch") or 0)


def _deploy(stack: _Stack, folder: Path, *, yes: bool) -> None:
    """Bootstrap the account and deploy the stack with the CDK's command line, after one question. Raises TrnError: one of them failed, or there
    is no app."""
    name, region = stack.name, stack.env.region
    if not (folder / "cdk.json").is_file():
        raise TrnError(
            f"there is no CDK app in {folder.resolve()} (no cdk.json): run this in the app's folder, or give --app FOLDER"
        )
    log(f"{name} is not deployed in {region}{_price(stack)}")
    bootstrap = _to_bootstrap(stack, folder)
    if bootstrap:
        log(f"{bootstrap} is not bootstrapped for the CDK. That is done first, and costs some cents a month")
    if not yes and not sys.stdin.isatty():
        log("nothing was deployed: give --yes to deploy without confirmation")
        raise typer.Exit(2)
    if not yes:
        typer.confirm(
            f"Bootstrap {bootstrap} and deploy {name}?" if bootstrap else f"Deploy {name}?", abort=True, err=True
        )
    if bootstrap:
        with tempfile.TemporaryDirectory() as nowhere:  # in the app's folder, it would synthesise the app first
            if _cdk(Path(nowhere), "bootstrap", bootstrap):
                raise TrnError(f"{bootstrap} was not bootstrapped: see above. Correct that, and run this again")
    message = (
        f"CloudFormation continues with {name}. When it has ended, run the same command again, or delete it: "
        f"{stack.command('destroy')}"
    )
    with (
        status_when_interrupted(lambda: message),
        working(f"deploying {name}", alone=False),
    ):
        code = _cdk(
            folder, "deploy", "-e", stack.id, "-c", f"env={stack.file.resolve()}", "--require-approval", "never"
        )
    if code:
        raise TrnError(
            f"{name} was not deployed: see above. What failed in it: {stack.command('why')}. Then run this again"
        )


def _cdk(folder: Path, *words: str) -> int:
    """Run the CDK's command line in a folder; its exit code. Its output goes to standard error."""
    from trainium_cdk.client.operations.updates.spec import command, variables

    words = (str(command().absolute()), *words)
    return subprocess.run(
        words, cwd=folder, env=variables(), stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
    ).returncode


def _to_bootstrap(stack: _Stack, folder: Path) -> str:
    """`aws://ACCOUNT/REGION`, if it is not bootstrapped for the CDK; else empty, also where that may not be read, or where the app has its own
    bootstrap."""
    from trainium_cdk.description.checks.live import Aws, CheckTarget
    from trainium_cdk.description.checks.live.account import BOOTSTRAP

    if "bootstrapQualifier" in (folder / "cdk.json").read_text("utf-8", "replace"):
        return ""
    with contextlib.suppress(AwsError):
        target, aws = CheckTarget(stack.env, stack.env.engines[0]), Aws(stack.env.region)
        if any(found.level != "ok" for found in BOOTSTRAP.evaluate(target, BOOTSTRAP.fetch(target, aws))):
            return f"aws://{aws('sts:GetCallerIdentity')['Account']}/{stack.env.region}"
    return ""


def _price(stack: _Stack) -> str:
    """Describe the cost of a stack, as the end of a sentence; empty for a stack of no engine."""
    from trainium_cdk.description.checks.live import CheckTarget as Described
    from trainium_cdk.description.checks.live.cost import cost, total

    engine = engines.of_stack(stack.id)
    if engine is None:
        return ""
    items = cost(Described(stack.env, engine.name))
    idle, full, more = total(items, "idle"), total(items, "full"), stack.command("cost")
    least = f"{items['least']['text']} at least, for {items['least']['what']}"
    return f". It will cost {least}; {idle} while no job runs, {full} with all of its nodes, at list prices ({more})"


def _reach(name: str, env: Environment) -> None:
    """Wait for a cluster that may have been deployed just now. Raises TransportError: it does not respond."""
    from trainium_cdk.client.jobs.backend import Patience

    jobs = backend(Target(name, env.region, team=os.environ.get("TRN_TEAM"), user=os.environ.get("TRN_CLUSTER_USER")))
    try:
        with working(f"waiting for an answer of {name}"):
            Patience(_REACHABLE_SECONDS, first=2.0).ask(jobs.active)
    except TrnError as e:
        raise TransportError(f"{name} is deployed, but {e}") from None


def _remove(stack: _Stack) -> int:
    """Remove the cluster, if nothing of anyone runs or waits on it, of any team; the exit code."""
    from trainium_cdk.client.cli.destroy import used

    busy = used(backend(Target(stack.name, stack.env.region)), user(Target()))
    if busy.jobs or busy.unknown:
        others = ", ".join(job.name for job in busy.jobs[:5])
        log(f"{others} runs or waits there. {stack.stays}" if others else f"others may use it. {stack.stays}")
        return 0
    return run_trn("destroy", *stack.given, "--yes")


launch_ = typer.Typer(**SETTINGS)
launch_.command("launch", context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]})(
    launch
)
