"""TensorBoard on the head node, reached through a port of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from trainium_cdk.errors import TransportError
from trainium_cdk.jobs.forward import Tunnel
from trainium_cdk.jobs.job_spec import venv_of
from trainium_cdk.jobs.patience import until
from trainium_cdk.jobs.sessions import forward, free_port, serves
from trainium_cdk.jobs.slurm.transport import Transport
from trainium_cdk.outputs import SlurmCluster
from trainium_cdk.runner.requests import StartBoard, StopBoard

_DOCUMENT = "AWS-StartPortForwardingSession"
_READY_SECONDS = 120.0


class Source(Protocol):
    cluster: SlurmCluster

    @property
    def transport(self) -> Transport: ...

    def ask(self, given: Any) -> Any: ...


@contextlib.contextmanager
def serve(source: Source, directory: str, *, port: int, say: Callable[[str], None]) -> Iterator[Tunnel]:
    """TensorBoard over all of a job's directory; it ends with this context.

    Args:
        port: of this machine. Default: a free one; where this is the head node, TensorBoard's own.

    Raises:
        JobError: there is no such program.
        TransportError: it cannot be started or reached.
    """
    begun = source.ask(StartBoard(directory, venv_of(source.cluster)))
    there = int(begun["port"])
    try:
        say("TensorBoard starts on the head node")
        target = source.transport.instance
        near = (port or free_port()) if target else there
        if target:
            forward(target, source.cluster.region, _DOCUMENT, {"portNumber": str(there)}, near)
        board = Tunnel(near, lambda: serves(board.url), "TensorBoard has ended. Start it again")
        if not until(board.alive, _READY_SECONDS):
            raise TransportError(f"TensorBoard did not answer within {_READY_SECONDS:.0f} s")
        yield board
    finally:
        with contextlib.suppress(TransportError):  # it ends by itself
            source.ask(StopBoard(int(begun["number"])))
