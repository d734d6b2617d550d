"""`trn submit`: a kind of job, or a user's script. The options are the fields of the kinds."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.client.cli.kinds import in_brief, is_own, option_of
from trainium_cdk.client.cli.kinds import kinds as list_kinds
from trainium_cdk.client.cli.named import is_full_id, resolve_id
from trainium_cdk.client.cli.options import (
    CLUSTER_OPTIONS,
    Json,
    Target,
    at,
    backend,
    catalog_of,
    check_known,
    described,
    on_cluster,
    parsed,
    planned,
    split,
    user,
)
from trainium_cdk.client.cli.output import (
    echo,
    echo_json,
    log,
    one_line,
    output_filter,
    status_when_interrupted,
    write_bytes,
)
from trainium_cdk.client.jobs.quote import printed
from trainium_cdk.errors import JobError, TrnError
from trainium_cdk.text import counted

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.backend import Backend
    from trainium_cdk.client.jobs.models import Job, Plan
    from trainium_cdk.client.jobs.status import Submitted
    from trainium_cdk.description.outputs import Cluster
    from trainium_cdk.description.settings import Environment

_Of = typer.Option
_GIVEN_OTHERWISE = frozenset({
    "kind", "nodes", "env", "filename", "content", "args", "command", "inside", "tree", "user", "workdir", "requirements", "sweep",
})  # fmt: skip
"""Fields without a generated option: they are arguments, or options defined below."""


_OF_SCRIPTS = frozenset({"args", "workdir", "requirements", "sweep", "yes"})
"""Parameters that only a script has."""
_LIMITS = frozenset({"--dry-run", "--max-usd", "--time-limit"})
"""Options without which a job costs more."""
SCRIPT = "script"
_COMMAND = "trn.command"
"""Name of the flag for a command after `--`, in place of a job."""
_OF_KIND = """It prepares, precompiles and trains: each of these stages begins when the one before has completed.

