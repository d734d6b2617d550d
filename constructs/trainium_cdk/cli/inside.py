"""`trn shell`, `top`, `tensorboard`: access to a running job."""

from __future__ import annotations

import sys
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.cli.named import whole
from trainium_cdk.cli.options import JobId, Json, Target, backend, on_cluster
from trainium_cdk.cli.output import answer, put, say, table
from trainium_cdk.cli.progress import size
from trainium_cdk.errors import JobError

if TYPE_CHECKING:
    from trainium_cdk.jobs import Backend, Submission

Node = Annotated[int, typer.Option(min=0, help="The job's node: 0, 1, ...")]


@on_cluster()
def shell(
    on: Target,
    id: JobId,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Command to run instead of a shell; put -- before it.")
    ] = None,
    node: Node = 0,
) -> None:
    """Open a shell on a node of a job, or run a command there. The exit code is the command's."""
    _run(id, node, command or ["bash"], backend(on))


@on_cluster()
def top(
    on: Target,
    id: JobId,
    node: Annotated[int | None, typer.Option(min=0, help="Open neuron-top on this node of the job: 0, 1, ...")] = None,
    as_json: Json = False,
) -> None:
    """Print the use of NeuronCores and memory on each node of a job (neuron-monitor); with --node, open neuron-top there."""
    from dataclasses import asdict

    from trainium_cdk.jobs.use import SCRIPT, parse

    jobs = backend(on)
    if node is not None:
        _run(id, node, ["neuron-top"], jobs)
        return
    id = whole(jobs, id)
    said = jobs.on_nodes(id, SCRIPT)
    found = [use for number, text in sorted(said.items()) if (use := parse(number, text))]
    if not found:
        reason = next((text.strip().splitlines()[-1] for text in said.values() if text.strip()), "no node answered")
        raise JobError(f"neuron-monitor reported nothing on the nodes of {id}: {reason[:200]}")
    if as_json:
        put([asdict(use) for use in found])
        return
    rows = [
        [
            str(use.node),
            str(use.cores),
            *("" if value is None else f"{value:.0f} %" for value in (use.used, use.least)),
            "" if use.device_bytes is None else size(use.device_bytes),
            "" if use.host_bytes is None else f"{size(use.host_bytes)} of {size(use.host_total or 0)}",
        ]
        for use in found
    ]
    table("", ["node", "cores in use", "mean", "idlest", "device memory", "host memory"], rows)
    say(f"of one second. The processes of a node: trn top {id} --node 0")


@on_cluster()
def tensorboard(
    on: Target,
    id: JobId,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of this machine. Default: a free one.")] = 0,
    image: Annotated[str | None, typer.Option(help="Kubernetes: image with TensorBoard. Default: the job's.")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in a browser.")] = True,
) -> None:
    """Show a job's TensorBoard at a port of this machine, until Ctrl-C. It is not public."""
    jobs = backend(on)
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
