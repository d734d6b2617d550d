"""`trn shell` and `trn forward`: a shell on a node, and ports of a running job."""

from __future__ import annotations

import re
import sys
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.client.cli.named import LATEST, as_given, did_you_mean, end_of_sentence, is_full_id, resolve_id
from trainium_cdk.client.cli.options import ID_HELP, Target, backend, on_cluster
from trainium_cdk.client.cli.output import echo, log
from trainium_cdk.errors import JobError, UnknownJob

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.backend import Backend
    from trainium_cdk.client.jobs.forward import Tunnel
    from trainium_cdk.client.jobs.status import JobStatus, Node

LOGIN = ("login", "head")
"""Names of the machine from which the cluster is used."""


@on_cluster()
def shell(
    on: Target,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help=f"{ID_HELP} Or the name of a node (`trn nodes`). Or `login` or `head`: the machine from which the cluster is used, on Kubernetes "
            "the bastion host.",
        ),
    ] = LOGIN[0],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="Command to run instead of a shell; put -- before it."),
    ] = None,
    node: Annotated[int | None, typer.Option(min=0, help="The job's node: 0, 1, ... Default: 0.")] = None,
) -> None:
    """Open a shell, or run a command, on a node of a job or of the cluster.

    A job's shell sees what the job sees, and a command there has its own exit code. Other shells go through Session Manager: no port
    is open, and no key is needed.
    """
    jobs = backend(on)
    found = None if target in LOGIN else _job_or_node(jobs, target)
    if isinstance(found, str):
        raise typer.Exit(jobs.execute(found, node or 0, command or ["bash"]))
    if node is not None:
        raise typer.BadParameter(f"{target} is not a job: leave out --node")
    from trainium_cdk.client.jobs.forward import terminal

    instance, there = jobs.session(found, command or ())
    raise typer.Exit(terminal(instance, jobs.cluster.region, there))


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
            "of its directory, as examples/notebook.sh does; here the same one, or any if that is taken. With --tensorboard: the port of this machine.",
        ),
    ] = None,
    node: Annotated[int | None, typer.Option(min=0, help="The job's node: 0, 1, ... Default: 0.")] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="The node of this process.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job runs and its port answers.")] = False,
    tensorboard: Annotated[
        bool,
        typer.Option(
            "--tensorboard", help="Start TensorBoard on the job's curves, also of one that has ended, and open it."
        ),
    ] = False,
    image: Annotated[
        str | None, typer.Option(help="With --tensorboard, on Kubernetes: image with TensorBoard. Default: the job's.")
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="With --tensorboard: open it in a browser.")
    ] = True,
) -> None:
    """Open a job's notebook, TensorBoard or port on this machine.

    Until Ctrl-C. Only this machine reaches it.
    """
    there, local = _ports(ports)
    jobs = backend(on)
    if tensorboard:
        with jobs.tensorboard(as_given(jobs, id), image=image, port=local or there, say=log) as board:
            echo(board.url)
            log("Ctrl-C ends it")
            if browser and sys.stdout.isatty():
                webbrowser.open(board.url)
            _until_interrupted(board, "TensorBoard ends")
        return
    id, named = _job_on(jobs, id)
    if named and (node is not None or rank is not None):
        raise typer.BadParameter(f"{named} is a node: leave out --node and --rank")
    if wait:
        _until_it_runs(jobs, id)
    at: int | str = named or node or 0
    what = f"node {at}" if rank is None else f"the node of rank {rank}"
    patience = _PATIENCE if wait else _OFFER if not there else 0.0
    with jobs.forward(id, there, node=at, rank=rank, local=local, patience=patience) as tunnel:
        echo(tunnel.url if sys.stdout.isatty() else tunnel.address)
        hidden = (
            "" if sys.stdout.isatty() or tunnel.url == tunnel.address else " (its path is shown on a terminal only)"
        )
        log(f"port {tunnel.there} of {what} of {id}{hidden}. Ctrl-C ends the tunnel; the job continues")
        _until_interrupted(tunnel, f"the tunnel has ended; {id} still runs. To end it: trn cancel {id}")


def _job_or_node(jobs: Backend, given: str) -> str | Node:
    """The id of a job, or a node that is on.

    Raises:
        JobError: there is neither, or the node is powered down.
    """
    if given == LATEST or is_full_id(given.partition("/")[0]):
        return as_given(jobs, given)
    from trainium_cdk.client.jobs.backend import named_node

    nodes = jobs.nodes()
    names = [node.name for node in nodes]
    if given in names:
        return named_node(nodes, given)
    try:
        return resolve_id(jobs, given)
    except UnknownJob as e:
        hint = end_of_sentence(did_you_mean(given[:80], names))
        raise JobError(f"there is no node {given[:80]!r}{hint} `trn nodes` lists them. Also, {e}") from None


def _job_on(jobs: Backend, given: str) -> tuple[str, str]:
    """The id of a job, and the node's name where it is given by that.

    Raises:
        JobError: there is neither, or no job of `trn` runs on the node.
    """
    found = _job_or_node(jobs, given)
    if isinstance(found, str):
        return found, ""
    id, _, stage = found.job.rpartition(":")
    if not id or stage not in _STAGES:
        why = f"it is used by {found.job}, which is none" if found.job else "none runs there"
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
"""Seconds until a program answers with --wait, and until a job offers a port without it."""
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


def _until_it_runs(jobs: Backend, id: str) -> None:
    def runs(status: JobStatus) -> bool:
        if status.done:
            raise JobError(f"{id} has ended: it is {status.state}. See trn logs {id}")
        return status.current.name != "prepare" and status.current.state == "RUNNING"

    status = jobs.status(id)
    if not runs(status):
        log(f"{id} is {status.state}; waiting until it runs. Ctrl-C ends the wait, not the job")
    while not runs(status):
        jobs.sleep(jobs.interval)
        status = jobs.status(id)


def _until_interrupted(tunnel: Tunnel, ended: str) -> None:
    try:
        tunnel.wait()
    except KeyboardInterrupt:
        log(f"\n{ended}")
