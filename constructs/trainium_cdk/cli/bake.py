"""`trn image bake`: an image for Slurm nodes with the Neuron packages, so that they start minutes faster."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.cli.options import (
    DEFAULT_STACK,
    ClusterFile,
    EnvFile,
    Json,
    Region,
    Stack,
    described,
    only,
    read_cluster,
)
from trainium_cdk.cli.output import echo, echo_json, log
from trainium_cdk.cli.working import working
from trainium_cdk.engines import SLURM
from trainium_cdk.errors import AwsError, TrnError
from trainium_cdk.jobs.quote import printed

if TYPE_CHECKING:
    from trainium_cdk.cluster_configuration.image import Bake
    from trainium_cdk.settings import Environment


def bake(
    ctx: typer.Context,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    subnet: Annotated[
        str | None, typer.Option(help="Subnet of the build, with internet access. Default: the default VPC's.")
    ] = None,
    security_group: Annotated[
        list[str] | None, typer.Option(help="With --subnet: security groups of the build instance.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only validate the configuration with ParallelCluster, and build nothing.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the configuration, and start nothing.")] = False,
    cluster_file: ClusterFile = None,
    as_json: Json = False,
) -> None:
    """Build an image for the nodes of a Slurm cluster.

    It has the Neuron packages. EC2 Image Builder takes about half an hour.

    ParallelCluster's own command builds it; it is run with `uvx` or `pipx`, or found on the PATH. Run the same command again
    to see the progress, and the image's id when it is finished: write it as `custom_ami` of a queue, and deploy.
    """
    from trainium_cdk.cluster_configuration.config import to_yaml
    from trainium_cdk.cluster_configuration.image import bake as render
    from trainium_cdk.outputs import SlurmCluster, read
    from trainium_cdk.settings import Environment

    env = described(ctx) or Environment()
    _refuse(env, subnet, security_group)
    deployed = read_cluster(cluster_file) if cluster_file else read(stack, region, SLURM.name)
    cluster = only(SlurmCluster, deployed, SLURM.title, DEFAULT_STACK)
    if cluster.engine != SLURM.name:
        raise TrnError(
            f"stack {cluster.stack} has no ParallelCluster, whose command builds the image. Name another stack"
        )
    image = render(
        env,
        parent_image=_official_image(env),
        bucket=cluster.bucket,
        subnet=subnet,
        security_groups=security_group or (),
    )
    if dry_run:
        echo(to_yaml(image.configuration), end="")
        return
    pcluster = Pcluster(env.parallelcluster_version, env.region)
    with working("running ParallelCluster's command"):
        found = None if check else pcluster.image(image.image_id)
        if found is None:
            _upload(cluster.bucket, image, env.region)
            found = pcluster.build(image, check=check)
    if as_json:
        echo_json(found)
    elif check:
        echo("ParallelCluster accepts the configuration")
    else:
        _report(image, found, pcluster)
    if _status(found).endswith("_FAILED"):
        raise typer.Exit(1)


class Pcluster:
    """ParallelCluster's command, in a separate Python environment: its requirements conflict with this library's.

    Args:
        version: of the cluster; nodes do not start from images of another version.
    """

    def __init__(self, version: str, region: str):
        self.region = region
        self._command = _command(version)

    def image(self, image_id: str) -> dict[str, Any] | None:
        """ParallelCluster's description of an image; None if it does not exist."""
        code, response = self._run("describe-image", "--image-id", image_id)
        if code == 0:
            return response
        if "No image" in str(response.get("message")):
            return None
        raise _error(response)

    def build(self, image: Bake, *, check: bool) -> dict[str, Any]:
        """Start the build of an image, or only validate its configuration."""
        from trainium_cdk.cluster_configuration.config import to_yaml

        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(to_yaml(image.configuration))
            file.flush()
            words = ["build-image", "--image-id", image.image_id, "--image-configuration", file.name]
            code, response = self._run(*words, *(["--dryrun", "true"] if check else []))
        if code == 0 or (check and "DryRun flag is set" in str(response.get("message"))):
            return response
        raise _error(response)

    def removal(self, image_id: str) -> str:
        """The command that removes an image, its build and the build's log."""
        return printed(*self._command, "delete-image", "--image-id", image_id, "--region", self.region)

    def _run(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = subprocess.run(
            [*self._command, *words, "--region", self.region], capture_output=True, text=True, check=False
        )
        try:
            response = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError:
            last = " ".join((done.stderr or done.stdout).split())[-600:]
            raise TrnError(f"`{' '.join(self._command)}` failed: {last or 'it printed nothing'}") from None
        return done.returncode, response


def _command(version: str) -> list[str]:
    """The command line of ParallelCluster's command, for a version.

    Raises:
        TrnError: neither it nor uvx nor pipx is installed.
    """
    if own := shutil.which("pcluster"):
        done = subprocess.run([own, "version"], capture_output=True, text=True, check=False)
        if f'"{version}"' in done.stdout:
            return [own]
    package = f"aws-parallelcluster=={version}"
    if found := shutil.which("uvx"):
        return [found, "--from", package, "pcluster"]
    if found := shutil.which("pipx"):
        return [found, "run", "--spec", package, "pcluster"]
    raise TrnError(
        f"ParallelCluster's own command builds the image, and there is no `pcluster` {version} here, nor uvx or pipx to run it "
        f"with. Install one of them (python3 -m pip install uv), or {package} in a separate environment"
    )


def _refuse(env: Environment, subnet: str | None, groups: list[str] | None) -> None:
    from trainium_cdk import checks

    checks.require(env, "slurm")
    if bool(subnet) != bool(groups):
        raise TrnError("give --subnet and --security-group together: ParallelCluster requires a group for a subnet")


def _official_image(env: Environment) -> str:
    """The newest of ParallelCluster's own images for the environment.

    Raises:
        TrnError: the region has none, or the request to AWS failed.
    """
    from trainium_cdk.checks.live import Aws, Target
    from trainium_cdk.checks.live.parallelcluster import fetch_parallelcluster

    try:
        images = fetch_parallelcluster(Target(env, "slurm"), Aws(env.region))
    except AwsError as e:
        raise TrnError(f"cannot list ParallelCluster's images in {env.region}: {e}") from None
    if not images:
        raise TrnError(
            f"AWS publishes no image of ParallelCluster for {env.pcluster.os} in {env.region}. "
            f"Write pcluster.version: {env.catalog.parallelcluster.default}, or choose another region"
        )
    return str(max(images, key=lambda i: str(i.get("CreationDate", "")))["ImageId"])


def _upload(bucket: str, image: Bake, region: str) -> None:
    import boto3

    from trainium_cdk._aws import aws_errors_as

    with aws_errors_as(TrnError, f"cannot put the build's script into s3://{bucket}/{image.key}"):
        boto3.client("s3", region_name=region).put_object(
            Bucket=bucket,
            Key=image.key,
            Body=image.script.encode(),
            ServerSideEncryption="AES256",  # ParallelCluster's role of the build may not use the key of the bucket
        )


def _error(response: dict[str, Any]) -> TrnError:
    found = response.get("configurationValidationErrors") or []
    reasons = [str(e.get("message")) for e in found if e.get("level") == "ERROR"]
    return TrnError(f"ParallelCluster rejected it: {' '.join([str(response.get('message')), *reasons])}")


def _status(found: dict[str, Any]) -> str:
    return str(found.get("imageBuildStatus") or found.get("image", {}).get("imageBuildStatus", "?"))


def _report(image: Bake, found: dict[str, Any], pcluster: Pcluster) -> None:
    status, ami = _status(found), found.get("ec2AmiInfo", {}).get("amiId")
    if status == "BUILD_COMPLETE" and ami:
        echo(ami)
        log(f"{image.image_id} is finished. Write `custom_ami: {ami}` under a queue, and deploy")
        return
    echo(f"{image.image_id}\t{status}")
    if status.endswith("_FAILED"):
        raise _failed(image, found, pcluster)
    log("run the same command again to see the progress")


def _failed(image: Bake, found: dict[str, Any], pcluster: Pcluster) -> TrnError:
    """ParallelCluster keeps a failed build, and starts no other of its name."""
    reason = found.get("imagebuilderImageStatusReason") or found.get("cloudformationStackStatusReason")
    group = str(found.get("imageBuildLogsArn") or "").partition(":log-group:")[2].removesuffix(":*")
    return TrnError(
        f"{image.image_id} failed{f': {reason}' if reason else ''}. "
        f"{f'Its log is in CloudWatch, group {group}. ' if group else ''}"
        f"When the cause is removed, remove the build, and run this command again: {pcluster.removal(image.image_id)}"
    )
