"""Ports of this machine that lead to a Slurm cluster: to a node on which a job runs, or to TensorBoard on the head node.

Jobs' nodes have no agent of Session Manager, and a program that only its user may reach listens on the node's loopback address. So a step
of the job (`runner.work.relay`) connects the two: Slurm starts it only for the job's own user, and it serves only the caller, who has the
secret whose digest it was started with. The secret is in no command, and not in Systems Manager's record of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from trainium_cdk.client.jobs.backend import until
from trainium_cdk.client.jobs.forward import (
    TO_HOST,
    Listener,
    Tunnel,
    free_port,
    join,
    offered,
    patiently,
    refused,
    serves,
)
from trainium_cdk.client.jobs.forward import forward_port as session
from trainium_cdk.client.jobs.job_spec import venv_of
from trainium_cdk.errors import JobError, TransportError, TrnError
from trainium_cdk.runner.requests import StartBoard, StartedBoard, StartedRelay, StartRelay, StopBoard
from trainium_cdk.runner.work.relay import line

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.slurm.transport import Transport
    from trainium_cdk.description.outputs import SlurmCluster

_CONNECT_SECONDS = 30.0
_TO_PORT = "AWS-StartPortForwardingSession"
_READY_SECONDS = 120.0


class TunnelSource(Protocol):
    """The part of a backend that is used here."""

    cluster: SlurmCluster
    say: Callable[[str], None]

    @property
    def transport(self) -> Transport: ...

    def ask(self, given: Any) -> Any: ...


@contextlib.contextmanager
def tensorboard(source: TunnelSource, id: str, *, port: int, say: Callable[[str], None]) -> Iterator[Tunnel]:
    """TensorBoard over all of a job's directory; it ends with this context.

    Args:
        port: of this machine. Default: a free one; where this is the head node, TensorBoard's own.

    Raises:
        JobError: there is no such program.
        TransportError: it cannot be started or reached.
    """
    begun: StartedBoard = source.ask(StartBoard(id, venv_of(source.cluster)))
    try:
        say("TensorBoard starts on the head node")
        target = source.transport.instance
        near = (port or free_port()) if target else begun.port
        if target:
            session(target, source.cluster.region, _TO_PORT, {"portNumber": str(begun.port)}, near)
        board = Tunnel(near, lambda: serves(board.url), "TensorBoard has ended. Start it again")
        if not until(board.alive, _READY_SECONDS):
            raise TransportError(f"TensorBoard did not answer within {_READY_SECONDS:.0f} s")
        yield board
    finally:
        with contextlib.suppress(TransportError):  # it ends by itself
            source.ask(StopBoard(begun.number))


@contextlib.contextmanager
def forward(
    source: TunnelSource, id: str, node: int | str, rank: int | None, port: int, local: int, patience: float
) -> Iterator[Tunnel]:
    """Arguments and errors as of `Backend.forward`."""
    secret, path = secrets.token_urlsafe(32), "/"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    number, name = (node, "") if isinstance(node, int) else (0, node)
    begun: StartedRelay = source.ask(StartRelay(id, number, digest, name, rank))
    if rank is not None:
        node = begun.node
        source.say(f"rank {rank} is on node {node}")
    host, there = begun.address, begun.port
    with contextlib.ExitStack() as opened:
        if target := source.transport.instance:
            near = free_port()
            opened.callback(
                session(target, source.cluster.region, TO_HOST, {"host": host, "portNumber": str(there)}, near)
            )
            host, there = "127.0.0.1", near
        relay = _Relay(host, there, secret, id, node)
        stay = opened.enter_context(relay.ask("stay"))
        relay.confirmed(stay)
        if not port:
            port, path = patiently(patience, lambda: offered(relay.text("offer"), begun.offer))
        patiently(patience, lambda: relay.connect(port).close())

        def serve(here: socket.socket) -> None:
            with here, contextlib.suppress(OSError, JobError, TransportError), relay.connect(port) as far:
                join(here, far)

        ended = f"the tunnel to {id} has ended: its job has ended or started again. See trn status {id}"
        listener = opened.enter_context(Listener(serve, local, port))
        yield Tunnel(listener.port, lambda: _echoes(stay), ended, path, port)


@dataclass(frozen=True)
class _Relay:
    """A relay of `runner.work.relay`, at an address that this machine reaches."""

    host: str
    port: int
    secret: str
    id: str
    node: int | str

    def ask(self, what: str) -> socket.socket:
        try:
            found = socket.create_connection((self.host, self.port), timeout=_CONNECT_SECONDS)
            found.sendall(f"{self.secret} {what}\n".encode())
        except OSError as e:
            raise TransportError(f"node {self.node} of {self.id} cannot be reached: {e}") from None
        return found

    def confirmed(self, far: socket.socket) -> str:
        """Read the relay's reply. Return its message; empty if it is `ok`. Raises TransportError: it says nothing."""
        try:
            said = line(far)
        except OSError:
            said = ""
        if not said:
            raise TransportError(f"node {self.node} of {self.id} does not respond. Try again")
        return "" if said == "ok" else said

    def text(self, what: str) -> str:
        with self.ask(what) as far, far.makefile("rb") as found:
            return found.read().decode(errors="replace")

    def connect(self, port: int) -> socket.socket:
        """A connection with a port of the node. Raises JobError: nothing listens there."""
        far = self.ask(str(port))
        try:
            if reason := self.confirmed(far):
                raise refused(self.id, self.node, port, reason)
        except TrnError:
            far.close()
            raise
        far.settimeout(None)
        return far


def _echoes(stay: socket.socket) -> bool:
    try:
        stay.sendall(b".")
        return bool(stay.recv(64))
    except OSError:
        return False
