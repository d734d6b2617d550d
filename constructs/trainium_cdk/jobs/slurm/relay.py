"""A port of a node on which a job runs, at a port of this machine.
 Jobs' nodes have no agent of Session Manager, and a program that only its user may reach listens on the node's loopback address. So a step
of the job (`runner.work.relay`) connects the two: Slurm starts it only for the job's own user, and it serves only the caller, who has the
secret whose digest it was started with. The secret is in no command, and not in Systems Manager's record of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from trainium_cdk.errors import JobError, TransportError, TrnError
from trainium_cdk.jobs.forward import OFFER, Listener, Tunnel, join, offered, patiently, refused
from trainium_cdk.jobs.sessions import TO_HOST, free_port
from trainium_cdk.jobs.sessions import forward as session
from trainium_cdk.jobs.slurm.inside import place
from trainium_cdk.jobs.slurm.tensorboard import Source
from trainium_cdk.jobs.status import JobStatus
from trainium_cdk.runner.requests import StartRelay
from trainium_cdk.runner.work.relay import line

_CONNECT_SECONDS = 30.0


@contextlib.contextmanager
def forward(
    source: Source, status: JobStatus, node: int | str, port: int, local: int, patience: float
) -> Iterator[Tunnel]:
    """Arguments and errors as of `Backend.forward`."""
    secret, offer, path = secrets.token_urlsafe(32), f"{status.directory}/{OFFER}", "/"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    begun = source.ask(StartRelay(place(status, node), digest, offer))
    host, there = str(begun["address"]), str(begun["port"])
    with contextlib.ExitStack() as opened:
        if target := source.transport.instance:
            near = free_port()
            opened.callback(session(target, source.cluster.region, TO_HOST, {"host": host, "portNumber": there}, near))
            host, there = "127.0.0.1", str(near)
        relay = _Relay(host, int(there), secret, status.id, node)
        stay = opened.enter_context(relay.ask("stay"))
        relay.confirmed(stay)
        if not port:
            port, path = patiently(patience, lambda: offered(relay.text("offer"), offer))
        patiently(patience, lambda: relay.connect(port).close())

        def serve(here: socket.socket) -> None:
            with here, contextlib.suppress(OSError, JobError, TransportError), relay.connect(port) as far:
                join(here, far)

        ended = f"the tunnel to {status.id} has ended: its job has ended or started again. See trn status {status.id}"
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
        """What the relay says instead of `ok`; empty if it is that. Raises TransportError: it says nothing."""
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
