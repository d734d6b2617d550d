"""`trn image build`, `trn image bake`: images for jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainium_cdk.cli.bake import bake
from trainium_cdk.cli.options import EKS_STACK, Json, Target, kubernetes, on_cluster
from trainium_cdk.cli.output import echo, echo_json, log
from trainium_cdk.cli.settings import SETTINGS
from trainium_cdk.cli.working import working
from trainium_cdk.text import counted

image = typer.Typer(help="Build images of training containers, or of Slurm nodes.", no_args_is_help=True, **SETTINGS)


@on_cluster(stack=EKS_STACK, local=False)
def build(
    on: Target,
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder with the Dockerfile, or an example: torchneuron, bert-large, jax."),
    ],
    tag: Annotated[str | None, typer.Option(help="Default: derived from the content.")] = None,
    file: Annotated[str, typer.Option("--file", "-f", help="The Dockerfile, within DIR.")] = "Dockerfile",
    as_json: Json = False,
) -> None:
    """Build a training image and push it to the registry.

    In the account (CodeBuild), to the stack's registry. No Docker is needed here.

    Prints its name, for `trn submit --image`. An unchanged folder gives the same image, and is not built again.
    """
    from dataclasses import asdict

    from trainium_cdk.jobs import images
    from trainium_cdk.jobs.image_examples import find

    jobs = kubernetes(on)
    if (folder := find(directory)) != directory:
        log(f"{directory.name} is an example: copy {folder} to change it")
    source = images.pack(folder, file)
    log(f"packed {counted(source.files, 'file')}, {source.size:,} bytes")
    if source.left_out:
        log(f"left out: {', '.join(map(str, source.left_out))}")
    with working("building the image") as shown:
        made = images.build(jobs.cluster, source, tag, say=log, log=lambda line: log(f"  {line}"), phase=shown.at)
    if not made.built:
        log("it already exists")
    if as_json:
        echo_json({**asdict(made), "pinned": made.pinned})
    else:
        echo(made.pinned)


image.command()(build)
image.command()(bake)
image.callback()(lambda: None)  # so that a subcommand is not taken for the command itself
