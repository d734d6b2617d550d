"""`trn shell`, `top`, `forward`, `tensorboard`: access to a running job."""

from __future__ import annotations

import re
import sys
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.cli.named import whole
from trainium_cdk.cli.options import ID_HELP, JobId, Json, Target, backend, on_cluster
from trainium_cdk.cli.output import answer, marked, put, say, say_if_sandbox, table
from trainium_cdk.cli.progress import size
from trainium_cdk.errors import JobError, UnknownJob

if TYPE_CHECKING:
    from trainium_cdk.jobs import Backend, JobStatus, Submission, Tunnel

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
    """Open a shell on a node of a job, or run a command there.

    The exit code is the command's.
    """
    _run(id, node, command or ["bash"], backend(on))


@on_cluster()
def top(
    on: Target,
    id: JobId,
    node: Annotated[int | None, typer.Option(min=0, help="Open neuron-top on this node of the job: 0, 1, ...")] = None,
    as_json: Json = False,
) -> None:
    """Print the use of NeuronCores and memory on a job's nodes.

    As neuron-monitor reports it; with --node, neuron-top is opened there.
    """
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
        put(marked([asdict(use) for use in found]))
        return
    say_if_sandbox()
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
def forward(
    on: Target,
    id: Annotated[
        str,
        typer.Argument(metavar="JOB|NODE", help=f"{ID_HELP} Or the name of a node on which a job runs (`trn nodes`)."),
    ],
    ports: Annotated[
        str | None,
        typer.Argument(
            metavar="PORT[:LOCAL]",
            help="Port of the node's 127.0.0.1, and port of this machine. Default: the port that the job offers in the file `forward` "
            "of its directory, as examples/notebook.sh does; here the same one, or any if that is taken.",
        ),
    ] = None,
    node: Annotated[int | None, typer.Option(min=0, help="The job's node: 0, 1, ... Default: 0.")] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="The node of this process.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job runs and its port answers.")] = False,
) -> None:
    """Forward a port of a running job's node to this machine.

    Until Ctrl-C, for a notebook, a dashboard, a debugger. Only this machine reaches it.
    """
    there, local = _ports(ports)
    jobs = backend(on)
    id, named = _job_or_node(jobs, id)
    if named and (node is not None or rank is not None):
        raise typer.BadParameter(f"{named} is a node: leave out --node and --rank")
    if wait:
        _until_it_runs(jobs, id)
    at: int | str = named or node or 0
    if rank is not None:
        at = jobs.node_of_rank(id, rank)
    patience = _PATIENCE if wait else _OFFER if not there else 0.0
    with jobs.forward(id, there, node=at, local=local, patience=patience) as tunnel:
        answer(tunnel.url if sys.stdout.isatty() else tunnel.address)
        hidden = (
            "" if sys.stdout.isatty() or tunnel.url == tunnel.address else " (its path is shown on a terminal only)"
        )
        say(f"port {tunnel.there} of node {at} of {id}{hidden}. Ctrl-C ends the tunnel; the job goes on")
        _until_interrupted(tunnel, f"the tunnel has ended; {id} goes on. It ends with trn cancel {id}")


def _job_or_node(jobs: Backend[Submission], given: str) -> tuple[str, str]:
    """The id of a job, and the node's name where it is given by that.

    Raises:
        JobError: there is neither, or no job of `trn` runs on the node.
    """
    try:
        return whole(jobs, given), ""
    except UnknownJob as e:
        unknown = e
    from trainium_cdk.jobs.backend import named_node

    nodes = jobs.nodes()
    if all(node.name != given for node in nodes):
        raise JobError(f"there is no node {given[:80]!r} (`trn nodes` lists them), and {unknown}") from None
    runs = named_node(nodes, given).job
    id, _, stage = runs.rpartition(":")
    if not id or stage not in _STAGES:
        why = f"it is used by {runs}, which is none" if runs else "none runs there"
        raise JobError(
            f"a port of node {given} is forwarded through a job of trn, and {why}. `trn nodes` shows what runs where"
        )
    if members := jobs.status(id).members:
        raise JobError(
            f"{id}, which uses node {given}, is an array. Give its member, for example {id}/{members[0].name}"
        )
    return id, given


_STAGES = frozenset({"prepare", "precompile", "train"})
_PATIENCE, _OFFER = 600.0, 30.0
"""Seconds for a program to start: with --wait; for a job's offer without."""
_PORTS = re.compile(r"(\d{1,5})(?::(\d{1,5}))?")


def _ports(given: str | None) -> tuple[int, int]:
    """(port of the node, port of this machine); 0: not given."""
    if given is None:
        return 0, 0
    match = _PORTS.fullmatch(given)
    found = [int(port) for port in match.groups() if port] if match else []
    if not found or not all(0 < port < 65_536 for port in found):
        raise typer.BadParameter(f"{given[:40]!r} is not PORT or PORT:LOCAL, each 1 to 65535, as in 8888 or 8888:9999")
    return found[0], (*found, 0)[1]


def _until_it_runs(jobs: Backend[Submission], id: str) -> None:
    def runs(status: JobStatus) -> bool:
        if status.done:
            raise JobError(f"{id} has ended: it is {status.state}. See trn logs {id}")
        return status.current.name != "prepare" and status.current.state == "RUNNING"

    status = jobs.status(id)
    if not runs(status):
        say(f"{id} is {status.state}; waiting until it runs. Ctrl-C ends the wait, not the job")
    while not runs(status):
        jobs.sleep(jobs.interval)
        status = jobs.status(id)


def _until_interrupted(tunnel: Tunnel, then: str) -> None:
    try:
        tunnel.wait()
    except KeyboardInterrupt:
        say(f"\n{then}")


@on_cluster()
def tensorboard(
    on: Target,
    id: JobId,
    port: Annotated[
        int, typer.Option(min=0, max=65535, show_default=False, help="Port of this machine. Default: a free one.")
    ] = 0,
    image: Annotated[str | None, typer.Option(help="Kubernetes: image with TensorBoard. Default: the job's.")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in a browser.")] = True,
) -> None:
    """Show a job's TensorBoard at a port of this machine.

    Until Ctrl-C. Only this machine reaches it.
    """
    jobs = backend(on)
    with jobs.tensorboard(whole(jobs, id), image=image, port=port, say=say) as board:
        answer(board.url)
        say("Ctrl-C ends it")
        if browser and sys.stdout.isatty():
            webbrowser.open(board.url)
        _until_interrupted(board, "TensorBoard ends")


def _run(id: str, node: int, command: list[str], jobs: Backend[Submission]) -> None:
    if code := jobs.execute(whole(jobs, id), node, command):
        raise typer.Exit(code)
