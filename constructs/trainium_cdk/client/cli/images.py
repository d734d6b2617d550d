"""`trn image build`: images for jobs. `trn image bake`: the image file of Slurm nodes with the Neuron packages, for ParallelCluster's own command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.client.cli.app import SETTINGS
from trainium_cdk.client.cli.options import (
    DEFAULT_STACK,
    EKS_STACK,
    ClusterFile,
    EnvFile,
    Json,
    Region,
    Stack,
    Target,
    described,
    kubernetes,
    on_cluster,
    only,
    read_cluster,
)
from trainium_cdk.client.cli.output import echo, echo_json, log
from trainium_cdk.client.cli.progress import working
from trainium_cdk.client.jobs.quote import printed
from trainium_cdk.description.engines import SLURM
from trainium_cdk.errors import AwsError, TrnError
from trainium_cdk.text import counted

if TYPE_CHECKING:
    from trainium_cdk.description.node.image import Bake
    from trainium_cdk.description.settings import Environment

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

    from trainium_cdk.client.jobs import images
    from trainium_cdk.client.jobs.images import find_example

    jobs = kubernetes(on)
    if (folder := find_example(directory)) != directory:
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


_FILE = "image.yaml"


def bake(
    ctx: typer.Context,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    cluster_file: ClusterFile = None,
) -> None:
    """Print the image file of Slurm nodes, and how to build it.

    The image has the Neuron packages. The file is for `pcluster build-image`; the script that it names is put into the stack's bucket.

    For example `trn image bake > image.yaml`, and then the command that is printed.
    """
    from trainium_cdk.description import checks
    from trainium_cdk.description.cluster_configuration import to_yaml
    from trainium_cdk.description.node.image import bake as render
    from trainium_cdk.description.outputs import SlurmCluster, read
    from trainium_cdk.description.settings import Environment

    env = described(ctx) or Environment()
    checks.require(env, SLURM.name)
    deployed = read_cluster(cluster_file) if cluster_file else read(stack, region, SLURM.name)
    cluster = only(SlurmCluster, deployed, SLURM.title, DEFAULT_STACK)
    if cluster.engine != SLURM.name:
        raise TrnError(
            f"stack {cluster.stack} has no ParallelCluster, whose command builds the image. Name another stack"
        )
    image = render(env, parent_image=_official_image(env), bucket=cluster.bucket)
    _upload(cluster.bucket, image, env.region)
    echo(to_yaml(image.configuration), end="")
    pcluster = ("uvx", "--from", f"aws-parallelcluster=={env.parallelcluster_version}", "pcluster")
    words = ("--image-id", image.image_id, "--image-configuration", _FILE, "--region", env.region)
    log(f"write this to {_FILE}, and build it: {printed(*pcluster, 'build-image', *words)}")


def _official_image(env: Environment) -> str:
    """The newest of ParallelCluster's own images for the environment.

    Raises:
        TrnError: the region has none, or the request to AWS failed.
    """
    from trainium_cdk.description.checks.live import Aws, CheckTarget
    from trainium_cdk.description.checks.live.clusters import fetch_parallelcluster

    try:
        images = fetch_parallelcluster(CheckTarget(env, SLURM.name), Aws(env.region))
    except AwsError as e:
        raise TrnError(f"cannot list ParallelCluster's images in {env.region}: {e}") from None
    if not images:
        raise TrnError(
            f"AWS publishes no image of ParallelCluster for {env.pcluster.os} in {env.region}. "
            f"Write pcluster.version: {env.catalog.parallelcluster.default}, or choose another region"
        )
    return str(max(images, key=lambda i: str(i.get("CreationDate", "")))["ImageId"])


def _upload(bucket: str, image: Bake, region: str) -> None:
    """Put the build's script into the stack's bucket. Raises TrnError: AWS refuses it."""
    from trainium_cdk._aws import aws_errors_as, client

    with aws_errors_as(TrnError, f"cannot put the build's script into s3://{bucket}/{image.key}"):
        client("s3", region).put_object(
            Bucket=bucket,
            Key=image.key,
            Body=image.script.encode(),
            ServerSideEncryption="AES256",  # ParallelCluster's role of the build may not use the key of the bucket
        )


image.command()(build)
image.command()(bake)
image.callback()(lambda: None)  # so that a subcommand is not taken for the command itself
