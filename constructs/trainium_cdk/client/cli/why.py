"""`trn why`: why a stack failed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from trainium_cdk.client.cli import named, output
from trainium_cdk.client.cli.options import (
    DEFAULT_STACK,
    EnvFile,
    Json,
    Region,
    described,
    name_in_account,
    stack_argument,
)
from trainium_cdk.client.cli.output import echo, echo_json, log
from trainium_cdk.description import engines


def why(
    ctx: typer.Context,
    stack: Annotated[str, stack_argument(help="Stack, by its name in the account or its id.")] = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Show why a stack failed, or why nodes do not start. Why a job waits or failed: `trn status JOB`.

    It reads CloudFormation's events, the logs of functions and nodes, capacity reservations and blocks, what EKS and PCS report, and Auto
    Scaling's activities, on EKS also nodes, warnings and waiting jobs of Kubernetes, and explains the errors that it knows.
    """
    from trainium_cdk._aws import aws_errors_as, clients
    from trainium_cdk.client.operations import why as reasons
    from trainium_cdk.errors import TrnError

    if named.is_of_job(stack):
        raise TrnError(f"{stack} names a job, not a stack: `trn status {stack}` says why it waits or failed")
    env = described(ctx)
    name = name_in_account(stack, env) if env else stack
    with aws_errors_as(TrnError, f"cannot read stack {name}"):
        report = reasons.why(name, clients(region))
    found = [*([report.first] if report.first else []), *report.evidence, *_in_cluster(name, region)]
    if as_json:
        echo_json({"stack": name, "status": report.status, "evidence": [_plain(each) for each in found]})
        return
    log(f"stack {name} is {report.status}")
    explained: set[str] = set()
    for number, each in enumerate(found):
        label = "first cause: " if number == 0 and report.first else ""
        echo(output.line(f"{label}{each.where}{', ' + each.time[:19] + 'Z' if each.time else ''}: {each.text}"))
        if each.error and each.error.name not in explained:
            explained.add(each.error.name)
            echo(f"  -> {each.error}.")
    if not found:
        log(
            "no failure is recorded: not by CloudFormation, the nodes' logs, EC2's reservations, EKS, PCS, Auto Scaling or Kubernetes"
        )


def _in_cluster(stack: str, region: str | None) -> list[Any]:
    """Read the evidence that Kubernetes records; empty if the stack is no Kubernetes cluster, or cannot be reached."""
    from trainium_cdk.client.jobs.connection import connect
    from trainium_cdk.description import outputs
    from trainium_cdk.errors import OutputsError, TrnError

    try:
        cluster = outputs.read(stack, region)
    except OutputsError:  # it is not deployed completely
        return []
    if cluster.engine != engines.EKS.name:
        return []
    from trainium_cdk.client.operations.why_kubernetes import in_cluster

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
