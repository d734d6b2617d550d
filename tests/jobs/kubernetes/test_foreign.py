"""What other clients queue beside the jobs of `trn`: it is listed, marked, and left alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.kubernetes.api import path_of
from tests.jobs.kubernetes.conftest import Running, script
from tests.support import need_kubernetes, until
from trainium_cdk.client.cli import follow
from trainium_cdk.client.cli.app import app
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, parts, status
from trainium_cdk.client.jobs.kubernetes.objects import objects
from trainium_cdk.client.operations.teardown.occupants import lines, occupants
from trainium_cdk.errors import JobError

QUEUE = {parts.QUEUE_LABEL: "trn"}
POD = {
    "restartPolicy": "Never",
    "containers": [{"name": "main", "image": "none", "resources": {"limits": {"cpu": "1"}}}],
}
TYPES = {"BatchJob": "batch/v1", "JobSet": parts.JOBSET, "VolcanoJob": "batch.volcano.sh/v1alpha1"}


@pytest.fixture
def theirs(backend: KubernetesBackend, running: Running) -> Iterator[dict[str, str]]:
    """Name -> kind of a JobSet and a batch Job in the queue, and a job of Volcano; none can start. With one that has ended."""
    need_kubernetes(volcano=True)
    api = running.kubernetes.api()
    nowhere = {**POD, "nodeSelector": {"no-node": "has-this"}}
    jobset = copy.deepcopy(objects(backend.render(script(b"true", nodes=1), "theirs"), backend.cluster).jobs[0])
    jobset["metadata"] = {"name": "their-jobset", "labels": QUEUE}
    jobset["spec"]["suspend"] = True
    status.train_spec(jobset)["nodeSelector"] = nowhere["nodeSelector"]
    job = {"metadata": {"name": "their-job", "labels": QUEUE}, "spec": {"suspend": True, "template": {"spec": nowhere}}}
    tasks = [{"name": "train", "replicas": 1, "template": {"spec": nowhere}}]
    volcano = {
        "metadata": {"name": "their-torchx"},
        "spec": {"schedulerName": "volcano", "queue": "trn", "minAvailable": 1, "tasks": tasks},
    }
    made = {"JobSet": jobset, "BatchJob": job, "VolcanoJob": volcano}
    for kind, body in made.items():
        body |= {"apiVersion": TYPES[kind], "kind": kind.removeprefix("Batch").removeprefix("Volcano")}
        body["metadata"]["namespace"] = "training"
        api.create(body)
    yield {"their-jobset": "jobset.jobset.x-k8s.io", "their-job": "job.batch", "their-torchx": "job.batch.volcano.sh"}
    for body in made.values():
        api.delete(path_of(body["apiVersion"], body["kind"], body["metadata"]["name"], "training"))
    assert until(lambda: backend.others() == ())


def test_it_is_listed_and_left_alone(
    backend: KubernetesBackend,
    theirs: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine = backend.submit(script(b"sleep 3600", nodes=1), "mine")
    assert until(lambda: {one.name: one.kind for one in backend.others()} == theirs), backend.others()
    assert {one.queue for one in backend.others()} == {"trn", ""}
    assert not {*theirs} & {job.id for job in (*backend.list(), *backend.active())}
    monkeypatch.setattr(follow, "backend", lambda *_: backend)

    def listed(*options: str) -> dict[str, list[str]]:
        app(["list", *options], standalone_mode=False)
        return {row.split("\t")[0]: row.split("\t")[1:] for row in capsys.readouterr().out.splitlines()[1:]}

    found = listed()
    assert next(name for name in found if name in {mine.id, *theirs}) == mine.id
    assert {name: found[name][-1] for name in theirs} == {name: f"not of trn: {kind}" for name, kind in theirs.items()}
    assert not {*theirs} & {*listed("--mine")}
    told = list(lines(occupants(backend, "me")))
    assert sorted(line.partition(": ")[0] for line in told) == sorted(
        f"   ends with it, of others (unknown user of {kind})" for kind in ("trn", *theirs.values())
    )
    assert {line.partition(": ")[2].partition(";")[0] for line in told} <= {"1 running", "1 waiting"}
    assert not {*theirs} & {*listed("--state", "completed")}

    asks: list[Any] = [backend.status, backend.cancel, lambda id: list(backend.logs(id))]
    for name, kind in theirs.items():
        kind = "jobset" if name == "their-jobset" else kind
        for ask in asks:
            with pytest.raises(
                JobError, match=f"{name} is not a job of trn: .* `kubectl -n training describe {kind}/{name}`"
            ):
                ask(name)
    assert {one.name for one in backend.others()} == {*theirs}, "all are still there"
