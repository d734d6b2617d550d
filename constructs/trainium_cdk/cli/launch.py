"""`trn launch`: from an environment file and a job to its result, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainium_cdk import engines
from trainium_cdk.cli import launching
from trainium_cdk.cli.diff import App
from trainium_cdk.cli.options import name_in_account
from trainium_cdk.cli.output import say, status_when_interrupted
from trainium_cdk.cli.settings import SETTINGS
from trainium_cdk.errors import JobError, TrnError
from trainium_cdk.jobs.quote import printed

_FLAGS = {"--yes": "yes", "-y": "yes", "--remove": "remove"}
_VALUES = {"--failover": "failover", "--patience": "patience", "--checkpoints": "checkpoints"}
_COMMANDS = frozenset({"--follow", "-f", "--dry-run", "--json", "--stack", "--environment", "--region", "--cluster"})


def launch(
    environment: Annotated[Path, typer.Argument(metavar="ENV", help="The environment file.")],
    job: Annotated[list[str], typer.Argument(metavar="JOB", help="The job, with its options, as of `trn submit`.")],
    stack: Annotated[str | None, typer.Option(help="Stack that is meant, where the file describes several.")] = None,
    app: App = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the cluster when the job has ended and no other one runs or waits.")
    ] = False,
    failover: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ENV",
            help="Environment file in which the job goes on where there is no capacity; repeat it for more, in their order.",
        ),
    ] = None,
    patience: Annotated[
        str,
        typer.Option(
            metavar="MINUTES", help="How long a job may wait for capacity before it goes on elsewhere (--failover)."
        ),
    ] = f"{launching.PATIENCE:g}",
    checkpoints: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder on the shared file system that goes with the job (--failover); repeat it for more.",
        ),
    ] = None,
) -> None:
    """Deploy, submit, follow, and remove the cluster if wanted.

    A cluster that is there already is not deployed. The job is followed to its end; then you are asked whether to remove the cluster.

    For example `trn launch environment.yaml bert-large --nodes 4`. Ctrl-C does not end a deployment or a job: the message has the
    commands that go on. Exit code: 0 if the job completed.

    With --failover EAST.yaml, the job goes on there, from its checkpoints, if EC2 has no capacity for it here, or has taken its nodes away
    for good. A job that fails by itself is not moved. This works while the command runs; run again, the same command goes on.
    """
    from trainium_cdk import settings

    job, given = _options(job)
    yes, remove = yes or "yes" in given, remove or "remove" in given
    if files := [*(failover or []), *given.get("failover", [])]:
        from trainium_cdk.cli.failover import run

        minutes = given.get("patience", [patience])[-1]
        folders = (*(checkpoints or []), *given.get("checkpoints", []))
        code = run([environment, *map(Path, files)], job, stack, app, minutes, folders, yes=yes, remove=remove)
        raise typer.Exit(code)
    if checkpoints or "checkpoints" in given:
        raise JobError("--checkpoints names what goes with a job to another environment. Give one with --failover, too")
    env = settings.load(environment)
    id = stack or engines.get(env.engines[0]).stack
    name = name_in_account(id, env)
    to = ["--environment", str(environment), "--stack", name]
    if not launching.is_deployed(name, env, environment):
        launching.dry_run([*to, *job])
        folder = launching.app_in(app)
        say(launching.price(id, name, env, environment))
        launching.ask(name, yes=yes)
        launching.deploy(id, name, env, environment, folder)
    stays = f"{name} stays. To remove it: {printed('trn', 'destroy', name, '--env', environment)}"
    try:
        with status_when_interrupted(lambda: stays):
            launching.reachable(name, env)
            code = launching.trn("submit", *to, "--follow", *job)
    except TrnError:
        say(stays)  # and costs
        raise
    raise typer.Exit(launching.finish(name, environment, env.region, remove=remove) or code)


def _options(job: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The job's words, and this command's own options among them.

    Raises:
        JobError: an option has no meaning here, or no value.
    """
    end = job.index("--") if "--" in job else len(job)
    words, rest = iter(job[:end]), job[end:]
    kept: list[str] = []
    given: dict[str, list[str]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if name in _COMMANDS:
            raise JobError(
                f"{word} is not an option of `trn launch`, which follows the job on the cluster of its file. Leave it out"
            )
        if name in ("--array", "--count"):
            raise JobError(
                f"{word}: `trn launch` prints one log, and each member of an array has its own. Deploy the cluster, and use `trn submit`"
            )
        if word in _FLAGS:
            given[_FLAGS[word]] = []
        elif name in _VALUES:
            value = value if equals else next(words, "")
            if not value:
                raise JobError(f"{name} has no value. Give one, or leave it out")
            given.setdefault(_VALUES[name], []).append(value)
        else:
            kept.append(word)
    return kept + rest, given


launch_ = typer.Typer(**SETTINGS)
launch_.command("launch", context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})(
    launch
)
