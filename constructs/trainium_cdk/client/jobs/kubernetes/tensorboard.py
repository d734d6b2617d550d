"""TensorBoard in the cluster, reached through a port of this machine only."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from typing import Any

from trainium_cdk.client.jobs.backend import until
from trainium_cdk.client.jobs.forward import Tunnel, serves
from trainium_cdk.client.jobs.kubernetes import reader, status
from trainium_cdk.client.jobs.kubernetes.api import Api
from trainium_cdk.client.jobs.kubernetes.inside import Forward
from trainium_cdk.client.jobs.kubernetes.look import JobSource
from trainium_cdk.client.jobs.pyz import pyz
from trainium_cdk.errors import TransportError
from trainium_cdk.runner.work.board import HOURS

PORT = 6006
_READY_SECONDS = 120.0


@contextlib.contextmanager
def serve(
    backend: JobSource,
    id: str,
    *,
    image: str | None = None,
    port: int = 0,
    say: Callable[[str], None] = print,
) -> Iterator[Tunnel]:
    """TensorBoard over all of a job's directory, in a pod on a system node, which is deleted with this context, and ends after
    half a day even if this process is killed.

    Args:
        image: default: the job's.
        port: of this machine. Default: a free one.

    Raises:
        UnknownJob, TransportError
    """
    seen = backend.seen(id, any_member=True)
    directory = backend.status(id).directory
    image = image or str(status.train_spec(seen.job)["containers"][0]["image"])
    name = f"trn-tensorboard-{secrets.token_hex(4)}"
    command, files = [*reader.RUNNER, "board", directory, str(PORT)], {"runner.pyz": pyz().content}
    seconds = HOURS * 3600
    pod = reader.pod(backend.cluster, name, "tensorboard", image, command, seconds=seconds, port=PORT, files=files)
    api = backend.api
    with reader.sent(api, pod, files), _created(api, pod):
        say(f"TensorBoard starts in pod {name}; pulling its image takes some minutes the first time")
        reader.until(api, name, lambda p: p["status"].get("phase") not in (None, "Pending"))
        with Forward(api, name, PORT, local=port) as forward:
            ended = f"TensorBoard's pod {name} has ended. Start it again"
            board = Tunnel(forward.port, lambda: _phase(backend, name) == "Running", ended)
            if not until(lambda: _serves(backend, name, board.url), _READY_SECONDS):
                raise TransportError(f"TensorBoard in pod {name} did not answer within {_READY_SECONDS:.0f} s")
            yield board


@contextlib.contextmanager
def _created(api: Api, pod: dict[str, Any]) -> Iterator[None]:
    api.create("Pod", pod)
    try:
        yield
    finally:
        api.delete("Pod", pod["metadata"]["name"])


def _phase(backend: JobSource, name: str) -> str:
    try:
        return str(backend.api.get("Pod", name).get("status", {}).get("phase", ""))
    except TransportError:
        return ""


def _serves(backend: JobSource, name: str, url: str) -> bool:
    if _phase(backend, name) in ("Failed", "Succeeded"):
        if full := status.memory_full(backend.api.get("Pod", name), "main"):
            raise TransportError(f"TensorBoard {full}")
        lines = b"".join(backend.api.log(name, "main")).decode(errors="replace").strip().splitlines()[-1:]
        raise TransportError(f"TensorBoard ended: {' '.join(lines).removeprefix('trn: ') or 'no reason reported'}")
    return serves(url)
