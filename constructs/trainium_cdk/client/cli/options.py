"""Options that several commands share: they select the stack. And the words of a command line that submits a job."""

from __future__ import annotations

import getpass
import inspect
import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeVar, get_args, get_origin

import typer

from trainium_cdk.client.cli.named import did_you_mean, end_of_sentence, unknown
from trainium_cdk.client.cli.output import log
from trainium_cdk.client.cli.use import kept
from trainium_cdk.client.jobs.quote import printed
from trainium_cdk.description import engines
from trainium_cdk.description.engines import EKS, in_use
from trainium_cdk.errors import JobError, OutputsError, SettingsFileError, TrnError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pydantic.fields import FieldInfo

    from trainium_cdk.client.jobs.backend import Backend
    from trainium_cdk.client.jobs.kubernetes import KubernetesBackend
    from trainium_cdk.client.jobs.models import Job
    from trainium_cdk.description.catalog import Catalog
    from trainium_cdk.description.outputs import Cluster
    from trainium_cdk.description.settings import Environment

DEFAULT_STACK = engines.DEFAULT
EKS_STACK = EKS.stack
"""Default of commands for Kubernetes only."""


T = TypeVar("T")
P = ParamSpec("P")
_FILE, _READ, _IN_USE = "trn.environment.file", "trn.environment", "trn.environment.in-use"


def _remember(ctx: typer.Context, value: Path | None) -> Path | None:
    """Remember the file. It is read before the other options: their defaults come from it."""
    if value is None and not ctx.resilient_parsing and (found := in_use()):
        if ctx.obj is None:  # `trn launch` has named it
            log(f"using {found.file} (trn use)")
        ctx.meta[_IN_USE], value = found, found.file
    if value is not None:
        ctx.meta[_FILE] = value
    return value


def stack_name(value: str | None) -> str | None:
    """Refuse an empty name: a variable of the shell that is not set would select another stack than was meant. And a file."""
    if value is not None and not value.strip():
        raise typer.BadParameter("it is empty. Give the name of a stack, or leave it out")
    if value is not None and value.endswith((".yaml", ".yml")):
        raise typer.BadParameter(f"{value[:80]!r} is a file, not a stack. Write {printed('--environment', value)}")
    return value


def _of_environment(ctx: typer.Context, value: str) -> str:
    """The stack that is given, else the first that the environment file describes, else the default one."""
    stack_name(value)
    source = ctx.get_parameter_source("stack")
    if value == DEFAULT_STACK and source is not None and source.name == "DEFAULT" and (env := described(ctx)):
        return engines.get(env.engines[0]).stack
    return value


stack_argument = partial(typer.Argument, metavar="STACK", envvar="TRN_STACK", callback=_of_environment)
"""The argument STACK; its help differs."""


def _stack(ctx: typer.Context, value: str) -> str:
    """The stack's name in the account; with an environment file, `value` may be its id (TrnPclusterStack)."""
    value, env = _of_environment(ctx, value), described(ctx)
    return name_in_account(value, env) if env else value


def _region(ctx: typer.Context, value: str | None) -> str | None:
    """The region that is given, else the environment file's."""
    env = None if value else described(ctx)
    return env.region if env else value


def remembered(ctx: typer.Context, name: str, stack: str) -> str | None:
    """The `team` or `user` of `trn use`, where its file is used and `stack` is one of its stacks that has it."""
    if ctx.resilient_parsing or _IN_USE not in ctx.meta or (env := described(ctx)) is None:
        return None
    engine = engines.of_stack(id_in_app(stack, env))
    found = kept(ctx.meta[_IN_USE], name, env, engine.name if engine else None)
    if found:
        log(f"using {name} {found} (trn use)")
    return found or None


def _as_whom(ctx: typer.Context, param: typer.CallbackParam, value: str | None) -> str | None:
    """Default of --team and --user: what `trn use` remembers, for a stack that has it. --stack and --cluster are read before."""
    if value is not None or ctx.params.get("cluster_file"):
        return value
    return remembered(ctx, str(param.name), ctx.params.get("stack", DEFAULT_STACK))


