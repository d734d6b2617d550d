"""`trn why`: why a stack or a job failed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from trainium_cdk import engines
from trainium_cdk.cli import named, terminal
from trainium_cdk.cli.options import (
    DEFAULT_STACK,
    EnvFile,
    Json,
    Local,
    Region,
    Target,
    backend,
    described,
    name_in_account,
    remembered,
    stack_argument,
)
from trainium_cdk.cli.output import echo, echo_json, log, one_line


def why(
    ctx: typer.Context,
    stack: Annotated[
        str,
        stack_argument(
            help="Stack, by its name in the account or its id; or a job, by its id, a beginning of it, or `latest`."
        ),
    ] = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    local: Local = None,
    cluster_file: Annotated[
        Path | None,
        typer.Option(
            "--cluster",
            envvar="TRN_CLUSTER",
            help="File with the output of `trn show cluster`: where a job is looked for.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show why a stack or a job failed, why a job waits, or why nodes do not start.

    Of a job, it prints its stages, and why it waits or failed. Of a stack, it reads CloudFormation's events, the logs of functions and nodes, capacity reservations and blocks, what EKS and PCS report, and Auto
    Scaling's activities, on EKS also nodes, warnings and waiting jobs of Kubernetes, and explains the errors that it knows.
    """
    from trainium_cdk._aws import aws_errors_as, clients
    from trainium_cdk.errors import OutputsError, TrnError
    from trainium_cdk.operations import why as reasons

    env = described(ctx)
    name = name_in_account(stack, env) if env else stack
    first = engines.get(env.engines[0]).stack if env else DEFAULT_STACK
    on = Target(name_in_account(first, env) if env else first, region, local, cluster_file)
    is_job = bool(cluster_file) or named.is_of_job(stack)
    if is_job and _of_job(ctx, on, stack, as_json):
        return
    try:
        with aws_errors_as(TrnError, f"cannot read stack {name}"):
            report = reasons.why(name, clients(region))
    except OutputsError:
        if is_job or name == on.stack or not _of_job(ctx, on, stack, as_json):
            raise
        return
    found = [*([report.first] if report.first else []), *report.evidence, *_in_cluster(name, region)]
    if as_json:
        echo_json({"stack": name, "status": report.status, "evidence": [_plain(each) for each in found]})
        return
    log(f"stack {name} is {report.status}")
    explained: set[str] = set()
    for number, each in enumerate(found):
        label = "first cause: " if number == 0 and report.first else ""
        echo(terminal.line(f"{label}{each.where}{', ' + each.time[:19] + 'Z' if each.time else ''}: {each.text}"))
        if each.error and each.error.name not in explained:
            explained.add(each.error.name)
            echo(f"  -> {each.error}.")
    if not found:
        log(
            "no failure is recorded: not by CloudFormation, the nodes' logs, EC2's reservations, EKS, PCS, Auto Scaling or Kubernetes"
        )


def _of_job(ctx: typer.Context, on: Target, id: str, as_json: bool) -> bool:
    """Whether there is a job of that id, of which is printed why it failed."""
    from dataclasses import replace

    from trainium_cdk.errors import OutputsError, UnknownJob

    if on.cluster_file is None:
        on = replace(on, team=remembered(ctx, "team", on.stack), user=remembered(ctx, "user", on.stack))
    try:
        jobs = backend(on)
        job = named.status(jobs, id)
    except (OutputsError, UnknownJob):
        return False
    if as_json:
        findings = [asdict(one) for one in job.findings]
        echo_json({"job": job.id, "status": job.state, "why": job.why, **({"findings": findings} if findings else {})})
        return True
    log(one_line(job))
    for one in job.findings:
        echo(terminal.line(f"{job.id} {one.text}"))
    if job.why:
        echo(terminal.line(f"{job.id}: {job.why}"))
    return True


def _in_cluster(stack: str, region: str | None) -> list[Any]:
    """What Kubernetes records, where the stack is a cluster of it that can be reached."""
    from trainium_cdk import outputs
    from trainium_cdk.errors import OutputsError, TrnError
    from trainium_cdk.jobs.connection import connect

    try:
        cluster = outputs.read(stack, region)
    except OutputsError:  # it is not deployed completely
        return []
    if cluster.engine != engines.EKS.name:
        return []
    from trainium_cdk.operations.why_kubernetes import in_cluster

    try:
        jobs: Any = connect(cluster=cluster)
        return in_cluster(jobs.api, jobs.devices)
    except TrnError as e:
        log(f"Kubernetes was not read: {e}")
        return []


def _plain(evidence: Any) -> dict[str, Any]:
    known = evidence.error
    return {
        **asdict(evidence),
        "error": {"name": known.name, "cause": known.cause, "fix": known.fix} if known else None,
    }
