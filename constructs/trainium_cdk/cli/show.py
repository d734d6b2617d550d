"""`trn show`: a deployed cluster and its kubeconfig, and the schema of the environment file."""

from __future__ import annotations

from typing import Annotated

import typer

from trainium_cdk.cli.access import kubeconfig
from trainium_cdk.cli.options import DEFAULT_STACK, EnvFile, Region, Stack
from trainium_cdk.cli.output import echo_json
from trainium_cdk.cli.settings import SETTINGS

show = typer.Typer(
    help="Show the environment file's schema, a deployed cluster, or its kubeconfig.",
    no_args_is_help=True,
    **SETTINGS,
)


@show.command()
def cluster(stack: Stack = DEFAULT_STACK, region: Region = None, _env: EnvFile = None) -> None:
    """Print what jobs need to know of a deployed stack.

    With `--cluster FILE`, other commands read it from a file, and do not ask for the stack's outputs. On EKS it also has, for other
    clients, what a pod requests and its launch variables (`pods`, by instance type).
    """
    from trainium_cdk import outputs

    found = outputs.read(stack, region)
    known = found.model_dump(mode="json")
    if found.containers:
        from trainium_cdk.jobs.kubernetes import clients

        known["pods"] = clients.pods(found)
    echo_json(known)


@show.command()
def schema(
    job: Annotated[bool, typer.Option("--job", help="That of a job file, as `trn submit` takes it.")] = False,
) -> None:
    """Print the JSON schema of the environment file.

    Editors complete and check the file with it.
    """
    from trainium_cdk import settings
    from trainium_cdk.cli import job_file

    echo_json(job_file.json_schema() if job else settings.json_schema())


show.command()(kubeconfig)
