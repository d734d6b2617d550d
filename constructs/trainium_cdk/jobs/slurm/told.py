"""The runner's answers as the client shows them, with what only the client knows: the catalogue, and the outputs of the stack. Pure."""

from __future__ import annotations

import base64
import gzip
import re
import zlib
from dataclasses import replace
from typing import Any

from trainium_cdk.errors import TransportError
from trainium_cdk.jobs.status import JobStatus, Node, Stage
from trainium_cdk.outputs import SlurmCluster
from trainium_cdk.runner.spec import SpecError, from_json

_EC2 = re.compile(r"; EC2 reported (\w{1,60}) for ")


def job(value: Any) -> JobStatus:
    """A job of an answer."""
    found: JobStatus = read(JobStatus, value)
    return replace(found, stages=tuple(map(_explained, found.stages)), members=tuple(map(_explained, found.members)))


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


def unpack(text: object) -> bytes:
    """A piece of a log.

    Raises:
        TransportError: it is damaged. To continue would leave a gap in a log.
    """
    try:
        return gzip.decompress(base64.b64decode(str(text))) if text else b""
    except (ValueError, OSError, EOFError, zlib.error):
        raise TransportError("part of the head node's response was lost. Try again") from None


def _explained(stage: Stage) -> Stage:
    """With what an error of EC2 means."""
    found = _EC2.search(stage.reason) if stage.state == "PENDING" else None
    if found is None:
        return stage
    from trainium_cdk.catalog.known_errors import explain  # only here: not for each `trn status`

    error = explain(f"(Code:{found[1]})")
    return replace(stage, reason=f"{stage.reason}: {error}") if error else stage
