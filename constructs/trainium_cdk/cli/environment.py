"""`trn cluster`, `validate`, `schema`, `catalog`: the deployed cluster, the environment file, and the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainium_cdk.cli.options import DEFAULT_STACK, EnvFile, Json, Region, Stack
from trainium_cdk.cli.output import put, say, table


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
    put(known)


def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", envvar="TRN_ENV", help="Environment file, YAML.")],
    stack: Annotated[
        str | None, typer.Argument(metavar="STACK", help="Only this stack. Default: those that the file describes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check an environment file as `cdk synth` does.

    Exit code 1 if a stack that it describes would be rejected. Stacks that it does not describe are not checked: name one as STACK.
    """
    from trainium_cdk import checks, settings
    from trainium_cdk.cli.preflight import engine_of
    from trainium_cdk.problems import errors

    env = settings.load(file)
    described = (engine_of(stack, env),) if stack else env.engines
    problems = checks.check(env, *described)
    if as_json:
        put([{"key": p.dotted, "level": p.level, "reason": p.reason, "fix": p.fix, "rule": p.rule} for p in problems])
    for problem in problems:
        say(env.source.describe(problem))
    if errors(problems):
        raise typer.Exit(1)
    if not env.model_fields_set:
        say(f"{file}: it has no settings, and describes the default environment, in {env.region}")
    say(f"{file}: valid, can be deployed")


def schema() -> None:
    """Print the JSON schema of the environment file.

    Editors complete and check the file with it.
    """
    from trainium_cdk import settings

    put(settings.json_schema())


def catalog(as_json: Json = False) -> None:
    """List the known instance types and Neuron SDK releases."""
    from trainium_cdk.catalog import Catalog

    known = Catalog.load()
    if as_json:
        put(known.model_dump(mode="json"))
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
