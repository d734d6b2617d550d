"""Options that several commands share: they select the stack."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from trainium_cdk import engines
from trainium_cdk.cli.output import say
from trainium_cdk.cli.use import in_use
from trainium_cdk.engines import EKS
from trainium_cdk.errors import EngineError, OutputsError, SettingsFileError, TrnError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainium_cdk.jobs import Backend, Submission
    from trainium_cdk.jobs.kubernetes import KubernetesBackend
    from trainium_cdk.outputs import Cluster
    from trainium_cdk.settings import Environment

DEFAULT_STACK = engines.DEFAULT
EKS_STACK = EKS.stack
"""Default of commands for Kubernetes only."""


T = TypeVar("T")
_FILE, _READ, _IN_USE = "trn.environment.file", "trn.environment", "trn.environment.in-use"


def _remember(ctx: typer.Context, param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Runs before the other options are read: their defaults come from the file. An option comes before TRN_ENV."""
    source = ctx.get_parameter_source(param.name or "")
    if value is None and _FILE not in ctx.meta and not ctx.resilient_parsing and (file := in_use()):
        say(f"using {file} (trn use)")
        ctx.meta[_FILE], ctx.meta[_IN_USE] = file, True
        return file
    if value is not None and (_FILE not in ctx.meta or (source is not None and source.name == "COMMANDLINE")):
        _use_file(ctx, value)
    return value


def _use_file(ctx: typer.Context, file: Path) -> None:
    if ctx.meta.get(_FILE, file) != file:
        raise typer.BadParameter(f"two environment files are given, {ctx.meta[_FILE]} and {file}: give one")
    ctx.meta[_FILE] = file


def file_among_variables(ctx: typer.Context, values: list[str] | None) -> list[str]:
    """`--env` of submit sets variables of the job; `--env FILE.yaml`, which cannot be a variable, is the environment file."""
    files = [v for v in values or [] if "=" not in v and v.endswith((".yaml", ".yml"))]
    for file in files:
        _use_file(ctx, Path(file))
    return [v for v in values or [] if v not in files]


def _stack(ctx: typer.Context, value: str) -> str:
    """The stack's name in the account; with an environment file, `value` may be its id (TrnPclusterStack)."""
    if (env := described(ctx)) is None:
        return value
    source = ctx.get_parameter_source("stack")
    if source is not None and source.name == "DEFAULT" and value == DEFAULT_STACK:
        value = engines.get(env.engines[0]).stack
    return name_in_account(value, env)


def _region(ctx: typer.Context, value: str | None) -> str | None:
    """The region that is given, else that of the environment file."""
    env = None if value else described(ctx)
    return env.region if env else value


Stack = Annotated[str, typer.Option(envvar="TRN_STACK", callback=_stack, help="Stack that the jobs run on.")]
Region = Annotated[
    str | None,
    typer.Option(callback=_region, help="AWS region. Default: the environment file's, else your AWS configuration's."),
]
_ENV_HELP = "Environment file, as in `cdk deploy -c env=FILE`: it names stack and region."
_env_file = partial(typer.Option, envvar="TRN_ENV", is_eager=True, callback=_remember)
EnvFile = Annotated[Path | None, _env_file("--env", "--environment", help=_ENV_HELP)]
SubmitEnvFile = Annotated[Path | None, _env_file("--environment", help=f"{_ENV_HELP} `--env FILE.yaml` is the same.")]
Local = Annotated[
    bool | None,
    typer.Option(
        "--local/--ssm",
        help="Run commands on this machine, the head node or a login node, or through SSM. Default: detected.",
    ),
]
ClusterFile = Annotated[
    Path | None,
    typer.Option(
        "--cluster",
        envvar="TRN_CLUSTER",
        help="File with the output of `trn cluster`, used instead of the stack's outputs.",
    ),
]
_Team = Annotated[
    str | None,
    typer.Option("--team", envvar="TRN_TEAM", help="EKS: team (eks.queues) whose jobs are meant. Default: no team's."),
]
_chosen = {"team": ""}
"""What `with_team` has read: the commands pass on stack, region and file, of which a team is a part."""
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
_ID_HELP = "Id of the job, as `trn submit` and `trn list` print it; a beginning of it that is enough, or `latest`."
JobId = Annotated[str, typer.Argument(metavar="JOB", help=_ID_HELP)]
JobIds = Annotated[list[str], typer.Argument(metavar="JOB...", help=_ID_HELP)]