`trn submit script --help` has more about the options that all kinds have."""


def command_of(words: Sequence[str]) -> Callable[..., None]:
    """The command for a command line: of the kind that it names, else of a script. With --list, the list of the kinds."""
    from trainium_cdk.client.jobs.kinds import find

    own, _ = split(words)
    if "--list" in own:
        return list_kinds
    return of_kind(next((word for word in own if find(word)), ""))


def check_kind(ctx: Any, command: Any, words: Sequence[str]) -> None:
    """Judge the kind before its options, as it decides which there are. Raises JobError: there is neither a kind nor a file of that name."""
    own, behind = split(words)
    found = parsed(command, own)
    named = next(
        (word for word in (found.get("job"), *(found.get("args") or ())) if word and not word.startswith("-")), None
    )
    ctx.meta[_COMMAND] = named is None and bool(behind[1:])
    if named and named != SCRIPT and not found.get("workdir"):
        check_known(named)


@cache
def of_kind(name: str) -> Callable[..., None]:
    """`submit` with the options of a kind, its own first. Options that all kinds have are described by one sentence, but for `script`."""
    from trainium_cdk.client.jobs.kinds import find

    kind = find(name or SCRIPT)
    assert kind is not None  # noqa: S101  `command_of` has found it
    signature = inspect.signature(submit, eval_str=True)
    fixed = {n: p for n, p in signature.parameters.items() if n != "fields"}
    fields = {n: option_of(kind, n) for n in kind.model_fields if n not in _GIVEN_OTHERWISE}
    own = {n for n in fields if name != SCRIPT and is_own(kind, n)}
    shared = {n: p for n, p in fixed.items() if name in ("", SCRIPT) or n not in _OF_SCRIPTS} | fields

    def run(**values: Any) -> None:
        submit(**{n: values.pop(n, None) for n in fixed}, fields=values)

    def place(n: str) -> int:
        return 0 if n in own else 3 if n in CLUSTER_OPTIONS else 2 if n in fields else 1

    parameters = [shared[n] if n in own or name == SCRIPT else in_brief(shared[n]) for n in sorted(shared, key=place)]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__doc__ = f"Submit {name}: {kind.TITLE}.\n\n{_OF_KIND}" if name else submit.__doc__
    return run


@on_cluster()
def submit(
    ctx: typer.Context,
    on: Target,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB", help="A kind of job, your own script file, or a job file: job.yaml.", show_default=False
        ),
    ] = None,
    args: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGS",
            help="Arguments of your script. Put -- before them: everything after it goes to the script, also words that look like options.",
        ),
    ] = None,
    *,
    nodes: Annotated[int, _Of("--nodes", "-N", help="Compute nodes.")] = 1,
    env: Annotated[
        list[str] | None,
        _Of(
            "--env",
            metavar="NAME[=VALUE]",
            help="Variable of the job. NAME alone takes its value from your shell.",
        ),
    ] = None,
    env_file: Annotated[
        list[Path] | None,
        _Of(
            "--env-file",
            metavar="FILE",
            help="File of variables, such as .env. Its lines are NAME=VALUE. The file itself is not sent, and --env wins over it.",
        ),
    ] = None,
    workdir: Annotated[
        Path | None,
        _Of(
            metavar="DIR",
            help="Folder of your code. The script runs in it. What its .gitignore and .trnignore name stays here. It is sent once, later "
            "only what has changed.",
        ),
    ] = None,
    requirements: Annotated[
        Path | None,
        _Of(
            metavar="FILE",
            help="Packages of your script. FILE is a requirements file, a pyproject.toml or a uv.lock. They are installed once, on top of "
            "the cluster's packages or the image, and shared by all jobs with the same ones.",
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        _Of(
            metavar="NAME=VALUES",
            help="Values to try: lr=1e-4,3e-4. Each is a member of an array, with --lr=1e-4 and TRN_SWEEP_LR; {lr} in ARGS is replaced instead. "
            "Repeat the option for all combinations, or give a file with a row for each member: values.csv.",
        ),
    ] = None,
    follow: Annotated[
        bool,
        _Of(
            "--follow",
            "-f",
            help="Then print the log until the job has ended, as `trn logs -f`. Ctrl-C does not end the job.",
        ),
    ] = False,
    token: Annotated[str | None, _Of(help="Submit only once with this token, however often this is run.")] = None,
    dry_run: Annotated[
        bool,
        _Of(
            "--dry-run",
            help="Print what would be sent, and what it needs and costs. Nothing is sent. With an environment file, AWS is not asked, and the "
            "stack may be not deployed yet: its bucket and head node are then written as not-deployed.",
        ),
    ] = False,
    yes: Annotated[
        bool, _Of("--yes", "-y", help=f"Accept limits after --. They are {', '.join(sorted(_LIMITS))}.")
    ] = False,
    save: Annotated[
        Path | None,
        _Of(
            metavar="FILE",
            help="Write the job to a file, such as job.yaml, and submit nothing: `trn submit FILE` does.",
        ),
    ] = None,
    as_json: Json = False,
    fields: dict[str, Any],
) -> None:
    """Submit a script, or a kind of job, and print the job's id.

    `trn submit --list` lists the kinds, `trn submit KIND --help` has a kind's options, `trn submit script --help` more about these.
    """
    from trainium_cdk.client.jobs.job_spec import new_token

    if follow and (as_json or dry_run):
        raise JobError("--follow prints the log. Leave out --json and --dry-run, or --follow")
    if job is None:
        ctx.fail("Missing argument 'JOB'. Give a kind of job, the path of a script, a job file, or a command after --")
    words = tuple(args or ())
    variables = _pairs(env or [], env_file or [])
    given = {name: value for name, value in fields.items() if value is not None}
    given |= _of_environment(ctx, given)
    cluster = planned(ctx, on) if dry_run else None
    jobs = None if cluster or save else backend(on)
    given |= _whole_ids(jobs, given) | {"nodes": nodes, "env": variables, "user": user(on)}
    of_script = {"workdir": workdir, "requirements": requirements, "sweep": sweep}
    given |= {name: value for name, value in of_script.items() if value}
    made = make(job, words, given, is_command=ctx.meta.get(_COMMAND, False))
    _check_arguments(ctx, words, getattr(made, "content", b""), yes=yes)
    if save:
        _save(ctx, save, job, words)
        return
    _offer_packages(made)
    token = new_token() if token is None else token
    plan = jobs.render(made, token) if jobs else _rendering(cluster).render(made, cluster, token)  # type: ignore[arg-type]  # one of both is there
    if dry_run or jobs is None:
        _dry_run(plan, described(ctx), of_file=cluster is not None, as_json=as_json)
        return
    sent = _send(jobs, plan, token, at(on), follow=follow)
    if as_json:
        size = plan.batch.global_size if plan.batch else None
        known = {name: getattr(sent, name) for name in ("id", "existing", "stages", "directory")}
        echo_json(known | {"global_batch_size": size})
    else:
        echo(sent.id)
    if follow:
        from trainium_cdk.client.cli.follow import logs

        logs(on, sent.id, follow=True)


def _whole_ids(jobs: Backend | None, given: Mapping[str, Any]) -> dict[str, str]:
    """The options that name another job, with its whole id.

    Raises:
        JobError: it is not given in full, and no cluster is asked for the rest.
    """
    named = {name: given[name] for name in ("after", "resume_from") if name in given}
    ids = {name: id for name, id in named.items() if not id.startswith(("/", "s3://"))}  # which are no jobs
    return {name: resolve_id(jobs, id) if jobs else _full_id(name, id) for name, id in ids.items()}


def _save(ctx: typer.Context, file: Path, job: str, words: Sequence[str]) -> None:
    """Write the job to a file, and say how it is submitted."""
    from trainium_cdk.client.cli.job_file import write

    for name in write(ctx, file, job, words, is_command=bool(ctx.meta.get(_COMMAND))):
        log(f"{file} has no value of {name}, which may be a secret. Before you submit it: export {name}=VALUE")
    log(f"{file} has the job, and nothing was submitted. To submit it: {printed('trn', 'submit', file)}")


def _offer_packages(made: Job) -> None:
    """Name a file of packages in the folder that is sent, if the job has none."""
    if (workdir := getattr(made, "workdir", None)) and made.requirements is None:  # type: ignore[attr-defined]
        from trainium_cdk.client.jobs.packages import offer_own

        if advice := offer_own(workdir):
            log(advice)


def _send(jobs: Backend, plan: Plan, token: str, where: str, *, follow: bool) -> Submitted:
    """Send a job, and say what becomes of it. `where`: the options that name the cluster in another command."""
    workdir = getattr(plan.job, "workdir", None)
    for line in (*plan.describe(), *([f"workdir {workdir}"] if workdir else [])):
        log(line)
    with status_when_interrupted(
        lambda: (
            f"interrupted: {plan.id} will be submitted completely or not at all (trn status "
            f"{plan.id}{where}). Run it again with --token {token}: it is submitted only once"
        )
    ):
        log(f"submitting {plan.id} (if this is interrupted, run it again with --token {token})")
        [sent] = jobs.send(plan)
        for line in _of_submission(sent):
            log(line)
        if sent.existing and not sent.resubmitted:
            _as_it_is(jobs, sent.id)
        for line in _next(plan, sent.id, where, follow=follow):
            log(line)
    return sent


def _of_submission(sent: Submitted) -> Iterator[str]:
    """Describe what was sent and submitted."""
    if sent.sent is not None:
        files, size = sent.sent
        new = f"sent {counted(files, 'new or changed file')}, {size:,} bytes packed"
        yield new if files else "the workdir was sent before"
    if sent.resubmitted:
        yield f"the scheduler had lost {', '.join(sent.resubmitted)}: submitted again"
    stages = ", ".join(f"{stage} {number}" for stage, number in sent.stages.items())
    yield f"{'already submitted' if sent.existing else 'submitted'}: {stages}"


def _next(plan: Plan, id: str, where: str, *, follow: bool) -> Iterator[str]:
    """Name the job's logs, and the commands that show them."""
    yield f"logs: {plan.directory}/logs; TensorBoard: {plan.directory}/{plan.job.TENSORBOARD}"
    if plan.job.array:
        yield f"follow its members with: trn status {id}{where}; one's log: trn logs -f {id}/INDEX{where}"
    elif not follow:
        yield f"follow it with: trn logs -f {id}{where}"


