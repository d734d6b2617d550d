"""`trn shell`, `top`, `tensorboard`: access to a running job."""

from __future__ import annotations

import sys
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.cli.named import whole
from trainium_cdk.cli.options import DEFAULT_STACK, ClusterFile, EnvFile, JobId, Region, Stack, backend
from trainium_cdk.cli.output import answer, say

if TYPE_CHECKING:
    from trainium_cdk.jobs import Backend, Submission

Node = Annotated[int, typer.Option(min=0, help="The job's node: 0, 1, ...")]


def shell(
    id: JobId,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Command to run instead of a shell; put -- before it.")
    ] = None,
    node: Node = 0,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    cluster: ClusterFile = None,
) -> None:
    """Open a shell on a node of a job, or run a command there. The exit code is the command's."""
    _run(id, node, command or ["bash"], backend(stack, region, None, cluster))


def top(
    id: JobId,
    node: Node = 0,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    cluster: ClusterFile = None,
) -> None:
    """Watch the NeuronCores of one of a job's nodes (neuron-top)."""
    _run(id, node, ["neuron-top"], backend(stack, region, None, cluster))


def tensorboard(
    id: JobId,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of this machine. Default: a free one.")] = 0,
    image: Annotated[str | None, typer.Option(help="Image with TensorBoard. Default: the job's.")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in a browser.")] = True,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    cluster: ClusterFile = None,
) -> None:
    """Show a job's TensorBoard at a port of this machine, until Ctrl-C. It is not public."""
    jobs = backend(stack, region, None, cluster)
    with jobs.tensorboard(whole(jobs, id), image=image, port=port, say=say) as board:
        answer(board.url)
        say("Ctrl-C ends it")
        if browser and sys.stdout.isatty():
            webbrowser.open(board.url)
        try:
            board.wait()
        except KeyboardInterrupt:
            say("\nTensorBoard ends")


def _run(id: str, node: int, command: list[str], jobs: Backend[Submission]) -> None:
    if code := jobs.execute(whole(jobs, id), node, command):
        raise typer.Exit(code)
