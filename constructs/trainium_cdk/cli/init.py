"""`trn init`: writes an environment file to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainium_cdk import engines
from trainium_cdk.cli.named import did_you_mean
from trainium_cdk.cli.output import say, write_file
from trainium_cdk.engines import SLURM
from trainium_cdk.errors import TrnError

_HEAD = """# yaml-language-server: $schema=environment.schema.json
# An environment: one {title} cluster with its network and storage. Every key that is not here has its default.
# Check it: trn validate {file}. Use it: trn use {file}

# Lower-case letters and digits. The stacks of another environment than `trn` have its name in theirs.
name: {name}
region: {region}
"""
_STORAGE = """
storage:
  # The shared file system of all nodes: code, logs, checkpoints, environments. It costs money until the stack is deleted.
  efs: {throughput: elastic}
  # fsx: {deployment: PERSISTENT_2, capacity_gib: 2400}   # FSx for Lustre at /fsx: for large data and checkpoints

# on_destroy: keep                        # file systems and their data stay when the stack is deleted
"""


def init(
    file: Annotated[Path, typer.Argument(help="File to write.")] = Path("environment.yaml"),
    engine: Annotated[str, typer.Option(help="slurm (ParallelCluster) or eks (Kubernetes).")] = SLURM.name,
    instance_type: Annotated[str, typer.Option(help="Type of the nodes (`trn catalog` lists them).")] = "trn1.32xlarge",
    nodes: Annotated[int, typer.Option("--nodes", "-N", min=1, max=1000, help="Most nodes at once.")] = 4,
    region: Annotated[
        str | None, typer.Option(help="AWS region. Default: the first in which the instance type is offered.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the environment.")] = "trn",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a commented environment file, which is valid and can be deployed as it is."""
    from trainium_cdk.catalog import Catalog

    chosen = engines.get(engine)
    if not chosen.example:
        raise TrnError(
            f"there is no example of an environment for {chosen.title}. Write the section `{chosen.section}` yourself"
        )
    known = Catalog.load()
    if instance_type not in known.instances:
        hint = did_you_mean(instance_type, known.instances)
        raise TrnError(
            f"the catalogue has no instance type {instance_type[:80]!r}{hint}. Use {', '.join(known.instances)}"
        )
    offered = known.regions_of(instance_type)
    place = region or next((r for r in ("us-west-2", "us-east-1", *offered) if r in offered), "us-east-1")
    if offered and place not in offered:
        raise TrnError(f"{instance_type} is not offered in {place}, by the catalogue. Use {', '.join(offered)}")
    if file.exists() and not force:
        raise TrnError(f"{file} exists already. Give another file, or --force to overwrite it")
    title = chosen.title
    text = (_HEAD + chosen.example).format(
        file=file, title=title, name=name, region=place, instance_type=instance_type, nodes=nodes
    )
    _check(text + _STORAGE)
    write_file(file, text + _STORAGE, 0o644)
    say(
        f"{file}: {title} in {place}, at most {nodes} x {instance_type}. Next: trn use {file}; trn preflight {chosen.stack}"
    )


def _check(text: str) -> None:
    """Raises SettingsError: a value is not valid, for example the name."""
    import tempfile

    from trainium_cdk import settings

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "environment.yaml"
        file.write_text(text, "utf-8")
        settings.load(file)