def _dry_run(plan: Plan, environment: Environment | None, *, of_file: bool, as_json: bool) -> None:
    """Print the submission to standard output, and the job's needs to standard error. Nothing is sent."""
    from trainium_cdk.client.jobs.plan import hour_usd, price

    catalog = catalog_of(environment)
    if as_json:
        echo_json(
            {
                "id": plan.id,
                "directory": plan.directory,
                "stack": plan.cluster.stack,
                "region": plan.cluster.region,
                "environment": environment.source.file if environment and of_file else None,
                "queue": plan.fleet.queue,
                "instance_type": plan.fleet.instance_type,
                "nodes": plan.job.nodes,
                "ranks": plan.started,
                "global_batch_size": plan.batch.global_size if plan.batch else None,
                "usd_per_hour": hour_usd(plan, catalog),
                "price": price(plan, catalog),
                "plan": plan.describe(),
                "sent": _text(plan),
            }
        )
        return
    if environment and of_file:
        log(
            f"{plan.cluster.stack} in {plan.cluster.region}, as {environment.source.file} describes it: AWS is not asked"
        )
    nodes, *notes = plan.describe()
    log(nodes)
    log(_processes(plan))
    if plan.batch is None:
        log("global batch size: the program decides")
    for line in (*notes, price(plan, catalog)):
        log(line)
    write_bytes(_text(plan).encode(), lambda _: None, output_filter())