def name_in_account(stack: str, env: Environment) -> str:
    """The name of an environment's stack in the account, by that name or by its id in the app (TrnPclusterStack).

    Several environments can exist in one account: the stacks of all but the default one have the environment's name in theirs.
    """
    from trainium_cdk.settings import Environment

    ours = engines.of_stack(stack) is not None and env.name != Environment().name
    return f"{stack}-{env.name}" if ours else stack


def id_in_app(stack: str, env: Environment) -> str:
    """The id of an environment's stack in the app, by that id or by its name in the account: what `cdk deploy` takes."""
    ids = (engine.stack for engine in engines.every().values())
    return next((id for id in ids if stack in (id, f"{id}-{env.name}")), stack)


def described(ctx: typer.Context) -> Environment | None:
    """The environment of --env or TRN_ENV; None without one. Read once per command.

    Raises:
        trainium_cdk.settings.SettingsFileError, SettingsError: it is not valid.
    """
    file = ctx.meta.get(_FILE)
    if file is None:
        return None
    from trainium_cdk import settings

    if _READ not in ctx.meta:
        try:
            ctx.meta[_READ] = settings.load(file)
        except SettingsFileError as e:
            if _IN_USE not in ctx.meta:
                raise
            raise TrnError(f"{e}. It is in use: use another one (trn use FILE), or none (trn use --none)") from None
    env: Environment = ctx.meta[_READ]
    return env


def with_team(function: Callable[..., None]) -> Callable[..., None]:
    """A command on jobs with the option --team."""
    import inspect

    def run(team: str | None, **values: Any) -> None:
        _chosen["team"] = team or ""
        function(**values)

    run.__name__ = function.__name__  # what Typer names a command of a group by
    signature = inspect.signature(function, eval_str=True)
    option = inspect.Parameter("team", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Team)
    parameters = [*signature.parameters.values(), option]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__, run.__doc__ = {p.name: p.annotation for p in parameters}, function.__doc__
    return run


def deployed(stack: str, region: str | None, file: Path | None, engine: str | None = None) -> Cluster:
    """The cluster of a stack, or of a file with it; with --team as that team sees it.

    Raises:
        OutputsError: it cannot be read, or has no such team.
    """
    from trainium_cdk import outputs

    return in_team(outputs.read(stack, region, engine) if file is None else read_cluster(file))


def in_team(cluster: Cluster) -> Cluster:
    """A cluster as the team of --team sees it. Raises OutputsError: it has no such team."""
    return cluster.of_team(_chosen["team"]) if _chosen["team"] else cluster


def backend(stack: str, region: str | None, local: bool | None, file: Path | None) -> Backend[Submission]:
    from trainium_cdk.jobs.connect import connect

    return connect(local=local, cluster=deployed(stack, region, file), say=say)


def kubernetes(stack: str, region: str | None, file: Path | None) -> KubernetesBackend:
    """The backend of a stack that runs Kubernetes.

    Raises:
        TrnError: it runs something else.
    """
    from trainium_cdk.jobs.connect import connect
    from trainium_cdk.jobs.kubernetes import KubernetesBackend

    cluster = deployed(stack, region, file, EKS.name)
    return only(KubernetesBackend, connect(cluster=cluster, say=say), EKS.title, EKS_STACK)


def only(kind: type[T], found: Any, title: str, stack: str) -> T:
    """`found`, if it is of the engine that a command needs.

    Raises:
        TrnError: it is of another engine. The message names the option for another stack.
    """
    if isinstance(found, kind):
        return found
    cluster = getattr(found, "cluster", found)
    runs = engines.get(cluster.engine).title
    raise TrnError(f"this is for {title}, but stack {cluster.stack} runs {runs}. Name another (--stack {stack})")


def read_cluster(file: Path) -> Cluster:
    """The cluster in a file with the output of `trn cluster`.

    Raises:
        OutputsError: it cannot be read, or is not such a file.
    """
    from pydantic import ValidationError

    from trainium_cdk.outputs import from_json

    try:
        return from_json(file.read_text("utf-8"))
    except OSError as e:
        raise OutputsError(f"cannot read {file}: {e.strerror}. Write it with `trn cluster > {file}`") from None
    except (ValidationError, EngineError, UnicodeDecodeError):
        raise OutputsError(f"{file} does not describe a cluster. Write it with `trn cluster > {file}`") from None


def at(stack: str, region: str | None) -> str:
    """The options with which another command uses the same stack."""
    team = f" --team {_chosen['team']}" if _chosen["team"] else ""
    return ("" if stack == DEFAULT_STACK else f" --stack {stack}") + (f" --region {region}" if region else "") + team