def _cluster_file(ctx: typer.Context, param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Ignore TRN_CLUSTER if --stack is given, which is read before this option."""
    sources = [ctx.get_parameter_source(name) for name in ("stack", param.name or "")]
    named, of_file = (source.name if source else "" for source in sources)
    return None if (named, of_file) == ("COMMANDLINE", "ENVIRONMENT") else value


Stack = Annotated[str, typer.Option(envvar="TRN_STACK", callback=_stack, help="Stack that the jobs run on.")]
Region = Annotated[
    str | None,
    typer.Option(callback=_region, help="AWS region. Default: the environment file's, else your AWS configuration's."),
]
EnvFile = Annotated[
    Path | None,
    typer.Option(
        "--environment",
        envvar="TRN_ENV",
        is_eager=True,
        callback=_remember,
        help="Environment file: it names stack and region (`trn use` remembers one). The same as of `cdk deploy -c env=FILE`.",
    ),
]
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
        callback=_cluster_file,
        help="File with the output of `trn show cluster`, used instead of the stack's outputs. --stack comes before TRN_CLUSTER.",
    ),
]
_Team = Annotated[
    str | None,
    typer.Option(
        "--team",
        envvar="TRN_TEAM",
        callback=_as_whom,
        help="EKS: the jobs' team (eks.queues). Default: the team of `trn use`, else none.",
    ),
]
_User = Annotated[
    str | None,
    typer.Option(
        "--user",
        envvar="TRN_CLUSTER_USER",
        callback=_as_whom,
        help="Slurm: the jobs' user on the cluster (users). Default: the user of `trn use`, else the image's.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
ID_HELP = "Job id, the first characters of it, or `latest`."
JobId = Annotated[str, typer.Argument(metavar="JOB", help=ID_HELP)]
JobIds = Annotated[list[str], typer.Argument(metavar="JOB", help=ID_HELP)]


def name_in_account(stack: str, env: Environment) -> str:
    """The name of an environment's stack in the account, by that name or by its id in the app (TrnPclusterStack).

    Several environments can exist in one account: the stacks of all but the default one have the environment's name in theirs.
    """
    from trainium_cdk.description.settings import Environment

    ours = engines.of_stack(stack) is not None and env.name != Environment().name
    return f"{stack}-{env.name}" if ours else stack


def id_in_app(stack: str, env: Environment) -> str:
    """The id of an environment's stack in the app, by that id or by its name in the account: what `cdk deploy` takes."""
    ids = (engine.stack for engine in engines.ENGINES.values())
    return next((id for id in ids if stack in (id, f"{id}-{env.name}")), stack)


def engine_of(stack: str, environment: Environment) -> str:
    """Name of the engine of a stack, by the stack's id in the app or by its name in the account.

    Raises:
        OutputsError: no engine has such a stack.
    """
    if found := engines.of_stack(id_in_app(stack, environment)):
        return found.name
    raise OutputsError(unknown("there is no stack", stack, [e.stack for e in engines.ENGINES.values()]))


def described(ctx: typer.Context) -> Environment | None:
    """The environment of --environment or TRN_ENV; None without one. Read once per command.

    Raises:
        trainium_cdk.description.settings.SettingsFileError, SettingsError: it is not valid.
    """
    file = ctx.meta.get(_FILE)
    if file is None:
        return None
    from trainium_cdk.description.settings import load

    if _READ not in ctx.meta:
        try:
            ctx.meta[_READ] = load(file)
        except SettingsFileError as e:
            if _IN_USE not in ctx.meta:
                raise
            raise TrnError(f"{e}. It is in use: use another one (trn use FILE), or none (trn use --none)") from None
    env: Environment = ctx.meta[_READ]
    return env


def catalog_of(environment: Environment | None) -> Catalog:
    """The catalogue with an environment's own entries; without one, as it is installed."""
    from trainium_cdk.description.catalog import Catalog

    return environment.catalog if environment else Catalog.load()


@dataclass(frozen=True)
class Target:
    """The cluster that the options of a command select: of a stack, or in a file.

    `file` is the environment file of --environment, where another one is in TRN_ENV or in use. `implied` has the names of the options that the
    next command has without them, from such a file. None: it is not known; only the default stack is implied.
    """

    stack: str = DEFAULT_STACK
    region: str | None = None
    local: bool | None = None
    cluster_file: Path | None = None
    team: str | None = None
    user: str | None = None
    file: Path | None = None
    implied: frozenset[str] | None = None

    def of_team(self, cluster: Cluster) -> Cluster:
        """A cluster as the team of --team, or the user of --user, sees it. Raises OutputsError: it has no such team or user."""
        cluster = cluster.of_team(self.team) if self.team else cluster
        return cluster.of_user(self.user) if self.user else cluster


def _target(ctx: typer.Context, given: dict[str, Any]) -> Target:
    sources = {name: ctx.get_parameter_source(name) for name in ("_env", "stack", "region", "team", "user")}
    of = {name: source.name if source else "" for name, source in sources.items()}
    another = bool(os.environ.get("TRN_ENV") or in_use())
    file = ctx.meta[_FILE] if another and of["_env"] == "COMMANDLINE" else None
    kept = file or _IN_USE in ctx.meta or of["_env"] == "ENVIRONMENT"
    found = {name for name in of if kept and of[name] == "DEFAULT"}
    if given["stack"] == DEFAULT_STACK and not another and not os.environ.get("TRN_STACK"):
        found.add("stack")
    return Target(**given, file=file, implied=frozenset(found))


def user(on: Target) -> str:
    """The user of --user, else of this machine, in characters that a record may have."""
    try:
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", on.user or getpass.getuser()).strip("-.")[:40]
    except (KeyError, OSError):  # a container's user without a name
        return ""


CLUSTER_OPTIONS = ("stack", "region", "_env", "local", "cluster_file", "team", "user")
"""Names of the parameters that `on_cluster` adds."""


def _option(annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter("_", inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def on_cluster(
    *, stack: str = DEFAULT_STACK, local: bool = True, team: bool = True
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """A command with the options that select a cluster, in the place of its argument `on`.

    Args:
        stack: the default of --stack.
        local: with --local and --ssm.
        team: with --team and --user.
    """
    options = {"stack": _option(Stack, stack), "region": _option(Region), "_env": _option(EnvFile)}
    options |= {"local": _option(Local)} if local else {}
    options |= {"cluster_file": _option(ClusterFile)} | (
        {"team": _option(_Team), "user": _option(_User)} if team else {}
    )

    def decorated(function: Callable[P, None]) -> Callable[P, None]:
        signature = inspect.signature(function, eval_str=True)
        own = {name: p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, p in signature.parameters.items()}
        del own["on"]
        takes_context = "ctx" in own
        own.setdefault("ctx", _option(typer.Context))

        def run(*args: Any, **values: Any) -> None:
            if "stack" in values:  # Typer calls it, not another command
                given = {name: values.pop(name) for name in options}
                del given["_env"]  # read by now: it gave the others their defaults
                ctx = values["ctx"] if takes_context else values.pop("ctx")
                values["on"] = _target(ctx, given)
            function(*args, **values)

        last = {name: own.pop(name) for name in ("as_json", "fields") if name in own}
        parameters = [p.replace(name=name) for name, p in (own | options | last).items()]
        run.__name__ = function.__name__  # what Typer names a command of a group by
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__, run.__doc__ = {p.name: p.annotation for p in parameters}, function.__doc__
        return run

    return decorated


def deployed(on: Target, engine: str | None = None) -> Cluster:
    """The cluster of a stack, or of a file with it; with --team or --user as that team or user sees it.

    Raises:
        OutputsError: it cannot be read, or has no such team or user.
    """
    from trainium_cdk.description import outputs

    return on.of_team(read_cluster(on.cluster_file) if on.cluster_file else outputs.read(on.stack, on.region, engine))


def planned(ctx: typer.Context, on: Target) -> Cluster | None:
    """The cluster of the environment file that is given, or in use, as the team or user of the options sees it. None without such a file,
    with --cluster, or with a stack that is none of the file's.

    Raises:
        OutputsError: it has no such team or user.
    """
    environment = None if on.cluster_file else described(ctx)
    engine = engines.of_stack(id_in_app(on.stack, environment)) if environment else None
    if environment is None or engine is None:
        return None
    from trainium_cdk.description.outputs.read import described_cluster

    return on.of_team(described_cluster(environment, engine.name, on.stack))


def backend(on: Target) -> Backend:
    from trainium_cdk.client.jobs.connection import connect

    jobs = connect(local=on.local, cluster=deployed(on), say=log)
    jobs.say = log
    return jobs


def kubernetes(on: Target) -> KubernetesBackend:
    """The backend of a stack that runs Kubernetes.

    Raises:
        TrnError: it runs something else.
    """
    from trainium_cdk.client.jobs.connection import connect
    from trainium_cdk.client.jobs.kubernetes import KubernetesBackend

    return only(KubernetesBackend, connect(cluster=deployed(on, EKS.name), say=log), EKS.title, EKS_STACK)


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
    """The cluster in a file with the output of `trn show cluster`.

    Raises:
        OutputsError: it cannot be read, or is not such a file.
    """
    from pydantic import ValidationError

    from trainium_cdk.description.outputs import from_json

    write = f"Write it with `trn show cluster > {printed(file)}`"
    try:
        return from_json(file.read_text("utf-8"))
    except OSError as e:
        raise OutputsError(f"cannot read {file}: {e.strerror}. {write}") from None
    except (ValidationError, TrnError, UnicodeDecodeError):
        raise OutputsError(f"{file} does not describe a cluster. {write}") from None


def at(on: Target) -> str:
    """The options with which another command uses the same cluster. What it has without them is left out (`Target.implied`), as is a
    file that TRN_CLUSTER names: on a head node it is set for all commands.

    >>> at(Target("TrnEksStack", "us-east-1", team="speech")), at(Target(cluster_file=Path("my cluster.json"), local=True))
    (' --stack TrnEksStack --region us-east-1 --team speech', " --cluster 'my cluster.json' --local")
    """
    if on.cluster_file:
        set_already = str(on.cluster_file) == os.environ.get("TRN_CLUSTER")
        place: dict[str, object] = {} if set_already else {"cluster": on.cluster_file}
    else:
        place = {"environment": on.file, "stack": on.stack, "region": on.region}
    default = {"stack"} if on.stack == DEFAULT_STACK else set()
    implied = default if on.implied is None else on.implied
    given = place | {"team": on.team, "user": on.user}
    words = "".join(f" {printed(f'--{name}', value)}" for name, value in given.items() if value and name not in implied)
    return words + ("" if on.local is None else " --local" if on.local else " --ssm")


def help_of(kind: type[Job], name: str) -> str:
    """The help text of an option, with its choices and its default."""
    field = kind.model_fields[name]
    text, choices = field.description or "", choices_of(field)
    if name == "restarts":
        text += f" This kind {'resumes' if kind.RESTARTS else 'does not resume'}."
    if choices:
        text += f" One of {', '.join(choices)}."
    plain = isinstance(field.default, str | int | float) and not isinstance(field.default, bool)
    return f"{text} Default: {field.default}." if plain and "Default" not in text else text


def parts_of(annotation: Any) -> Iterator[Any]:
    """The types in an annotation, without None."""
    from trainium_cdk.text import choices

    return (part for part in choices(annotation) if part is not NoneType)


def choices_of(field: FieldInfo) -> list[str]:
    """The allowed values of a field, if limited."""
    literals = [part for part in parts_of(field.annotation) if get_origin(part) is Literal]
    return [str(value) for part in literals for value in get_args(part)]


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line before `--`; and the rest, which begins with it."""
    end = words.index("--") if "--" in words else len(words)
    return list(words[:end]), list(words[end:])


def parsed(command: Any, own: Sequence[str]) -> dict[str, Any]:
    """The values of a command's parameters, by name. An unknown option is an argument. Empty for a line that Typer refuses later."""
    lenient = command.context_class(command, ignore_unknown_options=True)
    try:
        return dict(command.make_parser(lenient).parse_args(list(own))[0])
    except Exception:
        return {}


def check_known(job: str) -> None:
    """Raises JobError: there is neither a kind nor a file of that name."""
    from trainium_cdk.client.jobs.kinds import by_name, submittable

    if by_name(job):
        return
    try:
        exists = "/" in job or "." in job or bool(job and Path(job).exists())
    except (OSError, ValueError):  # the name is too long, or contains a NUL byte
        exists = False
    if not exists:
        files = (one.name for one in Path().glob("*.[ps][yh]"))
        raise JobError(
            f"there is no kind of job and no file {job[:80]!r}{end_of_sentence(did_you_mean(job[:80], (*submittable(), *files)))} Give {', '.join(submittable())}, "
            f"the path of a script, or a command after --: trn submit -- {printed(job[:80])} ..."
        )
