"""`trn submit`: a template or a script of the user's own, as options."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.cli.common import (
    DEFAULT_STACK,
    ClusterFile,
    Json,
    Local,
    Region,
    Stack,
    SubmitEnvFile,
    at,
    backend,
    file_among_variables,
    put,
    say,
    told_when_stopped,
)

if TYPE_CHECKING:
    from trainium_cdk.jobs.models import AnyJob

_TEMPLATES = ("bert-large", "gpt3-6.7b")
_Of = typer.Option


def register(app: typer.Typer) -> None:
    app.command()(submit)


def submit(
    job: Annotated[str, typer.Argument(metavar="JOB", help="bert-large, gpt3-6.7b, or a script file of your own.")],
    args: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of your script; put -- before them.")
    ] = None,
    nodes: Annotated[int, _Of("--nodes", "-N", help="Compute nodes.")] = 1,
    queue: Annotated[str | None, _Of(help="Queue. Default: the cluster's first.")] = None,
    instance_type: Annotated[str | None, _Of(help="Where a queue mixes instance types.")] = None,
    name: Annotated[str | None, _Of(help="First part of the job's id. Default: the template's or script's.")] = None,
    time_limit: Annotated[str | None, _Of(help="Of the training: minutes, HH:MM:SS or D-HH:MM:SS.")] = None,
    env: Annotated[
        list[str] | None,
        _Of(
            "--env",
            metavar="NAME[=VALUE]",
            is_eager=True,
            callback=file_among_variables,
            help="Added to the launch environment; NAME alone: with your value of it.",
        ),
    ] = None,
    precompile: Annotated[
        bool | None, _Of("--precompile/--no-precompile", help="Compile the graphs first. Default: yes; for scripts no.")
    ] = None,
    scaling: Annotated[
        str | None, _Of(metavar="strong|weak", help="Keep the global batch size, or each node's.")
    ] = None,
    phase: Annotated[int | None, _Of(help="bert-large: 1 or 2.")] = None,
    optimizer: Annotated[str | None, _Of(metavar="lamb|adamw", help="bert-large.")] = None,
    checkpoint: Annotated[str | None, _Of(help="bert-large phase 2: file or job to start from.")] = None,
    batch_size: Annotated[int | None, _Of(help="bert-large: sequences of a microstep of one worker.")] = None,
    accumulation: Annotated[int | None, _Of(help="Gradient accumulation microsteps.")] = None,
    warmup_steps: Annotated[int | None, _Of(help="bert-large.")] = None,
    tensor_parallel: Annotated[int | None, _Of(help="gpt3-6.7b: NeuronCores of one model copy.")] = None,
    global_batch_size: Annotated[int | None, _Of(help="gpt3-6.7b, strong scaling.")] = None,
    micro_batch_size: Annotated[int | None, _Of(help="gpt3-6.7b.")] = None,
    steps: Annotated[int | None, _Of(help="Steps of the whole training.")] = None,
    run_steps: Annotated[int | None, _Of(help="Stop after this many.")] = None,
    learning_rate: Annotated[float | None, _Of(help="Peak learning rate.")] = None,
    data: Annotated[str | None, _Of(help="Directory on the cluster, or s3://... Default: the public data set.")] = None,
    data_name: Annotated[str | None, _Of(help="gpt3-6.7b: name of the .bin and .idx files.")] = None,
    tasks_per_node: Annotated[int | None, _Of(help="Scripts: copies on each node.")] = None,
    cache: Annotated[str | None, _Of(help="Compile cache (cache set) shared with others of this name.")] = None,
    image: Annotated[str | None, _Of(help="Kubernetes: container image. Default: the cluster's.")] = None,
    token: Annotated[str | None, _Of(help="Submit once for this token, however often this is run.")] = None,
    dry_run: Annotated[
        bool, _Of("--dry-run", help="Print what would be sent, byte for byte, and send nothing.")
    ] = False,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: SubmitEnvFile = None,
    local: Local = None,
    cluster: ClusterFile = None,
    as_json: Json = False,
) -> None:
    """Submit a training job: prepare, precompile and train, each after the one before.

    Prints the job's id. Running it again with the same --token changes nothing.
    """
    given: dict[str, Any] = {
        "queue": queue, "instance_type": instance_type, "name": name, "time_limit": time_limit,
        "precompile": precompile,
        "scaling": scaling, "phase": phase, "optimizer": optimizer, "checkpoint": checkpoint, "batch_size": batch_size,
        "accumulation": accumulation, "warmup_steps": warmup_steps, "tensor_parallel": tensor_parallel,
        "global_batch_size": global_batch_size, "micro_batch_size": micro_batch_size, "steps": steps,
        "run_steps": run_steps,
        "learning_rate": learning_rate, "data": data, "data_name": data_name, "tasks_per_node": tasks_per_node,
        "cache": cache, "image": image,
    }  # fmt: skip
    from trainium_cdk.jobs import new_token

    fields = {key: value for key, value in given.items() if value is not None}
    made = make(job, tuple(args or ()), {**fields, "nodes": nodes, "env": _pairs(env or [])})
    jobs: Any = backend(stack, region, local, cluster)
    token = token or new_token()
    submission = jobs.render(made, token)
    if dry_run:
        sys.stdout.buffer.write(submission.text.encode())
        sys.stdout.flush()
        return
    for line in submission.plan.describe():
        say(line)
    _compare(submission.plan)
    with told_when_stopped(
        lambda: (
            f"broken off: {submission.id} is there whole, or not at all, in a moment (trn status "
            f"{submission.id}{at(stack, region)}). Run it again with --token {token}: it will be there once"
        )
    ):
        say(f"submitting {submission.id} (if this breaks off, run it again with --token {token})")
        sent = jobs.send(submission)
        stages = ", ".join(f"{stage} {number}" for stage, number in sent.stages.items())
        say(("it was submitted before" if sent.existing else "submitted") + f": {stages}")
        say(f"logs: {submission.log_dir}; TensorBoard: {submission.tensorboard_dir}")
        say(f"follow it with: trn logs -f {sent.id}{at(stack, region)}")
    if as_json:
        batch = submission.plan.batch
        put(
            {
                "id": sent.id,
                "existing": sent.existing,
                "stages": sent.stages,
                "directory": sent.directory,
                "global_batch_size": batch.global_size if batch else None,
            }
        )
    else:
        print(sent.id)


def make(job: str, args: tuple[str, ...], fields: dict[str, Any]) -> AnyJob:
    """The job of a command line.

    Raises:
        JobError: there is no such template or script, or an option does not go with it.
    """
    from pathlib import Path

    from trainium_cdk.jobs.errors import JobError
    from trainium_cdk.jobs.models import BertLarge, Gpt3, Script

    if job in _TEMPLATES:
        if args:
            raise JobError(
                f"{job} takes no arguments, but was given {args[0][:80]!r}. Remove it, or submit a script of your own"
            )
        return BertLarge(**fields) if job == "bert-large" else Gpt3(**fields)
    try:
        found = "/" in job or "." in job or Path(job).exists()
    except (OSError, ValueError):  # too long for a name, or a NUL byte in it
        found = False
    if not found:
        raise JobError(
            f"there is no template and no file {job[:80]!r}. Give bert-large, gpt3-6.7b, or the path of a script"
        )
    return Script.from_file(job, args=args, **fields)


def _pairs(texts: list[str]) -> dict[str, str]:
    from trainium_cdk.jobs.errors import JobError

    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise JobError(f"--env {text[:80]!r} has no value, and is not set here. Write NAME=VALUE, or set it")
        pairs[name] = value if equals else os.environ[name]
    return pairs


def _compare(plan: Any) -> None:
    from trainium_cdk.jobs.plan import expected

    if published := expected(plan):
        say(f"throughput to expect: {published}")
