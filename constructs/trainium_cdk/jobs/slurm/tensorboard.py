"""TensorBoard on the head node, reached through a port of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

from trainium_cdk.errors import TransportError
from trainium_cdk.jobs import quote
from trainium_cdk.jobs.forward import Tunnel
from trainium_cdk.jobs.patience import until
from trainium_cdk.jobs.sessions import forward, free_port, serves
from trainium_cdk.jobs.slurm.render import venv_of
from trainium_cdk.jobs.slurm.transport import Transport
from trainium_cdk.outputs import SlurmCluster

_DOCUMENT = "AWS-StartPortForwardingSession"
_READY_SECONDS = 120.0
_HOURS = 12
# It ends with `stop`, or after half a day, even if this machine has gone. Its port is free when it begins.
_START = r"""set -eu
job=${{TRN_SHARED_ROOT:-}}{directory}
venv={venv}
if [ -f "$job/environment" ]; then venv=${{job%/jobs/*}}/environments/$(cat "$job/environment"); fi
if [ -f "$venv/bin/activate" ]; then set +u; . "$venv/bin/activate"; set -u; fi
command -v tensorboard > /dev/null || {{ echo "there is no tensorboard in $venv. Install it there: pip install tensorboard" >&2; exit 4; }}
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
setsid timeout {hours}h tensorboard --logdir "$job" --port "$port" --host 127.0.0.1 > /dev/null 2>&1 < /dev/null &
echo "trn-board $! $port"
"""


class Source(Protocol):
    cluster: SlurmCluster

    @property
    def transport(self) -> Transport: ...

    def run_shared(self, script: str) -> str: ...


@contextlib.contextmanager
def serve(source: Source, directory: str, *, port: int, say: Callable[[str], None]) -> Iterator[Tunnel]:
    """TensorBoard over all of a job's directory; it ends with this context.

    Args:
        port: of this machine. Default: a free one; where this is the head node, TensorBoard's own.

    Raises:
        TransportError: it cannot be started or reached.
    """
    start = _START.format(directory=quote.word(directory), venv=venv_of(source.cluster), hours=_HOURS)
    words = source.run_shared(start).rpartition("trn-board ")[2].split()
    pid, there = int(words[0]), int(words[1])
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
            source.run_shared(f"case $(ps -o args= -p {pid}) in *tensorboard*) kill -- -{pid} ;; esac || true")
