"""`trn image build`, `trn image bake`, `trn data stage`: images and data for jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainium_cdk.catalog.plain import counted
from trainium_cdk.cli.bake import bake
from trainium_cdk.cli.options import EKS_STACK, Json, Target, kubernetes, on_cluster
from trainium_cdk.cli.output import answer, hand_out, put, say, shown
from trainium_cdk.cli.settings import SETTINGS
from trainium_cdk.cli.working import working

image = typer.Typer(help="Build images of training containers, or of Slurm nodes.", no_args_is_help=True, **SETTINGS)
data = typer.Typer(help="Copy data sets onto the shared file system (EKS).", no_args_is_help=True, **SETTINGS)


@on_cluster(stack=EKS_STACK, local=False)
def build(
    on: Target,
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with the Dockerfile, or an example: torchneuron, bert-large.")
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
        say(f"{directory.name} is an example: copy {folder} to change it")
    source = images.pack(folder, file)
    say(f"packed {counted(source.files, 'file')}, {source.size:,} bytes")
    if source.left_out:
        say(f"left out: {', '.join(map(str, source.left_out))}")
    with working("building the image", f"image build {jobs.cluster.stack}") as shown:
        made = images.build(jobs.cluster, source, tag, say=say, log=lambda line: say(f"  {line}"), phase=shown.at)
        shown.counts = made.built
    if not made.built:
        say("it already exists")
    if as_json:
        put({**asdict(made), "pinned": made.pinned})
    else:
        answer(made.pinned)


@on_cluster(stack=EKS_STACK, local=False)
def stage(
    on: Target,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="s3://bucket/file.tar (unpacked), s3://bucket/file, s3://bucket/prefix/, or a data set of the job kinds: "
            "bert-seqlen128, bert-seqlen512, gpt2-wikipedia.",
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="Directory on a shared file system; leave out for a data set's name."),
    ] = "",
    public: Annotated[
        bool, typer.Option("--public", help="The bucket is public: read it without credentials.")
    ] = False,
    image: Annotated[str | None, typer.Option(help="Image with the AWS CLI. Default: the cluster's.")] = None,
    sha256: Annotated[str, typer.Option(help="SHA-256 of the object: with any other it is refused.")] = "",
) -> None:
    """Copy a data set onto the shared file system, and unpack it.

    For EKS: it runs on a system node, and no Trainium node is needed. On Slurm: `trn cp`, or a script in the queue cpu that fetches it.

    If this command is interrupted, the copy goes on; run it again to follow the copy, or to fetch what is missing.
    """
    from trainium_cdk.jobs.kubernetes import stage as staging

    jobs = kubernetes(on)
    show = shown()
    for job in staging.render(source, target, jobs.cluster, public=public, image=image, sha256=sha256):
        with working(f"copying {source}", f"data stage {jobs.cluster.stack} {source}", alone=False):
            if not staging.run(jobs.api, job, log=lambda text: hand_out(text, lambda _: None, show), say=say):
                say(f"{source} was not copied: see above. Run this again to fetch what is missing")
                raise typer.Exit(1)


image.command()(build)
image.command()(bake)
image.callback()(lambda: None)  # so that a subcommand is not taken for the command itself
data.command()(stage)
data.callback()(lambda: None)
