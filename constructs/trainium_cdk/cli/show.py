"""`trn show`: a deployed cluster and its kubeconfig, the schema of the environment file, and the catalogue."""

from __future__ import annotations

from typing import Annotated

import typer

from trainium_cdk.cli.access import kubeconfig
from trainium_cdk.cli.options import DEFAULT_STACK, EnvFile, Json, Region, Stack
from trainium_cdk.cli.output import echo_json, table
from trainium_cdk.cli.settings import SETTINGS

show = typer.Typer(
    help="Show the environment file's schema, the catalogue, a deployed cluster, or its kubeconfig.",
    no_args_is_help=True,
    **SETTINGS,
)


@show.command()
def cluster(stack: Stack = DEFAULT_STACK, region: Region = None, _env: EnvFile = None) -> None:
    """Print what jobs need to know of a deployed stack.

    With `--cluster FILE`, other commands read it from a file, and do not ask for the stack's outputs. Of EKS it also has, for other
    clients, what a pod requests and its launch environment (`pods`, by instance type).
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


@show.command()
def catalog(as_json: Json = False) -> None:
    """List the known instance types and Neuron SDK releases."""
    from trainium_cdk.catalog import Catalog

    known = Catalog.load()
    if as_json:
        echo_json(known.model_dump(mode="json"))
        return
    rows = [
        [
            kind.name,
            str(kind.vcpus),
            str(kind.memory_gib),
            str(kind.neuron_devices),
            str(kind.logical_cores()),
            str(kind.efa_interfaces),
            ", ".join(kind.capacity_types),
            ", ".join(known.regions_of(kind.name)),
        ]
        for kind in known.instances.values()
    ]
    table("Instance types", ["type", "vCPU", "GiB", "devices", "cores", "EFA", "capacity types", "regions"], rows)
    rows = [
        [
            release.version,
            str(release.released),
            "; ".join(f"{name} {f.version} on {', '.join(f.families)}" for name, f in release.frameworks.items())
            or "none",
        ]
        for release in known.releases.values()
    ]
    table("Neuron SDK releases", ["release", "date", "training frameworks"], rows)


show.command()(kubeconfig)
