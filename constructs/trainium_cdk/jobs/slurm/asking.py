"""One request to the runner of a cluster, through any transport, and its answer or error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainium_cdk.errors import NotTheirs, TransportError
from trainium_cdk.jobs.backend import read_answer
from trainium_cdk.jobs.slurm.transport import NOT_THEIRS, Result
from trainium_cdk.runner.requests import Cluster, write_request

if TYPE_CHECKING:
    from trainium_cdk.jobs.slurm.transport import Transport
    from trainium_cdk.outputs import SlurmCluster


def ask(transport: Transport, cluster: SlurmCluster, given: Any, *, timeout: float = 120, private: bool = False) -> Any:
    """Ask one request (see `runner.requests`); its answer as plain data.

    Args:
        timeout: seconds.
        private: only sender and head node may read it, now or later.

    Raises:
        JobError: it was refused.
        UnknownJob: there is no job of that id.
        NotTheirs: the jobs are somebody else's.
        TransportError: the cluster cannot be reached, or Slurm does not answer.
    """
    request = json.dumps(write_request(seen_by_runner(cluster), given))
    told = _read(transport.ask(cluster, request, timeout, private))
    return read_answer(told, getattr(given, "id", ""), cluster)


def seen_by_runner(cluster: SlurmCluster) -> Cluster:
    """A cluster as the runner sees it."""
    return Cluster(
        shared_dir=cluster.shared_dir,
        folder=cluster.folder,
        identity=cluster.identity,
        name=cluster.cluster_name,
        stack=cluster.stack,
        region=cluster.region,
        cpu_queue=cluster.cpu.queue if cluster.cpu else "",
        several=bool(cluster.users),
    )


def _read(result: Result) -> Any:
    try:
        told = json.loads(result.stdout)
        if "answer" in told or (told["error"]["kind"] and told["error"]["message"]):
            return told
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    errors = [line.strip() for line in result.stderr.splitlines() if line.strip()][-3:]
    why = " ".join(errors)[-600:] or f"exit code {result.code}"
    if result.code == NOT_THEIRS:
        raise NotTheirs(why, again=False)
    raise TransportError(f"the query on the head node failed: {why}", again=result.code < 0 or result.code > 128)