def _text(plan: Plan) -> str:
    """A rendered job for people, without the values of its variables."""
    return str(_rendering(plan.cluster).text(plan))


def _rendering(cluster: Cluster) -> ModuleType:
    """The module with an engine's `render` and `text`. The cluster is not asked, and need not be deployed."""
    if cluster.containers:
        from trainium_cdk.client.jobs.kubernetes import objects

        return objects
    from trainium_cdk.client.jobs import job_spec

    return job_spec


def _processes(plan: Plan) -> str:
    """Describe the number of processes, and the option that starts one for each NeuronCore."""
    started, nodes = plan.started, plan.job.nodes  # the job's words are made for it
    if started > nodes:
        return f"{counted(started, 'rank')}, {started // nodes} on each node"
    if started < nodes:
        return "1 process, on the first node"
    cores = f", with {counted(plan.fleet.cores, 'NeuronCore')}" if plan.on_trainium else ""
    several = plan.fleet.cores > 1 and not plan.job.spmd and getattr(plan.job, "filename", "").endswith(".py")
    launcher = "jax uses all of them" if plan.framework == "jax" else f"torchrun starts {plan.fleet.cores}"
    return f"1 process on each node{cores}" + (f"; --launcher {launcher}" if several else "")


def _check_arguments(ctx: typer.Context, args: Sequence[str], content: bytes, *, yes: bool) -> None:
    """Name options of this command among a script's arguments.

    Raises:
        JobError: one limits what the job costs, the script's text does not name it, and there is no --yes.
    """
    own = {option for parameter in ctx.command.params for option in parameter.opts if option.startswith("--")}
    for option in dict.fromkeys(word.partition("=")[0] for word in args):
        name = option.removeprefix("--")
        if option not in own or name.encode() in content or name.replace("-", "_").encode() in content:
            continue
        if option in _LIMITS and not yes:
            raise JobError(
                f"{option} is after --, so your script gets it, and trn does not. Write it before --, or give --yes "
                "if it is an option of your script"
            )
        log(f"{option} is after --, so your script gets it, and trn does not")


def _full_id(name: str, given: str) -> str:
    """The id of a job, if it is given in full. Raises JobError: it is not, and no cluster is asked for the rest."""
    if is_full_id(given.partition("/")[0]):
        return given
    raise JobError(
        f"{name} is {given[:80]!r}, and no cluster is asked for the rest of it. Give the job's whole id, as `trn list` prints it"
    )


def _as_it_is(jobs: Backend, id: str) -> None:
    """The state of a job that was submitted before: it may have ended long ago."""
    with contextlib.suppress(TrnError):  # it is submitted, whatever this request's outcome
        status = jobs.status(id)
        log(one_line(status))
        if status.done and not status.ok:
            log("it does not run again with this token: to run it again, submit it with another one")


def make(job: str, args: tuple[str, ...], fields: dict[str, Any], *, is_command: bool = False) -> Job:
    """The job of a command line.

    Raises:
        JobError: the kind or script does not exist, or does not have an option; or see `Script.from_command`.
    """
    from trainium_cdk.client.jobs.kinds import by_name
    from trainium_cdk.client.jobs.kinds.script import Script

    if is_command:
        return Script.from_command((job, *args), fields.pop("workdir", None), **fields)
    if kind := by_name(job):
        return kind(**fields)
    if "workdir" in fields:
        return Script.from_workdir(fields.pop("workdir"), job, args=args, **fields)
    check_known(job)
    return Script.from_file(job, args=args, **fields)


def _of_environment(ctx: typer.Context, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a preset that the environment file adds or changes; those that are given win."""
    preset = given.get("preset")
    environment = described(ctx) if preset else None
    if environment is None or preset not in environment.overrides.torchtitan:
        return {}
    return {**environment.catalog.torchtitan[preset].options, **given}


def _pairs(texts: list[str], files: list[Path]) -> dict[str, str]:
    """The variables of files, and single ones, which win."""
    from trainium_cdk.client.cli.job_file import read_variables

    pairs = {name: value for file in files for name, value in read_variables(file).items()}
    for number, text in enumerate(texts, 1):
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise JobError(
                f"--env number {number} is a name without a value, and your shell does not set it. Write NAME=VALUE, or set it"
            )
        pairs[name] = value if equals else os.environ[name]
    return pairs
