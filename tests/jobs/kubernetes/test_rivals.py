"""Jobs behind others in a queue, with real Kueue and JobSet: what `trn` says of them, and of what others have queued."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.kubernetes.api import path_of
from tests.eks.scenes import next_second
from tests.jobs.kubernetes.conftest import NODES, Running, script
from tests.support import until
from trainium_cdk.client.cli import follow
from trainium_cdk.client.cli.app import app
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, parts, status
from trainium_cdk.client.jobs.kubernetes.objects import objects
from trainium_cdk.errors import JobError

WHY = "set aside, as it can never start: it asks for aws.amazon.com/neuroncore, which its queue does not have."


@pytest.fixture
def cores(backend: KubernetesBackend, running: Running) -> Iterator[str]:
    """A JobSet of another client that asks for a resource which no queue has."""
    api = running.kubernetes.api()
    body: dict[str, Any] = copy.deepcopy(
        objects(backend.render(script(b"true", nodes=1), "cores"), backend.cluster).jobs[0]
    )
    body["metadata"] = {"name": "cores", "namespace": "training", "labels": {parts.QUEUE_LABEL: "trn"}}
    body["spec"]["suspend"] = True
    for container in status.train_spec(body)["containers"]:
        container["resources"] = {"limits": {"aws.amazon.com/neuroncore": "2"}}
    api.create(body)
    yield "cores"
    api.delete(path_of(parts.JOBSET, "JobSet", "cores", "training"))
    assert until(lambda: backend.others() == ())


@pytest.mark.sweep
def test_what_can_never_start_is_told_and_does_not_block(
    backend: KubernetesBackend, cores: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert until(lambda: bool(backend.others()))
    next_second()
    mine = backend.submit(script(b"sleep 3600", nodes=1, cache="behind"), "behind")
    assert until(lambda: backend.status(mine.id).state == "RUNNING"), backend.status(mine.id).current
    [theirs] = backend.others()
    assert (theirs.name, theirs.state) == (cores, "PENDING")
    assert theirs.reason.startswith(WHY)
    monkeypatch.setattr(follow, "backend", lambda *_: backend)
    app(["list"], standalone_mode=False)
    [row] = [line.split("\t") for line in capsys.readouterr().out.splitlines() if line.startswith(cores)]
    assert row[-1].startswith(f"not of trn: jobset.jobset.x-k8s.io; {WHY}")
    with pytest.raises(JobError, match=r"cores is not a job of trn: .* It waits: set aside, as it can never start"):
        backend.status(cores)


def test_those_behind_the_head_are_told_what_it_lacks_and_who_has_it(backend: KubernetesBackend) -> None:
    wide = backend.submit(script(b"sleep 3600", nodes=NODES, cache="wide"), "wide")
    assert until(lambda: backend.status(wide.id).state == "RUNNING")
    quota = backend.cluster.fleets[0].nodes
    ahead = backend.submit(script(b"true", nodes=quota, cache="ahead"), "ahead")
    next_second()
    last = backend.submit(script(b"true", nodes=1, cache="last"), "last")
    held = f"nodes of trn in use: {wide.id} {NODES}"
    lacks = f"it lacks {NODES} nodes of trn"
    head = f"position 1 in its queue: {lacks}; {held}"
    assert until(lambda: backend.status(ahead.id).current.reason == head), backend.status(ahead.id).current.reason
    assert backend.status(last.id).current.reason == f"position 2 in its queue, behind {ahead.id}: {lacks}; {held}"
    rows = {job.id: job.current.reason for job in backend.list() if not job.done}
    assert rows[last.id] == backend.status(last.id).current.reason
