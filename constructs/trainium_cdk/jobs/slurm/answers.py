"""Requests to the runner of a Slurm cluster, and its answers, with what only the client knows: the catalogue, and the outputs of the stack."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainium_cdk.errors import NotTheirs, TransportError
from trainium_cdk.jobs.backend import read_answer
from trainium_cdk.jobs.ending import with_reasons
from trainium_cdk.jobs.slurm.transport import NOT_THEIRS, Result
from trainium_cdk.jobs.status import JobStatus, Node, Stage
from trainium_cdk.runner.requests import Cluster, write_request
from trainium_cdk.runner.spec import SpecError, from_json

if TYPE_CHECKING:
    from trainium_cdk.jobs.slurm.transport import Transport
    from trainium_cdk.outputs import SlurmCluster

_EC2 = re.compile(r"; EC2 reported (\w{1,60}) for ")


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
    answer = _read(transport.ask(cluster, request, timeout, private))
    return read_answer(answer, getattr(given, "id", ""), cluster)


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
        answer = json.loads(result.stdout)
        if "answer" in answer or (answer["error"]["kind"] and answer["error"]["message"]):
            return answer
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    errors = [line.strip() for line in result.stderr.splitlines() if line.strip()][-3:]
    why = " ".join(errors)[-600:] or f"exit code {result.code}"
    if result.code == NOT_THEIRS:
        raise NotTheirs(why, again=False)
    raise TransportError(f"the query on the head node failed: {why}", again=result.code < 0 or result.code > 128)


def job(value: Any) -> JobStatus:
    """A job of an answer."""
    found: JobStatus = read(JobStatus, value)
    found = replace(found, stages=tuple(map(_explained, found.stages)), members=tuple(map(_explained, found.members)))
    return with_reasons(found)


def node(value: Any, cluster: SlurmCluster) -> Node:
    """A node of an answer, with its instance type."""
    found: Node = read(Node, value)
    fleets = [
        f
        for f in cluster.every_fleet
        # PCS names no kind, and its CPU nodes have the queue's name alone
        if re.match(rf"{re.escape(f.queue)}-(?:(?:(?:dy|st)-)?{re.escape(f.resource)}-)?\d+$", found.name)
    ]
    first = fleets[0] if fleets else None
    return replace(
        found,
        queue=found.queue or (first.queue if first else ""),
        instance_type=first.instance_type if first else "",
    )


def read(kind: type[Any], value: Any) -> Any:
    """A value of a class of the runner. It may be that of a newer runner."""
    try:
        return from_json(kind, value, strict=False)
    except SpecError as e:
        raise TransportError(f"the runner's answer cannot be read: {e}", again=False) from None


def _explained(stage: Stage) -> Stage:
    """With what an error of EC2 means."""
    found = _EC2.search(stage.reason) if stage.state == "PENDING" else None
    if found is None:
        return stage
    from trainium_cdk.catalog.known_errors import explain  # only here: not for each `trn status`

    error = explain(f"(Code:{found[1]})")
    return replace(stage, reason=f"{stage.reason}: {error}") if error else stage
